//! Pages of what is pending in a group of a stream: some entries each, in the order of their
//! identifiers.
//!
//! Numbers are seven bits to a byte. An identifier is the difference to the one before it, the
//! first one to that in the page's key.

use super::{
    stream::{PendingRecord, StreamId},
    stream_member::{push_number, take_number},
};

/// The most entries of a page. With more, entries that are taken together cost less, and those
/// that are acknowledged one by one more: each writes what is left of its page again, which is 90
/// bytes on average.
pub(crate) const PAGE_ENTRIES: usize = 16;

/// Bytes of most entries: differences of identifiers and small numbers, and a time.
const ENTRY_BYTES: usize = 12;

/// The entries of a page, ascending.
pub(crate) type PageEntries = Vec<(StreamId, PendingRecord)>;

/// The value of the page whose key has the identifier `start`, which is at most that of the first
/// entry.
pub(crate) fn encode(start: StreamId, entries: &[(StreamId, PendingRecord)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * ENTRY_BYTES);
    let mut before = start;
    for (id, record) in entries {
        let ms = id.ms.wrapping_sub(before.ms);
        push_number(&mut out, ms);
        push_number(&mut out, if ms == 0 { id.seq.wrapping_sub(before.seq) } else { id.seq });
        push_number(&mut out, record.consumer);
        push_number(&mut out, record.delivered_ms);
        push_number(&mut out, record.count);
        before = *id;
    }
    out
}

/// Reads what [`encode`] made; none if it is damaged.
pub(crate) fn decode(start: StreamId, mut bytes: &[u8]) -> Option<PageEntries> {
    let (mut entries, mut before) = (PageEntries::new(), start);
    while !bytes.is_empty() {
        let (ms, seq) = (take_number(&mut bytes)?, take_number(&mut bytes)?);
        let seq = if ms == 0 { before.seq.checked_add(seq)? } else { seq };
        let id = StreamId { ms: before.ms.checked_add(ms)?, seq };
        if id == before && !entries.is_empty() {
            return None;
        }
        let record = PendingRecord {
            consumer: take_number(&mut bytes)?,
            delivered_ms: take_number(&mut bytes)?,
            count: take_number(&mut bytes)?,
        };
        entries.push((id, record));
        before = id;
    }
    (!entries.is_empty()).then_some(entries)
}

/// The consumers that have entries of a page, each once.
pub(crate) fn owners(entries: &[(StreamId, PendingRecord)]) -> Vec<u64> {
    let mut owners: Vec<u64> = entries.iter().map(|(_, record)| record.consumer).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn record(consumer: u64, delivered_ms: u64, count: u64) -> PendingRecord {
        PendingRecord { consumer, delivered_ms, count }
    }

    #[test]
    fn pages_have_their_golden_bytes() {
        let entries = [
            (id(5, 1), record(0, 300, 1)),
            (id(5, 3), record(1, 2, 3)),
            (id(7, 9), record(0, u64::MAX, 1)),
        ];
        let bytes = encode(id(5, 1), &entries);
        let last = [&[2, 9, 0][..], &[0xFF; 9], &[1, 1]].concat();
        let expected = [&[0, 0, 0, 0xAC, 2, 1][..], &[0, 2, 1, 2, 3], &last].concat();
        assert_eq!(bytes, expected);
        assert_eq!(decode(id(5, 1), &bytes), Some(entries.to_vec()));
        assert_eq!(owners(&entries), [0, 1]);
    }

    #[test]
    fn damaged_pages_are_none() {
        // None at all; cut; the same entry twice; beyond the last identifier; too many digits.
        assert_eq!(decode(id(1, 1), &[]), None);
        assert_eq!(decode(id(1, 1), &[0, 0, 0, 0]), None);
        assert_eq!(decode(id(1, 1), &[0, 0, 0, 0, 1, 0, 0, 0, 0, 1]), None);
        assert_eq!(decode(StreamId::MAX, &[1, 0, 0, 0, 1]), None);
        assert_eq!(decode(StreamId::MAX, &[0, 1, 0, 0, 1]), None);
        assert_eq!(decode(id(1, 1), &[0xFF; 30]), None);
    }

    proptest! {
        #[test]
        fn pages_are_read_back(ids in prop::collection::btree_set((any::<u64>(), any::<u64>()), 1..40), consumer in any::<u64>(), delivered_ms in any::<u64>(), count in any::<u64>(), start in any::<bool>()) {
            let record = PendingRecord { consumer, delivered_ms, count };
            let entries: PageEntries =
                ids.into_iter().map(|(ms, seq)| (id(ms, seq), record)).collect();
            let start = if start { entries[0].0 } else { StreamId::MIN };
            prop_assert_eq!(decode(start, &encode(start, &entries)), Some(entries));
        }

        #[test]
        fn any_bytes_are_a_page_or_damaged(ms in any::<u64>(), seq in any::<u64>(), bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            if let Some(entries) = decode(id(ms, seq), &bytes) {
                prop_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
            }
        }
    }
}
