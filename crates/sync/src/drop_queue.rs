//! A queue of what was replaced, to be dropped by a thread that may take its time.
//!
//! What readers share is released inside an epoch's collection, and that runs wherever some thread
//! defers something: in an eviction, or in the middle of a write. Dropping a memtable there would
//! make a writer wait for the freeing of a million entries. Dropping a table there would remove a
//! file in a reader that made room for a block. So the collection only puts things here, and the
//! database's own threads drop them between jobs, holding no lock.
//!
//! Once the database is closed, no thread waits and no thread comes to drop things: what is added
//! then is dropped on the spot. If it were kept, it would be lost with all it holds, because what
//! lies here often holds the queue itself.
//!
//! Thread safety: may be called from any thread. [`DropQueue::push`] takes one lock that no other
//! is taken under, and runs no foreign code before [`DropQueue::close`].

use std::any::Any;

use super::primitive::Mutex;

/// Things that no reader can reach any more.
#[derive(Default)]
pub struct DropQueue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    things: Vec<Box<dyn Any + Send>>,
    closed: bool,
}

impl DropQueue {
    /// Keeps a thing until [`DropQueue::drop_all`]; drops it once the queue is closed.
    pub fn push(&self, thing: Box<dyn Any + Send>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            drop(thing);
        } else {
            state.things.push(thing);
        }
    }

    /// Drops everything that is kept. The caller holds no lock.
    pub fn drop_all(&self) {
        // What is dropped may add more: a tree releases its levels.
        loop {
            let things = std::mem::take(&mut self.state.lock().things);
            if things.is_empty() {
                return;
            }
            drop(things);
        }
    }

    /// Drops everything that is kept, and from now on keeps nothing. For the end, when no other
    /// thread uses what may lie here and the caller holds no lock.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.drop_all();
    }
}
