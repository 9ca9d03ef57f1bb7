//! Training while reading: gives tables that were flushed without a model one, when nothing else is to
//! be done. Readers search until the model is published in the table's handle, and never wait for it.

use std::time::Duration;

use super::core::Core;
use crate::{
    sync::primitive::{Arc, Ordering},
    table::{Table, Trained},
};

/// A training that takes longer is given up.
const TIME_MAX: Duration = Duration::from_secs(1);

/// More entries than this within one wait of the pool are no idle time.
pub(super) const IDLE_ENTRIES_MAX: u64 = 1000;

impl Core {
    /// Trains one table; says whether there was one.
    pub(super) fn train_one(&self) -> bool {
        let Some(table) = self.untried_table() else { return false };
        let begun = self.clock.now();
        let is_late = || {
            self.work.is_shut_down() || self.clock.now().saturating_duration_since(begun) > TIME_MAX
        };
        let counter = match table.train(is_late) {
            Trained::Published => &self.counters.tables_trained_reading,
            Trained::Refused | Trained::TimedOut => &self.counters.trainings_refused,
            // Too small for a model, or somebody else was here.
            Trained::NotWanted => return true,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A table that was written without a model although its keyspace has them, and that nobody tried
    /// to train.
    fn untried_table(&self) -> Option<Arc<Table>> {
        let trees: Vec<_> = {
            let trees = self.trees.lock();
            let wants = |tree: &&Arc<_>| tree_wants(tree);
            trees.live().filter(wants).cloned().collect()
        };
        trees.iter().find_map(|tree| {
            let levels = tree.levels.get();
            let mut tables = levels.all();
            tables.find(|(_, table)| table.index().is_untried()).map(|(_, table)| Arc::clone(table))
        })
    }
}

fn tree_wants(tree: &super::core::Tree) -> bool {
    tree.options.table.trains_while_reading()
}
