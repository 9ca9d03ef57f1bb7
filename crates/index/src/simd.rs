//! Comparing one word with many: AVX-512 or AVX2, chosen at run time, otherwise plain code. Plain
//! code is also used under model checkers and sanitizers, which do not see what assembly reads.
//! Among words that ascend, plain code searches by halves, and takes fewer instructions than AVX2
//! would.
//!
//! Words that are compared may be written at the same time. The AVX-512 forms are assembly, which
//! reads each aligned word whole, as the processor promises. The result for a word that changes is
//! arbitrary, and the caller ignores it. (Assembly rather than intrinsics also because those need a
//! newer compiler, and because it can be inlined into code that is compiled for any processor.)
//! a newer compiler, and because it can be inlined into code that is compiled for any processor.)
#![allow(unsafe_code, reason = "vector instructions on memory that others may write")]

#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
mod avx2;

use rhumb_sync::primitive::{AtomicU64, Ordering};

/// The instructions that the processor has; set by [`detect`].
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
static LEVEL: rhumb_sync::primitive::AtomicU32 = rhumb_sync::primitive::AtomicU32::new(PLAIN);

/// Plain code.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
const PLAIN: u32 = 0;
/// AVX2 for words in no order, plain code for those that ascend.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
const AVX2: u32 = 1;
/// AVX-512.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
const AVX512: u32 = 2;

/// Finds out which instructions the processor has. Until it is called, plain code is used.
pub(crate) fn detect() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("popcnt") {
        LEVEL.store(AVX512, Ordering::Relaxed);
    } else if std::is_x86_feature_detected!("avx2") {
        LEVEL.store(AVX2, Ordering::Relaxed);
    }
}

/// Returns true if the assembly for AVX-512 may be used.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
#[inline(always)]
fn has_avx512() -> bool {
    LEVEL.load(Ordering::Relaxed) == AVX512
}

/// Returns true if AVX2 is to be used.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
#[inline(always)]
fn has_avx2() -> bool {
    LEVEL.load(Ordering::Relaxed) == AVX2
}

/// Eight words of one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct SearchNode(pub(crate) [u64; 8]);

/// The set of the `N` words after the one at `first` that equal `key`; the first of them is bit 0.
///
/// # Safety
/// `N` is 7 or 15, and `first` is the first of `N + 1` words that may be read, on a 64-byte
/// boundary.
#[inline(always)]
pub(crate) unsafe fn equal<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if has_avx512() {
        // SAFETY: AVX-512 was detected, and the caller vouches for the words.
        return unsafe { equal_avx512::<N>(first, key) };
    }
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if has_avx2() {
        // SAFETY: AVX2 was detected, and the caller vouches for the words.
        return unsafe { avx2::equal::<N>(first, key) };
    }
    // SAFETY: the caller vouches for the words.
    unsafe { equal_plain::<N>(first, key) }
}

/// [`equal`] one by one.
///
/// # Safety
/// As for [`equal`].
#[inline(never)]
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
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
#[inline(always)]
unsafe fn equal_avx512<const N: usize>(first: *const AtomicU64, key: u64) -> u32 {
    use std::arch::asm;
    let found: u32;
    // Registers from 16 on leave no upper half dirty that would slow other code down.
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

/// The place of the last of the ascending `words` that is at most `key`; the first word counts as
/// such.
#[inline(always)]
pub(crate) fn last_up_to(words: &[u64; 8], key: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if has_avx512() {
        let place: u64;
        // SAFETY: AVX-512 and `popcnt` were detected; the operand is eight words that no thread
        // writes.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {key}",
                // Predicate 5: not less, that is `key >= word`.
                "vpcmpuq k1, zmm16, [{words}], 5",
                "kmovw {place:e}, k1",
                "shr {place:e}, 1",
                "popcnt {place:e}, {place:e}",
                key = in(reg) key,
                words = in(reg) words.as_ptr(),
                place = lateout(reg) place,
                out("zmm16") _,
                out("k1") _,
                options(nostack, readonly),
            );
        }
        return place as usize;
    }
    last_up_to_plain(words, key)
}

/// [`last_up_to`] by halves, without a branch: fewer instructions than with AVX2, so that more of
/// the next lookup runs while this one waits for memory.
#[inline(always)]
fn last_up_to_plain(words: &[u64; 8], key: u64) -> usize {
    let mut place = 4 * usize::from(words[4] <= key);
    place += 2 * usize::from(words[place + 2] <= key);
    place + usize::from(words[place + 1] <= key)
}

