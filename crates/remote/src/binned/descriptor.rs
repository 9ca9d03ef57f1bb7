//! What a client knows of an array: the keys it answers for, where it lies, and the line that
//! predicts positions in it.
//!
//! A descriptor is not trusted. It hashes to a *tag* that every block of its array bears, so that a
//! window of records is taken for the array's only if the descriptor is the one that the array was
//! stored with.

use std::{ops::Bound, sync::Arc};

use rhumb_model::{
    Line, Segment,
    code::code_at,
    codec::{DecodeError, Reader, put_line, put_varint},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::message::format::KEY_BYTES_MAX;

/// Trained records of an array at most, because training anew takes some 100 ns for each.
pub(super) const ARRAY_RECORDS_MAX: usize = 8192;
/// The error of an array's line (FineStore, section 3.1.1, which finds that fewer takes more models
/// and more takes longer searches).
pub(super) const THRESHOLD: u64 = 32;
/// Records of a window at most: those within the threshold, and one on either side for the proof.
/// Small arrays have up to 128 records, and windows of as many.
pub(super) const WINDOW_RECORDS_MAX: usize = 136;
/// The reach of a line that is accepted: within it a window is no longer than it may be.
const REACH_MAX: u64 = 65;

/// The bounds of keys: from a low one on, to below a high one, where `None` is above every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) low: Arc<[u8]>,
    pub(crate) high: Option<Arc<[u8]>>,
}

impl Span {
    /// All keys.
    pub(crate) fn all() -> Self {
        Self { low: Arc::from([]), high: None }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        *self.low <= *key && self.high.as_ref().is_none_or(|high| *key < **high)
    }

    /// Returns true if there are keys in it.
    fn is_any(&self) -> bool {
        self.high.as_ref().is_none_or(|high| self.low < *high)
    }
}

/// A trained array as clients know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// The keys that it answers for, for as long as it lives.
    pub(crate) span: Span,
    /// What all its trained keys begin with.
    pub(crate) prefix: Box<[u8]>,
    /// No other array of this host ever has it.
    pub(crate) epoch: u64,
    /// Its first block.
    pub(crate) base: u32,
    /// Trained records: the sentinel, which lies before them, does not count.
    pub(crate) records: u32,
    pub(crate) line: Line,
    /// How far a position may lie below the line.
    pub(crate) below: u16,
    /// How far a position may lie above the line.
    pub(crate) above: u16,
}

impl Descriptor {
    /// What the blocks of the array bear.
    pub(crate) fn tag(&self) -> u64 {
        let mut bytes = Vec::with_capacity(96);
        self.put(&mut bytes);
        put_key(&self.span.low, &mut bytes);
        put_high(self.span.high.as_deref(), &mut bytes);
        xxh3_64(&bytes)
    }

    /// Bytes that it takes in a client's model: two bounds are shared with neighbours.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.span.low.len() + self.prefix.len()
    }

    fn segment(&self) -> Segment {
        let (below, above) = (u64::from(self.below), u64::from(self.above));
        Segment { line: self.line, below, above, start: 0, end: u64::from(self.records) }
    }

    /// The first and the last trained position, counted from 0, at which `key` may lie; the last
    /// may be one more than there are.
    pub(super) fn positions(&self, key: &[u8]) -> (usize, usize) {
        let records = self.records as usize;
        let begins = &key[..self.prefix.len().min(key.len())];
        if *begins < *self.prefix {
            return (0, 0);
        }
        if *begins > *self.prefix {
            return (records, records);
        }
        let window = self.segment().window(code_at(key, self.prefix.len()));
        (window.lo as usize, window.hi as usize)
    }

    /// The records to read for `key`, first and last: they have the one at or below it and the one
    /// above it, if there are such and the descriptor is right. Records count from the sentinel.
    pub(crate) fn window(&self, key: &[u8]) -> (usize, usize) {
        let (low, high) = self.positions(key);
        let last = (high + 2).min(low + WINDOW_RECORDS_MAX - 1).min(self.records as usize);
        (low.min(last), last)
    }

    /// Appends all but the bounds.
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(self.epoch, out);
        put_varint(self.base.into(), out);
        put_varint(self.records.into(), out);
        put_varint(self.below.into(), out);
        put_varint(self.above.into(), out);
        put_line(&self.line, out);
        put_key(&self.prefix, out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            span: Span::all(),
            epoch: from.varint("an array's epoch")?,
            base: from.varint_up_to(u32::MAX.into(), "a block")? as u32,
            records: from.varint_up_to(ARRAY_RECORDS_MAX as u64, "a number of records")? as u32,
            below: from.varint_up_to(REACH_MAX, "a line's reach")? as u16,
            above: from.varint_up_to(REACH_MAX, "a line's reach")? as u16,
            line: from.line()?,
            prefix: take_key(from)?.into(),
        })
    }
}

