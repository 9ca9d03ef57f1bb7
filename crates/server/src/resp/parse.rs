//! The parser: incremental, resumed where the bytes ended, linear in them however they arrive.
//!
//! Limits are checked against what a header announces, before anything is kept for it; the room
//! that a command takes grows with the bytes that have arrived and never with what they promise.

use std::{borrow::Cow, fmt, ops::Index};

use super::number::parse_i64;

/// The longest line without its end, in bytes, when a length is expected: a sign, twenty digits
/// and the line's end, with room for a client that pads.
const HEADER_BYTES_MAX: usize = 64;

/// What a client may send in one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Bytes of an inline command.
    pub inline_bytes: usize,
    /// Arguments of a command, its name included.
    pub arguments: usize,
    /// Bytes of one argument.
    pub bulk_bytes: usize,
    /// True if the client still has to say the password: the errors say so.
    pub unauthenticated: bool,
}

/// Where an argument lies in the buffer, in bytes from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: usize,
    end: usize,
}

impl Span {
    /// The bytes from `start` up to `end`.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }
}

/// A command: its name and arguments, borrowed from the buffer that they arrived in.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The arguments at `spans` of `buffer`.
    #[must_use]
    pub fn new(buffer: &'a [u8], spans: &'a [Span]) -> Self {
        Self { buffer, spans }
    }

    /// How many, the command's name included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.buffer[span.start..span.end])
    }

    /// The argument at `index`, which is there: the command's arity says so.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[inline]
    #[must_use]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.buffer[span.start..span.end]
    }

    /// The arguments from `from` on, as a command of their own.
    #[must_use]
    pub fn from(&self, from: usize) -> Self {
        Self { buffer: self.buffer, spans: self.spans.get(from..).unwrap_or_default() }
    }

    /// The arguments from `from` on, one by one.
    pub fn iter_from(&self, from: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let (buffer, spans) = (self.buffer, self.spans.get(from..).unwrap_or_default());
        spans.iter().map(move |span| &buffer[span.start..span.end])
    }

    /// Bytes of all arguments together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.end - span.start).sum()
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

/// The commands that were parsed and not yet executed, and the beginning of the next one.
#[derive(Debug, Default)]
pub struct Frames {
    spans: Vec<Span>,
    /// Where each complete command's spans end.
    ends: Vec<usize>,
}

impl Frames {
    /// How many commands are complete.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if no command is complete.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The complete command at `index`, whose bytes are in `buffer`.
    #[must_use]
    pub fn command<'a>(&'a self, buffer: &'a [u8], index: usize) -> Args<'a> {
        let from = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Args::new(buffer, &self.spans[from..self.ends[index]])
    }
}

/// Bytes that are no command. The connection ends after the error was sent: what follows them
/// cannot be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(Cow<'static, str>);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

fn refuse<T>(what: impl Into<Cow<'static, str>>) -> Result<T, ProtocolError> {
    Err(ProtocolError(what.into()))
}

/// Where the parser is in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first byte of a command.
    Start,
    /// `left` arguments are missing; the header of the next one is expected.
    Header { left: usize },
    /// `left` arguments are missing, of which the next one has `bytes` bytes.
    Body { left: usize, bytes: usize },
}

/// Reads commands from a buffer that grows at its end.
#[derive(Debug)]
pub struct Parser {
    state: State,
    /// Up to where the buffer was read.
    at: usize,
    /// Up to where no line's end was found, so that it is not searched again.
    searched: usize,
}

impl Default for Parser {
    fn default() -> Self {
        Self { state: State::Start, at: 0, searched: 0 }
    }
}

