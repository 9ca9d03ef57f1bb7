//! The rows of the commands on hashes.

use super::{
    super::super::{Handler, hashes as h, scan},
    Command, FAST_READ, FAST_WRITE, Group, READ, on_key,
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
