//! The rows of the commands for operators.

use super::{
    super::{
        super::{acl, memory, operations as ops, slowness, syncing},
        Command, Flags, Group, Handler, Part,
    },
    READ, places, plain, slow, with_keys, with_parts,
};

const ADMIN: Flags = Flags::ADMIN.and(Flags::NO_SCRIPT);

const ADMIN_ALONE: Flags = ADMIN.and(Flags::NO_MULTI);

/// What a copy of the data takes, as a point of an incremental backup.
const OF_A_COPY: &str = "O(tables), and the bytes written since the last one";

const ACL_PARTS: &[Part] = &[
    ("cat", -2),
    ("deluser", -3),
    ("dryrun", -4),
    ("genpass", -2),
    ("getuser", 3),
    ("help", 2),
    ("list", 2),
    ("load", 2),
    ("log", -2),
    ("save", 2),
    ("setuser", -3),
    ("users", 2),
    ("whoami", 2),
];
const SLOWLOG_PARTS: &[Part] = &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)];
const LATENCY_PARTS: &[Part] = &[
    ("doctor", 2),
    ("graph", 3),
    ("help", 2),
    ("histogram", -2),
    ("history", 3),
    ("latest", 2),
    ("reset", -2),
];
const MEMORY_PARTS: &[Part] =
    &[("doctor", 2), ("help", 2), ("malloc-stats", 2), ("purge", 2), ("stats", 2), ("usage", -3)];
const MODULE_PARTS: &[Part] =
    &[("help", 2), ("list", 2), ("load", -3), ("loadex", -3), ("unload", 3)];
const CLUSTER_PARTS: &[Part] = &[
    ("addslots", -3),
    ("addslotsrange", -4),
    ("bumpepoch", 2),
    ("count-failure-reports", 3),
    ("countkeysinslot", 3),
    ("delslots", -3),
    ("delslotsrange", -4),
    ("failover", -2),
    ("flushslots", 2),
    ("forget", 3),
    ("getkeysinslot", 4),
    ("help", 2),
    ("info", 2),
    ("keyslot", 3),
    ("links", 2),
    ("meet", -4),
    ("myid", 2),
    ("myshardid", 2),
    ("nodes", 2),
    ("replicas", 3),
    ("replicate", 3),
    ("reset", -2),
    ("saveconfig", 2),
    ("set-config-epoch", 3),
    ("setslot", -4),
    ("shards", 2),
    ("slaves", 3),
    ("slots", 2),
];

pub(super) fn operations() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        plain(Group::Server, name, arity, flags, run, text)
    };
    let mut rows = vec![
        with_parts(
            ACL_PARTS,
            row(
                "acl",
                -2,
                Flags::NO_SCRIPT,
                acl::acl,
                ("O(users); LOAD and SAVE O(bytes of the file)", "Users, and what each may do"),
            ),
        ),
        row("bgrewriteaof", 1, ADMIN, ops::bgrewriteaof, (OF_A_COPY, "Begins a copy of the data")),
        row("bgsave", -1, ADMIN, ops::bgsave, (OF_A_COPY, "Begins a copy of the data")),
        slow(row("debug", -2, ADMIN, ops::debug, ("O(1)", "For tests, if the settings allow it"))),
        row("lastsave", 1, Flags::FAST, ops::lastsave, ("O(1)", "When the data were copied last")),
        with_parts(
            LATENCY_PARTS,
            row(
                "latency",
                -2,
                Flags::NONE,
                slowness::latency,
                ("O(samples); HISTOGRAM O(commands)", "What took long, and how long commands take"),
            ),
        ),
        with_keys(
            places(2, 2, 1),
            with_parts(
                MEMORY_PARTS,
                row(
                    "memory",
                    -2,
                    READ,
                    memory::memory,
                    ("O(tables); USAGE O(SAMPLES)", "What the server takes, or a key"),
                ),
            ),
        ),
        with_parts(
            MODULE_PARTS,
            row("module", -2, Flags::NONE, ops::module, ("O(1)", "Says that there are no modules")),
        ),
        slow(row("save", 1, ADMIN_ALONE, ops::save, (OF_A_COPY, "Writes a copy of the data"))),
        with_parts(
            SLOWLOG_PARTS,
            row(
                "slowlog",
                -2,
                Flags::NONE,
                slowness::slowlog,
                ("O(entries)", "Commands that took long"),
            ),
        ),
    ];
    rows.extend(alone());
    rows
}

/// What a server without replicas and without a cluster says to those who ask for them.
fn alone() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        plain(Group::Server, name, arity, flags, run, text)
    };
    let cluster = |name, arity, flags, run: Handler, text| {
        plain(Group::Cluster, name, arity, flags, run, text)
    };
    vec![
        cluster(
            "asking",
            1,
            Flags::FAST,
            ops::no_cluster,
            ("O(1)", "Refused: there is no cluster"),
        ),
        with_parts(
            CLUSTER_PARTS,
            cluster(
                "cluster",
                -2,
                Flags::NONE,
                ops::no_cluster,
                ("O(1)", "Refused: there is no cluster"),
            ),
        ),
        row("failover", -1, ADMIN, ops::failover, ("O(1)", "Refused: there are no replicas")),
        row("psync", -3, ADMIN_ALONE, syncing::psync, ("O(bytes)", "Sends a copy of all data")),
        cluster(
            "readonly",
            1,
            Flags::FAST,
            ops::no_cluster,
            ("O(1)", "Refused: there is no cluster"),
        ),
        cluster(
            "readwrite",
            1,
            Flags::FAST,
            ops::no_cluster,
            ("O(1)", "Refused: there is no cluster"),
        ),
        row("replconf", -1, ADMIN, syncing::replconf, ("O(1)", "What a replica says of itself")),
        row(
            "replicaof",
            3,
            ADMIN,
            ops::replicaof,
            ("O(1)", "Takes NO ONE, since this is a master"),
        ),
        row("slaveof", 3, ADMIN, ops::replicaof, ("O(1)", "Takes NO ONE, since this is a master")),
        row("sync", 1, ADMIN_ALONE, syncing::sync, ("O(bytes)", "Sends a copy of all data")),
    ]
}
