//! The categories that access lists know commands by, as Redis has them.

use super::table::{COMMANDS, Command, Flags, Group};
use crate::acl::{Catalog, Slot};

/// Commands that harm when a stranger runs them.
const DANGEROUS: [&str; 14] = [
    "flushall",
    "flushdb",
    "info",
    "keys",
    "migrate",
    "monitor",
    "pfdebug",
    "pfselftest",
    "restore",
    "role",
    "shutdown",
    "sort",
    "sort_ro",
    "swapdb",
];

/// Commands on collections of three types, and not on keys of any.
const SORTS: [&str; 2] = ["sort", "sort_ro"];

/// Commands for operators; those of several parts have them in their parts only.
const ADMIN: [&str; 6] = ["lastsave", "monitor", "pfdebug", "pfselftest", "role", "shutdown"];

/// Commands on keys that are not in the family.
const KEYSPACE: [&str; 4] = ["dbsize", "flushall", "flushdb", "swapdb"];

/// A command that is fast in Redis and may take longer here, and one for which it is the other way.
const FAST: [&str; 1] = ["dbsize"];
const SLOW: [&str; 1] = ["exec"];

/// Parts of `CLUSTER` that only say something; the others are for operators.
const CLUSTER_SAYS: [&str; 11] = [
    "countkeysinslot",
    "getkeysinslot",
    "help",
    "info",
    "keyslot",
    "links",
    "myid",
    "myshardid",
    "nodes",
    "shards",
    "slots",
];

/// Parts of `CLIENT` for operators.
const CLIENT_ADMIN: [&str; 6] = ["kill", "list", "no-evict", "pause", "unblock", "unpause"];

/// Returns true for a part of a command that is for operators.
pub(super) fn is_for_operators(command: &str, part: &str) -> bool {
    match command {
        "acl" => !["cat", "genpass", "help", "whoami"].contains(&part),
        "client" => CLIENT_ADMIN.contains(&part),
        "cluster" => !CLUSTER_SAYS.contains(&part),
        "config" | "latency" | "module" | "slowlog" => part != "help",
        _ => false,
    }
}

/// The categories of a part of a command, without their `@`.
pub(super) fn of_part(command: &str, part: &str) -> Vec<&'static str> {
    let (is_help, is_admin) = (part == "help", is_for_operators(command, part));
    let changes_functions = ["delete", "flush", "load", "restore"].contains(&part);
    let reads = match command {
        "object" | "xinfo" => !is_help,
        "memory" => part == "usage",
        _ => false,
    };
    let writes = match command {
        "xgroup" => !is_help,
        "function" => changes_functions,
        _ => false,
    };
    let all = [
        (command == "object").then_some("keyspace"),
        reads.then_some("read"),
        writes.then_some("write"),
        ["xgroup", "xinfo"].contains(&command).then_some("stream"),
        (command == "pubsub" && !is_help).then_some("pubsub"),
        is_admin.then_some("admin"),
        Some("slow"),
        is_admin.then_some("dangerous"),
        ["client", "command"].contains(&command).then_some("connection"),
        ["function", "script"].contains(&command).then_some("scripting"),
    ];
    all.into_iter().flatten().collect()
}

/// All commands and their parts, as users are allowed them.
pub(crate) fn catalog() -> Catalog {
    let slot = |slot: usize| {
        let (command, part) = COMMANDS.of_slot(slot);
        match part {
            None => Slot::new(command.name, &of(command), COMMANDS.parts(slot)),
            Some(part) => Slot::new(COMMANDS.name(slot), &of_part(command.name, part), 0..0),
        }
    };
    Catalog::new((0..COMMANDS.slots()).map(slot).collect())
}

/// The categories of a command, without their `@`, in the order in which Redis gives them.
pub(super) fn of(command: &Command) -> Vec<&'static str> {
    let (name, group) = (command.name, command.group);
    let is_fast = (command.flags.has(Flags::FAST) && !SLOW.contains(&name)) || FAST.contains(&name);
    let speed = if is_fast { "fast" } else { "slow" };
    if name != "command" && !command.parts.is_empty() {
        // The others belong to its parts.
        return vec![speed];
    }
    let sorts = SORTS.contains(&name);
    let scripts = group == Group::Scripting;
    let is_on_keys =
        !sorts && (matches!(group, Group::Keys | Group::Ordered) || KEYSPACE.contains(&name));
    let family = match group {
        Group::Sets => Some("set"),
        Group::SortedSets => Some("sortedset"),
        Group::Lists => Some("list"),
        Group::Hashes => Some("hash"),
        Group::Strings => Some("string"),
        Group::Bitmaps => Some("bitmap"),
        Group::HyperLogLogs => Some("hyperloglog"),
        Group::Geo => Some("geo"),
        Group::PubSub => Some("pubsub"),
        Group::Streams => Some("stream"),
        _ => None,
    };
    let is_connection = group == Group::Connection || name == "command";
    let is_admin = ADMIN.contains(&name) || (command.flags.has(Flags::ADMIN) && name != "config");
    let is_connection = is_connection || ["asking", "readonly", "readwrite"].contains(&name);
    let all = [
        is_on_keys.then_some("keyspace"),
        (!scripts && command.flags.has(Flags::READ)).then_some("read"),
        (!scripts && command.flags.has(Flags::WRITE)).then_some("write"),
        family,
        sorts.then_some("set"),
        sorts.then_some("sortedset"),
        sorts.then_some("list"),
        is_admin.then_some("admin"),
        Some(speed),
        (command.flags.has(Flags::BLOCKING) && !command.name.starts_with("wait"))
            .then_some("blocking"),
        (is_admin || DANGEROUS.contains(&name)).then_some("dangerous"),
        is_connection.then_some("connection"),
        (group == Group::Transactions).then_some("transaction"),
        scripts.then_some("scripting"),
    ];
    all.into_iter().flatten().collect()
}