impl Parser {
    /// Adds to `frames` the commands that `buffer` completes, until there are `most`.
    ///
    /// `buffer` begins as it did at the last call, except for what [`Parser::consume`] took away.
    /// Quoted arguments of inline commands are unquoted in place.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] at the first byte that no client sends; the commands before it are in
    /// `frames`.
    pub fn parse(
        &mut self,
        buffer: &mut [u8],
        frames: &mut Frames,
        limits: &ReadLimits,
        most: usize,
    ) -> Result<(), ProtocolError> {
        while frames.ends.len() < most {
            let advanced = match self.state {
                State::Start => self.start(buffer, frames, limits)?,
                State::Header { left } => self.header(buffer, left, limits)?,
                State::Body { left, bytes } => self.body(buffer, frames, left, bytes)?,
            };
            if !advanced {
                break;
            }
        }
        Ok(())
    }

    /// Forgets the complete commands, whose bytes the caller takes away from the front of the
    /// buffer: the returned number of them.
    pub fn consume(&mut self, frames: &mut Frames) -> usize {
        let complete = frames.ends.last().copied().unwrap_or(0);
        let partial = frames.spans.split_off(complete);
        // Of an incomplete command everything from its first argument on stays.
        let kept = partial.first().map_or(self.at, |span| span.start.min(self.at));
        frames.spans.clear();
        frames.ends.clear();
        let shifted = partial.iter().map(|s| Span::new(s.start - kept, s.end - kept));
        frames.spans.extend(shifted);
        self.at -= kept;
        self.searched = self.searched.saturating_sub(kept);
        kept
    }

    /// How many bytes must be in the buffer before the next argument can be complete; 0 if that
    /// is not known.
    #[must_use]
    pub fn wanted(&self) -> usize {
        match self.state {
            State::Body { bytes, .. } => self.at + bytes + 2,
            _ => 0,
        }
    }

    /// Returns true if a command has begun and is not complete.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.state != State::Start
    }

    /// The end of the line that begins at `at`: the place of its `\n`.
    fn line_end(
        &mut self,
        buffer: &[u8],
        most: usize,
        too_long: &'static str,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.searched.max(self.at);
        let to = buffer.len().min(self.at.saturating_add(most).saturating_add(2));
        let found = buffer[from.min(to)..to].iter().position(|byte| *byte == b'\n');
        match found {
            Some(offset) => {
                self.searched = 0;
                Ok(Some(from + offset))
            }
            // Not before all bytes are here in which the end may be: however they are split, the
            // answer is the same.
            None if buffer.len() - self.at >= most + 2 => refuse(too_long),
            None => {
                self.searched = buffer.len();
                Ok(None)
            }
        }
    }

    fn start(
        &mut self,
        buffer: &mut [u8],
        frames: &mut Frames,
        limits: &ReadLimits,
    ) -> Result<bool, ProtocolError> {
        match buffer.get(self.at) {
            None => Ok(false),
            Some(b'*') => self.multibulk(buffer, limits),
            Some(_) => self.inline(buffer, frames, limits),
        }
    }

    fn multibulk(&mut self, buffer: &[u8], limits: &ReadLimits) -> Result<bool, ProtocolError> {
        let Some(end) = self.line_end(buffer, HEADER_BYTES_MAX, "too big mbulk count string")?
        else {
            return Ok(false);
        };
        let count = parse_i64(trim_cr(&buffer[self.at + 1..end]));
        let Some(count) = count.filter(|count| *count <= limits.arguments as i64) else {
            return refuse(if limits.unauthenticated && count.is_some() {
                "unauthenticated multibulk length"
            } else {
                "invalid multibulk length"
            });
        };
        self.at = end + 1;
        if let Ok(left @ 1..) = usize::try_from(count) {
            self.state = State::Header { left };
        }
        Ok(true)
    }

    fn header(
        &mut self,
        buffer: &[u8],
        left: usize,
        limits: &ReadLimits,
    ) -> Result<bool, ProtocolError> {
        let Some(end) = self.line_end(buffer, HEADER_BYTES_MAX, "too big bulk count string")?
        else {
            return Ok(false);
        };
        let first = buffer[self.at];
        if first != b'$' {
            return refuse(format!("expected '$', got '{}'", char::from(first)));
        }
        let announced = parse_i64(trim_cr(&buffer[self.at + 1..end]));
        let bytes = announced.and_then(|n| usize::try_from(n).ok());
        let Some(bytes) = bytes.filter(|n| *n <= limits.bulk_bytes) else {
            return refuse(if limits.unauthenticated && bytes.is_some() {
                "unauthenticated bulk length"
            } else {
                "invalid bulk length"
            });
        };
        self.at = end + 1;
        self.state = State::Body { left, bytes };
        Ok(true)
    }

    fn body(
        &mut self,
        buffer: &[u8],
        frames: &mut Frames,
        left: usize,
        bytes: usize,
    ) -> Result<bool, ProtocolError> {
        let end = self.at + bytes;
        if buffer.len() < end + 2 {
            return Ok(false);
        }
        frames.spans.push(Span::new(self.at, end));
        // As in Redis, what stands in the place of the line's end is not looked at.
        self.at = end + 2;
        self.state = match left - 1 {
            0 => {
                frames.ends.push(frames.spans.len());
                State::Start
            }
            left => State::Header { left },
        };
        Ok(true)
    }

    fn inline(
        &mut self,
        buffer: &mut [u8],
        frames: &mut Frames,
        limits: &ReadLimits,
    ) -> Result<bool, ProtocolError> {
        let too_long = "too big inline request";
        let Some(end) = self.line_end(buffer, limits.inline_bytes, too_long)? else {
            return Ok(false);
        };
        let start = self.at;
        let line_len = trim_cr(&buffer[start..end]).len();
        let before = frames.spans.len();
        self.at = end + 1;
        if !split_line(&mut buffer[start..start + line_len], start, &mut frames.spans) {
            frames.spans.truncate(before);
            return refuse("unbalanced quotes in request");
        }
        if frames.spans.len() > before {
            frames.ends.push(frames.spans.len());
        }
        Ok(true)
    }
}

