//! The comparisons of words with AVX2, four at a time: for processors without AVX-512.
//!
//! Words that others may write are loaded by assembly, whole words at a time, and looked at in
//! registers.
#![allow(unsafe_code, reason = "vector instructions on memory that others may write")]

use std::arch::{
    asm,
    x86_64::{
        __m256i, _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_cmpgt_epi64, _mm256_movemask_pd,
        _mm256_set_epi64x, _mm256_set1_epi64x, _mm256_xor_si256,
    },
};

use crate::sync::primitive::AtomicU64;

/// Words of a register.
const LANES: usize = 4;

/// Four words as they are at some moment each.
///
/// # Safety
/// Four words may be read from `first` on; the processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(first: *const AtomicU64) -> __m256i {
    let words;
    // SAFETY: the caller vouches for the words.
    unsafe {
        asm!(
            "vmovdqu {words}, [{first}]",
            words = lateout(ymm_reg) words,
            first = in(reg) first,
            options(nostack, readonly, preserves_flags),
        );
    }
    words
}

/// The lanes whose bits are set, the first of them being bit 0.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(lanes: __m256i) -> u32 {
    _mm256_movemask_pd(_mm256_castsi256_pd(lanes)) as u32
}

/// The words of which `words` above `key` count, compared without sign.
#[inline]
#[target_feature(enable = "avx2")]
fn above_lanes(words: __m256i, key: u64) -> u32 {
    let sign = _mm256_set1_epi64x(i64::MIN);
    let key = _mm256_set1_epi64x(key as i64 ^ i64::MIN);
    mask(_mm256_cmpgt_epi64(_mm256_xor_si256(words, sign), key))
}

/// Which of the `N` words behind the one at `first` equal `key`.
///
/// # Safety
/// `N + 1` is a multiple of 4, as many words may be read from `first` on, and the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn equal<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    let key = _mm256_set1_epi64x(key as i64);
    let found = (0..=N).step_by(LANES).fold(0, |found, at| {
        // SAFETY: `at + 3` is at most `N`, and the caller vouches for the words.
        let words = unsafe { load(first.add(at)) };
        found | mask(_mm256_cmpeq_epi64(words, key)) << at
    });
    found >> 1
}

/// Which of the `N` words behind the one at `first` are above `key`.
///
/// # Safety
/// As for [`equal`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn above<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    let found = (0..=N).step_by(LANES).fold(0, |found, at| {
        // SAFETY: `at + 3` is at most `N`, and the caller vouches for the words.
        let words = unsafe { load(first.add(at)) };
        found | above_lanes(words, key) << at
    });
    found >> 1
}

/// How many of eight words are at most `key`.
#[target_feature(enable = "avx2")]
pub(super) fn count_up_to(words: &[u64; 8], key: u64) -> usize {
    let (halves, _) = words.as_chunks::<LANES>();
    let above = halves.iter().map(|half| {
        let [a, b, c, d] = half.map(|word| word as i64);
        above_lanes(_mm256_set_epi64x(d, c, b, a), key).count_ones()
    });
    words.len() - above.sum::<u32>() as usize
}
