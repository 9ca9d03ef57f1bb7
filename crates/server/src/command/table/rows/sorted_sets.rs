//! The rows of the commands on sorted sets.

use super::{
    super::super::{Handler, scan, zset_range as zr, zsets as z},
    Command, FAST_READ, FAST_WRITE, Group, READ, WRITE, on_key,
};

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
