//! A compaction that must be done, as plain data.

use rhumb_sync::primitive::Arc;

use crate::{
    table::{KeyHash, Table},
    version::levels::Level,
};

/// A table with its level.
pub(crate) type Placed = (usize, Arc<Table>);

/// A compaction of one LSM tree.
pub(crate) enum Job {
    /// Reads the inputs and writes the entries that must stay.
    Merge(Merge),
    /// The one table only changes its level: nothing is read.
    Move {
        /// The table and its present level.
        table: Placed,
        /// The level that it moves to.
        level: usize,
    },
    /// No reader sees anything of these tables.
    Drop(Vec<Placed>),
}

/// Tables that are merged into others.
pub(crate) struct Merge {
    /// The tables of one level and of the next, which they go to; or tables that stay in their
    /// level: neighbours that are joined, or one table that is rewritten.
    pub(crate) inputs: Vec<Placed>,
    /// The level of the outputs.
    pub(crate) level: usize,
    /// True if no deeper level holds a key of the inputs' range.
    pub(crate) deepest: bool,
    /// The tables of deeper levels that overlap the inputs.
    pub(crate) below: Vec<Level>,
}

impl Job {
    /// The tables that it removes from their places.
    pub(crate) fn inputs(&self) -> &[Placed] {
        match self {
            Self::Merge(merge) => &merge.inputs,
            Self::Move { table, .. } => std::slice::from_ref(table),
            Self::Drop(tables) => tables,
        }
    }
}

impl Merge {
    /// Returns true if a tombstone of `key` among the outputs may hide something older. O(levels).
    pub(crate) fn may_hide(&self, key: &[u8]) -> bool {
        // The other tables of level 0 may hold older entries.
        let is_partial = self.level == 0;
        let hash = KeyHash::of(key);
        let may_hold =
            |level: &Level| level.table_for(key).is_some_and(|table| table.may_contain(hash));
        !self.deepest && (is_partial || self.below.iter().any(may_hold))
    }

    /// The bytes of all input files.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, table)| table.meta().total_bytes()).sum()
    }
}
