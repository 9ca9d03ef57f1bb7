//! Records as their host reads and writes them: inline, or wide with key and value elsewhere.

use std::cmp::Ordering as Order;

use rhumb_model::code::code_at;

use super::{
    layout::{
        LINE_WORDS, Record, Sizes, Slot, Token, WIDE_HEAD_WORDS, WIDE_LINES_MAX, WideExtent,
        WideHead, WideKind,
    },
    message::Value,
    proof::wide_sum,
    slab::Slab,
};
use crate::{
    error::{Error, Result},
    host::Space,
    layout::to_words,
    message::format::KEY_BYTES_MAX,
};

/// The longest value that a record holds, unless its host is told otherwise. Longer ones are
/// fetched by a call, which then costs little beside the value.
pub(super) const VALUE_BYTES_MAX: usize = 16 << 10;

/// A key that is looked for among records of one array or bin.
#[derive(Clone, Copy)]
pub(super) struct Needle<'k> {
    pub(super) key: &'k [u8],
    /// Its code, after the bytes that the records' codes skip: all their keys and this one begin
    /// with these.
    pub(super) code: u64,
}

impl<'k> Needle<'k> {
    pub(super) fn new(key: &'k [u8], skip: usize) -> Self {
        Self { key, code: code_at(key, skip) }
    }
}

/// The memory of an assembly, as a place of records.
pub(super) struct Records<S> {
    pub(super) slab: Slab<S>,
    value_bytes_max: usize,
}

impl<S: Space> Records<S> {
    /// Records in an empty space, whose values are `value_bytes_max` bytes at most.
    pub(super) fn new(space: S, value_bytes_max: usize, sizes: Sizes) -> Self {
        // A word is for the sum.
        let most = (WIDE_LINES_MAX * LINE_WORDS - WIDE_HEAD_WORDS - 1) * 8 - KEY_BYTES_MAX - 1;
        Self { slab: Slab::new(space, sizes), value_bytes_max: value_bytes_max.min(most) }
    }

    /// A live record of a key and its value, where codes skip `skip` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; [`Error::InvalidArgument`] for a key or value that is too long.
    pub(super) fn make(&mut self, key: &[u8], value: &[u8], skip: usize) -> Result<Record> {
        if let Some(record) = Record::inline(key, value) {
            return Ok(record);
        }
        let Ok(value_len) = u32::try_from(value.len()) else {
            return Err(Error::InvalidArgument("a value of 4 GiB or more".into()));
        };
        let is_here = value.len() <= self.value_bytes_max;
        let kind = if is_here { WideKind::Here } else { WideKind::Ask };
        let head = WideHead { kind, key_len: key.len(), value_len: value_len as usize };
        let lines = self.slab.sizes().wide_words(head).div_ceil(LINE_WORDS) as u32;
        let slot = self.slab.take(lines)?;
        self.slab.store(slot.line, 1, head.to_word());
        self.store_bytes(slot.line, WIDE_HEAD_WORDS, key);
        if is_here {
            self.store_bytes(slot.line, head.value_word(), value);
        }
        self.seal(slot.line, head);
        Ok(Record::wide(code_at(key, skip), WideExtent { slot, lines }))
    }

    /// Sets the sum of a latched wide record.
    fn seal(&self, line: u32, head: WideHead) {
        if self.slab.sizes().has_checksums() {
            let words = (1..head.words()).map(|word| self.slab.load(line, word));
            let sum = wide_sum([self.slab.opened(line)].into_iter().chain(words), line);
            self.slab.store(line, head.words(), sum);
        }
    }

