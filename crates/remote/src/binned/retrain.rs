//! Model retraining at the host: planning it, and putting new arrays in the place of old ones.
//!
//! A record of a removed key is dropped if nothing is in the gaps on both sides of it, which become
//! one: so bins never come to hold keys of a wider gap than they were made for.

use std::sync::Arc;

use rhumb_model::code::code_at;

use super::{
    array::{Array, Draft},
    descriptor::Span,
    host::{CHANGES_MAX, Host, Spot},
    layout::{Link, Record, Slot},
    train::{ArrayRecord, From, Planned, Trained, TrainingPlan},
    write::SMALL_DEPTH_MAX,
};
use crate::{error::Result, host::Space};

/// An array that has fewer records than this after its training is joined with the next one: as
/// many as a window has, so that such arrays are not much more than a read.
const JOIN_RECORDS: usize = 64;
/// Gaps of which the bins are retrained for one training: some microseconds each, while writers
/// wait. The rest has its turn when it was searched as often.
const GAPS_MAX: usize = 512;
/// Replaced arrays that stay readable in one place at most. A write looks for its key in each: with
/// keys that come in order and a session that lags, 24 of them made a write take 35 us, and 4 of
/// them or none 13 us.
const ANCESTORS_MAX: usize = 4;

impl<S: Space> Host<S> {
    /// Arrays that are to be trained anew.
    pub(crate) fn due_count(&self) -> usize {
        self.due.len()
    }

    /// Plans the training of an array that is due; where searches in its gaps have made it so, what
    /// its bins hold is trained too. Readers see what that changes after [`Host::publish`].
    /// [`TrainingPlan::train`] needs no host; writes may go on meanwhile.
    pub(crate) fn begin_training(&mut self) -> Option<TrainingPlan> {
        while let Some(top) = self.due.pop_first() {
            let Some(array) = self.arrays.get_mut(&top).filter(|array| !array.is_retired) else {
                continue;
            };
            if std::mem::take(&mut array.is_asked) {
                self.retrain_gaps(top);
            }
            return Some(self.plan(top));
        }
        None
    }

    /// Makes small arrays of bins in the gaps of an array, so that its training merges what they
    /// hold; of as many as there is memory for.
    fn retrain_gaps(&mut self, top: u64) {
        let mut gaps = Vec::new();
        self.find_bins(top, 0, &mut gaps);
        for (spot, root) in gaps {
            if self.retrain_bins(spot, root).is_err() {
                return;
            }
        }
    }

    /// Finds the gaps of an array, and of the small arrays in them, that have bins.
    fn find_bins(&self, epoch: u64, depth: usize, gaps: &mut Vec<(Spot, Slot)>) {
        let Some(array) = self.arrays.get(&epoch) else { return };
        for index in 0..=array.len() {
            match array.record(&self.records, index).link() {
                _ if gaps.len() >= GAPS_MAX => return,
                Link::Bin(root) if depth < SMALL_DEPTH_MAX => {
                    gaps.push((Spot { array: epoch, index, is_record: false, depth }, root));
                }
                Link::Small(slot) => {
                    let small = self.small(slot);
                    small.into_iter().for_each(|small| self.find_bins(small, depth + 1, gaps));
                }
                Link::Bin(_) | Link::Empty => {}
            }
        }
    }

