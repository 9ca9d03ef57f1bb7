//! Buffers for replies that a thread keeps from one client to the next.

use std::cell::Cell;

use crate::effort;

/// Replies that are smaller are copied out of the buffer that they were written into, which is warm
/// for the next client then.
pub(crate) const SMALL_REPLY_BYTES: usize = 4 << 10;

/// The largest buffer that is kept: twice the bytes at which replies are sent.
const BYTES_MAX: usize = 128 << 10;

/// How many buffers a thread keeps.
const SPARE_BUFFERS: usize = 16;

thread_local! {
    /// The last one was used last, and is in the processor's cache.
    static SPARE: Cell<Vec<Vec<u8>>> = const { Cell::new(Vec::new()) };
}

/// A buffer, empty.
pub(crate) fn take() -> Vec<u8> {
    let mut spare = SPARE.take();
    let buffer = spare.pop().unwrap_or_else(|| Vec::with_capacity(4 * SMALL_REPLY_BYTES));
    SPARE.set(spare);
    buffer
}

/// Keeps a buffer for the next replies of this thread, if it is neither small nor large.
pub(crate) fn keep(mut buffer: Vec<u8>) {
    let mut spare = SPARE.take();
    let is_fit = (SMALL_REPLY_BYTES..=BYTES_MAX).contains(&buffer.capacity());
    if is_fit && spare.len() < SPARE_BUFFERS {
        buffer.clear();
        spare.push(buffer);
        buffer = Vec::new();
    }
    SPARE.set(spare);
    effort::free(buffer);
}
