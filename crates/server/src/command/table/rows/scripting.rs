//! The rows of the commands on scripts and functions.

use super::{
    super::super::{Handler, functions as f, scripting as s},
    Command, Flags, Group, KeyPlaces, Locking, MoreKeys, Part, Pipelining, plain, with_parts,
};

const SCRIPT_PARTS: &[Part] =
    &[("exists", -3), ("flush", -2), ("help", 2), ("kill", 2), ("load", 3)];

const FUNCTION_PARTS: &[Part] = &[
    ("delete", 3),
    ("dump", 2),
    ("flush", -2),
    ("help", 2),
    ("kill", 2),
    ("list", -2),
    ("load", -3),
    ("restore", -3),
    ("stats", 2),
];

const COUNTED: KeyPlaces =
    KeyPlaces { first: 0, last: 0, step: 0, more: MoreKeys::Counted { at: 2 } };

pub(super) fn scripting() -> Vec<Command> {
    let row = |name, flags: Flags, run: Handler, summary| Command {
        keys: COUNTED,
        locking: Locking::Own,
        ..plain(
            Group::Scripting,
            name,
            -3,
            flags.and(Flags::NO_SCRIPT),
            run,
            ("that of the script", summary),
        )
    };
    let shared = |command| Command { pipelining: Pipelining::SharedCommit, ..command };
    vec![
        shared(row("eval", Flags::WRITE, s::eval, "Runs a script")),
        shared(row("evalsha", Flags::WRITE, s::evalsha, "Runs a script that is kept")),
        row("evalsha_ro", Flags::READ, s::evalsha_ro, "Runs a script that is kept and only reads"),
        row("eval_ro", Flags::READ, s::eval_ro, "Runs a script that only reads"),
        shared(row("fcall", Flags::WRITE, f::fcall, "Calls a function of a library")),
        row("fcall_ro", Flags::READ, f::fcall_ro, "Calls a function that only reads"),
        with_parts(
            FUNCTION_PARTS,
            plain(
                Group::Scripting,
                "function",
                -2,
                Flags::NO_SCRIPT,
                f::function,
                ("O(bytes)", "Keeps libraries of functions, or ends functions that run"),
            ),
        ),
        with_parts(
            SCRIPT_PARTS,
            plain(
                Group::Scripting,
                "script",
                -2,
                Flags::NO_SCRIPT,
                s::script,
                ("O(bytes)", "Keeps scripts, or ends those that run"),
            ),
        ),
    ]
}
