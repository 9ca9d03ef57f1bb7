//! Reads data blocks: any entry in O(1), a key by its tag, a place in the order by bisection.

use std::cmp::Ordering;

use rhumb_sync::prefetch::{LINE_BYTES, prefetch};

use crate::{
    expiry::STAMP_BYTES,
    table::{
        bracket::Side,
        format::{BLOCK_GROUP, BLOCK_HEADER_BYTES, BLOCK_WIDE_OFFSETS},
        hash::KeyHash,
    },
    types::{Kind, SeqNo},
    varint,
};

/// The largest number of bytes of an entry that are prefetched before it is read; the processor's
/// own prefetcher fetches what follows.
const LIKELY_BYTES_MAX: usize = 4 * LINE_BYTES;

/// A fault in a block whose checksum is right: it was written by a faulty or hostile program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub(crate) &'static str);

/// A place in the order of entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeekTarget<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: SeqNo,
}

/// An entry of a block. Its key is the first `shared` bytes of the key of its group's first entry,
/// then `suffix`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) shared: usize,
    pub(crate) suffix: &'a [u8],
    pub(crate) seq: SeqNo,
    pub(crate) kind: Kind,
    /// Where the value starts within the block's payload.
    pub(crate) value_start: usize,
    pub(crate) value_len: usize,
}

/// The answer of a point lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) seq: SeqNo,
    pub(crate) kind: Kind,
    /// Where the value lies within the block's payload.
    pub(crate) value_start: usize,
    pub(crate) value_len: usize,
}

/// The number of an entry within its block, from 0 to the count of entries.
pub(crate) type Position = usize;

/// The decoded head of a block, checked against the payload's length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    count: usize,
    interval: usize,
    /// The bytes of an entry's offset: 2 or 4.
    offset_bytes: usize,
    entries_start: usize,
}

/// A block's payload with its head decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockView<'a> {
    bytes: &'a [u8],
    shape: Shape,
}

impl Shape {
    /// Reads the head of a block and checks that its arrays lie within the payload. O(1).
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Damaged> {
        let Some((head, _)) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>() else {
            return Err(Damaged("a block header"));
        };
        let count = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let interval = usize::from(head[4]);
        if interval == 0 || head[5] & !BLOCK_WIDE_OFFSETS != 0 {
            return Err(Damaged("a restart interval and known flags"));
        }
        let offset_bytes = if head[5] & BLOCK_WIDE_OFFSETS == 0 { 2 } else { 4 };
        let entries_start =
            count.saturating_mul(1 + offset_bytes).saturating_add(BLOCK_HEADER_BYTES);
        if entries_start > bytes.len() {
            return Err(Damaged("a directory of as many entries"));
        }
        Ok(Self { count, interval, offset_bytes, entries_start })
    }

    /// The block's payload with this head, which must have been read from it.
    #[inline]
    pub(crate) fn view(self, bytes: &[u8]) -> BlockView<'_> {
        BlockView { bytes, shape: self }
    }
}

impl<'a> BlockView<'a> {
    /// Reads the head of a block. O(1).
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Damaged> {
        Ok(Self { bytes, shape: Shape::read(bytes)? })
    }

