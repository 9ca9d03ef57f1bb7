//! What makes a client another than an ordinary one: what it listens to, and what it is told.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use super::{Client, Command, Context, Done, Flags, Group, categories, keys_of, slowness};
use crate::{
    clients::Mode,
    db::Databases,
    listeners::{Name, Topic},
    outbox::Message,
    resp::{Args, Reply},
    server::Server,
    txn::Pending,
};

/// Which replies the client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    All,
    None,
    /// All but that to the command that comes next.
    SkipNext,
    /// All but that to the present command.
    SkipThis,
}

/// How a client tracks the keys that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    #[default]
    All,
    /// Those that are read by the command after `CLIENT CACHING YES`.
    OptIn,
    /// All but those that are read by the command after `CLIENT CACHING NO`.
    OptOut,
}

/// A client's tracking.
#[derive(Debug, Default)]
pub(crate) struct OwnTracking {
    pub(crate) choice: Choice,
    pub(crate) is_broadcast: bool,
    pub(crate) skips_own: bool,
    /// `CLIENT CACHING` was said for the next command.
    pub(crate) caching: bool,
    pub(crate) prefixes: BTreeSet<Vec<u8>>,
}

impl OwnTracking {
    /// Returns true if what the present command reads is to be remembered.
    fn remembers(&self) -> bool {
        let Self { choice, caching, is_broadcast, .. } = *self;
        !is_broadcast && (choice == Choice::All || (choice == Choice::OptIn) == caching)
    }
}

/// What a client listens to. Only those that listen have one.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    names: [BTreeSet<Name>; 3],
    pub(crate) tracking: Option<OwnTracking>,
    is_monitor: bool,
    pub(crate) replies: Replies,
}

impl Listening {
    /// The names of a kind that the client has subscribed to.
    pub(crate) fn names(&self, topic: Topic) -> &BTreeSet<Name> {
        &self.names[topic as usize]
    }

    fn is_subscriber(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }
}

impl Client {
    /// What the client listens to, to be changed.
    pub(crate) fn listening_mut(&mut self) -> &mut Listening {
        self.listening.get_or_insert_default()
    }

    /// The client's tracking.
    pub(crate) fn tracking(&self) -> Option<&OwnTracking> {
        self.listening.as_ref()?.tracking.as_ref()
    }

    /// Returns true if the reply to the present command is sent.
    pub(crate) fn wants_replies(&self) -> bool {
        let replies = self.listening.as_ref().map_or(Replies::All, |listening| listening.replies);
        matches!(replies, Replies::All | Replies::SkipNext)
    }

    /// Lets a client that does not listen any more be an ordinary one.
    pub(crate) fn settle(&mut self) {
        let is_ordinary = self.listening.as_ref().is_some_and(|listening| {
            !listening.is_subscriber()
                && listening.tracking.is_none()
                && !listening.is_monitor
                && listening.replies == Replies::All
        });
        if is_ordinary {
            self.listening = None;
        }
    }

    /// Subscribes the client; returns how many channels and patterns, or shard channels, it has
    /// subscribed to.
    pub(crate) fn subscribe(&mut self, databases: &Databases, topic: Topic, name: &[u8]) -> usize {
        let info = Arc::clone(&self.info);
        let names = &mut self.listening_mut().names[topic as usize];
        if !names.contains(name) {
            let is_first = !info.is_subscriber();
            // Counted first: its messages have the limits of subscribers.
            info.subscribed[topic as usize].store(names.len() + 1, Ordering::Relaxed);
            names.insert(databases.listeners.topics.add(topic, name, &info));
            if is_first {
                databases.listeners.topics.note_subscriber(true);
            }
        }
        self.subscriptions(topic)
    }

