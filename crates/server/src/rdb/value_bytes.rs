//! One value to bytes, whose number of items is known once all have come.

use super::{
    error::RdbError,
    items::{Item, ValueKind},
    source::Source,
    write::{begin_ending_hash, begin_value, push_end, push_item, push_string, type_of},
    write_stream::StreamBytes,
};

/// Bytes of memory that a field's time takes.
const TIME_BYTES: usize = size_of::<(u64, u64)>();

/// A value's items to bytes. All of the value's bytes are in memory.
pub(crate) struct ValueBytes {
    kind: ValueKind,
    items: u64,
    body: Vec<u8>,
    stream: StreamBytes,
    /// The fields of a hash that end: their places among all, and when.
    times: Vec<(u64, u64)>,
}

impl ValueBytes {
    /// A value without items so far.
    pub(crate) fn new(kind: ValueKind) -> Self {
        let (body, times, stream) = (Vec::new(), Vec::new(), StreamBytes::default());
        Self { kind, items: 0, body, stream, times }
    }

    /// Adds an item.
    pub(crate) fn push(&mut self, item: &Item) {
        match item {
            Item::Stream(item) => self.stream.push(item),
            item => {
                if let Item::Field { expires_ms, .. } = item
                    && *expires_ms != 0
                {
                    self.times.push((self.items, *expires_ms));
                }
                push_item(&mut self.body, item);
            }
        }
        self.items += 1;
    }

    /// Bytes that it has so far, but for those of a stream.
    pub(crate) fn len(&self) -> usize {
        self.body.len() + TIME_BYTES * self.times.len()
    }

    /// Returns true if it has no items.
    pub(crate) fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Appends the type and the value.
    ///
    /// # Errors
    ///
    /// None: the bytes that are read again were written here.
    pub(crate) fn finish(self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        out.push(type_of(self.kind, !self.times.is_empty()));
        if self.kind == ValueKind::Stream {
            self.stream.finish(out);
            return Ok(());
        }
        let Some(first) = self.times.iter().map(|(_, time)| *time).min() else {
            begin_value(out, self.kind, self.items);
            out.extend_from_slice(&self.body);
            return Ok(());
        };
        begin_ending_hash(out, first, self.items);
        let mut body = Source::new(&self.body[..], false);
        let mut times = self.times.iter().peekable();
        for at in 0..self.items {
            let time = times.next_if(|(place, _)| *place == at);
            push_end(out, first, time.map_or(0, |(_, time)| *time));
            push_string(out, &body.string()?);
            push_string(out, &body.string()?);
        }
        Ok(())
    }
}
