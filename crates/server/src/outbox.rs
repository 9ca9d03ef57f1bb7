//! Messages for a client that other threads leave for it: the connection's task sends them between
//! two replies.
//!
//! A message is written once for all that it goes to; an entry in a client's queue is a pointer.
//! What waits is bounded for each client and for all together: a client that does not take its
//! messages is ended, and the others do not notice.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::config::Limits;

/// What an entry of a queue costs beside the message: its pointer, in a queue that has room for
/// twice as many.
const ENTRY_BYTES: usize = 2 * size_of::<Arc<Message>>();

/// A queue whose room is for more messages than this gives it back when it is empty.
const IDLE_ENTRIES: usize = 8;

/// A client with fewer bytes of messages is not ended when all clients together have too many.
const SMALL_BYTES: usize = 256 << 10;

/// What `client-output-buffer-limit` says of one class of clients: a client is ended with more than
/// `hard` bytes, and with more than `soft` bytes for `soft_seconds`; 0 bytes are no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassLimit {
    pub(crate) hard: usize,
    pub(crate) soft: usize,
    pub(crate) soft_seconds: u64,
}

/// The limits of subscribers: those of Redis.
pub(crate) const SUBSCRIBERS: ClassLimit =
    ClassLimit { hard: 32 << 20, soft: 8 << 20, soft_seconds: 60 };

/// The limits of messages that wait, and how many bytes do.
#[derive(Debug)]
pub(crate) struct MessageLimits {
    subscribers: [AtomicU64; 3],
    /// Bytes for a client that has not subscribed: one that tracks keys, or a monitor.
    others_hard: AtomicUsize,
    /// Bytes of all messages and queues.
    kept: AtomicUsize,
    kept_max: AtomicUsize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        let limits = Limits::default();
        let this = Self {
            subscribers: [const { AtomicU64::new(0) }; 3],
            others_hard: AtomicUsize::new(limits.output_bytes),
            kept: AtomicUsize::new(0),
            kept_max: AtomicUsize::new(limits.all_output_bytes()),
        };
        this.set_subscribers(SUBSCRIBERS);
        this
    }
}

impl MessageLimits {
    /// Takes over the limits of the server's settings.
    pub(crate) fn configure(&self, limits: &Limits) {
        self.others_hard.store(limits.output_bytes, Ordering::Relaxed);
        self.kept_max.store(limits.all_output_bytes(), Ordering::Relaxed);
    }

    /// The limits of subscribers.
    pub(crate) fn subscribers(&self) -> ClassLimit {
        let [hard, soft, soft_seconds] =
            self.subscribers.each_ref().map(|limit| limit.load(Ordering::Relaxed));
        let bytes = |limit| usize::try_from(limit).unwrap_or(usize::MAX);
        ClassLimit { hard: bytes(hard), soft: bytes(soft), soft_seconds }
    }

    /// Changes the limits of subscribers.
    pub(crate) fn set_subscribers(&self, limit: ClassLimit) {
        let values = [limit.hard as u64, limit.soft as u64, limit.soft_seconds];
        self.subscribers.iter().zip(values).for_each(|(to, v)| to.store(v, Ordering::Relaxed));
    }

    fn of(&self, is_subscriber: bool) -> ClassLimit {
        if is_subscriber {
            return self.subscribers();
        }
        let hard = self.others_hard.load(Ordering::Relaxed);
        ClassLimit { hard, soft: 0, soft_seconds: 0 }
    }

    /// Bytes of all messages that wait, and of their queues.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.kept_bytes() > self.kept_max.load(Ordering::Relaxed)
    }
}

/// The bytes of a message, in one version of the protocol, for all clients that it goes to.
#[derive(Debug)]
pub(crate) struct Message {
    bytes: Box<[u8]>,
    limits: Arc<MessageLimits>,
}

impl Message {
    /// A message of these bytes.
    pub(crate) fn new(bytes: &[u8], limits: &Arc<MessageLimits>) -> Arc<Self> {
        limits.kept.fetch_add(bytes.len(), Ordering::Relaxed);
        Arc::new(Self { bytes: bytes.into(), limits: Arc::clone(limits) })
    }

    /// The bytes to send.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.limits.kept.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// A message in a queue.
#[derive(Debug)]
struct Entry(Arc<Message>);

impl Entry {
    fn new(message: &Arc<Message>) -> Self {
        message.limits.kept.fetch_add(ENTRY_BYTES, Ordering::Relaxed);
        Self(Arc::clone(message))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.limits.kept.fetch_sub(ENTRY_BYTES, Ordering::Relaxed);
    }
}

/// What became of a message that was left for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It is the first one in the queue: the connection is to be woken.
    First,
    /// The connection was woken for an earlier one.
    Behind,
    /// The client had too many: they are gone, and the connection is to be ended.
    TooMany,
    /// The connection is being ended.
    Ended,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Since when the client has had more bytes than the soft limit.
    over_since: Option<Instant>,
}

/// A client's messages, in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// True if the queue is not empty.
    has: AtomicBool,
    is_over: AtomicBool,
    queue: Mutex<Queue>,
}

impl Outbox {
    /// Returns true if messages wait.
    #[inline]
    pub(crate) fn has(&self) -> bool {
        self.has.load(Ordering::Acquire)
    }

