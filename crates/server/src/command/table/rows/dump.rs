//! The rows of the commands on serialised values.

use super::{
    super::super::{Handler, dump as d},
    Command, Group, READ, WRITE, on_key,
};

pub(super) fn dump() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Keys, name, arity, flags, run, text);
    vec![
        row("dump", 2, READ, d::dump, ("O(bytes)", "A value as bytes")),
        row("restore", -4, WRITE, d::restore, ("O(bytes)", "Sets a key to what DUMP gave")),
    ]
}
