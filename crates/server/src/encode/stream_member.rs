//! Keys and values of a stream's members: entries, groups, and what belongs to a group.

use super::{
    format::{
        GROUP_CONSUMER, GROUP_CONSUMER_NAME, GROUP_OWNED, GROUP_PENDING, ID_BYTES, STREAM_ENTRY,
        STREAM_GROUP, STREAM_OF_GROUP,
    },
    stream::StreamId,
};

fn key(id: u64, tag: u8, parts: [&[u8]; 2]) -> Vec<u8> {
    let mut key = Vec::with_capacity(ID_BYTES + 1 + parts[0].len() + parts[1].len());
    key.extend_from_slice(&id.to_be_bytes());
    key.push(tag);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// The key of an entry.
pub(crate) fn entry(id: u64, entry: StreamId) -> Vec<u8> {
    key(id, STREAM_ENTRY, [&entry.to_bytes(), &[]])
}

/// The identifier in the key of an entry.
pub(crate) fn entry_of(key: &[u8]) -> Option<StreamId> {
    StreamId::from_bytes(key.get(ID_BYTES + 1..)?)
}

/// The key of a group; without a name the front of the keys of all groups.
pub(crate) fn group(id: u64, name: &[u8]) -> Vec<u8> {
    key(id, STREAM_GROUP, [name, &[]])
}

/// The name in the key of a group.
pub(crate) fn group_of(key: &[u8]) -> &[u8] {
    key.get(ID_BYTES + 1..).unwrap_or_default()
}

/// The front of the keys of all that belongs to a group: the stream's number and the group's.
pub(crate) fn of_group(id: u64, group: u64) -> Vec<u8> {
    key(id, STREAM_OF_GROUP, [&group.to_be_bytes(), &[]])
}

/// Where in a key of a group's member its own part begins.
const OWN: usize = ID_BYTES + 1 + 8 + 1;

fn member(id: u64, group: u64, tag: u8, parts: [&[u8]; 2]) -> Vec<u8> {
    let mut key = Vec::with_capacity(OWN + parts[0].len() + parts[1].len());
    key.extend_from_slice(&of_group(id, group));
    key.push(tag);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// The key of a consumer; without a name the front of the keys of all consumers.
pub(crate) fn consumer(id: u64, group: u64, name: &[u8]) -> Vec<u8> {
    member(id, group, GROUP_CONSUMER, [name, &[]])
}

/// The name in the key of a consumer.
pub(crate) fn consumer_of(key: &[u8]) -> &[u8] {
    key.get(OWN..).unwrap_or_default()
}

/// The key whose value is the name of a consumer.
pub(crate) fn consumer_name(id: u64, group: u64, consumer: u64) -> Vec<u8> {
    member(id, group, GROUP_CONSUMER_NAME, [&consumer.to_be_bytes(), &[]])
}

/// The key of a page of pending entries, by where it begins.
pub(crate) fn pending(id: u64, group: u64, entry: StreamId) -> Vec<u8> {
    member(id, group, GROUP_PENDING, [&entry.to_bytes(), &[]])
}

/// The identifier in the key of such a page.
pub(crate) fn pending_of(key: &[u8]) -> Option<StreamId> {
    StreamId::from_bytes(key.get(OWN..)?)
}

/// The key that says that a consumer has entries of a page; its value is empty.
pub(crate) fn owned(id: u64, group: u64, consumer: u64, entry: StreamId) -> Vec<u8> {
    member(id, group, GROUP_OWNED, [&consumer.to_be_bytes(), &entry.to_bytes()])
}

/// The identifier in the key that [`owned`] made.
pub(crate) fn owned_of(key: &[u8]) -> Option<StreamId> {
    StreamId::from_bytes(key.get(OWN + 8..)?)
}

/// Appends a number, seven bits to a byte, the lowest first; the high bit says that more follow.
pub(super) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes what [`push_number`] appended; none if it is cut, or no number of 64 bits.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift > 63 || (shift == 63 && *first > 1) {
            return None;
        }
        number |= u64::from(first & 0x7F) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_number(bytes)?).ok()
}

