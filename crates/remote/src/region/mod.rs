//! Memory that one process, the host, writes and that others, its readers, read.
//!
//! A region is one range of addresses that a host and each of its readers reserve at the start.
//! *Segments*, which are sealed files in memory (memfd), are mapped one after the other from its
//! beginning, so that a byte offset means the same in every process and needs no table. A region
//! only grows: segments are not resized, not given back and not mapped elsewhere while it lives.
//!
//! 1. What a host hands out cannot be written: the descriptor is read-only, and the seals refuse
//!    every new way to write, even to a process that may open the file again for writing.
//! 2. What a reader maps stays there. The seals keep the file's length and its pages, so that no
//!    read of the mapping faults or finds memory first, whatever the host does later.
//! 3. Other processes change the memory at any time. It is only ever seen as atomic words.
//!
//! What the words mean, and whether to believe them, is decided elsewhere.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use self::space::{Access, Space};
use crate::{
    error::{Error, Result},
    primitive::{AtomicU64, Ordering},
};

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod segment;
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod space;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
mod unsupported;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
use unsupported::{segment, space};

/// The most that a region can hold: a 128th of what a process can address on x86-64 with four
/// levels of page tables, which leaves room for dozens of regions in one process.
pub(crate) const CAPACITY_BYTES_MAX: u64 = 1 << 40;

/// The length of the smallest segment, and what all lengths and places are multiples of: a large
/// page of x86-64, and of aarch64 with pages of 4 KiB. Anything shorter cannot lie in one.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 2 << 20;

/// The length of the longest segment: writes wait while a host makes one, and this one takes 50 to
/// 110 ms, and up to 1.3 s beside busy threads
/// (`a_segment_is_made_of_large_pages` prints it). Half as much takes half as long and costs a
/// region twice the descriptors.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// The size of the smallest page that Linux maps.
const PAGE_BYTES: usize = 4 << 10;

/// What a host's region is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionStats {
    /// How many segments there are.
    pub(crate) segments: u64,
    /// The bytes of all segments.
    pub(crate) bytes: u64,
    /// The bytes that the system has put into large pages.
    pub(crate) huge_bytes: u64,
    /// How often it refused to: each time [`SEGMENT_BYTES_MIN`] are left in small pages.
    pub(crate) collapses_failed: u64,
}

/// A sealed file, as it is handed to readers.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    bytes: u64,
    file: Arc<OwnedFd>,
}

impl Segment {
    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, opened for reading alone.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The memory of a region in the process that writes it.
///
/// May be used from several threads at once. Grows while others read and write its words.
pub(crate) struct HostRegion {
    space: Space,
    made: Mutex<Made>,
}

/// The segments that were made, and how they turned out.
#[derive(Default)]
struct Made {
    segments: Vec<Segment>,
    stats: RegionStats,
}

impl HostRegion {
    /// A region without segments, which can grow to `capacity_bytes`: a multiple of
    /// [`SEGMENT_BYTES_MIN`], at most [`CAPACITY_BYTES_MAX`]. Takes addresses, and no memory.
    pub(crate) fn new(capacity_bytes: u64) -> Result<Self> {
        let space = Space::reserve(checked_capacity(capacity_bytes)?)?;
        Ok(Self { space, made: Mutex::default() })
    }

    /// Appends a segment of zeroed memory, all of it found and sealed: [`SEGMENT_BYTES_MIN`] times
    /// a power of two, at most [`SEGMENT_BYTES_MAX`]. If that fails the region is what it was.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        if !is_segment_length(bytes) {
            return Err(Error::InvalidArgument(not_a_segment_length(bytes).into()));
        }
        let Some(mut growth) = self.space.grow(bytes) else {
            return Err(Error::Full { capacity_bytes: self.space.capacity_bytes() });
        };
        let file = segment::create(bytes)?;
        let read_only = segment::reopen_read_only(file.as_fd())?;
        let words = growth.map(file.as_fd(), Access::ReadWrite)?;
        // Before the rest is found: a large page is zeroed once, where small ones would be zeroed
        // and then copied. 7 ms for 64 MiB, not 80.
        let mut huge_bytes = collapse(words);
        segment::fill(file.as_fd(), bytes)?;
        if huge_bytes < bytes {
            // Some systems may want all of a range before they put it into a large page.
            huge_bytes = collapse(words);
        }
        touch(words);
        // No writable mapping can be made from here on. The one that exists needs no descriptor.
        segment::seal(file.as_fd())?;
        // Listed first: a reader that is told of an offset can be given the segment that has it.
        self.made().push(Segment { bytes, file: Arc::new(read_only) }, huge_bytes);
        growth.publish();
        Ok(())
    }

    /// The bytes that are mapped.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.space.len_bytes()
    }

    /// The bytes that it can grow to.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.space.capacity_bytes()
    }

    /// What is mapped. A word's index is its byte offset divided by 8.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.space.words()
    }

    /// The segments in the order of their places: what a reader must attach, in this order.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        self.made().segments.clone()
    }

    /// What the region is made of.
    pub(crate) fn stats(&self) -> RegionStats {
        self.made().stats
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        // Nothing panics between two changes that belong together.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    fn push(&mut self, segment: Segment, huge_bytes: u64) {
        self.stats.segments += 1;
        self.stats.bytes += segment.bytes;
        self.stats.huge_bytes += huge_bytes;
        self.stats.collapses_failed += (segment.bytes - huge_bytes) / SEGMENT_BYTES_MIN;
        self.segments.push(segment);
    }
}

