//! What commands do with their keys and channels, as users are allowed it.
//!
//! The defaults are that a command which reads only reads all its keys, and that one which writes
//! does both; what differs is told here, as Redis 7.2 has it.

use std::sync::LazyLock;

use super::{COMMANDS, Command, Flags, Group, MoreKeys, is_word, key_places_of};
use crate::{
    acl::{Access, Asked},
    resp::Args,
};

/// What a command does with its keys: with the first one, with the others that stand at fixed
/// places, and with those that other arguments tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyAccess {
    first: Access,
    rest: Access,
    more: Access,
}

const fn all(access: Access) -> KeyAccess {
    KeyAccess { first: access, rest: access, more: access }
}

const fn first_rest(first: Access, rest: Access) -> KeyAccess {
    KeyAccess { first, rest, more: rest }
}

use Access as A;

/// Commands that say whether keys are there, of which type they are, or how long.
const LOOKS: [&str; 14] = [
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "memory",
    "object",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "xlen",
    "zcard",
];

/// Commands that write, and show nothing of what was there.
const WRITES: [&str; 53] = [
    "append",
    "del",
    "expire",
    "expireat",
    "geoadd",
    "hdel",
    "hexpire",
    "hexpireat",
    "hmset",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hset",
    "hsetex",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "psetex",
    "restore",
    "restore-asking",
    "rpush",
    "rpushx",
    "sadd",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "xack",
    "xackdel",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xdelex",
    "xgroup",
    "xsetid",
    "xtrim",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Commands that do other things with some keys than with others, or other things than their flags
/// say.
const OTHERS: [(&str, KeyAccess); 29] = [
    ("bitop", first_rest(A::WRITE, A::READ)),
    ("blmove", first_rest(A::BOTH, A::WRITE)),
    ("brpoplpush", first_rest(A::BOTH, A::WRITE)),
    ("copy", first_rest(A::READ, A::WRITE)),
    ("eval_ro", all(A::READ)),
    ("evalsha_ro", all(A::READ)),
    ("fcall_ro", all(A::READ)),
    ("georadius", first_rest(A::READ, A::WRITE)),
    ("georadiusbymember", first_rest(A::READ, A::WRITE)),
    ("geosearchstore", first_rest(A::WRITE, A::READ)),
    ("lmove", first_rest(A::BOTH, A::WRITE)),
    ("pfcount", all(A::READ)),
    ("pfdebug", all(A::READ)),
    ("pfmerge", first_rest(A::BOTH, A::READ)),
    ("rename", first_rest(A::BOTH, A::WRITE)),
    ("renamenx", first_rest(A::BOTH, A::WRITE)),
    ("rpoplpush", first_rest(A::BOTH, A::WRITE)),
    ("sdiffstore", first_rest(A::WRITE, A::READ)),
    ("sinterstore", first_rest(A::WRITE, A::READ)),
    ("smove", first_rest(A::BOTH, A::WRITE)),
    ("sort", first_rest(A::READ, A::WRITE)),
    ("sunionstore", first_rest(A::WRITE, A::READ)),
    ("watch", all(A::NONE)),
    ("xreadgroup", all(A::READ)),
    ("zdiffstore", first_rest(A::WRITE, A::READ)),
    ("zinterstore", first_rest(A::WRITE, A::READ)),
    ("zrangestore", first_rest(A::WRITE, A::READ)),
    ("zunionstore", first_rest(A::WRITE, A::READ)),
    ("delrange", all(A::WRITE)),
];

fn access_of(command: &Command) -> KeyAccess {
    let name = command.name;
    if let Some((_, access)) = OTHERS.iter().find(|(other, _)| *other == name) {
        return *access;
    }
    all(if LOOKS.contains(&name) {
        A::NONE
    } else if WRITES.contains(&name) {
        A::WRITE
    } else if command.flags.has(Flags::WRITE) {
        A::BOTH
    } else {
        A::READ
    })
}

/// What each command does with its keys, by its slot and those of its parts.
static ACCESS: LazyLock<Vec<KeyAccess>> = LazyLock::new(|| {
    (0..COMMANDS.slots()).map(|slot| access_of(COMMANDS.of_slot(slot).0)).collect()
});

/// What `SET` and `BITFIELD` do, which their options decide.
fn by_options(command: &Command, args: Args<'_>) -> Option<KeyAccess> {
    match command.name {
        "set" => {
            let gets = args.iter_from(3).any(|word| is_word(word, "get"));
            Some(all(if gets { A::BOTH } else { A::WRITE }))
        }
        "bitfield" => Some(all(if only_reads(args) { A::READ } else { A::BOTH })),
        _ => None,
    }
}

/// Returns true if a call of `BITFIELD` only reads.
fn only_reads(args: Args<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let left = args.len() - at - 1;
        at += match word {
            _ if is_word(word, "get") && left >= 2 => 3,
            _ if is_word(word, "overflow") && left >= 1 => 2,
            _ => return false,
        };
    }
    true
}

/// The channels that a call names, and whether they are patterns.
fn channels(command: &Command, args: Args<'_>) -> (std::ops::Range<usize>, bool) {
    match command.name {
        "publish" | "spublish" => (1..2, false),
        "subscribe" | "ssubscribe" => (1..args.len(), false),
        "psubscribe" => (1..args.len(), true),
        _ => (0..0, false),
    }
}

/// What a call asks for, which has the slot of its command or of its part.
pub(super) fn asked<'a>(
    command: &'static Command,
    slot: usize,
    args: Args<'a>,
) -> Asked<'a, impl Iterator<Item = (usize, Access)> + Clone + use<'a>> {
    let access = by_options(command, args).unwrap_or(ACCESS[slot]);
    let (first, has_more) = (command.keys.first, command.keys.more != MoreKeys::None);
    // MIGRATE has an empty word in the place of its key if it names several.
    let passed_over = if command.name == "migrate" && args.at(3).is_empty() { 3 } else { 0 };
    let keys = key_places_of(command, args).filter(move |at| *at != passed_over).map(move |at| {
        let access = if at == first {
            access.first
        } else if has_more {
            access.more
        } else {
            access.rest
        };
        (at, access)
    });
    let (channels, are_patterns) = channels(command, args);
    Asked {
        slot,
        args,
        is_free: command.flags.has(Flags::NO_AUTH),
        keys,
        other_keys: (command.group == Group::Ordered).then_some(access.first),
        channels,
        are_patterns,
    }
}
