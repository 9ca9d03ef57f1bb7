//! Range tombstones against a plain list of them that is searched from end to end.

use std::ops::Bound;

use proptest::{collection::vec, prelude::*};

use super::{
    HiddenRunsBuilder, RangeLog, RangeSpan, Ranges, Sweep, Tombstone, last_below, span_of,
};
use crate::{
    keys::key_after,
    slice::Slice,
    types::{KEY_BYTES_MAX, SeqNo},
    version::retain::{Readers, Retain},
};

fn readers(snapshots: Vec<SeqNo>) -> Readers {
    Readers { snapshots, time_ms: 0 }
}

/// Keys that share long beginnings, and some that do not.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let tail = || vec(0..3_u8, 0..4);
    prop_oneof![
        tail(),
        tail().prop_map(|tail| [&b"some long prefix of keys"[..], &tail].concat()),
        (0..40_u8).prop_map(|at| vec![b'k', at]),
    ]
}

/// Tombstones with random bounds, numbered in order with some gaps.
fn tombstones() -> impl Strategy<Value = Vec<Tombstone>> {
    let one = (key(), proptest::option::weighted(0.9, key()), 1..4_u64);
    vec(one, 0..60).prop_map(|all| {
        let mut seq = 0;
        let mut made = Vec::new();
        for (from, to, step) in all {
            seq += step;
            let (from, to) = match to {
                Some(to) if to < from => (to, Some(from)),
                Some(to) if to == from => continue,
                to => (from, to),
            };
            made.push(Tombstone { from: from.into(), to: to.map(Slice::from), seq });
        }
        made
    })
}

fn covers(one: &Tombstone, key: &[u8]) -> bool {
    *one.from <= *key && one.to.as_ref().is_none_or(|to| *key < **to)
}

/// The newest tombstone over a key, by a search through all.
fn newest(all: &[Tombstone], key: &[u8], seq: SeqNo) -> SeqNo {
    let seen = all.iter().filter(|one| one.seq <= seq && covers(one, key));
    seen.map(|one| one.seq).max().unwrap_or(0)
}

fn log_of(all: &[Tombstone]) -> RangeLog {
    let log = RangeLog::new();
    for one in all {
        log.add(one.clone());
    }
    log
}

/// Keys at and beside all bounds.
fn probes(all: &[Tombstone], more: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let bounds = all.iter().flat_map(|one| [Some(&one.from), one.to.as_ref()]).flatten();
    let near =
        bounds.flat_map(|key| [key.to_vec(), [key, &[0][..]].concat(), last_below(key).into()]);
    near.chain(more.iter().cloned()).collect()
}

/// Checks that the same tombstone is the newest over all keys of the span.
fn assert_even(span: &RangeSpan, all: &[Tombstone], probes: &[Vec<u8>], seq: SeqNo) {
    for key in probes {
        let is_inside = span.from.as_ref().is_none_or(|from| **from <= **key)
            && span.to.as_ref().is_none_or(|to| **key < **to);
        if is_inside {
            assert_eq!(newest(all, key, seq), span.seq, "{key:?} in {span:?}");
        }
    }
}

/// Checks that tombstones with the span's number or greater ones cover all keys of it, or that none
/// covers any.
fn assert_run(span: &RangeSpan, key: &[u8], all: &[Tombstone], probes: &[Vec<u8>], seq: SeqNo) {
    let is_inside = |key: &[u8]| {
        span.from.as_ref().is_none_or(|from| **from <= *key)
            && span.to.as_ref().is_none_or(|to| *key < **to)
    };
    assert!(is_inside(key), "{key:?} in {span:?}");
    for key in probes.iter().filter(|key| is_inside(key)) {
        let newest = newest(all, key, seq);
        assert!(newest >= span.seq && (newest > 0) == (span.seq > 0), "{key:?} in {span:?}");
    }
}

