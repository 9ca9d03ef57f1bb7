//! A short form of the fuzzing: the seeds, and the seeds changed at random.

use proptest::prelude::*;

use super::{TARGETS, Target, seeds};

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

fn run(name: &'static str, target: Target) {
    let mut runner = proptest::test_runner::TestRunner::default();
    let outcome = runner.run(&mutant(name), |bytes| {
        target(&bytes);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
}

#[test]
fn seeds_and_what_is_near_them_keep_the_promises() {
    for (name, target) in TARGETS {
        assert!(!seeds(name).is_empty());
        seeds(name).iter().for_each(|seed| target(seed));
        target(&[]);
        run(name, target);
    }
}

/// Found by fuzzing: a check of a database added the length that a pointer claims, of an entry that
/// hides behind another of its key and number, without a bound.
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
