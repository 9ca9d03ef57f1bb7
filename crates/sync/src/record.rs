//! The bytes of a log record behind one pointer, with a shared count, wherever they lie: one after
//! the other in regions of an arena, in a block of their own, or in a vector that a caller gave
//! away. Large values that come from a file are kept likewise.
//!
//! Records are made by one thread after the other in the order of the log, and go together with
//! their memtable. So they are laid one after the other. The program's allocator, which has a heap
//! for each thread, would come to own the records of a memtable in every heap.
//!
//! Thread safety: may be cloned, read and dropped on any thread. Invariants:
//!
//! 1. `head` points to a `Head`, which `len` bytes follow unless they were given. They were
//!    written when the record was made, and afterwards only through the one [`Record`] that there
//!    was.
//! 2. `count` is the number of [`Record`]s and of raw pointers that own a count; the thread that
//!    takes it to zero is the only one left and gives the memory back, once.
//! 3. A region's memory is given back when neither its [`Records`] nor a record in it is left.
#![allow(
    unsafe_code,
    reason = "counts travel through raw pointers, and bytes lie in memory of an arena"
)]

use std::{
    fmt,
    ops::Deref,
    ptr::{self, NonNull},
    slice,
    sync::atomic::fence,
};

use super::{
    arena::{self, Arena},
    mapping::release,
    primitive::{Arc, AtomicUsize, Ordering},
};

/// The bytes of a region. Twice as many would double what a reader's slice keeps alive; half as
/// many would have the arena asked twice as often.
const REGION_BYTES: usize = 64 << 10;

/// Records of more bytes do not share a region: at most an eighth of a region is wasted at its end.
const SHARED_BYTES_MAX: usize = REGION_BYTES / 8;

/// A log record, whose bytes do not change any more.
pub struct Record {
    head: NonNull<Head>,
}

/// The header of the bytes. It lies in front of them, unless they were given.
#[repr(C)]
struct Head {
    count: AtomicUsize,
    len: usize,
    home: Home,
}

/// The origin of the memory.
enum Home {
    /// Head and bytes lie in a region.
    Region(Arc<Region>),
    /// Head and bytes are a block of an arena.
    Block(Arc<Arena>),
    /// The head is a box, and the bytes are these.
    #[expect(clippy::box_collection, reason = "so that the heads of all records are small")]
    Given(Box<Vec<u8>>),
}

/// Memory for records of one user, one after the other.
struct Region {
    memory: NonNull<u8>,
    bytes: usize,
    arena: Arc<Arena>,
}

// SAFETY: the memory belongs to the region, whose records own disjoint parts of it; an arena may be
// used on any thread.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives nothing.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the block came from this arena with this length, and no record in it is left
        // (invariant 3).
        unsafe { self.arena.release(self.memory, self.bytes) };
    }
}

// SAFETY: the bytes are never written while others can reach them (invariant 1), the count is
// atomic and decides which thread frees (invariant 2), and whatever the memory is from may be used
// on any thread.
unsafe impl Send for Record {}
// SAFETY: as for `Send`: `&Record` gives reads and clones.
unsafe impl Sync for Record {}

/// The place where records are laid, by one thread at a time.
pub struct Records {
    arena: Arc<Arena>,
    region: Option<Arc<Region>>,
    /// Bytes of the region that are taken.
    used: usize,
}

impl Records {
    /// None yet; they will lie in regions of this arena.
    pub fn new(arena: Arc<Arena>) -> Self {
        Self { arena, region: None, used: 0 }
    }

    /// Copies a record to where the others are.
    pub fn keep(&mut self, bytes: &[u8]) -> Record {
        if bytes.len() > SHARED_BYTES_MAX {
            return Record::placed(&self.arena, &[bytes]);
        }
        let size = block_bytes(bytes.len());
        let region = match &self.region {
            Some(region) if region.bytes - self.used >= size => Arc::clone(region),
            _ => self.next_region(),
        };
        // SAFETY: `used` bytes of the region are taken, and there is room for this record after
        // them.
        let memory = unsafe { region.memory.add(self.used) };
        self.used += size;
        // SAFETY: the memory is long enough and aligned, and no other thread has it.
        unsafe { Record::write(memory, &[bytes], bytes.len(), Home::Region(region)) }
    }

    /// Begins another region for the next record.
    #[cold]
    fn next_region(&mut self) -> Arc<Region> {
        let (memory, arena) = (self.arena.allocate(REGION_BYTES), Arc::clone(&self.arena));
        let region = Arc::new(Region { memory, bytes: REGION_BYTES, arena });
        self.used = 0;
        self.region = Some(Arc::clone(&region));
        region
    }
}