    /// The number of entries in the block.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.shape.count
    }

    /// The first entry of the group of entry `position`.
    #[inline]
    pub(crate) fn group_head(&self, position: Position) -> Position {
        position - position % self.shape.interval
    }

    /// Decodes an entry. O(1).
    #[inline(always)]
    pub(crate) fn entry(&self, position: Position) -> Result<Entry<'a>, Damaged> {
        let offset = self.offset(position);
        let entry = offset.and_then(|offset| self.decode(self.shape.entries_start + offset));
        entry.ok_or(Damaged("an entry within the block"))
    }

    /// Decodes the entry that follows one whose value ends at `end`. O(1), without the directory.
    #[inline]
    pub(crate) fn entry_at(&self, end: usize) -> Result<Entry<'a>, Damaged> {
        self.decode(end).ok_or(Damaged("an entry within the block"))
    }

    /// The whole key of a group's first entry.
    #[inline]
    pub(crate) fn head_key(&self, head: Position) -> Result<&'a [u8], Damaged> {
        let entry = self.entry(head)?;
        if entry.shared != 0 {
            return Err(Damaged("a whole key at the head of a group"));
        }
        Ok(entry.suffix)
    }

    /// The first `shared` bytes of the key at the head of the group of entry `position`.
    #[inline]
    pub(crate) fn shared_prefix(
        &self,
        position: Position,
        shared: usize,
    ) -> Result<&'a [u8], Damaged> {
        if shared == 0 {
            return Ok(&[]);
        }
        let head = self.head_key(self.group_head(position))?;
        head.get(..shared).ok_or(Damaged("a prefix no longer than the key it is taken from"))
    }

    /// Finds the newest version of `key` that a reader at `seq` sees.
    ///
    /// Compares eight tags at a time and touches only entries whose tag matches: the one that holds
    /// the key, and any other with probability 1/256. O(entries/8).
    #[inline]
    pub(crate) fn find(
        &self,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Result<Option<Found>, Damaged> {
        let pattern = u64::from_ne_bytes([hash.tag(); 8]);
        let mut group = 0;
        while group < self.shape.count {
            let mut matches = zero_bytes(self.tag_word(group) ^ pattern);
            while matches != 0 {
                let position = group + matches.trailing_zeros() as usize / 8;
                matches &= matches - 1;
                if position >= self.shape.count {
                    break;
                }
                // The caller reads its value next.
                self.prefetch_entry(position, LINE_BYTES);
                let entry = self.entry(position)?;
                if !self.has_key(position, &entry, key)? {
                    continue;
                }
                if entry.seq <= seq {
                    return Ok(Some(entry.found()));
                }
                return self.find_older(SeekTarget { key, seq });
            }
            group += BLOCK_GROUP;
        }
        Ok(None)
    }

    /// Prefetches the lines of the entry that [`BlockView::find`] looks at first, and of the first
    /// key of its group. O(entries/8).
    #[inline]
    pub(crate) fn prefetch_likely(&self, hash: KeyHash) {
        let pattern = u64::from_ne_bytes([hash.tag(); 8]);
        let groups = (0..self.shape.count).step_by(BLOCK_GROUP);
        let matched = groups.map(|group| (group, zero_bytes(self.tag_word(group) ^ pattern)));
        let Some((group, matches)) = matched.into_iter().find(|(_, some)| *some != 0) else {
            return;
        };
        let position = group + matches.trailing_zeros() as usize / 8;
        let head = self.group_head(position);
        self.prefetch_entry(position, 0);
        if head != position {
            self.prefetch_entry(head, 0);
        }
    }

    /// Prefetches the lines of an entry from its byte `from` on, as far as the directory tells its
    /// length.
    #[inline(always)]
    fn prefetch_entry(&self, position: Position, from: usize) {
        let Some(start) = self.offset(position) else { return };
        let end = self.offset(position + 1).unwrap_or(start + LINE_BYTES);
        let end = end.min(start + LIKELY_BYTES_MAX);
        for at in (start + from..end + LINE_BYTES - 1).step_by(LINE_BYTES) {
            let line = self.bytes.get(self.shape.entries_start + at.min(end.saturating_sub(1)));
            line.into_iter().for_each(prefetch);
        }
    }

    /// Continues [`BlockView::find`] after a version that is too new: there may be thousands of
    /// those.
    #[cold]
    fn find_older(&self, target: SeekTarget<'_>) -> Result<Option<Found>, Damaged> {
        let position = self.lower_bound(target)?;
        if position == self.shape.count {
            return Ok(None);
        }
        let entry = self.entry(position)?;
        let same = self.has_key(position, &entry, target.key)?;
        Ok((same && entry.seq <= target.seq).then(|| entry.found()))
    }

    /// The first entry at or after `target`, or the count of entries. O(log entries).
    pub(crate) fn lower_bound(&self, target: SeekTarget<'_>) -> Result<Position, Damaged> {
        // The last group whose head is before the target holds the bound, or is followed by it.
        let mut low = 0;
        let mut high = self.shape.count.div_ceil(self.shape.interval);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.is_before(middle * self.shape.interval, target)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == 0 {
            return Ok(0);
        }
        let mut high = self.shape.count.min(low * self.shape.interval);
        let mut low = (low - 1) * self.shape.interval + 1;
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.is_before(middle, target)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns on which side of the block's entries the versions of `key` belong, which are all in
    /// one block; [`Side::Within`] if the first or the last entry is one of them. O(key).
    pub(crate) fn side_of(&self, key: &[u8]) -> Result<Side, Damaged> {
        let Some(last) = self.shape.count.checked_sub(1) else { return Ok(Side::Empty) };
        if key < self.head_key(0)? {
            return Ok(Side::Behind);
        }
        // A target with this sequence number is before all versions of its key.
        let is_above = self.is_before(last, SeekTarget { key, seq: SeqNo::MAX })?;
        Ok(if is_above { Side::Before } else { Side::Within })
    }

    /// Returns true if entry `position` is before `target`.
    fn is_before(&self, position: Position, target: SeekTarget<'_>) -> Result<bool, Damaged> {
        let entry = self.entry(position)?;
        let prefix = self.shared_prefix(position, entry.shared)?;
        let order = match target.key.get(..entry.shared) {
            Some(start) => {
                prefix.cmp(start).then_with(|| entry.suffix.cmp(&target.key[entry.shared..]))
            }
            None => prefix.cmp(target.key),
        };
        Ok(order.then(target.seq.cmp(&entry.seq)) == Ordering::Less)
    }

    #[inline]
    fn has_key(&self, position: Position, entry: &Entry<'_>, key: &[u8]) -> Result<bool, Damaged> {
        if key.len() != entry.shared + entry.suffix.len()
            || !equal(&key[entry.shared..], entry.suffix)
        {
            return Ok(false);
        }
        Ok(entry.shared == 0 || self.shared_prefix(position, entry.shared)? == &key[..entry.shared])
    }

    /// The tags of entries `group..group + 8`, the first in the lowest byte. Those past the count
    /// of entries are arbitrary.
    #[inline]
    fn tag_word(&self, group: Position) -> u64 {
        let tags = &self.bytes[self.group_start(group)..];
        if let Some((word, _)) = tags.split_first_chunk() {
            return u64::from_le_bytes(*word);
        }
        let mut word = [0; 8];
        word[..tags.len()].copy_from_slice(tags);
        u64::from_le_bytes(word)
    }

    /// Where the directory's group begins whose first entry is `group`.
    #[inline]
    fn group_start(&self, group: Position) -> usize {
        BLOCK_HEADER_BYTES + group * (1 + self.shape.offset_bytes)
    }

    #[inline]
    fn offset(&self, position: Position) -> Option<usize> {
        if position >= self.shape.count {
            return None;
        }
        let group = position - position % BLOCK_GROUP;
        let tags = (self.shape.count - group).min(BLOCK_GROUP);
        let at = self.group_start(group) + tags + (position - group) * self.shape.offset_bytes;
        let bytes = self.bytes.get(at..at + self.shape.offset_bytes)?;
        Some(match *bytes {
            [a, b] => usize::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => return None,
        })
    }

    /// Decodes the entry that starts at `at`. Inlined, because a call would return seven numbers in
    /// memory.
    #[inline(always)]
    fn decode(&self, at: usize) -> Option<Entry<'a>> {
        const CONTINUED: u32 = 0x8080_8080;
        let Some(&head) = self.bytes.get(at..)?.first_chunk() else { return self.decode_long(at) };
        let [shared, suffix_len, word, value_len] = head;
        // Most entries have four numbers of one byte each, and a value.
        if u32::from_le_bytes(head) & CONTINUED != 0 || word & 3 == Kind::Tombstone as u8 {
            return self.decode_long(at);
        }
        let kind = Kind::from_byte(word & 3)?;
        let (shared, value_len) = (usize::from(shared), usize::from(value_len));
        let (at, seq) = (at + 4, SeqNo::from(word >> 2));
        self.assemble(at, shared, usize::from(suffix_len), seq, kind, value_len)
    }

    /// [`BlockView::decode`] for numbers of any length.
    #[inline(never)]
    fn decode_long(&self, mut at: usize) -> Option<Entry<'a>> {
        let mut number = || {
            let (value, len) = varint::get(self.bytes.get(at..)?)?;
            at += len;
            Some(value)
        };
        let shared = usize::try_from(number()?).ok()?;
        let suffix_len = usize::try_from(number()?).ok()?;
        let word = number()?;
        let kind = Kind::from_byte((word & 3) as u8)?;
        let value_len =
            if kind == Kind::Tombstone { 0 } else { usize::try_from(number()?).ok()? };
        if shared > self.bytes.len() {
            return None;
        }
        self.assemble(at, shared, suffix_len, word >> 2, kind, value_len)
    }

    #[inline]
    fn assemble(
        &self,
        at: usize,
        shared: usize,
        suffix_len: usize,
        seq: SeqNo,
        kind: Kind,
        value_len: usize,
    ) -> Option<Entry<'a>> {
        if kind == Kind::Expiring && value_len < STAMP_BYTES {
            return None;
        }
        let value_start = at.checked_add(suffix_len)?;
        let suffix = self.bytes.get(at..value_start)?;
        if value_start.checked_add(value_len)? > self.bytes.len() {
            return None;
        }
        Some(Entry { shared, suffix, seq, kind, value_start, value_len })
    }
}

