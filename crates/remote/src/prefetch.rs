//! A hint to the processor that words will be read soon, so that misses overlap.
#![allow(unsafe_code, reason = "the prefetch instruction is an unsafe intrinsic")]

use crate::primitive::AtomicU64;

/// Asks for the line that holds a word. Costs a nanosecond, and changes nothing but time; does
/// nothing on processors without the instruction.
#[inline(always)]
pub(crate) fn prefetch(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults and has no effect that a program can see, whatever the
        // address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    let _ = word;
}
