//! What the clients of one worker share.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::commit::CommitGroups;

/// The most bytes of replies that wait for a worker's other clients at a time. More would have left
/// the processor's nearer caches before the kernel copies it.
const REPLY_BYTES_MAX: usize = 128 << 10;

/// What the clients of one worker share.
#[derive(Default)]
pub(crate) struct WorkerState {
    pub(crate) groups: CommitGroups,
    /// Bytes of replies that wait until all clients whose commands are here were served.
    reply_bytes: AtomicUsize,
}

/// A client's replies, which wait for those of the others until this is dropped.
pub(crate) struct HeldReplies<'w> {
    worker: &'w WorkerState,
    bytes: usize,
}

impl Drop for HeldReplies<'_> {
    fn drop(&mut self) {
        self.worker.reply_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl WorkerState {
    /// Lets replies of `bytes` wait. `None` if too many do; these are to be sent now.
    pub(crate) fn hold_replies(&self, bytes: usize) -> Option<HeldReplies<'_>> {
        let held = HeldReplies { worker: self, bytes };
        let before = self.reply_bytes.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= REPLY_BYTES_MAX).then_some(held)
    }
}
