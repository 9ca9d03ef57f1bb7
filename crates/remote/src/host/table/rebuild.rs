//! Runs that are built anew: because many of their leaves have siblings, or much was removed.
//!
//! Where a thread stands by for it ([`super::care`]), most of that is done while writers go on;
//! otherwise it is done here, by the writer.

use super::Table;
use crate::{
    error::Result,
    host::{Space, directory::RunIndex},
    layout::format::NO_SLOT,
    leaf::Entry,
    route::Run,
};

impl<S: Space> Table<S> {
    /// Has a run built anew: later, if a thread stands by for that. `key` is one of its keys.
    pub(super) fn renew(&mut self, number: u32, key: &[u8], seq: u64) -> Result<()> {
        if self.care.is_cared_for {
            self.care.want(number, key);
            return Ok(());
        }
        self.rebuild(self.directory.find(key), seq)
    }

    /// Builds a run anew, with the next one if there is little in both.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; all stays as it is then.
    pub(super) fn rebuild(&mut self, at: RunIndex, seq: u64) -> Result<()> {
        let mut old = vec![at];
        let small = |run: &Run| run.leaves <= 2;
        if let Some(next) = self.directory.next_in_block(at)
            && small(self.directory.run(at))
            && small(self.directory.run(next))
        {
            old.push(next);
        }
        let (mut slots, mut entries) = (Vec::new(), Vec::new());
        for index in &old {
            let run = self.directory.run(*index);
            let (number, mut slot) = (run.number, run.base);
            while slot != NO_SLOT && self.leaf(slot).head().run == number {
                self.entries_of(slot, &mut entries);
                slots.push(slot);
                slot = self.leaf(slot).next();
            }
        }
        let (Some(&first), Some(&last)) = (slots.first(), slots.last()) else { return Ok(()) };
        let (low, high) = (self.fences_of(first).low, self.fences_of(last).high);
        let (previous, next) = (self.leaf(first).previous(), self.leaf(last).next());
        let runs = self.place_all(&entries, low, high, (previous, next), seq)?;
        let ends = runs.first().zip(runs.last()).map(|(first, last)| (first.0.base, last.1));
        let numbers: Vec<u32> = old.iter().map(|run| self.directory.run(*run).number).collect();
        let new = runs.iter().map(|(run, _)| run.clone()).collect();
        if let Err(error) = self.directory.replace(at, old.len(), new) {
            self.take_back(&runs);
            return Err(error);
        }
        if let Some((first, last)) = ends {
            self.link(previous, Some(first), None);
            self.link(next, None, Some(last));
        }
        for number in numbers {
            self.runs.remove(&number);
            self.care.ended(number);
        }
        self.entries -= entries.len() as u64;
        self.free(&slots);
        Ok(())
    }

    /// Stores entries as runs between two leaves.
    pub(super) fn place_all(
        &mut self,
        entries: &[Entry],
        low: Option<Vec<u8>>,
        high: Option<Vec<u8>>,
        (mut previous, next): (u32, u32),
        seq: u64,
    ) -> Result<Vec<(Run, u32)>> {
        let (mut runs, mut at, mut low) = (Vec::<(Run, u32)>::new(), 0, low);
        loop {
            let cut = self.cut(&entries[at..], low.as_deref(), high.as_deref());
            at += cut.taken;
            low.clone_from(&cut.high);
            match self.put_run(cut, previous, next, seq) {
                Ok((run, last)) => {
                    if let Some((_, before)) = runs.last() {
                        self.link(*before, Some(run.base), None);
                    }
                    previous = last;
                    runs.push((run, last));
                }
                Err(error) => {
                    self.take_back(&runs);
                    return Err(error);
                }
            }
            if at == entries.len() {
                return Ok(runs);
            }
        }
    }

    /// Frees runs that readers were not told of.
    pub(super) fn take_back(&mut self, runs: &[(Run, u32)]) {
        for (run, _) in runs {
            let slots: Vec<u32> = (run.base..run.base + run.leaves).collect();
            let state = self.runs.remove(&run.number).unwrap_or_default();
            self.entries -= u64::from(state.entries);
            self.free(&slots);
        }
    }

    /// Ends leaves and frees their slots. A late reader finds that the leaf answers for nothing, or
    /// what is there next.
    pub(super) fn free(&mut self, slots: &[u32]) {
        // planted: slot-given-back-before-leaf
        slots.iter().for_each(|slot| self.retire(*slot));
        let freed: std::collections::HashSet<u32> = slots.iter().copied().collect();
        self.latched.retain(|slot| !freed.contains(slot));
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        let ranges = sorted.chunk_by(|a, b| a + 1 == *b);
        ranges.for_each(|range| self.slots.give(range[0], range.len() as u32));
    }
}
