//! Random `RESTORE`s of values in the encodings of Redis, right ones and damaged ones, and of what
//! else is asked of a key then.

use rhumb_testkit::random::Random;

/// Values with their types, as dumps have them.
const VALUES: [&[u8]; 13] = [
    b"\x00\x05hello",
    b"\x00\xc0\x0a",
    b"\x00\xc3\x05\x0b\x00a\xe0\x01\x00",
    b"\x01\x02\x01a\xc0\x05",
    b"\x02\x02\x01a\x01b",
    b"\x02\x03\xc0\x01\xc0\x02\xc0\x03",
    b"\x04\x02\x01f\x01v\x01g\xc0\x09",
    b"\x05\x01\x01m\x00\x00\x00\x00\x00\x00\xf8\x3f",
    b"\x03\x02\x01a\x031.5\x01b\xfe",
    b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\xff\xff\x01\x00\x05\x00",
    b"\x12\x02\x01\x03big\x02\x09\x09\x00\x00\x00\x01\x00\x05\x01\xff",
    // Ends too early, and a type that there is not.
    b"\x01\x03\x01a",
    b"\x63\x01a",
];

const TIMES: [&str; 8] = ["0", "0", "0", "0", "10000000", "-1", "x", "9223372036854775808"];
const OPTIONS: [&[&str]; 10] = [
    &[],
    &["REPLACE"],
    &["replace"],
    &["REPLACE", "IDLETIME", "7"],
    &["REPLACE", "FREQ", "200"],
    &["FREQ", "256"],
    &["IDLETIME", "-1", "REPLACE"],
    &["FREQ", "1", "IDLETIME", "1"],
    &["IDLETIME"],
    &["nonsense"],
];

/// The checksum of Redis: its polynomial, reflected, from 0.
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0_u64;
    for byte in bytes {
        sum ^= u64::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ ((sum & 1) * 0x95AC_9329_AC4B_C9B5);
        }
    }
    sum
}

fn payload(random: &mut Random) -> Vec<u8> {
    let version = if random.index(20) == 0 { 99 } else { 6 + random.index(5) as u8 };
    let mut bytes = [VALUES[random.index(VALUES.len())], &[version, 0]].concat();
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    if random.index(10) == 0 {
        let at = random.index(bytes.len());
        bytes[at] ^= 1;
    }
    bytes
}

/// A command.
pub(crate) fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let key = format!("k{}", random.index(14)).into_bytes();
    if random.index(8) == 0 {
        // What a value is as bytes is each server's own affair.
        return vec![b"DUMP".to_vec(), b"absent".to_vec()];
    }
    let time = TIMES[random.index(TIMES.len())].as_bytes().to_vec();
    let mut words = vec![b"RESTORE".to_vec(), key, time, payload(random)];
    let options = OPTIONS[random.index(OPTIONS.len())];
    words.extend(options.iter().map(|word| word.as_bytes().to_vec()));
    words
}
