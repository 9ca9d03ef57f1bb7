//! `rhumb_index::Index` held to its promises, for every preset, kind of key, kind of value and number of
//! trainers.
//!
//! The modules know the index by its public interface only. `RHUMB_INDEX_SEED=n` runs one seed of
//! the differential histories alone; `RHUMB_INDEX_HISTORIES=n` says how many concurrent histories
//! are recorded and checked (10000 is the long run); `RHUMB_INDEX_KEYS=n` how many keys the
//! workload that must lose none is run on (10000000 is the long run).

mod common;
mod differential;
mod drops;
mod extremes;
mod growth;
mod histories;
mod lost_keys;
mod properties;
mod scans;
mod setting;
mod suspicions;
