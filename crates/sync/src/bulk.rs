//! Arrays that grow, in memory that is mapped for them alone once they are large.
//!
//! The program's allocator keeps a heap for each thread. glibc's raises the size from which a block
//! is mapped by itself to that of the largest such block that was ever released, and keeps twice as
//! much free memory at the end of every heap. So the buffers of writers and readers do not go
//! there: what they no longer need goes back to the system at once, and a gauge counts what they
//! have.
//!
//! Thread safety: that of a `Vec<T>`. Invariant:
//!
//! 1. The first `len` elements of a mapping are initialised, and there is room for them in it.
#![allow(unsafe_code, reason = "elements in mapped memory")]

use std::{
    fmt,
    ops::{Deref, DerefMut},
    ptr, slice,
};

use super::{
    arena,
    mapping::{Gauge, Mapping},
};

/// Arrays of up to this number of bytes lie in the program's allocator. It is half of the least
/// size that glibc maps by itself (M_MMAP_THRESHOLD), and large enough that the system is seldom
/// called.
const HEAP_BYTES_MAX: usize = 64 << 10;

/// A mapping's length is a multiple of this number of bytes, which is a multiple of every system's
/// pages.
const PAGES_BYTES: usize = 64 << 10;

/// An array that grows at its end.
pub struct Bulk<T: Copy> {
    home: Home<T>,
    gauge: Option<Gauge>,
}

enum Home<T> {
    Heap(Vec<T>),
    Mapped { memory: Mapping, len: usize },
}

// SAFETY: `&Bulk` gives nothing but `&[T]`.
unsafe impl<T: Copy + Sync> Sync for Bulk<T> {}

impl<T: Copy> Default for Bulk<T> {
    /// An empty array, which no gauge counts.
    fn default() -> Self {
        Self { home: Home::Heap(Vec::new()), gauge: None }
    }
}

impl<T: Copy> Bulk<T> {
    /// An empty array. `gauge` counts what is mapped for it.
    pub fn new(gauge: &Gauge) -> Self {
        Self { gauge: Some(gauge.clone()), ..Self::default() }
    }

    /// An empty array of any elements, counted by the same gauge as this one.
    pub fn another<U: Copy>(&self) -> Bulk<U> {
        Bulk { gauge: self.gauge.clone(), ..Bulk::default() }
    }

    /// Appends an element. O(1), amortised.
    #[inline]
    pub fn push(&mut self, element: T) {
        self.reserve(1);
        match &mut self.home {
            Home::Heap(elements) => elements.push(element),
            Home::Mapped { memory, len } => {
                // SAFETY: there is room for another element after the first `len`, and the mapping
                // belongs to this alone.
                unsafe { memory.base().cast::<T>().add(*len).write(element) };
                *len += 1;
            }
        }
    }

    /// Appends elements. O(elements), amortised.
    #[inline]
    pub fn extend_from_slice(&mut self, elements: &[T]) {
        self.reserve(elements.len());
        match &mut self.home {
            Home::Heap(all) => all.extend_from_slice(elements),
            Home::Mapped { memory, len } => {
                // SAFETY: there is room for these elements after the first `len`, and the mapping
                // belongs to this alone, so that they do not lie in it.
                unsafe {
                    let end = memory.base().cast::<T>().add(*len);
                    ptr::copy_nonoverlapping(elements.as_ptr(), end.as_ptr(), elements.len());
                }
                *len += elements.len();
            }
        }
    }

    /// Makes the array `len` elements long; those that are added are `element`.
    pub fn resize(&mut self, len: usize, element: T) {
        self.reserve(len.saturating_sub(self.len()));
        match &mut self.home {
            Home::Heap(elements) => elements.resize(len, element),
            Home::Mapped { memory, len: before } => {
                for i in *before..len {
                    // SAFETY: there is room for `len` elements.
                    unsafe { memory.base().cast::<T>().add(i).write(element) };
                }
                *before = len;
            }
        }
    }

    /// Removes all elements. The memory stays.
    pub fn clear(&mut self) {
        match &mut self.home {
            Home::Heap(elements) => elements.clear(),
            Home::Mapped { len, .. } => *len = 0,
        }
    }

    /// Removes the first elements. O(elements that stay).
    pub fn remove_first(&mut self, count: usize) {
        let left = self.len() - count;
        self.copy_within(count.., 0);
        match &mut self.home {
            Home::Heap(elements) => elements.truncate(left),
            Home::Mapped { len, .. } => *len = left,
        }
    }

    /// The number of elements that there is room for.
    pub fn capacity(&self) -> usize {
        match &self.home {
            Home::Heap(elements) => elements.capacity(),
            Home::Mapped { memory, .. } => memory.bytes() / size_of::<T>(),
        }
    }