/// A line without the `\r` that may end it.
fn trim_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Splits a line at spaces into arguments, which may be quoted as in Redis, and unquotes them in
/// place. `base` is the line's place in the buffer. False if a quote is not closed, or if a closed
/// one is not followed by a space.
fn split_line(line: &mut [u8], base: usize, spans: &mut Vec<Span>) -> bool {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C);
    let mut at = 0;
    loop {
        while at < line.len() && is_space(line[at]) {
            at += 1;
        }
        if at == line.len() {
            return true;
        }
        let start = at;
        let mut to = at;
        while at < line.len() && !is_space(line[at]) {
            match line[at] {
                quote @ (b'"' | b'\'') => {
                    let Some(next) = unquote(line, at + 1, quote, &mut to) else { return false };
                    at = next;
                    if at < line.len() && !is_space(line[at]) {
                        return false;
                    }
                }
                byte => {
                    line[to] = byte;
                    to += 1;
                    at += 1;
                }
            }
        }
        spans.push(Span::new(base + start, base + to));
    }
}

/// Copies a quoted text that begins at `at` to `to`; returns the place after its closing quote.
fn unquote(line: &mut [u8], mut at: usize, quote: u8, to: &mut usize) -> Option<usize> {
    loop {
        let byte = *line.get(at)?;
        let next = line.get(at + 1).copied();
        let (decoded, taken) = match (byte, next) {
            (_, _) if byte == quote => return Some(at + 1),
            (b'\\', Some(b'\'')) if quote == b'\'' => (b'\'', 2),
            (b'\\', Some(escaped)) if quote == b'"' => {
                let hex = |at: usize| line.get(at).and_then(|c| char::from(*c).to_digit(16));
                match (escaped, hex(at + 2), hex(at + 3)) {
                    (b'x', Some(high), Some(low)) => ((high * 16 + low) as u8, 4),
                    (b'n', ..) => (b'\n', 2),
                    (b'r', ..) => (b'\r', 2),
                    (b't', ..) => (b'\t', 2),
                    (b'b', ..) => (0x08, 2),
                    (b'a', ..) => (0x07, 2),
                    _ => (escaped, 2),
                }
            }
            _ => (byte, 1),
        };
        line[*to] = decoded;
        *to += 1;
        at += taken;
    }
}

#[cfg(test)]
mod tests;
