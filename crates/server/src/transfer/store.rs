//! The data of a server, opened without serving them.

use std::{fmt, io::Write, path::Path, sync::Arc};

use rhumb::PersistMode;

use super::{Refusal, Target, TransferError, Transferred};
use crate::{
    clients::ClientInfo,
    command, commit,
    config::{Config, Fsync},
    copies::{self, Written},
    db::now_ms,
    encode::format::DATABASES,
    error::ServeError,
    libraries,
    log::Log,
    rdb::{Item, KeyHead, RdbError},
    resp::{Frames, Parser, ReadLimits, Reply},
    script,
    server::Server,
    session::Session,
    txn::Txn,
    values::ValueWriter,
};

/// Bytes that are pending before they are committed.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// The longest key, in bytes: the engine's longest, less what the mark of a time of expiry adds.
const KEY_BYTES_MAX: usize = (64 << 10) - 32;

/// The data of a server, opened without serving them. No server can have them meanwhile.
pub struct Store {
    server: Arc<Server>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens the data in a directory, or makes them. What is imported is forced to the disk at the
    /// end.
    ///
    /// # Errors
    ///
    /// If another process has them, or they cannot be read.
    pub fn open(data: &Path, memory_bytes: u64) -> Result<Self, ServeError> {
        let config =
            Config { data: data.to_owned(), memory_bytes, fsync: Fsync::No, ..Config::default() };
        let server = Server::open(config, Arc::new(Log::silent()), command::catalog())?;
        Ok(Self { server: server.share() })
    }

    /// The store as a target.
    pub(super) fn target(&self) -> StoreTarget<'_> {
        let databases = &self.server.databases;
        let info = Arc::new(ClientInfo::new(1, String::new(), String::new()));
        StoreTarget {
            txn: Txn::new(databases, databases.number(0), now_ms()),
            server: &self.server,
            session: Session::new(&self.server, info, true, Arc::default()),
        }
    }

    /// Writes all keys that have not ended, and the libraries of functions, as a dump, which Redis
    /// 7.0 and later load (7.4 and later if it has hashes with fields that end). Memory is bounded
    /// by one element of a value; by the value, if it is a stream. `go_on` is asked now and
    /// then; a dump that was not completed has no end, and is refused by every reader.
    ///
    /// # Errors
    ///
    /// If the dump cannot be written, and from the engine.
    pub fn export_dump(
        &self,
        to: impl Write,
        go_on: &mut dyn FnMut(&Transferred) -> bool,
    ) -> Result<Transferred, TransferError> {
        let count = |written: &Written| Transferred {
            keys: written.keys,
            functions: written.functions,
            ended: written.ended,
            bytes: written.bytes,
            is_complete: written.is_whole,
            ..Transferred::default()
        };
        let mut look = |written: &Written| {
            !written.keys.is_multiple_of(super::KEYS_PER_LOOK) || go_on(&count(written))
        };
        let databases = &self.server.databases;
        copies::write(databases, None, now_ms(), to, &mut look).map(|written| count(&written))
    }
}

/// Values go into the store. Memory is bounded by one node of a value, at most 512 MiB, and a MiB
/// of what is not committed yet. A value is there whole or not at all, whenever the process ends.
pub(super) struct StoreTarget<'s> {
    txn: Txn<'s>,
    server: &'s Server,
    /// Runs the commands that come after the dump.
    session: Session,
}

/// What a server may send in one command: no less than any server takes.
const COMMAND_LIMITS: ReadLimits = ReadLimits {
    inline_bytes: 64 << 10,
    arguments: 1 << 20,
    bulk_bytes: 512 << 20,
    unauthenticated: false,
};

/// Bytes of the replies of one command that are kept; they are looked at for errors alone.
const REPLY_BYTES_MAX: usize = 64 << 20;

impl Drop for StoreTarget<'_> {
    fn drop(&mut self) {
        self.session.end(self.server);
    }
}

impl Target for StoreTarget<'_> {
    fn database(&mut self, number: u64) -> Result<(), TransferError> {
        let index = usize::try_from(number).ok().filter(|index| *index < DATABASES);
        let index = index.ok_or_else(|| {
            let what = format!("the dump has keys of database {number}: there are {DATABASES}");
            TransferError::Failed(what)
        })?;
        self.txn.number = self.txn.databases.number(index);
        Ok(())
    }

    fn value(
        &mut self,
        head: &KeyHead,
        next: &mut dyn FnMut() -> Result<Option<Item>, RdbError>,
    ) -> Result<(), Refusal> {
        if head.key.len() > KEY_BYTES_MAX {
            let what = format!("a name of {} bytes: at most {KEY_BYTES_MAX}", head.key.len());
            return Err(Refusal::Unfit(what));
        }
        let mut value = ValueWriter::begin(&self.txn, head.kind)?;
        while let Some(item) = next()? {
            value.push(&self.txn, item)?;
            if value.flush_if_large(&mut self.txn) {
                commit::transaction(&mut self.txn)?;
            }
        }
        value.check(&self.txn)?;
        let before = self.txn.edit(&head.key)?;
        value.finish(&mut self.txn, &head.key, before.as_ref(), head.expires_ms)?;
        if self.txn.pending.bytes >= PENDING_BYTES_MAX {
            commit::transaction(&mut self.txn)?;
        }
        Ok(())
    }

    fn library(&mut self, code: &[u8]) -> Result<(), Refusal> {
        let library = script::load(code, None).map_err(Refusal::Unfit)?;
        let functions = &self.server.functions;
        let _one = functions.change();
        let mut all = (*functions.present()).clone();
        all.add(vec![Arc::new(library)], true).map_err(Refusal::Unfit)?;
        Ok(libraries::put(self.txn.databases, functions, all)?)
    }

    fn run(
        &mut self,
        commands: &[u8],
        _count: usize,
        all: &mut Transferred,
    ) -> Result<(), TransferError> {
        commit::transaction(&mut self.txn)?;
        let (mut parser, mut frames) = (Parser::default(), Frames::default());
        let mut input = commands.to_vec();
        let parsed = parser.parse(&mut input, &mut frames, &COMMAND_LIMITS, usize::MAX);
        parsed.map_err(|error| TransferError::Failed(format!("the server's commands: {error}")))?;
        let (mut at, mut out) = (0, Reply::new(REPLY_BYTES_MAX));
        while at < frames.len() {
            // Until there is a reply.
            at += self.session.run(self.server, &input, &frames, at, 1, &mut out);
            self.session.finish_waiting(self.server, &mut out);
            if let Some(error) = out.bytes().strip_prefix(b"-") {
                let line = error.split(|byte| *byte == b'\r').next().unwrap_or_default();
                super::refuse(all, &String::from_utf8_lossy(line));
            }
            out.clear(REPLY_BYTES_MAX);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransferError> {
        commit::transaction(&mut self.txn)?;
        Ok(self.txn.databases.engine.persist(PersistMode::SyncAll)?)
    }
}
