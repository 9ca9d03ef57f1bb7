//! Streams: identifiers, and the fixed parts of what is stored of a stream and of its groups.
//!
//! Each record is a row of 64-bit numbers, little-endian.

/// The identifier of a stream's entry: milliseconds, and a number among those of the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

impl StreamId {
    /// `0-0`, which no entry has.
    pub(crate) const MIN: Self = Self { ms: 0, seq: 0 };
    /// The last one that there can be.
    pub(crate) const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The one after it; none after the last.
    pub(crate) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before it; none before the first.
    pub(crate) fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// The bytes that sort as identifiers do.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        ((u128::from(self.ms) << 64) | u128::from(self.seq)).to_be_bytes()
    }

    /// Reads what [`StreamId::to_bytes`] made.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ms, seq) = (bytes.get(..8)?, bytes.get(8..)?);
        let (ms, seq) = (ms.try_into().ok()?, seq.try_into().ok()?);
        Some(Self { ms: u64::from_be_bytes(ms), seq: u64::from_be_bytes(seq) })
    }
}

/// Reads a row of numbers.
struct Row<'a>(&'a [u8]);

impl Row<'_> {
    fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn id(&mut self) -> Option<StreamId> {
        Some(StreamId { ms: self.number()?, seq: self.number()? })
    }
}

fn push(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

/// What an entry of a key says of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamMeta {
    /// Its number, as other collections have one.
    pub(crate) id: u64,
    /// How many entries it has.
    pub(crate) length: u64,
    /// The last identifier that was given to an entry.
    pub(crate) last: StreamId,
    /// The greatest identifier of the entries that `XDEL` removed.
    pub(crate) max_deleted: StreamId,
    /// How many entries were ever added.
    pub(crate) added: u64,
    /// The identifier of the first entry; [`StreamId::MIN`] if there is none.
    pub(crate) first: StreamId,
    /// How many groups it has.
    pub(crate) groups: u64,
    /// The number of the next group; none is given twice.
    pub(crate) next_group: u64,
}

impl StreamMeta {
    /// A stream without entries.
    pub(crate) fn new(id: u64) -> Self {
        let none = StreamId::MIN;
        Self {
            id,
            length: 0,
            last: none,
            max_deleted: none,
            added: 0,
            first: none,
            groups: 0,
            next_group: 0,
        }
    }

    /// Appends the bytes.
    pub(crate) fn push_to(&self, out: &mut Vec<u8>) {
        let (last, deleted, first) = (self.last, self.max_deleted, self.first);
        push(out, &[self.id, self.length, last.ms, last.seq, deleted.ms, deleted.seq, self.added]);
        push(out, &[first.ms, first.seq, self.groups, self.next_group]);
    }

    /// Reads the bytes; none if they are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut row = Row(bytes);
        Some(Self {
            id: row.number()?,
            length: row.number()?,
            last: row.id()?,
            max_deleted: row.id()?,
            added: row.number()?,
            first: row.id()?,
            groups: row.number()?,
            next_group: row.number()?,
        })
    }
}

/// What is stored of a consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    /// Its number among the groups of its stream, which its name is looked up for.
    pub(crate) number: u64,
    /// The last identifier that was delivered.
    pub(crate) last: StreamId,
    /// How many entries of the stream were read up to there, if that is known.
    pub(crate) entries_read: Option<u64>,
    /// How many entries are pending.
    pub(crate) pending: u64,
    /// Where the first page of what is pending begins; [`StreamId::MIN`] if nothing is.
    pub(crate) first_page: StreamId,
    /// No identifier after this one is pending; [`StreamId::MIN`] if none is.
    pub(crate) last_pending: StreamId,
    /// How many consumers it has.
    pub(crate) consumers: u64,
    /// The number of the next consumer; none is given twice.
    pub(crate) next_consumer: u64,
}

/// Bytes of what is stored of a group.
const GROUP_BYTES: usize = 88;

/// Stands for an unknown number.
const UNKNOWN: u64 = u64::MAX;

fn known(number: u64) -> Option<u64> {
    (number != UNKNOWN).then_some(number)
}

