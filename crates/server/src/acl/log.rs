//! The log of calls that were denied, and of passwords that were wrong.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::selector::Reason;

/// How many entries are kept, by default.
const LEN_MAX: usize = 128;

/// Milliseconds within which the same denial is counted in the entry that is there.
const SAME_MS: u64 = 60_000;

/// How many entries are compared with a new one: the latest.
const COMPARED: usize = 10;

/// Bytes of an object that an entry keeps: those of the longest key.
const OBJECT_BYTES_MAX: usize = 64 << 10;

/// Where a call was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    TopLevel,
    Transaction,
    Script,
}

impl Place {
    /// Its name in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Transaction => "multi",
            Self::Script => "lua",
        }
    }
}

/// What was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    pub(crate) place: Place,
    /// The command, key or channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
}

/// A denial, and how often it happened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) denial: Denial,
    pub(crate) count: u64,
    /// The client of the last time.
    pub(crate) client: String,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
}

#[derive(Debug)]
struct Entries {
    /// The latest first.
    all: VecDeque<Entry>,
    len_max: usize,
    next_id: u64,
}

/// The log.
#[derive(Debug)]
pub(crate) struct DenialLog(Mutex<Entries>);

impl Default for DenialLog {
    fn default() -> Self {
        Self(Mutex::new(Entries { all: VecDeque::new(), len_max: LEN_MAX, next_id: 0 }))
    }
}

impl DenialLog {
    /// Adds what was denied to a client.
    pub(crate) fn note(&self, mut denial: Denial, client: String, now_ms: u64) {
        let entries = &mut *self.0.lock();
        if entries.len_max == 0 {
            return;
        }
        denial.object.truncate(OBJECT_BYTES_MAX);
        let is_same = |entry: &Entry| {
            entry.denial == denial && now_ms.saturating_sub(entry.updated_ms) <= SAME_MS
        };
        let found = entries.all.iter().take(COMPARED).position(is_same);
        let entry = match found.and_then(|at| entries.all.remove(at)) {
            Some(entry) => Entry { count: entry.count + 1, client, updated_ms: now_ms, ..entry },
            None => {
                let id = entries.next_id;
                entries.next_id += 1;
                let (created_ms, updated_ms) = (now_ms, now_ms);
                Entry { id, denial, count: 1, client, created_ms, updated_ms }
            }
        };
        entries.all.push_front(entry);
        entries.all.truncate(entries.len_max);
    }

    /// The latest entries, at most `most`.
    pub(crate) fn latest(&self, most: usize) -> Vec<Entry> {
        self.0.lock().all.iter().take(most).cloned().collect()
    }

    /// Forgets all entries.
    pub(crate) fn reset(&self) {
        self.0.lock().all.clear();
    }

    /// How many entries are kept.
    pub(crate) fn len_max(&self) -> usize {
        self.0.lock().len_max
    }

    /// Keeps at most this number of entries.
    pub(crate) fn set_len_max(&self, most: usize) {
        let entries = &mut *self.0.lock();
        entries.len_max = most;
        entries.all.truncate(most);
    }
}
