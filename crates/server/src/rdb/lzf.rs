//! Decompression of LZF, which Redis compresses strings with.
//!
//! A token below 32 stands for that number of bytes, and one, which follow it. Any other is a
//! reference: the top three bits are its length less two (seven: a byte with more follows), the
//! lower five and the next byte how far back it begins, less one.

/// The most bytes that one compressed byte stands for: a reference of three bytes gives 264.
pub(crate) const EXPANSION_MAX: u64 = 88;

/// Decompresses to exactly `len` bytes. The caller has bounded `len`.
///
/// # Errors
///
/// If the bytes are no LZF or are of another length.
pub(crate) fn decompress(mut from: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
    const ENDS: &str = "compressed bytes end too early";
    const LENGTH: &str = "compressed bytes are of another length than they say";
    let mut out = Vec::with_capacity(len);
    while let Some((&token, rest)) = from.split_first() {
        from = rest;
        if token < 32 {
            let (literal, rest) = from.split_at_checked(usize::from(token) + 1).ok_or(ENDS)?;
            if out.len() + literal.len() > len {
                return Err(LENGTH);
            }
            out.extend_from_slice(literal);
            from = rest;
            continue;
        }
        let mut run = usize::from(token >> 5) + 2;
        if run == 9 {
            let (&more, rest) = from.split_first().ok_or(ENDS)?;
            run += usize::from(more);
            from = rest;
        }
        let (&low, rest) = from.split_first().ok_or(ENDS)?;
        from = rest;
        let back = (usize::from(token & 31) << 8 | usize::from(low)) + 1;
        let start = out.len().checked_sub(back).ok_or("compressed bytes refer to none")?;
        if out.len() + run > len {
            return Err(LENGTH);
        }
        // It may refer to bytes that it gives itself.
        (start..start + run).for_each(|at| out.push(out[at]));
    }
    if out.len() == len { Ok(out) } else { Err(LENGTH) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_may_overlap_what_they_give() {
        // "a", then ten bytes from one back: a run of "a".
        assert_eq!(decompress(&[0, b'a', 0xE0, 1, 0], 11).unwrap(), b"aaaaaaaaaaa");
        assert_eq!(decompress(&[2, b'a', b'b', b'c', 0x20, 2], 6).unwrap(), b"abcabc");
    }

    #[test]
    fn wrong_bytes_are_refused() {
        for (bytes, len) in [
            (&[5, b'a'][..], 6),
            (&[0x20], 3),
            (&[0xE0, 1], 10),
            (&[0x20, 0], 3),
            (&[0, b'a', 0x20, 5], 4),
            (&[0, b'a'], 2),
            (&[1, b'a', b'b'], 1),
            (&[0, b'a', 0x20, 0], 2),
        ] {
            assert!(decompress(bytes, len).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_give_more_than_is_asked(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            len in 0_usize..2000,
        ) {
            if let Ok(out) = decompress(&bytes, len) {
                prop_assert_eq!(out.len(), len);
                prop_assert!(len as u64 <= bytes.len() as u64 * EXPANSION_MAX);
            }
        }
    }
}