/// The bytes that a record of `len` bytes takes with its head. The next one is aligned after it.
fn block_bytes(len: usize) -> usize {
    // Bytes that are there to be copied are far fewer than the address space has.
    len.saturating_add(size_of::<Head>()).next_multiple_of(align_of::<Head>())
}

impl Record {
    /// Copies `parts`, one after the other, to a block of an arena.
    pub fn placed(arena: &Arc<Arena>, parts: &[&[u8]]) -> Self {
        let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let memory = arena.allocate(block_bytes(len));
        // SAFETY: the block is that long, aligned to more than a head, and this record's alone.
        unsafe { Self::write(memory, parts, len, Home::Block(Arc::clone(arena))) }
    }

    /// `len` zeros in a block of an arena, to be overwritten ([`Record::get_mut`]).
    pub fn zeroed(arena: &Arc<Arena>, len: usize) -> Self {
        let memory = arena.allocate_zeroed(block_bytes(len));
        let head = memory.cast::<Head>();
        let home = Home::Block(Arc::clone(arena));
        // SAFETY: the block has room for a head and `len` bytes, which are zero, and is aligned to
        // more than a head.
        unsafe { head.write(Head { count: AtomicUsize::new(1), len, home }) };
        Self { head }
    }

    /// Takes the bytes, without a copy.
    pub fn given(bytes: Vec<u8>) -> Self {
        let (count, len) = (AtomicUsize::new(1), bytes.len());
        let head = Box::new(Head { count, len, home: Home::Given(Box::new(bytes)) });
        Self { head: NonNull::from(Box::leak(head)) }
    }

    /// Writes a record.
    ///
    /// # Safety
    /// `memory` is aligned to a head, has room for one and for `len` bytes, which the parts are
    /// together, and is this record's, as `home` says.
    unsafe fn write(memory: NonNull<u8>, parts: &[&[u8]], len: usize, home: Home) -> Self {
        // SAFETY: the caller's promise.
        let start = unsafe { memory.add(size_of::<Head>()) };
        let mut at = 0;
        for part in parts {
            // SAFETY: the parts are `len` bytes together, for which there is room.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), start.as_ptr().add(at), part.len()) };
            at += part.len();
        }
        let head = memory.cast::<Head>();
        // SAFETY: the caller's promise.
        unsafe { head.write(Head { count: AtomicUsize::new(1), len, home }) };
        Self { head }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: this owns a count, so the head is there (invariants 1 and 2).
        unsafe { self.head.as_ref() }
    }

    /// The bytes, to be changed, if no other record shares them.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        if self.head().count.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: this owns the only count, and is borrowed for as long as the head.
        let head = unsafe { self.head.as_mut() };
        if let Home::Given(bytes) = &mut head.home {
            return Some(bytes.as_mut_slice());
        }
        // SAFETY: the bytes are this record's alone, after its head in memory that was written
        // through the same pointer (invariant 1), and no other thread reads them.
        Some(unsafe {
            let start = self.head.add(1).cast::<u8>();
            slice::from_raw_parts_mut(start.as_ptr(), self.head.as_ref().len)
        })
    }

    /// The memory that the record takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        match &self.head().home {
            Home::Region(_) => block_bytes(self.len()),
            Home::Block(_) => block_bytes(self.len()).next_multiple_of(arena::ALIGN),
            Home::Given(bytes) => bytes.capacity() + size_of::<Head>(),
        }
    }

    /// The number of records and raw pointers that share the bytes.
    pub fn strong_count(&self) -> usize {
        self.head().count.load(Ordering::Relaxed)
    }

    /// The pointer that [`Record::into_raw`] would give.
    #[inline]
    pub fn raw(&self) -> *const () {
        self.head.as_ptr().cast_const().cast()
    }

    /// The pointer, which owns the count from now on.
    #[inline]
    pub fn into_raw(self) -> *const () {
        let head = self.head;
        std::mem::forget(self);
        head.as_ptr().cast_const().cast()
    }

    /// The record of a pointer that [`Record::into_raw`] gave.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and the count that it owns was not dropped; it is dropped once
    /// only, whatever is made of the same pointer.
    #[inline]
    pub unsafe fn from_raw(raw: *const ()) -> Self {
        // SAFETY: `into_raw` gives pointers to heads only, which are not null.
        Self { head: unsafe { NonNull::new_unchecked(raw.cast_mut().cast()) } }
    }

    /// Gives the memory back.
    #[cold]
    #[inline(never)]
    fn free(&mut self) {
        let bytes = block_bytes(self.len());
        // SAFETY: the count is zero, so this is the only one left (invariant 2).
        let home = unsafe { &raw const (*self.head.as_ptr()).home };
        // SAFETY: as above. It is moved out of a head that no thread looks at again.
        match unsafe { home.read() } {
            Home::Region(region) => drop(region),
            Home::Block(arena) => {
                // SAFETY: the block came from this arena with this length, and is not used again.
                unsafe { arena.release(self.head.cast(), bytes) };
            }
            Home::Given(bytes) => {
                release(*bytes);
                // SAFETY: the head was a box, and what has to be dropped of it was moved out.
                drop(unsafe {
                    Box::from_raw(self.head.as_ptr().cast::<std::mem::MaybeUninit<Head>>())
                });
            }
        }
    }
}

