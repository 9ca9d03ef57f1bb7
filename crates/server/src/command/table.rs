//! The table of commands: what each takes, what it locks, what runs it, and what is said of it.
//!
//! `docs/commands.md` has the same rows for people; a test holds the two together.

use std::sync::LazyLock;

use super::{
    Handler, connection as c, expiry as e, hashes as h, info, keys as k, lists as l, numbers as n,
    ordered as o, scan, server as srv, sets as s, settings, strings as str, transactions as t,
    zset_range as zr, zsets as z,
};

/// What is to be known of a command before it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// It may change data.
    pub(crate) const WRITE: Self = Self(1);
    /// It only reads data.
    pub(crate) const READ: Self = Self(2);
    /// It takes little time, whatever it is given.
    pub(crate) const FAST: Self = Self(4);
    /// It needs no password.
    pub(crate) const NO_AUTH: Self = Self(8);
    /// It is run at once within `MULTI`.
    pub(crate) const NOT_QUEUED: Self = Self(16);
    /// It is refused within `MULTI`.
    pub(crate) const NO_MULTI: Self = Self(32);
    /// It is for operators.
    pub(crate) const ADMIN: Self = Self(64);
    /// It may take long: another thread takes over the other connections meanwhile.
    pub(crate) const SLOW: Self = Self(128);

    const NONE: Self = Self(0);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names that `COMMAND` gives them.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let all = [
            (Self::WRITE, "write"),
            (Self::READ, "readonly"),
            (Self::FAST, "fast"),
            (Self::NO_AUTH, "no_auth"),
            (Self::NO_MULTI, "no_multi"),
            (Self::ADMIN, "admin"),
        ];
        all.into_iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| name).collect()
    }
}

/// Where the keys stand among a command's arguments: from `first` (0: there are none) to `last`
/// (from the end if negative), every `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlaces {
    pub(crate) first: usize,
    pub(crate) last: isize,
    pub(crate) step: usize,
}

/// What a command locks. Within `EXEC` the keys are locked exclusively, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Nothing: it touches no data, reads one entry of one key, or takes its own locks.
    Nothing,
    /// Nothing: it reads many keys at one moment. Within `EXEC`, everything.
    Snapshot,
    /// Its keys, against writers.
    Shared,
    /// Its keys, against everyone.
    Exclusive,
    /// Every key, against everyone.
    Everything,
}

/// A family of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Connection,
    Server,
    Keys,
    Strings,
    Transactions,
    Hashes,
    SortedSets,
    Lists,
    Sets,
    Ordered,
}

impl Group {
    /// The name that `COMMAND DOCS` gives it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Keys => "generic",
            Self::Strings => "string",
            Self::Transactions => "transactions",
            Self::Hashes => "hash",
            Self::SortedSets => "sorted-set",
            Self::Lists => "list",
            Self::Sets => "set",
            Self::Ordered => "ordered",
        }
    }
}

/// A part of a command: its second word, and its arity.
pub(crate) type Part = (&'static str, i16);

/// Whether a command of this arity takes so many arguments.
pub(crate) fn takes(arity: i16, len: usize) -> bool {
    let least = usize::from(arity.unsigned_abs());
    if arity < 0 { len >= least } else { len == least }
}

/// A command.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its name, in lower case.
    pub(crate) name: &'static str,
    /// How many arguments it takes, its name included; at least so many if negative.
    pub(crate) arity: i16,
    pub(crate) flags: Flags,
    pub(crate) keys: KeyPlaces,
    pub(crate) locking: Locking,
    pub(crate) group: Group,
    /// What its second word may be, if it is a command of several parts.
    pub(crate) parts: &'static [Part],
    pub(crate) run: Handler,
    pub(crate) complexity: &'static str,
    pub(crate) summary: &'static str,
}

impl Command {
    /// The part that the second word names.
    pub(crate) fn part(&self, word: &[u8]) -> Option<&'static Part> {
        self.parts.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Whether it takes so many arguments, its name included.
    pub(crate) fn takes(&self, len: usize) -> bool {
        takes(self.arity, len)
    }
}

