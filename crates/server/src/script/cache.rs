//! The sources of scripts by their SHA-1, and those that run.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use super::running::{AllRunning, Kill, RunningScript};

/// The most bytes of sources that are kept; the oldest go first. A client that is told that its
/// script is gone sends it again.
const SOURCES_BYTES_MAX: usize = 64 << 20;

/// A script's source, and what was learned of it.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) text: Arc<[u8]>,
    /// True if it has used keys that it was not given.
    pub(crate) needs_everything: bool,
}

#[derive(Default)]
struct Sources {
    by_sha: HashMap<String, Source>,
    order: VecDeque<String>,
    bytes: usize,
}

/// The scripts of a server.
#[derive(Default)]
pub(crate) struct Scripts {
    sources: Mutex<Sources>,
    running: AllRunning,
}

/// The SHA-1 of a source, in hexadecimal digits.
pub(crate) fn sha_of(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

impl Scripts {
    /// How many sources are kept, and their bytes.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let sources = self.sources.lock();
        (sources.by_sha.len(), sources.bytes)
    }

    /// How many scripts run that may take long.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// How often a script was asked to end.
    pub(crate) fn kills(&self) -> u64 {
        self.running.kills()
    }

    /// Keeps a source.
    pub(crate) fn keep(&self, sha: &str, text: &[u8]) -> Source {
        let mut sources = self.sources.lock();
        if let Some(found) = sources.by_sha.get(sha) {
            return found.clone();
        }
        let source = Source { text: text.into(), needs_everything: false };
        sources.bytes += text.len();
        sources.order.push_back(sha.to_owned());
        sources.by_sha.insert(sha.to_owned(), source.clone());
        while sources.bytes > SOURCES_BYTES_MAX {
            let Some(oldest) = sources.order.pop_front() else { break };
            if let Some(gone) = sources.by_sha.remove(&oldest) {
                sources.bytes -= gone.text.len();
            }
        }
        source
    }

    /// The source with this SHA-1, in lower case.
    pub(crate) fn find(&self, sha: &str) -> Option<Source> {
        self.sources.lock().by_sha.get(sha).cloned()
    }

    /// Remembers that a script uses keys that it is not given.
    pub(crate) fn note_needs_everything(&self, sha: &str) {
        if let Some(source) = self.sources.lock().by_sha.get_mut(sha) {
            source.needs_everything = true;
        }
    }

    /// Forgets all sources.
    pub(crate) fn flush(&self) {
        *self.sources.lock() = Sources::default();
    }

    /// A script begins that may take long.
    pub(crate) fn begin(&self, script: Arc<RunningScript>) {
        self.running.add(script);
    }

    /// A script has ended.
    pub(crate) fn end(&self, script: &Arc<RunningScript>) {
        self.running.remove(script);
    }

    /// Asks the functions that run to end, or the other scripts.
    pub(crate) fn kill(&self, functions: bool) -> Kill {
        self.running.kill(functions)
    }

    /// The script or function that has run for the longest time.
    pub(crate) fn first_running(&self) -> Option<Arc<RunningScript>> {
        self.running.first()
    }
}