impl Deref for Record {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let head = self.head();
        if let Home::Given(bytes) = &head.home {
            return bytes;
        }
        // SAFETY: `len` bytes follow the head and were written before any thread shared them
        // (invariant 1), and this owns a count, so that they stay.
        unsafe { slice::from_raw_parts(self.head.as_ptr().add(1).cast::<u8>(), head.len) }
    }
}

impl Clone for Record {
    #[inline]
    fn clone(&self) -> Self {
        // The caller owns a count, so no order is needed for another. Enough of them to wrap the
        // count around do not fit into memory, unless they are leaked.
        if self.head().count.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
        Self { head: self.head }
    }
}

impl Drop for Record {
    #[inline]
    fn drop(&mut self) {
        if self.head().count.fetch_sub(1, Ordering::Release) == 1 {
            // All reads of other threads come before their release.
            fence(Ordering::Acquire);
            self.free();
        }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Gauge;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn records_of_every_length_and_home_come_back_and_go() {
        let arena = Arc::new(Arena::new(&Gauge::default()));
        let mut records = Records::new(Arc::clone(&arena));
        let mut kept = Vec::new();
        for len in (0..40_000).step_by(613).chain(0..64) {
            let bytes = bytes(len);
            let half = len / 2;
            let mut zeroed = Record::zeroed(&arena, len);
            assert!(zeroed.iter().all(|byte| *byte == 0));
            zeroed.get_mut().expect("not shared").copy_from_slice(&bytes);
            let all = [
                zeroed,
                records.keep(&bytes),
                Record::placed(&arena, &[&bytes[..half], &bytes[half..]]),
                Record::given(bytes.clone()),
            ];
            assert!(all.iter().all(|record| **record == bytes && record.memory_bytes() >= len));
            kept.push((bytes, all));
        }
        assert!(kept.iter().all(|(bytes, all)| all.iter().all(|record| **record == *bytes)));
        drop(kept);
        assert!(arena.used_bytes() <= REGION_BYTES, "the last region is kept for what follows");
        drop(records);
        assert_eq!((arena.used_bytes(), Arc::strong_count(&arena)), (0, 1));
    }

    #[test]
    fn a_record_keeps_its_region_and_no_other() {
        let arena = Arc::new(Arena::new(&Gauge::default()));
        let mut records = Records::new(Arc::clone(&arena));
        let first = records.keep(b"first");
        let others: Vec<Record> = (0..1000).map(|_| records.keep(&bytes(1000))).collect();
        drop((others, records));
        assert_eq!(arena.used_bytes(), REGION_BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let first = first.clone();
                scope.spawn(move || (0..1000).for_each(|_| assert_eq!(*first.clone(), *b"first")));
            }
        });
        assert_eq!(first.strong_count(), 1);
        // SAFETY: the pointer owns the count until it is a record again.
        let first = unsafe { Record::from_raw(first.into_raw()) };
        assert_eq!(&*first, b"first");
        drop(first);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn a_record_is_changed_while_nobody_shares_it() {
        let arena = Arc::new(Arena::new(&Gauge::default()));
        let all = [
            Record::given(bytes(100)),
            Record::placed(&arena, &[&bytes(100)]),
            Records::new(arena).keep(&bytes(100)),
        ];
        for mut record in all {
            record.get_mut().expect("nobody shares it")[7] = 200;
            let other = record.clone();
            assert!(record.get_mut().is_none());
            assert!(other[7] == 200 && other[8] == 8);
            drop(other);
            assert!(record.get_mut().is_some());
        }
    }
}