/// All commands, by name.
pub(crate) struct Table {
    sorted: Vec<Command>,
    /// Where `GET` and `SET` are.
    pub(crate) get: usize,
    pub(crate) set: usize,
}

impl Table {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Command> {
        self.sorted.iter()
    }

    /// The name of the command at `index`; `NULL` past the end.
    pub(crate) fn name(&self, index: usize) -> &'static str {
        self.sorted.get(index).map_or("NULL", |command| command.name)
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        self.sorted.binary_search_by(|command| command.name.as_bytes().cmp(name)).ok()
    }
}

/// The table.
pub(crate) static COMMANDS: LazyLock<Table> = LazyLock::new(|| {
    let mut sorted: Vec<Command> = families().into_iter().flatten().collect();
    sorted.sort_unstable_by_key(|command| command.name);
    let place = |name| sorted.iter().position(|command| command.name == name).unwrap_or(0);
    Table { get: place("get"), set: place("set"), sorted }
});

/// Longer than every command's name.
const NAME_BYTES_MAX: usize = 24;

/// The command of this name, in any case, and its place in the table.
pub(crate) fn find(name: &[u8]) -> Option<(usize, &'static Command)> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let table = &*COMMANDS;
    let at = table.place(lower)?;
    Some((at, &table.sorted[at]))
}

const NO_KEYS: KeyPlaces = KeyPlaces { first: 0, last: 0, step: 0 };
const ONE_KEY: KeyPlaces = KeyPlaces { first: 1, last: 1, step: 1 };
const TWO_KEYS: KeyPlaces = KeyPlaces { first: 1, last: 2, step: 1 };
const ALL_KEYS: KeyPlaces = KeyPlaces { first: 1, last: -1, step: 1 };
const PAIRS: KeyPlaces = KeyPlaces { first: 1, last: -1, step: 2 };

const READ: Flags = Flags::READ;
const WRITE: Flags = Flags::WRITE;
const FAST_READ: Flags = Flags::READ.and(Flags::FAST);
const FAST_WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const AT_ONCE: Flags = Flags::FAST.and(Flags::NOT_QUEUED);

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
    let (keys, locking) = (NO_KEYS, Locking::Nothing);
    Command { name, arity, flags, keys, locking, group, parts: &[], run, complexity, summary }
}

/// A command on one key: readers lock it against writers, writers against everyone.
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
    Command { keys: ONE_KEY, locking, ..plain(group, name, arity, flags, run, text) }
}

/// The same command, of several parts.
fn with_parts(parts: &'static [Part], command: Command) -> Command {
    Command { parts, ..command }
}

