//! The rows of the commands on lists.

use super::{
    super::super::{Handler, lists as l},
    Command, FAST_READ, FAST_WRITE, Group, READ, WRITE, on_key,
};

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
