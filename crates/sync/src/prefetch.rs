//! Hints to the processor that memory will be read soon, so that misses overlap.
#![allow(unsafe_code, reason = "the prefetch instruction is an unsafe intrinsic")]

/// Bytes that one hint brings in.
pub const LINE_BYTES: usize = 64;

/// Prefetches the line that holds the first byte of `value`.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_address(std::ptr::from_ref(value));
}

/// As [`prefetch_address`], for a line that will be read once: it need not displace what is read
/// again and again.
#[inline(always)]
pub fn prefetch_once<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_NTA, _mm_prefetch};
        // SAFETY: as below.
        unsafe { _mm_prefetch::<_MM_HINT_NTA>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the line at an address, which need not be one of anything. Costs about a nanosecond
/// and changes nothing but time; does nothing on processors without the instruction.
#[inline(always)]
pub fn prefetch_address<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults and has no effect that a program can see, whatever the
        // address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
