//! The bytes of a point of a backup; `docs/format/backup.md` describes them. No I/O here.

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    types::{FileId, SeqNo},
    version::edit::VersionEdit,
};

/// The first bytes of every point, with the version of the format.
const MAGIC: [u8; 8] = *b"RHUMBBK1";

/// The longest name of a file, in bytes: a number of twenty digits, a dot and an ending.
const NAME_BYTES_MAX: usize = 32;

/// The bytes that end a point: the checksum of all others.
const END_BYTES: usize = 8;

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PointFile {
    pub(super) name: String,
    pub(super) len: u64,
    /// XXH3-64 of the contents.
    pub(super) checksum: u64,
}

/// What a point says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) number: u64,
    /// The identity of the database that was backed up.
    pub(super) identity: u64,
    pub(super) seq: SeqNo,
    /// When it was made, in milliseconds since 1970.
    pub(super) time_ms: u64,
    /// The number that the manifest of a restored database gets.
    pub(super) manifest: FileId,
    pub(super) files: Vec<PointFile>,
    /// The records of the manifest of a restored database.
    pub(super) records: Vec<VersionEdit>,
}

/// Why bytes are no point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PointFault {
    pub(super) offset: usize,
    pub(super) expected: &'static str,
}

impl Point {
    /// The bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for word in [self.number, self.identity, self.seq, self.time_ms, self.manifest] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        push_len(&mut out, self.files.len());
        for file in &self.files {
            out.extend_from_slice(&file.len.to_le_bytes());
            out.extend_from_slice(&file.checksum.to_le_bytes());
            push_len(&mut out, file.name.len());
            out.extend_from_slice(file.name.as_bytes());
        }
        push_len(&mut out, self.records.len());
        for record in &self.records {
            let bytes = record.encode();
            push_len(&mut out, bytes.len());
            out.extend_from_slice(&bytes);
        }
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a point. Allocates at most about twenty times the bytes given.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, PointFault> {
        let fault = |offset, expected| PointFault { offset, expected };
        if bytes.get(..MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(fault(0, "the bytes RHUMBBK1"));
        }
        let Some((body, end)) = bytes.split_last_chunk::<END_BYTES>() else {
            return Err(fault(bytes.len(), "a checksum"));
        };
        if xxh3_64(body) != u64::from_le_bytes(*end) {
            return Err(fault(body.len(), "the checksum of the bytes before it"));
        }
        let mut input = Input { bytes: body, offset: MAGIC.len() };
        let mut words = [0; 5];
        for word in &mut words {
            *word = input.u64()?;
        }
        let [number, identity, seq, time_ms, manifest] = words;
        let (mut files, mut total) = (Vec::new(), 0_u64);
        for _ in 0..input.len()? {
            let start = input.offset;
            let (len, checksum, name) = (input.u64()?, input.u64()?, input.len()?);
            // What asks how large a point is adds them up.
            total = total.checked_add(len).ok_or(fault(start, "files of less than 2^64 bytes"))?;
            let at = input.offset;
            let name = input.take(name)?;
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
            // It is joined to a path: nothing leads out of the directory.
            let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name[0] != b'.';
            if !is_name || !name.iter().all(is_plain) {
                return Err(fault(at, "the name of a file, of letters, digits and dots"));
            }
            let name = String::from_utf8_lossy(name).into_owned();
            files.push(PointFile { name, len, checksum });
        }
        let mut records = Vec::new();
        for _ in 0..input.len()? {
            let len = input.len()?;
            let at = input.offset;
            let record = VersionEdit::decode(input.take(len)?);
            records.push(record.map_err(|inner| fault(at + inner.offset, inner.expected))?);
        }
        if input.offset != body.len() {
            return Err(fault(input.offset, "the end of the point"));
        }
        Ok(Self { number, identity, seq, time_ms, manifest, files, records })
    }
}