/// The place of the last of the ascending words of two search nodes that is at most `key`; the
/// first word counts as such.
#[inline(always)]
pub(crate) fn last_of_two_up_to(nodes: &[SearchNode; 2], key: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if has_avx512() {
        let place: u64;
        // SAFETY: AVX-512 and `popcnt` were detected; the operands are 16 words that no thread
        // writes.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {key}",
                // Predicate 5: not less, that is `key >= word`.
                "vpcmpuq k1, zmm16, [{nodes}], 5",
                "vpcmpuq k2, zmm16, [{nodes} + 64], 5",
                "kunpckbw k1, k2, k1",
                "kmovw {place:e}, k1",
                "shr {place:e}, 1",
                "popcnt {place:e}, {place:e}",
                key = in(reg) key,
                nodes = in(reg) nodes.as_ptr(),
                place = lateout(reg) place,
                out("zmm16") _,
                out("k1") _,
                out("k2") _,
                options(nostack, readonly),
            );
        }
        return place as usize;
    }
    last_of_two_up_to_plain(nodes, key)
}

/// [`last_of_two_up_to`], searched in the search node that holds the word.
#[inline(always)]
fn last_of_two_up_to_plain(nodes: &[SearchNode; 2], key: u64) -> usize {
    let at = usize::from(nodes[1].0[0] <= key);
    8 * at + last_up_to_plain(&nodes[at].0, key)
}

/// The number of the `N` words after the one at `first` that are above `key`, among those in
/// `among`, whose bit 0 is the first of them.
///
/// # Safety
/// As for [`equal`], with 15 wherever there are vector instructions.
#[inline(always)]
pub(crate) unsafe fn count_above<const N: usize>(
    first: *const AtomicU64,
    key: u64,
    among: u32,
) -> usize {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if has_avx512() {
        const { assert!(N == 15, "sixteen words are compared") };
        let count: u64;
        // SAFETY: AVX-512 and `popcnt` were detected, and the caller vouches for the words.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {key}",
                // Predicate 1: `key < word`.
                "vpcmpuq k1, zmm16, [{first}], 1",
                "vpcmpuq k2, zmm16, [{first} + 64], 1",
                "kunpckbw k1, k2, k1",
                "kmovw {count:e}, k1",
                "and {count:e}, {among:e}",
                "popcnt {count:e}, {count:e}",
                key = in(reg) key,
                first = in(reg) first,
                among = in(reg) among << 1,
                count = out(reg) count,
                out("zmm16") _,
                out("k1") _,
                out("k2") _,
                options(nostack, readonly),
            );
        }
        return count as usize;
    }
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if has_avx2() {
        // SAFETY: AVX2 was detected, and the caller vouches for the words.
        return unsafe { avx2::above::<N>(first, key) & among }.count_ones() as usize;
    }
    // SAFETY: the caller vouches for the words.
    unsafe { count_above_plain::<N>(first, key, among) }
}

/// [`count_above`] one by one.
///
/// # Safety
/// As for [`count_above`].
#[inline(never)]
unsafe fn count_above_plain<const N: usize>(
    first: *const AtomicU64,
    key: u64,
    among: u32,
) -> usize {
    let is_above = |i: &usize| {
        // SAFETY: `i + 1` is at most `N`.
        let word = unsafe { (*first.add(i + 1)).load(Ordering::Relaxed) };
        among & 1 << i != 0 && word > key
    };
    (0..N).filter(is_above).count()
}

/// The set of the `N` words after the one at `first` that are above their successor; the first of
/// them is bit 0. The bit of the last word and those above it are arbitrary.
///
/// # Safety
/// As for [`equal`], with 15 wherever there are vector instructions, and two words more may be
/// read.
#[inline(always)]
pub(crate) unsafe fn descents<const N: usize>(first: *const AtomicU64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle, sanitized))))]
    if has_avx512() {
        const { assert!(N == 15, "sixteen words are compared") };
        let descents: u32;
        // SAFETY: AVX-512 was detected, and the caller vouches for the words.
        unsafe {
            std::arch::asm!(
                "vmovdqu64 zmm16, [{first} + 8]",
                "vmovdqu64 zmm17, [{first} + 72]",
                // Predicate 6: not less or equal, that is `word > successor`.
                "vpcmpuq k1, zmm16, [{first} + 16], 6",
                "vpcmpuq k2, zmm17, [{first} + 80], 6",
                "kunpckbw k1, k2, k1",
                "kmovw {descents:e}, k1",
                first = in(reg) first,
                descents = lateout(reg) descents,
                out("zmm16") _,
                out("zmm17") _,
                out("k1") _,
                out("k2") _,
                options(nostack, readonly, preserves_flags),
            );
        }
        return descents;
    }
    // SAFETY: the caller vouches for the words.
    unsafe { descents_plain::<N>(first) }
}

