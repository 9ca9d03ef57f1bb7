//! Crash safety: the engine on a simulated disk, whose power is cut and whose calls fail.
//!
//! A history of random operations follows from a seed. While it runs, the power is cut during any
//! change of the disk, also during recovery; what the disk lost is chosen as badly as POSIX allows;
//! then the database is opened and held against an oracle. `RHUMB_SEED=n` repeats one history,
//! with a trace of its calls when it fails; `RHUMB_CRASH_CUTS=n` says after how many cuts to stop.

mod cuts;
mod faults;
mod history;
mod oracle;
mod planted;
mod program;
