//! The rows of the commands on bits of strings.

use super::{
    super::super::{Handler, bitfield as f, bits as b},
    Command, FAST_READ, Group, READ, WRITE, entry_read, on_key, places, with_keys,
};

pub(super) fn bitmaps() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Bitmaps, name, arity, flags, run, text)
    };
    vec![
        row("bitcount", -2, READ, b::bitcount, ("O(bytes)", "Counts the ones of a string's bits")),
        row(
            "bitfield",
            -2,
            WRITE,
            f::bitfield,
            ("O(bytes)", "Reads and writes integers of any width in a string"),
        ),
        row(
            "bitfield_ro",
            -2,
            FAST_READ,
            f::bitfield_ro,
            ("O(integers)", "Reads integers of any width in a string"),
        ),
        with_keys(
            places(2, -1, 1),
            row("bitop", -4, WRITE, b::bitop, ("O(bytes)", "Combines strings bit by bit")),
        ),
        row(
            "bitpos",
            -3,
            READ,
            b::bitpos,
            ("O(bytes)", "The first bit of a string that is 0 or 1"),
        ),
        entry_read(row("getbit", 3, FAST_READ, b::getbit, ("O(1)", "A bit of a string"))),
        row(
            "setbit",
            4,
            WRITE,
            b::setbit,
            ("O(bytes)", "Sets a bit of a string; replies with the old one"),
        ),
    ]
}