proptest! {
    #[test]
    fn a_log_finds_the_newest_that_a_reader_sees(
        all in tombstones(),
        more in vec(key(), 1..8),
        seq in 0..140_u64,
    ) {
        let log = log_of(&all);
        let probes = probes(&all, &more);
        for seq in [seq, SeqNo::MAX] {
            for key in &probes {
                let expected = newest(&all, key, seq);
                prop_assert_eq!(log.newest(key, seq), expected);
                let mut span = RangeSpan::default();
                prop_assert_eq!(log.narrow_to_fragment(key, seq, &mut span), expected > 0);
                prop_assert_eq!(span.seq, expected);
                assert_even(&span, &all, &probes, seq);
                let mut run = RangeSpan::default();
                prop_assert_eq!(log.narrow_to_run(key, seq, &mut run), expected > 0);
                assert_run(&run, key, &all, &probes, seq);
            }
        }
    }

    /// The tombstones that are kept tell every snapshot, and the newest reader, the same as all of
    /// them.
    #[test]
    fn what_is_retained_is_all_that_readers_need(
        all in tombstones(),
        more in vec(key(), 1..8),
        snapshots in vec(0..140_u64, 0..4),
    ) {
        let retain = Retain::new(readers(snapshots), false);
        let ranges = log_of(&all).retained(retain.snapshots());
        let joined = all.iter().map(|one| Ranges::of(&one.from, one.to.as_ref(), one.seq));
        let joined = Ranges::union(joined.collect());
        prop_assert_eq!(&joined.retained(retain.snapshots(), false), &ranges);
        let bottom = joined.retained(retain.snapshots(), true);
        let oldest = retain.snapshots().first().copied().unwrap_or(SeqNo::MAX);
        for key in &probes(&all, &more) {
            for seq in retain.snapshots().iter().copied().chain([SeqNo::MAX]) {
                let expected = newest(&all, key, seq);
                prop_assert_eq!(joined.newest(key, seq), expected);
                prop_assert_eq!(ranges.newest(key, seq), expected);
                // In the deepest level, the tombstones that every snapshot sees are dropped.
                let left = if expected > oldest { expected } else { 0 };
                prop_assert_eq!(bottom.newest(key, seq), left);
            }
            // An entry is hidden if every reader that sees it sees a tombstone over it.
            for entry in 0..140 {
                let mut over = Sweep::new(&ranges);
                let readers = retain.snapshots().iter().copied().chain([SeqNo::MAX]);
                let mut seeing = readers.filter(|seq| *seq >= entry);
                let is_needless = seeing.all(|seq| newest(&all, key, seq) > entry);
                if retain.is_hidden(entry, over.seqs(key)) {
                    prop_assert!(is_needless, "{} of {:?}", entry, key);
                }
            }
        }
    }

    #[test]
    fn parts_of_ranges_are_the_same_within_and_nothing_without(
        all in tombstones(),
        mut cuts in vec(key(), 1..4),
        more in vec(key(), 1..8),
    ) {
        let ranges = log_of(&all).retained(&[]);
        let last = more.iter().max().cloned().unwrap_or_default();
        let closed = ranges.clone().closed(&last);
        cuts.sort();
        let mut from = Vec::new();
        let mut parts = Vec::new();
        for cut in cuts.iter().map(Some).chain([None]) {
            let part = closed.within(&from, cut.map(|cut| &cut[..]));
            for boundary in part.keys() {
                prop_assert!(**boundary >= *from && cut.is_none_or(|cut| **boundary <= **cut));
            }
            parts.push(part);
            from = cut.cloned().unwrap_or_default();
        }
        prop_assert_eq!(&Ranges::union(parts), &closed, "the parts make the whole");
        for key in probes(&all, &more).iter().filter(|key| **key <= last) {
            prop_assert_eq!(closed.newest(key, SeqNo::MAX), ranges.newest(key, SeqNo::MAX));
        }
        for key in &probes(&all, &more) {
            let mut run = RangeSpan::default();
            let is_over = closed.newest(key, SeqNo::MAX) > 0;
            prop_assert_eq!(closed.narrow_to_run(key, SeqNo::MAX, &mut run), is_over);
            if **key <= *last {
                assert_run(&run, key, &all, &[], SeqNo::MAX);
            }
        }
        for (key, at) in closed.keys().iter().zip(1..) {
            let mut sweep = Sweep::new(&closed);
            prop_assert_eq!(sweep.seqs(key), closed.list(at));
        }
        let (mut least, mut most) = (SeqNo::MAX, 0);
        let (low, high) = (more.iter().min().cloned().unwrap_or_default(), last);
        for key in probes(&all, &more).iter().filter(|key| (&low..=&high).contains(key)) {
            let seq = closed.newest(key, SeqNo::MAX);
            (least, most) = (least.min(seq), most.max(seq));
        }
        prop_assert_eq!(closed.newest_over(&low, &high), (least, most));
    }

    #[test]
    fn what_was_encoded_is_decoded(
        all in tombstones(),
        snapshots in vec(0..140_u64, 0..4),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let retain = Retain::new(readers(snapshots), false);
        let ranges = log_of(&all).retained(retain.snapshots()).closed(b"z");
        let mut bytes = ranges.encode();
        if ranges.is_empty() {
            prop_assert!(Ranges::decode(&bytes).is_err());
            return Ok(());
        }
        prop_assert_eq!(&Ranges::decode(&bytes).unwrap(), &ranges);
        for len in 0..bytes.len() {
            prop_assert!(Ranges::decode(&bytes[..len]).is_err());
        }
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(other) = Ranges::decode(&bytes) {
            prop_assert_eq!(other.encode(), bytes, "one encoding");
        }
    }
}

#[test]
fn golden_bytes() {
    let one = |from: &[u8], to: &[u8], seq| Ranges::of(&from.into(), Some(&to.into()), seq);
    let ranges = Ranges::union(vec![one(b"a", b"c", 9), one(b"b", b"d", 300)]);
    let expected = [
        &[4][..],
        &[1, b'a', 1, 9],
        &[1, b'b', 2, 0xAC, 2, 0xA3, 2],
        &[1, b'c', 1, 0xAC, 2],
        &[1, b'd', 0],
    ];
    assert_eq!(ranges.encode(), expected.concat());
    assert_eq!(ranges.count(), 3);
}

