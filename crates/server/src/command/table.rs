//! The table of commands: what each takes, what it locks, what runs it, and what is said of it.
//!
//! `docs/commands.md` has the same rows for people; a test holds the two together.

pub(super) mod facts;
mod rows;

use std::{ops::Range, sync::LazyLock};

use super::{Handler, is_word};
use crate::resp::{Args, number};

/// What is to be known of a command before it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u32);

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

    /// It runs what `MULTI` queued. If it cannot be run, the transaction ends all the same.
    pub(crate) const RUNS_QUEUE: Self = Self(256);

    /// A key that is too long for the engine is not refused before it is run outside of `MULTI`:
    /// to a read it is absent, and a write is told the engine's error.
    pub(crate) const LONG_KEYS: Self = Self(512);

    /// A script may not call it.
    pub(crate) const NO_SCRIPT: Self = Self(1024);

    /// It may wait for a key to be written. In `EXEC` and in scripts it does not wait.
    pub(crate) const BLOCKING: Self = Self(2048);

    /// It is about messages between clients.
    pub(crate) const PUBSUB: Self = Self(4096);

    /// Clients that wait with it are served in the order in which they came, even if it is tried
    /// by one that has just come.
    pub(crate) const IN_TURN: Self = Self(8192);

    /// Patterns after the words `BY` and `GET` name more keys, which are not known beforehand.
    pub(crate) const KEY_PATTERNS: Self = Self(1 << 14);

    const NONE: Self = Self(0);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all of `other` are among these.
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
            (Self::NO_SCRIPT, "noscript"),
            (Self::BLOCKING, "blocking"),
            (Self::PUBSUB, "pubsub"),
        ];
        all.into_iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| name).collect()
    }
}

/// Where the keys stand among a command's arguments: from `first` (0: there are none) to `last`
/// (from the end if negative), every `step`; and those that other arguments tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlaces {
    pub(crate) first: usize,
    pub(crate) last: isize,
    pub(crate) step: usize,
    pub(crate) more: MoreKeys,
}

impl KeyPlaces {
    /// Returns true if the key is the first argument, and the only one.
    pub(crate) fn is_one(self) -> bool {
        self.last == 1 && self.more == MoreKeys::None
    }
}

/// Keys whose places other arguments tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoreKeys {
    /// There are none.
    None,
    /// After the argument `at`, which is their number.
    Counted { at: usize },
    /// After the word `STREAMS`: the first half of what follows.
    Streams,
    /// The argument after one of these words, in lower case; the last such argument counts.
    After(&'static [&'static str]),
    /// All that come after the word `KEYS` of `MIGRATE`.
    Migrated,
}

impl MoreKeys {
    /// The places of these keys among the arguments of a call. Arguments that are wrong name none:
    /// the handler refuses them.
    pub(crate) fn places(self, args: Args<'_>) -> Range<usize> {
        let len = args.len();
        match self {
            Self::None => 0..0,
            Self::Counted { at } => {
                let count = args.get(at).and_then(number::parse_i64);
                let end = count.and_then(|n| usize::try_from(n).ok()?.checked_add(at + 1));
                end.filter(|end| *end <= len).map_or(0..0, |end| at + 1..end)
            }
            Self::Streams => {
                streams_at(args).map_or(0..0, |at| at + 1..at + 1 + (len - at - 1) / 2)
            }
            Self::After(words) => {
                let is_one = |at: &usize| words.iter().any(|word| is_word(args.at(*at), word));
                let last = (1..len.saturating_sub(1)).rev().find(is_one);
                last.map_or(0..0, |at| at + 1..at + 2)
            }
            Self::Migrated => migrated_at(args).map_or(0..0, |at| at + 1..len),
        }
    }
}

/// The place of the word `KEYS` of `MIGRATE`, which is no password.
fn migrated_at(args: Args<'_>) -> Option<usize> {
    let mut at = 6;
    loop {
        let option = args.get(at)?;
        at += match option {
            _ if is_word(option, "keys") => return Some(at),
            _ if is_word(option, "auth") => 2,
            _ if is_word(option, "auth2") => 3,
            _ => 1,
        };
    }
}