    /// Puts trained arrays in the place of the planned ones; returns false if too much has changed
    /// since, and nothing was done. Readers see them after [`Host::publish`].
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full); nothing was done then.
    pub(crate) fn finish_training(&mut self, trained: Trained) -> Result<bool> {
        let is_current = self.is_current(&trained.plan);
        if is_current {
            self.install(trained)?;
            self.counts.model_retrainings += 1;
        } else {
            self.counts.trainings_dropped += 1;
            self.due.extend(trained.plan.tops);
        }
        Ok(is_current)
    }

    /// Trains an array anew at once.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full); nothing was done then.
    pub(super) fn train(&mut self, top: u64) -> Result<()> {
        let trained = self.plan(top).train();
        self.install(trained)?;
        self.counts.model_retrainings += 1;
        self.due.remove(&top);
        Ok(())
    }

    fn link(&self, at: ArrayRecord) -> Link {
        let array = self.arrays.get(&at.array);
        array.map_or(Link::Empty, |array| array.record(&self.records, at.index).link())
    }

    /// Plans the training of an array, and of those after it while there are few records.
    fn plan(&self, top: u64) -> TrainingPlan {
        let mut plan = TrainingPlan {
            tops: Vec::new(),
            smalls: Vec::new(),
            span: Span::all(),
            below: None,
            records: Vec::new(),
            dropped: Vec::new(),
        };
        let mut gap = ArrayRecord { array: top, index: 0 };
        let mut next = Some(top);
        while let Some(array) = next.and_then(|epoch| self.arrays.get(&epoch)) {
            let (epoch, span) = (array.descriptor.epoch, &array.descriptor.span);
            if plan.tops.is_empty() {
                plan.span = span.clone();
                plan.below = Some(gap);
            } else {
                // Its sentinel's gap becomes one with the last gap before it.
                let sentinel = ArrayRecord { array: epoch, index: 0 };
                let are_empty = [gap, sentinel].iter().all(|at| self.link(*at) == Link::Empty);
                if plan.records.len() >= JOIN_RECORDS || !are_empty {
                    break;
                }
                plan.dropped.push((sentinel, gap));
                plan.span.high.clone_from(&span.high);
            }
            plan.tops.push(epoch);
            self.gather(array, &mut gap, &mut plan);
            next = span.high.as_ref().and_then(|high| self.tops.get(high)).copied();
        }
        plan
    }

    /// Plans the records of an array and of its small arrays, in order. `gap` is the gap before the
    /// next record.
    fn gather(&self, array: &Array, gap: &mut ArrayRecord, plan: &mut TrainingPlan) {
        let epoch = array.descriptor.epoch;
        for index in 0..=array.len() {
            let here = ArrayRecord { array: epoch, index };
            let record = array.record(&self.records, index);
            if index > 0 {
                let is_empty = record.link() == Link::Empty && self.link(*gap) == Link::Empty;
                if is_empty && array.is_removed(&self.records, index) {
                    plan.dropped.push((here, *gap));
                    continue;
                }
                let from = From::Arrays { cell: here, gap: here };
                plan.records.push(Planned { key: self.records.key(&record), from });
                *gap = here;
            }
            let Link::Small(slot) = record.link() else { continue };
            let Some(small) = self.small(slot).and_then(|small| self.arrays.get(&small)) else {
                continue;
            };
            // The small array's sentinel has the gap after the record.
            *gap = ArrayRecord { array: small.descriptor.epoch, index: 0 };
            match plan.records.last_mut() {
                Some(Planned { from: From::Arrays { gap: last, .. }, .. }) => *last = *gap,
                _ => plan.below = Some(*gap),
            }
            plan.smalls.push(gap.array);
            self.gather(small, gap, plan);
        }
    }

    /// Returns true if new arrays may still take the place of the planned ones.
    fn is_current(&self, plan: &TrainingPlan) -> bool {
        let mut arrays = plan.tops.iter().chain(&plan.smalls);
        let is_there = |epoch| self.arrays.get(epoch).is_some_and(|array| !array.is_retired);
        arrays.all(is_there)
            && plan.dropped.iter().all(|(here, gap)| {
                let array = self.arrays.get(&here.array);
                let is_gone = here.index == 0
                    || array.is_some_and(|array| array.is_removed(&self.records, here.index));
                is_gone && [here, gap].iter().all(|at| self.link(**at) == Link::Empty)
            })
    }

    /// The record that a planned one is by now.
    fn planned(&self, planned: &Planned, skip: usize) -> Record {
        let record = match planned.from {
            From::New(record) => record,
            From::Arrays { cell, gap } => {
                let array = self.arrays.get(&cell.array);
                let record = array.map(|array| array.record(&self.records, cell.index));
                record.unwrap_or_default().with_link(self.link(gap))
            }
        };
        match record.wide_extent() {
            None => record,
            Some(_) => Record { code: code_at(&planned.key, skip), ..record },
        }
    }

    /// Puts trained arrays in the place of the planned ones: the first step of the barrier.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full); nothing was done then.
    pub(super) fn install(&mut self, trained: Trained) -> Result<()> {
        let Trained { plan, runs } = trained;
        let mut placed: Vec<Array> = Vec::with_capacity(runs.len());
        let (mut low, mut at) = (plan.span.low.clone(), 0);
        let mut below = plan.below.map_or(Link::Empty, |gap| self.link(gap));
        for run in &runs {
            let some = &plan.records[at..at + run.len];
            at += run.len;
            let next: Option<Arc<[u8]>> = plan.records.get(at).map(|next| (&*next.key).into());
            let high = next.or_else(|| plan.span.high.clone());
            let draft = Draft {
                span: Span { low: low.clone(), high: high.clone() },
                prefix: some.first().map_or(&[][..], |first| &first.key[..run.skip]).into(),
                segment: run.segment,
                below: std::mem::replace(&mut below, Link::Empty),
                records: some.iter().map(|record| self.planned(record, run.skip)).collect(),
            };
            let epoch = self.take_epoch();
            match Array::put(&mut self.records, &draft, epoch) {
                Ok(array) => placed.push(array),
                Err(error) => {
                    placed.iter().for_each(|array| array.free(&mut self.records));
                    return Err(error);
                }
            }
            low = high.unwrap_or_default();
        }
        self.swap(&plan, placed);
        Ok(())
    }

    /// Has all blocks of a replaced array answer for nothing from now on.
    fn end(&mut self, epoch: u64) {
        let Some(array) = self.arrays.get(&epoch) else { return };
        let sizes = self.records.slab.sizes();
        let (first, last) = (array.block(sizes, 0), array.block(sizes, array.len()));
        (first..=last).for_each(|block| self.records.slab.retire_block(block));
        self.counts.blocks_ended += u64::from(last + 1 - first);
    }

    fn swap(&mut self, plan: &TrainingPlan, placed: Vec<Array>) {
        self.model += 1;
        let mut ancestors = plan.tops.clone();
        for epoch in &plan.tops {
            if let Some(array) = self.arrays.get(epoch) {
                ancestors.extend_from_slice(&array.ancestors);
                self.tops.remove(&array.descriptor.span.low);
            }
        }
        ancestors.retain(|epoch| self.arrays.contains_key(epoch));
        // The youngest are those that most clients have.
        ancestors.sort_unstable_by(|a, b| b.cmp(a));
        for epoch in ancestors.split_off(ancestors.len().min(ANCESTORS_MAX)) {
            self.end(epoch);
        }
        for mut array in placed {
            array.ancestors.clone_from(&ancestors);
            let epoch = array.descriptor.epoch;
            self.tops.insert(array.descriptor.span.low.clone(), epoch);
            self.arrays.insert(epoch, array);
        }
        self.changes.push_back((self.model, plan.span.clone()));
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
        let record = |at: &ArrayRecord| {
            let array = self.arrays.get(&at.array)?;
            Some(array.record(&self.records, at.index))
        };
        let dropped = plan.dropped.iter().filter_map(|(here, _)| record(here)).collect();
        let arrays: Vec<u64> = plan.tops.iter().chain(&plan.smalls).copied().collect();
        if !arrays.is_empty() {
            self.retire(arrays, dropped);
        }
    }
}
