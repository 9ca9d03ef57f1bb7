//! Records (a wide key with the word of its value) and boxes (values that are not words), each in
//! memory of its own and known by a word.
//!
//! Thread safety: a record's key never changes; its value is an atomic word. The thread that owns
//! the word decides when either is freed.
#![allow(unsafe_code, reason = "lays bytes out behind a head")]

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    ptr, slice,
};

use rhumb_sync::primitive::AtomicU64;

/// The head of a record; the key's bytes follow.
#[repr(C)]
struct RecordHead {
    value: AtomicU64,
    len: usize,
}

fn layout(len: usize) -> Layout {
    let layout =
        Layout::new::<RecordHead>().extend(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()));
    layout.expect("a slice and a head fit the address space").0
}

/// Bytes of a record whose key has `len` bytes.
pub(crate) fn bytes_of(len: usize) -> usize {
    layout(len).size()
}

/// Makes a record. Aborts if there is no memory.
pub(crate) fn new(key: &[u8], value: u64) -> u64 {
    let layout = layout(key.len());
    // SAFETY: the layout has a head, so it is not empty.
    let head = unsafe { alloc(layout) }.cast::<RecordHead>();
    if head.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the memory is this record's, aligned and large enough for the head and the key.
    unsafe {
        head.write(RecordHead { value: AtomicU64::new(value), len: key.len() });
        ptr::copy_nonoverlapping(key.as_ptr(), head.add(1).cast(), key.len());
    }
    head.expose_provenance() as u64
}

fn head(record: u64) -> *mut RecordHead {
    ptr::with_exposed_provenance_mut(record as usize)
}

/// The key of a record.
///
/// # Safety
/// The word came from [`new`] and the record is not freed while the key is borrowed.
#[inline]
pub(crate) unsafe fn key<'a>(record: u64) -> &'a [u8] {
    let head = head(record);
    // SAFETY: the caller says that it is a record that lives; the key follows the head.
    unsafe { slice::from_raw_parts(head.add(1).cast(), (*head).len) }
}

/// The value of a record.
///
/// # Safety
/// As for [`key`].
#[inline]
pub(crate) unsafe fn value<'a>(record: u64) -> &'a AtomicU64 {
    // SAFETY: the caller says that it is a record that lives.
    unsafe { &(*head(record)).value }
}

/// Frees a record, but not what its value stands for.
///
/// # Safety
/// The word came from [`new`] and is not used again.
pub(crate) unsafe fn free(record: u64) {
    let head = head(record);
    // SAFETY: the record lives until here and was allocated with this layout.
    unsafe { dealloc(head.cast(), layout((*head).len)) };
}

/// Boxes a value.
pub(crate) fn new_box<V>(value: V) -> u64 {
    Box::into_raw(Box::new(value)).expose_provenance() as u64
}

/// The value in a box.
///
/// # Safety
/// The word came from [`new_box`] of the same type, and the box is not freed while it is borrowed.
#[inline]
pub(crate) unsafe fn boxed<'a, V>(word: u64) -> &'a V {
    // SAFETY: the caller says that it is a box of this type that lives.
    unsafe { &*ptr::with_exposed_provenance(word as usize) }
}

/// Drops a value and its box.
///
/// # Safety
/// The word came from [`new_box`] of the same type and is not used again.
pub(crate) unsafe fn free_box<V>(word: u64) {
    // SAFETY: the caller gives the box up.
    drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<V>(word as usize)) });
}