impl GroupRecord {
    /// The bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(GROUP_BYTES);
        let (last, from, to) = (self.last, self.first_page, self.last_pending);
        push(&mut out, &[self.number, last.ms, last.seq, self.entries_read.unwrap_or(UNKNOWN)]);
        push(&mut out, &[self.pending, from.ms, from.seq, to.ms, to.seq]);
        push(&mut out, &[self.consumers, self.next_consumer]);
        out
    }

    /// Reads the bytes; none if they are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut row = Row(bytes);
        if bytes.len() != GROUP_BYTES {
            return None;
        }
        Some(Self {
            number: row.number()?,
            last: row.id()?,
            entries_read: known(row.number()?),
            pending: row.number()?,
            first_page: row.id()?,
            last_pending: row.id()?,
            consumers: row.number()?,
            next_consumer: row.number()?,
        })
    }
}

/// What is stored of a consumer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConsumerRecord {
    /// Its number among the consumers of its group.
    pub(crate) number: u64,
    /// When it was heard of last, in milliseconds since 1970.
    pub(crate) seen_ms: u64,
    /// When it was given entries last, if it ever was.
    pub(crate) active_ms: Option<u64>,
    /// How many entries are pending for it.
    pub(crate) pending: u64,
}

impl ConsumerRecord {
    /// The bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        let active = self.active_ms.unwrap_or(UNKNOWN);
        push(&mut out, &[self.number, self.seen_ms, active, self.pending]);
        out
    }

    /// Reads the bytes; none if they are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut row = Row(bytes);
        Some(Self {
            number: row.number()?,
            seen_ms: row.number()?,
            active_ms: known(row.number()?),
            pending: row.number()?,
        })
    }
}

/// What is stored of an entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingRecord {
    /// The number of the consumer that has it.
    pub(crate) consumer: u64,
    /// When it was delivered last, in milliseconds since 1970.
    pub(crate) delivered_ms: u64,
    /// How often it was delivered.
    pub(crate) count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(numbers: &[u8]) -> Vec<u8> {
        numbers.iter().flat_map(|number| [*number, 0, 0, 0, 0, 0, 0, 0]).collect()
    }

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn records_have_their_golden_bytes() {
        let meta = StreamMeta {
            id: 1,
            length: 2,
            last: id(3, 4),
            max_deleted: id(5, 6),
            added: 7,
            first: id(8, 9),
            groups: 10,
            next_group: 11,
        };
        let mut bytes = Vec::new();
        meta.push_to(&mut bytes);
        assert_eq!(bytes, row(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
        assert_eq!(StreamMeta::decode(&bytes), Some(meta));
        let mut group = GroupRecord {
            number: 1,
            last: id(2, 3),
            entries_read: Some(4),
            pending: 5,
            first_page: id(6, 7),
            last_pending: id(8, 9),
            consumers: 10,
            next_consumer: 11,
        };
        assert_eq!(group.encode(), row(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
        group.entries_read = None;
        assert_eq!(group.encode()[24..32], [0xFF; 8]);
        assert_eq!(GroupRecord::decode(&group.encode()), Some(group));
        let mut consumer = ConsumerRecord { number: 1, seen_ms: 2, active_ms: Some(3), pending: 4 };
        assert_eq!(consumer.encode(), row(&[1, 2, 3, 4]));
        consumer.active_ms = None;
        assert_eq!(consumer.encode()[16..24], [0xFF; 8]);
        assert_eq!(ConsumerRecord::decode(&consumer.encode()), Some(consumer));
    }

    #[test]
    fn damaged_records_are_none() {
        let bytes = row(&[1; 11]);
        assert!(StreamMeta::decode(&bytes[..87]).is_none());
        assert!(GroupRecord::decode(&bytes[..87]).is_none());
        assert!(GroupRecord::decode(&bytes[..72]).is_none());
        assert!(ConsumerRecord::decode(&bytes[..31]).is_none());
        assert!(StreamId::from_bytes(&bytes[..15]).is_none());
    }

    #[test]
    fn identifiers_have_neighbours() {
        assert_eq!(id(1, 2).next(), Some(id(1, 3)));
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(id(1, 2).previous(), Some(id(1, 1)));
        assert_eq!(id(1, 0).previous(), Some(id(0, u64::MAX)));
        assert_eq!(StreamId::MIN.previous(), None);
        let bytes = id(0x0102, 0x0304).to_bytes();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
        assert_eq!(StreamId::from_bytes(&bytes), Some(id(0x0102, 0x0304)));
    }
}
