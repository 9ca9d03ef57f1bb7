//! A compaction that is to be done, as plain data.

use rhumb_sync::primitive::Arc;

use crate::table::Table;

/// A table with its level.
pub(crate) type Placed = (usize, Arc<Table>);

/// A compaction of one sub-tree.
pub(crate) enum Job {
    /// Reads the inputs and writes what stays of them.
    Merge(Merge),
    /// The one table only changes its level: nothing is read.
    Move {
        /// The table, where it is.
        table: Placed,
        /// Where it goes.
        level: usize,
    },
    /// Nothing of these tables is seen by any reader.
    Drop(Vec<Placed>),
}

/// Tables that become others.
pub(crate) struct Merge {
    /// One level and the one that it goes to, or tables that stay in their level: neighbours to be
    /// joined, or one that is rewritten.
    pub(crate) inputs: Vec<Placed>,
    /// Where the outputs go.
    pub(crate) level: usize,
    /// No deeper level holds a key of the inputs' range.
    pub(crate) deepest: bool,
}

impl Job {
    /// The tables that it takes away from where they are.
    pub(crate) fn inputs(&self) -> &[Placed] {
        match self {
            Self::Merge(merge) => &merge.inputs,
            Self::Move { table, .. } => std::slice::from_ref(table),
            Self::Drop(tables) => tables,
        }
    }
}

impl Merge {
    /// The bytes of all input files.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, table)| table.meta().total_bytes()).sum()
    }
}
