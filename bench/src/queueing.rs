//! What a store must do to be measured as a queue: pushes, and pops of its first or last entry.
//!
//! Rhumb's part is in [`rhumb_engine`](crate::rhumb_engine), those of its rivals in the `compare`
//! workspace.

use std::path::Path;

use anyhow::Result;

use crate::subject::{OnEntry, Tuning};

/// The length of every key, in bytes: an ordinal and a number, both big-endian.
pub const KEY_BYTES: usize = 16;

/// One step of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Inserts a key that was never there before.
    Push {
        /// The key.
        key: [u8; KEY_BYTES],
        /// Its value.
        value: Vec<u8>,
    },
    /// Takes out the first entry.
    PopFirst,
    /// Takes out the last entry.
    PopLast,
}

/// A kind of store that can be a queue.
pub trait QueueEngine: Sync {
    /// The name in results and on the command line.
    fn name(&self) -> &'static str;

    /// What a reader needs to know to judge the figures: above all, what a step that has returned
    /// outlives.
    fn options(&self, tuning: &Tuning) -> String;

    /// How many steps the engine wants in one transaction; 1 if each is its own.
    fn group(&self) -> usize {
        1
    }

    /// Opens an empty store in `directory`.
    ///
    /// # Errors
    /// If the store fails.
    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn QueueStore>>;
}

/// An open store.
pub trait QueueStore {
    /// Does the steps in order and shows each entry that is popped to `on_popped`, whose answer
    /// means nothing. A pop of an empty store shows none.
    ///
    /// # Errors
    /// If the store or `on_popped` fails.
    fn perform(&mut self, steps: &[Step], on_popped: OnEntry<'_>) -> Result<()>;

    /// How many entries walks have stepped over since the store was opened, if it counts them.
    fn passed_entries(&self) -> Option<u64> {
        None
    }
}
