//! A short form of the fuzzing: the seeds, and the seeds changed at random.

use proptest::{prelude::*, test_runner::TestRunner};

use super::{TARGETS, seeds};
use crate::{
    table::{KeyHash, block::BlockBuilder},
    types::Kind,
};

/// A seed with some bytes replaced, and perhaps cut.
fn mutant(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0x80), Just(0xff)];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), byte), 1..6);
    let cut = prop::option::weighted(0.1, any::<prop::sample::Index>());
    (prop::sample::select(seeds(name)), changes, cut).prop_map(|(mut bytes, changes, cut)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes
    })
}

/// Runs the target over its seeds, and over mutants of them.
fn run(name: &'static str) {
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    assert!(!seeds(name).is_empty());
    seeds(name).iter().for_each(|seed| target(seed));
    target(&[]);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&mutant(name), |bytes| {
        target(&bytes);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn blocks_keep_their_promises() {
    run("block");
}

#[test]
fn indexes_keep_their_promises() {
    run("index");
}

#[test]
fn tables_keep_their_promises() {
    run("table");
}

#[test]
fn logs_keep_their_promises() {
    run("log");
}

#[test]
fn manifests_keep_their_promises() {
    run("manifest");
}

/// Found by fuzzing: a check of a database added, without a bound, the length that a pointer
/// claims. The pointer's entry was hidden by another of the same key and number.
#[test]
fn a_hidden_entry_may_claim_any_length() {
    let mut builder = BlockBuilder::new(16);
    let tag = KeyHash::of(b"k").tag();
    builder.add(b"k", tag, 7, Kind::Value, b"v");
    builder.add(b"k", tag, 7, Kind::LargeValue, &[0xff; 24]);
    let mut input = vec![0, 0, 0];
    builder.finish(&mut input);
    super::block(&input);
}
