//! What `COMMAND` tells of commands beside how they are run: since when Redis has them, what is
//! done with their keys, and what a client of a cluster would have to know.

/// The names of commands, for one thing that is told of them.
type Names = &'static [&'static str];

/// Since which version Redis has the commands.
const SINCE: &[(&str, Names)] = &[
    (
        "1.0.0",
        &[
            "auth",
            "bgrewriteaof",
            "bgsave",
            "dbsize",
            "debug",
            "decr",
            "decrby",
            "del",
            "echo",
            "exists",
            "expire",
            "flushall",
            "flushdb",
            "get",
            "getset",
            "incr",
            "incrby",
            "info",
            "keys",
            "lastsave",
            "lindex",
            "llen",
            "lpop",
            "lpush",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "mget",
            "monitor",
            "move",
            "ping",
            "quit",
            "randomkey",
            "rename",
            "renamenx",
            "rpop",
            "rpush",
            "sadd",
            "save",
            "scard",
            "sdiff",
            "sdiffstore",
            "select",
            "set",
            "setnx",
            "shutdown",
            "sinter",
            "sinterstore",
            "sismember",
            "slaveof",
            "smembers",
            "smove",
            "sort",
            "spop",
            "srandmember",
            "srem",
            "substr",
            "sunion",
            "sunionstore",
            "sync",
            "ttl",
            "type",
        ],
    ),
    ("1.0.1", &["mset", "msetnx"]),
    ("1.0.5", &["zrangebyscore"]),
    (
        "1.2.0",
        &[
            "exec",
            "expireat",
            "multi",
            "rpoplpush",
            "zadd",
            "zcard",
            "zincrby",
            "zrange",
            "zrem",
            "zremrangebyscore",
            "zrevrange",
            "zscore",
        ],
    ),
    (
        "2.0.0",
        &[
            "append",
            "blpop",
            "brpop",
            "config",
            "discard",
            "hdel",
            "hexists",
            "hget",
            "hgetall",
            "hincrby",
            "hkeys",
            "hlen",
            "hmget",
            "hmset",
            "hset",
            "hsetnx",
            "hvals",
            "psubscribe",
            "publish",
            "punsubscribe",
            "setex",
            "subscribe",
            "unsubscribe",
            "zcount",
            "zinterstore",
            "zrank",
            "zremrangebyrank",
            "zrevrank",
            "zunionstore",
        ],
    ),
    (
        "2.2.0",
        &[
            "brpoplpush",
            "getbit",
            "linsert",
            "lpushx",
            "persist",
            "rpushx",
            "setbit",
            "setrange",
            "strlen",
            "unwatch",
            "watch",
            "zrevrangebyscore",
        ],
    ),
    ("2.2.3", &["object"]),
    ("2.2.12", &["slowlog"]),
    ("2.4.0", &["client", "getrange"]),
    (
        "2.6.0",
        &[
            "bitcount",
            "bitop",
            "dump",
            "eval",
            "evalsha",
            "hincrbyfloat",
            "incrbyfloat",
            "migrate",
            "pexpire",
            "pexpireat",
            "psetex",
            "pttl",
            "restore",
            "script",
            "time",
        ],
    ),
    ("2.8.0", &["hscan", "psync", "pubsub", "scan", "sscan", "zscan"]),
    ("2.8.7", &["bitpos"]),
    (
        "2.8.9",
        &[
            "pfadd",
            "pfcount",
            "pfdebug",
            "pfmerge",
            "pfselftest",
            "zlexcount",
            "zrangebylex",
            "zremrangebylex",
            "zrevrangebylex",
        ],
    ),
    ("2.8.12", &["role"]),
    ("2.8.13", &["command", "latency"]),
    ("3.0.0", &["asking", "cluster", "readonly", "readwrite", "replconf", "wait"]),
    (
        "3.2.0",
        &[
            "bitfield",
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadiusbymember",
            "hstrlen",
        ],
    ),
    ("3.2.1", &["touch"]),
    ("3.2.10", &["georadius_ro", "georadiusbymember_ro"]),
    ("4.0.0", &["memory", "module", "swapdb", "unlink"]),
    (
        "5.0.0",
        &[
            "bzpopmax",
            "bzpopmin",
            "lolwut",
            "replicaof",
            "xack",
            "xadd",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
            "zpopmax",
            "zpopmin",
        ],
    ),
    ("6.0.0", &["acl", "bitfield_ro", "hello"]),
    ("6.0.6", &["lpos"]),
    (
        "6.2.0",
        &[
            "blmove",
            "copy",
            "failover",
            "geosearch",
            "geosearchstore",
            "getdel",
            "getex",
            "hrandfield",
            "lmove",
            "reset",
            "smismember",
            "xautoclaim",
            "zdiff",
            "zdiffstore",
            "zinter",
            "zmscore",
            "zrandmember",
            "zrangestore",
            "zunion",
        ],
    ),
    (
        "7.0.0",
        &[
            "blmpop",
            "bzmpop",
            "eval_ro",
            "evalsha_ro",
            "expiretime",
            "lcs",
            "lmpop",
            "pexpiretime",
            "sintercard",
            "sort_ro",
            "spublish",
            "ssubscribe",
            "sunsubscribe",
            "zintercard",
            "zmpop",
        ],
    ),
    ("7.2.0", &["waitaof"]),
    (
        "7.4.0",
        &[
            "hexpire",
            "hexpireat",
            "hexpiretime",
            "hpersist",
            "hpexpire",
            "hpexpireat",
            "hpexpiretime",
            "hpttl",
            "httl",
        ],
    ),
    ("8.0.0", &["hgetdel", "hgetex", "hsetex"]),
];

