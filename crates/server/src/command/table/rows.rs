//! The rows of the table, a function for each family of commands.

mod bitmaps;
mod dump;
mod geo;
mod hashes;
mod hyperloglogs;
mod lists;
mod operations;
mod pubsub;
mod scripting;
mod sets;
mod sorted_sets;
mod streams;

use super::{
    super::{
        Handler, command_info as ci, connection as c, expiry as e, info, keys as k, lcs, lolwut,
        numbers as n, object, ordered as o, scan, server as srv, settings, sort, strings as str,
        transactions as t, waiting,
    },
    Command, Flags, Group, KeyPlaces, Locking, MoreKeys, Part, Pipelining,
};

/// Keys from `first` to `last`, every `step`.
const fn places(first: usize, last: isize, step: usize) -> KeyPlaces {
    KeyPlaces { first, last, step, more: MoreKeys::None }
}

const NO_KEYS: KeyPlaces = places(0, 0, 0);
const ONE_KEY: KeyPlaces = places(1, 1, 1);
const TWO_KEYS: KeyPlaces = places(1, 2, 1);
const ALL_KEYS: KeyPlaces = places(1, -1, 1);
const PAIRS: KeyPlaces = places(1, -1, 2);

const READ: Flags = Flags::READ;
const WRITE: Flags = Flags::WRITE;
const FAST_READ: Flags = Flags::READ.and(Flags::FAST);
const FAST_WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const AT_ONCE: Flags = Flags::FAST.and(Flags::NOT_QUEUED).and(Flags::NO_SCRIPT);

type Text = (&'static str, &'static str);

/// A command without keys.
fn plain(
    group: Group,
    name: &'static str,
    arity: i16,
    flags: Flags,
    run: Handler,
    (complexity, summary): Text,
) -> Command {
    let (keys, locking, pipelining) = (NO_KEYS, Locking::Nothing, Pipelining::Alone);
    Command {
        name,
        arity,
        flags,
        keys,
        locking,
        pipelining,
        group,
        parts: &[],
        run,
        complexity,
        summary,
    }
}

/// A command on one key: readers lock it against writers, writers against everyone. Writers share
/// commits unless they may take long.
fn on_key(
    group: Group,
    name: &'static str,
    arity: i16,
    flags: Flags,
    run: Handler,
    text: Text,
) -> Command {
    let writes = flags.has(Flags::WRITE);
    let locking = if writes { Locking::Exclusive } else { Locking::Shared };
    let apart = [Flags::SLOW, Flags::BLOCKING, Flags::KEY_PATTERNS];
    let may_share = writes && !apart.into_iter().any(|flag| flags.has(flag));
    let pipelining = if may_share { Pipelining::SharedCommit } else { Pipelining::Alone };
    Command { keys: ONE_KEY, locking, pipelining, ..plain(group, name, arity, flags, run, text) }
}

/// The same command, which only reads the entries of its keys: that of one key needs no lock.
fn entry_read(command: Command) -> Command {
    let locking = if command.keys.last == 1 { Locking::Nothing } else { Locking::Shared };
    Command { locking, pipelining: Pipelining::SharedRead, ..command }
}

/// The same command, which is run with keys that are too long for the engine, too.
fn long_keys(command: Command) -> Command {
    Command { flags: command.flags.and(Flags::LONG_KEYS), ..command }
}

/// The same command, which only overwrites strings if it has at most this number of arguments.
fn overwrite(arguments_max: usize, command: Command) -> Command {
    let command = long_keys(command);
    Command { pipelining: Pipelining::Overwrite { arguments_max }, ..command }
}

/// The same command, which waits until there is something to take: clients that came before take
/// first.
fn in_turn(command: Command) -> Command {
    let flags = command.flags.and(Flags::BLOCKING).and(Flags::IN_TURN);
    Command { flags, pipelining: Pipelining::Alone, ..command }
}