/// The bytes of a point with a right checksum, whatever is in it.
#[cfg(feature = "fuzzing")]
pub(crate) fn framed_point(body: &[u8]) -> Vec<u8> {
    let bytes = [&MAGIC, body].concat();
    let checksum = xxh3_64(&bytes);
    [bytes, checksum.to_le_bytes().to_vec()].concat()
}

/// The encoding of the point that the bytes are; `None` if they are none.
#[cfg(feature = "fuzzing")]
pub(crate) fn recoded_point(bytes: &[u8]) -> Option<Vec<u8>> {
    Point::decode(bytes).ok().map(|point| point.encode())
}

fn push_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

struct Input<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], PointFault> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..len);
        let taken = taken.ok_or(PointFault { offset: self.offset, expected: "more bytes" })?;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PointFault> {
        let offset = self.offset;
        let bytes = self.take(N)?.try_into();
        bytes.map_err(|_| PointFault { offset, expected: "more bytes" })
    }

    fn u64(&mut self) -> Result<u64, PointFault> {
        self.array().map(u64::from_le_bytes)
    }

    fn len(&mut self) -> Result<usize, PointFault> {
        self.array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::version::edit::Edit;

    fn point() -> Point {
        let file = |name: &str, len| PointFile { name: name.to_owned(), len, checksum: len * 3 };
        Point {
            number: 7,
            identity: 0x0102_0304_0506_0708,
            seq: 100,
            time_ms: 1_700_000_000_000,
            manifest: 9,
            files: vec![file("000001.sst", 5), file("000001.val", 6)],
            records: vec![VersionEdit::from(vec![Edit::LastSeq { seq: 100 }])],
        }
    }

    #[test]
    fn points_are_read_back_and_have_golden_bytes() {
        let bytes = point().encode();
        assert_eq!(Point::decode(&bytes).unwrap(), point());
        assert_eq!(&bytes[..24], b"RHUMBBK1\x07\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01");
        assert_eq!(xxh3_64(&bytes), 0x5AB0_46F3_AD5C_1EE4);
    }

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["../x", "a/b", ".", "..", "", "a\0b", &"x".repeat(33)] {
            let mut bad = point();
            bad.files[0].name = name.to_owned();
            let fault = Point::decode(&bad.encode()).unwrap_err();
            assert_eq!(fault.expected, "the name of a file, of letters, digits and dots", "{name}");
        }
    }

    #[test]
    fn the_lengths_of_files_add_up() {
        let mut large = point();
        large.files[0].len = u64::MAX - 6;
        assert_eq!(Point::decode(&large.encode()).unwrap(), large);
        large.files[1].len = 7;
        let fault = Point::decode(&large.encode()).unwrap_err();
        assert_eq!((fault.offset, fault.expected), (82, "files of less than 2^64 bytes"));
    }

    proptest! {
        #[test]
        fn damaged_points_are_refused(at in 0_usize..300, bit in 0_u8..8, cut in 0_usize..300) {
            let bytes = point().encode();
            let mut flipped = bytes.clone();
            let at = at % bytes.len();
            flipped[at] ^= 1 << bit;
            prop_assert!(Point::decode(&flipped).is_err());
            prop_assert!(Point::decode(&bytes[..cut % bytes.len()]).is_err());
        }

        #[test]
        fn bytes_with_a_right_checksum_never_panic(
            mut body in prop::collection::vec(any::<u8>(), 0..200),
            is_like in any::<bool>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            if is_like {
                body = point().encode();
                body.truncate(body.len() - END_BYTES);
            }
            for (at, byte) in changes {
                if let Some(place) = (!body.is_empty()).then(|| at.index(body.len())) {
                    body[place] = byte;
                }
            }
            body.splice(..body.len().min(8), MAGIC);
            let checksum = xxh3_64(&body);
            body.extend_from_slice(&checksum.to_le_bytes());
            let _ = Point::decode(&body);
        }
    }
}
