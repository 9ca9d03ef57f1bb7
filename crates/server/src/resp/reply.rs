//! The writer of replies, in the version of the protocol that the client chose.
//!
//! What RESP3 says with a type of its own, RESP2 says as Redis does: maps and sets are arrays,
//! floats are bulk strings, null is a bulk string or an array of length -1.

use super::number::{format_f64, push_i64};
use crate::effort;

/// Replies that were written and not yet sent.
#[derive(Debug)]
pub struct Reply {
    buffer: Vec<u8>,
    /// True if the client speaks RESP3.
    pub resp3: bool,
    limit: usize,
    overflowed: bool,
    /// The codes of the errors that were written since they were taken.
    codes: Vec<String>,
}

/// The longest code of an error that is told apart, in bytes, and how many are kept until they are
/// taken: a run of commands has at most 256.
const CODE_BYTES_MAX: usize = 32;
const CODES_MAX: usize = 1024;

impl Reply {
    /// No replies. Past `limit` bytes nothing is kept, and [`Reply::overflowed`] says so.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), resp3: false, limit, overflowed: false, codes: Vec::new() }
    }

    /// The bytes to send.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// How many bytes there are to send.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns true if there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns true if a reply was larger than the limit: what is here is not whole then.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Takes back everything from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
    }

    /// Takes everything back, and lets go of the memory if it is more than `keep` bytes.
    pub fn clear(&mut self, keep: usize) {
        self.buffer.clear();
        if self.buffer.capacity() > keep {
            effort::free(std::mem::take(&mut self.buffer));
        }
    }

    /// Goes on in another buffer, whose bytes are the replies now; gives the one before back.
    pub fn replace_buffer(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.buffer, buffer)
    }

    /// Bytes that the buffer holds or has room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn header(&mut self, kind: u8, number: i64) {
        if self.buffer.len() > self.limit {
            self.overflowed = true;
            self.buffer.clear();
        }
        self.buffer.push(kind);
        push_i64(&mut self.buffer, number);
        self.end_line();
    }

    fn end_line(&mut self) {
        self.buffer.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.buffer.push(kind);
        self.buffer.extend_from_slice(text);
        self.end_line();
    }

    /// A short text without line ends: `+OK`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.buffer.extend_from_slice(b"+OK\r\n");
    }

    /// An error; line ends in it become spaces, since they would end it.
    pub fn error(&mut self, text: &str) {
        self.note_error(text);
        self.buffer.push(b'-');
        let bytes =
            text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        self.buffer.extend(bytes);
        self.end_line();
    }

    /// Counts an error of this text that is written in another way, by its code.
    #[cold]
    pub fn note_error(&mut self, text: &str) {
        let code = text.split([' ', '\r', '\n']).next().unwrap_or_default();
        if code.len() <= CODE_BYTES_MAX && self.codes.len() < CODES_MAX {
            self.codes.push(code.to_owned());
        }
    }

    /// Returns true if errors were written since their codes were taken.
    #[inline]
    #[must_use]
    pub fn has_errors(&self) -> bool {
        !self.codes.is_empty()
    }

    /// How many errors were written since their codes were taken.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.codes.len()
    }

    /// Takes all errors back but the first `len`.
    pub fn truncate_errors(&mut self, len: usize) {
        self.codes.truncate(len);
    }

    /// The codes of the errors that were written since this was called last.
    pub fn take_errors(&mut self) -> Vec<String> {
        std::mem::take(&mut self.codes)
    }

    /// An integer.
    pub fn int(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A count.
    pub fn count(&mut self, number: usize) {
        self.header(b':', i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// A byte string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        if self.buffer.len() + bytes.len() > self.limit {
            self.overflowed = true;
            return;
        }
        self.buffer.reserve(bytes.len() + 2);
        self.buffer.extend_from_slice(bytes);
        self.end_line();
    }

    /// A byte string, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Null where a value would be.
    pub fn null(&mut self) {
        self.buffer.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Null where an array would be.
    pub fn null_array(&mut self) {
        self.buffer.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The head of an array of `len` replies.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// The head of a message of `len` parts that nobody has asked for at this moment.
    pub fn push(&mut self, len: usize) {
        self.header(if self.resp3 { b'>' } else { b'*' }, len as i64);
    }

    /// The head of a map of `len` pairs.
    pub fn map(&mut self, len: usize) {
        if self.resp3 { self.header(b'%', len as i64) } else { self.array(len * 2) }
    }

    /// The head of a set of `len` replies.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3 { b'~' } else { b'*' }, len as i64);
    }

    /// A float.
    pub fn double(&mut self, number: f64) {
        self.decimal(&format_f64(number));
    }

    /// A number that is written already.
    pub fn decimal(&mut self, text: &str) {
        if self.resp3 { self.line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    /// A text for people.
    pub fn verbatim(&mut self, text: &str) {
        if !self.resp3 {
            return self.bulk(text.as_bytes());
        }
        self.header(b'=', text.len() as i64 + 4);
        self.buffer.extend_from_slice(b"txt:");
        self.buffer.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// Replies that were written before.
    pub fn raw(&mut self, replies: &[u8]) {
        self.buffer.extend_from_slice(replies);
    }

    /// Writes the head of an array of `len` replies before those written since `from`.
    pub fn array_before(&mut self, from: usize, len: usize) {
        let written = self.split_off(from);
        self.array(len);
        self.raw(&written);
    }

    /// Takes back what was written since `from`.
    pub fn split_off(&mut self, from: usize) -> Vec<u8> {
        self.buffer.split_off(from.min(self.buffer.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(1 << 20);
        reply.resp3 = resp3;
        write(&mut reply);
        String::from_utf8(reply.bytes().to_vec()).unwrap()
    }

    #[test]
    fn both_versions_have_their_forms() {
        let all = |reply: &mut Reply| {
            reply.map(1);
            reply.bulk(b"a");
            reply.double(0.5);
            reply.set(1);
            reply.null();
            reply.null_array();
            reply.verbatim("v");
            reply.error("ERR a\nb");
        };
        assert_eq!(
            written(false, all),
            "*2\r\n$1\r\na\r\n$3\r\n0.5\r\n*1\r\n$-1\r\n*-1\r\n$1\r\nv\r\n-ERR a b\r\n"
        );
        assert_eq!(
            written(true, all),
            "%1\r\n$1\r\na\r\n,0.5\r\n~1\r\n_\r\n_\r\n=5\r\ntxt:v\r\n-ERR a b\r\n"
        );
    }

    #[test]
    fn an_array_may_be_counted_afterwards() {
        let text = written(false, |reply| {
            reply.ok();
            let from = reply.len();
            reply.int(1);
            reply.int(-2);
            reply.array_before(from, 2);
        });
        assert_eq!(text, "+OK\r\n*2\r\n:1\r\n:-2\r\n");
    }

    #[test]
    fn replies_stay_within_their_limit() {
        let mut reply = Reply::new(100);
        reply.bulk(&[0; 90]);
        assert!(!reply.overflowed());
        for _ in 0..100 {
            reply.bulk(&[0; 90]);
        }
        assert!(reply.overflowed() && reply.len() < 200, "{}", reply.len());
    }
}
