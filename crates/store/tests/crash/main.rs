//! Crash safety: the engine on a simulated disk, whose power is cut and whose calls fail.
//!
//! A history of random operations follows from a seed. While it runs, the power is cut during any
//! change of the disk, also during recovery; what the disk lost is chosen as badly as POSIX allows;
//! then the database is opened and held against an oracle. Other tests have every single call fail.
//!
//! - `RHUMB_SEED=n` runs one seed alone, and shows its steps and calls;
//! - `RHUMB_CRASH_CUTS=n` says after how many power cuts to stop (100000 is the long run);
//! - `RHUMB_FIRST_SEED=n` begins with another seed than 0, for a long run in pieces;
//! - `RHUMB_FAULT_HISTORIES=n` says in how many histories every call is made to fail.

mod coverage;
mod cuts;
mod faults;
mod history;
mod oracle;
mod planted;
mod program;
