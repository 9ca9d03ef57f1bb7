//! Runs and directories against plain searches of sorted keys.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    directory::{block_bytes, block_image, find_block, find_slot, top_image},
    *,
};
use crate::{layout::Geometry, leaf::Entry};

fn entries(keys: &BTreeSet<Vec<u8>>, geometry: Geometry) -> Vec<Entry> {
    keys.iter().map(|key| Entry::new(geometry, key, &[1; 20])).collect()
}

/// Plans runs over all entries, checking each plan's promises.
fn plan_all(entries: &[Entry], geometry: Geometry) -> Vec<Run> {
    let mut runs = Vec::new();
    let (mut at, mut base) = (0, 0);
    while at < entries.len() {
        let plan = fit::plan(&entries[at..], geometry);
        let leaves = plan.ends.len() as u32;
        assert!(plan.taken() > 0 && leaves <= fit::RUN_LEAVES_MAX + 1);
        let mut begin = 0;
        for (leaf, end) in plan.ends.iter().enumerate() {
            for entry in &entries[at + begin..at + end] {
                assert_eq!(fit::leaf_of(&plan, &entry.key), leaf as u32, "{:?}", entry.key);
            }
            assert!(end - begin <= geometry.room());
            begin = *end;
        }
        let first = &entries[at].key;
        let low = match at.checked_sub(1) {
            None => Vec::new(),
            Some(before) => {
                first[..rhumb_model::code::separator_len(&entries[before].key, first)].to_vec()
            }
        };
        let prefix = first[..plan.prefix_len].to_vec();
        let number = runs.len() as u32;
        let run = Run { low, prefix, line: plan.line, base, leaves, number };
        // The fences ascend, and each is where the line steps.
        let mut below = run.low.clone();
        for leaf in 1..leaves {
            let fence = run.fence(leaf).unwrap();
            assert!(below <= fence, "{below:?} {fence:?}");
            assert!(run.leaf_of(&fence) >= leaf);
            below = fence;
        }
        runs.push(run);
        at += plan.taken();
        base += leaves;
    }
    runs
}

/// Keys of few letters with long shared prefixes, and numbers.
fn keys() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
    let text = prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..24);
    let long = (text.clone(), 0u8..4)
        .prop_map(|(rest, which)| [&vec![b'x'; usize::from(which) * 12][..], &rest].concat());
    let number = any::<u64>().prop_map(|n| n.to_be_bytes().to_vec());
    let small = (0u64..5000).prop_map(|n| n.to_be_bytes().to_vec());
    prop_oneof![
        prop::collection::btree_set(long, 1..600),
        prop::collection::btree_set(number, 1..3000),
        prop::collection::btree_set(small, 1..3000),
    ]
}

proptest! {
    #[test]
    fn every_key_is_routed_to_the_leaf_between_whose_fences_it_is(
        keys in keys(), others in keys(),
    ) {
        let geometry = Geometry::new(1024, 24).unwrap();
        let runs = plan_all(&entries(&keys, geometry), geometry);
        // Blocks of few runs, so that there are several.
        let mut blocks: Vec<&[Run]> = Vec::new();
        let mut left = &runs[..];
        while !left.is_empty() {
            let (some, rest) = left.split_at(left.len().min(5));
            prop_assert!(block_bytes(some) == 8 * block_image(some).len());
            blocks.push(some);
            left = rest;
        }
        let images: Vec<Vec<u64>> = blocks.iter().map(|runs| block_image(runs)).collect();
        let lows: Vec<_> = (0..).zip(&blocks).map(|(at, runs)| (&*runs[0].low, at)).collect();
        let top = top_image(&lows);
        for key in keys.iter().chain(&others) {
            let run = runs.iter().rev().find(|run| run.low <= *key).unwrap();
            let leaf = run.leaf_of(key);
            let block = find_block(&top[..], key) as usize;
            let found = find_slot(&images[block][..], key);
            prop_assert_eq!((found.run, found.base, found.leaves), (run.number, run.base, run.leaves));
            prop_assert_eq!(found.slot, run.base + leaf);
            // The fences agree.
            if leaf > 0 {
                prop_assert!(run.fence(leaf).unwrap() <= *key);
            }
            if leaf + 1 < run.leaves {
                prop_assert!(run.fence(leaf + 1).unwrap() > *key);
            }
        }
    }

    #[test]
    fn made_up_directories_never_panic(
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..4000], 1..2000), key: Vec<u8>,
    ) {
        let _ = (find_block(&words[..], &key), find_slot(&words[..], &key));
    }

    #[test]
    fn a_step_of_the_line_is_its_first_code(
        x0: u64, y0 in -(1i64 << 40)..1 << 40, mantissa: u32, shift in 0u8..96, leaf in 0u32..300,
    ) {
        let line = Line { x0, y0, mantissa, shift };
        let is_there = |code: u64| line.at(code) >> LEAF_BITS >= u64::from(leaf);
        match first_code(&line, leaf) {
            Some(code) => {
                prop_assert!(is_there(code));
                prop_assert!(code == 0 || !is_there(code - 1));
            }
            None => prop_assert!(!is_there(u64::MAX)),
        }
    }
}

#[test]
fn regular_keys_need_few_runs() {
    let geometry = Geometry::new(4096, 48).unwrap();
    let ascending = (0..40_000u64).map(|n| (n * 7).to_be_bytes().to_vec()).collect();
    let runs = plan_all(&entries(&ascending, geometry), geometry);
    let leaves: u32 = runs.iter().map(|run| run.leaves).sum();
    assert!(runs.len() as u32 <= leaves / (fit::RUN_LEAVES_MAX - 2) + 1, "{}", runs.len());
    // The leaves are two thirds full: 48 entries at most, 32 of them on average.
    assert!((40_000 / 34..40_000 / 30).contains(&leaves), "{leaves}");
}
