//! What other processes read: Rhumb's host beside LMDB and Redis.

mod lmdb;
mod redis;

use anyhow::Result;
use rhumb_bench::suite::remote::{
    self, RemoteOptions, choose_workloads,
    rhumb::{CALL, InProcess, LIMIT, RHUMB},
    subject::Subject,
    walk::{WALK, WALK_CACHED},
};

/// Subjects that are always there.
static KNOWN: [&dyn Subject; 6] = [&RHUMB, &CALL, &LIMIT, &InProcess, &lmdb::RENEWED, &lmdb::KEPT];

/// Subjects that walk a tree, with keys of up to 16 bytes, if they are named.
static WALKS: [&dyn Subject; 2] = [&WALK, &WALK_CACHED];

/// Subjects of a server that may not be installed.
static REDIS: [&dyn Subject; 2] = [&redis::ONE, &redis::PIPE];

/// Runs the suite on the subjects of these names; on all but walks if none is named.
///
/// # Errors
/// As the suite.
pub(crate) fn run(workloads: &[String], names: &[String], options: &RemoteOptions) -> Result<()> {
    let workloads = choose_workloads(workloads)?;
    let mut known = KNOWN.to_vec();
    if !names.is_empty() {
        known.extend(WALKS);
    }
    if redis::is_installed() {
        known.extend(REDIS);
    } else if !remote::is_part_of_a_run() {
        eprintln!("compare: redis and redis-pipe are left out: no redis-server is on the PATH");
    }
    let subjects = remote::choose(names, &known)?;
    remote::run(&subjects, &workloads, options)
}