/// [`descents`] one by one.
///
/// # Safety
/// As for [`descents`].
#[inline(never)]
unsafe fn descents_plain<const N: usize>(first: *const AtomicU64) -> u32 {
    // SAFETY: `i` is at most `N`.
    let word = |i: usize| unsafe { (*first.add(i)).load(Ordering::Relaxed) };
    (0..N - 1).fold(0, |found, i| found | u32::from(word(i + 1) > word(i + 2)) << i)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn comparisons_agree_with_plain_code() {
        check();
        detect();
        check();
        #[cfg(all(target_arch = "x86_64", not(any(miri, sanitized))))]
        if std::is_x86_feature_detected!("avx2") {
            // Other tests use any of the levels, which all give the same answers.
            LEVEL.store(AVX2, Ordering::Relaxed);
            check();
            detect();
        }
    }

    fn check() {
        #[repr(align(64))]
        struct Line([AtomicU64; 18]);
        let words = [3, 3, 9, 9, 0, u64::MAX, 1 << 63, 7, 3, 3, 5, 0, u64::MAX, 9, 8, 3, 0, 0];
        let line = Line(words.map(AtomicU64::new));
        let first = line.0.as_ptr();
        // SAFETY: the line has 18 words and is aligned.
        let found = unsafe { (descents::<15>(first), descents_plain::<15>(first)) };
        let expected = (0..14).fold(0, |all, i| all | u32::from(words[i + 1] > words[i + 2]) << i);
        assert_eq!((found.0 & 0x3fff, found.1), (expected, expected));
        for key in words.into_iter().chain([1, 2, 4]) {
            let bits = |is: fn(u64, u64) -> bool| {
                (0..15).fold(0, |found, i| found | u32::from(is(words[i + 1], key)) << i)
            };
            let expected = bits(|word, key| word == key);
            // SAFETY: the line has sixteen words and is aligned.
            let found = unsafe { (equal::<15>(first, key), equal_plain::<15>(first, key)) };
            assert_eq!(found, (expected, expected), "{key}");
            // SAFETY: as above.
            assert_eq!(unsafe { equal::<7>(first, key) }, expected & 0x7f, "{key}");
            for among in [0x7fff, 0x1555, 0, 1 << 14] {
                let counts = |i: &usize| among & 1 << i != 0 && words[i + 1] > key;
                let expected = (0..15).filter(counts).count();
                // SAFETY: as above.
                let found = unsafe {
                    (
                        count_above::<15>(first, key, among),
                        count_above_plain::<15>(first, key, among),
                    )
                };
                assert_eq!(found, (expected, expected), "{key}");
            }
        }
        let ascending = [1, 3, 3, 8, 1 << 40, 1 << 63, u64::MAX - 1, u64::MAX];
        let many: [u64; 16] = std::array::from_fn(|i| match i {
            0..8 => ascending[i] >> 24,
            _ => (1 << 41 << (i / 2)) + i as u64,
        });
        let nodes = [0, 1].map(|at| SearchNode(std::array::from_fn(|i| many[8 * at + i])));
        let near = many.into_iter().flat_map(|word| [word.saturating_sub(1), word, word + 1]);
        for key in near.chain([u64::MAX]) {
            let place = many.iter().rposition(|word| *word <= key).unwrap_or(0);
            assert_eq!(last_of_two_up_to(&nodes, key), place, "{key}");
            assert_eq!(last_of_two_up_to_plain(&nodes, key), place, "{key}");
        }
        for key in ascending.into_iter().chain([0, 5, 7, 9, 1 << 40, u64::MAX / 2]) {
            let expected = ascending.iter().rposition(|word| *word <= key).unwrap_or(0);
            assert_eq!(last_up_to(&ascending, key), expected, "{key}");
            assert_eq!(last_up_to_plain(&ascending, key), expected, "{key}");
        }
    }
}
