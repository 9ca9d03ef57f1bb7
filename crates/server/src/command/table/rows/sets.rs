//! The rows of the commands on sets.

use super::{
    super::super::{Handler, scan, sets as s},
    Command, FAST_READ, FAST_WRITE, Group, READ, on_key,
};

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
