//! The heads of separators, in runs: sorted numbers in which a key is searched for, and where to
//! look when they tie.
//!
//! Nothing here knows more of a separator than its head: for the bytes beyond it,
//! [`Runs::resolve_tied`] asks [`Separators`].

use std::cmp::Ordering;

use rhumb_model::{code, search};
use rhumb_sync::prefetch::prefetch;

use super::separators::Separators;

/// Separators of one head that are fewer than this are compared as a whole.
const RUN_MIN: usize = 4;
/// The average number of heads in a bucket. With 2, a search compares two or three heads, where
/// among all heads it would compare ten or twelve.
const BUCKET_HEADS: usize = 2;
/// Heads that are fewer than this are searched without buckets.
const BUCKETED_MIN: usize = 32;
/// A window of up to this many heads is bisected.
const WINDOW_MAX: usize = 16;
/// A larger window is first divided into this many parts.
const PARTS: usize = 8;
/// The depth of runs within runs; bounds the memory that a hostile index can claim for its bytes.
pub(super) const DEPTH_MAX: usize = 8;

/// The bytes of a string from some position on, as a number. The numbers of two strings that agree
/// before that position are never in the opposite order to the strings.
pub(super) trait Head: Copy + Ord {
    /// The number of bytes that a head holds.
    const BYTES: usize;

    /// The head of `key` after its first `skip` bytes, with zeros for the bytes that it lacks.
    fn of(key: &[u8], skip: usize) -> Self;

    /// The first eight bytes.
    fn leading(self) -> u64;
}

impl Head for u64 {
    const BYTES: usize = 8;

    #[inline(always)]
    fn of(key: &[u8], skip: usize) -> Self {
        code::code_at(key, skip)
    }

    #[inline(always)]
    fn leading(self) -> u64 {
        self
    }
}

impl Head for u128 {
    const BYTES: usize = 16;

    #[inline(always)]
    fn of(key: &[u8], skip: usize) -> Self {
        Self::from(code::code_at(key, skip)) << 64 | Self::from(code::code_at(key, skip + 8))
    }

    #[inline(always)]
    fn leading(self) -> u64 {
        (self >> 64) as u64
    }
}

/// Separators that begin with the same bytes.
#[derive(Clone, Copy, Debug)]
struct HeadRun {
    /// The number of bytes that they share; their heads are the bytes after those.
    skip: usize,
    /// The first of them, and the separator after the last.
    begin: usize,
    end: usize,
    /// Where their heads begin in `Runs::heads`.
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

/// Places heads in buckets by the distance of their first bytes from those of the lowest head. The
/// result is right for any heads; the buckets are small if the heads are spread evenly. If one
/// bucket has most of the heads, it saves nothing and costs one lookup. Takes two bytes for each
/// separator.
#[derive(Debug, Default)]
struct Buckets {
    lowest: u64,
    /// The number of low bits of a distance that its bucket's number leaves out.
    shift: u32,
    /// The number of heads before each bucket, and then the number of all heads; empty if there are
    /// few.
    begins: Box<[u32]>,
}

impl Buckets {
    fn new<H: Head>(heads: &[H]) -> Self {
        let (Some(lowest), Some(highest)) = (heads.first(), heads.last()) else {
            return Self::default();
        };
        if heads.len() < BUCKETED_MIN {
            return Self::default();
        }
        let (lowest, highest) = (lowest.leading(), highest.leading());
        // As many buckets as fit, with the highest head in the last.
        let most = (heads.len() / BUCKET_HEADS) as u64;
        let spread = highest - lowest;
        let shift = (u64::BITS - (spread / most).leading_zeros()).min(u64::BITS - 1);
        let mut begins = vec![0; (spread >> shift) as usize + 2];
        let bucket_of = |head: &H| ((head.leading() - lowest) >> shift) as usize;
        heads.iter().for_each(|head| begins[bucket_of(head) + 1] += 1);
        for bucket in 1..begins.len() {
            begins[bucket] += begins[bucket - 1];
        }
        Self { lowest, shift, begins: begins.into() }
    }

    /// The range of heads that holds the first head above `head`, or ends before it.
    #[inline(always)]
    fn around<H: Head>(&self, head: H, count: usize) -> (usize, usize) {
        if self.begins.is_empty() {
            return (0, count);
        }
        let Some(distance) = head.leading().checked_sub(self.lowest) else { return (0, 0) };
        let bucket = (distance >> self.shift) as usize;
        match self.begins.get(bucket..) {
            Some([begin, end, ..]) => (*begin as usize, *end as usize),
            _ => (count, count),
        }
    }
}

/// Where the heads of all separators place a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    /// No separator from here on is at most the key, unless it begins with the key's head.
    pub(super) above: usize,
    /// True if the separator before `above` has the key's head, so that more must be compared.
    pub(super) is_tied: bool,
}

