//! What a host keeps of a connection's bytes: those that came and were not answered, and answers
//! that were not sent.

use std::{
    collections::VecDeque,
    ops::Range,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    message::{
        Reply,
        format::{LENGTH_BYTES, failure},
        frame_len,
    },
    region::Segment,
    socket::Stream,
};

/// Bytes that are read at once: some hundreds of short requests, each of which would take a call of
/// the system otherwise.
const READ_BYTES: usize = 16 << 10;

/// The most bytes by which a frame's buffer grows before they have come. A client that announces a
/// long frame and sends nothing makes the host keep this much.
const STEP_BYTES: usize = 64 << 10;

/// A buffer that has grown beyond this is not kept for the next frame: most take far less.
const KEPT_BYTES: usize = 256 << 10;

/// Said of an answer that a client must ask for in parts.
pub(super) const TOO_LARGE: &str = "the answer does not fit a message";

/// The buffers of a connection. A connection that waits for its next request has none.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) input: Input,
    pub(super) output: Output,
    /// Values of the answer that is being made.
    pub(super) values: Vec<u8>,
}

impl Buffers {
    /// Returns true if nothing of them belongs to a client.
    pub(super) fn is_empty(&self) -> bool {
        self.input.is_empty() && self.output.is_empty()
    }

    /// The memory that they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.input.bytes.capacity() + self.output.bytes.capacity() + self.values.capacity()
    }

    /// Moves what has room into `spare`, and keeps what belongs to a client in as little as it
    /// needs.
    pub(super) fn shrink_into(&mut self, spare: &mut Self) {
        spare.values = std::mem::take(&mut self.values);
        if self.output.is_empty() {
            spare.output = std::mem::take(&mut self.output);
        } else {
            self.output.forget_sent();
        }
        let kept = self.input.bytes();
        if self.input.bytes.len() > 2 * kept.len() {
            let kept = Input { bytes: kept.to_vec(), begin: 0, end: kept.len() };
            spare.input = std::mem::replace(&mut self.input, kept);
            (spare.input.begin, spare.input.end) = (0, 0);
        }
    }

    /// Keeps a buffer for the next answer, unless it is larger than most need.
    pub(super) fn keep_values(&mut self, values: Vec<u8>) {
        if values.capacity() <= KEPT_BYTES {
            self.values = values;
        }
    }
}

/// Bytes that came of a client. They may end within a frame.
#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Those between the two came and were not taken.
    begin: usize,
    end: usize,
}

impl Input {
    pub(super) fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// The whole length of the frame that comes next, if it is known.
    fn next_len(&self) -> Result<Option<usize>> {
        self.bytes().first_chunk::<LENGTH_BYTES>().map(|length| frame_len(*length)).transpose()
    }

    /// Returns true if the next frame has come, or begins as no frame does.
    pub(super) fn holds_frame(&self) -> bool {
        self.next_len().is_ok_and(|len| len.is_some_and(|len| len <= self.bytes().len()))
    }

    /// Takes the next frame, if all of it has come.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a length that no frame has, or of over `len_max` bytes, before
    /// anything is allocated for it.
    pub(super) fn take_frame(&mut self, len_max: usize) -> Result<Option<Range<usize>>> {
        let Some(len) = self.next_len()? else { return Ok(None) };
        if len > len_max {
            return Err(Error::invalid(format!("a frame of {len} bytes, over {len_max}")));
        }
        if len > self.bytes().len() {
            return Ok(None);
        }
        let frame = self.begin..self.begin + len;
        self.begin += len;
        Ok(Some(frame))
    }

    /// The bytes of a frame that was taken last.
    pub(super) fn frame(&self, frame: Range<usize>) -> &[u8] {
        &self.bytes[frame]
    }

    /// Where further bytes go: at least one.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.begin, self.end) = (0, 0);
            if self.bytes.len() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        }
        // A length that no frame has was refused before.
        let next_len = self.next_len().ok().flatten().unwrap_or(0);
        let rest = next_len.saturating_sub(self.end - self.begin);
        let wanted = rest.clamp(READ_BYTES, STEP_BYTES);
        if self.bytes.len() - self.end < wanted {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            let len = self.bytes.len().max(self.end + wanted);
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Takes note of bytes that were put into [`Input::room`].
    pub(super) fn add(&mut self, bytes: usize) {
        self.end += bytes;
    }
}

