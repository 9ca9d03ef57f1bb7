//! Fragments of keys and the range tombstones that cover each: sorted, immutable, searched by eight
//! bytes of the key.

use rhumb_model::{code, search};

use super::{RangeSpan, newest_of};
use crate::{slice::Slice, types::SeqNo};

/// The boundaries between fragments, in order, and the tombstones over each fragment. There are
/// none before the first boundary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// The number of bytes that all boundaries share.
    prefix_len: usize,
    /// Codes of the boundaries after these bytes, so that most searches touch no key.
    codes: Box<[u64]>,
    keys: Box<[Slice]>,
    /// For each boundary, where the numbers of the fragment that begins there end in `seqs`.
    ends: Box<[u32]>,
    /// The tombstones' numbers, fragment by fragment, newest first.
    seqs: Box<[SeqNo]>,
    /// Runs of adjacent fragments that all have tombstones, in order.
    runs: Box<[CoveredRun]>,
    /// The greatest sequence number.
    most: SeqNo,
}

/// Adjacent fragments that all have tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoveredRun {
    /// The boundary where it begins; it ends at the boundary `to`, which is beyond the last if the
    /// run has no end.
    from: u32,
    to: u32,
    /// The least of the newest tombstones' numbers over its fragments.
    least: SeqNo,
}

/// Makes [`Ranges`] from fragments in order.
#[derive(Default)]
pub(super) struct Builder {
    keys: Vec<Slice>,
    ends: Vec<u32>,
    seqs: Vec<SeqNo>,
}

