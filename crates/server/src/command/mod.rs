//! Commands: what each is called and may be given, and how one is run.
//!
//! A handler is a function that reads and writes through its [`Context`] and never waits, locks or
//! commits: `execute` takes the locks that the command's row in the table asks for, and commits
//! what the handler left pending. One file for each family of commands.

mod categories;
mod connection;
mod decimal;
mod expiry;
mod hashes;
mod help;
mod info;
mod keys;
mod lists;
mod numbers;
mod object;
mod ordered;
mod sample;
mod scan;
mod server;
mod sets;
mod settings;
mod strings;
mod table;
pub(crate) mod transactions;
mod zset_range;
mod zsets;

use std::{borrow::Cow, sync::Arc, time::Instant};

use crate::{
    config::Fsync,
    db::Databases,
    encode::{Entry, Kind, Meta},
    locks::Held,
    resp::{Args, Reply, number},
    server::Server,
    session::Session,
    turn::Turn,
    txn::Txn,
};

pub(crate) use scan::Cursors;
pub(crate) use strings::{get_run, set_run, submit_run};
pub(crate) use table::{COMMANDS, Command, Flags, KeyPlaces, Locking, find, takes};

/// Why a command did nothing; the client is told.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The error's text, its code first.
    Text(Cow<'static, str>),
    /// The engine failed.
    Engine(rhumb::Error),
}

