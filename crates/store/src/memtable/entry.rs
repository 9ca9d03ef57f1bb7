//! One version of one key, as the rest of the engine sees it, and its position in the order.

use rhumb_model::code::code_at;
use rhumb_sync::record::Record;

use crate::{
    log::batch::BatchOp,
    slice::Slice,
    types::{Kind, SeqNo, TreeId},
};

/// The part of an entry that most comparisons need.
#[derive(Clone, Copy)]
pub(super) struct SortKey {
    /// The first sixteen bytes of the key as two numbers of the same order, so that most
    /// comparisons touch nothing beyond the entry.
    pub(super) head: [u64; 2],
    pub(super) seq: SeqNo,
    pub(super) tree: TreeId,
    pub(super) key_len: u32,
}

impl SortKey {
    #[inline]
    pub(super) fn new(tree: TreeId, key: &[u8], seq: SeqNo) -> Self {
        let head = [code_at(key, 0), code_at(key, 8)];
        Self { head, seq, tree, key_len: key.len() as u32 }
    }
}

/// One version of one key.
#[derive(Clone)]
pub(crate) struct MemEntry {
    record: Record,
    pub(super) sort_key: SortKey,
    key_start: u32,
    value_start: u32,
    value_len: u32,
    kind: Kind,
}

impl MemEntry {
    /// The version that an operation of `record` makes.
    #[inline]
    pub(super) fn new(record: Record, operation: &BatchOp, seq: SeqNo) -> Self {
        Self {
            sort_key: SortKey::new(operation.tree, operation.key(&record), seq),
            record,
            key_start: operation.key_start,
            value_start: operation.value_start,
            value_len: operation.value_len,
            kind: operation.kind,
        }
    }

    /// The LSM tree that the key belongs to.
    pub(crate) fn tree(&self) -> TreeId {
        self.sort_key.tree
    }

    /// The user key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.record[self.key_start as usize..][..self.sort_key.key_len as usize]
    }

    /// The sequence number of the write that made this version.
    pub(crate) fn seq(&self) -> SeqNo {
        self.sort_key.seq
    }

    /// Returns whether this is a value or a tombstone.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The value; empty for a tombstone.
    pub(crate) fn value(&self) -> &[u8] {
        &self.record[self.value_start as usize..][..self.value_len as usize]
    }

    /// The value, shared with the record it came in.
    pub(crate) fn value_slice(&self) -> Slice {
        Slice::from_record(self.record.clone(), self.value_start, self.value_len)
    }
}
