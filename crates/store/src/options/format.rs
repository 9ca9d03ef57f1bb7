//! The bytes of a keyspace's options in the manifest; `docs/format/manifest.md` describes them. No
//! I/O here.

use super::{KeyspaceOptions, Lifetime};
use crate::{
    expiry::MILLIS_MAX,
    partition::Partitioning,
    table::{BlockIndexKind, Compression, StringCoding, TableLayout, Training},
};

/// The version of the encoded options of a keyspace without partitions.
pub(super) const PLAIN_VERSION: u8 = 1;
/// The version of the encoded options of a keyspace with partitions.
const PARTITIONED_VERSION: u8 = 2;
/// Added to the version of a keyspace whose entries live for a limited time. Eight bytes with that
/// time in milliseconds then follow the options of tables.
const LIMITED: u8 = 2;

/// In the index's byte, the two bits from this one on say how keys are coded. They are 0 by
/// default, so that options written without them keep their meaning.
const CODING_SHIFT: u8 = 4;
/// In the index's byte, the two bits from this one on say when models are trained; 0 by default.
const TRAINING_SHIFT: u8 = 6;

/// The number of bytes of the encoded options, in either version, before the part about partitions.
const TABLE_OPTIONS_BYTES: usize = 13;

impl KeyspaceOptions {
    /// The options of a new keyspace as the manifest stores them; `docs/format/manifest.md`
    /// describes the bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let table = self.table.over(&TableLayout::default());
        let version = match self.partitions {
            Partitioning::None => PLAIN_VERSION,
            _ => PARTITIONED_VERSION,
        };
        let lifetime_ms = self.lifetime.unwrap_or_default().millis();
        let version = version + if lifetime_ms > 0 { LIMITED } else { 0 };
        let index = table.index.to_byte()
            | table.string_coding.to_byte() << CODING_SHIFT
            | table.training.to_byte() << TRAINING_SHIFT;
        let mut bytes = vec![version, index, table.compression.byte()];
        bytes.extend([table.filter_bits_per_key, table.restart_interval]);
        bytes.extend(table.block_bytes.to_le_bytes());
        bytes.extend(table.large_value_bytes.to_le_bytes());
        if lifetime_ms > 0 {
            bytes.extend(lifetime_ms.to_le_bytes());
        }
        self.partitions.encode(&mut bytes);
        bytes
    }

    /// Returns true if encoded options request a compression that this build lacks.
    pub(crate) fn lacks_compression(bytes: &[u8]) -> bool {
        bytes.get(2).is_some_and(|byte| Compression::is_left_out(*byte))
    }

    /// Reads the output of [`KeyspaceOptions::encode`], with a value for each option. The error
    /// says what was expected and found.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Some((&table, behind)) = bytes.split_first_chunk::<TABLE_OPTIONS_BYTES>() else {
            return Err(format!("keyspace options of {} bytes", bytes.len()));
        };
        let [version, index, compression, filter_bits_per_key, restart_interval, rest @ ..] = table;
        let mut lifetime_ms = 0;
        let (mut version, mut behind) = (version, behind);
        if let PLAIN_VERSION | PARTITIONED_VERSION = version.wrapping_sub(LIMITED)
            && let Some((millis, after)) = behind.split_first_chunk()
        {
            lifetime_ms = u64::from_le_bytes(*millis);
            if !(1..=MILLIS_MAX).contains(&lifetime_ms) {
                return Err(format!("a lifetime of {lifetime_ms} milliseconds"));
            }
            (version, behind) = (version - LIMITED, after);
        }
        let partitions = match version {
            PLAIN_VERSION if behind.is_empty() => Partitioning::None,
            PLAIN_VERSION => {
                return Err(format!("keyspace options of {} bytes instead of 13", bytes.len()));
            }
            PARTITIONED_VERSION => Partitioning::decode(behind)?,
            _ => return Err(format!("keyspace options of version {version}")),
        };
        let word =
            |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let options = Self {
            table: TableLayout {
                index: BlockIndexKind::from_byte(index & 0xf)
                    .ok_or(format!("index kind {index}"))?,
                string_coding: StringCoding::from_byte(index >> CODING_SHIFT & 3)
                    .ok_or(format!("index kind {index}"))?,
                training: Training::from_byte(index >> TRAINING_SHIFT)
                    .ok_or(format!("index kind {index}"))?,
                compression: Compression::from_byte(compression)
                    .ok_or(format!("compression {compression}, which this build cannot read"))?,
                filter_bits_per_key,
                restart_interval,
                block_bytes: word(0),
                large_value_bytes: word(4),
            }
            .into(),
            partitions,
            lifetime: Some(Lifetime::of(lifetime_ms)),
        };
        options.check().map_err(|error| error.to_string())?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn golden_bytes_of_options() {
        let table = TableLayout {
            index: BlockIndexKind::Learned,
            string_coding: StringCoding::On,
            training: Training::Adaptive,
            compression: Compression::None,
            filter_bits_per_key: 9,
            restart_interval: 16,
            block_bytes: 4096,
            large_value_bytes: 0x0001_0203,
        };
        let point = |bytes: &[u8]| bytes.to_vec();
        for (partitions, version, expected) in [
            (Partitioning::None, 1, &[][..]),
            (Partitioning::PrefixLength(3), 2, &[1, 3]),
            (Partitioning::Delimiter(b'/'), 2, &[2, b'/']),
            (
                Partitioning::SplitPoints(vec![point(b"b"), point(b"cd")]),
                2,
                &[3, 2, 0, 0, 0, 1, 0, 0, 0, b'b', 2, 0, 0, 0, b'c', b'd'],
            ),
            (Partitioning::Function("f".into()), 2, &[4, 1, 0, 0, 0, b'f']),
        ] {
            for (lifetime, limited, millis) in [
                (Lifetime::Endless, 0, &[][..]),
                (Lifetime::For(Duration::from_millis(0x0102)), 2, &[2, 1, 0, 0, 0, 0, 0, 0]),
            ] {
                let (lifetime, partitions) = (Some(lifetime), partitions.clone());
                let options = KeyspaceOptions { table: table.into(), partitions, lifetime };
                let table = [version + limited, 0x51, 0, 9, 16, 0, 0x10, 0, 0, 3, 2, 1, 0];
                let bytes = [&table[..], millis, expected].concat();
                assert_eq!(options.encode(), bytes, "{:?}", options.partitions);
                assert_eq!(KeyspaceOptions::decode(&bytes), Ok(options));
                for cut in 0..bytes.len() {
                    assert!(KeyspaceOptions::decode(&bytes[..cut]).is_err());
                }
            }
        }
    }
}
