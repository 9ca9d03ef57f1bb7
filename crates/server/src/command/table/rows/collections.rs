//! The rows of the commands on collections.

use super::{
    super::super::{
        Handler, hashes as h, lists as l, scan, sets as s, zset_range as zr, zsets as z,
    },
    Command, FAST_READ, FAST_WRITE, Group, READ, WRITE, on_key,
};

pub(super) fn hashes() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Hashes, name, arity, flags, run, text)
    };
    vec![
        row("hdel", -3, FAST_WRITE, h::hdel, ("O(fields)", "Removes fields")),
        row("hexists", 3, FAST_READ, h::hexists, ("O(1)", "Whether a field is there")),
        row("hget", 3, FAST_READ, h::hget, ("O(1)", "A field's value")),
        row(
            "hgetall",
            2,
            READ,
            h::hgetall,
            ("O(fields)", "All fields with their values, ascending"),
        ),
        row("hincrby", 4, FAST_WRITE, h::hincrby, ("O(1)", "Adds an integer to a field")),
        row(
            "hincrbyfloat",
            4,
            FAST_WRITE,
            h::hincrbyfloat,
            ("O(1)", "Adds a decimal number to a field"),
        ),
        row("hkeys", 2, READ, h::hkeys, ("O(fields)", "All fields, ascending")),
        row("hlen", 2, FAST_READ, h::hlen, ("O(1)", "Counts the fields")),
        row("hmget", -3, FAST_READ, h::hmget, ("O(fields)", "The values of many fields")),
        row("hmset", -4, FAST_WRITE, h::hmset, ("O(fields)", "Sets many fields")),
        row("hscan", -3, READ, scan::hscan, ("O(COUNT)", "A page of the fields")),
        row("hset", -4, FAST_WRITE, h::hset, ("O(fields)", "Sets fields; counts the new ones")),
        row("hsetnx", 4, FAST_WRITE, h::hsetnx, ("O(1)", "Sets a field if it is absent")),
        row("hstrlen", 3, FAST_READ, h::hstrlen, ("O(1)", "Bytes of a field's value")),
        row("hvals", 2, READ, h::hvals, ("O(fields)", "All values, in the order of the fields")),
    ]
}

pub(super) fn sorted_sets() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::SortedSets, name, arity, flags, run, text)
    };
    vec![
        row(
            "zadd",
            -4,
            FAST_WRITE,
            z::zadd,
            ("O(members)", "Adds members, or changes their scores"),
        ),
        row("zcard", 2, FAST_READ, z::zcard, ("O(1)", "Counts the members")),
        row("zincrby", 4, FAST_WRITE, z::zincrby, ("O(1)", "Adds to a member's score")),
        row("zmscore", -3, FAST_READ, z::zmscore, ("O(members)", "The scores of many members")),
        row(
            "zpopmax",
            -2,
            FAST_WRITE,
            z::zpopmax,
            ("O(count)", "Takes the members of the highest scores"),
        ),
        row(
            "zpopmin",
            -2,
            FAST_WRITE,
            z::zpopmin,
            ("O(count)", "Takes the members of the lowest scores"),
        ),
        row("zrank", 3, READ, z::zrank, ("O(rank)", "A member's rank, from the lowest score")),
        row("zrem", -3, FAST_WRITE, z::zrem, ("O(members)", "Removes members")),
        row(
            "zrevrank",
            3,
            READ,
            z::zrevrank,
            ("O(rank)", "A member's rank, from the highest score"),
        ),
        row("zscan", -3, READ, scan::zscan, ("O(COUNT)", "A page of the members")),
        row("zscore", 3, FAST_READ, z::zscore, ("O(1)", "A member's score")),
    ]
}

