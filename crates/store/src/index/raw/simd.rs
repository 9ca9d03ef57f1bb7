//! Comparing one word with eight at a time: AVX-512, chosen at run time, else plain code.
//!
//! Words that are compared may be written at the same time. The AVX-512 forms are assembly, which
//! reads each aligned word whole, as the processor promises; the result for a word that changes is
//! any, and the caller leaves it out of account. (Assembly rather than intrinsics also because those need
//! a newer compiler, and because it can be inlined into code that is compiled for any processor.)
#![allow(unsafe_code, reason = "vector instructions on memory that others may write")]

use crate::sync::primitive::{AtomicBool, AtomicU64, Ordering};

/// Whether the processor has what the assembly needs; set by [`detect`].
static HAS_AVX512: AtomicBool = AtomicBool::new(false);

/// Finds out what the processor has. Until it was called plain code is used.
pub(crate) fn detect() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("popcnt") {
        HAS_AVX512.store(true, Ordering::Relaxed);
    }
}

/// Whether the assembly may be used.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn has_avx512() -> bool {
    HAS_AVX512.load(Ordering::Relaxed)
}

/// Eight words of one cache line.
#[repr(C, align(64))]
pub(crate) struct Rung(pub(crate) [u64; 8]);

/// Which of the `N` words behind the one at `first` equal `key`, the first of them being bit 0.
///
/// # Safety
/// `N` is 7 or 15, and `first` is the first of `N + 1` words that may be read, on a 64-byte boundary.
#[inline(always)]
pub(crate) unsafe fn equal<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if has_avx512() {
        // SAFETY: AVX-512 was detected, and the caller vouches for the words.
        return unsafe { equal_avx512::<N>(first, key) };
    }
    // SAFETY: the caller vouches for the words.
    unsafe { equal_plain::<N>(first, key) }
}

/// [`equal`] one by one.
///
/// # Safety
/// As for [`equal`].
#[inline]
unsafe fn equal_plain<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    (0..N).fold(0, |found, i| {
        // SAFETY: `i + 1` is at most `N`.
        let word = unsafe { (*first.add(i + 1)).load(Ordering::Relaxed) };
        found | u32::from(word == key) << i
    })
}

/// [`equal`] in a few instructions.
///
/// # Safety
/// As for [`equal`], and the processor has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn equal_avx512<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    use std::arch::asm;
    let found: u32;
    // Registers from 16 on leave no upper half behind that would slow other code down.
    if N == 7 {
        // SAFETY: eight words may be read.
        unsafe {
            asm!(
                "vpbroadcastq zmm16, {key}",
                "vpcmpeqq k1, zmm16, [{first}]",
                "kmovw {found:e}, k1",
                key = in(reg) key,
                first = in(reg) first,
                found = lateout(reg) found,
                out("zmm16") _,
                out("k1") _,
                options(nostack, readonly, preserves_flags),
            );
        }
    } else {
        // SAFETY: sixteen words may be read.
        unsafe {
            asm!(
                "vpbroadcastq zmm16, {key}",
                "vpcmpeqq k1, zmm16, [{first}]",
                "vpcmpeqq k2, zmm16, [{first} + 64]",
                "kunpckbw k1, k2, k1",
                "kmovw {found:e}, k1",
                key = in(reg) key,
                first = in(reg) first,
                found = lateout(reg) found,
                out("zmm16") _,
                out("k1") _,
                out("k2") _,
                options(nostack, readonly, preserves_flags),
            );
        }
    }
    found >> 1
}

/// How many of the ascending words `words` are at most `key`.
#[inline(always)]
pub(crate) fn count_up_to(words: &[u64; 8], key: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if has_avx512() {
        let below: u32;
        // SAFETY: AVX-512 was detected; the operand is eight words that nobody writes.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {key}",
                // Predicate 5: not less, that is `key >= word`.
                "vpcmpuq k1, zmm16, [{words}], 5",
                "kmovw {below:e}, k1",
                key = in(reg) key,
                words = in(reg) words.as_ptr(),
                below = lateout(reg) below,
                out("zmm16") _,
                out("k1") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        return below.trailing_ones() as usize;
    }
    words.iter().map(|word| usize::from(*word <= key)).sum()
}

/// Sixteen words of two cache lines.
#[repr(C, align(64))]
pub(crate) struct Words(pub(crate) [u64; 16]);

/// How many of the words are below `key`.
#[inline(always)]
pub(crate) fn rank(words: &Words, key: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if has_avx512() {
        let below: u64;
        // SAFETY: AVX-512 and `popcnt` were detected; the operands are sixteen words that
        // nobody writes.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {key}",
                // Predicate 6: not less or equal, that is `key > word`.
                "vpcmpuq k1, zmm16, [{words}], 6",
                "vpcmpuq k2, zmm16, [{words} + 64], 6",
                "kunpckbw k1, k2, k1",
                "kmovw {below:e}, k1",
                "popcnt {below:e}, {below:e}",
                key = in(reg) key,
                words = in(reg) words.0.as_ptr(),
                below = out(reg) below,
                out("zmm16") _,
                out("k1") _,
                out("k2") _,
                options(nostack, readonly),
            );
        }
        return below as usize;
    }
    words.0.iter().map(|word| usize::from(*word < key)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_agree_with_plain_code() {
        detect();
        #[repr(align(64))]
        struct Line([AtomicU64; 16]);
        let words = [3, 3, 9, 9, 0, u64::MAX, 1 << 63, 7, 3, 3, 5, 0, u64::MAX, 9, 8, 3];
        let line = Line(words.map(AtomicU64::new));
        for key in words.into_iter().chain([1, 2, 4]) {
            let expected = (0..15).fold(0, |found, i| found | u32::from(words[i + 1] == key) << i);
            let first = line.0.as_ptr();
            // SAFETY: the line has sixteen words and is aligned.
            let found = unsafe { (equal::<15>(first, key), equal_plain::<15>(first, key)) };
            assert_eq!(found, (expected, expected), "{key}");
            // SAFETY: as above.
            assert_eq!(unsafe { equal::<7>(first, key) }, expected & 0x7f, "{key}");
        }
        for key in words.into_iter().chain([1, 2, 4]) {
            let expected = words.iter().filter(|word| **word < key).count();
            assert_eq!(rank(&Words(words), key), expected, "{key}");
        }
        let ascending = [0, 3, 3, 8, 1 << 40, 1 << 63, u64::MAX - 1, u64::MAX];
        for key in ascending.into_iter().chain([1, 7, 9, u64::MAX / 2]) {
            let expected = ascending.iter().filter(|word| **word <= key).count();
            assert_eq!(count_up_to(&ascending, key), expected, "{key}");
        }
    }
}
