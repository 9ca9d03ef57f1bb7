//! Immutable bytes behind one pointer, with a shared count, in memory that can be used again.
//!
//! Thread safety: that of [`triomphe::ThinArc`]. Only bytes that nobody shares are written to.

#![allow(unsafe_code, reason = "counts travel through raw pointers to fit an atomic")]

use std::{ffi::c_void, ops::Deref};

use triomphe::ThinArc;

/// Up to [`POOLED_BYTES_MAX`], allocations are multiples of this many bytes, so that few sizes are
/// in use and memory fits again.
pub(crate) const CAPACITY_STEP_BYTES: usize = 256;

/// Longer contents get memory of exactly their length.
pub(crate) const POOLED_BYTES_MAX: usize = 16 << 10;

/// Immutable bytes behind one pointer.
#[derive(Clone)]
pub(crate) struct SharedBytes(Repr);

/// The header is the number of bytes that count; those behind them are room.
type Repr = ThinArc<usize, u8>;

impl SharedBytes {
    /// Copies `contents` to memory of its own.
    pub(crate) fn copy_from(contents: &[u8]) -> Self {
        static ROOM: [u8; POOLED_BYTES_MAX] = [0; POOLED_BYTES_MAX];
        let Some(room) = ROOM.get(..Self::capacity_for(contents.len())) else {
            return Self(Repr::from_header_and_slice(contents.len(), contents));
        };
        let mut bytes = Self(Repr::from_header_and_slice(0, room));
        let replaced = bytes.replace(contents);
        debug_assert!(replaced, "new memory is not shared and has the room");
        bytes
    }

    /// Replaces the contents, if nobody else shares them and there is room; says whether.
    pub(crate) fn replace(&mut self, contents: &[u8]) -> bool {
        self.0.with_arc_mut(|arc| {
            let Some(inner) = triomphe::Arc::get_mut(arc) else { return false };
            let Some(room) = inner.slice_mut().get_mut(..contents.len()) else { return false };
            room.copy_from_slice(contents);
            *inner.header_mut() = contents.len();
            true
        })
    }

    /// Whether nobody else shares the bytes.
    pub(crate) fn is_unique(&self) -> bool {
        Repr::strong_count(&self.0) == 1
    }

    /// The room there is, in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.0.slice.len()
    }

    /// The room that a copy of `len` bytes gets.
    pub(crate) fn capacity_for(len: usize) -> usize {
        let rounded = len.next_multiple_of(CAPACITY_STEP_BYTES);
        if rounded > POOLED_BYTES_MAX { len } else { rounded }
    }

    /// How many share the bytes.
    #[cfg(test)]
    pub(crate) fn strong_count(&self) -> usize {
        Repr::strong_count(&self.0)
    }

    /// The pointer, which owns the count from now on.
    pub(super) fn into_raw(self) -> *const c_void {
        Repr::into_raw(self.0)
    }

    /// The bytes behind a pointer that [`SharedBytes::into_raw`] gave.
    ///
    /// # Safety
    ///
    /// As [`ThinArc::from_raw`]: the pointer came from `into_raw` and its count is not dropped
    /// twice.
    pub(super) unsafe fn from_raw(raw: *const c_void) -> Self {
        // SAFETY: the caller promises what `ThinArc::from_raw` asks for.
        Self(unsafe { Repr::from_raw(raw) })
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // The length never exceeds the room, so the whole of it is never the answer.
        self.0.slice.get(..self.0.header.header).unwrap_or(&self.0.slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_every_length_come_back() {
        for len in (0..2 * POOLED_BYTES_MAX).step_by(97) {
            let contents: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let bytes = SharedBytes::copy_from(&contents);
            assert_eq!(*bytes, contents);
            assert_eq!(bytes.capacity(), SharedBytes::capacity_for(len));
        }
    }

    #[test]
    fn only_bytes_of_one_owner_are_replaced_and_only_where_there_is_room() {
        let mut bytes = SharedBytes::copy_from(b"before");
        let other = bytes.clone();
        assert!(!bytes.is_unique());
        assert!(!bytes.replace(b"after"));
        assert_eq!(&*other, b"before");
        drop(other);
        assert!(bytes.is_unique() && bytes.replace(b"later on"));
        assert_eq!(&*bytes, b"later on");
        assert!(!bytes.replace(&[0; CAPACITY_STEP_BYTES + 1]));
        assert!(bytes.replace(b""));
        assert!(bytes.is_empty());
    }
}
