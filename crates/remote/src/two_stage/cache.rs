//! What a client keeps: the top model always, sub-models and tables as its budget says.

use std::collections::{HashMap, VecDeque};

use super::{
    layout::SUB_MODEL_BYTES,
    table::{Descriptor, VALID},
};

/// How much of the models and tables a client keeps. What it does not keep, it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheBudget {
    /// All that it used.
    Full,
    /// Sub-models with their tables, up to this many bytes.
    Bytes(usize),
    /// Sub-models alone: a get reads the entries that it needs.
    Models,
    /// The top model alone: a get reads a sub-model, then entries.
    Top,
}

/// Bytes of a sub-model whose table is read: it has the table's place and version too.
const MODEL_BYTES: usize = SUB_MODEL_BYTES + 8;

/// A sub-model that is kept.
struct Cached {
    descriptor: Descriptor,
    table: Option<Box<[u64]>>,
    /// It was used since eviction last came by.
    is_used: bool,
}

impl Cached {
    fn bytes(&self) -> usize {
        self.table.as_ref().map_or(MODEL_BYTES, |table| SUB_MODEL_BYTES + 8 * table.len())
    }
}

/// Sub-models by their numbers.
pub(super) struct Cache {
    budget: CacheBudget,
    models: HashMap<u32, Cached>,
    /// In the order in which they came, where there is eviction. Some may be gone or twice here.
    order: VecDeque<u32>,
    bytes: usize,
}

impl Cache {
    pub(super) fn new(budget: CacheBudget) -> Self {
        Self { budget, models: HashMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// Returns true if sub-models are kept.
    pub(super) fn keeps_models(&self) -> bool {
        self.budget != CacheBudget::Top
    }

    /// Returns true if tables are kept.
    pub(super) fn keeps_tables(&self) -> bool {
        matches!(self.budget, CacheBudget::Full | CacheBudget::Bytes(_))
    }

    /// Bytes of sub-models and tables, in the form of messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn descriptor(&mut self, index: u32) -> Option<Descriptor> {
        let cached = self.models.get_mut(&index)?;
        cached.is_used = true;
        Some(cached.descriptor)
    }

    pub(super) fn table(&self, index: u32) -> Option<&[u64]> {
        self.models.get(&index)?.table.as_deref()
    }

    /// Keeps a sub-model, with its table if that is kept, in place of the old one.
    pub(super) fn insert(&mut self, index: u32, descriptor: Descriptor, table: Option<Vec<u64>>) {
        if !self.keeps_models() {
            return;
        }
        let table = table.filter(|_| self.keeps_tables()).map(Vec::into_boxed_slice);
        let cached = Cached { descriptor, table, is_used: true };
        self.bytes += cached.bytes();
        let old = self.models.insert(index, cached);
        self.bytes -= old.as_ref().map_or(0, Cached::bytes);
        if let CacheBudget::Bytes(most) = self.budget {
            if old.is_none() {
                self.order.push_back(index);
            }
            self.evict(most);
        }
    }

    /// Evicts what was not used since the last time, oldest first.
    fn evict(&mut self, most: usize) {
        while self.bytes > most {
            let Some(index) = self.order.pop_front() else { return };
            match self.models.get_mut(&index) {
                Some(cached) if cached.is_used => {
                    cached.is_used = false;
                    self.order.push_back(index);
                }
                Some(_) => self.forget(index),
                None => {}
            }
        }
    }

    /// Drops a sub-model.
    pub(super) fn forget(&mut self, index: u32) {
        self.bytes -= self.models.remove(&index).map_or(0, |old| old.bytes());
    }

    /// Notes that a leaf is not what its entry says.
    pub(super) fn invalidate(&mut self, index: u32, leaf: u32) {
        let table = self.models.get_mut(&index).and_then(|cached| cached.table.as_mut());
        if let Some(entry) = table.and_then(|table| table.get_mut(leaf as usize)) {
            // planted: entry-stale-leaf-stays-valid
            *entry &= !VALID;
        }
    }

    /// Drops all sub-models.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.budget);
    }
}
