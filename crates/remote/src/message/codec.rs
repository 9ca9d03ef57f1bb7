//! Frames, and the values that messages are made of.
//!
//! Reading trusts nothing: a count is checked against the bytes that are left before anything is
//! allocated for it. Every message has exactly one encoding: a varint that is longer than it needs
//! to be, which [`Reader`] itself accepts, is refused here, and so are flags other than 0 and 1.

use std::ops::Bound;

use rhumb_model::codec::{DecodeError, Reader, put_varint};

use super::{
    Answer, Extent, Guess, Hint, How, Part,
    format::{FRAME_BYTES_MAX, HEAD_BYTES, ITEMS_MAX, KEY_BYTES_MAX, LENGTH_BYTES, SEGMENTS_MAX},
};
use crate::error::{Error, Result};

/// A frame whose head is checked. Its body is not.
#[derive(Clone, Debug)]
pub(crate) struct Frame<'a> {
    /// What kind of message the body holds, one of `format::request` or `format::reply`.
    pub(crate) kind: u8,
    /// Which request this is, or which one it answers. It is known even if the body is malformed,
    /// so that the host can say so to the right request.
    pub(crate) id: u32,
    body: Reader<'a>,
}

impl<'a> Frame<'a> {
    /// Reads the head of a frame. `bytes` is all of it, its length included, and nothing else.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the length is not that of `bytes`, or not that of any frame.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let Some(&length) = bytes.first_chunk::<LENGTH_BYTES>() else {
            return Err(Error::invalid(format!("a frame of {} bytes", bytes.len())));
        };
        let len = frame_len(length)?;
        if len != bytes.len() {
            let found = bytes.len();
            return Err(Error::invalid(format!("a frame of {len} bytes came as {found}")));
        }
        let mut body = Reader::new(bytes);
        let mut head = || {
            body.u32("a frame's length")?;
            Ok((body.u8("a frame's kind")?, body.u32("a request id")?))
        };
        let (kind, id) = head().map_err(refused)?;
        Ok(Self { kind, id, body })
    }

    /// What reads the body. Places in its errors count from the start of the frame.
    pub(super) fn input(&self) -> Input<'a> {
        Input(self.body.clone())
    }
}

/// The bytes of the whole frame that begins with `length`.
///
/// # Errors
///
/// [`Error::Invalid`] if there is no frame of that length. Nothing need be allocated before.
pub(crate) fn frame_len(length: [u8; LENGTH_BYTES]) -> Result<usize> {
    let rest = u32::from_le_bytes(length) as usize;
    if !(HEAD_BYTES - LENGTH_BYTES..=FRAME_BYTES_MAX).contains(&rest) {
        return Err(Error::invalid(format!(
            "a frame has {} to {FRAME_BYTES_MAX} bytes after its length, not {rest}",
            HEAD_BYTES - LENGTH_BYTES,
        )));
    }
    Ok(LENGTH_BYTES + rest)
}

