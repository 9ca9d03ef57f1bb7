//! The end of a table: sections (index, filter, properties) and the footer that says where they
//! are. Encoding and checked decoding; the module does no I/O.

use xxhash_rust::xxh3::xxh3_64;

use super::{
    TableMeta,
    format::{
        COMPRESSION_LZ4, COMPRESSION_NONE, COMPRESSION_ZSTD, FILE_ALIGN_BYTES, FOOTER_BYTES,
        FORMAT_VERSION, FORMAT_VERSION_BOTH, FORMAT_VERSION_EXPIRIES, FORMAT_VERSION_RANGES,
        FORMAT_VERSION_TREE, MAGIC, PAGE_BYTES, SECTION_HEADER_BYTES, TABLE_BYTES_MIN,
    },
};
use crate::{
    expiry::Expiries,
    types::{FileId, KEY_BYTES_MAX, TreeId},
    varint,
};

/// A mismatch in a file: what was expected, and what was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) expected: &'static str,
    pub(crate) found: String,
}

/// Why a footer cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FooterError {
    Damaged(Mismatch),
    /// Whole, but of a format version that this program does not know.
    Version(u32),
}

/// Where a section lies in the file, its header included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SectionExtent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// The fixed end of a table file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) table: FileId,
    pub(crate) data_pages: u32,
    pub(crate) block_count: u32,
    pub(crate) index: SectionExtent,
    pub(crate) filter: SectionExtent,
    /// Of no length if there are no range tombstones. The footer does not store it: it is the range
    /// between the filter and the properties.
    pub(crate) ranges: SectionExtent,
    pub(crate) properties: SectionExtent,
    /// True if entries expire.
    pub(crate) has_expiries: bool,
    /// The LSM tree that the table was written for; 0 if that was not known, as for an ingestion,
    /// or if the table is older than this field. No tree has that number.
    pub(crate) tree: TreeId,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&self.data_pages.to_le_bytes());
        out.extend_from_slice(&self.block_count.to_le_bytes());
        for extent in [self.index, self.filter, self.properties] {
            out.extend_from_slice(&extent.offset.to_le_bytes());
            out.extend_from_slice(&extent.len.to_le_bytes());
        }
        let version = match (self.ranges.len > 0, self.has_expiries) {
            (false, false) => FORMAT_VERSION,
            (true, false) => FORMAT_VERSION_RANGES,
            (false, true) => FORMAT_VERSION_EXPIRIES,
            (true, true) => FORMAT_VERSION_BOTH,
        };
        let version = if self.tree == 0 { version } else { version + FORMAT_VERSION_TREE };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&self.tree.to_le_bytes());
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out.try_into().expect("the fields above are as long as a footer")
    }

    /// Reads the last bytes of a file of `file_bytes`, and checks that all it names lies within.
    pub(crate) fn decode(bytes: &[u8; FOOTER_BYTES], file_bytes: u64) -> Result<Self, FooterError> {
        let (footer, end) = Self::decode_with_len(bytes)?;
        if file_bytes < TABLE_BYTES_MIN || file_bytes != end {
            let found = format!("{file_bytes} bytes");
            let expected = "a file as long as its parts";
            return Err(FooterError::Damaged(Mismatch { expected, found }));
        }
        Ok(footer)
    }

    /// Reads the last bytes of a table, and returns how long the table is that ends in them.
    pub(crate) fn decode_with_len(bytes: &[u8; FOOTER_BYTES]) -> Result<(Self, u64), FooterError> {
        let damaged = |expected, found| Err(FooterError::Damaged(Mismatch { expected, found }));
        let (words, _) = bytes.as_chunks::<8>();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        let half =
            |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        if words[10] != MAGIC {
            return damaged("the magic number of a table", format!("{:02x?}", words[10]));
        }
        let checksum = xxh3_64(&bytes[..72]);
        if word(9) != checksum {
            return damaged("the footer's checksum", format!("{:016x}", word(9)));
        }
        let (tree, version) = (half(68), half(64));
        let has_tree = version >= FORMAT_VERSION + FORMAT_VERSION_TREE;
        let base = if has_tree { version - FORMAT_VERSION_TREE } else { version };
        let (has_ranges, has_expiries) = match base {
            FORMAT_VERSION => (false, false),
            FORMAT_VERSION_RANGES => (true, false),
            FORMAT_VERSION_EXPIRIES => (false, true),
            FORMAT_VERSION_BOTH => (true, true),
            _ => return Err(FooterError::Version(version)),
        };
        let extent = |i| SectionExtent { offset: word(i), len: word(i + 1) };
        let (filter, properties) = (extent(4), extent(6));
        let mut ranges = SectionExtent { offset: filter.offset.saturating_add(filter.len), len: 0 };
        if has_ranges {
            ranges.len = properties.offset.saturating_sub(ranges.offset);
        }
        let footer = Self {
            table: word(0),
            data_pages: half(8),
            block_count: half(12),
            index: extent(2),
            filter,
            ranges,
            properties,
            has_expiries,
            tree,
        };
        let mut end = u64::from(footer.data_pages) * PAGE_BYTES as u64;
        let ranges = has_ranges.then_some(ranges);
        let extents = [footer.index, filter].into_iter().chain(ranges).chain([properties]);
        for extent in extents {
            if extent.offset != end || extent.len < SECTION_HEADER_BYTES as u64 {
                return damaged(
                    "sections one after the other",
                    format!("one at {}", extent.offset),
                );
            }
            end = extent.offset.saturating_add(extent.len);
        }
        if has_tree != (tree != 0) {
            return damaged("a tree in versions that name one", format!("the tree {tree}"));
        }
        if footer.data_pages == 0 || footer.block_count == 0 {
            return damaged("a table with blocks", format!("{} blocks", footer.block_count));
        }
        match checked_file_end(end.saturating_add(FOOTER_BYTES as u64)) {
            Some(end) => Ok((footer, end)),
            None => damaged("a file as long as its parts", "sections without an end".to_owned()),
        }
    }
}