/// The same command, of several parts.
fn with_parts(parts: &'static [Part], command: Command) -> Command {
    Command { parts, ..command }
}

const CLIENT_PARTS: &[Part] = &[
    ("caching", 3),
    ("getname", 2),
    ("getredir", 2),
    ("help", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("maint_notifications", -3),
    ("no-evict", 3),
    ("no-touch", 3),
    ("pause", -3),
    ("reply", 3),
    ("setinfo", 4),
    ("setname", 3),
    ("tracking", -3),
    ("trackinginfo", 2),
    ("unblock", -3),
    ("unpause", 2),
];
const COMMAND_PARTS: &[Part] = &[
    ("count", 2),
    ("docs", -2),
    ("getkeys", -3),
    ("getkeysandflags", -3),
    ("help", 2),
    ("info", -2),
    ("list", -2),
];
const OBJECT_PARTS: &[Part] =
    &[("encoding", 3), ("freq", 3), ("help", 2), ("idletime", 3), ("refcount", 3)];
const CONFIG_PARTS: &[Part] =
    &[("get", -3), ("help", 2), ("resetstat", 2), ("rewrite", 2), ("set", -4)];

/// The same command with its keys elsewhere.
fn with_keys(keys: KeyPlaces, command: Command) -> Command {
    Command { keys, ..command }
}

/// The same command, which may take long.
fn slow(command: Command) -> Command {
    Command { flags: command.flags.and(Flags::SLOW), ..command }
}

/// The same command with other locks.
fn with_locking(locking: Locking, command: Command) -> Command {
    Command { locking, ..command }
}

pub(super) fn families() -> Vec<Vec<Command>> {
    let mut families = vec![
        connection(),
        server(),
        operations::operations(),
        keys(),
        whole_values(),
        expiry(),
        dump::dump(),
        strings(),
        bitmaps::bitmaps(),
        hyperloglogs::hyperloglogs(),
        transactions(),
        scripting::scripting(),
        pubsub::pubsub(),
        hashes::hashes(),
        sorted_sets::sorted_sets(),
        sorted_sets::sorted_set_ranges(),
        sorted_sets::sorted_sets_together(),
        geo::geo(),
        lists::lists(),
        sets::sets(),
        streams::streams(),
        ordered(),
    ];
    for command in families.iter_mut().flatten() {
        if NOT_IN_SCRIPTS.contains(&command.name) {
            command.flags = command.flags.and(Flags::NO_SCRIPT);
        }
    }
    families
}

/// What a script may not call, beside the commands on scripts and on transactions.
const NOT_IN_SCRIPTS: &[&str] = &[
    "auth", "client", "config", "debug", "hello", "migrate", "quit", "reset", "role", "shutdown",
    "waitaof",
];

fn connection() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        plain(Group::Connection, name, arity, flags, run, text)
    };
    let no_auth = Flags::FAST.and(Flags::NO_AUTH);
    vec![
        row("auth", -2, no_auth, c::auth, ("O(1)", "Says the password")),
        // TRACKING waits for the writers that are under way.
        with_locking(
            Locking::Own,
            with_parts(
                CLIENT_PARTS,
                row(
                    "client",
                    -2,
                    Flags::NONE,
                    c::client,
                    ("O(1); LIST and KILL O(clients)", "Looks at connections, names or ends them"),
                ),
            ),
        ),
        row("echo", 2, Flags::FAST, c::echo, ("O(1)", "Replies with its argument")),
        row("hello", -1, no_auth, c::hello, ("O(1)", "Chooses the version of the protocol")),
        row("ping", -1, Flags::FAST, c::ping, ("O(1)", "Replies PONG, or with its argument")),
        row("quit", -1, no_auth.and(Flags::NOT_QUEUED), c::quit, ("O(1)", "Ends the connection")),
        row(
            "reset",
            1,
            no_auth.and(Flags::NOT_QUEUED),
            c::reset,
            ("O(1)", "Makes the connection as new"),
        ),
        row("select", 2, Flags::FAST, c::select, ("O(1)", "Chooses one of 16 databases")),
    ]
}