/// The place of the word `STREAMS` among the options of a call, none of which it is an argument of.
fn streams_at(args: Args<'_>) -> Option<usize> {
    let mut at = 1;
    loop {
        let option = args.get(at)?;
        at += match option {
            _ if is_word(option, "streams") => return Some(at),
            _ if is_word(option, "group") => 3,
            _ if is_word(option, "noack") => 1,
            // BLOCK and COUNT.
            _ => 2,
        };
    }
}

/// What a command locks. Within `EXEC` the keys are locked exclusively, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Nothing: it touches no data, or reads one entry of one key.
    Nothing,
    /// What it locks itself when it is run.
    Own,
    /// Nothing: it reads many keys at one moment. Within `EXEC`, everything.
    Snapshot,
    /// Its keys, against writers.
    Shared,
    /// Its keys, against everyone.
    Exclusive,
    /// Every key, against everyone.
    Everything,
}

/// With which neighbours in a pipeline a command is run. The command itself is the same in all
/// cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipelining {
    /// With none.
    Alone,
    /// It only reads the entries of the keys that it names, each once and in their order. Such
    /// neighbours share one read.
    SharedRead,
    /// It writes keys that it names and takes little time. Such commands share the commit of a
    /// commit group, with those of other clients.
    SharedCommit,
    /// It makes keys strings, whatever they hold, if it has at most this number of arguments, its
    /// name included. Such neighbours share a batch that is written without a look at what was
    /// there. With more arguments it is as [`Pipelining::SharedCommit`].
    ///
    /// These are apart from commit groups for their speed: see [`Txn::overwrite`].
    ///
    /// [`Txn::overwrite`]: crate::txn::Txn::overwrite
    Overwrite { arguments_max: usize },
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
    Streams,
    Bitmaps,
    HyperLogLogs,
    Geo,
    PubSub,
    Scripting,
    Cluster,
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
            Self::Streams => "stream",
            Self::Bitmaps => "bitmap",
            Self::HyperLogLogs => "hyperloglog",
            Self::Geo => "geo",
            Self::PubSub => "pubsub",
            Self::Scripting => "scripting",
            Self::Cluster => "cluster",
            Self::Ordered => "ordered",
        }
    }
}

/// A part of a command: its second word, and its arity.
pub(crate) type Part = (&'static str, i16);

/// Returns true if a command of this arity takes `len` arguments.
pub(crate) fn takes(arity: i16, len: usize) -> bool {
    let least = usize::from(arity.unsigned_abs());
    if arity < 0 { len >= least } else { len == least }
}

/// A command.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its name, in lower case.
    pub(crate) name: &'static str,
    /// How many arguments it takes, its name included; the least number, negated, if there is no
    /// greatest.
    pub(crate) arity: i16,
    pub(crate) flags: Flags,
    pub(crate) keys: KeyPlaces,
    pub(crate) locking: Locking,
    pub(crate) pipelining: Pipelining,
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

    /// Returns true if it takes `len` arguments, its name included.
    pub(crate) fn takes(&self, len: usize) -> bool {
        takes(self.arity, len)
    }

    /// Returns true if a call with `len` arguments, its name included, only overwrites strings.
    pub(crate) fn overwrites(&self, len: usize) -> bool {
        matches!(self.pipelining, Pipelining::Overwrite { arguments_max } if len <= arguments_max)
    }

    /// What a call locks: every key if a pattern may name any.
    pub(crate) fn locking_of(&self, args: Args<'_>) -> Locking {
        if self.flags.has(Flags::KEY_PATTERNS) && names_any_key(args) {
            return Locking::Everything;
        }
        self.locking
    }

    /// Returns true if its calls may join a commit group.
    pub(crate) fn shares_commits(&self) -> bool {
        matches!(self.pipelining, Pipelining::SharedCommit | Pipelining::Overwrite { .. })
    }
}

/// Returns true if a call of `SORT` has a pattern, or if it is not plain which key it stores to.
fn names_any_key(args: Args<'_>) -> bool {
    let is_pattern = |at: usize| {
        let word = args.at(at - 1);
        (is_word(word, "by") || is_word(word, "get")) && args.at(at).contains(&b'*')
    };
    let stores = (2..args.len()).filter(|at| is_word(args.at(*at), "store")).count();
    stores > 1 || (3..args.len()).any(is_pattern)
}

