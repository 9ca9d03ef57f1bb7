//! Finds the last separator that is at most a key: by the eight bytes behind what a run of separators
//! shares, its *heads*, and by whole separators where heads do not tell.
//!
//! Real keys share a lot: of a million repositories' addresses most begin with the same 23 bytes and some
//! with 10 of them. So separators with one head are a run of their own, which shares more, and has
//! heads behind that. Memory: 8 to 16 bytes a separator for each time that it is in a run, at most
//! [`DEPTH_MAX`] times.

use std::cmp::Ordering;

use rhumb_model::{code, search};

use super::separators::Separators;

/// Bytes of a head.
const HEAD_BYTES: usize = 8;
/// Fewer separators of one head are compared as a whole.
const RUN_MIN: usize = 4;
/// Heads to a bucket, on average: two or three are compared where all heads would be ten or twelve.
const BUCKET_HEADS: usize = 2;
/// Fewer heads are searched as they are.
const BUCKETED_MIN: usize = 32;
/// Runs within runs; bounds what a hostile index can make of its bytes.
const DEPTH_MAX: usize = 8;

/// Separators that begin with the same bytes.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// How many bytes they share; their heads are what follows.
    skip: usize,
    /// The first of them, and the separator behind the last.
    begin: usize,
    end: usize,
    /// Where their heads begin in `Finder::heads`.
    heads_begin: usize,
}

/// The separators of one head.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// The first of them.
    begin: u32,
    /// Their run; 0 if there is none.
    run: u32,
}

/// Where heads lie by their distance from the lowest: a guess that is as good as they are even, and never
/// wrong. Where one bucket has most of them it saves nothing and costs one look. Two bytes a separator.
#[derive(Debug, Default)]
struct Buckets {
    lowest: u64,
    /// The bits of a distance below the number of its bucket.
    shift: u32,
    /// How many heads lie before each bucket, and how many there are; empty if there are few.
    begins: Box<[u32]>,
}

impl Buckets {
    fn new(heads: &[u64]) -> Self {
        let (Some(&lowest), Some(&highest)) = (heads.first(), heads.last()) else {
            return Self::default();
        };
        if heads.len() < BUCKETED_MIN {
            return Self::default();
        }
        // As many buckets as fit, with the highest head in the last.
        let most = (heads.len() / BUCKET_HEADS) as u64;
        let spread = highest - lowest;
        let shift = (u64::BITS - (spread / most).leading_zeros()).min(u64::BITS - 1);
        let mut begins = vec![0; (spread >> shift) as usize + 2];
        heads.iter().for_each(|head| begins[((head - lowest) >> shift) as usize + 1] += 1);
        for bucket in 1..begins.len() {
            begins[bucket] += begins[bucket - 1];
        }
        Self { lowest, shift, begins: begins.into() }
    }

    /// The heads among which the first above `head` is, or behind the last of which it is.
    #[inline(always)]
    fn around(&self, head: u64, count: usize) -> (usize, usize) {
        if self.begins.is_empty() {
            return (0, count);
        }
        let Some(distance) = head.checked_sub(self.lowest) else { return (0, 0) };
        let bucket = (distance >> self.shift) as usize;
        match self.begins.get(bucket..) {
            Some([begin, end, ..]) => (*begin as usize, *end as usize),
            _ => (count, count),
        }
    }
}

/// How far the heads of all separators say where a key is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    /// No separator from here on is at most the key, unless it begins with the key's head.
    above: usize,
    /// Whether the one before it has the key's head, so that more must be looked at.
    pub(super) is_tied: bool,
}

/// A search structure over [`Separators`].
#[derive(Debug)]
pub(super) struct Finder {
    /// Bytes with which all separators begin.
    prefix: Box<[u8]>,
    /// All separators first, then the runs within.
    runs: Box<[Run]>,
    /// The head of each separator of each run: sorted, not always distinct.
    heads: Box<[u64]>,
    /// Where those of all separators are.
    buckets: Buckets,
    /// For the last of the same heads, which separators have it; empty if all heads are distinct.
    groups: Box<[Group]>,
}