impl Builder {
    /// Adds the boundary `key`, from which on these tombstones cover keys, newest first. A boundary
    /// between equal fragments is left out.
    pub(super) fn push(&mut self, key: &Slice, seqs: &[SeqNo]) {
        let len = self.ends.len();
        let start = len.checked_sub(2).map_or(0, |at| self.ends[at]) as usize;
        if self.seqs[start..] == *seqs {
            return;
        }
        self.keys.push(key.clone());
        self.seqs.extend_from_slice(seqs);
        // A memtable or a table has fewer tombstones than bytes, and fewer bytes than this.
        self.ends.push(u32::try_from(self.seqs.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn finish(self) -> Ranges {
        let (first, last) = (self.keys.first(), self.keys.last());
        let prefix_len = first.zip(last).map_or(0, |(a, b)| code::common_prefix_len(a, b));
        let codes = self.keys.iter().map(|key| code::code_at(key, prefix_len)).collect();
        Ranges {
            prefix_len,
            codes,
            runs: self.runs().into(),
            most: self.seqs.iter().copied().max().unwrap_or(0),
            keys: self.keys.into(),
            ends: self.ends.into(),
            seqs: self.seqs.into(),
        }
    }

    fn runs(&self) -> Vec<CoveredRun> {
        let mut runs: Vec<CoveredRun> = Vec::new();
        let mut start = 0;
        for (at, end) in (0..).zip(self.ends.iter().map(|end| *end as usize)) {
            if let Some(newest) = self.seqs[start..end].first() {
                match runs.last_mut().filter(|run| run.to == at) {
                    Some(run) => (run.to, run.least) = (at + 1, run.least.min(*newest)),
                    None => runs.push(CoveredRun { from: at, to: at + 1, least: *newest }),
                }
            }
            start = end;
        }
        runs
    }
}

impl Ranges {
    /// One tombstone.
    pub(super) fn of(from: &Slice, to: Option<&Slice>, seq: SeqNo) -> Self {
        let mut builder = Builder::default();
        builder.push(from, &[seq]);
        if let Some(to) = to {
            builder.push(to, &[]);
        }
        builder.finish()
    }

    /// Returns true if there is no tombstone.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The boundaries, in order.
    pub(crate) fn keys(&self) -> &[Slice] {
        &self.keys
    }

    /// The numbers of all tombstones, in no order.
    pub(crate) fn seqs(&self) -> &[SeqNo] {
        &self.seqs
    }

    /// The number of fragments that tombstones cover.
    pub(crate) fn count(&self) -> u64 {
        (0..=self.keys.len()).filter(|at| !self.list(*at).is_empty()).count() as u64
    }

    /// The tombstones over the fragment after `at` boundaries, newest first.
    #[inline]
    pub(super) fn list(&self, at: usize) -> &[SeqNo] {
        let Some(last) = at.checked_sub(1) else { return &[] };
        let start = last.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.seqs[start as usize..self.ends[last] as usize]
    }

    /// The number of boundaries at or before `key`. O(log n).
    #[inline]
    fn position(&self, key: &[u8]) -> usize {
        let Some(first) = self.keys.first() else { return 0 };
        let (prefix, len) = (&first[..self.prefix_len], self.keys.len());
        if !key.starts_with(prefix) {
            return if *key < *prefix { 0 } else { len };
        }
        let (codes, code) = (&*self.codes, code::code_at(key, self.prefix_len));
        let at = search::partition_point(0, len, |i| codes[i] < code);
        if at == len || codes[at] != code {
            return at;
        }
        // Whole keys are compared only if the codes tie.
        let end = search::partition_point(at, len, |i| codes[i] == code);
        search::partition_point(at, end, |i| *self.keys[i] <= *key)
    }

    /// The number of the newest tombstone over `key` that a reader at `seq` sees; 0 if none. O(log
    /// n).
    #[inline]
    pub(crate) fn newest(&self, key: &[u8], seq: SeqNo) -> SeqNo {
        newest_of(self.list(self.position(key)), seq)
    }

    /// Narrows `span` to the fragment of `key`, and records there the newest tombstone over it that
    /// a reader at `seq` sees. Returns true if there is one.
    pub(crate) fn narrow_to_fragment(&self, key: &[u8], seq: SeqNo, span: &mut RangeSpan) -> bool {
        let at = self.position(key);
        let from = at.checked_sub(1).map(|at| &self.keys[at]);
        span.narrow(from, self.keys.get(at));
        let newest = newest_of(self.list(at), seq);
        span.seq = span.seq.max(newest);
        newest > 0
    }

    /// The greatest sequence number of a tombstone.
    pub(crate) fn most(&self) -> SeqNo {
        self.most
    }

    /// Sets `span` to the keys around `key` that tombstones cover, with a number that is at most
    /// the newest tombstone's over each of them, as far as a reader at `seq` sees them; or narrows
    /// it to the keys that none covers. Returns true if a tombstone covers `key`.
    pub(crate) fn narrow_to_run(&self, key: &[u8], seq: SeqNo, span: &mut RangeSpan) -> bool {
        if self.most > seq {
            return self.narrow_to_fragment(key, seq, span);
        }
        let at = self.position(key);
        let run = search::partition_point(0, self.runs.len(), |i| (self.runs[i].to as usize) < at);
        let keys = |at: u32| self.keys.get(at as usize);
        match self.runs.get(run) {
            // A key at the very end of a run is after it.
            Some(run) if (run.from as usize) < at && at <= run.to as usize => {
                *span = RangeSpan {
                    from: keys(run.from).cloned(),
                    to: keys(run.to).cloned(),
                    seq: run.least,
                    ..RangeSpan::default()
                };
                true
            }
            next => {
                let before = run.checked_sub(1).and_then(|run| keys(self.runs[run].to));
                span.narrow(before, next.and_then(|run| keys(run.from)));
                false
            }
        }
    }

    /// The least and the greatest of the newest tombstones' numbers over the keys from `smallest`
    /// to `largest`; the least is 0 if some of them have no tombstone. O(log n + fragments between
    /// them).
    pub(crate) fn newest_over(&self, smallest: &[u8], largest: &[u8]) -> (SeqNo, SeqNo) {
        let positions = self.position(smallest)..=self.position(largest);
        positions
            .map(|at| newest_of(self.list(at), SeqNo::MAX))
            .fold((SeqNo::MAX, 0), |(least, most), seq| (least.min(seq), most.max(seq)))
    }

    /// The first key and the end of each fragment that tombstones cover, in order. A fragment
    /// without an end is left out.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (&Slice, &Slice)> {
        let pairs = self.keys.windows(2).enumerate();
        pairs.filter(|(at, _)| !self.list(at + 1).is_empty()).map(|(_, pair)| (&pair[0], &pair[1]))
    }

    /// Ends a tombstone that has no end after `last` and after all boundaries.
    pub(crate) fn closed(self, last: &[u8]) -> Self {
        let Some(boundary) = self.keys.last() else { return self };
        if self.list(self.keys.len()).is_empty() {
            return self;
        }
        let end = [last.max(boundary), &[0]].concat();
        self.within(&[], Some(&end))
    }

    /// All fragments of both; `join` makes the tombstones of each from those of the two.
    pub(super) fn joined(
        &self,
        other: &Self,
        join: impl Fn(&[SeqNo], &[SeqNo], &mut Vec<SeqNo>),
    ) -> Self {
        let (mut at, mut other_at) = (0, 0);
        let (mut builder, mut seqs) = (Builder::default(), Vec::new());
        loop {
            let next = match (self.keys.get(at), other.keys.get(other_at)) {
                (Some(a), Some(b)) => a.min(b),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return builder.finish(),
            };
            at += usize::from(self.keys.get(at) == Some(next));
            other_at += usize::from(other.keys.get(other_at) == Some(next));
            seqs.clear();
            join(self.list(at), other.list(other_at), &mut seqs);
            builder.push(next, &seqs);
        }
    }

    /// The tombstones of all of `parts`. O(n log parts), except for fragments under many
    /// tombstones.
    pub(crate) fn union(mut parts: Vec<Self>) -> Self {
        while parts.len() > 1 {
            parts = parts
                .chunks(2)
                .map(|pair| match pair {
                    [a, b] => a.joined(b, all_of),
                    rest => rest.first().cloned().unwrap_or_default(),
                })
                .collect();
        }
        parts.pop().unwrap_or_default()
    }

    /// Every fragment, with the tombstones that `change` makes of its own.
    fn changed(&self, change: impl Fn(&[SeqNo], &mut Vec<SeqNo>)) -> Self {
        let (mut builder, mut seqs) = (Builder::default(), Vec::new());
        for (at, key) in self.keys.iter().enumerate() {
            seqs.clear();
            change(self.list(at + 1), &mut seqs);
            builder.push(key, &seqs);
        }
        builder.finish()
    }

    /// The tombstones that must stay: of those between two of the live `snapshots`, which ascend,
    /// the newest. If nothing older lies elsewhere (`deepest`), those that all snapshots see are
    /// dropped too.
    pub(crate) fn retained(&self, snapshots: &[SeqNo], deepest: bool) -> Self {
        self.changed(|seqs, kept| {
            let mut last = None;
            for seq in seqs {
                let stripe = snapshots.partition_point(|snapshot| snapshot < seq);
                if last != Some(stripe) && !(deepest && stripe == 0) {
                    kept.push(*seq);
                }
                last = Some(stripe);
            }
        })
    }

    /// The tombstones whose numbers are greater than `after`.
    pub(super) fn after(&self, after: SeqNo) -> Self {
        self.changed(|seqs, kept| kept.extend(seqs.iter().filter(|seq| **seq > after)))
    }

    /// The tombstones over the keys from `from` on and before `to`.
    pub(crate) fn within(&self, from: &[u8], to: Option<&[u8]>) -> Self {
        let mut builder = Builder::default();
        let first = self.position(from);
        builder.push(&Slice::copy_from(from), self.list(first));
        for (at, key) in self.keys.iter().enumerate().skip(first) {
            if to.is_some_and(|to| **key >= *to) {
                break;
            }
            builder.push(key, self.list(at + 1));
        }
        if let Some(to) = to {
            builder.push(&Slice::copy_from(to), &[]);
        }
        builder.finish()
    }

    /// The memory that it takes, in bytes; memory that its keys share is counted for each of them.
    pub(crate) fn resident_bytes(&self) -> usize {
        let per_key = size_of::<Slice>() + size_of::<u64>() + size_of::<u32>();
        let keys: usize = self.keys.iter().map(|key| key.len()).sum();
        let runs = self.runs.len() * size_of::<CoveredRun>();
        keys + self.keys.len() * per_key + self.seqs.len() * size_of::<SeqNo>() + runs
    }
}

/// The numbers of both, newest first, each once.
fn all_of(a: &[SeqNo], b: &[SeqNo], all: &mut Vec<SeqNo>) {
    all.extend_from_slice(a);
    all.extend_from_slice(b);
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
}

/// The newest number of both.
pub(super) fn newest_of_both(a: &[SeqNo], b: &[SeqNo], newest: &mut Vec<SeqNo>) {
    newest.extend(a.first().max(b.first()));
}

/// Finds the tombstones over keys that are asked for in ascending order: O(1) each, amortised.
pub(crate) struct Sweep<'a> {
    ranges: &'a Ranges,
    at: usize,
}

impl<'a> Sweep<'a> {
    /// A sweep that starts at the first key.
    pub(crate) fn new(ranges: &'a Ranges) -> Self {
        Self { ranges, at: 0 }
    }

    /// The tombstones over `key`, newest first. `key` is not before the key of the call before.
    #[inline]
    pub(crate) fn seqs(&mut self, key: &[u8]) -> &'a [SeqNo] {
        while self.ranges.keys.get(self.at).is_some_and(|next| **next <= *key) {
            self.at += 1;
        }
        self.ranges.list(self.at)
    }
}
