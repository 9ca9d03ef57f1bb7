//! Workloads, data sets and the measuring harness of Rhumb.
//!
//! A *suite* takes *engines* (Rhumb here, its rivals in the `compare` workspace) through the same
//! workloads on the same keys, verifies every byte they return, and reports medians. Nothing here
//! may favour a subject: what differs between them is written in their own adapters and stated in
//! the environment line.
#![deny(unsafe_code)]

pub mod choose;
#[cfg(feature = "rhumb")]
pub mod cli;
pub mod contents;
pub mod data;
pub mod drive;
#[cfg(feature = "rhumb")]
pub mod dropping;
pub mod environment;
pub mod keys;
pub mod options;
pub mod overlap;
pub mod plot;
pub mod progress;
pub mod queueing;
pub mod random;
#[cfg(all(
    feature = "rhumb",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
pub mod raw_disk;
pub mod report;
#[cfg(feature = "rhumb")]
pub mod rhumb_engine;
#[cfg(feature = "rhumb")]
pub mod rhumb_index;
pub mod subject;
pub mod suite;
pub mod transacting;
pub mod usage;
pub mod value;
pub mod work;
pub mod workspace;

#[cfg(test)]
mod model;
