//! The rows of the commands on serialised values.

use super::{
    super::super::{
        Flags, Handler, KeyPlaces, Locking, MoreKeys, Pipelining, dump as d, migrate as m,
    },
    Command, Group, READ, WRITE, on_key, with_keys,
};

pub(super) fn dump() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Keys, name, arity, flags, run, text);
    vec![
        row("dump", 2, READ, d::dump, ("O(bytes)", "A value as bytes")),
        Command {
            // It takes its locks itself, and not while it waits for the other server.
            locking: Locking::Own,
            pipelining: Pipelining::Alone,
            ..with_keys(
                KeyPlaces { first: 3, last: 3, step: 1, more: MoreKeys::Migrated },
                row(
                    "migrate",
                    -6,
                    WRITE.and(Flags::SLOW),
                    m::migrate,
                    ("O(bytes)", "Moves keys to another server"),
                ),
            )
        },
        row("restore", -4, WRITE, d::restore, ("O(bytes)", "Sets a key to what DUMP gave")),
    ]
}
