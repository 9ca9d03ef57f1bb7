//! Training: the models and tables in the control part, and keeping them in step with the leaves.
//!
//! A split queues its sub-models, each once. A task copies what it needs of the leaves, is trained
//! without the table, and is committed; splits meanwhile make its result stale and queue it anew.
//! A complete training with more or fewer sub-models is made beside the models in use, one
//! sub-model at a time, and takes their place when all are trained.

use std::{
    collections::{HashSet, VecDeque},
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use rhumb_model::code::common_prefix_len;

use super::{
    host::{Table, Value},
    layout::{LINE_WORDS, PREFIX_BYTES_MAX, SLOTS, SUB_MODEL_WORDS, TOP, lines_of},
    leaf::{Fences, Head},
    message::{Answer, ENTRIES_MAX, Fresh, Lookup},
    model::{SubModel, Top},
    slab::Slab,
    table::{Descriptor, TableEntry},
    write::{latch, load, store, unlatch},
};
use crate::{error::Result, host::Space, primitive::AtomicU64};

/// Leaves of which the top model's training looks at a key each. Twice as many change which
/// sub-model a key of a million belongs to by less than one in a hundred.
const SAMPLE_MAX: usize = 4096;

/// Sub-models that one split queues, at most: a leaf that spans more of them has few keys in each,
/// and lookups queue the others as they are asked for.
const QUEUED_BY_SPLIT: u32 = 64;

/// Keys that come above all others, or below them, are all of one sub-model, which sees them at one
/// place. The models are trained anew once it has one key in this many, and the keyspace has grown
/// by such a part: keys that ascend are trained eight times or so in all.
const END_SHARE: u64 = 8;

/// One complete training.
#[derive(Default)]
struct Generation {
    top: Arc<Top>,
    /// First line and number of lines of each sub-model's table.
    tables: Vec<Option<(u32, u32)>>,
    queue: VecDeque<u32>,
    queued: HashSet<u32>,
    /// Sub-models that a first task was made of.
    begun: u32,
    /// Tasks that are neither committed nor lost.
    under_way: usize,
    /// Keys that there were when it began.
    keys: u64,
    /// Keys of the first sub-model and of the last, when they were trained.
    end_keys: [u64; 2],
}

impl Generation {
    fn queue(&mut self, index: u32) {
        if index < self.begun && self.queued.insert(index) {
            self.queue.push_back(index);
        }
    }

    /// The next sub-model to train.
    fn next(&mut self) -> Option<u32> {
        let index = if self.begun < self.top.models {
            self.begun += 1;
            self.begun - 1
        } else {
            let index = self.queue.pop_front()?;
            self.queued.remove(&index);
            index
        };
        self.under_way += 1;
        Some(index)
    }

    fn descriptor_lines(&self) -> u32 {
        lines_of(self.top.models as usize * SUB_MODEL_WORDS)
    }
}

/// What trainings there are.
#[derive(Default)]
pub(super) struct Trainer {
    slab: Slab,
    epoch: u32,
    /// The one that clients are told of.
    now: Generation,
    /// The one that takes its place when it is complete.
    next: Option<Generation>,
    /// The one before: clients may still read its sub-models and tables.
    before: Option<Generation>,
    /// Tasks are of `now` and of `next` in turn.
    is_next: bool,
}

impl Trainer {
    /// Frees the memory of a training that clients are not told of any more. A reader that is in
    /// there sees what is there next, and leaves disprove it.
    fn give_back(&mut self, old: Generation) {
        if old.top.models > 0 {
            self.slab.give(old.top.first_line, old.descriptor_lines());
        }
        for (first_line, lines) in old.tables.into_iter().flatten() {
            self.slab.give(first_line, lines);
        }
    }

    /// Queues the sub-models that a leaf was of before it was split.
    pub(super) fn record_split(&mut self, fences: &Fences, between: &[u8]) {
        for generation in [Some(&mut self.now), self.next.as_mut()].into_iter().flatten() {
            let top = Arc::clone(&generation.top);
            let index = |key: &[u8]| top.spot(top.code(key)).index;
            let middle = index(between);
            let reach = QUEUED_BY_SPLIT / 2;
            let first = fences.low.as_deref().map_or(0, index).max(middle.saturating_sub(reach));
            let last = fences.high.as_deref().map_or(top.models.saturating_sub(1), index);
            for index in first..=last.min(middle.saturating_add(reach)) {
                generation.queue(index);
            }
        }
    }
}

/// What a sub-model is trained on.
pub(crate) struct Task {
    top: Arc<Top>,
    index: u32,
    leaves: Vec<Sample>,
    /// What copying them took.
    spent: Duration,
}

/// One leaf of a task.
struct Sample {
    entry: TableEntry,
    /// Codes of the keys, sorted.
    codes: Vec<u64>,
    /// The lowest and the highest code of the keys that the leaf may hold.
    low: u64,
    high: u64,
}

/// A trained sub-model.
pub(crate) struct TrainedModel {
    epoch: u32,
    index: u32,
    model: SubModel,
    entries: Vec<TableEntry>,
    keys: u64,
    errors: u64,
    /// What copying its leaves took, and training.
    spent: Duration,
}

impl Task {
    /// Trains the sub-model. Pure: needs neither the table nor its lock.
    pub(crate) fn train(&self) -> TrainedModel {
        let begun = Instant::now();
        let (mut keys, mut borders) = (Vec::new(), Vec::new());
        let codes = self.top.codes_of(self.index);
        for (leaf, sample) in (0..).zip(&self.leaves) {
            let Some(codes) = &codes else { break };
            for (code, position) in sample.codes.iter().zip(leaf * SLOTS as u32..) {
                if codes.contains(code) {
                    keys.push((self.top.spot(*code).fraction, position));
                }
            }
            for code in [sample.low, sample.high] {
                let code = code.clamp(*codes.start(), *codes.end());
                borders.push((self.top.spot(code).fraction, leaf));
            }
        }
        let (model, errors) = SubModel::fit(self.leaves.len() as u32, &keys, &borders);
        TrainedModel {
            epoch: self.top.epoch,
            index: self.index,
            model,
            entries: self.leaves.iter().map(|sample| sample.entry).collect(),
            keys: keys.len() as u64,
            errors,
            spent: self.spent + begun.elapsed(),
        }
    }
}

impl<S: Space> Table<S> {
    /// Number of sub-models.
    pub(crate) fn model_count(&self) -> u32 {
        self.trainer.now.top.models
    }

    /// Number of sub-models that are to be trained, or are trained now.
    pub(crate) fn models_waiting(&self) -> u64 {
        let (now, next) = (Some(&self.trainer.now), self.trainer.next.as_ref());
        let waiting = |generation: &Generation| {
            let rest = u64::from(generation.top.models - generation.begun);
            rest + generation.queue.len() as u64 + generation.under_way as u64
        };
        let begun: u64 = [now, next].into_iter().flatten().map(waiting).sum();
        let wanted = self.models_wanted().filter(|_| next.is_none());
        begun + wanted.map_or(0, u64::from)
    }

    /// The first line of the sub-models.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn model_line(&self) -> u32 {
        self.trainer.now.top.first_line
    }

    /// Trains the models for the first time.
    pub(super) fn train_first(&mut self) -> Result<()> {
        let models = self.len() * 2 / u64::from(self.options.keys_per_model_max.max(1));
        let models = models.clamp(1, u64::from(u32::MAX >> 2)) as u32;
        let generation = self.begin_generation(models)?;
        self.trainer.next = Some(generation);
        while self.train_one()? {}
        Ok(())
    }

    /// Does one task, if there is one; returns false otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full): the sub-model stays as it was.
    pub(crate) fn train_one(&mut self) -> Result<bool> {
        let Some(task) = self.next_task()? else { return Ok(false) };
        self.commit(task.train())?;
        Ok(true)
    }

    /// Returns true if there is a task for a trainer thread.
    pub(crate) fn has_task(&self) -> bool {
        let has_some = |it: &Generation| it.begun < it.top.models || !it.queue.is_empty();
        has_some(&self.trainer.now)
            || self.trainer.next.as_ref().map_or(self.models_wanted().is_some(), has_some)
    }

    /// The next task of a trainer thread, which trains it without the table and commits it.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a complete training cannot begin.
    pub(crate) fn next_task(&mut self) -> Result<Option<Task>> {
        let mut begun = Ok(());
        if self.trainer.next.is_none()
            && let Some(models) = self.models_wanted()
        {
            // Without memory for that, the models in use are kept in step all the same.
            begun = self.begin_generation(models).map(|next| self.trainer.next = Some(next));
        }
        let trainer = &mut self.trainer;
        trainer.is_next = !trainer.is_next;
        let (now, next) = (&mut trainer.now, trainer.next.as_mut());
        let order = if trainer.is_next { [next, Some(now)] } else { [Some(now), next] };
        let found = order
            .into_iter()
            .flatten()
            .find_map(|generation| Some((generation.next()?, Arc::clone(&generation.top))));
        match found {
            Some((index, top)) => Ok(Some(self.task(top, index))),
            None => begun.map(|()| None),
        }
    }

    /// Has clients find a trained sub-model. Of a complete training, the last one puts it in place.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full): the sub-model stays as it was, to be trained again.
    pub(crate) fn commit(&mut self, trained: TrainedModel) -> Result<()> {
        let lines = lines_of(trained.entries.len());
        let first_line = self.trainer.slab.take(lines, &mut self.tail, &self.control);
        let trainer = &mut self.trainer;
        let generation = [Some(&mut trainer.now), trainer.next.as_mut()]
            .into_iter()
            .flatten()
            .find(|generation| generation.top.epoch == trained.epoch);
        let Some(generation) = generation else {
            first_line.into_iter().for_each(|first_line| trainer.slab.give(first_line, lines));
            return Ok(());
        };
        generation.under_way -= 1;
        let first_line = first_line.inspect_err(|_| generation.queue(trained.index))?;
        let old = generation.tables[trained.index as usize].replace((first_line, lines));
        let top = Arc::clone(&generation.top);
        for (end, index) in [0, top.models - 1].into_iter().enumerate() {
            if trained.index == index {
                generation.end_keys[end] = trained.keys;
            }
        }
        store(self.lines(first_line, lines), trained.entries.iter().map(|entry| entry.to_word()));
        let words = self.descriptor_words(&top, trained.index);
        latch(words);
        let descriptor = Descriptor { model: trained.model, first_line, version: 0 };
        store(&words[1..], descriptor.to_words());
        unlatch(words);
        // A reader that is in the old table sees another guard afterwards.
        old.into_iter().for_each(|(first_line, lines)| self.trainer.slab.give(first_line, lines));
        self.counts.trained += 1;
        self.counts.trained_keys += trained.keys;
        self.counts.trained_errors += trained.errors;
        self.counts.training_ns += trained.spent.as_nanos() as u64;
        self.finish_generation();
        Ok(())
    }

    /// What a client's cache lacks that could not do a get.
    pub(crate) fn fresh_for(&mut self, lookup: &Lookup<'_>) -> Option<Fresh> {
        self.counts.lookups += 1;
        let has_top = lookup.epoch == self.trainer.now.top.epoch;
        (lookup.wants_model || !has_top).then(|| self.fresh(lookup.key, has_top))
    }

    /// Answers a get that a client could not do, with what its cache lacks. `large` has the values
    /// that the region has not.
    pub(crate) fn answer(
        &mut self,
        lookup: &Lookup<'_>,
        large: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Answer {
        let value = match self.get(lookup.key) {
            Some(Value::Here(value)) => Some(value),
            Some(Value::Ask) => large(lookup.key),
            None => None,
        };
        Answer { value, fresh: self.fresh_for(lookup) }
    }

    /// The sub-model of a key. Queues it if it is stale.
    fn fresh(&mut self, key: &[u8], has_top: bool) -> Fresh {
        let top = Arc::clone(&self.trainer.now.top);
        let spot = top.spot(top.code(key));
        let words = load(self.descriptor_words(&top, spot.index));
        let descriptor = Descriptor::from_words(&words, words[0]).unwrap_or_default();
        let leaves = descriptor.model.leaves as usize;
        let likely = descriptor.model.window(spot.fraction).map_or(0, |window| window.likely);
        let first = (likely as usize).saturating_sub(ENTRIES_MAX / 2);
        let first = first.min(leaves.saturating_sub(ENTRIES_MAX));
        let end = leaves.min(first + ENTRIES_MAX);
        let entries = load(&self.lines(descriptor.first_line, lines_of(leaves))[first..end]);
        let leaf = self.head(self.walk(key));
        let is_same = |entry: &u64| {
            let entry = TableEntry::from_word(*entry);
            (entry.number, entry.incarnation) == (leaf.number, leaf.incarnation)
        };
        if !entries.iter().any(is_same) {
            self.trainer.now.queue(spot.index);
        }
        Fresh {
            epoch: top.epoch,
            top: (!has_top).then(|| (*top).clone()),
            index: spot.index,
            descriptor,
            first: first as u32,
            entries,
        }
    }

    /// The number of sub-models that there should be, if the models should be trained anew.
    fn models_wanted(&self) -> Option<u32> {
        let (models, most) = (self.model_count(), u64::from(self.options.keys_per_model_max));
        let keys = self.len();
        if keys > u64::from(models) * most {
            return models.checked_mul(2);
        }
        // Half as many sub-models have a quarter of the keys then that they may have.
        if models > 1 && keys < u64::from(models) * most / 8 {
            return Some(models / 2);
        }
        let now = &self.trainer.now;
        let fullest = now.end_keys.into_iter().max().unwrap_or_default();
        let is_crowded = fullest > (2 * most).max(keys / END_SHARE);
        (is_crowded && keys > now.keys + now.keys / END_SHARE).then_some(models)
    }

    fn begin_generation(&mut self, models: u32) -> Result<Generation> {
        let (prefix, sample) = self.sample();
        let top = Top::fit(prefix, models, &[]);
        let codes: Vec<(u64, f64)> =
            sample.iter().map(|(key, rank)| (top.code(key), *rank)).collect();
        let mut top = Top::fit(top.prefix, models, &codes);
        let lines = lines_of(models as usize * SUB_MODEL_WORDS);
        top.first_line = self.trainer.slab.take(lines, &mut self.tail, &self.control)?;
        self.trainer.epoch += 1;
        top.epoch = self.trainer.epoch;
        Ok(Generation {
            top: Arc::new(top),
            tables: vec![None; models as usize],
            keys: self.len(),
            ..Generation::default()
        })
    }

    /// What the keys begin with, and some of them with their ranks.
    fn sample(&self) -> (Vec<u8>, Vec<(Vec<u8>, f64)>) {
        let keys = |number: &u32| {
            let leaf = self.head(*number);
            (0..leaf.count).map(move |index| self.key_of(&leaf, index)).collect::<Vec<_>>()
        };
        let step = self.tree.len().div_ceil(SAMPLE_MAX).max(1);
        let mut sample = Vec::new();
        for (rank, number) in self.tree.values().enumerate().step_by(step) {
            let rank = rank as f64 / self.tree.len() as f64;
            sample.extend(keys(number).into_iter().min().map(|key| (key, rank)));
        }
        let ends = (
            self.tree.values().find_map(|number| keys(number).into_iter().min()),
            self.tree.values().rev().find_map(|number| keys(number).into_iter().max()),
        );
        let (Some(first), Some(last)) = ends else { return (Vec::new(), sample) };
        let shared = common_prefix_len(&first, &last).min(PREFIX_BYTES_MAX);
        let prefix = first[..shared].to_vec();
        sample.push((last, 1.0));
        (prefix, sample)
    }

    /// Puts a complete training in place, once it is complete.
    fn finish_generation(&mut self) {
        let is_complete = self.trainer.next.as_ref().is_some_and(|next| {
            next.begun == next.top.models && next.under_way == 0 && next.queue.is_empty()
        });
        let Some(next) = self.trainer.next.take_if(|_| is_complete) else { return };
        let models = self.trainer.now.top.models;
        self.counts.expansions += u64::from(models > 0 && models < next.top.models);
        self.counts.shrinks += u64::from(models > next.top.models);
        let words = &self.control.words()[TOP..];
        latch(words);
        store(&words[1..], next.top.to_words());
        unlatch(words);
        let now = std::mem::replace(&mut self.trainer.now, next);
        let old = self.trainer.before.replace(now);
        old.into_iter().for_each(|old| self.trainer.give_back(old));
    }

    /// Gives up what is being trained, of leaves that are no more. The models that clients have
    /// stay until others are trained.
    pub(super) fn forget_trainings(&mut self) {
        let next = self.trainer.next.take();
        next.into_iter().for_each(|next| self.trainer.give_back(next));
        let now = &mut self.trainer.now;
        now.queue.clear();
        now.queued.clear();
        now.begun = now.top.models;
    }

    fn descriptor_words(&self, top: &Top, index: u32) -> &[AtomicU64] {
        let at = top.first_line as usize * LINE_WORDS + index as usize * SUB_MODEL_WORDS;
        &self.control.words()[at..at + SUB_MODEL_WORDS]
    }

    /// Copies what a sub-model is trained on: every leaf that may hold one of its keys.
    fn task(&self, top: Arc<Top>, index: u32) -> Task {
        let begun = Instant::now();
        let mut leaves = Vec::new();
        if let Some(codes) = top.codes_of(index) {
            let (first, end) = (*codes.start(), *codes.end());
            let low = if first == 0 { Vec::new() } else { top.key_of(first) };
            let low = self.find_leaf(&low).map_or(&[][..], |(low, _)| low);
            let end = end.checked_add(1).map(|end| top.key_of(end));
            let range = (Bound::Included(low), Bound::Unbounded);
            for (fence, number) in self.tree.range::<[u8], _>(range) {
                if end.as_ref().is_some_and(|end| fence >= end) {
                    break;
                }
                leaves.push(self.leaf_sample(&top, &self.head(*number)));
            }
        }
        if leaves.is_empty() {
            // No key is sent here. A table is not empty all the same.
            let last = self.tree.values().next_back();
            leaves.extend(last.map(|number| self.leaf_sample(&top, &self.head(*number))));
        }
        Task { top, index, leaves, spent: begun.elapsed() }
    }

    fn leaf_sample(&self, top: &Top, leaf: &Head) -> Sample {
        let mut codes: Vec<u64> =
            (0..leaf.count).map(|index| top.code(&self.key_of(leaf, index))).collect();
        codes.sort_unstable();
        let fences = self.fences(leaf);
        Sample {
            entry: entry_of(leaf),
            codes,
            low: fences.low.map_or(0, |low| top.code(&low)),
            high: fences.high.map_or(u64::MAX, |high| top.code_below(&high)),
        }
    }
}

/// The entry of a table for a leaf.
fn entry_of(leaf: &Head) -> TableEntry {
    TableEntry {
        is_valid: true,
        number: leaf.number,
        incarnation: leaf.incarnation,
        count: leaf.count as u8,
    }
}