/// What is done with the keys of commands: with the first one, and with the others if that is
/// something else. A read of the value is `RO access` where nothing is said.
const KEY_FLAGS: &[(&[Names], Names)] = &[
    (
        &[&["RW", "insert"]],
        &["append", "hsetnx", "linsert", "lpush", "lpushx", "pfadd", "rpush", "rpushx", "sadd"],
    ),
    (&[&["RW", "access", "update", "variable_flags"]], &["bitfield", "set"]),
    (
        &[&["OW", "update"], &["RO", "access"]],
        &[
            "bitop",
            "geosearchstore",
            "sdiffstore",
            "sunionstore",
            "zdiffstore",
            "zinterstore",
            "zrangestore",
            "zunionstore",
        ],
    ),
    (
        &[&["RW", "access", "delete"], &["RW", "insert"]],
        &["blmove", "brpoplpush", "lmove", "rpoplpush", "smove"],
    ),
    (
        &[&["RW", "access", "delete"]],
        &[
            "blmpop", "blpop", "brpop", "bzmpop", "bzpopmax", "bzpopmin", "getdel", "hgetdel",
            "lmpop", "lpop", "migrate", "rpop", "spop", "zmpop", "zpopmax", "zpopmin",
        ],
    ),
    (&[&["RO", "access"], &["OW", "update"]], &["copy", "georadius", "georadiusbymember", "sort"]),
    (
        &[&["RW", "access", "update"]],
        &[
            "decr",
            "decrby",
            "eval",
            "evalsha",
            "getex",
            "getset",
            "hgetex",
            "hincrby",
            "hincrbyfloat",
            "incr",
            "incrby",
            "incrbyfloat",
            "move",
            "setbit",
            "zincrby",
        ],
    ),
    (&[&["RM", "delete"]], &["del", "unlink"]),
    (
        &[&["RO"]],
        &[
            "exists",
            "hexists",
            "hlen",
            "hstrlen",
            "llen",
            "scard",
            "sismember",
            "strlen",
            "touch",
            "type",
            "watch",
            "xlen",
            "zcard",
        ],
    ),
    (
        &[&["RW", "update"]],
        &[
            "expire",
            "expireat",
            "geoadd",
            "hexpire",
            "hexpireat",
            "hmset",
            "hpersist",
            "hpexpire",
            "hpexpireat",
            "hset",
            "hsetex",
            "lset",
            "persist",
            "pexpire",
            "pexpireat",
            "setrange",
            "xack",
            "xadd",
            "xclaim",
            "xsetid",
            "zadd",
        ],
    ),
    (
        &[&["RW", "delete"]],
        &[
            "delrange",
            "hdel",
            "lrem",
            "ltrim",
            "srem",
            "xautoclaim",
            "xdel",
            "xtrim",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
        ],
    ),
    (&[&["OW", "update"]], &["mset", "psetex", "restore", "setex"]),
    (&[&["OW", "insert"]], &["msetnx", "setnx"]),
    (&[&["RW", "access"]], &["pfcount", "pfdebug"]),
    (&[&["RW", "access", "insert"], &["RO", "access"]], &["pfmerge"]),
    (&[&["RW", "access", "delete"], &["OW", "update"]], &["rename"]),
    (&[&["RW", "access", "delete"], &["OW", "insert"]], &["renamenx"]),
    (&[&["RW", "update"], &["RO", "access"]], &["sinterstore"]),
];

