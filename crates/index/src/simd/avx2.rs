//! Comparisons of words in no order with AVX and AVX2, two or four at a time: for processors
//! without AVX-512.
//!
//! Words that others may write are read by assembly, whole words at a time.
#![allow(unsafe_code, reason = "vector instructions on memory that others may write")]

use std::arch::{
    asm,
    x86_64::{
        __m256i, _mm256_castsi256_pd, _mm256_cmpgt_epi64, _mm256_movemask_pd, _mm256_set1_epi64x,
        _mm256_xor_si256,
    },
};

use rhumb_sync::primitive::AtomicU64;

/// Words of a register.
const LANES: usize = 4;

/// Four words, each as it is at some moment.
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

/// The lanes of `words` that are above `key`, compared without sign.
#[inline]
#[target_feature(enable = "avx2")]
fn above_lanes(words: __m256i, key: u64) -> u32 {
    let sign = _mm256_set1_epi64x(i64::MIN);
    let key = _mm256_set1_epi64x(key as i64 ^ i64::MIN);
    mask(_mm256_cmpgt_epi64(_mm256_xor_si256(words, sign), key))
}

/// The set of the `N` words after the one at `first` that equal `key`. Inlined anywhere. It takes
/// 16 bytes at a time, which leaves no upper half dirty that would slow other code down.
///
/// # Safety
/// `N` is 7 or 15, `N + 1` words may be read from `first` on, and the processor has AVX.
#[inline(always)]
pub(super) unsafe fn equal<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    let found: u32;
    if N == 7 {
        // SAFETY: the caller vouches for eight words.
        unsafe {
            asm!(
                "vmovq {key}, {word}",
                "vpunpcklqdq {key}, {key}, {key}",
                "vpcmpeqq {a}, {key}, [{first}]",
                "vpcmpeqq {b}, {key}, [{first} + 16]",
                // One half of each word, of both registers.
                "vshufps {a}, {a}, {b}, 0x88",
                "vpcmpeqq {b}, {key}, [{first} + 32]",
                "vpcmpeqq {key}, {key}, [{first} + 48]",
                "vshufps {b}, {b}, {key}, 0x88",
                "vpackssdw {a}, {a}, {b}",
                "vpacksswb {a}, {a}, {a}",
                "vpmovmskb {found:e}, {a}",
                word = in(reg) key,
                first = in(reg) first,
                key = out(xmm_reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                found = lateout(reg) found,
                options(nostack, readonly, preserves_flags),
            );
        }
        return (found & 0xff) >> 1;
    }
    // SAFETY: the caller vouches for sixteen words.
    unsafe {
        asm!(
            "vmovq {key}, {word}",
            "vpunpcklqdq {key}, {key}, {key}",
            "vpcmpeqq {a}, {key}, [{first}]",
            "vpcmpeqq {b}, {key}, [{first} + 16]",
            // One half of each word, of both registers.
            "vshufps {a}, {a}, {b}, 0x88",
            "vpcmpeqq {b}, {key}, [{first} + 32]",
            "vpcmpeqq {c}, {key}, [{first} + 48]",
            "vshufps {b}, {b}, {c}, 0x88",
            "vpackssdw {a}, {a}, {b}",
            "vpcmpeqq {b}, {key}, [{first} + 64]",
            "vpcmpeqq {c}, {key}, [{first} + 80]",
            "vshufps {b}, {b}, {c}, 0x88",
            "vpcmpeqq {c}, {key}, [{first} + 96]",
            "vpcmpeqq {key}, {key}, [{first} + 112]",
            "vshufps {c}, {c}, {key}, 0x88",
            "vpackssdw {b}, {b}, {c}",
            "vpacksswb {a}, {a}, {b}",
            "vpmovmskb {found:e}, {a}",
            word = in(reg) key,
            first = in(reg) first,
            key = out(xmm_reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            found = lateout(reg) found,
            options(nostack, readonly, preserves_flags),
        );
    }
    found >> 1
}

/// The set of the `N` words after the one at `first` that are above `key`.
///
/// # Safety
/// `N + 1` is a multiple of 4, `N + 1` words may be read from `first` on, and the processor has
/// AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn above<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    let found = (0..=N).step_by(LANES).fold(0, |found, at| {
        // SAFETY: `at + 3` is at most `N`, and the caller vouches for the words.
        let words = unsafe { load(first.add(at)) };
        found | above_lanes(words, key) << at
    });
    found >> 1
}