const CLIENT_PARTS: &[Part] = &[
    ("getname", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("maint_notifications", -3),
    ("no-evict", 3),
    ("no-touch", 3),
    ("setinfo", 4),
    ("setname", 3),
];
const COMMAND_PARTS: &[Part] =
    &[("count", 2), ("docs", -2), ("getkeys", -3), ("info", -2), ("list", 2)];
const CONFIG_PARTS: &[Part] = &[("get", -3), ("resetstat", 2), ("set", -4)];

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

fn families() -> [Vec<Command>; 10] {
    [
        connection(),
        server(),
        keys(),
        strings(),
        transactions(),
        hashes(),
        sorted_sets(),
        lists(),
        sets(),
        ordered(),
    ]
}

fn connection() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        plain(Group::Connection, name, arity, flags, run, text)
    };
    let no_auth = Flags::FAST.and(Flags::NO_AUTH);
    vec![
        row("auth", -2, no_auth, c::auth, ("O(1)", "Says the password")),
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
            row("command", -1, Flags::NONE, srv::command, ("O(commands)", "What the commands are")),
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
                ("O(keys)", "Counts the keys of the database"),
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
            TWO_KEYS,
            row("copy", -3, WRITE.and(Flags::SLOW), k::copy, ("O(bytes)", "Copies a key")),
        ),
        with_keys(
            ALL_KEYS,
            row("del", -2, WRITE, k::del, ("O(keys), whatever they hold", "Removes keys")),
        ),
        with_keys(
            ALL_KEYS,
            row("exists", -2, FAST_READ, k::exists, ("O(keys)", "Counts the keys that are there")),
        ),
        row("expire", -3, FAST_WRITE, e::expire, ("O(1)", "Gives a key seconds to live")),
        row("expireat", -3, FAST_WRITE, e::expireat, ("O(1)", "Gives a key an end, in seconds")),
        row("expiretime", 2, FAST_READ, e::expiretime, ("O(1)", "A key's end, in seconds")),
        slow(whole(
            "keys",
            2,
            k::keys,
            (
                "O(keys with the pattern's literal beginning)",
                "The keys that match a pattern, ascending",
            ),
        )),
        row("persist", 2, FAST_WRITE, e::persist, ("O(1)", "Takes a key's end away")),
        row("pexpire", -3, FAST_WRITE, e::pexpire, ("O(1)", "Gives a key milliseconds to live")),
        row(
            "pexpireat",
            -3,
            FAST_WRITE,
            e::pexpireat,
            ("O(1)", "Gives a key an end, in milliseconds"),
        ),
        row("pexpiretime", 2, FAST_READ, e::pexpiretime, ("O(1)", "A key's end, in milliseconds")),
        row("pttl", 2, FAST_READ, e::pttl, ("O(1)", "Milliseconds until a key's end")),
        whole(
            "randomkey",
            1,
            k::randomkey,
            ("O(log keys)", "A key near a random place of the order"),
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
        with_keys(
            ALL_KEYS,
            row("touch", -2, FAST_READ, k::exists, ("O(keys)", "Counts the keys that are there")),
        ),
        row("ttl", 2, FAST_READ, e::ttl, ("O(1)", "Seconds until a key's end")),
        row("type", 2, FAST_READ, k::kind, ("O(1)", "A key's type")),
        with_keys(
            ALL_KEYS,
            row("unlink", -2, FAST_WRITE, k::del, ("O(keys), whatever they hold", "Removes keys")),
        ),
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
        with_locking(Locking::Nothing, row("get", 2, FAST_READ, str::get, ("O(1)", "A string"))),
        row("getdel", 2, FAST_WRITE, str::getdel, ("O(1)", "A string, which it removes")),
        row("getex", -2, FAST_WRITE, str::getex, ("O(1)", "A string, whose end it sets")),
        row("getrange", 4, READ, str::getrange, ("O(bytes)", "A part of a string")),
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
        with_keys(ALL_KEYS, row("mget", -2, FAST_READ, str::mget, ("O(keys)", "Many strings"))),
        with_keys(
            PAIRS,
            row("mset", -3, WRITE, str::mset, ("O(keys)", "Sets many strings, all at once")),
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
        row("set", -3, WRITE, str::set, ("O(1)", "Sets a string")),
        row("setex", 4, WRITE, str::setex, ("O(1)", "Sets a string with seconds to live")),
        row("setnx", 3, FAST_WRITE, str::setnx, ("O(1)", "Sets a string if its key is free")),
        row("setrange", 4, WRITE, str::setrange, ("O(bytes)", "Overwrites a part of a string")),
        row("strlen", 2, FAST_READ, str::strlen, ("O(1)", "Bytes of a string")),
        row("substr", 4, READ, str::getrange, ("O(bytes)", "A part of a string")),
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
        row("exec", 1, t::exec, ("that of its commands", "Runs what MULTI queued, all at once")),
        row("multi", 1, t::multi, ("O(1)", "Queues the commands that follow")),
        with_locking(Locking::Shared, with_keys(ALL_KEYS, watch)),
        with_queue(row("unwatch", 1, t::unwatch, ("O(keys)", "Takes WATCH back"))),
    ]
}

/// The same command, queued within `MULTI`.
fn with_queue(command: Command) -> Command {
    Command { flags: Flags::FAST, ..command }
}