    fn store_bytes(&self, line: u32, word: usize, bytes: &[u8]) {
        for (word, chunk) in (word..).zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            self.slab.store(line, word, u64::from_le_bytes(padded));
        }
    }

    /// A live record in the place of one of the same key that is removed: in the piece that this
    /// has elsewhere, if there is room for the value.
    ///
    /// # Errors
    ///
    /// As [`Records::make`].
    pub(super) fn make_again(
        &mut self,
        removed: &Record,
        key: &[u8],
        value: &[u8],
        skip: usize,
    ) -> Result<Record> {
        let (Some(wide), Some(head)) = (removed.wide_extent(), self.head(removed)) else {
            return self.make(key, value, skip);
        };
        let head = WideHead { kind: WideKind::Here, value_len: value.len(), ..head };
        let fits = self.slab.sizes().wide_words(head) <= wide.lines as usize * LINE_WORDS;
        if !fits || value.len() > self.value_bytes_max || removed.token() != Token::Removed {
            return self.make(key, value, skip);
        }
        self.slab.latch(wide.slot.line);
        self.slab.store(wide.slot.line, 1, head.to_word());
        self.store_bytes(wide.slot.line, head.value_word(), value);
        // planted: wide-record-comes-back-sum
        self.seal(wide.slot.line, head);
        Ok(removed.with_token(Token::Live))
    }

    /// Gives back what a record has elsewhere.
    pub(super) fn release(&mut self, record: &Record) {
        if let Some(WideExtent { slot, lines }) = record.wide_extent() {
            self.slab.give(slot.line, lines);
        }
    }

    /// The record of a removed key, which keeps its key and loses its value.
    pub(super) fn without_value(&mut self, record: &Record) -> Record {
        if let (Some(wide), Some(head)) = (record.wide_extent(), self.head(record)) {
            let line = wide.slot.line;
            self.slab.latch(line);
            let end = self.slab.sizes().wide_words(head);
            (head.value_word()..end).for_each(|word| self.slab.store(line, word, 0));
            let gone = WideHead { kind: WideKind::Gone, value_len: 0, ..head };
            self.slab.store(line, 1, gone.to_word());
            self.seal(line, gone);
        }
        let value = if record.wide_extent().is_some() { record.value } else { 0 };
        Record { value, ..record.with_token(Token::Removed) }
    }

    fn head(&self, record: &Record) -> Option<WideHead> {
        let wide = record.wide_extent()?;
        let head = WideHead::of_word(self.slab.load(wide.slot.line, 1))?;
        (to_words(head.key_len) <= wide.lines as usize * LINE_WORDS).then_some(head)
    }

    /// The order of a record's key against the needle's.
    pub(super) fn compare(&self, record: &Record, needle: &Needle<'_>) -> Order {
        let Some(wide) = record.wide_extent() else {
            return record.key_bytes()[..].cmp(needle.key);
        };
        record.code.cmp(&needle.code).then_with(|| {
            let len = self.head(record).map_or(0, |head| head.key_len);
            let key = self.slab.bytes(wide.slot.line, WIDE_HEAD_WORDS, len);
            key.map_or(Order::Equal, |key| key.compare(needle.key))
        })
    }

    /// The whole key of a record.
    pub(super) fn key(&self, record: &Record) -> Vec<u8> {
        let Some(wide) = record.wide_extent() else { return record.key_bytes().to_vec() };
        let mut key = Vec::new();
        let len = self.head(record).map_or(0, |head| head.key_len);
        if let Some(bytes) = self.slab.bytes(wide.slot.line, WIDE_HEAD_WORDS, len) {
            bytes.append_to(&mut key);
        }
        key
    }

    /// The value of a live record.
    pub(super) fn value(&self, record: &Record) -> Value {
        let (Some(wide), Some(head)) = (record.wide_extent(), self.head(record)) else {
            let (bytes, len) = record.value_bytes();
            return Value::Here(bytes[..len].to_vec());
        };
        if head.kind == WideKind::Ask {
            return Value::Ask(head.value_len as u32);
        }
        let mut value = Vec::new();
        let bytes = self.slab.bytes(wide.slot.line, head.value_word(), head.value_len);
        if let Some(bytes) = bytes {
            bytes.append_to(&mut value);
        }
        Value::Here(value)
    }

    /// Takes pieces of these sizes, or none of them.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub(super) fn take_all<const N: usize>(&mut self, lines: [u32; N]) -> Result<[Slot; N]> {
        let mut slots = [Slot::default(); N];
        for index in 0..N {
            match self.slab.take(lines[index]) {
                Ok(slot) => slots[index] = slot,
                Err(error) => {
                    (0..index).for_each(|index| self.slab.give(slots[index].line, lines[index]));
                    return Err(error);
                }
            }
        }
        Ok(slots)
    }
}