/// Appends a frame whose body `put_body` appends. After an error `out` is as it was.
///
/// # Errors
///
/// Those of `put_body`, and [`Error::InvalidArgument`] if the frame is too long.
pub(super) fn put_frame(
    kind: u8,
    id: u32,
    out: &mut Vec<u8>,
    put_body: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(kind);
    out.extend_from_slice(&id.to_le_bytes());
    let length = put_body(out).and_then(|()| {
        let rest = out.len() - start - LENGTH_BYTES;
        check_len("a message", rest, FRAME_BYTES_MAX)?;
        Ok(rest as u32)
    });
    match length {
        Ok(length) => {
            out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Refuses to encode what the other side would refuse to decode.
pub(super) fn check_len(what: &str, len: usize, max: usize) -> Result<()> {
    if len > max {
        let text = format!("{what} of {len}: the most is {max}");
        return Err(Error::InvalidArgument(text.into()));
    }
    Ok(())
}

/// Appends a count of items.
pub(super) fn put_count(count: usize, out: &mut Vec<u8>) -> Result<()> {
    check_len("a number of items", count, ITEMS_MAX)?;
    put_varint(count as u64, out);
    Ok(())
}

/// Appends bytes with their length before them.
pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a key.
pub(super) fn put_key(key: &[u8], out: &mut Vec<u8>) -> Result<()> {
    check_len("a key's length", key.len(), KEY_BYTES_MAX)?;
    put_bytes(key, out);
    Ok(())
}

/// Appends a value that may be absent.
pub(super) fn put_option(value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(value.is_some().into());
    if let Some(value) = value {
        put_bytes(value, out);
    }
}

/// Appends one end of a range.
pub(super) fn put_bound(bound: Bound<&[u8]>, out: &mut Vec<u8>) -> Result<()> {
    let (tag, key) = match bound {
        Bound::Unbounded => (0, None),
        Bound::Included(key) => (1, Some(key)),
        Bound::Excluded(key) => (2, Some(key)),
    };
    out.push(tag);
    key.map_or(Ok(()), |key| put_key(key, out))
}

/// Appends a hint that may be absent.
pub(super) fn put_hint(hint: Option<Hint>, out: &mut Vec<u8>) {
    out.push(hint.is_some().into());
    if let Some(Hint { slot, incarnation }) = hint {
        out.extend_from_slice(&slot.to_le_bytes());
        out.extend_from_slice(&incarnation.to_le_bytes());
    }
}

/// Appends a key that may be absent.
pub(super) fn put_optional_key(key: Option<&[u8]>, out: &mut Vec<u8>) -> Result<()> {
    check_len("a key's length", key.map_or(0, <[u8]>::len), KEY_BYTES_MAX)?;
    put_option(key, out);
    Ok(())
}

/// Appends where a key is expected.
pub(super) fn put_guess(guess: Guess, out: &mut Vec<u8>) {
    let (tag, number) = match guess {
        Guess::None => (0, None),
        Guess::Leaf(slot) => (1, Some(slot)),
        Guess::Block(unit) => (2, Some(unit)),
    };
    out.push(tag);
    out.extend(number.into_iter().flat_map(u32::to_le_bytes));
}

/// Appends what a leaf said.
pub(super) fn put_answer(answer: &Answer<'_>, out: &mut Vec<u8>) {
    out.push(answer.how as u8);
    put_option(answer.value, out);
}

/// Appends the place of a piece.
pub(super) fn put_piece(extent: &Extent, out: &mut Vec<u8>) {
    out.push((extent.part == Part::Leaves).into());
    [extent.at, extent.len.into(), extent.guard].iter().for_each(|number| put_varint(*number, out));
}

/// Appends the guard of a piece, if it could be read.
pub(super) fn put_guard(guard: Option<u64>, out: &mut Vec<u8>) {
    out.push(guard.is_some().into());
    out.extend(guard.into_iter().flat_map(u64::to_le_bytes));
}

/// Appends the sizes of segments.
pub(super) fn put_sizes(sizes: &[u64], out: &mut Vec<u8>) -> Result<()> {
    check_len("a number of segments", sizes.len(), SEGMENTS_MAX)?;
    put_varint(sizes.len() as u64, out);
    sizes.iter().for_each(|size| out.extend_from_slice(&size.to_le_bytes()));
    Ok(())
}

fn refused(error: DecodeError) -> Error {
    Error::invalid(error.to_string())
}

/// Reads the body of a frame from first to last.
pub(super) struct Input<'a>(Reader<'a>);

impl<'a> Input<'a> {
    /// An error at the current place.
    pub(super) fn refuse(&self, expected: &'static str, found: impl std::fmt::Display) -> Error {
        refused(self.0.error(expected, found))
    }

    pub(super) fn u8(&mut self, expected: &'static str) -> Result<u8> {
        self.0.u8(expected).map_err(refused)
    }

    pub(super) fn u16(&mut self, expected: &'static str) -> Result<u16> {
        let bytes = self.take(2, expected)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self, expected: &'static str) -> Result<u32> {
        self.0.u32(expected).map_err(refused)
    }

    pub(super) fn u64(&mut self, expected: &'static str) -> Result<u64> {
        self.0.u64(expected).map_err(refused)
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize, expected: &'static str) -> Result<&'a [u8]> {
        self.0.take(len, expected).map_err(refused)
    }

    /// A byte that is 0 or 1.
    pub(super) fn flag(&mut self, expected: &'static str) -> Result<bool> {
        match self.u8(expected)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.refuse(expected, other)),
        }
    }

    /// How a scan is to be done: from its upper end downwards, and at one moment.
    pub(super) fn scan_flags(&mut self) -> Result<[bool; 2]> {
        let expected = "a scan's flags";
        match self.u8(expected)? {
            flags @ 0..=3 => Ok([flags & 1 != 0, flags & 2 != 0]),
            other => Err(self.refuse(expected, other)),
        }
    }

    /// A varint of at most `max`, in its shortest form.
    pub(super) fn varint(&mut self, max: u64, expected: &'static str) -> Result<u64> {
        let start = self.0.offset();
        let value = self.0.varint_up_to(max, expected).map_err(refused)?;
        let digits = (u64::BITS - value.leading_zeros()).div_ceil(7).max(1) as usize;
        if self.0.offset() - start != digits {
            return Err(self.refuse(expected, "a varint longer than it needs to be"));
        }
        Ok(value)
    }

    /// A count of at most `max` items, each of which takes at least `bytes_min` of what is left.
    pub(super) fn count(
        &mut self,
        max: usize,
        bytes_min: usize,
        expected: &'static str,
    ) -> Result<usize> {
        let count = self.varint(max as u64, expected)? as usize;
        let left = self.0.remaining();
        if count > left / bytes_min {
            return Err(self.refuse(expected, format_args!("{count} with {left} bytes left")));
        }
        Ok(count)
    }

    /// As many items as a count says, which comes first.
    pub(super) fn items<T>(
        &mut self,
        max: usize,
        bytes_min: usize,
        expected: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.count(max, bytes_min, expected)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    /// Bytes with their length before them.
    pub(super) fn bytes(&mut self, max: usize, expected: &'static str) -> Result<&'a [u8]> {
        let len = self.varint(max as u64, expected)? as usize;
        self.take(len, expected)
    }

    /// Text with its length in bytes before it.
    pub(super) fn text(&mut self, max: usize, expected: &'static str) -> Result<&'a str> {
        let bytes = self.bytes(max, expected)?;
        std::str::from_utf8(bytes).map_err(|error| self.refuse(expected, error))
    }

    pub(super) fn key(&mut self) -> Result<&'a [u8]> {
        self.bytes(KEY_BYTES_MAX, "a key")
    }

    pub(super) fn value(&mut self) -> Result<&'a [u8]> {
        self.bytes(FRAME_BYTES_MAX, "a value")
    }

    pub(super) fn option(&mut self) -> Result<Option<&'a [u8]>> {
        if self.flag("if there is a value")? { self.value().map(Some) } else { Ok(None) }
    }

    pub(super) fn bound(&mut self) -> Result<Bound<&'a [u8]>> {
        match self.u8("a kind of bound")? {
            0 => Ok(Bound::Unbounded),
            1 => self.key().map(Bound::Included),
            2 => self.key().map(Bound::Excluded),
            other => Err(self.refuse("a kind of bound", other)),
        }
    }

    pub(super) fn hint(&mut self) -> Result<Option<Hint>> {
        if !self.flag("if there is a hint")? {
            return Ok(None);
        }
        let slot = self.u32("a hint's slot")?;
        Ok(Some(Hint { slot, incarnation: self.u32("a hint's incarnation")? }))
    }

    pub(super) fn optional_key(&mut self) -> Result<Option<&'a [u8]>> {
        if self.flag("if there is a key")? { self.key().map(Some) } else { Ok(None) }
    }

    pub(super) fn guess(&mut self) -> Result<Guess> {
        match self.u8("a kind of guess")? {
            0 => Ok(Guess::None),
            1 => self.u32("a leaf's slot").map(Guess::Leaf),
            2 => self.u32("a block's unit").map(Guess::Block),
            other => Err(self.refuse("a kind of guess", other)),
        }
    }

    pub(super) fn answer(&mut self) -> Result<Answer<'a>> {
        let how = match self.u8("how a key was found")? {
            0 => How::Guessed,
            1 => How::Asked,
            2 => How::Routed,
            other => return Err(self.refuse("how a key was found", other)),
        };
        Ok(Answer { how, value: self.option()? })
    }

    pub(super) fn part(&mut self) -> Result<Part> {
        let is_leaves = self.flag("a part of a region")?;
        Ok(if is_leaves { Part::Leaves } else { Part::Control })
    }

    pub(super) fn piece(&mut self) -> Result<Extent> {
        Ok(Extent {
            part: self.part()?,
            at: self.varint(u64::MAX, "where a piece begins")?,
            len: self.varint(u32::MAX.into(), "a piece's length")? as u32,
            guard: self.varint(u64::MAX, "where a guard is")?,
        })
    }

    pub(super) fn guard(&mut self) -> Result<Option<u64>> {
        if self.flag("if a piece could be read")? {
            self.u64("a guard").map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn sizes(&mut self) -> Result<Vec<u64>> {
        self.items(SEGMENTS_MAX, 8, "a number of segments", |input| input.u64("a segment's size"))
    }

    /// Refuses bytes that are left, so that a message has one encoding.
    pub(super) fn finish(&self) -> Result<()> {
        self.0.finish().map_err(refused)
    }
}