pub(super) fn sorted_set_ranges() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::SortedSets, name, arity, flags, run, text)
    };
    vec![
        row("zcount", 4, READ, zr::zcount, ("O(found)", "Counts the members between two scores")),
        row(
            "zlexcount",
            4,
            READ,
            zr::zlexcount,
            ("O(found)", "Counts the members between two of them"),
        ),
        row("zrange", -4, READ, zr::zrange, ("O(start + found)", "Members by rank, score or name")),
        row(
            "zrangebylex",
            -4,
            READ,
            zr::zrangebylex,
            ("O(offset + found)", "Members by name, where scores are the same"),
        ),
        row(
            "zrangebyscore",
            -4,
            READ,
            zr::zrangebyscore,
            ("O(offset + found)", "Members by score"),
        ),
        row(
            "zremrangebylex",
            4,
            WRITE,
            zr::zremrangebylex,
            ("O(found)", "Removes members by name"),
        ),
        row(
            "zremrangebyrank",
            4,
            WRITE,
            zr::zremrangebyrank,
            ("O(start + found)", "Removes members by rank"),
        ),
        row(
            "zremrangebyscore",
            4,
            WRITE,
            zr::zremrangebyscore,
            ("O(found)", "Removes members by score"),
        ),
        row(
            "zrevrange",
            -4,
            READ,
            zr::zrevrange,
            ("O(start + found)", "Members by rank, from the highest score"),
        ),
        row(
            "zrevrangebylex",
            -4,
            READ,
            zr::zrevrangebylex,
            ("O(offset + found)", "Members by name, descending"),
        ),
        row(
            "zrevrangebyscore",
            -4,
            READ,
            zr::zrevrangebyscore,
            ("O(offset + found)", "Members by score, descending"),
        ),
    ]
}

pub(super) fn lists() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Lists, name, arity, flags, run, text)
    };
    vec![
        row("lindex", 3, READ, l::lindex, ("O(1)", "The element at an index")),
        row("llen", 2, FAST_READ, l::llen, ("O(1)", "Counts the elements")),
        row("lpop", -2, FAST_WRITE, l::lpop, ("O(count)", "Takes elements from the front")),
        row("lpush", -3, FAST_WRITE, l::lpush, ("O(elements)", "Adds elements at the front")),
        row(
            "lpushx",
            -3,
            FAST_WRITE,
            l::lpushx,
            ("O(elements)", "Adds elements at the front of a list that is there"),
        ),
        row("linsert", 5, WRITE, l::linsert, ("O(n)", "Inserts an element beside another")),
        row("lrem", 4, WRITE, l::lrem, ("O(n)", "Removes elements of a value")),
        row("lrange", 4, READ, l::lrange, ("O(found)", "The elements between two indexes")),
        row("lset", 4, WRITE, l::lset, ("O(1)", "Replaces the element at an index")),
        row("ltrim", 4, WRITE, l::ltrim, ("O(removed)", "Keeps the elements between two indexes")),
        row("rpop", -2, FAST_WRITE, l::rpop, ("O(count)", "Takes elements from the end")),
        row("rpush", -3, FAST_WRITE, l::rpush, ("O(elements)", "Adds elements at the end")),
        row(
            "rpushx",
            -3,
            FAST_WRITE,
            l::rpushx,
            ("O(elements)", "Adds elements at the end of a list that is there"),
        ),
    ]
}

pub(super) fn sets() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Sets, name, arity, flags, run, text);
    vec![
        row("sadd", -3, FAST_WRITE, s::sadd, ("O(members)", "Adds members")),
        row("scard", 2, FAST_READ, s::scard, ("O(1)", "Counts the members")),
        row("sismember", 3, FAST_READ, s::sismember, ("O(1)", "Whether a member is there")),
        row("smembers", 2, READ, s::smembers, ("O(members)", "All members")),
        row(
            "smismember",
            -3,
            FAST_READ,
            s::smismember,
            ("O(members)", "Whether many members are there"),
        ),
        row("spop", -2, FAST_WRITE, s::spop, ("O(count)", "Takes random members")),
        row("srandmember", -2, READ, s::srandmember, ("O(count)", "Random members")),
        row("srem", -3, FAST_WRITE, s::srem, ("O(members)", "Removes members")),
        row("sscan", -3, READ, scan::sscan, ("O(COUNT)", "A page of the members")),
    ]
}
