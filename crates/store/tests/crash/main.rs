//! Crash safety: the engine on a simulated disk, whose power is cut and whose calls fail.
//!
//! A history of random operations follows from a seed. While it runs, the power is cut during any
//! change of the disk, also during recovery. What the disk loses is chosen as badly as POSIX
//! allows. Then the database is opened and compared with an oracle. Other tests make every single
//! call fail.
//!
//! - `RHUMB_SEED=n` runs one seed alone, and shows its steps and calls;
//! - `RHUMB_CRASH_CUTS=n` sets the number of power cuts after which to stop (100000 is the long
//!   run);
//! - `RHUMB_FIRST_SEED=n` begins with a seed other than 0, for a long run in parts;
//! - `RHUMB_FAULT_HISTORIES=n` sets the number of histories in which every call is made to fail.

mod coverage;
mod cuts;
mod faults;
mod history;
mod oracle;
mod planted;
mod program;
