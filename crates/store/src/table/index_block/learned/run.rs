//! The run of undecided keys: buffered with their costs and fitted as they come.
//!
//! A *unit* is one user key with all its versions; a unit is never split. Its *cost* is its bytes,
//! but at most one block, so that a huge unit does not leave a row of empty blocks after it. The
//! points of the fit are (code, sum of the costs before). One unit for every [`POINTS_PER_BLOCK`]th
//! of a block is a point. The units between are at most that part of a block further off the line,
//! because codes and costs both rise.

use std::{ops::Range, sync::Arc};

use rhumb_model::{Fitter, Segment, StringCode, code};
use rhumb_sync::{bulk::Bulk, mapping::Gauge};

/// A unit becomes a point of the fit once the cost since the last point is one part in this many of
/// a block.
const POINTS_PER_BLOCK: u64 = 16;

/// How the keys of a run become numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Coder {
    /// 0 for the eight plain bytes; otherwise the number of the code among those of the table, from
    /// 1 on.
    pub(super) number: u32,
    pub(super) code: Option<Arc<StringCode>>,
}

impl Coder {
    /// The code of `key` without its first `skip` bytes.
    #[inline]
    pub(super) fn code(&self, key: &[u8], skip: usize) -> u64 {
        match &self.code {
            None => code::code_at(key, skip),
            Some(code) => code.code(key, skip),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Where its key ends in `KeyRun::keys`; it begins where the one before it ends.
    key_end: usize,
    /// The costs of all units before it in the run.
    start: u64,
    bytes: u64,
    /// The entries of all units up to and with this one.
    entries_end: u64,
}

/// Undecided units, of which one line fits the first `fitted`.
#[derive(Clone, Debug)]
pub(super) struct KeyRun {
    coder: Coder,
    cost_max: u64,
    keys: Bulk<u8>,
    units: Bulk<Unit>,
    /// The number of units at the front that are removed already. Their memory is released once
    /// they are half of all, so that removing many small parts moves each unit only a few times.
    gone: usize,
    fitter: Fitter,
    fitted: usize,
    /// The cost from which on the next unit is a point of the fit.
    next_point: u64,
    /// The number of bytes that the fitted keys share, which their codes skip.
    skip: usize,
}

impl KeyRun {
    /// An empty run whose units cost at most `cost_max`, fitted to within `epsilon`. The units
    /// between points use up a part of that.
    pub(super) fn new(cost_max: u64, epsilon: u64) -> Self {
        Self {
            coder: Coder::default(),
            cost_max,
            keys: Bulk::default(),
            units: Bulk::default(),
            gone: 0,
            fitter: Fitter::new(epsilon.saturating_sub(cost_max / POINTS_PER_BLOCK)),
            fitted: 0,
            next_point: 0,
            skip: 0,
        }
    }

    /// The same run, with its memory counted by `gauge`. To be called before the first entry.
    pub(super) fn counted_by(self, gauge: &Gauge) -> Self {
        Self { keys: Bulk::new(gauge), units: Bulk::new(gauge), ..self }
    }

    /// Adds an entry; returns true if it began a new unit.
    pub(super) fn add(&mut self, key: &[u8], bytes: u64) -> bool {
        if !self.begins_unit(key)
            && let Some(unit) = self.units.last_mut()
        {
            unit.bytes = unit.bytes.saturating_add(bytes);
            unit.entries_end += 1;
            return false;
        }
        let (start, entries_end) = match self.units.last() {
            None => (0, 1),
            Some(last) => (last.start + last.bytes.min(self.cost_max), last.entries_end + 1),
        };
        self.keys.extend_from_slice(key);
        self.units.push(Unit { key_end: self.keys.len(), start, bytes, entries_end });
        true
    }

    /// Sets how keys become numbers from now on. Forgets what was fitted.
    pub(super) fn set_coder(&mut self, coder: Coder) {
        self.coder = coder;
        self.fitted = 0;
        self.start_fit(0);
    }

    /// Forgets the points, and starts a fit with codes that skip `skip` bytes.
    fn start_fit(&mut self, skip: usize) {
        self.skip = skip;
        self.next_point = 0;
        self.fitter.clear();
    }

    pub(super) fn coder(&self) -> &Coder {
        &self.coder
    }

    /// The code of the key of unit `i` without its first `skip` bytes.
    #[inline]
    pub(super) fn code(&self, i: usize, skip: usize) -> u64 {
        self.coder.code(self.key(i), skip)
    }

    /// A run of the keys and costs of some units, with one entry each.
    pub(super) fn piece(&self, units: Range<usize>) -> Self {
        let mut piece = Self {
            keys: self.keys.another(),
            units: self.units.another(),
            fitter: self.fitter.clone(),
            ..Self::new(self.cost_max, 0)
        };
        piece.fitter.clear();
        for i in units {
            piece.add(self.key(i), self.cost_before(i + 1) - self.cost_before(i));
        }
        piece
    }

    /// Returns true if an entry of `key` would begin a new unit.
    pub(super) fn begins_unit(&self, key: &[u8]) -> bool {
        self.len().checked_sub(1).is_none_or(|last| self.key(last) != key)
    }

    pub(super) fn len(&self) -> usize {
        self.units.len() - self.gone
    }

    pub(super) fn key_bytes(&self) -> usize {
        self.keys.len() - self.key_begin(0)
    }

    /// Where the key of unit `i` begins.
    #[inline]
    fn key_begin(&self, i: usize) -> usize {
        (self.gone + i).checked_sub(1).map_or(0, |before| self.units[before].key_end)
    }

    #[inline]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        &self.keys[self.key_begin(i)..self.units[self.gone + i].key_end]
    }

    /// The costs of the first `n` units.
    #[inline]
    pub(super) fn cost_before(&self, n: usize) -> u64 {
        let Some(first) = self.units.get(self.gone) else { return 0 };
        let end = match self.units.get(self.gone + n) {
            Some(unit) => unit.start,
            None => self.units.last().map_or(0, |last| last.start + last.bytes.min(self.cost_max)),
        };
        end - first.start
    }

    /// The entries of the first `n` units, and of those that were removed.
    fn entries_before(&self, n: usize) -> u64 {
        (self.gone + n).checked_sub(1).map_or(0, |last| self.units[last].entries_end)
    }

    /// The number of entries in a range of units.
    pub(super) fn entries(&self, units: Range<usize>) -> u32 {
        let entries = self.entries_before(units.end) - self.entries_before(units.start);
        u32::try_from(entries).unwrap_or(u32::MAX)
    }

    /// The number of leading units that one line fits so far.
    pub(super) fn fitted(&self) -> usize {
        self.fitted
    }

    /// Fits the next unit. Returns false if the line does not fit it.
    pub(super) fn fit_next(&mut self) -> bool {
        let i = self.fitted;
        let fits = self.cost_before(i) < self.next_point || {
            let shared = self.shared_by(i + 1, self.skip);
            if i == 0 || shared < self.skip { self.refit(i + 1, shared) } else { self.add_point(i) }
        };
        self.fitted += usize::from(fits);
        fits
    }

    /// Makes unit `i` a point of the fit. Returns false if the line does not fit it.
    fn add_point(&mut self, i: usize) -> bool {
        let cost = self.cost_before(i);
        let fits = self.fitter.add_point(self.code(i, self.skip), cost);
        if fits {
            self.next_point = cost + self.cost_max / POINTS_PER_BLOCK;
        }
        fits
    }

    /// The number of bytes that the first `n` keys share: at most `known` if `n > 1`.
    fn shared_by(&self, n: usize, known: usize) -> usize {
        let (first, last) = (self.key(0), self.key(n - 1));
        match n {
            1 => first.len(),
            _ => code::common_prefix_len(&first[..known.min(first.len())], last),
        }
    }

    /// Fits the first `n` units anew with codes that skip `skip` bytes.
    fn refit(&mut self, n: usize, skip: usize) -> bool {
        self.start_fit(skip);
        (0..n).all(|i| self.cost_before(i) < self.next_point || self.add_point(i))
    }

    /// The line through the first `n` units with codes that skip `skip` bytes, if one fits.
    pub(super) fn line(&mut self, n: usize, skip: usize) -> Option<Segment> {
        // A line that fits more units is as near to these, and after fewer units no line for more
        // is asked for.
        let is_current = self.skip == skip && self.fitted >= n;
        if is_current || self.refit(n, skip) { self.fitter.segment() } else { None }
    }

    /// The number of bytes that the first `n` keys share.
    pub(super) fn shared_prefix(&self, n: usize) -> usize {
        self.shared_by(n, usize::MAX)
    }

    /// Removes the first `n` units. The rest must be fitted anew.
    pub(super) fn remove(&mut self, n: usize) {
        self.gone += n;
        if self.gone * 2 > self.units.len() {
            let (keys, entries) = (self.key_begin(0), self.entries_before(0));
            let costs = self.units.get(self.gone).map_or(0, |first| first.start);
            self.keys.remove_first(keys);
            self.units.remove_first(self.gone);
            self.gone = 0;
            for unit in &mut *self.units {
                unit.key_end -= keys;
                unit.start -= costs;
                unit.entries_end -= entries;
            }
        }
        self.fitted = 0;
        self.start_fit(0);
    }
}
