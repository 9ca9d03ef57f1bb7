//! What a store must do to be measured: the one interface of Rhumb and its rivals.
//!
//! An [`Engine`] opens [`Store`]s; each thread of a run works through its own [`Session`]. The
//! harness verifies everything that a session returns, so an adapter only passes bytes on.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

/// How data blocks are compressed, in engines that compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4.
    Lz4,
}

impl Compression {
    /// The name in the environment line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }
}

/// The settings that all subjects of a run share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Memory for cached blocks, with pinned index and filter blocks where the engine can count
    /// them in.
    pub cache_bytes: u64,
    /// Size at which a memtable is flushed.
    pub memtable_bytes: u64,
    /// Read past the operating system's page cache, where the engine can.
    pub direct: bool,
    /// Compression of data blocks, where the engine has it.
    pub compression: Compression,
    /// About how many bytes a data block has before compression, where the engine has blocks.
    pub block_bytes: u32,
    /// Bits of Bloom filter per key, where the engine has filters.
    pub filter_bits: u32,
    /// Threads for flushes and compactions, where the engine lets us choose.
    pub background_threads: u32,
    /// Keys and values of the data set, in bytes: for engines that must reserve room.
    pub data_bytes: u64,
}

/// Where the bytes of an engine's files wait between reads, besides its own cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCache {
    /// Nowhere when [`Tuning::direct`] asks for it.
    Direct,
    /// In the page cache, which the harness empties again and again during cold runs.
    Buffered,
    /// In mapped pages, which can only be dropped while the store is closed.
    Mapped,
}

/// A kind of store.
pub trait Engine: Sync {
    /// The name in results and on the command line.
    fn name(&self) -> &'static str;

    /// What a reader needs to know to judge the figures, for the environment line.
    fn options(&self, tuning: &Tuning) -> String;

    /// How many writes the engine wants in one transaction; 1 if each is its own.
    fn write_group(&self) -> usize {
        1
    }

    /// The memory that the engine promises not to exceed with these settings, in bytes, if it
    /// promises anything.
    fn memory_budget_bytes(&self, _tuning: &Tuning) -> Option<u64> {
        None
    }

    /// Where its file contents wait.
    fn file_cache(&self) -> FileCache;

    /// Opens the store in `directory`, creating it if need be.
    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn Store>>;
}

/// What an engine says its tables' indexes and filters take, in bytes; `None` where it does not
/// say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Index blocks or models of all tables, in memory.
    pub index_bytes: Option<u64>,
    /// Filters of all tables, in memory.
    pub filter_bytes: Option<u64>,
    /// Index and filters together, in memory.
    pub index_and_filter_bytes: Option<u64>,
    /// Index blocks or models of all tables, as they are in the files.
    pub index_file_bytes: Option<u64>,
}

/// An open store.
pub trait Store: Sync {
    /// A handle for one thread.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Brings the store to rest: everything flushed and fully compacted, or the nearest that the
    /// engine has.
    fn settle(&mut self) -> Result<()>;

    /// What the store says of its indexes and filters.
    fn footprint(&self) -> Result<Footprint> {
        Ok(Footprint::default())
    }

    /// Closes the store, with everything that was written in its files.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Called with a found value.
pub type OnValue<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Called with the place of a key in a multi-get, and its value if it has one.
pub type OnAnswer<'a> = &'a mut dyn FnMut(usize, Option<&[u8]>) -> Result<()>;

/// Called with each entry of a scan; the scan ends when it says `false`.
pub type OnEntry<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool>;

/// Called with the place of a scan among many and each of its entries; the scan ends when it says
/// `false`.
pub type OnEntryOf<'a> = &'a mut dyn FnMut(usize, &[u8], &[u8]) -> Result<bool>;

/// One thread's way into a store.
pub trait Session {
    /// Reads one key, and says whether it was there.
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool>;

    /// Reads several keys, each answered once, in any order.
    fn multi_get(&mut self, keys: &[&[u8]], on_answer: OnAnswer<'_>) -> Result<()> {
        for (i, key) in keys.iter().enumerate() {
            let mut answered = false;
            let found = self.get(key, &mut |value| {
                answered = true;
                on_answer(i, Some(value))
            })?;
            if !found && !answered {
                on_answer(i, None)?;
            }
        }
        Ok(())
    }

    /// Reads several keys, each by a read of its own and `depth` of them at a time, as far as the
    /// engine can; each is answered once, in any order.
    fn get_overlapped(
        &mut self,
        keys: &[&[u8]],
        depth: usize,
        on_answer: OnAnswer<'_>,
    ) -> Result<()> {
        for (number, some) in keys.chunks(depth).enumerate() {
            self.multi_get(some, &mut |i, value| on_answer(number * depth + i, value))?;
        }
        Ok(())
    }

    /// Visits entries in ascending order from the first that is not less than `from`.
    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()>;

    /// The same for a caller that knows how many entries it will visit, about, and says so to an
    /// engine that can be told.
    fn scan_some(&mut self, from: &[u8], _entries: usize, on_entry: OnEntry<'_>) -> Result<()> {
        self.scan(from, on_entry)
    }

    /// [`Session::scan`] through the engine's asynchronous interface, if it has one.
    fn scan_overlapped(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        self.scan(from, on_entry)
    }

    /// Scans from each of `starts`, `depth` of them at a time as far as the engine can; each ends
    /// when `on_entry`, which is told the place of its start, says `false`.
    fn scans_overlapped(
        &mut self,
        starts: &[&[u8]],
        _depth: usize,
        on_entry: OnEntryOf<'_>,
    ) -> Result<()> {
        for (i, start) in starts.iter().enumerate() {
            self.scan(start, &mut |key, value| on_entry(i, key, value))?;
        }
        Ok(())
    }

    /// Writes all of `group`, visible to every session that is refreshed afterwards.
    fn write(&mut self, group: &WriteGroup) -> Result<()>;

    /// Lets later reads see what others have written, in engines whose readers hold a snapshot.
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Keys and values to be written together.
#[derive(Debug, Default)]
pub struct WriteGroup {
    bytes: Vec<u8>,
    /// Where each key ends and where its value ends.
    ends: Vec<(usize, usize)>,
}

impl WriteGroup {
    /// Adds a key, and its value as `append_value` appends it.
    pub fn push(&mut self, key: &[u8], append_value: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        append_value(&mut self.bytes);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The entries, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, value_end)| {
            let entry = (&self.bytes[start..key_end], &self.bytes[key_end..value_end]);
            start = value_end;
            entry
        })
    }
}
