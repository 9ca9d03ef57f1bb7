//! Clients that listen: they are sent messages that they have not asked for one by one.
//!
//! | module | who listens |
//! | --- | --- |
//! | `topics` | subscribers of channels and patterns |
//! | `tracking` | clients that keep values, and are told which are old |
//! | `monitors` | clients that are shown every command |
//!
//! All of them leave messages in clients' outboxes; nothing here waits for a client.

mod monitors;
mod topics;
mod tracking;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    clients::ClientInfo,
    outbox::{Message, MessageLimits},
    resp::Reply,
};

pub(crate) use monitors::Monitors;
pub(crate) use topics::{Name, Topic, Topics};
pub(crate) use tracking::{Changed, Tracker, Tracking, TrackingSizes};

/// All clients that listen.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) limits: Arc<MessageLimits>,
    pub(crate) topics: Topics,
    pub(crate) tracking: Tracking,
    pub(crate) monitors: Monitors,
    /// Messages that were published, and how many times they went to a client.
    pub(crate) published: AtomicU64,
    pub(crate) delivered: AtomicU64,
}

impl Listeners {
    /// Leaves a message for all that listen to a channel; returns how many times.
    pub(crate) fn publish(&self, topic: Topic, name: &[u8], text: &[u8]) -> usize {
        let told = self.topics.publish(&self.limits, topic, name, text);
        self.published.fetch_add(1, Ordering::Relaxed);
        self.delivered.fetch_add(told as u64, Ordering::Relaxed);
        told
    }
}

/// A message that is written at most once in each version of the protocol.
pub(crate) struct Written<'a, W> {
    limits: &'a Arc<MessageLimits>,
    write: W,
    resp2: Option<Arc<Message>>,
    resp3: Option<Arc<Message>>,
}

impl<'a, W: Fn(&mut Reply)> Written<'a, W> {
    /// What `write` writes.
    pub(crate) fn new(limits: &'a Arc<MessageLimits>, write: W) -> Self {
        Self { limits, write, resp2: None, resp3: None }
    }

    /// Leaves the message for a client, in the version that it speaks.
    pub(crate) fn tell(&mut self, info: &ClientInfo) {
        let is_resp3 = info.resp.load(Ordering::Relaxed) == 3;
        let slot = if is_resp3 { &mut self.resp3 } else { &mut self.resp2 };
        let message = slot.get_or_insert_with(|| {
            let mut reply = Reply::new(usize::MAX);
            reply.resp3 = is_resp3;
            (self.write)(&mut reply);
            Message::new(reply.bytes(), self.limits)
        });
        info.leave(message);
    }
}