impl Finder {
    /// For separators which all share `prefix_len` bytes. Linear in their bytes, up to [`DEPTH_MAX`] times.
    pub(super) fn new(separators: &Separators, prefix_len: usize) -> Self {
        let mut prefix = if prefix_len > 0 { separators.get(0) } else { Vec::new() };
        prefix.truncate(prefix_len);
        let (mut heads, mut groups) = (Vec::new(), Vec::<Group>::new());
        // Each run with how many runs it is in.
        let all = Run { skip: prefix_len, begin: 0, end: separators.len(), heads_begin: 0 };
        let mut runs = vec![(all, 0)];
        let mut next = 0;
        while let Some((run, depth)) = runs.get_mut(next) {
            run.heads_begin = heads.len();
            let (run, depth) = (*run, *depth);
            separators.for_each_in(run.begin..run.end, |i, separator| {
                let head = code::code_at(separator, run.skip);
                let begin = match heads[run.heads_begin..].last() {
                    Some(last) if *last == head => groups[heads.len() - 1].begin,
                    _ => i as u32,
                };
                heads.push(head);
                groups.push(Group { begin, run: 0 });
            });
            for end in run.begin + 1..=run.end {
                let at = run.heads_begin + end - 1 - run.begin;
                let begin = groups[at].begin as usize;
                let goes_on = end < run.end && groups[at + 1].begin as usize == begin;
                if goes_on || end - begin < RUN_MIN || depth == DEPTH_MAX {
                    continue;
                }
                // What neighbours share at least, all share. It is less than the head where one separator
                // goes on with the zeros that stand for the end of another.
                let skip = (begin + 1..end).map(|i| separators.shared_of(i)).min().unwrap_or(0);
                if skip >= run.skip + HEAD_BYTES {
                    groups[at].run = runs.len() as u32;
                    runs.push((Run { skip, begin, end, heads_begin: 0 }, depth + 1));
                }
            }
            next += 1;
        }
        if heads.is_sorted_by(|a, b| a < b) {
            groups.clear();
        }
        Self {
            buckets: Buckets::new(&heads[..separators.len()]),
            prefix: prefix.into(),
            runs: runs.into_iter().map(|(run, _)| run).collect(),
            heads: heads.into(),
            groups: groups.into(),
        }
    }

