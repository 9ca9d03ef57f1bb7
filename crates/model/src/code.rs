//! Order-preserving numbers for byte-string keys, and the small prefix arithmetic around them.
//!
//! A *code* is the eight bytes of a key that follow a number of skipped ones. Among keys that
//! agree on the skipped bytes, codes never invert the order; distinct keys may share a code.

/// The code of `key` after `skip` bytes: the next eight bytes as a big-endian number, zero padded.
///
/// For keys `a <= b` with equal first `skip` bytes, `code_at(a, skip) <= code_at(b, skip)`. A key
/// of `skip` bytes or fewer has the code 0. Constant time.
#[must_use]
#[inline]
pub fn code_at(key: &[u8], skip: usize) -> u64 {
    let Some(last) = key.len().checked_sub(8) else { return short_code(key, skip) };
    // One load for all lengths: if fewer than eight bytes follow, those before them are shifted
    // out. A branch on the length of the rest would be mispredicted for text.
    let start = skip.min(last);
    let bytes = key[start..].first_chunk::<8>().copied().unwrap_or_default();
    let excess = skip - start;
    let code = u64::from_be_bytes(bytes) << (8 * (excess & 7));
    if excess < 8 { code } else { 0 }
}

/// [`code_at`] for keys of fewer than eight bytes.
fn short_code(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    rest.iter().rev().fold(0, |code, byte| code >> 8 | u64::from(*byte) << 56)
}

/// The number of leading bytes on which `a` and `b` agree. Linear in the answer.
#[must_use]
#[inline]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk::<8>(), b[at..].first_chunk::<8>()) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return at + (difference.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

/// The length of the shortest prefix of `next` that sorts above `previous`.
///
/// Any string that separates the two (above `previous`, at most `next`) is at least this long.
/// Expects `previous < next`; otherwise the answer is merely at most `next.len()`.
#[must_use]
#[inline]
pub fn separator_len(previous: &[u8], next: &[u8]) -> usize {
    (common_prefix_len(previous, next) + 1).min(next.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain_code(key: &[u8], skip: usize) -> u64 {
        (0..8).fold(0, |code, i| code << 8 | u64::from(key.get(skip + i).copied().unwrap_or(0)))
    }

    #[test]
    fn codes_at_the_edges() {
        assert_eq!(code_at(b"", 0), 0);
        assert_eq!(code_at(b"", usize::MAX - 8), 0);
        assert_eq!(code_at(b"0123456789", usize::MAX), 0);
        assert_eq!(code_at(b"abc", 3), 0);
        assert_eq!(code_at(b"a", 0), 0x6100_0000_0000_0000);
        assert_eq!(code_at(&[0xff; 40], 32), u64::MAX);
    }

    /// Short keys over few letters, so that prefixes and ties are common.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..20)
    }

    proptest! {
        #[test]
        fn code_is_the_padded_bytes(key in key(), skip in 0usize..24) {
            prop_assert_eq!(code_at(&key, skip), plain_code(&key, skip));
        }

        #[test]
        fn code_keeps_order(a in key(), b in key()) {
            let skip = common_prefix_len(&a, &b);
            for skip in 0..=skip {
                if a <= b {
                    prop_assert!(code_at(&a, skip) <= code_at(&b, skip));
                }
            }
        }

        #[test]
        fn common_prefix_is_exact(a in key(), b in key()) {
            let expected = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(common_prefix_len(&a, &b), expected);
        }

        #[test]
        fn separator_is_shortest(a in key(), b in key()) {
            prop_assume!(a < b);
            let len = separator_len(&a, &b);
            prop_assert!(a[..] < b[..len]);
            prop_assert!(len == 0 || a[..] >= b[..len - 1]);
        }
    }
}