    /// Takes a subscription back; returns how many are left.
    pub(crate) fn unsubscribe(
        &mut self,
        databases: &Databases,
        topic: Topic,
        name: &[u8],
    ) -> usize {
        if let Some(listening) = &mut self.listening
            && let Some(name) = listening.names[topic as usize].take(name)
        {
            databases.listeners.topics.remove(topic, &name, self.info.id);
            let left = listening.names[topic as usize].len();
            self.info.subscribed[topic as usize].store(left, Ordering::Relaxed);
            if !listening.is_subscriber() {
                databases.listeners.topics.note_subscriber(false);
            }
        }
        self.subscriptions(topic)
    }

    /// How many subscriptions a client is told that it has.
    pub(crate) fn subscriptions(&self, topic: Topic) -> usize {
        let Some(listening) = &self.listening else { return 0 };
        let count = |topic| listening.names(topic).len();
        match topic {
            Topic::ShardChannel => count(topic),
            _ => count(Topic::Channel) + count(Topic::Pattern),
        }
    }
}

/// What a subscriber may send that speaks RESP2, which has no other way to tell messages from
/// replies.
const SUBSCRIBERS_MAY: [&str; 9] = [
    "ping",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];

/// Why a client that listens may not send a command that is right in itself.
pub(crate) fn refusal(client: &Client, command: &Command, args: Args<'_>) -> Option<String> {
    let listening = client.listening.as_ref()?;
    let is_resp2 = client.info.resp.load(Ordering::Relaxed) == 2;
    if listening.is_subscriber() && is_resp2 && !SUBSCRIBERS_MAY.contains(&command.name) {
        let part = args.get(1).and_then(|word| command.part(word));
        let part = part.map_or_else(String::new, |(part, _)| format!("|{part}"));
        return Some(format!(
            "ERR Can't execute '{}{part}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context",
            command.name
        ));
    }
    let is_on_keys = command.flags.has(Flags::READ) || command.flags.has(Flags::WRITE);
    if listening.is_monitor && is_on_keys {
        return Some("ERR Replica can't interact with the keyspace".to_owned());
    }
    None
}

/// Before a command of a client that listens is run by itself: remembers the keys that it is about
/// to read, and sends the messages that have come before.
pub(crate) fn before(
    server: &Server,
    client: &Client,
    command: &Command,
    args: Args<'_>,
    out: &mut Reply,
) {
    remember(server, client, command, args);
    if client.wants_replies() {
        take_messages(client, out, usize::MAX);
    }
}

/// Before a command is run: remembers the keys that a client that tracks is about to read.
pub(crate) fn remember(server: &Server, client: &Client, command: &Command, args: Args<'_>) {
    if remembers(client) {
        remember_for(server, client.info.id, command, args);
    }
}

/// Returns true if what a client reads now is to be remembered.
pub(crate) fn remembers(client: &Client) -> bool {
    client.tracking().is_some_and(OwnTracking::remembers)
}

/// Remembers the keys that a command is about to read for a client. A script that only reads has
/// those remembered that it reads, and not those that it is given.
pub(crate) fn remember_for(server: &Server, client: u64, command: &Command, args: Args<'_>) {
    if command.flags.has(Flags::READ) && command.group != Group::Scripting {
        let listeners = &server.databases.listeners;
        for key in keys_of(command, args) {
            listeners.tracking.remember(&listeners.limits, client, key);
        }
    }
}

/// Notes which of the keys that a transaction has written its client is about to read.
pub(crate) fn note_reads(pending: &mut Pending, number: u8, command: &Command, args: Args<'_>) {
    if command.flags.has(Flags::READ) && command.group != Group::Scripting {
        keys_of(command, args).for_each(|key| pending.note_read(number, key));
    }
}

/// After a command was run: shows it to the monitors, if they were not shown it before.
pub(crate) fn show(server: &Server, client: &Client, command: &Command, args: Args<'_>) {
    if client.is_shown.take() {
        return;
    }
    show_from(server, (client.database, &client.info.address), command, args);
}

