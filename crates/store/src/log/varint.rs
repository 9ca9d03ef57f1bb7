//! Variable-length integers of the log's payloads: seven bits a byte, low bits first (LEB128).

/// The most bytes that a 64-bit integer takes.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` to `out`: one byte below 128, at most [`VARINT_BYTES_MAX`].
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads an integer from the front of `bytes`: its value and how many bytes it took. `None` if it
/// does not end within `bytes`, does not fit 64 bits, or is not in its shortest form.
#[inline]
pub(crate) fn get(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7F);
        if i == VARINT_BYTES_MAX - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte < 0x80 {
            return (byte != 0 || i == 0).then_some((value, i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_take_the_bytes_that_they_should() {
        for (value, len) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes.len(), len);
            assert_eq!(get(&bytes), Some((value, len)));
        }
        assert_eq!(get(&[]), None);
        assert_eq!(get(&[0x80]), None, "does not end");
        assert_eq!(get(&[0x80, 0x00]), None, "longer than need be");
        let too_large = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02];
        assert_eq!(get(&too_large), None, "66 bits");
    }

    proptest! {
        #[test]
        fn what_is_put_is_got(value: u64, tail: Vec<u8>) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let len = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(get(&bytes), Some((value, len)));
        }

        #[test]
        fn what_is_got_would_be_put_so(bytes: Vec<u8>) {
            if let Some((value, len)) = get(&bytes) {
                let mut again = Vec::new();
                put(&mut again, value);
                prop_assert_eq!(&again[..], &bytes[..len]);
            }
        }
    }
}