/// A section's header: what it is, how long its payload is, and a checksum that also holds the
/// table and the kind, so that no section passes for another.
pub(crate) fn section_header(
    table: FileId,
    kind: u8,
    payload: &[u8],
) -> [u8; SECTION_HEADER_BYTES] {
    let mut header = [0; SECTION_HEADER_BYTES];
    header[0] = kind;
    header[1..9].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    header[9..].copy_from_slice(&section_checksum(table, kind, payload).to_le_bytes());
    header
}

/// Appends a section.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn put_section(out: &mut Vec<u8>, table: FileId, kind: u8, payload: &[u8]) {
    out.extend_from_slice(&section_header(table, kind, payload));
    out.extend_from_slice(payload);
}

/// The kind of a section and the length of its payload, as its header claims them.
pub(crate) fn claimed_section(header: &[u8; SECTION_HEADER_BYTES]) -> (u8, u64) {
    let [kind, len @ .., _, _, _, _, _, _, _, _] = header;
    (*kind, u64::from_le_bytes(*len))
}

/// The payload of a section, verified.
pub(crate) fn section_payload(bytes: &[u8], table: FileId, kind: u8) -> Result<&[u8], Mismatch> {
    let Some((header, payload)) = bytes.split_first_chunk::<SECTION_HEADER_BYTES>() else {
        let found = format!("{} bytes", bytes.len());
        return Err(Mismatch { expected: "a section header", found });
    };
    if header[0] != kind {
        return Err(Mismatch { expected: "another kind of section", found: header[0].to_string() });
    }
    let (words, _) = header[1..].as_chunks::<8>();
    let (len, checksum) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
    if len != payload.len() as u64 {
        return Err(Mismatch { expected: "the length in the footer", found: len.to_string() });
    }
    if checksum != section_checksum(table, kind, payload) {
        let found = format!("{checksum:016x}");
        return Err(Mismatch { expected: "the section's checksum", found });
    }
    Ok(payload)
}