fn hashes() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Hashes, name, arity, flags, run, text)
    };
    vec![
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
        row("hscan", -3, READ, scan::hscan, ("O(COUNT)", "A page of the fields")),
        row("hset", -4, FAST_WRITE, h::hset, ("O(fields)", "Sets fields; counts the new ones")),
        row("hsetnx", 4, FAST_WRITE, h::hsetnx, ("O(1)", "Sets a field if it is absent")),
        row("hstrlen", 3, FAST_READ, h::hstrlen, ("O(1)", "Bytes of a field's value")),
        row("hvals", 2, READ, h::hvals, ("O(fields)", "All values, in the order of the fields")),
    ]
}

fn sorted_sets() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::SortedSets, name, arity, flags, run, text)
    };
    vec![
        row(
            "zadd",
            -4,
            FAST_WRITE,
            z::zadd,
            ("O(members)", "Adds members, or changes their scores"),
        ),
        row("zcard", 2, FAST_READ, z::zcard, ("O(1)", "Counts the members")),
        row("zcount", 4, READ, zr::zcount, ("O(found)", "Counts the members between two scores")),
        row("zincrby", 4, FAST_WRITE, z::zincrby, ("O(1)", "Adds to a member's score")),
        row(
            "zlexcount",
            4,
            READ,
            zr::zlexcount,
            ("O(found)", "Counts the members between two of them"),
        ),
        row("zmscore", -3, FAST_READ, z::zmscore, ("O(members)", "The scores of many members")),
        row(
            "zpopmax",
            -2,
            FAST_WRITE,
            z::zpopmax,
            ("O(count)", "Takes the members of the highest scores"),
        ),
        row(
            "zpopmin",
            -2,
            FAST_WRITE,
            z::zpopmin,
            ("O(count)", "Takes the members of the lowest scores"),
        ),
        row("zrange", -4, READ, zr::zrange, ("O(start + found)", "Members by rank, score or name")),
        row(
            "zrangebylex",
            -4,
            READ,
            zr::zrangebylex,
            ("O(offset + found)", "Members by name, where scores are the same"),
        ),
        row(
            "zrangebyscore",
            -4,
            READ,
            zr::zrangebyscore,
            ("O(offset + found)", "Members by score"),
        ),
        row("zrank", 3, READ, z::zrank, ("O(rank)", "A member's rank, from the lowest score")),
        row("zrem", -3, FAST_WRITE, z::zrem, ("O(members)", "Removes members")),
        row(
            "zremrangebylex",
            4,
            WRITE,
            zr::zremrangebylex,
            ("O(found)", "Removes members by name"),
        ),
        row(
            "zremrangebyrank",
            4,
            WRITE,
            zr::zremrangebyrank,
            ("O(start + found)", "Removes members by rank"),
        ),
        row(
            "zremrangebyscore",
            4,
            WRITE,
            zr::zremrangebyscore,
            ("O(found)", "Removes members by score"),
        ),
        row(
            "zrevrange",
            -4,
            READ,
            zr::zrevrange,
            ("O(start + found)", "Members by rank, from the highest score"),
        ),
        row(
            "zrevrangebylex",
            -4,
            READ,
            zr::zrevrangebylex,
            ("O(offset + found)", "Members by name, descending"),
        ),
        row(
            "zrevrangebyscore",
            -4,
            READ,
            zr::zrevrangebyscore,
            ("O(offset + found)", "Members by score, descending"),
        ),
        row(
            "zrevrank",
            3,
            READ,
            z::zrevrank,
            ("O(rank)", "A member's rank, from the highest score"),
        ),
        row("zscan", -3, READ, scan::zscan, ("O(COUNT)", "A page of the members")),
        row("zscore", 3, FAST_READ, z::zscore, ("O(1)", "A member's score")),
    ]
}