/// As [`show`], of what runs commands for a client.
pub(crate) fn show_from(
    server: &Server,
    (database, from): (usize, &str),
    command: &Command,
    args: Args<'_>,
) {
    let listeners = &server.databases.listeners;
    if !listeners.monitors.any() || is_for_operators(command, args) {
        return;
    }
    let is_secret =
        |at: usize| command.name == "auth" && at > 0 || slowness::is_secret(command, args, at);
    let shown = args.iter_from(0).enumerate();
    let shown = shown.map(|(at, arg)| if is_secret(at) { &b"(redacted)"[..] } else { arg });
    listeners.monitors.show(&listeners.limits, database, from, shown);
}

fn is_for_operators(command: &Command, args: Args<'_>) -> bool {
    let shown = |part: &str| {
        !["acl", "client"].contains(&command.name)
            || !categories::is_for_operators(command.name, part)
    };
    let part = args.get(1).and_then(|word| command.part(word));
    command.flags.has(Flags::ADMIN) || part.is_some_and(|(part, _)| !shown(part))
}

impl Context<'_, '_> {
    /// Sends the messages that have come for the client before the reply that is written next: not
    /// within the replies of an `EXEC`.
    pub(crate) fn take_messages(&mut self) {
        if !self.in_exec && self.client.wants_replies() {
            take_messages(self.client, self.out, usize::MAX);
        }
    }

    /// Sends what was written since `from` even if the client wants no replies.
    pub(crate) fn insist(&mut self, from: usize) {
        if !self.client.wants_replies() && !self.in_exec {
            let bytes = self.out.split_off(from);
            let limits = &self.server.databases.listeners.limits;
            self.client.info.leave(&Message::new(&bytes, limits));
        }
    }
}

/// Writes the messages that have come for a client to its replies, until those are `most` bytes.
pub(crate) fn take_messages(client: &Client, out: &mut Reply, most: usize) {
    let outbox = &client.info.outbox;
    while out.len() < most
        && outbox.has()
        && let Some(message) = outbox.pop()
    {
        out.raw(message.bytes());
    }
}

/// `MONITOR`.
pub(super) fn monitor(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    if context.in_exec {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    let listening = context.client.listening_mut();
    if !std::mem::replace(&mut listening.is_monitor, true) {
        context.client.info.set_mode(Mode::MONITOR, true);
        context.server.databases.listeners.monitors.add(&context.client.info);
    } else {
        // Redis says nothing to one that is a monitor already.
        return Ok(());
    }
    context.out.ok();
    Ok(())
}

/// More registrations than this are taken back beside the worker's other clients: each takes some
/// hundred nanoseconds.
const FEW_REGISTRATIONS: usize = 1000;

/// Makes the client an ordinary one: nothing that it registered stays.
pub(crate) fn end(server: &Server, client: &mut Client) {
    let Some(listening) = client.listening.take() else { return };
    let prefixes = listening.tracking.as_ref().map_or(0, |tracking| tracking.prefixes.len());
    let all = listening.names.iter().map(BTreeSet::len).sum::<usize>() + prefixes;
    if all > FEW_REGISTRATIONS {
        tokio::task::block_in_place(|| take_back(server, client, &listening));
    } else {
        take_back(server, client, &listening);
    }
}

fn take_back(server: &Server, client: &Client, listening: &Listening) {
    let listeners = &server.databases.listeners;
    for (topic, names) in Topic::ALL.into_iter().zip(&listening.names) {
        names.iter().for_each(|name| listeners.topics.remove(topic, name, client.info.id));
        client.info.subscribed[topic as usize].store(0, Ordering::Relaxed);
    }
    if listening.is_subscriber() {
        listeners.topics.note_subscriber(false);
    }
    if listening.is_monitor {
        listeners.monitors.remove(client.info.id);
        client.info.set_mode(Mode::MONITOR, false);
    }
    if let Some(tracking) = &listening.tracking {
        super::tracking::end(&server.databases, &client.info, tracking);
    }
}