impl Entry<'_> {
    #[inline]
    fn found(&self) -> Found {
        Found {
            seq: self.seq,
            kind: self.kind,
            value_start: self.value_start,
            value_len: self.value_len,
        }
    }
}

/// Returns true if two strings of one length are equal; compares them word by word. A caller has
/// often just stored its key in words, and a wider load would wait for those stores to leave the
/// store buffer.
#[inline]
fn equal(a: &[u8], b: &[u8]) -> bool {
    let (a_words, a_rest) = a.as_chunks::<8>();
    let (b_words, b_rest) = b.as_chunks::<8>();
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    a_words.iter().zip(b_words).all(|(a, b)| word(a) == word(b)) && a_rest.iter().eq(b_rest)
}

/// A word with the high bit set in exactly those bytes that are zero in `word`.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x7f; 8]);
    // Adding 0x7f to the low seven bits carries into the high bit unless they are all zero, and
    // never into the next byte.
    !(((word & LOW) + LOW) | word | LOW)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::table::block::BlockBuilder;

    type Model = BTreeMap<(Vec<u8>, u64), (Kind, Vec<u8>)>;

    /// Keys order ascending and versions descending, so the model's versions are complements.
    fn model() -> impl Strategy<Value = Model> {
        let key = prop_oneof![
            3 => vec(prop_oneof![Just(0_u8), Just(1), Just(255)], 0..12),
            1 => vec(any::<u8>(), 0..40),
        ];
        let kind = prop_oneof![
            4 => Just(Kind::Value),
            1 => Just(Kind::Tombstone),
            1 => Just(Kind::LargeValue),
            1 => Just(Kind::Expiring),
        ];
        let value = prop_oneof![9 => vec(any::<u8>(), 0..30), 1 => vec(any::<u8>(), 3000..9000)];
        let entry = ((key, 0_u64..6), (kind, value));
        vec(entry, 0..120).prop_map(|entries| {
            entries
                .into_iter()
                .map(|((key, seq), (kind, value))| {
                    let value = match kind {
                        Kind::Tombstone => Vec::new(),
                        Kind::Expiring => [&[7; STAMP_BYTES], &value[..]].concat(),
                        _ => value,
                    };
                    ((key, u64::MAX - seq), (kind, value))
                })
                .collect()
        })
    }

    fn encode(model: &Model, interval: u8) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval);
        for ((key, seq), (kind, value)) in model {
            builder.add(key, KeyHash::of(key).tag(), u64::MAX - seq, *kind, value);
        }
        let expected = builder.encoded_bytes();
        let mut bytes = vec![];
        builder.finish(&mut bytes);
        assert_eq!(bytes.len(), expected);
        bytes
    }

    fn key_of(view: &BlockView<'_>, position: Position) -> Vec<u8> {
        let entry = view.entry(position).unwrap();
        let mut key = view.shared_prefix(position, entry.shared).unwrap().to_vec();
        key.extend_from_slice(entry.suffix);
        key
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn a_block_answers_as_a_map_does(
            model in model(), interval in 1_u8..20, probes in vec(vec(0_u8..3, 0..6), 0..20)
        ) {
            let bytes = encode(&model, interval);
            let view = BlockView::parse(&bytes).unwrap();
            prop_assert_eq!(view.count(), model.len());
            for (position, ((key, seq), (kind, value))) in model.iter().enumerate() {
                let entry = view.entry(position).unwrap();
                prop_assert_eq!(&key_of(&view, position), key);
                prop_assert_eq!((u64::MAX - entry.seq, entry.kind), (*seq, *kind));
                let found = &bytes[entry.value_start..][..entry.value_len];
                prop_assert_eq!(found, &value[..]);
            }
            let known = model.keys().map(|(key, _)| key.clone());
            for key in known.chain(probes) {
                for seq in 0..7 {
                    let from = (key.clone(), u64::MAX - seq);
                    let expected = model.keys().take_while(|k| **k < from).count();
                    let target = SeekTarget { key: &key, seq };
                    prop_assert_eq!(view.lower_bound(target).unwrap(), expected);
                    let newest = model.range(from..).next().filter(|(k, _)| k.0 == key);
                    let found = view.find(&key, KeyHash::of(&key), seq).unwrap();
                    prop_assert_eq!(
                        found.map(|f| (u64::MAX - f.seq, f.kind, f.value_len)),
                        newest.map(|((_, s), (kind, value))| (*s, *kind, value.len()))
                    );
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in vec(any::<u8>(), 0..300), n in 0_u8..60) {
            read_everything(&bytes);
            if bytes.len() >= BLOCK_HEADER_BYTES {
                bytes[..BLOCK_HEADER_BYTES].copy_from_slice(&[n, 0, 0, 0, 3, 0]);
                read_everything(&bytes);
            }
        }

        #[test]
        fn a_changed_byte_never_panics(
            model in model(), interval in 1_u8..20, at: prop::sample::Index, to: u8
        ) {
            let mut bytes = encode(&model, interval);
            let at = at.index(bytes.len());
            bytes[at] = to;
            read_everything(&bytes);
        }
    }

    fn read_everything(bytes: &[u8]) {
        let Ok(view) = BlockView::parse(bytes) else { return };
        for position in 0..view.count() {
            if let Ok(entry) = view.entry(position) {
                let _ = view.shared_prefix(position, entry.shared);
                assert!(entry.value_start + entry.value_len <= bytes.len());
            }
        }
        for key in [&b""[..], b"\0", b"\x01\0", b"\xff\xff"] {
            let _ = view.lower_bound(SeekTarget { key, seq: 3 });
            let _ = view.find(key, KeyHash::of(key), 3);
        }
    }

    #[test]
    fn zero_bytes_are_found_exactly() {
        for word in [0, 1, 0x0100, 0x8000_0080, u64::MAX, 0x0001_0080_ff00_7f01] {
            let expected = word.to_le_bytes().map(|byte| if byte == 0 { 0x80 } else { 0 });
            assert_eq!(zero_bytes(word), u64::from_le_bytes(expected));
        }
    }

    #[test]
    fn thousands_of_versions_are_bisected() {
        let mut builder = BlockBuilder::new(16);
        for seq in (0..20_000).rev() {
            builder.add(b"key", KeyHash::of(b"key").tag(), seq, Kind::Value, b"value");
        }
        let mut bytes = vec![];
        builder.finish(&mut bytes);
        let view = BlockView::parse(&bytes).unwrap();
        for seq in [0, 1, 7_777, 19_999, 30_000] {
            let found = view.find(b"key", KeyHash::of(b"key"), seq).unwrap().unwrap();
            assert_eq!(found.seq, seq.min(19_999));
        }
    }
}
