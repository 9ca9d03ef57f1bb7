//! The rows of the commands on HyperLogLogs.

use super::{
    super::super::{Handler, hyperloglogs as h},
    ALL_KEYS, Command, FAST_WRITE, Flags, Group, READ, WRITE, on_key, places, plain, slow,
    with_keys,
};

pub(super) fn hyperloglogs() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::HyperLogLogs, name, arity, flags, run, text)
    };
    vec![
        row("pfadd", -2, FAST_WRITE, h::pfadd, ("O(elements)", "Adds elements to an estimate")),
        with_keys(
            ALL_KEYS,
            Command {
                flags: READ,
                ..row(
                    "pfcount",
                    -2,
                    WRITE,
                    h::pfcount,
                    ("O(keys)", "Estimates how many different elements were added"),
                )
            },
        ),
        with_keys(
            places(2, 2, 1),
            row(
                "pfdebug",
                3,
                WRITE.and(Flags::ADMIN),
                h::pfdebug,
                ("O(1)", "What is in an estimate"),
            ),
        ),
        with_keys(
            ALL_KEYS,
            row("pfmerge", -2, WRITE, h::pfmerge, ("O(keys)", "Merges estimates into one")),
        ),
        slow(plain(
            Group::HyperLogLogs,
            "pfselftest",
            1,
            Flags::ADMIN,
            h::pfselftest,
            ("O(1)", "Tries whether estimates are right"),
        )),
    ]
}