/// Tips, for clients that send a command to all servers of a cluster, or that keep replies.
const TIPS: &[(Names, Names)] = &[
    (
        &["nondeterministic_output_order"],
        &["command", "hgetall", "hkeys", "hvals", "sdiff", "sinter", "smembers", "sunion"],
    ),
    (&["request_policy:all_shards", "response_policy:agg_sum"], &["dbsize"]),
    (
        &["request_policy:multi_shard", "response_policy:agg_sum"],
        &["del", "exists", "touch", "unlink"],
    ),
    (
        &["nondeterministic_output"],
        &[
            "dump",
            "hrandfield",
            "hscan",
            "lastsave",
            "migrate",
            "pttl",
            "spop",
            "srandmember",
            "sscan",
            "time",
            "ttl",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xpending",
            "xtrim",
            "zrandmember",
            "zscan",
        ],
    ),
    (
        &["request_policy:all_shards", "response_policy:all_succeeded"],
        &["flushall", "flushdb", "ping"],
    ),
    (
        &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        &["info"],
    ),
    (&["request_policy:all_shards", "nondeterministic_output_order"], &["keys"]),
    (&["request_policy:multi_shard"], &["mget"]),
    (&["request_policy:multi_shard", "response_policy:all_succeeded"], &["mset"]),
    (
        &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
        &["randomkey"],
    ),
    (&["nondeterministic_output", "request_policy:special", "response_policy:special"], &["scan"]),
    (&["request_policy:all_shards", "response_policy:agg_min"], &["wait", "waitaof"]),
];

/// What is done with a key of which nothing else is known.
const READ: &[Names] = &[&["RO", "access"]];
const WRITTEN: &[Names] = &[&["RW", "update"]];

/// Since when there is the command: the version of Redis, or of this server for those that Redis
/// does not have.
pub(crate) fn since(name: &str) -> &'static str {
    let found = SINCE.iter().find(|(_, names)| names.contains(&name));
    found.map_or(env!("CARGO_PKG_VERSION"), |(version, _)| version)
}

/// What a command does with its first key, and with the others if that is something else.
pub(crate) fn key_flags(name: &str, writes: bool) -> &'static [Names] {
    let found = KEY_FLAGS.iter().find(|(_, names)| names.contains(&name));
    found.map_or(if writes { WRITTEN } else { READ }, |(flags, _)| flags)
}

/// The tips of a command.
pub(crate) fn tips(name: &str) -> Names {
    TIPS.iter().find(|(_, names)| names.contains(&name)).map_or(&[], |(tips, _)| tips)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::command::COMMANDS;

    #[test]
    fn every_name_is_that_of_a_command_and_comes_once_in_its_list() {
        for lists in [
            SINCE.iter().map(|(_, names)| *names).collect::<Vec<_>>(),
            KEY_FLAGS.iter().map(|(_, names)| *names).collect(),
            TIPS.iter().map(|(_, names)| *names).collect(),
        ] {
            let mut seen = HashSet::new();
            for name in lists.into_iter().flatten() {
                assert!(COMMANDS.iter().any(|command| command.name == *name), "{name}");
                assert!(seen.insert(name), "{name} comes twice");
            }
        }
    }
}
