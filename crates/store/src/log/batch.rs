//! Batches of writes on their way to the log: they are encoded here, and their bytes go to the
//! memtable and to the log as they are. The bytes are in [`super::format::batch`].

use rhumb_sync::{
    arena::Arena,
    primitive::Arc,
    record::{Record, Records},
};

pub(crate) use super::format::batch::{Batch, BatchOp, BatchOps, RangeEnd};
use super::format::{
    batch::{
        self as batch_bytes, BATCH_HEADER_BYTES, EXPIRING, OP_OVERHEAD_BYTES_MAX, OPEN_RANGE, RANGE,
    },
    frame::PAYLOAD_BYTES_MAX,
};
use crate::{
    error::{Error, Result},
    expiry::STAMP_BYTES,
    types::{KEY_BYTES_MAX, Kind, SeqNo, TreeId, VALUE_BYTES_MAX},
};

/// Builds a payload by appending operations to one buffer.
#[derive(Clone, Debug)]
pub(crate) struct BatchBuilder {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch.
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; BATCH_HEADER_BYTES], count: 0 }
    }

    /// An empty batch with room for `bytes` bytes of operations.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(bytes.saturating_add(BATCH_HEADER_BYTES));
        buffer.resize(BATCH_HEADER_BYTES, 0);
        Self { bytes: buffer, count: 0 }
    }

    /// Appends "`key` has `value`". Fails with [`Error::InvalidArgument`], changing nothing, if
    /// key, value or the whole batch would be too large.
    pub(crate) fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_parts(tree, key, &[value])
    }

    /// As [`BatchBuilder::put`], for a value in parts.
    pub(crate) fn put_parts(&mut self, tree: TreeId, key: &[u8], value: &[&[u8]]) -> Result<()> {
        self.put_kind(tree, Kind::Value, key, value)
    }

    /// As [`BatchBuilder::put`], for a value in parts of kind [`Kind::Value`] or
    /// [`Kind::Expiring`], of which the first part begins with the stamp.
    pub(crate) fn put_kind(
        &mut self,
        tree: TreeId,
        kind: Kind,
        key: &[u8],
        value: &[&[u8]],
    ) -> Result<()> {
        let len = len_of(value);
        self.check_room(key.len(), len.saturating_sub(stamp_bytes(kind)))?;
        if len >= IN_PLACE_BYTES_MIN {
            // A buffer that doubled would be up to twice as large as its contents.
            self.bytes.reserve_exact(key.len() + len + OP_OVERHEAD_BYTES_MAX);
        }
        self.put_key(tree, byte_of(kind), key);
        batch_bytes::put_len(&mut self.bytes, len);
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(())
    }

    /// Appends "`key` is removed". Fails as [`BatchBuilder::put`] does.
    pub(crate) fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.check_room(key.len(), 0)?;
        self.put_key(tree, Kind::Tombstone as u8, key);
        Ok(())
    }

    /// Appends "all keys from `from` on and before `to` are removed"; without `to`, all from `from`
    /// on. Fails as [`BatchBuilder::put`] does, and if no key lies between them.
    pub(crate) fn remove_range(
        &mut self,
        tree: TreeId,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<()> {
        let end = to.unwrap_or_default();
        check_lengths(end.len(), 0)?;
        if to.is_some_and(|to| to <= from) {
            return Err(Error::InvalidArgument("a range that ends before it begins".into()));
        }
        self.check_room(from.len(), end.len())?;
        self.put_key(tree, if to.is_some() { RANGE } else { OPEN_RANGE }, from);
        if to.is_some() {
            batch_bytes::put_len(&mut self.bytes, end.len());
            self.bytes.extend_from_slice(end);
        }
        Ok(())
    }

    /// Appends an operation of another payload, for the LSM tree `tree`. Fails as
    /// [`BatchBuilder::put`] does.
    pub(crate) fn push_again(&mut self, tree: TreeId, op: &BatchOp, payload: &[u8]) -> Result<()> {
        match op.range {
            None => self.push(tree, op.kind, op.key(payload), op.value(payload)),
            Some(_) => self.remove_range(tree, op.key(payload), op.range_end(payload)),
        }
    }

    /// Appends an operation of kind `kind`. Fails as [`BatchBuilder::put`] does.
    pub(crate) fn push(
        &mut self,
        tree: TreeId,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        match kind {
            Kind::Tombstone => self.remove(tree, key),
            Kind::Value | Kind::LargeValue => self.put(tree, key, value),
            Kind::Expiring => self.put_kind(tree, kind, key, &[value]),
        }
    }

    /// Refuses an operation whose key and value, of these lengths, do not fit.
    fn check_room(&self, key: usize, value: usize) -> Result<()> {
        check_lengths(key, value)?;
        let room = PAYLOAD_BYTES_MAX - self.bytes.len();
        if key + value + OP_OVERHEAD_BYTES_MAX > room || self.count == u32::MAX {
            return Err(Error::InvalidArgument(
                format!("a batch of over {PAYLOAD_BYTES_MAX} bytes: split it").into(),
            ));
        }
        Ok(())
    }

    fn put_key(&mut self, tree: TreeId, kind: u8, key: &[u8]) {
        self.bytes.reserve(key.len() + OP_OVERHEAD_BYTES_MAX);
        batch_bytes::put_key(&mut self.bytes, tree, kind, key);
        self.count += 1;
    }

    /// The number of operations.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Gives the first operation the sequence number `first_seq`, and the others those after it.
    /// The payload is then whole. May be called again.
    pub(crate) fn seal(&mut self, first_seq: SeqNo) -> &[u8] {
        batch_bytes::set_first_seq(&mut self.bytes, first_seq);
        batch_bytes::set_count(&mut self.bytes, self.count);
        &self.bytes
    }

    /// The whole payload; [`Encoded::set_first_seq`] sets its sequence numbers.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.seal(0);
        self.bytes
    }
}