/// All commands, by name.
///
/// A *slot* is the place of what is counted by itself, and of what a user may be allowed by itself:
/// first the commands in their order, then the parts of those that have some.
pub(crate) struct Table {
    sorted: Vec<Command>,
    /// The slot of each command's first part.
    first_parts: Vec<usize>,
    /// The names of the slots: those of parts are as in `config|get`.
    slot_names: Vec<String>,
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

    /// The command at `index`.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &Command {
        &self.sorted[index]
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slot_names.len()
    }

    /// The slot of a call of the command at `index`.
    #[inline]
    pub(crate) fn slot(&self, index: usize, args: Args<'_>) -> usize {
        let command = &self.sorted[index];
        if command.parts.is_empty() {
            return index;
        }
        let is = |(name, _): &Part| args.get(1).is_some_and(|word| is_word(word, name));
        command.parts.iter().position(is).map_or(index, |part| self.first_parts[index] + part)
    }

    /// The slot of a call of a command.
    pub(crate) fn slot_of(&self, command: &Command, args: Args<'_>) -> usize {
        self.place(command.name.as_bytes()).map_or(0, |index| self.slot(index, args))
    }

    /// The slots of the parts of the command at `index`.
    pub(crate) fn parts(&self, index: usize) -> Range<usize> {
        let first = self.first_parts[index];
        first..first + self.sorted[index].parts.len()
    }

    /// The command that a slot is of, and its part, if it is that of one.
    pub(crate) fn of_slot(&self, slot: usize) -> (&Command, Option<&'static str>) {
        if let Some(command) = self.sorted.get(slot) {
            return (command, None);
        }
        // Commands without parts have an empty range, which begins where the next one does.
        let index = self.first_parts.partition_point(|first| *first <= slot) - 1;
        let command = &self.sorted[index];
        (command, command.parts.get(slot - self.first_parts[index]).map(|(name, _)| *name))
    }

    /// The slot of this name, in lower case: `get`, `config|get`.
    pub(crate) fn slot_named(&self, name: &[u8]) -> Option<usize> {
        let Some(bar) = name.iter().position(|byte| *byte == b'|') else { return self.place(name) };
        let index = self.place(&name[..bar])?;
        self.parts(index).find(|slot| self.slot_names[*slot].as_bytes() == name)
    }

    /// The name of a slot; `NULL` past the end.
    pub(crate) fn name(&self, slot: usize) -> &str {
        self.slot_names.get(slot).map_or("NULL", String::as_str)
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        self.sorted.binary_search_by(|command| command.name.as_bytes().cmp(name)).ok()
    }
}

