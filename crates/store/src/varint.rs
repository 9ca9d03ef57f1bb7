//! Integers in as few bytes as they need: seven bits a byte, the lowest first, the high bit set on
//! all but the last (LEB128).

/// The most bytes that a number takes.
pub(crate) const BYTES_MAX: usize = 10;

/// Appends `value` to `out`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// How many bytes [`put`] takes for `value`.
#[inline]
pub(crate) const fn len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Takes a number from the front of `bytes`: its value, and where it ends. `None` if the bytes end
/// before it does, if it does not fit 64 bits, or if it is not in its shortest form.
#[inline]
pub(crate) fn get(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    get_long(bytes)
}

/// [`get`] for numbers of more than one byte.
#[inline]
fn get_long(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == BYTES_MAX - 1 && *byte > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if *byte < 0x80 {
            // Another form than the shortest is refused, so that a number has one.
            return (*byte != 0 || i == 0).then_some((value, i + 1));
        }
    }
    None
}

/// [`get`] that moves `bytes` past the number.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (value, end) = get(bytes)?;
    *bytes = &bytes[end..];
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_put_is_got(value: u64, shift in 0_u32..64, tail: [u8; 3]) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            prop_assert_eq!(bytes.len(), len(value));
            let end = bytes.len();
            prop_assert!((0..end).all(|cut| get(&bytes[..cut]).is_none()));
            bytes.extend(tail);
            prop_assert_eq!(get(&bytes), Some((value, end)));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            if let Some((_, end)) = get(&bytes) {
                prop_assert!(end <= bytes.len() && end <= BYTES_MAX);
            }
        }
    }

    #[test]
    fn a_number_past_64_bits_is_refused() {
        assert_eq!(get(&[0xff; 10]), None);
        assert_eq!(get(&[0x80; 11]), None);
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(get(&most), Some((u64::MAX, 10)));
    }
}
