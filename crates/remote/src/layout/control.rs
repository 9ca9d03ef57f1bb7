//! The control region: its header, and the directory as readers find it.

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Geometry,
    format::{HAS_CHECKSUMS, MAGIC, UNIT_BYTES, VERSION, control},
};
use crate::{
    error::{Error, Result},
    primitive::{AtomicU64, Ordering, fence, point},
};

/// Words of a unit.
pub(crate) const UNIT_WORDS: usize = UNIT_BYTES / 8;

/// Some units of a control region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Units {
    /// The words of the units; `None` if they are not all in the region.
    #[inline]
    pub(crate) fn of(self, region: &[AtomicU64]) -> Option<&[AtomicU64]> {
        let begin = (self.first as usize).checked_mul(UNIT_WORDS)?;
        let end = begin.checked_add((self.count as usize).checked_mul(UNIT_WORDS)?)?;
        region.get(begin..end)
    }
}

/// Writes the header of a region that nobody reads yet.
pub(crate) fn write_header(region: &[AtomicU64], geometry: Geometry) {
    let words = header_words(geometry);
    for (word, value) in region.iter().zip(words) {
        word.store(value.to_le(), Ordering::Relaxed);
    }
}

fn header_words(geometry: Geometry) -> [u64; 3] {
    let sizes =
        u64::from(VERSION) | (geometry.leaf_bytes() as u64) << 32 | (geometry.room() as u64) << 48;
    let sizes = if geometry.has_checksums() { sizes | HAS_CHECKSUMS } else { sizes };
    let bytes: Vec<u8> = [MAGIC, sizes].iter().flat_map(|word| word.to_le_bytes()).collect();
    [MAGIC, sizes, xxh3_64(&bytes)]
}

/// Reads and checks the header.
///
/// # Errors
///
/// [`Error::Invalid`] for a region that is too short, of another version, or damaged.
pub(crate) fn read_header(region: &[AtomicU64]) -> Result<Geometry> {
    if region.len() < UNIT_WORDS {
        return Err(Error::invalid(format!("a control region of {} bytes", region.len() * 8)));
    }
    let word = |at: usize| u64::from_le(region[at].load(Ordering::Relaxed));
    if word(control::MAGIC) != MAGIC {
        return Err(Error::invalid("a region that does not begin as one"));
    }
    let sizes = word(control::GEOMETRY);
    if sizes as u32 != VERSION {
        let what = format!("a region of version {}, where this is version {VERSION}", sizes as u32);
        return Err(Error::invalid(what));
    }
    let room = (sizes & !HAS_CHECKSUMS) >> 48;
    let geometry = Geometry::new(u32::from((sizes >> 32) as u16), room as u32)?
        .with_checksums(sizes & HAS_CHECKSUMS != 0);
    if header_words(geometry)[2] != word(control::CHECKSUM) {
        return Err(Error::invalid("a region whose header does not match its checksum"));
    }
    Ok(geometry)
}

/// What a control region of any kind begins with; zeros where it ends before.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn first_words<const N: usize>(region: &[AtomicU64]) -> [u64; N] {
    let word = |at| region.get(at).map_or(0, |word: &AtomicU64| word.load(Ordering::Relaxed));
    std::array::from_fn(|at| u64::from_le(word(at)))
}

/// The units of the directory's top.
#[inline]
pub(crate) fn top(region: &[AtomicU64]) -> Option<Units> {
    // Memory that is mapped for reading alone may be loaded in no stricter order.
    let top = u64::from_le(region.get(control::TOP)?.load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    Some(Units { first: top as u32, count: (top >> 32) as u32 })
}

/// Has readers find the top in other units, which are written.
pub(crate) fn set_top(region: &[AtomicU64], units: Units) {
    let top = u64::from(units.first) | u64::from(units.count) << 32;
    point();
    region[control::TOP].store(top.to_le(), Ordering::Release);
    point();
}

/// The sequence number of the last write that can be read.
pub(crate) fn applied(region: &[AtomicU64]) -> u64 {
    let applied = region.get(control::APPLIED).map_or(0, |word| word.load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    u64::from_le(applied)
}

/// When the host last said that it is there.
#[inline]
pub(crate) fn heartbeat(region: &[AtomicU64]) -> u64 {
    let word = region.get(control::HEARTBEAT);
    word.map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
}

/// Says when the host was there, or by a 0 that it has ended.
pub(crate) fn set_heartbeat(region: &[AtomicU64], now_ms: u64) {
    point();
    region[control::HEARTBEAT].store(now_ms.to_le(), Ordering::Release);
}

/// The generation of the keys that the host serves. A reader looks at it after it read: what it
/// read was served by this generation then, or by a later one that is not there yet.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub(crate) fn generation(region: &[AtomicU64]) -> u64 {
    // What was read before is read before this.
    fence(Ordering::Acquire);
    let word = region.get(control::GENERATION);
    word.map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
}

/// Begins another generation, after which no reader takes what it reads for keys that the host has
/// ceased to serve. One thread at a time does.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn raise_generation(region: &[AtomicU64]) {
    let word = &region[control::GENERATION];
    let next = u64::from_le(word.load(Ordering::Relaxed)).wrapping_add(1).max(1);
    word.store(next.to_le(), Ordering::Release);
    // Seen by all before anything of the keys that are not served any more is changed.
    fence(Ordering::SeqCst);
}

/// How often the keyspace was loaded anew, as its host knows.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn loads(region: &[AtomicU64]) -> u64 {
    u64::from_le(region[control::LOADS].load(Ordering::Relaxed))
}

/// Counts a load of the whole region, before anything of it is changed. One thread at a time does.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn raise_loads(region: &[AtomicU64]) {
    let word = &region[control::LOADS];
    let next = u64::from_le(word.load(Ordering::Relaxed)).wrapping_add(1);
    word.store(next.to_le(), Ordering::Release);
    // A reader that sees anything of what follows sees the new number afterwards.
    fence(Ordering::SeqCst);
}

/// Says which write is the last that can be read.
pub(crate) fn set_applied(region: &[AtomicU64], seq: u64) {
    point();
    region[control::APPLIED].store(seq.to_le(), Ordering::Release);
}

/// The model epoch. What is read of the directory afterwards is as new, or newer.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn epoch(region: &[AtomicU64]) -> u64 {
    let epoch = region.get(control::EPOCH).map_or(0, |word| word.load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    u64::from_le(epoch)
}

/// Begins another model epoch, after the directory was changed by the one thread that does.
pub(crate) fn raise_epoch(region: &[AtomicU64]) {
    let word = &region[control::EPOCH];
    let next = u64::from_le(word.load(Ordering::Relaxed)).wrapping_add(1);
    word.store(next.to_le(), Ordering::Release);
}
