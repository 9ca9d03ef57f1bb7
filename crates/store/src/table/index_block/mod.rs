//! The index block: which entries share a data block, and which data block holds a key.
//!
//! There are two kinds over the same data area. [`IndexKind::BinarySearch`] cuts blocks at a size
//! and keeps a separator and a handle for each, as most stores do. [`IndexKind::Learned`] lets a
//! model decide which block an entry goes to while the table is written. So the same model finds
//! the block again exactly: there are no separators of blocks, and no search among them.
//!
//! The index block decides and finds; it does no I/O and knows nothing of what is in a block.
//! `docs/format/index.md` has its bytes.

mod binary_search;
mod learned;
mod overlay;
mod starts;

#[cfg(test)]
mod tests;

use rhumb_model::codec::Reader;
use rhumb_sync::mapping::Gauge;

use self::{
    binary_search::{BinarySearchBuilder, BinarySearchIndex},
    learned::{LearnedBuilder, LearnedIndex},
};

pub(crate) use self::overlay::Trained;

/// Bytes of a page of the data area.
const PAGE_BYTES: u64 = super::format::PAGE_BYTES as u64;
/// The bytes of a page that hold blocks; the others say where the first block starts.
const PAGE_PAYLOAD_BYTES: u32 = super::format::PAGE_PAYLOAD_BYTES as u32;

/// How a table finds the block of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexKind {
    /// A model, trained while the table is written, names the one block that can hold the key.
    #[default]
    Learned,
    /// Binary search over one separator a block.
    BinarySearch,
}

impl IndexKind {
    /// The byte that stands for this kind in options.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Learned => 1,
            Self::BinarySearch => 2,
        }
    }

    /// The kind that `byte` stands for, if any.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Learned, Self::BinarySearch].into_iter().find(|kind| kind.to_byte() == byte)
    }
}

/// The first byte of a learned index block with plain codes. Lower numbers, except that of a
/// binary-search index, were learned indexes of other forms, before there was a release.
pub(crate) const LEARNED: u8 = 8;
/// The first byte of a binary-search index block.
const BINARY_SEARCH: u8 = 2;
/// The first byte of a learned index block with trained codes.
const CODED: u8 = 9;

/// How a learned index turns keys into numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StringCoding {
    /// Eight bytes of the key; or a trained code, where that saves at least a third of the index.
    /// Chosen for every few MiB of entries. A trained code costs a lookup about 20 ns.
    #[default]
    Auto,
    /// Always trained codes.
    On,
    /// Always eight bytes of the key.
    Off,
}

impl StringCoding {
    /// All variants, in the order of their bytes.
    pub const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    /// The byte that stands for this in options.
    #[must_use]
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Auto => 0,
            Self::On => 1,
            Self::Off => 2,
        }
    }

    /// The variant that `byte` stands for, if any.
    #[must_use]
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// Where a block lies: the pages that it spans, and its number among the frames that start in the
/// first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockAddress {
    /// The page in which the block starts.
    pub(crate) first_page: u32,
    /// The last page with bytes of the block, or the one after it.
    pub(crate) last_page: u32,
    /// The number of blocks that start before it in the first page.
    pub(crate) nth: u32,
}

/// Where an ordered seek for a key starts.
///
/// Every entry in a block before `lo` is below the key, and every entry in a block after `hi` is
/// above it. `lo <= block <= hi`, and today all three are equal: the first entry not below the key
/// is in `block`, or else it is the first entry of the next block that has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeekHint {
    /// The block to look into first.
    pub(crate) block: u32,
    /// No earlier block has an entry at or above the key.
    pub(crate) lo: u32,
    /// No later block has an entry at or below the key.
    pub(crate) hi: u32,
}

impl SeekHint {
    fn exact(block: u32) -> Self {
        Self { block, lo: block, hi: block }
    }
}

/// How an index found the block of a key, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexExplanation {
    /// The segment that the key falls into; with binary search, each block is one.
    pub(crate) segment: usize,
    /// The number of leading bytes of the key that the model skips.
    pub(crate) skip: u32,
    /// The key's code, which the model computes with.
    pub(crate) code: u64,
    /// The block of the key.
    pub(crate) block: u32,
    /// The blocks of the segment, both ends included.
    pub(crate) segment_blocks: (u32, u32),
}

/// How a learned index turns keys into numbers, for inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexCoding {
    /// The number of trained codes.
    pub(crate) codes: usize,
    /// The number of segments whose keys are numbered by a trained code; the others use eight plain
    /// bytes.
    pub(crate) trained_segments: usize,
}

/// A segment of an index, for inspection and plots.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SegmentInfo {
    /// Above all keys of earlier segments and at most the first key of this one.
    pub(crate) separator: Vec<u8>,
    /// The number of leading bytes of its keys that the model skips.
    pub(crate) skip: u32,
    /// The code at which the segment's line starts.
    pub(crate) x0: u64,
    /// Blocks per unit of code.
    pub(crate) slope: f64,
    /// The segment's first block.
    pub(crate) first_block: u32,
    /// The number of its blocks.
    pub(crate) blocks: u32,
}