/// The value of an entry: how many fields and values there are together, and each with its length
/// before it.
pub(crate) fn encode_fields<'f>(fields: impl ExactSizeIterator<Item = &'f [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    push_number(&mut out, fields.len() as u64);
    for field in fields {
        push_number(&mut out, field.len() as u64);
        out.extend_from_slice(field);
    }
    out
}

/// The fields and values of an entry, one after the other; none in the place of what is damaged.
pub(crate) struct Fields<'a> {
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads the value of an entry; none if it cannot be one.
    pub(crate) fn of(mut bytes: &'a [u8]) -> Option<Self> {
        let left = take_length(&mut bytes)?;
        // Each has a length of a byte at least.
        (left <= bytes.len()).then_some(Self { left, bytes })
    }

    /// How many fields and values are left.
    pub(crate) fn len(&self) -> usize {
        self.left
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        self.left = self.left.checked_sub(1)?;
        let len = take_length(&mut self.bytes);
        let taken = len.and_then(|len| self.bytes.split_at_checked(len));
        Some(taken.map(|(field, rest)| {
            self.bytes = rest;
            field
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_have_their_golden_bytes() {
        let (stream, group_number) = ([0, 0, 0, 0, 0, 0, 1, 2], [0, 0, 0, 0, 0, 0, 0, 3]);
        let id = StreamId { ms: 4, seq: 5 };
        let id_bytes = [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(entry(0x0102, id), [&stream[..], &[0], &id_bytes].concat());
        assert_eq!(group(0x0102, b"g"), [&stream[..], &[1], b"g"].concat());
        let front = [&stream[..], &[2], &group_number].concat();
        assert_eq!(of_group(0x0102, 3), front);
        assert_eq!(consumer(0x0102, 3, b"c"), [&front[..], &[0], b"c"].concat());
        let six = [0, 0, 0, 0, 0, 0, 0, 6];
        assert_eq!(consumer_name(0x0102, 3, 6), [&front[..], &[1], &six].concat());
        assert_eq!(pending(0x0102, 3, id), [&front[..], &[2], &id_bytes].concat());
        assert_eq!(owned(0x0102, 3, 6, id), [&front[..], &[3], &six, &id_bytes].concat());
    }

    #[test]
    fn fields_have_their_golden_bytes() {
        let long = vec![b'x'; 300];
        let value = encode_fields([&b"a"[..], &long].into_iter());
        assert_eq!(value[..5], [2, 1, b'a', 0xAC, 2]);
        assert_eq!(value.len(), 305);
    }

    #[test]
    fn damaged_fields_are_none() {
        for bytes in [&[][..], &[0x80], &[2, 0], &[0xFF; 20], &[0x80; 3]] {
            assert!(Fields::of(bytes).is_none(), "{bytes:?}");
        }
        let all: Vec<_> = Fields::of(&[2, 9, b'a']).unwrap().collect();
        assert_eq!(all, [None, None]);
    }

    proptest! {
        #[test]
        fn fields_are_read_back(fields in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..9)) {
            let value = encode_fields(fields.iter().map(Vec::as_slice));
            let read: Option<Vec<&[u8]>> = Fields::of(&value).unwrap().collect();
            prop_assert_eq!(read, Some(fields.iter().map(Vec::as_slice).collect()));
        }

        #[test]
        fn names_and_identifiers_are_read_back(id in any::<u64>(), number in any::<u64>(), ms in any::<u64>(), seq in any::<u64>(), name in prop::collection::vec(any::<u8>(), 0..20)) {
            let at = StreamId { ms, seq };
            prop_assert_eq!(entry_of(&entry(id, at)), Some(at));
            prop_assert_eq!(pending_of(&pending(id, number, at)), Some(at));
            prop_assert_eq!(owned_of(&owned(id, number, 7, at)), Some(at));
            let (group, consumer) = (group(id, &name), consumer(id, number, &name));
            prop_assert_eq!(group_of(&group), &name[..]);
            prop_assert_eq!(consumer_of(&consumer), &name[..]);
        }
    }
}
