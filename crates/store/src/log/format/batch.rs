//! The payload of a log record: one batch of writes, atomic over all LSM trees.
//!
//! `[first sequence number u64][count u32]` then the operations, each `[tree varint][kind u8][key
//! length varint][key]` and for a value `[value length varint][value]`. A removal of a range (kind
//! 3) has the range's first key as its key, and its end as its value; one without an end (kind 4)
//! has no value. The value of an entry that expires (kind 5) begins with its stamp. The n-th
//! operation has the sequence number `first + n`. The same bytes go to the log, to the memtable
//! (which keeps entries as ranges of one shared payload) and, after a crash, back.

use super::frame::PAYLOAD_BYTES_MAX;
use crate::{
    expiry::{STAMP_BYTES, Stamp},
    types::{KEY_BYTES_MAX, Kind, SEQ_END, SeqNo, TreeId, VALUE_BYTES_MAX},
    varint,
};

/// Bytes before the first operation.
pub(crate) const BATCH_HEADER_BYTES: usize = 12;

/// The kind of a removal of a range that has an end.
pub(in crate::log) const RANGE: u8 = 3;
/// The kind of a removal of a range without an end.
pub(in crate::log) const OPEN_RANGE: u8 = 4;

/// The kind of an entry that expires.
pub(in crate::log) const EXPIRING: u8 = 5;

/// The most bytes of an operation besides its key and value.
pub(in crate::log) const OP_OVERHEAD_BYTES_MAX: usize = 1 + 3 * varint::BYTES_MAX;

/// Appends the part of an operation that is before its value.
#[inline]
pub(in crate::log) fn put_key(out: &mut Vec<u8>, tree: TreeId, kind: u8, key: &[u8]) {
    varint::put(out, u64::from(tree));
    out.push(kind);
    varint::put(out, key.len() as u64);
    out.extend_from_slice(key);
}

/// Appends the length of a value, or of the end of a range, which then follows.
#[inline]
pub(in crate::log) fn put_len(out: &mut Vec<u8>, len: usize) {
    varint::put(out, len as u64);
}

/// Sets the sequence number of the first operation of a payload.
#[inline]
pub(in crate::log) fn set_first_seq(payload: &mut [u8], first_seq: SeqNo) {
    payload[0..8].copy_from_slice(&first_seq.to_le_bytes());
}

/// Sets the number of operations of a payload.
#[inline]
pub(in crate::log) fn set_count(payload: &mut [u8], count: u32) {
    payload[8..12].copy_from_slice(&count.to_le_bytes());
}

/// Where a range ends that an operation removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeEnd {
    /// Before the key that is stored in place of the operation's value.
    Before,
    /// The range has no end.
    Open,
}

/// One operation: the places of its key and value in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchOp {
    /// The LSM tree it is for.
    pub(crate) tree: TreeId,
    /// [`Kind::Value`], [`Kind::Expiring`] or [`Kind::Tombstone`].
    pub(crate) kind: Kind,
    /// The end of the range, if the operation removes all keys from the key on; `None` for a single
    /// key.
    pub(crate) range: Option<RangeEnd>,
    /// Offset of the key in the payload.
    pub(crate) key_start: u32,
    /// Bytes of the key.
    pub(crate) key_len: u32,
    /// Offset of the value in the payload.
    pub(crate) value_start: u32,
    /// Bytes of the value, or of the end of a range; 0 for other tombstones.
    pub(crate) value_len: u32,
}

impl BatchOp {
    /// The key, given the payload that the operation came from.
    pub(crate) fn key<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        &payload[self.key_start as usize..][..self.key_len as usize]
    }

    /// The first key after the removed range, given the payload that the operation came from.
    pub(crate) fn range_end<'a>(&self, payload: &'a [u8]) -> Option<&'a [u8]> {
        (self.range == Some(RangeEnd::Before)).then(|| self.value(payload))
    }

    /// The value, given the payload that the operation came from.
    pub(crate) fn value<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        &payload[self.value_start as usize..][..self.value_len as usize]
    }
}

/// Why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchFault {
    /// The offset in the payload.
    pub(crate) offset: usize,
    /// What was expected there.
    pub(crate) expected: &'static str,
}

/// A payload that was checked to be a whole batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    payload: &'a [u8],
    first_seq: SeqNo,
    count: u32,
}

