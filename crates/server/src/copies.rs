//! Copies of all data as a dump of Redis: of the store as it is, or of one moment of it, for the
//! clients that ask with `SYNC` or `PSYNC`.

use std::{
    io::{self, Write},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use rhumb::{Error, Slice, Snapshot};

use crate::{
    db::{Databases, now_ms},
    encode::{
        Entry, Kind,
        format::{DATABASES, SYSTEM_FUNCTION},
    },
    rdb::{
        DumpWriter, Item, ValueBytes, ValueKind, begin_ending_hash, begin_value, push_end,
        push_item, type_of,
    },
    txn::{Space, Txn},
    values::{self, FieldTimes},
};

/// Bytes of a value that are gathered before they are written to a dump.
const WRITE_BYTES: usize = 64 << 10;

/// Copies that are sent at a time: each has a thread, and keeps what is removed meanwhile on the
/// disk. Chosen, not measured.
const SENDING_MAX: usize = 4;

/// Copies that were sent to clients.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    sending: AtomicUsize,
    /// How many were begun.
    pub(crate) begun: AtomicU64,
}

impl Copies {
    /// The right to send one; none if too many are being sent.
    pub(crate) fn begin(copies: &Arc<Self>) -> Option<Permit> {
        let taken = copies.sending.fetch_update(Relaxed, Relaxed, |sending| {
            (sending < SENDING_MAX).then_some(sending + 1)
        });
        taken.ok()?;
        copies.begun.fetch_add(1, Relaxed);
        Some(Permit(Arc::clone(copies)))
    }

    /// How many are being sent.
    pub(crate) fn sending(&self) -> usize {
        self.sending.load(Relaxed)
    }
}

/// The right to send a copy, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Copies>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Relaxed);
    }
}

/// How a client is told where its copy ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By the number of bytes, which comes first.
    Length,
    /// By these characters, which come before it and after it.
    Mark(String),
}

/// A copy that a client has asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) ending: Ending,
    pub(crate) permit: Permit,
}

/// What a dump has so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) keys: u64,
    /// Libraries of functions.
    pub(crate) functions: u64,
    /// Keys that had ended, and are not in it.
    pub(crate) ended: u64,
    pub(crate) bytes: u64,
    /// Its end was written.
    pub(crate) is_whole: bool,
}

fn damaged(key: &[u8]) -> Error {
    let what = format!("the entry of the key \"{}\" is damaged", key.escape_ascii());
    Error::InvalidArgument(what.into())
}

/// Writes all libraries of functions, and all keys that have not ended at `now_ms`, as a dump:
/// those of the snapshot, or as they are if there is none. Memory is bounded by one element of a
/// value; by the value, if it is a stream. `go_on` is asked after each key; a dump that was not
/// completed has no end, and is refused by every reader.
///
/// # Errors
///
/// If the dump cannot be written, and from the engine.
pub(crate) fn write<E: From<Error> + From<io::Error>>(
    databases: &Databases,
    snapshot: Option<&Snapshot>,
    now_ms: u64,
    to: impl Write,
    go_on: &mut dyn FnMut(&Written) -> bool,
) -> Result<Written, E> {
    let mut writer = DumpWriter::begin(to, now_ms)?;
    let mut all = Written::default();
    let mut write_library = |pair: rhumb::Result<(Slice, Slice)>| -> Result<(), E> {
        all.functions += 1;
        Ok(writer.library(&pair?.1)?)
    };
    match snapshot {
        Some(snapshot) => snapshot
            .keyspace(&databases.system)?
            .prefix(SYSTEM_FUNCTION)
            .try_for_each(&mut write_library)?,
        None => databases.system.prefix(SYSTEM_FUNCTION).try_for_each(&mut write_library)?,
    }
    for database in 0..DATABASES {
        let mut txn = Txn::new(databases, databases.number(database), now_ms);
        txn.snapshot = snapshot;
        let mut is_named = false;
        for pair in txn.scan(Space::Keys, Bound::Unbounded, Bound::Unbounded, false)? {
            let (key, value) = pair?;
            // What a snapshot has was not told of then.
            let has_ended = snapshot.is_none() && !txn.is_live(&key, &value);
            let entry = Entry::decode(value).ok_or_else(|| damaged(&key))?;
            let (items, times) = values::items_of(&txn, &entry)?;
            // All fields of a hash may have ended.
            if has_ended || entry.is_expired(now_ms) || (entry.kind == Kind::Hash && items == 0) {
                all.ended += 1;
                continue;
            }
            if !std::mem::replace(&mut is_named, true) {
                writer.database(database as u64)?;
            }
            write_value::<E>(&mut writer, &txn, (&key, &entry), (items, times))?;
            all.keys += 1;
            all.bytes = writer.written();
            if !go_on(&all) {
                return Ok(all);
            }
        }
    }
    let (mut to, bytes) = writer.finish()?;
    to.flush()?;
    (all.bytes, all.is_whole) = (bytes, true);
    Ok(all)
}