/// Puts a new segment into large pages and returns for how many bytes that was done. One piece at a
/// time takes no longer than all at once, and tells how far it went.
fn collapse(words: &[AtomicU64]) -> u64 {
    let piece_words = SEGMENT_BYTES_MIN as usize / size_of::<AtomicU64>();
    let pieces = words.chunks(piece_words).filter(|piece| space::collapse(piece));
    pieces.count() as u64 * SEGMENT_BYTES_MIN
}

/// Has the page table refer to all of a new segment. After its pages are large this takes 0.3 ms
/// for 64 MiB; before, 15 ms.
fn touch(words: &[AtomicU64]) {
    for word in words.iter().step_by(PAGE_BYTES / size_of::<AtomicU64>()) {
        word.store(0, Ordering::Relaxed);
    }
}

/// The memory of a region in a process that reads it.
///
/// May be used from several threads at once. Grows while others read its words.
pub(crate) struct ReaderRegion {
    space: Space,
}

impl ReaderRegion {
    /// A region without segments, which takes segments of `capacity_bytes` together: as its host
    /// says, or fewer. A multiple of [`SEGMENT_BYTES_MIN`], at most [`CAPACITY_BYTES_MAX`].
    pub(crate) fn new(capacity_bytes: u64) -> Result<Self> {
        Ok(Self { space: Space::reserve(checked_capacity(capacity_bytes)?)? })
    }

    /// Maps the host's next segment for reading, once the file is seen to be what it must be:
    /// `bytes` long, all of it in memory, and sealed so that none of this can change. If it is not,
    /// or if it does not fit, the region is what it was.
    pub(crate) fn attach(&self, fd: OwnedFd, bytes: u64) -> Result<()> {
        if !is_segment_length(bytes) {
            return Err(Error::invalid(not_a_segment_length(bytes)));
        }
        segment::check(fd.as_fd(), bytes)?;
        let Some(mut growth) = self.space.grow(bytes) else {
            let capacity_bytes = self.space.capacity_bytes();
            let what = format!(
                "a segment of {bytes} bytes does not fit into a region of {capacity_bytes} bytes \
                 of which {} are taken",
                self.len_bytes()
            );
            return Err(Error::invalid(what));
        };
        growth.map(fd.as_fd(), Access::Read)?;
        growth.publish();
        Ok(())
    }

    /// The bytes that are mapped.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.space.len_bytes()
    }

    /// What is mapped. A word's index is its byte offset divided by 8.
    ///
    /// The memory is read-only. The words may be loaded, with [`Ordering::Relaxed`] (and a fence
    /// after it where an order is needed): anything else, even an exchange that would fail, may
    /// write and ends the process. The standard library promises this of relaxed loads alone
    /// (`std::sync::atomic`, "Atomic accesses to read-only memory").
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.space.words()
    }
}

/// Returns `capacity_bytes` if a region can have it.
fn checked_capacity(capacity_bytes: u64) -> Result<usize> {
    if !(SEGMENT_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&capacity_bytes) {
        let what = format!(
            "a region holds {SEGMENT_BYTES_MIN} to {CAPACITY_BYTES_MAX} bytes, not {capacity_bytes}"
        );
        return Err(Error::InvalidArgument(what.into()));
    }
    if !capacity_bytes.is_multiple_of(SEGMENT_BYTES_MIN) {
        let what = format!(
            "a region's capacity is a multiple of {SEGMENT_BYTES_MIN} bytes, not {capacity_bytes}"
        );
        return Err(Error::InvalidArgument(what.into()));
    }
    usize::try_from(capacity_bytes).map_err(|_| {
        let what = format!("a process cannot address {capacity_bytes} bytes here");
        Error::InvalidArgument(what.into())
    })
}

/// Returns true if a segment can be `bytes` long.
fn is_segment_length(bytes: u64) -> bool {
    bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes)
}

fn not_a_segment_length(bytes: u64) -> String {
    format!(
        "a segment is {SEGMENT_BYTES_MIN} bytes long or that doubled, up to {SEGMENT_BYTES_MAX}, \
         not {bytes}"
    )
}