/// Records of values of at least this many bytes are built where they stay. For smaller values, a
/// copy costs less than the second pass over fresh memory.
pub(crate) const IN_PLACE_BYTES_MIN: usize = 64 << 10;

/// Owned values below this are copied all the same. The memory of a smaller one would be freed much
/// later, by another thread, in the heap of the thread that allocated it, and stay with the
/// process. From here on, glibc's allocator takes every block directly from the system (this is the
/// largest value that its threshold can reach).
const GIVEN_BYTES_MIN: usize = 32 << 20;

/// A whole payload on its way to the log and the memtable; [`Encoded::set_first_seq`] sets its
/// sequence numbers.
pub(crate) enum Encoded {
    /// Bytes that a memtable copies, unless there are at least [`IN_PLACE_BYTES_MIN`].
    Bytes(Vec<u8>),
    /// A record that a memtable keeps as it is.
    Record(Record),
}

impl Encoded {
    /// The record of the payload. Fewer than [`IN_PLACE_BYTES_MIN`] bytes are copied into
    /// `records`; more are moved out of this.
    pub(crate) fn keep_in(&mut self, records: &mut Records) -> Record {
        match self {
            Self::Bytes(bytes) if bytes.len() < IN_PLACE_BYTES_MIN => records.keep(bytes),
            Self::Bytes(bytes) => Record::given(std::mem::take(bytes)),
            Self::Record(record) => record.clone(),
        }
    }

    /// The payload of one operation. A small value is encoded by a [`BatchBuilder`]; a large one is
    /// copied once, into memory of `arena`. Fails as [`BatchBuilder::put`] does.
    pub(crate) fn of(
        arena: &Arc<Arena>,
        tree: TreeId,
        kind: Kind,
        key: &[u8],
        value: &[&[u8]],
    ) -> Result<Self> {
        let len = len_of(value);
        if len < IN_PLACE_BYTES_MIN {
            let mut builder = BatchBuilder::with_capacity(key.len() + len + 16);
            match kind {
                Kind::Tombstone => builder.remove(tree, key)?,
                _ => builder.put_kind(tree, kind, key, value)?,
            }
            return Ok(Self::Bytes(builder.finish()));
        }
        let head = head_of(tree, kind, key, len)?;
        let parts: Vec<&[u8]> = std::iter::once(&head[..]).chain(value.iter().copied()).collect();
        Ok(Self::Record(Record::placed(arena, &parts)))
    }

    /// The payload of an insertion of an owned value. A very large value stays in its memory, and
    /// the payload's head is put in front of it. Fails as [`BatchBuilder::put`] does.
    pub(crate) fn of_owned(
        arena: &Arc<Arena>,
        tree: TreeId,
        key: &[u8],
        mut value: Vec<u8>,
    ) -> Result<Self> {
        if value.len() < GIVEN_BYTES_MIN {
            return Self::of(arena, tree, Kind::Value, key, &[&value]);
        }
        let head = head_of(tree, Kind::Value, key, value.len())?;
        let len = value.len();
        // Exactly that much: a vector that doubled would take twice as much.
        value.reserve_exact(head.len());
        value.resize(len + head.len(), 0);
        value.copy_within(..len, head.len());
        value[..head.len()].copy_from_slice(&head);
        Ok(Self::Bytes(value))
    }

    /// Gives the first operation the sequence number `first_seq`, and the others those after it.
    pub(crate) fn set_first_seq(&mut self, first_seq: SeqNo) -> Result<()> {
        let bytes = match self {
            Self::Bytes(bytes) => Some(&mut bytes[..]),
            Self::Record(record) => record.get_mut(),
        };
        let shared = || Error::Internal("a record that was not committed is shared".into());
        batch_bytes::set_first_seq(bytes.ok_or_else(shared)?, first_seq);
        Ok(())
    }

