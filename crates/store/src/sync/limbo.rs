//! Where replaced things wait to be dropped by a thread that may take its time.
//!
//! What readers share is let go of inside an epoch's collection, and that runs wherever some thread
//! happens to pin: under a lock of the block cache, or in the middle of a write. Dropping a memtable
//! there would make a writer wait for the freeing of a million entries; dropping a table there would
//! take the cache's lock a second time. So the collection only puts things here, and the database's
//! own threads drop them between jobs, holding no lock.
//!
//! Thread safety: may be called from any thread. [`Limbo::add`] takes one lock that no other is
//! taken under, and runs no foreign code.

use std::any::Any;

use super::primitive::Mutex;

/// Things that no reader can reach any more.
#[derive(Default)]
pub(crate) struct Limbo {
    things: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Limbo {
    /// Keeps a thing until [`Limbo::drop_all`].
    pub(crate) fn add(&self, thing: Box<dyn Any + Send>) {
        self.things.lock().push(thing);
    }

    /// Drops everything that is kept. The caller holds no lock.
    pub(crate) fn drop_all(&self) {
        // What is dropped may bring more: a sub-tree lets go of its levels.
        loop {
            let things = std::mem::take(&mut *self.things.lock());
            if things.is_empty() {
                return;
            }
            drop(things);
        }
    }
}