#[test]
fn thousands_over_each_other_take_no_more_room_than_beside_each_other() {
    let log = RangeLog::new();
    let mut bytes = 0;
    for i in 0..5_000_u32 {
        let (from, to) = (i.to_be_bytes(), (20_000 - i).to_be_bytes());
        let (from, to) = (Slice::copy_from(&from), Some(Slice::copy_from(&to)));
        bytes += log.add(Tombstone { from, to, seq: SeqNo::from(i) + 1 });
    }
    assert!(bytes < 5_000 * 2_000, "{bytes} bytes");
    assert_eq!(log.newest(&10_000_u32.to_be_bytes(), SeqNo::MAX), 5_000);
    assert_eq!(log.newest(&10_000_u32.to_be_bytes(), 77), 77);
    assert_eq!(log.newest(&3_u32.to_be_bytes(), SeqNo::MAX), 4);
    assert_eq!(log.retained(&[]).count(), 9_999);
}

#[test]
fn bounds_are_keys() {
    let bound = |key: &'static [u8]| Bound::Included(key);
    let span = |from, to| span_of(from, to).unwrap();
    assert_eq!(span(bound(b"a"), bound(b"a")), Some((b"a"[..].into(), Some(b"a\0"[..].into()))));
    assert_eq!(span(bound(b"a"), Bound::Excluded(b"a")), None);
    assert_eq!(span(Bound::Excluded(b"a"), Bound::Excluded(b"a\0")), None);
    assert_eq!(span(Bound::Unbounded, Bound::Excluded(b"")), None);
    assert_eq!(span(Bound::Unbounded, Bound::Unbounded), Some((Box::default(), None)));
    let longest = vec![b'k'; KEY_BYTES_MAX];
    let after = span_of(Bound::Excluded(&longest), Bound::Unbounded).unwrap().unwrap();
    assert!(after.0.len() == KEY_BYTES_MAX && *after.0 > *longest);
    assert!(span_of(Bound::Unbounded, Bound::Excluded(&[&longest[..], b"k"].concat())).is_err());
    let last = vec![0xFF; KEY_BYTES_MAX];
    assert_eq!(span_of(Bound::Excluded(&last), Bound::Unbounded).unwrap(), None);
    assert_eq!(key_after(&last), None);
    assert_eq!((last_below(b"a\0"), last_below(b"a")), (&b"a"[..], &b"a"[..]));
}

/// Runs of hidden entries are found by any key in them, and only for tombstones newer than the
/// whole run.
#[test]
fn runs_of_hidden_entries_are_found_from_any_key_in_them() {
    let key = |at: u32| format!("key{at:04}").into_bytes();
    let mut builder = HiddenRunsBuilder::default();
    for at in 0..100 {
        // Two versions each; 50 was written again under the tombstone 900.
        let newest = if at == 50 { 950 } else { 200 + u64::from(at) };
        builder.record(&key(at), newest, 900);
        builder.record(&key(at), 100, 900);
    }
    // The run goes on over a gap.
    (200..210).for_each(|at| builder.record(&key(at), 5, 900));
    builder.record(&key(210), 5, 0);
    let runs = builder.finish();
    let (first, second) = ((key(0), key(49)), (key(51), key(209)));
    let find =
        |at, seq| runs.find(&key(at), seq).map(|(first, last)| (first.to_vec(), last.to_vec()));
    assert_eq!([find(0, 900), find(49, 900)], [Some(first.clone()), Some(first)]);
    assert_eq!([find(51, 900), find(205, 900)], [Some(second.clone()), Some(second)]);
    assert_eq!([find(50, 900), find(210, 900), find(999, 900)], [None, None, None]);
    assert_eq!(find(0, 249), None, "an entry of the run has this number");
    assert_eq!(runs.entries(), 2 * 99 + 10);
    assert!(HiddenRunsBuilder::default().finish().is_empty());
}

/// Keys that are written under a tombstone of the list are found from both sides.
#[test]
fn keys_written_under_tombstones_are_known() {
    let log = RangeLog::new();
    assert_eq!(log.record_entry(b"m"), 0, "nothing covers it");
    log.add(Tombstone { from: b"k".to_vec().into(), to: Some(b"p".to_vec().into()), seq: 9 });
    assert_eq!(log.record_entry(b"a"), 0, "nothing covers it");
    assert!(log.record_entry(b"n") > 0 && log.record_entry(b"l") > 0);
    assert_eq!(log.record_entry(b"n"), 0, "it is known");
    let next = |key: &[u8], forward| log.next_written_over(key, forward).map(Vec::from);
    assert_eq!(next(b"k", true), Some(b"l".to_vec()));
    assert_eq!(next(b"l", true), Some(b"n".to_vec()));
    assert_eq!(next(b"n", true), None);
    assert_eq!(next(b"o", false), Some(b"n".to_vec()));
    assert_eq!(next(b"l", false), None);
}
