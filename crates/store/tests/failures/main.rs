//! Failures while a database is open, and how they are reported: threads that panic, disks that
//! fail, damage that reads meet, and handles that belong to another database.

mod foreign;
mod health;
mod panics;