/// Decides, while a table is written, which entries share a block, and writes the index of them.
#[derive(Debug)]
pub(crate) enum IndexBuilder {
    /// A builder of kind [`IndexKind::Learned`].
    Learned(Box<LearnedBuilder>),
    /// A builder of kind [`IndexKind::BinarySearch`].
    BinarySearch(Box<BinarySearchBuilder>),
}

impl IndexBuilder {
    /// A builder that aims at blocks of `block_bytes`, before compression.
    pub(crate) fn new(kind: IndexKind, coding: StringCoding, block_bytes: u32) -> Self {
        match kind {
            IndexKind::Learned => Self::Learned(Box::new(LearnedBuilder::new(block_bytes, coding))),
            IndexKind::BinarySearch => {
                Self::BinarySearch(Box::new(BinarySearchBuilder::new(block_bytes)))
            }
        }
    }

    /// The same builder, with the memory of undecided entries counted by `gauge`. To be called
    /// before the first push.
    pub(crate) fn counted_by(self, gauge: &Gauge) -> Self {
        match self {
            Self::Learned(builder) => Self::Learned(Box::new(builder.counted_by(gauge))),
            Self::BinarySearch(builder) => Self::BinarySearch(builder),
        }
    }

    /// Offers the next entry: its user key, not below the last one, and its encoded size.
    ///
    /// An entry with the key of the last one (an older version) goes to the same block. Appends to
    /// `cuts` the entry counts of the blocks that are now decided, in order; together they cover
    /// the first of the undecided entries. A count of 0 is an empty block. With a learned index, up
    /// to about 4 MiB of entries (or 8 MiB of keys) stay undecided; if keys are coded, all of them
    /// do until then.
    pub(crate) fn push(&mut self, key: &[u8], bytes: usize, cuts: &mut Vec<u32>) {
        match self {
            Self::Learned(builder) => builder.push(key, bytes, cuts),
            Self::BinarySearch(builder) => builder.push(key, bytes, cuts),
        }
    }

    /// Ends the entries: decides the rest.
    pub(crate) fn finish_cuts(&mut self, cuts: &mut Vec<u32>) {
        match self {
            Self::Learned(builder) => builder.finish_cuts(cuts),
            Self::BinarySearch(builder) => builder.finish_cuts(cuts),
        }
    }

    /// Records where in the file the next block's frame starts, and the length of the frame with
    /// its header. Called once for each cut, in order; it may come any time before
    /// [`IndexBuilder::encode`].
    pub(crate) fn block_written(&mut self, file_offset: u64, stored_len: u32) {
        match self {
            Self::Learned(builder) => builder.block_written(file_offset),
            Self::BinarySearch(builder) => builder.block_written(file_offset, stored_len),
        }
    }

    /// Appends the index block to `out`.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Learned(builder) => builder.encode(out),
            Self::BinarySearch(builder) => builder.encode(out),
        }
    }
}

/// An index block in memory, validated.
///
/// Every block number that it returns is below `block_count`, except in a table without blocks,
/// where it is 0. A block number beyond the last one is taken as the last.
#[derive(Debug)]
pub(crate) struct Index {
    kind: Kind,
    block_count: u32,
    encoded_bytes: usize,
}

#[derive(Debug)]
enum Kind {
    Learned(LearnedIndex),
    BinarySearch(BinarySearchIndex),
}