/// The table.
pub(crate) static COMMANDS: LazyLock<Table> = LazyLock::new(|| {
    let mut sorted: Vec<Command> = rows::families().into_iter().flatten().collect();
    sorted.sort_unstable_by_key(|command| command.name);
    let mut slot_names: Vec<String> = sorted.iter().map(|c| c.name.to_owned()).collect();
    let mut first_parts = Vec::with_capacity(sorted.len());
    for command in &sorted {
        first_parts.push(slot_names.len());
        slot_names.extend(command.parts.iter().map(|(part, _)| format!("{}|{part}", command.name)));
    }
    Table { sorted, first_parts, slot_names }
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
    }

    #[test]
    fn slots_are_of_commands_and_of_their_parts() {
        for slot in 0..COMMANDS.slots() {
            let (command, part) = COMMANDS.of_slot(slot);
            let name =
                part.map_or(command.name.to_owned(), |part| format!("{}|{part}", command.name));
            assert_eq!(
                (COMMANDS.name(slot), COMMANDS.slot_named(name.as_bytes())),
                (&name[..], Some(slot))
            );
        }
        assert_eq!(COMMANDS.name(COMMANDS.slots()), "NULL");
        assert_eq!((COMMANDS.slot_named(b"get|x"), COMMANDS.slot_named(b"config|x")), (None, None));
    }

    #[test]
    fn commands_are_pipelined_as_their_locks_allow() {
        for command in COMMANDS.iter() {
            let Command { name, flags, locking, pipelining, .. } = command;
            match pipelining {
                Pipelining::Alone => {
                    let apart = [Flags::SLOW, Flags::BLOCKING, Flags::KEY_PATTERNS];
                    let is_apart = apart.into_iter().any(|flag| flags.has(flag));
                    let may_share =
                        *locking == Locking::Exclusive && !is_apart && command.parts.is_empty();
                    assert!(!may_share, "{name} may share a commit");
                }
                Pipelining::SharedRead => {
                    assert!(flags.has(Flags::READ) && !flags.has(Flags::SLOW), "{name}");
                    // What is read of many keys is locked, what is read of one is not.
                    let expected =
                        if command.keys.last == 1 { Locking::Nothing } else { Locking::Shared };
                    assert_eq!((*locking, command.keys.first), (expected, 1), "{name}");
                }
                Pipelining::SharedCommit | Pipelining::Overwrite { .. } => {
                    // PFCOUNT keeps what it has computed; to Redis it is a read.
                    let writes = flags.has(Flags::WRITE) || *name == "pfcount";
                    assert!(writes && !flags.has(Flags::SLOW), "{name}");
                    assert!(!flags.has(Flags::IN_TURN), "{name}");
                    // A script that is run alone takes its locks itself.
                    let is_script = command.group == Group::Scripting;
                    let expected = if is_script { Locking::Own } else { Locking::Exclusive };
                    assert_eq!(*locking, expected, "{name}");
                }
            }
            assert!(*pipelining == Pipelining::Alone || command.parts.is_empty(), "{name}");
            assert_eq!(flags.has(Flags::RUNS_QUEUE), *name == "exec");
        }
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
            // A part may be one without a key.
            let least = least + usize::from(!command.parts.is_empty());
            assert!(needed < least.max(1), "{}", command.name);
        }
    }

    fn with_args<T>(words: &str, look: impl FnOnce(Args<'_>) -> T) -> T {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for word in words.split(' ') {
            let start = bytes.len();
            bytes.extend_from_slice(word.as_bytes());
            spans.push(crate::resp::Span::new(start, bytes.len()));
        }
        look(Args::new(&bytes, &spans))
    }

    #[test]
    fn patterns_lock_every_key() {
        let locking = |words: &str| {
            let (_, command) = find(words.split(' ').next().unwrap().as_bytes()).unwrap();
            with_args(words, |args| command.locking_of(args))
        };
        for plain in ["sort k", "sort k by nosort get # store d", "sort *", "sort k store *"] {
            assert_eq!(locking(plain), Locking::Exclusive, "{plain}");
        }
        assert_eq!(locking("sort_ro k alpha"), Locking::Shared);
        for all in ["sort k BY w*", "sort_ro k get #  GET h*->f", "sort k store d get store asc"] {
            assert_eq!(locking(all), Locking::Everything, "{all}");
        }
        assert_eq!(locking("get *"), Locking::Nothing);
    }

    #[test]
    fn keys_are_found_where_other_arguments_say() {
        let places = |more: MoreKeys, words: &str| with_args(words, |args| more.places(args));
        let counted = MoreKeys::Counted { at: 2 };
        assert_eq!(places(counted, "eval s 2 a b c"), 3..5);
        assert_eq!(places(counted, "eval s 0 a"), 3..3);
        for wrong in
            ["eval s", "eval s x a", "eval s -1 a", "eval s 2 a", "eval s 9223372036854775807 a"]
        {
            assert!(places(counted, wrong).is_empty(), "{wrong}");
        }
        assert_eq!(places(MoreKeys::Streams, "xread COUNT 2 STREAMS a b 0 0"), 4..6);
        assert!(places(MoreKeys::Streams, "xread count 2").is_empty());
        let group = "xreadgroup group streams c noack streams a >";
        assert_eq!(places(MoreKeys::Streams, group), 6..7);
        let store = MoreKeys::After(&["store", "storedist"]);
        assert_eq!(places(store, "georadius k 1 2 3 m STORE a storedist b"), 9..10);
        assert!(places(store, "georadius k 1 2 3 m store").is_empty());
        assert_eq!(places(MoreKeys::Migrated, "migrate h p  0 9 KEYS a b"), 7..9);
        assert_eq!(
            places(MoreKeys::Migrated, "migrate h p  0 9 auth keys auth2 keys keys KEYS a"),
            12..13
        );
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