    /// Makes sure that there is room for `more` elements.
    #[inline]
    fn reserve(&mut self, more: usize) {
        if self.capacity() - self.len() < more {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= arena::ALIGN) };
        let wanted = self.len().checked_add(more).expect("what is appended is in memory");
        // By a half, so that what is counted is not much more than what is used.
        let wanted = wanted.max(self.capacity() + self.capacity() / 2);
        let bytes = wanted.checked_mul(size_of::<T>()).expect("fewer than the address space holds");
        if let Home::Heap(elements) = &mut self.home
            && bytes <= HEAP_BYTES_MAX
        {
            elements.reserve_exact(wanted - elements.len());
            return;
        }
        let mut grown = Self::mapped(bytes, self.gauge.take());
        grown.extend_from_slice(self);
        *self = grown;
    }

    /// An empty array with room for `bytes` bytes of elements, which are not 0.
    fn mapped(bytes: usize, gauge: Option<Gauge>) -> Self {
        let bytes = bytes.checked_next_multiple_of(PAGES_BYTES).expect("room in the address space");
        let memory = Mapping::new(bytes, false, &gauge.clone().unwrap_or_default());
        Self { home: Home::Mapped { memory, len: 0 }, gauge }
    }
}

impl Bulk<u8> {
    /// An array of `len` zeros, which no gauge counts. If it is mapped, memory is found when it is
    /// touched.
    pub fn zeroed(len: usize) -> Self {
        if len <= HEAP_BYTES_MAX {
            return Self { home: Home::Heap(vec![0; len]), gauge: None };
        }
        let mut zeroed = Self::mapped(len, None);
        if let Home::Mapped { len: found, .. } = &mut zeroed.home {
            // A new mapping is zeros.
            *found = len;
        }
        zeroed
    }
}

impl<T: Copy> Deref for Bulk<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.home {
            Home::Heap(elements) => elements,
            // SAFETY: `len` elements are initialised (invariant 1).
            Home::Mapped { memory, len } => unsafe {
                slice::from_raw_parts(memory.base().as_ptr().cast(), *len)
            },
        }
    }
}

impl<T: Copy> DerefMut for Bulk<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.home {
            Home::Heap(elements) => elements,
            // SAFETY: as for `deref`, and the mapping belongs to this alone.
            Home::Mapped { memory, len } => unsafe {
                slice::from_raw_parts_mut(memory.base().as_ptr().cast(), *len)
            },
        }
    }
}

impl<T: Copy> Clone for Bulk<T> {
    fn clone(&self) -> Self {
        let mut copy = self.another();
        copy.extend_from_slice(self);
        copy
    }
}

impl<T: Copy> fmt::Debug for Bulk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// An operation on an array, with a number of elements.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Push,
        Extend(usize),
        Resize(usize),
        RemoveFirst(usize),
        Clear,
        Copy,
    }

    fn act() -> impl Strategy<Value = Act> {
        // Beyond the size of mappings, and of a chunk of large pages.
        let some = prop_oneof![0..100_usize, 8_000..9_000_usize, 0..400_000_usize];
        prop_oneof![
            4 => Just(Act::Push),
            4 => some.clone().prop_map(Act::Extend),
            2 => some.clone().prop_map(Act::Resize),
            2 => some.prop_map(Act::RemoveFirst),
            1 => Just(Act::Clear),
            1 => Just(Act::Copy),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

        #[test]
        fn an_array_does_what_a_vector_does(acts in vec(act(), 1..30)) {
            let gauge = Gauge::default();
            let (mut bulk, mut model) = (Bulk::<u64>::new(&gauge), Vec::new());
            for (i, act) in acts.into_iter().enumerate() {
                let first = (i as u64) << 32;
                match act {
                    Act::Push => {
                        bulk.push(first);
                        model.push(first);
                    }
                    Act::Extend(more) => {
                        let more: Vec<u64> = (first..first + more as u64).collect();
                        bulk.extend_from_slice(&more);
                        model.extend_from_slice(&more);
                    }
                    Act::Resize(len) => {
                        bulk.resize(len, first);
                        model.resize(len, first);
                    }
                    Act::RemoveFirst(count) => {
                        let count = count.min(model.len());
                        bulk.remove_first(count);
                        model.drain(..count);
                    }
                    Act::Clear => {
                        bulk.clear();
                        model.clear();
                    }
                    Act::Copy => bulk = bulk.clone(),
                }
                prop_assert!(*bulk == model[..]);
                prop_assert!(bulk.capacity() >= model.len());
                let is_small = bulk.capacity() * size_of::<u64>() <= HEAP_BYTES_MAX;
                prop_assert_eq!(gauge.bytes() == 0, is_small);
            }
            drop(bulk);
            prop_assert_eq!(gauge.bytes(), 0);
        }
    }

    #[test]
    fn zeros_of_every_length_are_zeros() {
        for len in [0, 1, HEAP_BYTES_MAX, HEAP_BYTES_MAX + 1, 300_000, 3 << 20] {
            let mut zeroed = Bulk::zeroed(len);
            assert!(zeroed.len() == len && zeroed.iter().all(|byte| *byte == 0));
            zeroed.extend_from_slice(&[7; 3]);
            assert_eq!(zeroed[len..], [7; 3]);
        }
    }
}
