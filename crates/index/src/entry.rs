//! Entries of leaves outside of them: on their way from one leaf to the next, or to a scan.
#![cfg_attr(not(feature = "published"), allow(dead_code, reason = "for leaves of other kinds"))]

/// What a slot holds: the word of an integer key with that of its value, or any word with a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) word: u64,
    pub(crate) value: u64,
}

/// Entries of one leaf and their words.
pub(crate) struct KeyRun<'a> {
    pub(crate) entries: &'a [Entry],
    pub(crate) words: &'a [u64],
    pub(crate) prefix: &'a [u8],
}

impl KeyRun<'_> {
    /// The run of its first entries.
    pub(crate) fn first(&self, len: usize) -> KeyRun<'_> {
        KeyRun { entries: &self.entries[..len], words: &self.words[..len], prefix: self.prefix }
    }
}