fn server() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        plain(Group::Server, name, arity, flags, run, text)
    };
    let all = |command| with_locking(Locking::Everything, command);
    vec![
        with_parts(
            COMMAND_PARTS,
            row("command", -1, Flags::NONE, ci::command, ("O(commands)", "What the commands are")),
        ),
        with_parts(
            CONFIG_PARTS,
            row(
                "config",
                -2,
                Flags::ADMIN,
                settings::config,
                ("O(settings)", "Reads and changes settings"),
            ),
        ),
        with_locking(
            Locking::Snapshot,
            row(
                "dbsize",
                1,
                READ.and(Flags::SLOW),
                k::dbsize,
                ("O(1); O(keys) if nobody asked for a while", "Counts the keys of the database"),
            ),
        ),
        all(row(
            "flushall",
            -1,
            WRITE.and(Flags::SLOW),
            k::flushall,
            ("O(1)", "Empties all databases at once"),
        )),
        all(row(
            "flushdb",
            -1,
            WRITE.and(Flags::SLOW),
            k::flushdb,
            ("O(1)", "Empties the database at once"),
        )),
        row("info", -1, Flags::NONE, info::info, ("O(tables)", "Figures of the server")),
        row("lolwut", -1, FAST_READ, lolwut::lolwut, ("O(1)", "A drawing, and the version")),
        row("role", 1, Flags::FAST, srv::role, ("O(1)", "Says that this is a master")),
        row(
            "shutdown",
            -1,
            Flags::ADMIN.and(Flags::NO_MULTI),
            srv::shutdown,
            ("O(1)", "Syncs and ends the server"),
        ),
        all(row(
            "swapdb",
            3,
            FAST_WRITE.and(Flags::SLOW),
            k::swapdb,
            ("O(1)", "Exchanges two databases"),
        )),
        Command {
            flags: Flags::BLOCKING,
            group: Group::Connection,
            ..row(
                "wait",
                3,
                Flags::NONE,
                waiting::wait,
                ("O(1)", "Waits for replicas, of which there are none"),
            )
        },
        Command {
            flags: Flags::BLOCKING.and(Flags::NO_SCRIPT).and(Flags::SLOW),
            group: Group::Connection,
            ..row(
                "waitaof",
                4,
                Flags::NONE,
                waiting::waitaof,
                ("O(1)", "Forces to the disk what was written before"),
            )
        },
        row("time", 1, Flags::FAST, srv::time, ("O(1)", "The server's time")),
    ]
}

fn keys() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Keys, name, arity, flags, run, text);
    let whole = |name, arity, run: Handler, text| {
        with_locking(Locking::Snapshot, plain(Group::Keys, name, arity, READ, run, text))
    };
    vec![
        with_keys(
            ALL_KEYS,
            row("del", -2, WRITE, k::del, ("O(keys), whatever they hold", "Removes keys")),
        ),
        entry_read(with_keys(
            ALL_KEYS,
            row("exists", -2, FAST_READ, k::exists, ("O(keys)", "Counts the keys that are there")),
        )),
        slow(whole(
            "keys",
            2,
            k::keys,
            (
                "O(keys with the pattern's literal beginning)",
                "The keys that match a pattern, ascending",
            ),
        )),
        with_keys(
            places(2, 2, 1),
            with_parts(
                OBJECT_PARTS,
                row("object", -2, READ, object::object, ("O(1)", "How Redis would keep a value")),
            ),
        ),
        whole(
            "randomkey",
            1,
            k::randomkey,
            (
                "O(tables), and a few steps; O(keys) at times where nearly all entries are dead, or in a transaction",
                "A random key",
            ),
        ),
        with_keys(TWO_KEYS, row("rename", 3, WRITE, k::rename, ("O(1)", "Moves a key"))),
        with_keys(
            TWO_KEYS,
            row(
                "renamenx",
                3,
                FAST_WRITE,
                k::renamenx,
                ("O(1)", "Moves a key to a name that is free"),
            ),
        ),
        whole("scan", -2, scan::scan, ("O(COUNT)", "A page of the keys, ascending")),
        entry_read(with_keys(
            ALL_KEYS,
            row("touch", -2, FAST_READ, k::exists, ("O(keys)", "Counts the keys that are there")),
        )),
        entry_read(row("type", 2, FAST_READ, k::kind, ("O(1)", "A key's type"))),
        with_keys(
            ALL_KEYS,
            row("unlink", -2, FAST_WRITE, k::del, ("O(keys), whatever they hold", "Removes keys")),
        ),
    ]
}

