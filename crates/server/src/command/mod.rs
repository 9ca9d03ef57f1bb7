//! Commands: what each is called and may be given, and how one is run.
//!
//! A handler is a function that reads and writes through its [`Context`] and never waits, locks or
//! commits: `execute` takes the locks that the command's row in the table asks for, and has
//! committed what the handler left pending. One file for each family of commands.

mod access;
mod acl;
mod arguments;
mod bitfield;
mod bits;
mod categories;
mod client;
mod command_info;
mod connection;
mod debug_protocol;
mod decimal;
mod digest;
mod dump;
mod expiry;
mod field_expiry;
mod fields;
mod functions;
mod geo;
mod hash_random;
mod hashes;
mod help;
mod hyperloglogs;
mod info;
mod info_stats;
mod keys;
mod lcs;
mod list_moves;
mod list_search;
pub(crate) mod listening;
mod lists;
mod lolwut;
mod memory;
mod migrate;
mod numbers;
mod object;
mod operations;
mod ordered;
mod output_limit;
pub(crate) mod permission;
mod pubsub;
mod sample;
mod scan;
mod script_counts;
mod script_host;
mod scripting;
mod server;
mod set_algebra;
mod sets;
mod settings;
mod slowness;
mod sort;
mod streams;
mod strings;
mod syncing;
mod table;
mod tracking;
pub(crate) mod transactions;
mod waiting;
mod zset_combine;
mod zset_pop;
mod zset_random;
mod zset_range;
mod zsets;

use std::{cell::Cell, ops::Range};

use crate::{
    encode::{Entry, Kind, Meta},
    fault::Fault,
    places::LearnWhere,
    resp::{Args, Reply, number},
    server::Server,
    txn::Txn,
};

pub(crate) use categories::catalog;
pub(crate) use client::Client;
pub(crate) use slowness::note_slow;
pub(crate) use table::{
    COMMANDS, Command, Flags, Group, KeyPlaces, Locking, MoreKeys, Pipelining, find, takes,
};

/// What a handler returns: on an error it has written nothing, neither data nor reply.
pub(crate) type Done = Result<(), Fault>;

/// The texts of errors that several commands share, as Redis has them.
pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const OUT_OF_RANGE: &str = "ERR index out of range";
pub(crate) const NO_SUCH_KEY: &str = "ERR no such key";
pub(crate) const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
pub(crate) const STRING_TOO_LONG: &str =
    "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
pub(crate) const MEMBER_TOO_LONG: &str = "ERR a field or member has at most 65504 bytes";

/// A handler of a command whose arity is right.
pub(crate) type Handler = fn(&mut Context<'_, '_>, Args<'_>) -> Done;

/// What a command may take that waits until there is something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// From any of its keys.
    Anything,
    /// Nothing: clients that came before wait for one of its keys.
    Nothing,
    /// Only from these keys, which it has waited for and which were written: at the others it is
    /// perhaps not its turn.
    From(Vec<Vec<u8>>),
}

impl Takes {
    /// Returns true if a command is to look at one of its keys.
    pub(crate) fn looks_at(&self, key: &[u8]) -> bool {
        match self {
            Self::Anything | Self::Nothing => true,
            Self::From(keys) => keys.iter().any(|one| *one == key),
        }
    }

    /// Returns true if it may take what it finds.
    pub(crate) fn may_take(&self) -> bool {
        *self != Self::Nothing
    }
}

/// What a handler works with.
pub(crate) struct Context<'c, 's> {
    pub(crate) server: &'s Server,
    pub(crate) client: &'c mut Client,
    pub(crate) txn: Txn<'s>,
    pub(crate) out: &'c mut Reply,
    /// True if the command is one of an `EXEC` or of a script: it does not wait.
    pub(crate) in_exec: bool,
    /// True if it has joined a commit group, which has its locks and commits what it writes.
    pub(crate) joins: bool,
    /// What a command that waits may take now.
    pub(crate) takes: Takes,
    /// True if the command has just come and is run alone: what it writes before it waits is
    /// committed.
    pub(crate) enters: bool,
    /// Where the order of a sorted set may be learned that nobody has asked for.
    pub(crate) learns: LearnWhere,
    /// Elements of the commands of an `EXEC` so far.
    pub(crate) spent: Cell<u64>,
    /// `GET`s of absent keys that are not counted yet.
    pub(crate) absent: usize,
    /// The libraries of functions, once the commands of an `EXEC` have changed them.
    pub(crate) libraries: Option<functions::Changed<'s>>,
}

/// Elements that a command goes through while its worker's other clients wait: some hundred
/// microseconds' worth, at 0.1 to 0.3 us each.
const FEW_ELEMENTS: u64 = 1000;

/// Bytes that are copied in the time that an element takes, at 2 to 4 bytes a nanosecond.
const BYTES_OF_ELEMENT: usize = 512;

impl Context<'_, '_> {
    /// To be called, before anything is written, by a command that goes through this number of
    /// elements.
    ///
    /// # Errors
    ///
    /// [`Fault::TakesLong`] if they are many and other clients would wait: the caller returns it,
    /// and the command is run again beside them.
    pub(crate) fn check_length(&self, elements: u64) -> Done {
        if self.txn.may_take_long {
            return Ok(());
        }
        let mut all = elements;
        if self.in_exec {
            all = all.saturating_add(self.spent.get());
            self.spent.set(all);
        }
        if all > FEW_ELEMENTS { Err(Fault::TakesLong) } else { Ok(()) }
    }

