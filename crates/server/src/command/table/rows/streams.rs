//! The rows of the commands on streams.

use super::{
    super::super::{Handler, streams as x},
    Command, FAST_READ, FAST_WRITE, Flags, Group, KeyPlaces, MoreKeys, Part, Pipelining, READ,
    WRITE, on_key, places, with_keys, with_parts,
};

const XGROUP_PARTS: &[Part] = &[
    ("create", -5),
    ("createconsumer", 5),
    ("delconsumer", 5),
    ("destroy", 4),
    ("help", 2),
    ("setid", -5),
];
const XINFO_PARTS: &[Part] = &[("consumers", 4), ("groups", 3), ("help", 2), ("stream", -3)];

/// Keys after the word `STREAMS`.
const STREAMS: KeyPlaces = KeyPlaces { first: 0, last: 0, step: 0, more: MoreKeys::Streams };

pub(super) fn streams() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Streams, name, arity, flags, run, text)
    };
    let mut rows = vec![
        row("xack", -4, FAST_WRITE, x::xack, ("O(identifiers)", "Acknowledges entries")),
        row("xadd", -5, FAST_WRITE, x::xadd, ("O(1); O(removed) if it trims", "Adds an entry")),
        row(
            "xautoclaim",
            -6,
            FAST_WRITE,
            x::xautoclaim,
            ("O(COUNT)", "Gives a consumer what others have left pending for long"),
        ),
        row(
            "xclaim",
            -6,
            FAST_WRITE,
            x::xclaim,
            ("O(identifiers)", "Gives a consumer pending entries"),
        ),
        row("xdel", -3, FAST_WRITE, x::xdel, ("O(identifiers)", "Removes entries")),
        row("xlen", 2, FAST_READ, x::xlen, ("O(1)", "Counts the entries")),
        row(
            "xpending",
            -3,
            READ,
            x::xpending,
            ("O(consumers); O(found)", "What was delivered and not acknowledged"),
        ),
        row("xrange", -4, READ, x::xrange, ("O(found)", "The entries between two identifiers")),
        row(
            "xrevrange",
            -4,
            READ,
            x::xrevrange,
            ("O(found)", "The entries between two identifiers, from the last"),
        ),
        row(
            "xsetid",
            -3,
            FAST_WRITE,
            x::xsetid,
            ("O(1)", "Sets a stream's last identifier and its counters"),
        ),
        row(
            "xtrim",
            -4,
            WRITE,
            x::xtrim,
            ("O(removed or left, what is less); O(removed) for MINID", "Removes the first entries"),
        ),
    ];
    rows.extend(several(row));
    rows
}

/// Commands of several parts, and those on several streams.
fn several(
    row: impl Fn(&'static str, i16, Flags, Handler, (&'static str, &'static str)) -> Command,
) -> Vec<Command> {
    let second = |parts, command| {
        let command = with_keys(places(2, 2, 1), with_parts(parts, command));
        Command { pipelining: Pipelining::Alone, ..command }
    };
    vec![
        second(
            XGROUP_PARTS,
            row(
                "xgroup",
                -2,
                WRITE,
                x::xgroup,
                ("O(1); DELCONSUMER O(pending)", "Makes and removes groups and consumers"),
            ),
        ),
        second(
            XINFO_PARTS,
            row(
                "xinfo",
                -2,
                READ,
                x::xinfo,
                ("O(1); O(found)", "What a stream, its groups and consumers are"),
            ),
        ),
        with_keys(
            STREAMS,
            row(
                "xread",
                -4,
                READ.and(Flags::BLOCKING),
                x::xread,
                ("O(found)", "Entries after an identifier, of several streams"),
            ),
        ),
        // It waits in no one's turn: one that finds something is as other writes.
        Command {
            pipelining: Pipelining::SharedCommit,
            ..with_keys(
                STREAMS,
                row(
                    "xreadgroup",
                    -7,
                    WRITE.and(Flags::BLOCKING),
                    x::xreadgroup,
                    ("O(found)", "Entries for a consumer of a group, of several streams"),
                ),
            )
        },
    ]
}
