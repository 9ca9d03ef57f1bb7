//! The run of undecided keys: buffered with their costs and fitted as they come.
//!
//! A *unit* is one user key with all its versions; a unit is never split. Its *cost* is its bytes,
//! but at most one block, so that a huge unit does not leave a row of empty blocks behind it. The
//! points of the fit are (code, sum of the costs before).

use std::ops::Range;

use rhumb_model::{Fitter, Segment, code};

#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Where its key ends in `Run::keys`; it begins where the one before it ends.
    key_end: usize,
    /// The costs of all units before it in the run.
    start: u64,
    bytes: u64,
    /// The entries of all units up to and with this one.
    entries_end: u64,
}

/// Undecided units, of which the first `fitted` are within reach of one line.
#[derive(Debug)]
pub(super) struct Run {
    cost_max: u64,
    keys: Vec<u8>,
    units: Vec<Unit>,
    fitter: Fitter,
    fitted: usize,
    /// The bytes that the fitted keys share, which their codes skip.
    skip: usize,
}

impl Run {
    /// An empty run whose units cost at most `cost_max`, fitted to within `epsilon`.
    pub(super) fn new(cost_max: u64, epsilon: u64) -> Self {
        Self {
            cost_max,
            keys: Vec::new(),
            units: Vec::new(),
            fitter: Fitter::new(epsilon),
            fitted: 0,
            skip: 0,
        }
    }

    /// Adds an entry; yields whether it began a new unit.
    pub(super) fn add(&mut self, key: &[u8], bytes: u64) -> bool {
        let len = self.units.len();
        if len > 0 && self.key(len - 1) == key {
            let unit = &mut self.units[len - 1];
            unit.bytes = unit.bytes.saturating_add(bytes);
            unit.entries_end += 1;
            return false;
        }
        let start = self.cost_before(len);
        let entries_end = self.entries_before(len) + 1;
        self.keys.extend_from_slice(key);
        self.units.push(Unit { key_end: self.keys.len(), start, bytes, entries_end });
        true
    }

    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    pub(super) fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        let begin = if i == 0 { 0 } else { self.units[i - 1].key_end };
        &self.keys[begin..self.units[i].key_end]
    }

    /// The costs of the first `n` units.
    #[inline]
    pub(super) fn cost_before(&self, n: usize) -> u64 {
        match self.units.get(n) {
            Some(unit) => unit.start,
            None => self.units.last().map_or(0, |last| last.start + last.bytes.min(self.cost_max)),
        }
    }

    fn entries_before(&self, n: usize) -> u64 {
        n.checked_sub(1).map_or(0, |last| self.units[last].entries_end)
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

    /// Fits the next unit, if there is one that fits no more: whether it fitted.
    pub(super) fn fit_next(&mut self) -> bool {
        let i = self.fitted;
        let shared = self.shared_by(i + 1, self.skip);
        let fits = if i == 0 || shared < self.skip {
            self.refit(i + 1, shared)
        } else {
            self.fitter.add_point(code::code_at(self.key(i), shared), self.units[i].start)
        };
        self.fitted += usize::from(fits);
        fits
    }

    /// The bytes that the first `n` keys share, of which there are at most `known` if `n > 1`.
    fn shared_by(&self, n: usize, known: usize) -> usize {
        let (first, last) = (self.key(0), self.key(n - 1));
        match n {
            1 => first.len(),
            _ => code::common_prefix_len(&first[..known.min(first.len())], last),
        }
    }

    /// Fits the first `n` units anew with codes that skip `skip` bytes.
    fn refit(&mut self, n: usize, skip: usize) -> bool {
        self.skip = skip;
        self.fitter.clear();
        (0..n).all(|i| self.fitter.add_point(code::code_at(self.key(i), skip), self.units[i].start))
    }

    /// The line through the first `n` units with codes that skip `skip` bytes, if one fits.
    pub(super) fn line(&mut self, n: usize, skip: usize) -> Option<Segment> {
        let is_current = self.skip == skip && self.fitter.points() == n as u64;
        if is_current || self.refit(n, skip) { self.fitter.segment() } else { None }
    }

    /// The bytes that the first `n` keys share.
    pub(super) fn shared_prefix(&self, n: usize) -> usize {
        self.shared_by(n, usize::MAX)
    }

    /// Takes the first `n` units away. The rest is to be fitted anew.
    pub(super) fn remove(&mut self, n: usize) {
        let (keys, costs) = (self.units[n - 1].key_end, self.cost_before(n));
        let entries = self.entries_before(n);
        self.keys.drain(..keys);
        self.units.drain(..n);
        for unit in &mut self.units {
            unit.key_end -= keys;
            unit.start -= costs;
            unit.entries_end -= entries;
        }
        self.fitted = 0;
        self.skip = 0;
        self.fitter.clear();
    }
}