/// The arrays of a span, which follow one another without a gap, as they were at an epoch of the
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lesson {
    pub(crate) model: u64,
    pub(crate) arrays: Vec<Descriptor>,
}

impl Lesson {
    /// The keys of all its arrays; `None` without arrays.
    pub(crate) fn span(&self) -> Option<Span> {
        let (first, last) = (self.arrays.first()?, self.arrays.last()?);
        Some(Span { low: first.span.low.clone(), high: last.span.high.clone() })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(self.model, out);
        put_varint(self.arrays.len() as u64, out);
        let Some(span) = self.span() else { return };
        put_key(&span.low, out);
        put_high(span.high.as_deref(), out);
        for (index, array) in self.arrays.iter().enumerate() {
            array.put(out);
            if index + 1 < self.arrays.len() {
                put_key(array.span.high.as_deref().unwrap_or_default(), out);
            }
        }
    }

    /// Reads a lesson: spans are one after another and have keys.
    pub(super) fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let model = from.varint("an epoch of the model")?;
        // An array takes more than 16 bytes, which are checked before there is room for it.
        let most = from.remaining() as u64 / 16;
        let count = from.varint_up_to(most, "a number of arrays")?;
        if count == 0 {
            return Ok(Self { model, arrays: Vec::new() });
        }
        let mut low: Arc<[u8]> = take_key(from)?.into();
        let end = take_high(from)?;
        let mut arrays = Vec::with_capacity(count as usize);
        for index in 1..=count {
            let mut array = Descriptor::take(from)?;
            let high = if index == count { end.clone() } else { Some(take_key(from)?.into()) };
            array.span = Span { low: low.clone(), high: high.clone() };
            if !array.span.is_any() {
                return Err(from.error("bounds that ascend", "others"));
            }
            low = high.unwrap_or_default();
            arrays.push(array);
        }
        Ok(Self { model, arrays })
    }
}

/// The keys up to one, as maps are asked for them.
pub(super) fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

/// Appends a byte string with its length.
pub(super) fn put_key(key: &[u8], out: &mut Vec<u8>) {
    put_varint(key.len() as u64, out);
    out.extend_from_slice(key);
}

/// Reads a byte string that is no longer than a key.
pub(super) fn take_key<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = from.varint_up_to(KEY_BYTES_MAX as u64, "a key's length")?;
    from.take(len as usize, "a key")
}

/// Appends a bound that may be above every key.
pub(super) fn put_high(high: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(high.is_some().into());
    if let Some(high) = high {
        put_key(high, out);
    }
}

/// Reads a bound that may be above every key.
pub(super) fn take_high(from: &mut Reader<'_>) -> Result<Option<Arc<[u8]>>, DecodeError> {
    match from.u8("a flag")? {
        0 => Ok(None),
        1 => Ok(Some(take_key(from)?.into())),
        other => Err(from.error("a flag", other)),
    }
}