    /// As [`Context::check_length`], for a command that goes through bytes.
    ///
    /// # Errors
    ///
    /// As [`Context::check_length`].
    pub(crate) fn check_bytes(&self, bytes: usize) -> Done {
        self.check_length((bytes / BYTES_OF_ELEMENT) as u64)
    }

    /// Adds the `GET`s of absent keys, and the keys that were looked up, to the server's figures:
    /// once for a run of commands.
    pub(crate) fn count_absent(&mut self) {
        self.server.metrics.count_absent(std::mem::take(&mut self.absent));
        let lookups = (std::mem::take(&mut self.txn.hits), std::mem::take(&mut self.txn.misses));
        self.server.metrics.count_lookups(lookups.0, lookups.1);
    }

    /// The entry of a key that is absent or of this type.
    pub(crate) fn read(&mut self, key: &[u8], kind: Kind) -> Result<Option<Entry>, Fault> {
        let entry = check_kind(self.txn.read(key)?, kind)?;
        self.check_string(entry)
    }

    /// As [`Context::read`], before a write.
    pub(crate) fn edit(&mut self, key: &[u8], kind: Kind) -> Result<Option<Entry>, Fault> {
        let entry = check_kind(self.txn.edit(key)?, kind)?;
        self.check_string(entry)
    }

    /// Leaves a long string to a caller that may take long: all that is done with one copies it.
    fn check_string(&self, entry: Option<Entry>) -> Result<Option<Entry>, Fault> {
        if let Some(entry) = entry.as_ref().filter(|entry| entry.kind == Kind::String) {
            self.check_bytes(entry.bytes().len())?;
        }
        Ok(entry)
    }

    /// What is to be known of a collection that is absent or of this type.
    pub(crate) fn collection(&mut self, key: &[u8], kind: Kind) -> Result<Option<Meta>, Fault> {
        Ok(match self.read(key, kind)? {
            Some(entry) => Some(self.txn.meta(&entry)?),
            None => None,
        })
    }

    /// As [`Context::collection`], before a write: with its time of expiry.
    pub(crate) fn edit_collection(
        &mut self,
        key: &[u8],
        kind: Kind,
    ) -> Result<Option<(Meta, u64)>, Fault> {
        Ok(match self.edit(key, kind)? {
            Some(entry) => Some((self.txn.meta(&entry)?, entry.expires_ms)),
            None => None,
        })
    }

    /// As [`Context::edit_collection`]; a new one if the key is absent.
    pub(crate) fn make_collection(&mut self, key: &[u8], kind: Kind) -> Result<(Meta, u64), Fault> {
        match self.edit_collection(key, kind)? {
            Some(found) => Ok(found),
            None => Ok((self.txn.new_meta()?, 0)),
        }
    }
}

fn check_kind(entry: Option<Entry>, kind: Kind) -> Result<Option<Entry>, Fault> {
    if entry.as_ref().is_some_and(|entry| entry.kind != kind) {
        return Err(WRONG_TYPE.into());
    }
    Ok(entry)
}

/// Reads an integer argument.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Fault> {
    number::parse_i64(text).ok_or_else(|| NOT_AN_INTEGER.into())
}

/// Reads a float argument.
pub(crate) fn float(text: &[u8]) -> Result<f64, Fault> {
    number::parse_f64(text).ok_or_else(|| NOT_A_FLOAT.into())
}

/// Refuses fields and members that no key of the engine could hold.
pub(crate) fn check_member(member: &[u8]) -> Done {
    if member.len() > crate::encode::member::MEMBER_BYTES_MAX {
        return Err(MEMBER_TOO_LONG.into());
    }
    Ok(())
}

/// Returns true if an argument is this word, in any case.
pub(crate) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// The places of the keys among a command's arguments. Without the division that `step_by` begins
/// with: this is asked several times for each command of a pipeline.
#[derive(Clone)]
struct KeyIndexes {
    at: usize,
    end: usize,
    step: usize,
    /// The places of those that other arguments tell of.
    more: Range<usize>,
}

impl Iterator for KeyIndexes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.at >= self.end {
            return self.more.next();
        }
        let at = self.at;
        self.at += self.step;
        Some(at)
    }
}

/// The keys among a command's arguments.
#[inline]
pub(crate) fn keys_of<'a>(
    command: &Command,
    args: Args<'a>,
) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
    key_places_of(command, args).map(move |at| args.at(at))
}

/// The places of the keys among a command's arguments.
#[inline]
fn key_places_of(command: &Command, args: Args<'_>) -> KeyIndexes {
    let KeyPlaces { first, last, step, more } = command.keys;
    let len = args.len();
    let last = if last < 0 { len.saturating_sub(last.unsigned_abs()) } else { last.unsigned_abs() };
    let end = if first == 0 { 0 } else { last.min(len - 1) + 1 };
    let more = if more == MoreKeys::None { 0..0 } else { more.places(args) };
    KeyIndexes { at: first, end, step: step.max(1), more }
}