fn write_value<E: From<Error> + From<io::Error>>(
    writer: &mut DumpWriter<impl Write>,
    txn: &Txn<'_>,
    (key, entry): (&[u8], &Entry),
    (expected, times): (u64, Option<FieldTimes>),
) -> Result<(), E> {
    let kind = values::kind_of(entry);
    if kind == ValueKind::Stream {
        let (mut value, mut bytes) = (ValueBytes::new(kind), Vec::new());
        values::read(txn, entry, |item| -> Result<(), E> {
            value.push(&item);
            Ok(())
        })?;
        value.finish(&mut bytes).map_err(|_| damaged(key))?;
        let (type_byte, bytes) = bytes.split_first().ok_or_else(|| damaged(key))?;
        writer.key(key, *type_byte, entry.expires_ms)?;
        return Ok(writer.raw(bytes)?);
    }
    writer.key(key, type_of(kind, times.is_some()), entry.expires_ms)?;
    let (mut items, mut bytes) = (0, Vec::new());
    match times {
        Some(times) => begin_ending_hash(&mut bytes, times.first_ms, expected),
        None => begin_value(&mut bytes, kind, expected),
    }
    values::read(txn, entry, |item| -> Result<(), E> {
        if let (Some(times), Item::Field { expires_ms, .. }) = (times, &item) {
            push_end(&mut bytes, times.first_ms, *expires_ms);
        }
        push_item(&mut bytes, &item);
        items += 1;
        if bytes.len() >= WRITE_BYTES {
            writer.raw(&bytes)?;
            bytes.clear();
        }
        Ok(())
    })?;
    if items != expected {
        return Err(damaged(key).into());
    }
    Ok(writer.raw(&bytes)?)
}

/// Why a copy was not sent whole.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The engine failed.
    Engine(Error),
    /// The client is gone.
    Gone,
}

impl From<Error> for SendError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for SendError {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Sends a copy of this moment, with what stands around it on the wire. If its length is to be
/// told first, it is written twice: the first time only to be measured, for the snapshot is the
/// same both times. `is_wanted` says whether the client is there still.
///
/// # Errors
///
/// From the engine, and if the client is gone.
pub(crate) fn send(
    databases: &Databases,
    ending: &Ending,
    mut to: impl Write,
    is_wanted: &dyn Fn() -> bool,
) -> Result<(), SendError> {
    databases.commit_submitted();
    let snapshot = databases.engine.snapshot_after_commits()?;
    let (now, mut go_on) = (now_ms(), |_: &Written| is_wanted());
    match ending {
        Ending::Length => {
            let measured =
                write::<SendError>(databases, Some(&snapshot), now, io::sink(), &mut go_on)?;
            if !measured.is_whole {
                return Err(SendError::Gone);
            }
            write!(to, "${}\r\n", measured.bytes)?;
        }
        Ending::Mark(mark) => write!(to, "$EOF:{mark}\r\n")?,
    }
    let sent = write::<SendError>(databases, Some(&snapshot), now, &mut to, &mut go_on)?;
    if !sent.is_whole {
        return Err(SendError::Gone);
    }
    if let Ending::Mark(mark) = ending {
        to.write_all(mark.as_bytes())?;
    }
    Ok(to.flush()?)
}
