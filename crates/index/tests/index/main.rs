//! Tests of what `rhumb_index::Index` promises, for every preset, kind of key, kind of value and
//! number of trainers.
//!
//! The modules know the index by its public interface only. `RHUMB_INDEX_SEED=n` runs one seed of
//! the differential histories alone. `RHUMB_INDEX_HISTORIES=n` sets the number of concurrent
//! histories that are recorded and checked (10000 is the long run). `RHUMB_INDEX_KEYS=n` sets the
//! number of keys of the workload that must lose none (10000000 is the long run).

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
