//! What goes wrong while a database is open, and who is told: threads that panic, disks that fail,
//! damage that reads meet, and handles that belong to another database.

mod foreign;
mod health;
mod panics;
