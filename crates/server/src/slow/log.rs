//! The slow log: commands that took longer than a limit, with their first arguments.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

/// How many arguments an entry has, at most, and how many bytes of each: as in Redis.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// How many entries Redis keeps by default.
const LEN_DEFAULT: usize = 128;

/// A command that took long.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// Seconds since 1970 at its end.
    pub(crate) at: u64,
    pub(crate) took: Duration,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) name: String,
}

/// The last commands that took long.
#[derive(Debug)]
pub(crate) struct SlowLog {
    entries: Mutex<VecDeque<Entry>>,
    next_id: AtomicU64,
    len_max: AtomicUsize,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            next_id: AtomicU64::new(0),
            len_max: AtomicUsize::new(LEN_DEFAULT),
        }
    }
}

fn shortened(argument: &[u8]) -> Vec<u8> {
    let Some(more) = argument.len().checked_sub(ARGUMENT_BYTES_MAX).filter(|more| *more > 0) else {
        return argument.to_vec();
    };
    let mut short = argument[..ARGUMENT_BYTES_MAX].to_vec();
    short.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
    short
}

/// The first arguments, each with its first bytes; what is left out is said.
pub(crate) fn shorten<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let len = arguments.len();
    let shown = if len > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { len };
    let mut short: Vec<Vec<u8>> = arguments.take(shown).map(shortened).collect();
    if len > shown {
        short.push(format!("... ({} more arguments)", len - shown).into_bytes());
    }
    short
}

impl SlowLog {
    /// Adds a command that has just ended.
    pub(crate) fn add<'a>(
        &self,
        took: Duration,
        arguments: impl ExactSizeIterator<Item = &'a [u8]>,
        (address, name): (&str, &str),
    ) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (arguments, most) = (shorten(arguments), self.len_max());
        let (address, name) = (address.to_owned(), name.to_owned());
        let mut entries = self.entries.lock();
        let id = self.next_id.fetch_add(1, Relaxed);
        entries.push_front(Entry { id, at, took, arguments, address, name });
        entries.truncate(most);
    }

    /// The last entries, the latest first.
    pub(crate) fn last(&self, most: usize) -> Vec<Entry> {
        self.entries.lock().iter().take(most).cloned().collect()
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Forgets all entries.
    pub(crate) fn reset(&self) {
        self.entries.lock().clear();
    }

    /// How many entries are kept.
    pub(crate) fn len_max(&self) -> usize {
        self.len_max.load(Relaxed)
    }

    /// Changes how many entries are kept.
    pub(crate) fn set_len_max(&self, most: usize) {
        self.len_max.store(most, Relaxed);
        self.entries.lock().truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_short_and_few() {
        let (log, many) = (SlowLog::default(), vec![&b"x"[..]; 40]);
        for _ in 0..200 {
            log.add(Duration::ZERO, many.iter().copied(), ("a", "n"));
        }
        let last = &log.last(9)[0];
        assert_eq!((log.len(), last.id, last.arguments.len()), (LEN_DEFAULT, 199, ARGUMENTS_MAX));
        assert_eq!(last.arguments[31], b"... (9 more arguments)");
        let long = [&[b'y'; 130][..]; 1];
        assert!(shorten(long.iter().copied())[0].ends_with(b"yyy... (2 more bytes)"));
        assert_eq!(shorten([&[b'y'; 128][..]; 32].iter().copied())[31].len(), 128);
        log.set_len_max(3);
        assert_eq!(log.len(), 3);
    }
}
