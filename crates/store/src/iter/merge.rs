//! Merges sorted sources into one sorted walk over all their entries, versions included.

use std::cmp::Ordering;

use super::source::{Source, Start};
use crate::{
    error::Result,
    plan::{BlockRequest, Progress},
    table::{BlockRef, Step},
    types::compare_entries,
};

/// A merge of sources, one way.
///
/// `order` names the sources that stand on an entry, the next entry's first. Few sources take part
/// and the next entry mostly comes from the same one, so keeping the list sorted by insertion
/// costs one comparison an entry, less than a heap.
pub(crate) struct Merge {
    sources: Vec<Source>,
    order: Vec<usize>,
    start: Start,
    phase: Phase,
}

enum Phase {
    /// Sources before this one have been started.
    Starting(usize),
    /// This source was moved and waits for a block.
    Moving,
    /// The walk stands on an entry, or at its end.
    Standing,
}

impl Merge {
    /// A walk over `sources` from `start`; it stands nowhere before [`Merge::begin`].
    pub(crate) fn new(sources: Vec<Source>, start: Start) -> Self {
        let order = Vec::with_capacity(sources.len());
        Self { sources, order, start, phase: Phase::Starting(0) }
    }

    /// Goes to the first entry.
    pub(crate) fn begin(&mut self) -> Result<Progress<()>> {
        while let Phase::Starting(at) = self.phase {
            if at == self.sources.len() {
                self.sort();
                break;
            }
            match self.sources[at].start(&self.start)? {
                Step::Ready => self.phase = Phase::Starting(at + 1),
                Step::Need(block) => return Ok(self.need(at, block)),
            }
        }
        Ok(Progress::Done(()))
    }

    /// Goes to the next entry. Does nothing at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Progress<()>> {
        let Some(&top) = self.order.first() else { return Ok(Progress::Done(())) };
        match self.sources[top].advance(self.start.is_forward())? {
            Step::Ready => {
                self.settle_top();
                Ok(Progress::Done(()))
            }
            Step::Need(block) => {
                self.phase = Phase::Moving;
                Ok(self.need(top, block))
            }
        }
    }

    /// Takes the block that was asked for and goes on.
    pub(crate) fn resume(&mut self, block: BlockRef) -> Result<Progress<()>> {
        let forward = self.start.is_forward();
        match self.phase {
            Phase::Starting(at) => match self.sources[at].resume(block, forward)? {
                Step::Ready => {
                    self.phase = Phase::Starting(at + 1);
                    self.begin()
                }
                Step::Need(block) => Ok(self.need(at, block)),
            },
            Phase::Moving => {
                let top = self.order[0];
                match self.sources[top].resume(block, forward)? {
                    Step::Ready => {
                        self.phase = Phase::Standing;
                        self.settle_top();
                        Ok(Progress::Done(()))
                    }
                    Step::Need(block) => Ok(self.need(top, block)),
                }
            }
            Phase::Standing => Ok(Progress::Done(())),
        }
    }

    /// Ends one move with synchronous reads, as the sources' access says: compactions read far ahead
    /// and leave the cache alone.
    pub(crate) fn drive(&mut self, mut progress: Progress<()>) -> Result<()> {
        while let Progress::Need(BlockRequest { block, .. }) = progress {
            let source = match self.phase {
                Phase::Starting(at) => at,
                Phase::Moving | Phase::Standing => self.order[0],
            };
            let Some(block) = self.sources[source].fetch(block)? else { break };
            progress = self.resume(block)?;
        }
        Ok(())
    }

    /// The source that holds the entry under the walk; `None` at the end.
    #[inline]
    pub(crate) fn top(&self) -> Option<&Source> {
        self.order.first().map(|&top| &self.sources[top])
    }

    fn need(&self, source: usize, block: u32) -> Progress<()> {
        match self.sources[source].request(block) {
            Some(request) => Progress::Need(request),
            // Only tables ask for blocks.
            None => Progress::Done(()),
        }
    }

    fn sort(&mut self) {
        self.order = (0..self.sources.len()).filter(|&i| self.sources[i].is_valid()).collect();
        let mut order = std::mem::take(&mut self.order);
        order.sort_by(|&a, &b| self.compare(a, b));
        self.order = order;
        self.phase = Phase::Standing;
    }

    #[inline]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (&self.sources[a], &self.sources[b]);
        let order = compare_entries(a.key(), a.seq(), b.key(), b.seq());
        if self.start.is_forward() { order } else { order.reverse() }
    }

    #[inline]
    fn settle_top(&mut self) {
        if !self.sources[self.order[0]].is_valid() {
            self.order.remove(0);
            return;
        }
        let mut at = 0;
        while at + 1 < self.order.len()
            && self.compare(self.order[at], self.order[at + 1]) == Ordering::Greater
        {
            self.order.swap(at, at + 1);
            at += 1;
        }
    }
}
