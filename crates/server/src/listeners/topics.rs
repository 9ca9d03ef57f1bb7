//! Which clients listen to which channels, and how a message reaches them.
//!
//! The channels lie in parts by their hash, and each has a lock of its own: what is published to
//! one waits for nothing that is published to another, and all subscribers of a channel see its
//! messages in the same order. A client registers here before it is told so.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use xxhash_rust::xxh3::xxh3_64;

use super::Written;
use crate::{clients::ClientInfo, glob, outbox::MessageLimits, resp::Reply};

/// Parts that the channels lie in: more than there are cores that subscribe at the same time.
const PARTS: usize = 256;

/// The name of a channel or a pattern, which its subscribers share.
pub(crate) type Name = Arc<[u8]>;

/// What clients subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Channel,
    Pattern,
    /// A channel of its own kind, which belongs to a shard in a cluster.
    ShardChannel,
}

impl Topic {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::ShardChannel];
}

/// The subscribers of a channel or a pattern, by their number.
#[derive(Debug, Default)]
struct Subscribers(Vec<(u64, Arc<ClientInfo>)>);

impl Subscribers {
    fn add(&mut self, info: &Arc<ClientInfo>) {
        if let Err(at) = self.0.binary_search_by_key(&info.id, |(id, _)| *id) {
            self.0.insert(at, (info.id, Arc::clone(info)));
        }
    }

    fn remove(&mut self, id: u64) {
        if let Ok(at) = self.0.binary_search_by_key(&id, |(id, _)| *id) {
            self.0.remove(at);
        }
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }

    /// Leaves the message that `write` writes for each of them; returns how many.
    fn tell(&self, limits: &Arc<MessageLimits>, write: impl Fn(&mut Reply)) -> usize {
        let mut written = Written::new(limits, write);
        self.0.iter().for_each(|(_, info)| written.tell(info));
        self.0.len()
    }
}

/// The channels of a part, with their subscribers.
type Part = HashMap<Name, Mutex<Subscribers>>;

/// Channels of one kind.
#[derive(Debug)]
struct Channels {
    parts: Box<[RwLock<Part>]>,
    count: AtomicUsize,
}

impl Default for Channels {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| RwLock::default()).collect(), count: AtomicUsize::new(0) }
    }
}

impl Channels {
    #[expect(clippy::cast_possible_truncation, reason = "far fewer parts")]
    fn part(&self, name: &[u8]) -> &RwLock<Part> {
        &self.parts[xxh3_64(name) as usize % PARTS]
    }

    fn add(&self, name: &[u8], info: &Arc<ClientInfo>) -> Name {
        let mut part = self.part(name).write();
        if let Some((name, subscribers)) = part.get_key_value(name) {
            subscribers.lock().add(info);
            return Arc::clone(name);
        }
        let (name, mut subscribers) = (Name::from(name), Subscribers::default());
        subscribers.add(info);
        part.insert(Arc::clone(&name), Mutex::new(subscribers));
        self.count.fetch_add(1, Ordering::Relaxed);
        name
    }

    fn remove(&self, name: &[u8], id: u64) {
        let mut part = self.part(name).write();
        let Some(subscribers) = part.get_mut(name) else { return };
        subscribers.get_mut().remove(id);
        if subscribers.get_mut().0.is_empty() {
            part.remove(name);
            self.count.fetch_sub(1, Ordering::Relaxed);
            if part.len() < part.capacity() / 4 {
                part.shrink_to_fit();
            }
        }
    }

    fn with<T: Default>(&self, name: &[u8], look: impl FnOnce(&Subscribers) -> T) -> T {
        if self.count.load(Ordering::Relaxed) == 0 {
            return T::default();
        }
        let part = self.part(name).read();
        part.get(name).map_or_else(T::default, |subscribers| look(&subscribers.lock()))
    }

    fn names(&self, pattern: Option<&[u8]>) -> Vec<Name> {
        let is_wanted = |name: &&Name| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        let parts = self.parts.iter();
        parts.flat_map(|p| p.read().keys().filter(is_wanted).cloned().collect::<Vec<_>>()).collect()
    }
}

/// All that clients subscribe to.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    channels: Channels,
    shard_channels: Channels,
    patterns: RwLock<BTreeMap<Name, Subscribers>>,
    pattern_count: AtomicUsize,
    /// Clients that have subscribed to anything.
    clients: AtomicUsize,
}