fn section_checksum(table: FileId, kind: u8, payload: &[u8]) -> u64 {
    let mut bytes = [0; 17];
    bytes[..8].copy_from_slice(&table.to_le_bytes());
    bytes[8] = kind;
    bytes[9..].copy_from_slice(&xxh3_64(payload).to_le_bytes());
    xxh3_64(&bytes)
}

fn checked_file_end(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(FILE_ALIGN_BYTES as u64)
}

/// Encodes the part of `meta` that the properties section holds, then how the table was written.
pub(crate) fn encode_properties(meta: &TableMeta, written: &Written) -> Vec<u8> {
    let mut out = Vec::new();
    for number in [
        meta.entries,
        meta.tombstones,
        meta.raw_bytes,
        meta.seq_min,
        meta.seq_max,
        meta.value_file_bytes,
        written.keys,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&written.block_bytes.to_le_bytes());
    out.extend_from_slice(&written.large_value_bytes.to_le_bytes());
    out.extend_from_slice(&[
        written.compression,
        written.filter_bits_per_key,
        written.restart_interval,
        0,
    ]);
    for key in [&meta.smallest, &meta.largest] {
        varint::put(&mut out, key.len() as u64);
        out.extend_from_slice(key);
    }
    if meta.range_tombstones > 0 || meta.expiries.is_some() {
        out.extend_from_slice(&meta.range_tombstones.to_le_bytes());
    }
    if let Some(expiries) = &meta.expiries {
        out.extend_from_slice(&expiries.encode());
    }
    out
}

/// How a table was written. For people only: no reader depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Distinct user keys.
    pub(crate) keys: u64,
    pub(crate) block_bytes: u32,
    pub(crate) large_value_bytes: u32,
    pub(crate) compression: u8,
    pub(crate) filter_bits_per_key: u8,
    pub(crate) restart_interval: u8,
}

impl Written {
    /// How blocks are compressed, in a word.
    pub(crate) fn compression_name(&self) -> &'static str {
        match self.compression {
            COMPRESSION_NONE => "none",
            COMPRESSION_LZ4 => "lz4",
            COMPRESSION_ZSTD => "zstd",
            _ => "unknown",
        }
    }
}

/// Reads a properties payload of table `id`.
pub(crate) fn decode_properties(
    mut bytes: &[u8],
    id: FileId,
    file_bytes: u64,
) -> Result<(TableMeta, Written), Mismatch> {
    let len = bytes.len();
    decode_fields(&mut bytes, id, file_bytes)
        .filter(|_| bytes.is_empty())
        .ok_or_else(|| Mismatch { expected: "properties", found: format!("{len} other bytes") })
}

