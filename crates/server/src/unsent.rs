//! Replies that a client has not taken yet, in the order in which they are sent.

use std::{collections::VecDeque, sync::Arc};

use crate::{effort, outbox::Message};

/// Small replies join a chunk until it has this many bytes: what the kernel takes at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Messages with fewer bytes are copied: others keep them no longer than they need.
const SHARED_BYTES: usize = 16 << 10;

/// Bytes that are sent one after the other.
#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Arc<Message>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(message) => message.bytes(),
        }
    }
}

/// Bytes in chunks. Replies that are large stay in the buffer that they were written into.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that were sent.
    sent: usize,
    /// Bytes that are left in all chunks.
    len: usize,
}

impl Unsent {
    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if everything was sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many chunks the bytes lie in.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Copies replies to the end.
    pub(crate) fn push(&mut self, replies: &[u8]) {
        if replies.is_empty() {
            return;
        }
        match self.chunks.back_mut() {
            Some(Chunk::Own(last)) if last.len() + replies.len() <= CHUNK_BYTES => {
                last.extend_from_slice(replies);
            }
            _ => self.chunks.push_back(Chunk::Own(replies.to_vec())),
        }
        self.len += replies.len();
    }

    /// Adds replies in the buffer that they are in. Few bytes are copied, and the buffer is given
    /// back.
    pub(crate) fn push_buffer(&mut self, replies: Vec<u8>) -> Option<Vec<u8>> {
        if replies.len() < CHUNK_BYTES {
            self.push(&replies);
            return Some(replies);
        }
        self.len += replies.len();
        self.chunks.push_back(Chunk::Own(replies));
        None
    }

    /// As [`Unsent::push_buffer`], but for the first bytes, which were sent: everything was.
    pub(crate) fn push_rest(&mut self, replies: Vec<u8>, sent: usize) -> Option<Vec<u8>> {
        debug_assert!(self.is_empty(), "earlier replies are sent first");
        let left = replies.len() - sent;
        if left < CHUNK_BYTES {
            self.push(&replies[sent..]);
            return Some(replies);
        }
        (self.len, self.sent) = (left, sent);
        self.chunks.push_back(Chunk::Own(replies));
        None
    }

    /// Adds a message. A large one is not copied.
    pub(crate) fn push_shared(&mut self, message: Arc<Message>) {
        let bytes = message.bytes();
        if bytes.len() < SHARED_BYTES {
            return self.push(bytes);
        }
        self.len += bytes.len();
        self.chunks.push_back(Chunk::Shared(message));
    }

    /// The bytes that are to be sent next.
    pub(crate) fn front(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk.bytes()[self.sent..])
    }

    /// Takes note that the first `bytes` of [`Unsent::front`] were sent.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        self.len -= bytes;
        if self.chunks.front().is_some_and(|chunk| chunk.bytes().len() == self.sent) {
            if let Some(Chunk::Own(bytes)) = self.chunks.pop_front() {
                effort::free(bytes);
            }
            self.sent = 0;
        }
        if self.chunks.is_empty() {
            // The room for the chunks' places may be large as well.
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let (mut unsent, mut wanted) = (Unsent::default(), Vec::new());
        for n in 0..5000_usize {
            let replies = vec![n as u8; n * 37 % 997];
            wanted.extend_from_slice(&replies);
            unsent.push(&replies);
        }
        assert!(unsent.chunks() < wanted.len() / (CHUNK_BYTES / 2), "{}", unsent.chunks());
        let large = vec![7; 2 * CHUNK_BYTES];
        wanted.extend_from_slice(&large);
        assert!(unsent.push_buffer(large).is_none() && unsent.push_buffer(vec![8; 9]).is_some());
        wanted.extend_from_slice(&[8; 9]);
        assert_eq!(unsent.len(), wanted.len());
        let mut taken = Vec::new();
        while !unsent.is_empty() {
            let most = unsent.front().len().min(40_000);
            taken.extend_from_slice(&unsent.front()[..most]);
            unsent.advance(most);
        }
        assert!(taken == wanted && unsent.front().is_empty() && unsent.chunks() == 0);
        assert!(unsent.push_rest(vec![1; CHUNK_BYTES + 8], 9).is_some());
        assert_eq!(unsent.front(), [1; CHUNK_BYTES - 1]);
        unsent.advance(CHUNK_BYTES - 1);
        let rest: Vec<u8> = (0..2 * CHUNK_BYTES).map(|at| (at / CHUNK_BYTES) as u8).collect();
        assert!(unsent.push_rest(rest, CHUNK_BYTES - 1).is_none());
        assert_eq!((unsent.len(), unsent.front()[0], unsent.front()[1]), (CHUNK_BYTES + 1, 0, 1));
        unsent.advance(CHUNK_BYTES + 1);
        assert!(unsent.is_empty() && unsent.front().is_empty());
    }
}
