//! What of two replies is compared: not the order where Redis gives none, and not moments.

use super::{
    common::Value,
    scripts::{EACH, SHOW},
};

type Command = Vec<Vec<u8>>;

/// What one client has queued, for an `EXEC`'s replies have the order of its commands.
#[derive(Default)]
pub(crate) struct Replies {
    queued: Vec<Command>,
}

impl Replies {
    /// Takes out of a pair of replies what is not compared.
    pub(crate) fn compared(&mut self, command: &[Vec<u8>], pair: [Value; 2]) -> [Value; 2] {
        let name = command[0].to_ascii_lowercase();
        let pair = pair.map(|reply| match (name.as_slice(), reply) {
            (b"exec", Value::Array(replies)) => {
                let mut replies: Vec<Value> = replies;
                for (command, reply) in self.queued.iter().zip(&mut replies) {
                    *reply = compared(command, std::mem::replace(reply, Value::Null));
                }
                Value::Array(replies)
            }
            (_, reply) => compared(command, reply),
        });
        let [mut ours, theirs] = pair;
        same_moments(&mut ours, &theirs);
        let pair = [ours, theirs];
        match &pair[0] {
            Value::Simple(said) if said == "QUEUED" => self.queued.push(command.to_vec()),
            _ if name == b"exec" || name == b"discard" => {
                self.tell_of_exec(&pair);
                self.queued.clear();
            }
            _ => {}
        }
        pair
    }

    /// Prints which command of an `EXEC` has other replies.
    fn tell_of_exec(&self, pair: &[Value; 2]) {
        if let [Value::Array(ours), Value::Array(theirs)] = pair
            && let Some(at) = ours.iter().zip(theirs).position(|(a, b)| a != b)
        {
            let command = self.queued.get(at).map(|command| text(command));
            println!("reply {at}, to {command:?}: {} and {}", shown(&ours[at]), shown(&theirs[at]));
        }
    }
}

/// Takes a moment of now as Redis has it, if ours is hardly another one: each server looks at its
/// clock when it is asked.
fn same_moments(ours: &mut Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Int(ours), Value::Int(theirs)) => {
            let is_moment = MOMENTS_MS.contains(theirs) && ours.abs_diff(*theirs) <= LATER_MS;
            let is_second = MOMENTS_MS.contains(&theirs.saturating_mul(1000));
            if is_moment || (is_second && ours.abs_diff(*theirs) <= 1) {
                *ours = *theirs;
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| same_moments(ours, theirs));
        }
        _ => {}
    }
}

/// Moments, in milliseconds since 1970, that are of the time in which tests run: 2023 to 2049.
const MOMENTS_MS: std::ops::Range<i64> = 1_700_000_000_000..2_500_000_000_000;

/// Milliseconds that one server is asked later than the other, at most.
const LATER_MS: u64 = 1000;

/// A command as it is printed.
pub(crate) fn text(command: &[Vec<u8>]) -> String {
    let words = command.iter().map(|word| {
        // What scripts begin with is always the same.
        let text = String::from_utf8_lossy(word).replace(SHOW, "[show]").replace(EACH, "[each]");
        if text.contains("[show]") { text } else { word.escape_ascii().to_string() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A reply as it is printed.
pub(crate) fn shown(reply: &Value) -> String {
    match reply {
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Array(items) => format!("[{}]", shown_all(items)),
        Value::Map(items) => format!("map[{}]", shown_all(items)),
        Value::Set(items) => format!("set[{}]", shown_all(items)),
        Value::Push(items) => format!("push[{}]", shown_all(items)),
        other => format!("{other:?}"),
    }
}

fn shown_all(items: &[Value]) -> String {
    items.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn compared(command: &[Vec<u8>], reply: Value) -> Value {
    let is_of_streams = command[0].first().is_some_and(|first| first.eq_ignore_ascii_case(&b'x'));
    if is_of_streams { without_moments(reply) } else { without_order(command, reply) }
}

/// Takes the order out of replies that have none in Redis.
pub(crate) fn without_order(command: &[Vec<u8>], mut reply: Value) -> Value {
    let name = String::from_utf8_lossy(&command[0]).to_lowercase();
    if let Value::Array(items) | Value::Set(items) | Value::Map(items) = &mut reply {
        match name.as_str() {
            "keys" | "smembers" | "hkeys" | "hvals" | "srandmember" | "spop" | "sinter"
            | "sunion" | "sdiff" => items.sort(),
            "hrandfield" if command.len() < 4 || matches!(items[..], [Value::Array(_), ..]) => {
                items.sort();
            }
            "hgetall" | "hrandfield" => {
                let mut pairs: Vec<Vec<Value>> = items.chunks(2).map(<[_]>::to_vec).collect();
                pairs.sort();
                *items = pairs.concat();
            }
            _ => {}
        }
    }
    reply
}

/// Takes out of a reply about streams what depends on the moment, what only Redis 7.2 says, and
/// figures of Redis' own structures.
pub(crate) fn without_moments(reply: Value) -> Value {
    let masked = |items: Vec<Value>| {
        let mut items: Vec<Value> = items.into_iter().map(without_moments).collect();
        let names =
            ["idle", "inactive", "seen-time", "active-time", "radix-tree-keys", "radix-tree-nodes"];
        while let Some(at) =
            items.iter().position(|item| names.iter().any(|name| *item == Value::bulk(name)))
        {
            items.drain(at..(at + 2).min(items.len()));
        }
        // Of a pending entry, when it was delivered.
        match items.as_mut_slice() {
            [Value::Bulk(_), Value::Bulk(_), moment @ Value::Int(_), Value::Int(_)]
            | [Value::Bulk(_), moment @ Value::Int(_), Value::Int(_)] => *moment = Value::Null,
            _ => {}
        }
        items
    };
    match reply {
        Value::Array(items) => Value::Array(masked(items)),
        Value::Map(items) => Value::Map(masked(items)),
        // A client that has waited for a group is told of its end in other words by 7.0.
        Value::Error(text) if text.starts_with("NOGROUP") => Value::Error("NOGROUP".to_owned()),
        Value::Error(text) if text == STREAM_GONE => Value::Error("NOGROUP".to_owned()),
        other => other,
    }
}

/// What 7.0 tells a client that has waited for a group whose stream is deleted; 7.2 says `NOGROUP`.
const STREAM_GONE: &str = "UNBLOCKED the stream key no longer exists";
