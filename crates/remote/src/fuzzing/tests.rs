//! A short form of the fuzzing: the seeds, and the seeds changed at random.
//! `RHUMB_FUZZ_SECONDS=n` goes on for that long with each target.

use std::time::{Duration, Instant};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use super::{TARGETS, seeds};

/// Changed seeds that each target is tried with unless the environment says otherwise.
const MUTANTS: u32 = 60;

/// A seed with some bytes replaced, and perhaps cut, or a part of it again.
fn mutant(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(1), Just(0x80), Just(0xff)];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), byte), 0..8);
    let cut = prop::option::weighted(0.1, any::<prop::sample::Index>());
    let tail = prop_oneof![
        4 => Just(vec![]),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ];
    let seed = prop::sample::select(seeds(name));
    (seed, changes, cut, tail).prop_map(|(mut bytes, changes, cut, tail)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(tail);
        bytes
    })
}

/// Runs the target over its seeds, and over what is near them.
fn run(name: &'static str) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let seeds = seeds(name);
    assert!(!seeds.is_empty());
    let attempt = |bytes: &[u8]| {
        let outcome = std::panic::catch_unwind(|| target(bytes));
        assert!(outcome.is_ok(), "{name} fails for {bytes:?}");
    };
    seeds.iter().for_each(|seed| attempt(seed));
    attempt(&[]);
    let seconds = std::env::var("RHUMB_FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut runner, mutants) = (TestRunner::default(), mutant(name));
    let mut tried = 0u64;
    while until.map_or(tried < u64::from(MUTANTS), |until| Instant::now() < until) {
        attempt(&mutants.new_tree(&mut runner).unwrap().current());
        tried += 1;
    }
    println!("{name}: {tried} changed seeds");
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