impl Topics {
    /// The clients that listen to anything of a kind whose name is as `is_one` says.
    pub(crate) fn listeners_of(
        &self,
        topic: Topic,
        is_one: impl Fn(&[u8]) -> bool,
    ) -> Vec<Arc<ClientInfo>> {
        let mut found = Vec::new();
        let mut take = |name: &Name, subscribers: &Subscribers| {
            if is_one(name) {
                found.extend(subscribers.0.iter().map(|(_, info)| Arc::clone(info)));
            }
        };
        let channels = match topic {
            Topic::Channel => &self.channels,
            Topic::ShardChannel => &self.shard_channels,
            Topic::Pattern => {
                let patterns = self.patterns.read();
                patterns.iter().for_each(|(name, subscribers)| take(name, subscribers));
                return found;
            }
        };
        for part in &channels.parts {
            let part = part.read();
            part.iter().for_each(|(name, subscribers)| take(name, &subscribers.lock()));
        }
        found
    }

    /// Says that a client has become a subscriber, or is none any more.
    pub(crate) fn note_subscriber(&self, is_one: bool) {
        if is_one {
            self.clients.fetch_add(1, Ordering::Relaxed);
        } else {
            self.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many clients have subscribed to anything.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    fn kind(&self, topic: Topic) -> &Channels {
        if topic == Topic::ShardChannel { &self.shard_channels } else { &self.channels }
    }

    /// Registers a client; returns the name, which it keeps.
    pub(crate) fn add(&self, topic: Topic, name: &[u8], info: &Arc<ClientInfo>) -> Name {
        if topic != Topic::Pattern {
            return self.kind(topic).add(name, info);
        }
        let mut patterns = self.patterns.write();
        let known = patterns.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| Name::from(name));
        patterns.entry(Arc::clone(&name)).or_default().add(info);
        self.pattern_count.store(patterns.len(), Ordering::Relaxed);
        name
    }

    /// Takes a client's registration back.
    pub(crate) fn remove(&self, topic: Topic, name: &[u8], id: u64) {
        if topic != Topic::Pattern {
            return self.kind(topic).remove(name, id);
        }
        let mut patterns = self.patterns.write();
        let Some(subscribers) = patterns.get_mut(name) else { return };
        subscribers.remove(id);
        if subscribers.0.is_empty() {
            patterns.remove(name);
            self.pattern_count.store(patterns.len(), Ordering::Relaxed);
        }
    }

    /// How many channels, or patterns, have subscribers.
    pub(crate) fn count(&self, topic: Topic) -> usize {
        match topic {
            Topic::Pattern => self.pattern_count.load(Ordering::Relaxed),
            _ => self.kind(topic).count.load(Ordering::Relaxed),
        }
    }

    /// The channels of a kind that have subscribers, and that match a pattern.
    pub(crate) fn names(&self, topic: Topic, pattern: Option<&[u8]>) -> Vec<Name> {
        self.kind(topic).names(pattern)
    }

    /// How many clients have subscribed to a channel itself.
    pub(crate) fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        self.kind(topic).with(name, |subscribers| subscribers.0.len())
    }

    /// How many times a message to a channel would be sent.
    pub(crate) fn receivers(&self, topic: Topic, name: &[u8]) -> usize {
        let direct = self.subscribers(topic, name);
        if topic == Topic::ShardChannel || self.count(Topic::Pattern) == 0 {
            return direct;
        }
        let patterns = self.patterns.read();
        let matching = patterns.iter().filter(|(pattern, _)| glob::matches(pattern, name));
        direct + matching.map(|(_, subscribers)| subscribers.0.len()).sum::<usize>()
    }

    /// Leaves a message for all that listen to a channel; returns how many times.
    pub(crate) fn publish(
        &self,
        limits: &Arc<MessageLimits>,
        topic: Topic,
        name: &[u8],
        text: &[u8],
    ) -> usize {
        let kind: &[u8] = if topic == Topic::ShardChannel { b"smessage" } else { b"message" };
        let mut told = self.kind(topic).with(name, |subscribers| {
            subscribers.tell(limits, |out| write(out, &[kind, name, text]))
        });
        if topic == Topic::ShardChannel || self.count(Topic::Pattern) == 0 {
            return told;
        }
        for (pattern, subscribers) in &*self.patterns.read() {
            if glob::matches(pattern, name) {
                let parts: [&[u8]; 4] = [b"pmessage", pattern, name, text];
                told += subscribers.tell(limits, |out| write(out, &parts));
            }
        }
        told
    }
}

/// Writes a message of byte strings.
fn write(out: &mut Reply, parts: &[&[u8]]) {
    out.push(parts.len());
    parts.iter().for_each(|part| out.bulk(part));
}
