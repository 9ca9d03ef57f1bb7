//! Payloads of `RESTORE` with right checksums whose contents promise more than they hold.

/// The polynomial of the checksum of Redis, bits reversed (CRC-64 of Jones).
const POLYNOMIAL: u64 = 0x95AC_9329_AC4B_C9B5;

fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, _| if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
    bytes.iter().fold(0, |sum, byte| (0..8).fold(sum ^ u64::from(*byte), step))
}

/// A type and a value with the version and the checksum.
fn payload(value: &[u8]) -> Vec<u8> {
    let mut bytes = value.to_vec();
    bytes.extend_from_slice(&10_u16.to_le_bytes());
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// A length of 64 bits as dumps have it.
fn length(len: u64) -> Vec<u8> {
    [&[0x81], &len.to_be_bytes()[..]].concat()
}

/// A compressed string that says that it has `len` bytes, and has fewer or as many.
fn compressed(len: u64, bytes: &[u8]) -> Vec<u8> {
    [&[0xC3][..], &length(bytes.len() as u64), &length(len), bytes].concat()
}

/// A compressed string of zeros: 264 of them for each three bytes.
fn zeros(repeats: usize) -> Vec<u8> {
    let more = [0xE0, 0xFF, 0x00].repeat(repeats);
    compressed(1 + 264 * repeats as u64, &[&[0, 0][..], &more].concat())
}

/// What is sent, each with what it is.
pub(super) fn lies() -> Vec<(&'static str, Vec<u8>)> {
    let of = |parts: &[&[u8]]| payload(&parts.concat());
    let many = length(1 << 40);
    vec![
        ("a string of 2^40 bytes", of(&[&[0], &many, b"x"])),
        (
            "a compressed string that has one byte of 2^40",
            of(&[&[0], &compressed(1 << 40, b"\0x")]),
        ),
        (
            "a compressed string that has one byte of 512 MiB",
            of(&[&[0], &compressed(512 << 20, b"\0x")]),
        ),
        ("a compressed string of 2^40 bytes of which none are there", {
            of(&[&[0], &[0xC3], &many, &many])
        }),
        ("a list of 2^40 elements", of(&[&[1], &many, b"\x01a"])),
        ("a set of 2^40 members", of(&[&[2], &many, b"\x01a"])),
        ("a sorted set of 2^40 members", of(&[&[5], &many, b"\x01a\0\0\0\0\0\0\0\0"])),
        ("a hash of 2^40 fields", of(&[&[4], &many, b"\x01a\x01b"])),
        ("a list of 2^40 nodes", of(&[&[18], &many, b"\x02\x07\x07\0\0\0\0\0\xff"])),
        ("a packed list that says 2^32 bytes", of(&[&[17], b"\x07\xff\xff\xff\xff\xff\xff\xff"])),
        ("a set of integers that says 2^32", of(&[&[11], b"\x08\x02\0\0\0\xff\xff\xff\xff"])),
        ("a stream of 2^40 nodes", of(&[&[19], &many])),
        // Sixty strings of 100 KB, each in 1.2 KB, of 100,000 that are announced.
        ("a list of strings that expand, and one is missing", {
            let element = zeros(400);
            of(&[&[1], &length(100_000), &element.repeat(60)])
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(checksum(b"123456789"), 0xE9C6_D914_C4B8_D9CA);
    }

    #[test]
    fn zeros_are_as_long_as_they_say() {
        assert_eq!(zeros(2)[..19], [&[0xC3][..], &length(8), &length(529)].concat()[..]);
    }
}