    /// The payload.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Record(record) => record,
        }
    }
}

fn len_of(value: &[&[u8]]) -> usize {
    value.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()))
}

/// The bytes of a value of this kind that are not the user's.
fn stamp_bytes(kind: Kind) -> usize {
    if kind == Kind::Expiring { STAMP_BYTES } else { 0 }
}

/// The byte of an insertion of this kind.
fn byte_of(kind: Kind) -> u8 {
    if kind == Kind::Expiring { EXPIRING } else { Kind::Value as u8 }
}

/// The bytes before the value in the payload of one insertion, of a value of `len` bytes.
fn head_of(tree: TreeId, kind: Kind, key: &[u8], len: usize) -> Result<Vec<u8>> {
    check_lengths(key.len(), len.saturating_sub(stamp_bytes(kind)))?;
    let mut head = BatchBuilder::with_capacity(key.len() + OP_OVERHEAD_BYTES_MAX);
    head.put_key(tree, byte_of(kind), key);
    batch_bytes::put_len(&mut head.bytes, len);
    Ok(head.finish())
}

/// Refuses keys and values that are too long; the error names which.
pub(crate) fn check_entry(key: &[u8], value: &[u8]) -> Result<()> {
    check_lengths(key.len(), value.len())
}

/// Refuses a key or a value that is too long.
pub(crate) fn check_lengths(key: usize, value: usize) -> Result<()> {
    if key > KEY_BYTES_MAX {
        return Err(Error::InvalidArgument(
            format!("a key of {key} bytes: the longest is {KEY_BYTES_MAX}").into(),
        ));
    }
    if value > VALUE_BYTES_MAX {
        return Err(Error::InvalidArgument(
            format!("a value of {value} bytes: the longest is {VALUE_BYTES_MAX}").into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::Stamp;
    use proptest::{collection::vec, prelude::*};

    #[derive(Clone, Debug, PartialEq)]
    enum What {
        Put(Vec<u8>),
        /// The value expires at this time.
        PutUntil(u64, Vec<u8>),
        Remove,
        /// A removal of the keys from the key on, up to this one.
        RemoveRange(Option<Vec<u8>>),
    }

    type Model = (TreeId, Vec<u8>, What);

    fn model() -> impl Strategy<Value = Vec<Model>> {
        let value = || vec(any::<u8>(), 0..300);
        let what = prop_oneof![
            value().prop_map(What::Put),
            (0..1_u64 << 63, value()).prop_map(|(at, value)| What::PutUntil(at, value)),
            Just(What::Remove),
            Just(What::RemoveRange(None)),
            value().prop_map(|tail| What::RemoveRange(Some(tail))),
        ];
        let operation = (any::<u32>(), vec(any::<u8>(), 0..40), what);
        vec(
            operation.prop_map(|(tree, key, what)| match what {
                // An end after the key.
                What::RemoveRange(Some(tail)) => {
                    let end = [&key[..], &[0], &tail].concat();
                    (tree, key, What::RemoveRange(Some(end)))
                }
                other => (tree, key, other),
            }),
            0..20,
        )
    }

    fn build(ops: &[Model], first_seq: u64) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for (tree, key, value) in ops {
            match value {
                What::Put(value) => builder.put(*tree, key, value).unwrap(),
                What::PutUntil(at_ms, value) => {
                    let stamp = Stamp::new(*at_ms).encode();
                    builder.put_kind(*tree, Kind::Expiring, key, &[&stamp, value]).unwrap();
                }
                What::Remove => builder.remove(*tree, key).unwrap(),
                What::RemoveRange(end) => {
                    builder.remove_range(*tree, key, end.as_deref()).unwrap();
                }
            }
        }
        assert_eq!(builder.count() as usize, ops.len());
        builder.seal(first_seq).to_vec()
    }

    fn read(batch: &Batch<'_>, payload: &[u8]) -> Vec<Model> {
        let model = |op: BatchOp| {
            let what = match (op.kind, op.range) {
                (Kind::Value, _) => What::Put(op.value(payload).to_vec()),
                (Kind::Expiring, _) => {
                    let (stamp, value) = Stamp::split(op.value(payload)).unwrap();
                    What::PutUntil(stamp.at_ms, value.to_vec())
                }
                (_, None) => What::Remove,
                (..) => What::RemoveRange(op.range_end(payload).map(<[u8]>::to_vec)),
            };
            (op.tree, op.key(payload).to_vec(), what)
        };
        batch.ops().map(model).collect()
    }

    #[test]
    fn golden_bytes() {
        let mut builder = BatchBuilder::new();
        builder.put(1, b"key", b"value").unwrap();
        builder.remove(300, b"").unwrap();
        builder.remove_range(2, b"from", Some(b"to")).unwrap();
        builder.remove_range(3, b"on", None).unwrap();
        builder.put_kind(1, Kind::Expiring, b"e", &[&Stamp::new(0x0102).encode(), b"v"]).unwrap();
        let expected = [
            &[0x2A, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0][..],
            &[1, 0, 3],
            b"key",
            &[5],
            b"value",
            &[0xAC, 2, 1, 0],
            &[2, 3, 4],
            b"from",
            &[2],
            b"to",
            &[3, 4, 2],
            b"on",
            &[1, 5, 1],
            b"e",
            &[9, 2, 1, 0, 0, 0, 0, 0, 0],
            b"v",
        ]
        .concat();
        assert_eq!(builder.seal(42), expected);
    }

    #[test]
    fn what_is_too_large_is_refused_and_changes_nothing() {
        let mut builder = BatchBuilder::new();
        builder.put(1, b"a", b"b").unwrap();
        let before = builder.seal(1).to_vec();
        let key = vec![0; KEY_BYTES_MAX + 1];
        assert!(matches!(builder.put(1, &key, b""), Err(Error::InvalidArgument(_))));
        assert!(matches!(builder.remove(1, &key), Err(Error::InvalidArgument(_))));
        assert_eq!(builder.seal(1), before);
        builder.put(1, &key[1..], b"").unwrap();
        assert_eq!(Batch::decode(builder.seal(1)).unwrap().count(), 2);
    }

    #[test]
    fn sequence_numbers_end_below_2_to_the_56() {
        let one = |first| build(&[(1, vec![], What::Remove)], first);
        assert!(Batch::decode(&one((1 << 56) - 1)).is_ok());
        assert!(Batch::decode(&one(1 << 56)).is_err());
        assert!(Batch::decode(&one(u64::MAX)).is_err());
    }

    #[test]
    fn a_large_value_pointer_is_no_operation_of_a_batch() {
        let mut bytes = build(&[(1, b"k".to_vec(), What::Remove)], 1);
        bytes[BATCH_HEADER_BYTES + 1] = Kind::LargeValue as u8;
        assert_eq!(Batch::decode(&bytes).unwrap_err().offset, BATCH_HEADER_BYTES + 1);
    }

    #[test]
    fn a_stamp_that_is_cut_or_of_a_large_value_is_refused() {
        let mut builder = BatchBuilder::new();
        let stamp = Stamp { at_ms: 7, is_large: true }.encode();
        builder.put_kind(1, Kind::Expiring, b"k", &[&stamp, b"v"]).unwrap();
        assert_eq!(Batch::decode(builder.seal(1)).unwrap_err().offset, BATCH_HEADER_BYTES + 5);
        let mut builder = BatchBuilder::new();
        builder.put_kind(1, Kind::Expiring, b"k", &[&stamp[1..]]).unwrap();
        assert_eq!(Batch::decode(builder.seal(1)).unwrap_err().offset, BATCH_HEADER_BYTES + 5);
    }

    #[test]
    fn a_range_without_keys_is_refused() {
        let mut builder = BatchBuilder::new();
        assert!(matches!(
            builder.remove_range(1, b"b", Some(b"b")),
            Err(Error::InvalidArgument(_))
        ));
        assert!(matches!(
            builder.remove_range(1, b"b", Some(b"a")),
            Err(Error::InvalidArgument(_))
        ));
        assert_eq!(builder.count(), 0);
        builder.remove_range(1, b"b", Some(b"c")).unwrap();
        let mut bytes = builder.seal(1).to_vec();
        *bytes.last_mut().unwrap() = b'b';
        assert_eq!(Batch::decode(&bytes).unwrap_err().offset, bytes.len() - 1);
    }

    proptest! {
        #[test]
        fn operations_are_read_back(ops in model(), first in 0..(1u64 << 56) - 100) {
            let bytes = build(&ops, first);
            let batch = Batch::decode(&bytes).unwrap();
            prop_assert_eq!(batch.first_seq(), first);
            prop_assert_eq!(read(&batch, &bytes), ops);
            for len in 0..bytes.len() {
                prop_assert!(Batch::decode(&bytes[..len]).is_err(), "a part of {} bytes", len);
            }
            let mut longer = bytes;
            longer.push(0);
            prop_assert!(Batch::decode(&longer).is_err());
        }

        /// Decoding is total, and whatever decodes is what encoding would have made.
        #[test]
        fn hostile_bytes_decode_or_fail(ops in model(), edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
            let mut bytes = build(&ops, 9);
            for (at, byte) in edits {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(batch) = Batch::decode(&bytes) {
                let again = build(&read(&batch, &bytes), batch.first_seq());
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