impl<'a> Batch<'a> {
    /// Checks all of `payload`. O(operations), allocates nothing.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, BatchFault> {
        let (Some(seq), Some(count)) =
            (payload.first_chunk::<8>(), payload.get(8..).and_then(<[u8]>::first_chunk::<4>))
        else {
            return Err(BatchFault { offset: 0, expected: "a batch header of 12 bytes" });
        };
        let batch = Self {
            payload,
            first_seq: u64::from_le_bytes(*seq),
            count: u32::from_le_bytes(*count),
        };
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BatchFault { offset: 0, expected: "a payload under 4 GiB" });
        }
        let end = batch.first_seq.checked_add(u64::from(batch.count));
        if end.is_none_or(|end| end > SEQ_END) {
            return Err(BatchFault { offset: 0, expected: "sequence numbers below 2^56" });
        }
        let mut offset = BATCH_HEADER_BYTES;
        for _ in 0..batch.count {
            offset = decode_op(payload, offset)?.1;
        }
        if offset != payload.len() {
            return Err(BatchFault { offset, expected: "the end of the batch" });
        }
        Ok(batch)
    }

    /// A payload that a [`BatchBuilder`](crate::log::batch::BatchBuilder) built, or that was
    /// decoded before. It is not checked as a whole; if it is no batch, [`Batch::ops`] ends early.
    pub(crate) fn built(payload: &'a [u8]) -> Self {
        let seq = payload.first_chunk::<8>().copied().unwrap_or_default();
        let count =
            payload.get(8..).and_then(<[u8]>::first_chunk::<4>).copied().unwrap_or_default();
        Self { payload, first_seq: u64::from_le_bytes(seq), count: u32::from_le_bytes(count) }
    }

    /// The sequence number of the first operation.
    pub(crate) fn first_seq(&self) -> SeqNo {
        self.first_seq
    }

    /// The number of operations.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The operations in order.
    pub(crate) fn ops(&self) -> BatchOps<'a> {
        BatchOps { payload: self.payload, offset: BATCH_HEADER_BYTES, left: self.count }
    }
}

/// Iterates over the operations of a batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchOps<'a> {
    payload: &'a [u8],
    offset: usize,
    left: u32,
}

impl Iterator for BatchOps<'_> {
    type Item = BatchOp;

    #[inline]
    fn next(&mut self) -> Option<BatchOp> {
        self.left = self.left.checked_sub(1)?;
        let (op, end) = decode_op(self.payload, self.offset).ok()?;
        self.offset = end;
        Some(op)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for BatchOps<'_> {}

/// Reads the operation at `offset`, and returns it with its end. The payload is under 4 GiB.
#[inline]
fn decode_op(payload: &[u8], offset: usize) -> Result<(BatchOp, usize), BatchFault> {
    let fault = |at, expected| BatchFault { offset: at, expected };
    let int = |at: usize, max: u64, expected| match varint::get(&payload[at..]) {
        Some((value, len)) if value <= max => Ok((value as u32, at + len)),
        _ => Err(fault(at, expected)),
    };
    let (tree, at) = int(offset, u64::from(u32::MAX), "the number of a sub-tree")?;
    let byte = payload.get(at).copied();
    let (kind, range) = match (byte, byte.and_then(Kind::from_byte)) {
        (_, Some(kind @ (Kind::Value | Kind::Tombstone))) => (kind, None),
        (Some(RANGE), _) => (Kind::Tombstone, Some(RangeEnd::Before)),
        (Some(OPEN_RANGE), _) => (Kind::Tombstone, Some(RangeEnd::Open)),
        (Some(EXPIRING), _) => (Kind::Expiring, None),
        _ => return Err(fault(at, "the kind of an operation, 0, 1, 3, 4 or 5")),
    };
    let (key_len, key_start) = int(at + 1, KEY_BYTES_MAX as u64, "a key length up to 64 KiB")?;
    let key_end = key_start + key_len as usize;
    if key_end > payload.len() {
        return Err(fault(key_start, "a key within the batch"));
    }
    let (value_len, value_start) = match (kind, range) {
        (Kind::Value, _) => int(key_end, VALUE_BYTES_MAX as u64, "a value length up to 1 GiB")?,
        (Kind::Expiring, _) => {
            let most = (VALUE_BYTES_MAX + STAMP_BYTES) as u64;
            int(key_end, most, "a value length up to 1 GiB, and a stamp")?
        }
        (_, Some(RangeEnd::Before)) => {
            int(key_end, KEY_BYTES_MAX as u64, "a key length up to 64 KiB")?
        }
        _ => (0, key_end),
    };
    let end = value_start + value_len as usize;
    if end > payload.len() {
        return Err(fault(value_start, "a value within the batch"));
    }
    if range == Some(RangeEnd::Before) && payload[value_start..end] <= payload[key_start..key_end] {
        return Err(fault(value_start, "a range that ends behind its beginning"));
    }
    if kind == Kind::Expiring
        && Stamp::split(&payload[value_start..end]).is_none_or(|(stamp, _)| stamp.is_large)
    {
        return Err(fault(value_start, "a stamp before the value"));
    }
    let op = BatchOp {
        tree,
        kind,
        range,
        key_start: key_start as u32,
        key_len,
        value_start: value_start as u32,
        value_len,
    };
    Ok((op, end))
}
