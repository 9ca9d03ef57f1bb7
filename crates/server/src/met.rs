//! Keys that readers find to have ended while the sweeper rests, as a client may ask for in tests:
//! they are taken away after the command that has met them, as Redis does.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The most keys that are remembered between two commands of a client. The others stay until they
/// are met again, or the sweeper goes on.
const KEYS_MAX: usize = 1024;

/// What was met.
#[derive(Default)]
pub(crate) struct Met {
    sweeper_rests: AtomicBool,
    any: AtomicBool,
    keys: Mutex<Vec<(u8, Vec<u8>)>>,
}

impl Met {
    /// Has the sweeper rest or go on.
    pub(crate) fn set_rest(&self, rests: bool) {
        self.sweeper_rests.store(rests, Ordering::Relaxed);
    }

    /// Returns true if the sweeper rests.
    pub(crate) fn sweeper_rests(&self) -> bool {
        self.sweeper_rests.load(Ordering::Relaxed)
    }

    /// A reader has found that a key has ended.
    pub(crate) fn meet(&self, number: u8, key: &[u8]) {
        if !self.sweeper_rests() {
            return;
        }
        let mut keys = self.keys.lock();
        if keys.len() < KEYS_MAX {
            keys.push((number, key.to_vec()));
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if there is something to take.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Takes the keys, each with the number of its keyspaces.
    pub(crate) fn take(&self) -> Vec<(u8, Vec<u8>)> {
        let mut keys = self.keys.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *keys)
    }
}