/// Answers that a client was not sent yet.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many of them were sent.
    sent: usize,
    /// Whose descriptors go with the byte at a place.
    beside: VecDeque<(usize, Vec<Segment>)>,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of bytes that are to be sent.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Adds a reply, and the descriptors of segments that go with it.
    ///
    /// # Errors
    ///
    /// None but those of a refusal that does not encode. A reply that does not fit a frame is
    /// replaced by one.
    pub(super) fn push(
        &mut self,
        id: u32,
        reply: &Reply<'_>,
        segments: Vec<Segment>,
    ) -> Result<()> {
        let at = self.bytes.len();
        if reply.encode(id, &mut self.bytes).is_err() {
            let refused = Reply::Failed { code: failure::TOO_LARGE, text: TOO_LARGE };
            return refused.encode(id, &mut self.bytes);
        }
        if !segments.is_empty() {
            self.beside.push_back((at, segments));
        }
        Ok(())
    }

    /// Sends what there is, and what waits in the stream; returns false if the client has to read
    /// some of it first. Waits for that for at most `patience`.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the client has gone; [`Error::Io`].
    pub(super) fn send(&mut self, stream: &Stream, patience: Duration) -> Result<bool> {
        let mut until = None;
        while !self.send_some(stream)? {
            let now = Instant::now();
            let until = *until.get_or_insert(now + patience);
            if now >= until {
                return Ok(false);
            }
            stream.wait_for_room(until - now)?;
        }
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        Ok(true)
    }

    /// Sends what the system takes at once; returns true if that is all.
    fn send_some(&mut self, stream: &Stream) -> Result<bool> {
        while self.sent < self.bytes.len() {
            let (end, fds) = self.next_piece();
            let Some(sent) = stream.put_some(&self.bytes[self.sent..end], &fds)? else {
                return Ok(false);
            };
            if !fds.is_empty() {
                self.beside.pop_front();
            }
            self.sent += sent;
        }
        stream.flush_some()
    }

    /// Gives the memory of what was sent back, once it is half of all.
    fn forget_sent(&mut self) {
        if self.sent >= self.bytes.len() / 2 {
            self.bytes = self.bytes.split_off(self.sent);
            self.beside.iter_mut().for_each(|(at, _)| *at -= self.sent);
            self.sent = 0;
        }
    }

    /// Where the bytes end that can be sent at once, and the descriptors that go with the first.
    fn next_piece(&self) -> (usize, Vec<BorrowedFd<'_>>) {
        let mut beside = self.beside.iter();
        let (mut fds, mut next) = (Vec::new(), beside.next());
        if let Some((_, segments)) = next.filter(|(at, _)| *at == self.sent) {
            fds = segments.iter().map(Segment::fd).collect();
            next = beside.next();
        }
        (next.map_or(self.bytes.len(), |(at, _)| *at), fds)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::format::HEAD_BYTES;

    fn frame(len: usize, seed: u8) -> Vec<u8> {
        let mut frame = ((len - LENGTH_BYTES) as u32).to_le_bytes().to_vec();
        frame.resize(len, seed);
        frame
    }

    proptest! {
        #[test]
        fn frames_come_whole_however_their_bytes_come(
            lens in prop::collection::vec(prop_oneof![
                HEAD_BYTES..100,
                READ_BYTES - 9..READ_BYTES + 9,
                STEP_BYTES * 3..STEP_BYTES * 5,
            ], 1..9),
            steps in prop::collection::vec(prop_oneof![1usize..40, 1..STEP_BYTES * 2], 1..50),
        ) {
            let frames: Vec<_> = lens.iter().zip(1..).map(|(len, seed)| frame(*len, seed)).collect();
            let all = frames.concat();
            let (mut input, mut sent, mut taken) = (Input::default(), 0, Vec::new());
            let mut steps = steps.iter().cycle();
            while sent < all.len() {
                prop_assert!(!input.holds_frame());
                let (room, step) = (input.room(), *steps.next().unwrap());
                prop_assert!(!room.is_empty());
                let len = step.min(room.len()).min(all.len() - sent);
                room[..len].copy_from_slice(&all[sent..sent + len]);
                input.add(len);
                sent += len;
                prop_assert!(input.bytes.len() <= 2 * (input.bytes().len() + KEPT_BYTES));
                while let Some(frame) = input.take_frame(usize::MAX).unwrap() {
                    taken.push(input.frame(frame).to_vec());
                }
            }
            prop_assert!(input.is_empty());
            prop_assert_eq!(taken, frames);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_anything_is_allocated() {
        for (length, len_max) in [(u32::MAX, usize::MAX), (0, usize::MAX), (600, 512)] {
            let mut input = Input::default();
            input.room()[..4].copy_from_slice(&length.to_le_bytes());
            input.add(4);
            assert!(matches!(input.take_frame(len_max), Err(Error::Invalid(_))), "{length}");
            assert!(input.bytes.len() <= READ_BYTES);
        }
    }
}
