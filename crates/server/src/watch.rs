//! Keys that clients watch: a write to one marks the watching clients, whose next `EXEC` does
//! nothing then.
//!
//! Costs a writer one relaxed load while nobody watches. A client registers while it holds its
//! keys' locks, and a writer looks here while it holds them exclusively: so no write falls between.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

/// A watched key: its database, and the key.
pub(crate) type WatchedKey = (usize, Vec<u8>);

/// Set when one of a client's watched keys was written.
pub(crate) type Mark = Arc<AtomicBool>;

/// How many registrations there are that a written key may concern, of any kind: watched keys,
/// clients that track. Writers look at this alone while there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interest(Arc<AtomicUsize>);

impl Interest {
    /// Returns true if there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Adds a registration. To be called before it is entered, so that a writer that comes after
    /// it looks.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a registration back.
    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The watched keys, with the clients that watch them.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Registered pairs of a key and a client.
    count: AtomicUsize,
    interest: Interest,
    clients: Mutex<HashMap<WatchedKey, Vec<Mark>>>,
}

impl Watches {
    /// No watched keys; those that will come count here as well.
    pub(crate) fn new(interest: Interest) -> Self {
        Self { interest, ..Self::default() }
    }

    /// Returns true if any client watches a key.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Registers a client for a key.
    pub(crate) fn add(&self, key: WatchedKey, mark: &Mark) {
        // Before the registration, so that a writer that comes after it looks.
        self.interest.add();
        self.count.fetch_add(1, Ordering::SeqCst);
        self.clients.lock().entry(key).or_default().push(Arc::clone(mark));
    }

    /// Takes a client's registration back.
    pub(crate) fn remove(&self, key: &WatchedKey, mark: &Mark) {
        let mut clients = self.clients.lock();
        let Some(marks) = clients.get_mut(key) else { return };
        if let Some(at) = marks.iter().position(|other| Arc::ptr_eq(other, mark)) {
            marks.swap_remove(at);
            self.count.fetch_sub(1, Ordering::SeqCst);
            self.interest.remove();
        }
        if marks.is_empty() {
            clients.remove(key);
        }
    }

    /// Marks the clients that watch the key.
    pub(crate) fn touch(&self, database: usize, key: &[u8]) {
        let clients = self.clients.lock();
        if let Some(marks) = clients.get(&(database, key.to_vec())) {
            marks.iter().for_each(|mark| mark.store(true, Ordering::Release));
        }
    }

    /// Marks the clients that watch a key of the database for which `is_touched` holds.
    pub(crate) fn touch_all(&self, database: usize, mut is_touched: impl FnMut(&[u8]) -> bool) {
        let clients = self.clients.lock();
        for ((of, key), marks) in &*clients {
            if *of == database && is_touched(key) {
                marks.iter().for_each(|mark| mark.store(true, Ordering::Release));
            }
        }
    }
}
