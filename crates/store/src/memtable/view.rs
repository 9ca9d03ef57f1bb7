//! The memtables that a reader looks into, at one moment.

use rhumb_sync::primitive::Arc;

use super::Memtable;

/// The memtables of one moment.
pub(crate) struct MemView {
    /// Takes the writes.
    pub(crate) active: Arc<Memtable>,
    /// Full, waiting for their flush; newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
}

impl MemView {
    /// All memtables, newest first.
    #[inline]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// The memory they take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.all().map(|table| table.bytes() as u64).sum()
    }
}