    /// Whether `key` begins as all separators do.
    #[inline]
    pub(super) fn has_prefix(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix)
    }

    /// How many bytes all separators share.
    #[inline]
    pub(super) fn prefix_len(&self) -> usize {
        self.prefix.len()
    }

    /// Where `key` is by the heads of all separators.
    #[inline(always)]
    pub(super) fn near(&self, key: &[u8]) -> Near {
        let all = &self.runs[0];
        if all.skip > 0 && !self.has_prefix(key) {
            let above = if *key < *self.prefix { 0 } else { all.end };
            return Near { above, is_tied: false };
        }
        let head = code::code_at(key, all.skip);
        self.near_in(all, head, self.buckets.around(head, all.end))
    }

    /// Where a key with this head behind what the separators of `run` share is, if the first head above it
    /// is in `window` or behind it.
    #[inline(always)]
    fn near_in(&self, run: &Run, head: u64, window: (usize, usize)) -> Near {
        let heads = &self.heads[run.heads_begin..][..run.end - run.begin];
        let above = search::partition_point(window.0, window.1, |i| heads[i] <= head);
        let is_tied = above > 0 && heads[above - 1] == head;
        Near { above: run.begin + above, is_tied }
    }

    /// The last separator that is at most `key`, which is `near`; the first of all, if none is.
    #[inline(always)]
    pub(super) fn settle(&self, near: Near, separators: &Separators, key: &[u8]) -> usize {
        let Near { above, is_tied } = near;
        let above = if is_tied { self.settle_tied(above, separators, key) } else { above };
        above.saturating_sub(1)
    }

    /// The first separator above `key`, where those before `above` have its head.
    #[inline(never)]
    fn settle_tied(&self, mut above: usize, separators: &Separators, key: &[u8]) -> usize {
        let mut run = &self.runs[0];
        loop {
            let known = run.skip + HEAD_BYTES;
            let at = run.heads_begin + above - 1 - run.begin;
            let Some(Group { begin, run: within }) = self.groups.get(at).copied() else {
                return above - usize::from(!separators.is_at_most(above - 1, key, known));
            };
            if within == 0 {
                let is_at_most = |i| separators.is_at_most(i, key, known);
                return search::partition_point(begin as usize, above, is_at_most);
            }
            run = &self.runs[within as usize];
            match separators.compare_prefix(key, run.begin, known, run.skip) {
                Ordering::Less => return run.begin,
                Ordering::Greater => return run.end,
                Ordering::Equal => {}
            }
            let head = code::code_at(key, run.skip);
            let near = self.near_in(run, head, (0, run.end - run.begin));
            above = near.above;
            if !near.is_tied {
                return above;
            }
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.prefix.len()
            + size_of_val(&*self.runs)
            + size_of_val(&*self.heads)
            + size_of_val(&*self.buckets.begins)
            + size_of_val(&*self.groups)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rhumb_model::codec::Reader;

    use super::{super::separators::SeparatorsBuilder, *};

    /// Strings of which most begin alike and the others leave that behind its head, with ties of heads and
    /// zeros at the ends.
    fn strings(most: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
        let begin = prop_oneof![
            6 => Just(&b"git+https://github.com/"[..]),
            1 => Just(&b"git+http"[..]),
            1 => Just(&b""[..]),
        ];
        let pieces: [&[u8]; 6] =
            [b"a", b"\0", b"\xff", b"\0\0\0\0\0\0\0\0", b"12345678", b"12345679"];
        let rest = prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..7);
        let string = (begin, rest).prop_map(|(begin, rest)| [begin, &rest.concat()].concat());
        prop::collection::btree_set(string, 1..most).prop_map(|set| set.into_iter().collect())
    }

    fn finder_of(strings: &[Vec<u8>]) -> (Finder, Separators) {
        let mut builder = SeparatorsBuilder::default();
        strings.iter().for_each(|string| builder.push(string));
        let SeparatorsBuilder { shared, added, bytes, .. } = builder;
        let separators =
            Separators::decode(&mut Reader::new(&bytes), &shared, &added, |_| ()).unwrap();
        let prefix_len = shared.iter().skip(1).min().or(added.first()).copied().unwrap_or(0);
        (Finder::new(&separators, prefix_len as usize), separators)
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_finds(strings in strings(40), others in strings(40)) {
            let (finder, separators) = finder_of(&strings);
            for key in strings.iter().chain(&others) {
                let expected = strings.iter().rposition(|s| s <= key).unwrap_or(0);
                let found = finder.settle(finder.near(key), &separators, key);
                prop_assert_eq!(found, expected, "{:?}", key);
            }
        }
    }

    /// Numbers of all sizes, most of them close together.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            4 => 0..u64::MAX,
            4 => (1_u64 << 40)..(1 << 40) + 1000,
            1 => prop::sample::select(vec![0, 1, u64::MAX - 1, u64::MAX]),
        ]
    }

    proptest! {
        #[test]
        fn buckets_leave_out_nothing(
            mut heads in prop::collection::vec(number(), 1..200),
            others in prop::collection::vec(number(), 50),
            is_close in any::<bool>(),
        ) {
            if is_close {
                heads.retain(|head| *head >> 11 == 1 << 29);
            }
            heads.sort_unstable();
            let buckets = Buckets::new(&heads);
            prop_assert_eq!(buckets.begins.is_empty(), heads.len() < BUCKETED_MIN);
            prop_assert!(buckets.begins.len() <= heads.len() / BUCKET_HEADS + 2);
            for head in heads.iter().chain(&others) {
                let expected = heads.partition_point(|other| other <= head);
                let (begin, end) = buckets.around(*head, heads.len());
                prop_assert!((begin..=end).contains(&expected) && end <= heads.len());
            }
        }
    }

    #[test]
    fn runs_are_made_where_heads_tie_and_no_deeper_than_is_allowed() {
        let of = |host: &'static str| {
            (0..50).map(move |n| format!("https://{host}/{n:04}").into_bytes())
        };
        let mut strings: Vec<_> =
            of("a.org").chain(of("a.net")).chain([b"https:/".to_vec()]).collect();
        strings.sort_unstable();
        let (finder, _) = finder_of(&strings);
        assert!(finder.runs.len() >= 2, "{:?}", finder.runs);
        let deep: Vec<_> = (1..200_usize).map(|n| vec![b'a'; n * 9]).collect();
        let (finder, separators) = finder_of(&deep);
        assert!(finder.runs.len() <= 1 + DEPTH_MAX);
        for key in &deep {
            let found = finder.settle(finder.near(key), &separators, key);
            assert_eq!(&deep[found], key);
        }
    }
}