fn lists() -> Vec<Command> {
    let row = |name, arity, flags, run: Handler, text| {
        on_key(Group::Lists, name, arity, flags, run, text)
    };
    vec![
        row("lindex", 3, READ, l::lindex, ("O(1)", "The element at an index")),
        row("llen", 2, FAST_READ, l::llen, ("O(1)", "Counts the elements")),
        row("lpop", -2, FAST_WRITE, l::lpop, ("O(count)", "Takes elements from the front")),
        row("lpush", -3, FAST_WRITE, l::lpush, ("O(elements)", "Adds elements at the front")),
        row(
            "lpushx",
            -3,
            FAST_WRITE,
            l::lpushx,
            ("O(elements)", "Adds elements at the front of a list that is there"),
        ),
        row("lrange", 4, READ, l::lrange, ("O(found)", "The elements between two indexes")),
        row("lset", 4, WRITE, l::lset, ("O(1)", "Replaces the element at an index")),
        row("ltrim", 4, WRITE, l::ltrim, ("O(removed)", "Keeps the elements between two indexes")),
        row("rpop", -2, FAST_WRITE, l::rpop, ("O(count)", "Takes elements from the end")),
        row("rpush", -3, FAST_WRITE, l::rpush, ("O(elements)", "Adds elements at the end")),
        row(
            "rpushx",
            -3,
            FAST_WRITE,
            l::rpushx,
            ("O(elements)", "Adds elements at the end of a list that is there"),
        ),
    ]
}

fn sets() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Sets, name, arity, flags, run, text);
    vec![
        row("sadd", -3, FAST_WRITE, s::sadd, ("O(members)", "Adds members")),
        row("scard", 2, FAST_READ, s::scard, ("O(1)", "Counts the members")),
        row("sismember", 3, FAST_READ, s::sismember, ("O(1)", "Whether a member is there")),
        row("smembers", 2, READ, s::smembers, ("O(members)", "All members")),
        row(
            "smismember",
            -3,
            FAST_READ,
            s::smismember,
            ("O(members)", "Whether many members are there"),
        ),
        row("spop", -2, FAST_WRITE, s::spop, ("O(count)", "Takes random members")),
        row("srandmember", -2, READ, s::srandmember, ("O(count)", "Random members")),
        row("srem", -3, FAST_WRITE, s::srem, ("O(members)", "Removes members")),
        row("sscan", -3, READ, scan::sscan, ("O(COUNT)", "A page of the members")),
    ]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        for (at, command) in COMMANDS.iter().enumerate() {
            assert!(command.name.len() <= NAME_BYTES_MAX);
            assert_eq!(find(command.name.as_bytes()).map(|(at, _)| at), Some(at));
            assert!(find(command.name.to_uppercase().as_bytes()).is_some());
        }
        assert!(find(b"").is_none() && find(b"nosuch").is_none() && find(&[b'a'; 99]).is_none());
        assert_eq!(COMMANDS.name(COMMANDS.get), "get");
        assert_eq!(COMMANDS.name(COMMANDS.set), "set");
    }

    #[test]
    fn names_are_told_once() {
        let mut names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
        names.dedup();
        assert_eq!(names.len(), COMMANDS.len());
    }

    #[test]
    fn keys_are_within_the_arity() {
        for command in COMMANDS.iter() {
            let least = usize::from(command.arity.unsigned_abs());
            let needed = command.keys.first.max(command.keys.last.max(0).unsigned_abs());
            assert!(needed < least.max(1), "{}", command.name);
        }
    }

    #[test]
    fn the_documents_have_the_same_rows() {
        let text = include_str!("../../../../docs/commands.md");
        for Command { name, summary, complexity, .. } in COMMANDS.iter() {
            let row = format!("| `{}` | {summary} | {complexity} |", name.to_uppercase());
            assert!(text.contains(&row), "docs/commands.md has no row that begins {row}");
        }
        let is_row = |line: &&str| line.starts_with("| `") && line.matches(" | ").count() >= 3;
        let is_command = |line: &&str| line.as_bytes()[3].is_ascii_uppercase();
        let rows = text.lines().filter(is_row).filter(is_command).count();
        assert_eq!(rows, COMMANDS.len(), "docs/commands.md has a row too many");
    }
}