/// Those that go through all that a key holds.
fn whole_values() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Keys, name, arity, flags, run, text);
    vec![
        with_keys(
            TWO_KEYS,
            row("copy", -3, WRITE.and(Flags::SLOW), k::copy, ("O(bytes)", "Copies a key")),
        ),
        row(
            "move",
            3,
            FAST_WRITE.and(Flags::SLOW),
            k::move_to,
            ("O(bytes)", "Moves a key to another database"),
        ),
        with_keys(
            KeyPlaces { more: MoreKeys::After(&["store"]), ..ONE_KEY },
            row(
                "sort",
                -2,
                WRITE.and(Flags::KEY_PATTERNS),
                sort::sort,
                ("O(n * log n)", "The elements of a list or a set in another order"),
            ),
        ),
        row(
            "sort_ro",
            -2,
            READ.and(Flags::KEY_PATTERNS),
            sort::sort_ro,
            ("O(n * log n)", "As SORT, without STORE"),
        ),
    ]
}

fn expiry() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Keys, name, arity, flags, run, text);
    let read =
        |name, run: Handler, summary| entry_read(row(name, 2, FAST_READ, run, ("O(1)", summary)));
    vec![
        row("expire", -3, FAST_WRITE, e::expire, ("O(1)", "Gives a key seconds to live")),
        row("expireat", -3, FAST_WRITE, e::expireat, ("O(1)", "Gives a key an end, in seconds")),
        read("expiretime", e::expiretime, "A key's end, in seconds"),
        row("persist", 2, FAST_WRITE, e::persist, ("O(1)", "Takes a key's end away")),
        row("pexpire", -3, FAST_WRITE, e::pexpire, ("O(1)", "Gives a key milliseconds to live")),
        row(
            "pexpireat",
            -3,
            FAST_WRITE,
            e::pexpireat,
            ("O(1)", "Gives a key an end, in milliseconds"),
        ),
        read("pexpiretime", e::pexpiretime, "A key's end, in milliseconds"),
        read("pttl", e::pttl, "Milliseconds until a key's end"),
        read("ttl", e::ttl, "Seconds until a key's end"),
    ]
}