/// The heads of all separators, and of runs of separators whose heads tie: separators with one head
/// share more bytes than that, and are a run of their own with heads after those.
#[derive(Debug)]
pub(super) struct Runs<H> {
    /// All separators first, then the runs within.
    runs: Box<[HeadRun]>,
    /// The head of each separator of each run: sorted, not always distinct.
    heads: Box<[H]>,
    /// The buckets of the heads of all separators.
    buckets: Buckets,
    /// At the last of several equal heads, the separators that have it; empty if all heads are
    /// distinct.
    groups: Box<[Group]>,
}

impl<H: Head> Runs<H> {
    /// The runs of separators that all share `prefix_len` bytes. Linear in their bytes, up to
    /// [`DEPTH_MAX`] times.
    pub(super) fn new(separators: &Separators, prefix_len: usize) -> Self {
        let (mut heads, mut groups) = (Vec::<H>::new(), Vec::<Group>::new());
        // Each run with the number of runs that it is in.
        let all = HeadRun { skip: prefix_len, begin: 0, end: separators.len(), heads_begin: 0 };
        let mut runs = vec![(all, 0)];
        let mut next = 0;
        while let Some((run, depth)) = runs.get_mut(next) {
            run.heads_begin = heads.len();
            let (run, depth) = (*run, *depth);
            separators.for_each_in(run.begin..run.end, |i, separator| {
                let head = H::of(separator, run.skip);
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
                // All of them share what all neighbours among them share. That is less than the
                // head where one separator goes on with the zeros that stand for the end of
                // another.
                let skip = (begin + 1..end).map(|i| separators.shared_of(i)).min().unwrap_or(0);
                if skip >= run.skip + H::BYTES {
                    groups[at].run = runs.len() as u32;
                    runs.push((HeadRun { skip, begin, end, heads_begin: 0 }, depth + 1));
                }
            }
            next += 1;
        }
        if heads.is_sorted_by(|a, b| a < b) {
            groups.clear();
        }
        Self {
            buckets: Buckets::new(&heads[..separators.len()]),
            runs: runs.into_iter().map(|(run, _)| run).collect(),
            heads: heads.into(),
            groups: groups.into(),
        }
    }

    /// The number of heads: each separator has one in each run that it is in.
    pub(super) fn head_count(&self) -> usize {
        self.heads.len()
    }

    /// Where the heads place `key`, which begins as all separators do. Calls `prefetch_near` with a
    /// separator near the answer before the answer is known.
    #[inline(always)]
    pub(super) fn seek_near(&self, key: &[u8], prefetch_near: impl Fn(usize)) -> Near {
        let all = &self.runs[0];
        let head = H::of(key, all.skip);
        self.seek_near_in(all, head, self.buckets.around(head, all.end), prefetch_near)
    }

    /// Where the heads of `run` place a key that has `head` after the bytes that the run's
    /// separators share. The first head above it must be in `window` or directly after it.
    #[inline(always)]
    fn seek_near_in(
        &self,
        run: &HeadRun,
        head: H,
        window: (usize, usize),
        prefetch_near: impl Fn(usize),
    ) -> Near {
        let heads = &self.heads[run.heads_begin..][..run.end - run.begin];
        let (mut low, mut high) = window;
        // Heads that are compared at once are waited for once.
        while high - low > WINDOW_MAX {
            let part = (high - low) / PARTS;
            let below = (1..PARTS).filter(|i| heads[low + i * part - 1] <= head).count();
            (low, high) = (
                low + below * part,
                if below == PARTS - 1 { high } else { low + (below + 1) * part },
            );
        }
        // The reads that follow are near the answer, too: the separator itself, and its group if
        // heads tie.
        prefetch_near(run.begin + low);
        self.groups.get(run.heads_begin + low).into_iter().for_each(prefetch);
        let above = search::partition_point(low, high, |i| heads[i] <= head);
        let is_tied = above > 0 && heads[above - 1] == head;
        Near { above: run.begin + above, is_tied }
    }

    /// The first separator above `key`, where those before `above` have its head.
    #[inline(never)]
    pub(super) fn resolve_tied(
        &self,
        mut above: usize,
        separators: &Separators,
        key: &[u8],
        prefetch_near: impl Fn(usize),
    ) -> usize {
        let mut run = &self.runs[0];
        loop {
            let known = run.skip + H::BYTES;
            let at = run.heads_begin + above - 1 - run.begin;
            let Some(Group { begin, run: within }) = self.groups.get(at).copied() else {
                return above - usize::from(!separators.is_at_most(above - 1, key, known));
            };
            if within == 0 {
                prefetch_near(begin as usize);
                let is_at_most = |i| separators.is_at_most(i, key, known);
                return search::partition_point(begin as usize, above, is_at_most);
            }
            run = &self.runs[within as usize];
            match separators.compare_prefix(key, run.begin, known, run.skip) {
                Ordering::Less => return run.begin,
                Ordering::Greater => return run.end,
                Ordering::Equal => {}
            }
            let near = self.seek_near_in(
                run,
                H::of(key, run.skip),
                (0, run.end - run.begin),
                &prefetch_near,
            );
            above = near.above;
            if !near.is_tied {
                return above;
            }
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.runs)
            + size_of_val(&*self.heads)
            + size_of_val(&*self.buckets.begins)
            + size_of_val(&*self.groups)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}