impl Index {
    /// Reads an index block of `block_count` blocks in `data_pages` pages.
    ///
    /// # Errors
    ///
    /// A sentence that says what was expected and what was found. An index that is accepted may
    /// still be nonsense, which costs time, and never leads to a panic or to a block that does not
    /// exist.
    pub(crate) fn decode(bytes: &[u8], block_count: u32, data_pages: u32) -> Result<Self, String> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8("an index kind").map_err(|e| e.to_string())?;
        let kind = match kind {
            LEARNED | CODED => Kind::Learned(LearnedIndex::decode(
                &mut reader,
                kind == CODED,
                block_count,
                data_pages,
            )?),
            BINARY_SEARCH => {
                Kind::BinarySearch(BinarySearchIndex::decode(&mut reader, block_count, data_pages)?)
            }
            _ => return Err(format!("expected an index kind of 2, 8 or 9, found {kind}")),
        };
        Ok(Self { kind, block_count, encoded_bytes: bytes.len() })
    }

    /// The kind of this index.
    pub(crate) fn kind(&self) -> IndexKind {
        match self.kind {
            Kind::Learned(_) => IndexKind::Learned,
            Kind::BinarySearch(_) => IndexKind::BinarySearch,
        }
    }

    /// The number of data blocks.
    pub(crate) fn block_count(&self) -> u32 {
        self.block_count
    }

    /// The one block that can hold `key`. O(log segments).
    #[inline]
    pub(crate) fn locate(&self, key: &[u8]) -> u32 {
        match &self.kind {
            Kind::Learned(index) => index.locate(key),
            Kind::BinarySearch(index) => index.locate(key),
        }
    }

    /// The one block that can hold `key`, and about how far into the block it is, in 64ths: a hint
    /// for prefetching, never to be relied on. If that takes a search through more memory than a
    /// filter probe, `is_wanted` is asked first; `None` if it returns false.
    #[inline(always)]
    pub(crate) fn predict_if(
        &self,
        key: &[u8],
        is_wanted: impl FnOnce() -> bool,
    ) -> Option<(u32, u32)> {
        match &self.kind {
            Kind::Learned(index) => index.predict_if(key, is_wanted),
            Kind::BinarySearch(index) => is_wanted().then(|| (index.locate(key), 0)),
        }
    }

    /// The first half of [`Index::locate`]: the segment of `key`, whose line is prefetched.
    #[inline]
    pub(crate) fn approach(&self, key: &[u8]) -> usize {
        match &self.kind {
            Kind::Learned(index) => index.approach(key),
            Kind::BinarySearch(_) => 0,
        }
    }

    /// The second half of [`Index::locate`]: the one block that can hold `key`, in the segment that
    /// [`Index::approach`] returned for it.
    #[inline]
    pub(crate) fn locate_in(&self, segment: usize, key: &[u8]) -> u32 {
        match &self.kind {
            Kind::Learned(index) => index.locate_in(segment, key),
            Kind::BinarySearch(index) => index.locate(key),
        }
    }

    /// Where to look for the first entry at or above `key`, which need not be in the table.
    #[inline]
    pub(crate) fn seek(&self, key: &[u8]) -> SeekHint {
        SeekHint::exact(match &self.kind {
            Kind::Learned(index) => index.seek(key),
            Kind::BinarySearch(index) => index.locate(key),
        })
    }

    /// Where `block` lies.
    pub(crate) fn address(&self, block: u32) -> BlockAddress {
        match &self.kind {
            Kind::Learned(index) => index.address(block),
            Kind::BinarySearch(index) => index.address(block),
        }
    }

    /// The size of the index block in the file.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }

    /// The memory that the index holds.
    pub(crate) fn resident_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.kind {
                Kind::Learned(index) => index.resident_bytes(),
                Kind::BinarySearch(index) => index.resident_bytes(),
            }
    }

    /// The number of segments; with binary search, the number of blocks.
    pub(crate) fn segment_count(&self) -> usize {
        match &self.kind {
            Kind::Learned(index) => index.segment_count(),
            Kind::BinarySearch(_) => self.block_count as usize,
        }
    }

    /// Trains a model of an index that was written without one, and publishes it; see [`Trained`].
    pub(crate) fn train(&self, is_late: impl Fn() -> bool) -> Trained {
        match &self.kind {
            Kind::Learned(_) => Trained::NotWanted,
            Kind::BinarySearch(index) => index.train(is_late),
        }
    }

    /// Returns true if the index was written without a model, and training one was not tried yet.
    pub(crate) fn is_untried(&self) -> bool {
        match &self.kind {
            Kind::Learned(_) => false,
            Kind::BinarySearch(index) => index.overlay_segments().is_none(),
        }
    }

    /// Returns true if lookups follow a model, trained when the table was written or since.
    pub(crate) fn has_model(&self) -> bool {
        match &self.kind {
            Kind::Learned(_) => true,
            Kind::BinarySearch(index) => index.overlay_segments().flatten().is_some(),
        }
    }

    /// How keys become numbers; `None` with binary search.
    pub(crate) fn coding(&self) -> Option<IndexCoding> {
        match &self.kind {
            Kind::Learned(index) => Some(index.coding()),
            Kind::BinarySearch(_) => None,
        }
    }

    /// How [`Index::locate`] finds its answer for `key`.
    pub(crate) fn explain(&self, key: &[u8]) -> IndexExplanation {
        match &self.kind {
            Kind::Learned(index) => index.explain(key),
            Kind::BinarySearch(index) => {
                let block = index.locate(key);
                IndexExplanation {
                    segment: block as usize,
                    skip: 0,
                    code: 0,
                    block,
                    segment_blocks: (block, block),
                }
            }
        }
    }

    /// All segments, in key order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentInfo> {
        (0..self.segment_count()).map(|i| match &self.kind {
            Kind::Learned(index) => index.segment(i),
            Kind::BinarySearch(index) => SegmentInfo {
                separator: index.separator(i as u32).to_vec(),
                skip: 0,
                x0: 0,
                slope: 0.0,
                first_block: i as u32,
                blocks: 1,
            },
        })
    }
}
