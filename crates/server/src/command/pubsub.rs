//! Commands on messages: clients subscribe to channels and patterns, and publish to channels.

use super::{Context, Done, connection::wrong_part_arity, help, is_word};
use crate::{
    listeners::Topic,
    resp::{Args, Reply},
};

/// The word with which a client is told of a subscription.
fn subscribed(topic: Topic) -> &'static [u8] {
    match topic {
        Topic::Channel => b"subscribe",
        Topic::Pattern => b"psubscribe",
        Topic::ShardChannel => b"ssubscribe",
    }
}

/// The word with which a client is told that a subscription was taken back.
fn unsubscribed(topic: Topic) -> &'static [u8] {
    match topic {
        Topic::Channel => b"unsubscribe",
        Topic::Pattern => b"punsubscribe",
        Topic::ShardChannel => b"sunsubscribe",
    }
}

fn write_change(out: &mut Reply, word: &[u8], name: Option<&[u8]>, left: usize) {
    out.push(3);
    out.bulk(word);
    out.bulk_or_null(name);
    out.count(left);
}

fn subscribe_to(context: &mut Context<'_, '_>, args: Args<'_>, topic: Topic) -> Done {
    context.check_length(args.len() as u64)?;
    let from = context.out.len();
    for name in args.iter_from(1) {
        let count = context.client.subscribe(&context.server.databases, topic, name);
        write_change(context.out, subscribed(topic), Some(name), count);
    }
    context.insist(from);
    // The user may have lost the channels after it was asked and before they were registered.
    if let Some(user) = context.client.limited_user() {
        let may = |name| user.allows_channel(name, topic == Topic::Pattern);
        context.client.closing |= !args.iter_from(1).all(may);
    }
    Ok(())
}

fn unsubscribe_from(context: &mut Context<'_, '_>, args: Args<'_>, topic: Topic) -> Done {
    let all = args.len() == 1;
    let listening = context.client.listening.as_ref();
    let own = listening.map_or(0, |listening| listening.names(topic).len());
    context.check_length(if all { own } else { args.len() } as u64)?;
    let names: Vec<Vec<u8>> = match listening.filter(|_| all) {
        Some(listening) => listening.names(topic).iter().map(|name| name.to_vec()).collect(),
        None => args.iter_from(1).map(<[u8]>::to_vec).collect(),
    };
    let databases = &context.server.databases;
    let client = &mut *context.client;
    let leave = |name: &Vec<u8>| client.unsubscribe(databases, topic, name);
    let left: Vec<usize> = names.iter().map(leave).collect();
    // What was published before comes before: nothing of a channel comes after it was left.
    context.take_messages();
    let from = context.out.len();
    for (name, left) in names.iter().zip(left) {
        write_change(context.out, unsubscribed(topic), Some(name), left);
    }
    if names.is_empty() {
        let left = context.client.subscriptions(topic);
        write_change(context.out, unsubscribed(topic), None, left);
    }
    context.insist(from);
    context.client.settle();
    Ok(())
}

/// `SUBSCRIBE`.
pub(super) fn subscribe(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    subscribe_to(context, args, Topic::Channel)
}

/// `PSUBSCRIBE`.
pub(super) fn psubscribe(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    subscribe_to(context, args, Topic::Pattern)
}

/// `SSUBSCRIBE`.
pub(super) fn ssubscribe(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    subscribe_to(context, args, Topic::ShardChannel)
}

/// `UNSUBSCRIBE`.
pub(super) fn unsubscribe(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    unsubscribe_from(context, args, Topic::Channel)
}

/// `PUNSUBSCRIBE`.
pub(super) fn punsubscribe(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    unsubscribe_from(context, args, Topic::Pattern)
}

/// `SUNSUBSCRIBE`.
pub(super) fn sunsubscribe(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    unsubscribe_from(context, args, Topic::ShardChannel)
}

/// Publishes at once, or once the transaction is committed.
fn publish_to(context: &mut Context<'_, '_>, args: Args<'_>, topic: Topic) -> Done {
    let (channel, message) = (args.at(1), args.at(2));
    let listeners = &context.server.databases.listeners;
    let receivers = listeners.topics.receivers(topic, channel);
    context.check_length(receivers as u64)?;
    if context.in_exec {
        context.txn.publish(topic, channel, message);
        context.out.count(receivers);
    } else {
        context.out.count(listeners.publish(topic, channel, message));
    }
    Ok(())
}

/// `PUBLISH`.
pub(super) fn publish(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    publish_to(context, args, Topic::Channel)
}

/// `SPUBLISH`.
pub(super) fn spublish(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    publish_to(context, args, Topic::ShardChannel)
}

/// `PUBSUB` and its parts.
pub(super) fn pubsub(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    if is_word(part, "help") && args.len() == 2 {
        help::write("PUBSUB", help::PUBSUB, context.out);
    } else if is_word(part, "channels") && args.len() <= 3 {
        return channels(context, args.get(2), Topic::Channel);
    } else if is_word(part, "shardchannels") && args.len() <= 3 {
        return channels(context, args.get(2), Topic::ShardChannel);
    } else if is_word(part, "numsub") {
        return counts(context, args, Topic::Channel);
    } else if is_word(part, "shardnumsub") {
        return counts(context, args, Topic::ShardChannel);
    } else if is_word(part, "numpat") && args.len() == 2 {
        let patterns = context.server.databases.listeners.topics.count(Topic::Pattern);
        context.out.count(patterns);
    } else {
        return Err(wrong_part_arity(args));
    }
    Ok(())
}

fn channels(context: &mut Context<'_, '_>, pattern: Option<&[u8]>, topic: Topic) -> Done {
    let topics = &context.server.databases.listeners.topics;
    context.check_length(topics.count(topic) as u64)?;
    let names = topics.names(topic, pattern);
    context.out.array(names.len());
    names.iter().for_each(|name| context.out.bulk(name));
    Ok(())
}

fn counts(context: &mut Context<'_, '_>, args: Args<'_>, topic: Topic) -> Done {
    context.check_length(args.len() as u64)?;
    context.out.array(2 * (args.len() - 2));
    for name in args.iter_from(2) {
        let subscribers = context.server.databases.listeners.topics.subscribers(topic, name);
        context.out.bulk(name);
        context.out.count(subscribers);
    }
    Ok(())
}
