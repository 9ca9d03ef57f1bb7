//! The rows of the commands on sets.

use super::{
    super::super::{Handler, scan, set_algebra as a, sets as s},
    ALL_KEYS, Command, FAST_READ, FAST_WRITE, Group, KeyPlaces, MoreKeys, READ, TWO_KEYS, WRITE,
    on_key, places, with_keys,
};

pub(super) fn sets() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Sets, name, arity, flags, run, text);
    let all = |command| with_keys(ALL_KEYS, command);
    vec![
        row("sadd", -3, FAST_WRITE, s::sadd, ("O(members)", "Adds members")),
        row("scard", 2, FAST_READ, s::scard, ("O(1)", "Counts the members")),
        all(row("sdiff", -2, READ, a::sdiff, ("O(n)", "The members of a set that no other has"))),
        all(row(
            "sdiffstore",
            -3,
            WRITE,
            a::sdiffstore,
            ("O(n)", "Makes a set of the members of a set that no other has"),
        )),
        all(row("sinter", -2, READ, a::sinter, ("O(n)", "The members that all sets have"))),
        with_keys(
            KeyPlaces { more: MoreKeys::Counted { at: 1 }, ..places(0, 0, 0) },
            row(
                "sintercard",
                -3,
                READ,
                a::sintercard,
                ("O(n)", "Counts the members that all sets have"),
            ),
        ),
        all(row(
            "sinterstore",
            -3,
            WRITE,
            a::sinterstore,
            ("O(n)", "Makes a set of the members that all sets have"),
        )),
        row("sismember", 3, FAST_READ, s::sismember, ("O(1)", "Whether a member is there")),
        row("smembers", 2, READ, s::smembers, ("O(members)", "All members")),
        row(
            "smismember",
            -3,
            FAST_READ,
            s::smismember,
            ("O(members)", "Whether many members are there"),
        ),
        with_keys(
            TWO_KEYS,
            row("smove", 4, FAST_WRITE, s::smove, ("O(1)", "Moves a member to another set")),
        ),
        row("spop", -2, FAST_WRITE, s::spop, ("O(count)", "Takes random members")),
        row("srandmember", -2, READ, s::srandmember, ("O(count)", "Random members")),
        row("srem", -3, FAST_WRITE, s::srem, ("O(members)", "Removes members")),
        row("sscan", -3, READ, scan::sscan, ("O(COUNT)", "A page of the members")),
        all(row("sunion", -2, READ, a::sunion, ("O(n)", "The members that some set has"))),
        all(row(
            "sunionstore",
            -3,
            WRITE,
            a::sunionstore,
            ("O(n)", "Makes a set of the members that some set has"),
        )),
    ]
}
