//! Model retraining: the keys of some arrays, cut into runs that one line each predicts.
//!
//! It has three steps, of which the second takes nearly all of the time and needs no host
//! ([`super::host`]): [`TrainingPlan`] names the records that new arrays will have, training cuts
//! them, and the host, when it puts the new arrays in the place of the old ones, copies what the
//! records say by then. Bins stay where they are, and old and new arrays link to the same.

use rhumb_model::{
    Segment,
    code::{code_at, common_prefix_len},
    lpa::Probe,
};

use super::{
    descriptor::{ARRAY_RECORDS_MAX, Span, THRESHOLD},
    layout::Record,
};

/// Keys of a probe's step forward: a third of the 1,400 that arrays have on average in the paper
/// (FineStore, section 4.2), so that a run is found by some three trainings.
const STEP: usize = 512;
/// Keys of which the codes are made at first: a run of random keys ends within them, as measured
/// with 400,000, or a little later.
const AHEAD: usize = 2048;

/// A record of an array, by the array's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrayRecord {
    pub(super) array: u64,
    pub(super) index: usize,
}

/// A trained record that is to be.
pub(super) struct Planned {
    pub(super) key: Vec<u8>,
    pub(super) from: From,
}

/// What a planned record is made of.
#[derive(Clone, Copy)]
pub(super) enum From {
    /// Value and token of one record, and what is linked to another: the same, or the last of the
    /// sentinels of small arrays that lie in its gap, one in the other.
    Arrays { cell: ArrayRecord, gap: ArrayRecord },
    /// A record that is in no array yet.
    New(Record),
}

/// What is to be trained: all records of arrays side by side.
pub(crate) struct TrainingPlan {
    /// The arrays whose place is taken.
    pub(super) tops: Vec<u64>,
    /// Small arrays whose records are merged into theirs.
    pub(super) smalls: Vec<u64>,
    pub(super) span: Span,
    /// What is linked to the first new sentinel.
    pub(super) below: Option<ArrayRecord>,
    pub(super) records: Vec<Planned>,
    /// Records of removed keys that have no place in the new arrays, each with the gap before it.
    pub(super) dropped: Vec<(ArrayRecord, ArrayRecord)>,
}

/// A plan with its runs.
pub(crate) struct Trained {
    pub(super) plan: TrainingPlan,
    pub(super) runs: Vec<ArrayRun>,
}

/// Records that become one array.
pub(super) struct ArrayRun {
    pub(super) len: usize,
    /// Bytes with which all keys of the run begin.
    pub(super) skip: usize,
    pub(super) segment: Segment,
}

impl TrainingPlan {
    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Trains lines. Linear in the keys, but for those that no line predicts.
    pub(crate) fn train(self) -> Trained {
        let keys: Vec<&[u8]> = self.records.iter().map(|record| &*record.key).collect();
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < keys.len() || runs.is_empty() {
            let run = first_run(&keys[at..]);
            at += run.len;
            runs.push(run);
        }
        Trained { plan: self, runs }
    }
}

/// The first run of sorted keys, longest where several skips are possible: fewer keys may begin
/// with more bytes that are alike, and then have codes that tell them apart.
fn first_run(keys: &[&[u8]]) -> ArrayRun {
    let (Some(first), most) = (keys.first(), keys.len().min(ARRAY_RECORDS_MAX)) else {
        return ArrayRun { len: 0, skip: 0, segment: rhumb_model::lpa::train(&[]) };
    };
    let probe = Probe { threshold: THRESHOLD, step: STEP };
    let mut best = ArrayRun { len: 0, skip: 0, segment: rhumb_model::lpa::train(&[]) };
    let mut considered = most.min(AHEAD);
    loop {
        let skip = common_prefix_len(first, keys[considered - 1]);
        let codes: Vec<u64> = keys[..considered].iter().map(|key| code_at(key, skip)).collect();
        let Some((len, segment)) = probe.first_run(&codes) else { return best };
        let is_whole = len == considered;
        let is_longer = len > best.len;
        if is_longer {
            best = ArrayRun { len, skip, segment };
        }
        if is_whole && is_longer && considered < most && considered >= AHEAD {
            considered = most.min(considered * 2);
        } else if !is_whole && is_longer && considered > 2 * len {
            // What ended the run may be that codes are alike.
            let fewer = (2 * len).max(2 * THRESHOLD as usize);
            if fewer >= considered || common_prefix_len(first, keys[fewer - 1]) == skip {
                return best;
            }
            considered = fewer;
        } else {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(keys: &[Vec<u8>]) -> Vec<ArrayRun> {
        let from = From::New(Record::default());
        let records = keys.iter().map(|key| Planned { key: key.clone(), from }).collect();
        let (tops, smalls, dropped) = (Vec::new(), Vec::new(), Vec::new());
        let plan = TrainingPlan { tops, smalls, span: Span::all(), below: None, records, dropped };
        plan.train().runs
    }

    fn check(keys: &[Vec<u8>]) -> usize {
        let (runs, mut at) = (runs(keys), 0);
        for run in &runs {
            let keys = &keys[at..at + run.len];
            assert!(run.segment.below <= THRESHOLD && run.segment.above <= THRESHOLD + 1);
            assert!(run.len <= ARRAY_RECORDS_MAX);
            for (place, key) in keys.iter().enumerate() {
                assert!(key.starts_with(&keys[0][..run.skip]));
                assert!(run.segment.window(code_at(key, run.skip)).contains(place as u64));
            }
            at += run.len;
        }
        assert_eq!(at, keys.len());
        runs.len()
    }

    #[test]
    fn keys_in_line_are_few_runs() {
        let keys: Vec<_> = (0..30_000_u64).map(|n| (n * 7).to_be_bytes().to_vec()).collect();
        assert_eq!(check(&keys), 4);
        // Their codes are alike until the prefix is skipped; a line follows few decimal digits.
        let keys: Vec<_> = (0..30_000).map(|n| format!("tenant/42/{n:08}").into_bytes()).collect();
        assert!(check(&keys) < 500, "{}", check(&keys));
        let mixed = [vec![b"a".to_vec()], keys, vec![b"z".to_vec()]].concat();
        assert!(check(&mixed) < 504, "{}", check(&mixed));
        assert_eq!(check(&[]), 1);
    }

    proptest! {
        #[test]
        fn every_key_is_in_the_window_of_its_run(
            keys in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(b"ab\0\xff".to_vec()), 0..14), 0..600),
        ) {
            check(&keys.into_iter().collect::<Vec<_>>());
        }
    }
}
