//! Bytes of the range tombstones of a table: `docs/format/table.md` describes them.
//!
//! `[boundaries varint]`, then for each boundary `[key length varint][key][tombstones varint]` and
//! the sequence numbers of the tombstones that cover the keys from there to the next boundary,
//! newest first. The first number is a varint, each further one the difference to the one before
//! it, also a varint.

use rhumb_sync::primitive::Arc;

use super::fragments::{Builder, Ranges};
use crate::{
    slice::Slice,
    types::{KEY_BYTES_MAX, SEQ_END, SeqNo},
    varint,
};

/// The end of a tombstone may be the longest key with a zero appended.
const BOUND_BYTES_MAX: u64 = KEY_BYTES_MAX as u64 + 1;

impl Ranges {
    /// The bytes that a table keeps.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.keys().len() as u64);
        for (at, key) in self.keys().iter().enumerate() {
            varint::put(&mut out, key.len() as u64);
            out.extend_from_slice(key);
            let seqs = self.list(at + 1);
            varint::put(&mut out, seqs.len() as u64);
            let mut newer = None;
            for seq in seqs {
                varint::put(&mut out, newer.map_or(*seq, |newer: SeqNo| newer - seq));
                newer = Some(*seq);
            }
        }
        out
    }

    /// Reads what [`Ranges::encode`] wrote; the error says what was expected. Allocates at most 30
    /// times the bytes given.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let shared: Arc<[u8]> = Arc::from(bytes);
        let mut at = 0;
        let int = |at: &mut usize, max: u64, expected: &'static str| {
            let (value, len) = bytes.get(*at..).and_then(varint::get).ok_or(expected)?;
            *at += len;
            if value > max { Err(expected) } else { Ok(value) }
        };
        let count = int(&mut at, bytes.len() as u64, "a number of boundaries")?;
        let mut builder = Builder::default();
        let (mut last, mut seqs) = (None::<Slice>, Vec::new());
        for number in 1..=count {
            let len = int(&mut at, BOUND_BYTES_MAX, "a bound of up to 64 KiB")? as usize;
            let key = bytes.get(at..at + len).ok_or("a bound within the section")?;
            let key = match u32::try_from(at) {
                Ok(start) => {
                    Slice::from_shared_range(Arc::clone(&shared), start, len as u32).made_small()
                }
                Err(_) => Slice::copy_from(key),
            };
            at += len;
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err("bounds that ascend");
            }
            seqs.clear();
            for _ in 0..int(&mut at, bytes.len() as u64, "a number of tombstones")? {
                let step = int(&mut at, SEQ_END - 1, "a number below 2^56")?;
                let seq = seqs.last().map_or(Some(step), |newer: &SeqNo| newer.checked_sub(step));
                let is_sound = |seq: &SeqNo| *seq > 0 && step > 0;
                seqs.push(seq.filter(is_sound).ok_or("numbers that descend, above 0")?);
            }
            if number == count && !seqs.is_empty() {
                return Err("no tombstone behind the last bound");
            }
            builder.push(&key, &seqs);
            last = Some(key);
        }
        let ranges = builder.finish();
        if at != bytes.len() || ranges.is_empty() || ranges.keys().len() as u64 != count {
            return Err("fragments that differ, and nothing behind them");
        }
        Ok(ranges)
    }
}
