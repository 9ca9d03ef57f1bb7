//! The rows of the commands on messages.

use super::{
    super::super::{Handler, listening, pubsub as p},
    Command, Flags, Group, Part, plain, with_parts,
};

const PUBSUB_PARTS: &[Part] = &[
    ("channels", -2),
    ("help", 2),
    ("numpat", 2),
    ("numsub", -2),
    ("shardchannels", -2),
    ("shardnumsub", -2),
];

pub(super) fn pubsub() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        plain(Group::PubSub, name, arity, flags, run, text)
    };
    let subscribes = Flags::PUBSUB.and(Flags::NO_SCRIPT);
    let publishes = Flags::PUBSUB.and(Flags::FAST);
    vec![
        monitor(),
        row(
            "psubscribe",
            -2,
            subscribes,
            p::psubscribe,
            ("O(patterns)", "Listens to the channels that match patterns"),
        ),
        row(
            "publish",
            3,
            publishes,
            p::publish,
            ("O(subscribers + patterns)", "Sends a message to a channel"),
        ),
        with_parts(
            PUBSUB_PARTS,
            row(
                "pubsub",
                -2,
                Flags::NONE,
                p::pubsub,
                ("O(1); CHANNELS O(channels)", "Which channels have subscribers"),
            ),
        ),
        row(
            "punsubscribe",
            -1,
            subscribes,
            p::punsubscribe,
            ("O(patterns)", "Listens to the channels that match patterns no more"),
        ),
        row(
            "spublish",
            3,
            publishes,
            p::spublish,
            ("O(subscribers)", "Sends a message to a shard channel"),
        ),
        row(
            "ssubscribe",
            -2,
            subscribes,
            p::ssubscribe,
            ("O(channels)", "Listens to shard channels"),
        ),
        row("subscribe", -2, subscribes, p::subscribe, ("O(channels)", "Listens to channels")),
        row(
            "sunsubscribe",
            -1,
            subscribes,
            p::sunsubscribe,
            ("O(channels)", "Listens to shard channels no more"),
        ),
        row(
            "unsubscribe",
            -1,
            subscribes,
            p::unsubscribe,
            ("O(channels)", "Listens to channels no more"),
        ),
    ]
}

fn monitor() -> Command {
    plain(
        Group::Server,
        "monitor",
        1,
        Flags::ADMIN.and(Flags::NO_SCRIPT),
        listening::monitor,
        ("O(1)", "Shows every command that is run from now on"),
    )
}