fn strings() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Strings, name, arity, flags, run, text)
    };
    vec![
        row("append", 3, FAST_WRITE, str::append, ("O(bytes)", "Adds to the end of a string")),
        row("decr", 2, FAST_WRITE, n::decr, ("O(1)", "Subtracts one")),
        row("decrby", 3, FAST_WRITE, n::decrby, ("O(1)", "Subtracts an integer")),
        long_keys(entry_read(row("get", 2, FAST_READ, str::get, ("O(1)", "A string")))),
        row("getdel", 2, FAST_WRITE, str::getdel, ("O(1)", "A string, which it removes")),
        row("getex", -2, FAST_WRITE, str::getex, ("O(1)", "A string, whose end it sets")),
        entry_read(row("getrange", 4, READ, str::getrange, ("O(bytes)", "A part of a string"))),
        row(
            "getset",
            3,
            FAST_WRITE,
            str::getset,
            ("O(1)", "Sets a string; replies with the old one"),
        ),
        row("incr", 2, FAST_WRITE, n::incr, ("O(1)", "Adds one")),
        row("incrby", 3, FAST_WRITE, n::incrby, ("O(1)", "Adds an integer")),
        row("incrbyfloat", 3, FAST_WRITE, n::incrbyfloat, ("O(1)", "Adds a decimal number")),
        with_keys(
            TWO_KEYS,
            row(
                "lcs",
                -3,
                READ,
                lcs::lcs,
                ("O(product of the lengths)", "The longest sequence that two strings share"),
            ),
        ),
        entry_read(with_keys(
            ALL_KEYS,
            row("mget", -2, FAST_READ, str::mget, ("O(keys)", "Many strings")),
        )),
        overwrite(
            usize::MAX,
            with_keys(
                PAIRS,
                row("mset", -3, WRITE, str::mset, ("O(keys)", "Sets many strings, all at once")),
            ),
        ),
        with_keys(
            PAIRS,
            row(
                "msetnx",
                -3,
                WRITE,
                str::msetnx,
                ("O(keys)", "Sets many strings if all keys are free"),
            ),
        ),
        row("psetex", 4, WRITE, str::psetex, ("O(1)", "Sets a string with milliseconds to live")),
        overwrite(3, row("set", -3, WRITE, str::set, ("O(1)", "Sets a string"))),
        row("setex", 4, WRITE, str::setex, ("O(1)", "Sets a string with seconds to live")),
        row("setnx", 3, FAST_WRITE, str::setnx, ("O(1)", "Sets a string if its key is free")),
        row("setrange", 4, WRITE, str::setrange, ("O(bytes)", "Overwrites a part of a string")),
        entry_read(row("strlen", 2, FAST_READ, str::strlen, ("O(1)", "Bytes of a string"))),
        entry_read(row("substr", 4, READ, str::getrange, ("O(bytes)", "A part of a string"))),
    ]
}

fn transactions() -> Vec<Command> {
    let row = |name, arity, run: Handler, text| {
        plain(Group::Transactions, name, arity, AT_ONCE, run, text)
    };
    let watch =
        row("watch", -2, t::watch, ("O(keys)", "Makes EXEC depend on keys staying as they are"));
    vec![
        row("discard", 1, t::discard, ("O(commands)", "Forgets what MULTI queued")),
        Command {
            flags: AT_ONCE.and(Flags::RUNS_QUEUE),
            locking: Locking::Own,
            ..row(
                "exec",
                1,
                t::exec,
                ("that of its commands", "Runs what MULTI queued, all at once"),
            )
        },
        row("multi", 1, t::multi, ("O(1)", "Queues the commands that follow")),
        with_locking(Locking::Shared, with_keys(ALL_KEYS, watch)),
        with_queue(row("unwatch", 1, t::unwatch, ("O(keys)", "Takes WATCH back"))),
    ]
}

/// The same command, queued within `MULTI`.
fn with_queue(command: Command) -> Command {
    Command { flags: Flags::FAST.and(Flags::NO_SCRIPT), ..command }
}

fn ordered() -> Vec<Command> {
    let row = |name, arity, run: Handler, text| {
        with_locking(Locking::Snapshot, plain(Group::Ordered, name, arity, READ, run, text))
    };
    vec![
        Command {
            flags: WRITE.and(Flags::SLOW),
            ..row("delrange", -3, o::delrange, ("O(found)", "Removes the keys of a range"))
        },
        row("next", -2, o::next, ("O(log keys)", "The first key after one, with its value")),
        row("prefix", -2, o::prefix, ("O(found)", "The keys with a prefix, with their values")),
        row("prev", -2, o::prev, ("O(log keys)", "The last key before one, with its value")),
        row("range", -3, o::range, ("O(found)", "The keys of a range, with their values")),
        slow(row("rangecount", 3, o::rangecount, ("O(found)", "Counts the keys of a range"))),
    ]
}