fn decode_fields(bytes: &mut &[u8], id: FileId, file_bytes: u64) -> Option<(TableMeta, Written)> {
    let mut number = || take_array(bytes).map(u64::from_le_bytes);
    let [entries, tombstones, raw_bytes, seq_min, seq_max, value_file_bytes, keys] =
        [number()?, number()?, number()?, number()?, number()?, number()?, number()?];
    let mut half = || take_array(bytes).map(u32::from_le_bytes);
    let [block_bytes, large_value_bytes] = [half()?, half()?];
    let [compression, filter_bits_per_key, restart_interval, _] = take_array(bytes)?;
    let mut key = || -> Option<Box<[u8]>> {
        let len = usize::try_from(varint::take(bytes)?).ok().filter(|len| *len <= KEY_BYTES_MAX)?;
        Some(bytes.split_off(..len)?.into())
    };
    let (smallest, largest) = (key()?, key()?);
    let range_tombstones = match bytes.is_empty() {
        true => 0,
        false => take_array(bytes).map(u64::from_le_bytes)?,
    };
    let expiries = match bytes.is_empty() {
        true => None,
        false => Some(Expiries::decode(&take_array(bytes)?)?),
    };
    let meta = TableMeta {
        place: None,
        id,
        file_bytes,
        value_file_bytes,
        entries,
        tombstones,
        range_tombstones,
        smallest,
        largest,
        seq_min,
        seq_max,
        raw_bytes,
        expiries,
    };
    let written = Written {
        keys,
        block_bytes,
        large_value_bytes,
        compression,
        filter_bits_per_key,
        restart_interval,
    };
    Some((meta, written))
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    bytes.split_off(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn footer() -> Footer {
        let extent = |offset, len| SectionExtent { offset, len };
        Footer {
            table: 7,
            data_pages: 12,
            block_count: 5,
            index: extent(12288, 100),
            filter: extent(12388, 50),
            ranges: extent(12438, 0),
            properties: extent(12438, 90),
            has_expiries: false,
            tree: 0x0403_0201,
        }
    }

    #[test]
    fn a_footer_names_its_tree() {
        assert_eq!(footer().encode()[64..72], [7, 0, 0, 0, 1, 2, 3, 4]);
        let mut without = Footer { tree: 0, ..footer() }.encode();
        assert_eq!(without[64..72], [3, 0, 0, 0, 0, 0, 0, 0]);
        without[64] = 7;
        let checksum = xxh3_64(&without[..72]).to_le_bytes();
        without[72..80].copy_from_slice(&checksum);
        assert!(matches!(Footer::decode(&without, 16384), Err(FooterError::Damaged(_))));
    }

    #[test]
    fn a_footer_comes_back_and_any_changed_bit_is_noticed() {
        let bytes = footer().encode();
        assert_eq!(Footer::decode(&bytes, 16384), Ok(footer()));
        assert!(Footer::decode(&bytes, 20480).is_err(), "the file is too long");
        for bit in 0..FOOTER_BYTES * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&changed, 16384).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn range_tombstones_lie_between_filter_and_properties() {
        let mut footer = footer();
        footer.ranges.len = 40;
        footer.properties.offset += 40;
        for has_expiries in [true, false] {
            footer.has_expiries = has_expiries;
            assert_eq!(Footer::decode(&footer.encode(), 16384), Ok(footer));
        }
        // Too short for a section's header.
        footer.ranges.len = 16;
        footer.properties.offset -= 24;
        assert!(Footer::decode(&footer.encode(), 16384).is_err());
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = footer().encode();
        bytes[64] = 11;
        let checksum = xxh3_64(&bytes[..72]).to_le_bytes();
        bytes[72..80].copy_from_slice(&checksum);
        assert_eq!(Footer::decode(&bytes, 16384), Err(FooterError::Version(11)));
    }

    #[test]
    fn a_section_of_another_kind_or_table_is_refused() {
        let mut bytes = Vec::new();
        put_section(&mut bytes, 7, 1, b"payload");
        assert_eq!(section_payload(&bytes, 7, 1), Ok(&b"payload"[..]));
        assert!(section_payload(&bytes, 7, 2).is_err());
        assert!(section_payload(&bytes, 8, 1).is_err());
        for cut in 0..bytes.len() {
            assert!(section_payload(&bytes[..cut], 7, 1).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_footer_is_read_without_a_panic(mut words in vec(any::<u64>(), 11), file: u64) {
            words[10] = u64::from_le_bytes(MAGIC);
            let mut bytes = [0; FOOTER_BYTES];
            for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&words) {
                *to = word.to_le_bytes();
            }
            bytes[64..72].copy_from_slice(&[1 + (file & 1) as u8, 0, 0, 0, 0, 0, 0, 0]);
            let checksum = xxh3_64(&bytes[..72]).to_le_bytes();
            bytes[72..80].copy_from_slice(&checksum);
            let _ = Footer::decode(&bytes, file);
        }

        #[test]
        fn any_properties_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..120)) {
            let _ = decode_properties(&bytes, 1, 2);
        }
    }
}