    /// How many messages wait, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        (queue.entries.len(), queue.bytes)
    }

    /// Returns true if the client had more messages than it may.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Adds a message. `unsent` is how many bytes the client has not taken that came before.
    pub(crate) fn push(&self, message: &Arc<Message>, unsent: usize, is_subscriber: bool) -> Left {
        let mut queue = self.queue.lock();
        if self.is_over() {
            return Left::Ended;
        }
        queue.bytes += message.bytes.len();
        queue.entries.push_back(Entry::new(message));
        let limit = message.limits.of(is_subscriber);
        let bytes = queue.bytes + unsent;
        if limit.soft == 0 || bytes <= limit.soft {
            queue.over_since = None;
        } else if queue.over_since.is_none() {
            queue.over_since = Some(Instant::now());
        }
        let is_over = (limit.hard > 0 && bytes > limit.hard)
            || is_over_for(&queue, limit.soft_seconds)
            || (bytes > SMALL_BYTES && message.limits.is_full());
        if is_over {
            self.is_over.store(true, Ordering::Relaxed);
            self.has.store(false, Ordering::Release);
            *queue = Queue::default();
            return Left::TooMany;
        }
        // Under the lock, so that it agrees with the queue.
        if self.has.swap(true, Ordering::AcqRel) { Left::Behind } else { Left::First }
    }

    /// Returns true if the client has had more bytes than the soft limit for too long.
    pub(crate) fn is_slow(&self) -> bool {
        let queue = self.queue.lock();
        let soft_seconds = queue.entries.front().map(|entry| entry.0.limits.of(true).soft_seconds);
        soft_seconds.is_some_and(|seconds| is_over_for(&queue, seconds))
    }

    /// Takes the message that is sent next.
    pub(crate) fn pop(&self) -> Option<Arc<Message>> {
        let mut queue = self.queue.lock();
        let message = queue.entries.pop_front().map(|entry| Arc::clone(&entry.0))?;
        queue.bytes -= message.bytes.len();
        if queue.entries.is_empty() {
            queue.over_since = None;
            if queue.entries.capacity() > IDLE_ENTRIES {
                queue.entries = VecDeque::new();
            }
            self.has.store(false, Ordering::Release);
        }
        Some(message)
    }
}

fn is_over_for(queue: &Queue, seconds: u64) -> bool {
    queue.over_since.is_some_and(|since| since.elapsed() > Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_in_order_and_leave_nothing() {
        let limits = Arc::new(MessageLimits::default());
        let outbox = Outbox::default();
        for n in 0..100_u8 {
            let left = outbox.push(&Message::new(&[n; 10], &limits), 0, true);
            assert_eq!(left, if n == 0 { Left::First } else { Left::Behind });
        }
        assert_eq!((outbox.size(), limits.kept_bytes()), ((100, 1000), 1000 + 100 * ENTRY_BYTES));
        for n in 0..100_u8 {
            assert_eq!(outbox.pop().unwrap().bytes(), [n; 10]);
        }
        assert!(outbox.pop().is_none() && !outbox.has());
        assert_eq!((outbox.size(), limits.kept_bytes()), ((0, 0), 0));
    }

    #[test]
    fn what_is_not_taken_is_dropped_past_the_limits() {
        let limits = Arc::new(MessageLimits::default());
        limits.set_subscribers(ClassLimit { hard: 1000, soft: 0, soft_seconds: 0 });
        let message = Message::new(&[0; 400], &limits);
        let outbox = Outbox::default();
        assert_eq!(outbox.push(&message, 0, true), Left::First);
        // What the client has not taken yet counts.
        assert_eq!(outbox.push(&message, 201, true), Left::TooMany);
        assert_eq!(outbox.push(&message, 0, true), Left::Ended);
        assert!(outbox.is_over() && outbox.pop().is_none());
        // Others have the limit of replies, and all together another.
        let other = Outbox::default();
        (0..10).for_each(|_| assert_ne!(other.push(&message, 0, false), Left::TooMany));
        limits.configure(&Limits { buffers_bytes: 100, ..Limits::default() });
        assert_eq!(other.push(&message, 0, false), Left::Behind);
        assert_eq!(other.push(&message, SMALL_BYTES, false), Left::TooMany);
        drop((other, outbox));
        assert_eq!(limits.kept_bytes(), 400);
    }

    #[test]
    fn a_client_is_slow_once_it_was_over_the_soft_limit_for_long() {
        let limits = Arc::new(MessageLimits::default());
        limits.set_subscribers(ClassLimit { hard: 0, soft: 100, soft_seconds: 0 });
        let message = Message::new(&[0; 80], &limits);
        let outbox = Outbox::default();
        assert_eq!(outbox.push(&message, 0, true), Left::First);
        assert!(!outbox.is_slow());
        limits.set_subscribers(ClassLimit { hard: 0, soft: 100, soft_seconds: 1000 });
        assert_eq!(outbox.push(&message, 0, true), Left::Behind);
        assert!(!outbox.is_slow());
        limits.set_subscribers(ClassLimit { hard: 0, soft: 100, soft_seconds: 0 });
        std::thread::sleep(Duration::from_millis(2));
        assert!(outbox.is_slow());
    }
}
