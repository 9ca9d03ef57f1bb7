//! A short form of the fuzzing: the seeds, and the seeds changed at random.
//! `RHUMB_FUZZ_SECONDS=n` goes on for that long with each target.

use super::{TARGETS, seeds};

/// Mutants that each target is tried with.
const MUTANTS: u64 = 60;

/// Runs the target over its seeds, and over mutants of them.
fn run(name: &'static str) {
    let (_, target) = *TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    rhumb_testkit::fuzzing::run(name, &seeds(name), MUTANTS, target);
}

#[test]
fn regions_keep_their_promises() {
    run("remote_region");
}

#[test]
fn models_keep_their_promises() {
    run("remote_models");
}

#[test]
fn arrays_keep_their_promises() {
    run("remote_arrays");
}

#[test]
fn messages_keep_their_promises() {
    run("remote_messages");
}

#[test]
#[cfg_attr(not(all(target_os = "linux", target_pointer_width = "64")), ignore)]
fn hosts_keep_their_promises() {
    run("remote_host");
}

#[test]
#[cfg_attr(not(all(target_os = "linux", target_pointer_width = "64")), ignore)]
fn clients_keep_their_promises() {
    run("remote_client");
}