impl From<rhumb::Error> for Fault {
    fn from(error: rhumb::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<&'static str> for Fault {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl Fault {
    /// Writes the error reply of a command that failed, and remembers what the engine met.
    pub(crate) fn tell(&self, databases: &Databases, out: &mut Reply) {
        if let Self::Engine(error) = self {
            databases.health.met(error);
        }
        self.write(out);
    }

    /// Writes the error reply.
    pub(crate) fn write(&self, out: &mut Reply) {
        match self {
            Self::Text(text) => out.error(text),
            Self::Engine(rhumb::Error::InvalidArgument(what)) => out.error(&format!("ERR {what}")),
            Self::Engine(error) => out.error(&failure(error)),
        }
    }
}

/// What a client is told when the engine fails. Programs know Redis's text for writes that fail.
/// Where the files are is not for clients.
fn failure(error: &rhumb::Error) -> String {
    use rhumb::Error;
    match error {
        Error::WritesStopped(cause) => {
            let cause = why(cause);
            format!("MISCONF Errors writing to the AOF file: {cause} (writes are stopped)")
        }
        Error::Io(failure) if !is_reading(failure.operation) => {
            format!("MISCONF Errors writing to the AOF file: {}", why(error))
        }
        _ => format!("ERR the server cannot read its data: {}", why(error)),
    }
}

/// The verbs of operations that change nothing.
fn is_reading(operation: &str) -> bool {
    ["list", "map", "open", "read", "stat"].iter().any(|verb| operation.starts_with(verb))
}

/// The cause of a failure, without a path.
fn why(error: &rhumb::Error) -> String {
    match error {
        rhumb::Error::Io(failure) => {
            let text = failure.source.to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
        rhumb::Error::Corrupt(_) => "a file is damaged".to_owned(),
        rhumb::Error::WritesStopped(cause) => why(cause),
        rhumb::Error::InvalidArgument(what) => what.clone().into_owned(),
        _ => "the engine refuses it".to_owned(),
    }
}

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

/// What a handler works with.
pub(crate) struct Context<'c, 's> {
    pub(crate) server: &'s Server,
    pub(crate) session: &'c mut Session,
    pub(crate) txn: Txn<'s>,
    pub(crate) out: &'c mut Reply,
    /// Whether the command is one of an `EXEC`.
    pub(crate) in_exec: bool,
}

impl Context<'_, '_> {
    /// The entry of a key that is absent or of this type.
    pub(crate) fn read(&self, key: &[u8], kind: Kind) -> Result<Option<Entry>, Fault> {
        check_kind(self.txn.read(key)?, kind)
    }

    /// As [`Context::read`], before a write.
    pub(crate) fn edit(&mut self, key: &[u8], kind: Kind) -> Result<Option<Entry>, Fault> {
        check_kind(self.txn.edit(key)?, kind)
    }

    /// What is to be known of a collection that is absent or of this type.
    pub(crate) fn collection(&self, key: &[u8], kind: Kind) -> Result<Option<Meta>, Fault> {
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

/// Whether an argument is this word, in any case.
pub(crate) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// The keys among a command's arguments.
pub(crate) fn keys_of<'a>(
    command: &Command,
    args: Args<'a>,
) -> impl Iterator<Item = &'a [u8]> + Clone {
    let KeyPlaces { first, last, step } = command.keys;
    let len = args.len();
    let last = if last < 0 { len.saturating_sub(last.unsigned_abs()) } else { last.unsigned_abs() };
    let places = if first == 0 { 1..1 } else { first..last.min(len - 1) + 1 };
    places.step_by(step.max(1)).map(move |at| args.at(at))
}

/// Takes the locks that a command asks for when it is run by itself. The worker's turn is closed
/// first, unless the command needs none of its locks and waits for no others.
fn lock<'s>(databases: &'s Databases, turn: &Turn, command: &Command, args: Args<'_>) -> Held<'s> {
    let (locks, is_one) = (&databases.locks, command.keys.last == 1);
    let is_slow = command.flags.has(Flags::SLOW);
    match command.locking {
        Locking::Nothing | Locking::Snapshot if !is_slow => return Held::Nothing,
        Locking::Shared if is_one => {
            if let Some(held) = locks.try_shared(args.at(1)) {
                databases.settle();
                return held;
            }
        }
        _ => {}
    }
    turn.close(databases);
    let held = match command.locking {
        Locking::Nothing | Locking::Snapshot => return Held::Nothing,
        Locking::Everything => locks.everything(),
        Locking::Shared if is_one => locks.shared(args.at(1)),
        Locking::Shared => locks.many_shared(keys_of(command, args)),
        Locking::Exclusive if is_one => locks.exclusive(args.at(1)),
        Locking::Exclusive => locks.many_exclusive(keys_of(command, args)),
    };
    databases.settle();
    held
}

/// Whether a command may join the turn of its worker: it writes keys that it names, takes little
/// time, and others may share its commit.
pub(crate) fn may_join(server: &Server, command: &Command) -> bool {
    command.locking == Locking::Exclusive
        && !command.flags.has(Flags::SLOW)
        && server.clients.count() > 1
        && server.databases.fsync() != Fsync::Always
}

/// Runs one command in the turn of its worker; what it replies holds if the turn does.
pub(crate) fn join(
    server: &Server,
    session: &mut Session,
    out: &mut Reply,
    command: &Command,
    args: Args<'_>,
) {
    let (databases, from, turn) = (&server.databases, out.len(), Arc::clone(&session.turn));
    let joined = turn.join(databases, keys_of(command, args), |pending| {
        let number = databases.number(session.database);
        let mut txn = Txn::new(databases, number, crate::db::now_ms());
        std::mem::swap(&mut txn.pending, pending);
        let place = txn.pending.place();
        let session = &mut *session;
        let mut context = Context { server, session, txn, out: &mut *out, in_exec: false };
        let done = (command.run)(&mut context, args);
        std::mem::swap(&mut context.txn.pending, pending);
        pending.end(place);
        done
    });
    match joined {
        Ok(ticket) => session.note_joined(ticket, from..out.len()),
        Err(fault) => {
            out.truncate(from);
            fault.tell(databases, out);
        }
    }
}

/// Runs one command by itself: locks, handler, commit, reply.
pub(crate) fn execute(
    server: &Server,
    session: &mut Session,
    out: &mut Reply,
    command: &Command,
    args: Args<'_>,
) {
    let (from, began) = (out.len(), Instant::now());
    let locks = lock(&server.databases, &session.turn, command, args);
    let txn =
        Txn::new(&server.databases, server.databases.number(session.database), crate::db::now_ms());
    let mut context = Context { server, session, txn, out: &mut *out, in_exec: false };
    let done = (command.run)(&mut context, args);
    let done = done.and_then(|()| Ok(context.txn.commit()?));
    drop(locks);
    if let Err(fault) = done {
        out.truncate(from);
        fault.tell(&server.databases, out);
    }
    let took = began.elapsed();
    if server.is_slow(took) {
        let keys = keys_of(command, args).count();
        server.note_slow(&session.info, command.name, (1, keys), took);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rhumb::Error;

    use super::*;

    #[test]
    fn clients_are_told_what_failed_and_no_path() {
        let (no_space, not_readable) = (28, 5);
        let io = |operation, code| {
            Error::io(operation, "/secret/path", io::Error::from_raw_os_error(code))
        };
        let full = io("write", no_space);
        let cases = [
            (full.clone(), "MISCONF Errors writing to the AOF file: No space left on device"),
            (
                Error::WritesStopped(Arc::new(full)),
                "MISCONF Errors writing to the AOF file: No space left on device (writes are stopped)",
            ),
            (io("read", not_readable), "ERR the server cannot read its data: Input/output error"),
            (
                Error::corrupt("/secret/path", 7, "this", "that"),
                "ERR the server cannot read its data: a file is damaged",
            ),
        ];
        for (error, expected) in cases {
            let mut out = Reply::new(1 << 10);
            Fault::from(error).write(&mut out);
            assert_eq!(String::from_utf8_lossy(out.bytes()), format!("-{expected}\r\n"));
        }
    }
}
