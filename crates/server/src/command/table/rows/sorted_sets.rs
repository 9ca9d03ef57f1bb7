//! The rows of the commands on sorted sets.

use super::{
    super::super::{
        Handler, scan, zset_combine as zc, zset_pop as zp, zset_random, zset_range as zr,
        zsets as z,
    },
    Command, FAST_READ, FAST_WRITE, Group, KeyPlaces, MoreKeys, NO_KEYS, READ, WRITE, in_turn,
    on_key, places, with_keys,
};

/// Keys after their number.
const COUNTED: KeyPlaces = KeyPlaces { more: MoreKeys::Counted { at: 1 }, ..NO_KEYS };
/// Keys after their number, which a number comes before.
const COUNTED_AFTER: KeyPlaces = KeyPlaces { more: MoreKeys::Counted { at: 2 }, ..NO_KEYS };
/// A key, and others after their number.
const ONE_AND_COUNTED: KeyPlaces =
    KeyPlaces { more: MoreKeys::Counted { at: 2 }, ..places(1, 1, 1) };

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
        row(
            "zlexcount",
            4,
            FAST_READ,
            zr::zlexcount,
            ("O(log n)", "Counts the members between two of them"),
        ),
        row("zmscore", -3, FAST_READ, z::zmscore, ("O(members)", "The scores of many members")),
        row(
            "zpopmax",
            -2,
            FAST_WRITE,
            zp::zpopmax,
            ("O(count)", "Takes the members of the highest scores"),
        ),
        row(
            "zpopmin",
            -2,
            FAST_WRITE,
            zp::zpopmin,
            ("O(count)", "Takes the members of the lowest scores"),
        ),
        row(
            "zrank",
            -3,
            FAST_READ,
            z::zrank,
            ("O(log n)", "A member's rank, from the lowest score"),
        ),
        row(
            "zrandmember",
            -2,
            READ,
            zset_random::zrandmember,
            ("O(count * log n)", "Random members"),
        ),
        row("zrem", -3, FAST_WRITE, z::zrem, ("O(members)", "Removes members")),
        row(
            "zrevrank",
            -3,
            FAST_READ,
            z::zrevrank,
            ("O(log n)", "A member's rank, from the highest score"),
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
        row(
            "zcount",
            4,
            FAST_READ,
            zr::zcount,
            ("O(log n)", "Counts the members between two scores"),
        ),
        row("zrange", -4, READ, zr::zrange, ("O(log n + found)", "Members by rank, score or name")),
        row(
            "zrangebylex",
            -4,
            READ,
            zr::zrangebylex,
            ("O(log n + found)", "Members by name, where scores are the same"),
        ),
        row("zrangebyscore", -4, READ, zr::zrangebyscore, ("O(log n + found)", "Members by score")),
        row(
            "zremrangebylex",
            4,
            WRITE,
            zr::zremrangebylex,
            ("O(log n + found)", "Removes members by name"),
        ),
        row(
            "zremrangebyrank",
            4,
            WRITE,
            zr::zremrangebyrank,
            ("O(log n + found)", "Removes members by rank"),
        ),
        row(
            "zremrangebyscore",
            4,
            WRITE,
            zr::zremrangebyscore,
            ("O(log n + found)", "Removes members by score"),
        ),
        row(
            "zrevrange",
            -4,
            READ,
            zr::zrevrange,
            ("O(log n + found)", "Members by rank, from the highest score"),
        ),
        row(
            "zrevrangebylex",
            -4,
            READ,
            zr::zrevrangebylex,
            ("O(log n + found)", "Members by name, descending"),
        ),
        row(
            "zrevrangebyscore",
            -4,
            READ,
            zr::zrevrangebyscore,
            ("O(log n + found)", "Members by score, descending"),
        ),
    ]
}

pub(super) fn sorted_sets_together() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::SortedSets, name, arity, flags, run, text)
    };
    let read = |name, run: Handler, text| with_keys(COUNTED, row(name, -3, READ, run, text));
    let store =
        |name, run: Handler, text| with_keys(ONE_AND_COUNTED, row(name, -4, WRITE, run, text));
    vec![
        read("zdiff", zc::zdiff, ("O(members)", "The members of the first key that no other has")),
        store("zdiffstore", zc::zdiffstore, ("O(members)", "Makes a key what ZDIFF gives")),
        read("zinter", zc::zinter, ("O(members)", "The members that all keys have")),
        read("zintercard", zc::zintercard, ("O(members)", "Counts the members that all keys have")),
        store("zinterstore", zc::zinterstore, ("O(members)", "Makes a key what ZINTER gives")),
        with_keys(
            places(1, 2, 1),
            row(
                "zrangestore",
                -5,
                WRITE,
                zr::zrangestore,
                ("O(log n + found)", "Makes a key a sorted set of a range of another"),
            ),
        ),
        read("zunion", zc::zunion, ("O(members)", "The members of any of the keys")),
        store("zunionstore", zc::zunionstore, ("O(members)", "Makes a key what ZUNION gives")),
        with_keys(
            COUNTED,
            row(
                "zmpop",
                -4,
                WRITE,
                zp::zmpop,
                ("O(count)", "Takes members of the first key that has some"),
            ),
        ),
        in_turn(with_keys(
            COUNTED_AFTER,
            row(
                "bzmpop",
                -5,
                WRITE,
                zp::bzmpop,
                ("O(count)", "ZMPOP, which waits until a key has some"),
            ),
        )),
        in_turn(with_keys(
            places(1, -2, 1),
            row(
                "bzpopmax",
                -3,
                FAST_WRITE,
                zp::bzpopmax,
                ("O(keys)", "ZPOPMAX of the first key that has some, which waits for it"),
            ),
        )),
        in_turn(with_keys(
            places(1, -2, 1),
            row(
                "bzpopmin",
                -3,
                FAST_WRITE,
                zp::bzpopmin,
                ("O(keys)", "ZPOPMIN of the first key that has some, which waits for it"),
            ),
        )),
    ]
}
