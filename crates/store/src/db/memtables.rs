//! The memtables that reads see: the active one, and those that wait for their flush.
//!
//! Readers take no lock: they load the view. A thread that replaces the view holds a lock, so that
//! no change is lost.

use rhumb_sync::{
    drop_queue::DropQueue,
    epoch::Guard,
    primitive::{Arc, Mutex},
    published::Published,
};

use crate::memtable::MemView;

/// The memtables of an open database.
pub(crate) struct Memtables {
    view: Published<MemView>,
    /// Held while `view` is replaced.
    change: Mutex<()>,
}

impl Memtables {
    pub(crate) fn new(view: MemView, drops: &Arc<DropQueue>) -> Self {
        Self { view: Published::new(Arc::new(view), drops), change: Mutex::default() }
    }

    /// The memtables of now, as long as the guard is held.
    #[inline]
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> &'g Arc<MemView> {
        self.view.load(guard)
    }

    /// The memtables of now.
    pub(crate) fn get(&self) -> Arc<MemView> {
        self.view.get()
    }

    /// Replaces the view by the result of `change`.
    pub(crate) fn change(&self, change: impl FnOnce(&MemView) -> MemView) {
        let _one = self.change.lock();
        let next = change(&self.view.get());
        self.view.store(Arc::new(next));
    }
}
