//! The rows of the commands on hashes.

use super::{
    super::super::{Handler, field_expiry as e, hash_random, hashes as h, scan},
    Command, FAST_READ, FAST_WRITE, Group, READ, on_key,
};

/// Fields with times at which they end.
fn ending() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, summary| {
        on_key(Group::Hashes, name, arity, flags, run, ("O(fields)", summary))
    };
    vec![
        row("hexpire", -6, FAST_WRITE, e::hexpire, "Gives fields seconds to live"),
        row("hexpireat", -6, FAST_WRITE, e::hexpireat, "Gives fields an end, in seconds"),
        row("hexpiretime", -5, FAST_READ, e::hexpiretime, "Ends of fields, in seconds"),
        row("hgetdel", -5, FAST_WRITE, e::hgetdel, "The values of fields, which it removes"),
        row("hgetex", -5, FAST_WRITE, e::hgetex, "The values of fields, whose end it sets"),
        row("hpersist", -5, FAST_WRITE, e::hpersist, "Takes the ends of fields away"),
        row("hpexpire", -6, FAST_WRITE, e::hpexpire, "Gives fields milliseconds to live"),
        row("hpexpireat", -6, FAST_WRITE, e::hpexpireat, "Gives fields an end, in milliseconds"),
        row("hpexpiretime", -5, FAST_READ, e::hpexpiretime, "Ends of fields, in milliseconds"),
        row("hpttl", -5, FAST_READ, e::hpttl, "Milliseconds until fields end"),
        row("hsetex", -6, FAST_WRITE, e::hsetex, "Sets fields with an end"),
        row("httl", -5, FAST_READ, e::httl, "Seconds until fields end"),
    ]
}

pub(super) fn hashes() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Hashes, name, arity, flags, run, text)
    };
    let plain = vec![
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
        row("hrandfield", -2, READ, hash_random::hrandfield, ("O(n)", "Random fields")),
        row("hscan", -3, READ, scan::hscan, ("O(COUNT)", "A page of the fields")),
        row("hset", -4, FAST_WRITE, h::hset, ("O(fields)", "Sets fields; counts the new ones")),
        row("hsetnx", 4, FAST_WRITE, h::hsetnx, ("O(1)", "Sets a field if it is absent")),
        row("hstrlen", 3, FAST_READ, h::hstrlen, ("O(1)", "Bytes of a field's value")),
        row("hvals", 2, READ, h::hvals, ("O(fields)", "All values, in the order of the fields")),
    ];
    plain.into_iter().chain(ending()).collect()
}
