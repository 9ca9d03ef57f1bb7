//! Data in and out as Redis serialises them: from dumps and from servers into the store or into
//! another server, and out of the store. Beside a server, not within one: a store is opened by one
//! process at a time.

mod remote;
mod replica;
mod scan;
mod store;

use std::{fmt, io};

use crate::{
    fault::Fault,
    rdb::{Dump, Item, KeyHead, RdbError, Record, ValueKind},
};

pub use scan::export_server;
pub use store::Store;

use crate::{db::now_ms, peer::PeerAddress};

/// What came of an import or an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Keys that were taken over.
    pub keys: u64,
    /// Keys that had ended.
    pub ended: u64,
    /// Keys whose value or name does not fit the store, and libraries that cannot be loaded, which
    /// were left out because that was asked.
    pub unfit: u64,
    /// The first of these, and why it does not fit.
    pub first_unfit: Option<String>,
    /// Values and data of modules, which no store here can hold.
    pub modules: u64,
    /// Libraries of functions that were taken over.
    pub functions: u64,
    /// Commands that came after the dump.
    pub commands: u64,
    /// Commands of these that were refused.
    pub refused: u64,
    /// The first of these errors.
    pub first_refused: Option<String>,
    /// True if the server refused to be followed: its keys were read one after the other, while
    /// its clients may have written.
    pub was_scanned: bool,
    /// True if the server has sent its data as they were at one moment, and sends no writes after
    /// that, as a server of this kind does.
    pub is_snapshot: bool,
    /// Bytes of the dump.
    pub bytes: u64,
    /// False if it was ended before all was done.
    pub is_complete: bool,
}

/// Why an import or an export failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// The engine failed.
    Engine(rhumb::Error),
    /// Anything else: the text names the place.
    Failed(String),
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for TransferError {}

impl From<rhumb::Error> for TransferError {
    fn from(error: rhumb::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<RdbError> for TransferError {
    fn from(error: RdbError) -> Self {
        Self::Failed(format!("the dump: {error}"))
    }
}

impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Why a value was not taken.
enum Refusal {
    /// It does not fit.
    Unfit(String),
    Failed(TransferError),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Engine(error) => Self::Failed(error.into()),
            Fault::Text(text) => Self::Unfit(text.trim_start_matches("ERR ").to_owned()),
            Fault::Wait(_) | Fault::TakesLong | Fault::Learn(_) => {
                Self::Unfit("it takes too long".to_owned())
            }
        }
    }
}

impl<E: Into<TransferError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Where values go.
trait Target {
    /// The keys that follow are of this database.
    fn database(&mut self, number: u64) -> Result<(), TransferError>;

    /// Takes a value, whose items `next` gives.
    fn value(
        &mut self,
        head: &KeyHead,
        next: &mut dyn FnMut() -> Result<Option<Item>, RdbError>,
    ) -> Result<(), Refusal>;

    /// Takes a library of functions, in the place of one of the same name.
    fn library(&mut self, code: &[u8]) -> Result<(), Refusal>;

    /// Runs commands as they are on the wire, of which there are `count`; counts those that were
    /// refused.
    fn run(
        &mut self,
        commands: &[u8],
        count: usize,
        all: &mut Transferred,
    ) -> Result<(), TransferError>;

    /// All that was taken is where it belongs, and stays there.
    fn finish(&mut self) -> Result<(), TransferError>;
}

/// Keys between two looks at whether to go on.
const KEYS_PER_LOOK: u64 = 256;

/// Bytes of a library's first line that are shown.
const LINE_BYTES_MAX: usize = 100;

/// Counts a command that was refused.
fn refuse(all: &mut Transferred, why: &str) {
    all.refused += 1;
    all.first_refused.get_or_insert_with(|| why.to_owned());
}

/// Where data come from.
pub enum ImportFrom<'a> {
    /// A dump.
    Dump(Box<dyn io::Read + 'a>),
    /// A server, as `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`. All its databases are read;
    /// the number of one says nothing.
    Server(&'a str),
}

/// Where data go.
pub enum ImportTo<'a> {
    /// The data of a server that does not run.
    Store(&'a Store),
    /// A server, as for [`ImportFrom::Server`], by `RESTORE`.
    Server(&'a str),
}

/// How an import is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Leave out what does not fit, and count it.
    pub is_lenient: bool,
    /// End once all that a server had at the beginning is there, and do not follow what its clients
    /// write from then on.
    pub is_once: bool,
}

fn address(url: &str) -> Result<PeerAddress, TransferError> {
    PeerAddress::parse(url).ok_or_else(|| {
        let what = "is no URL of a server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]";
        // It may have a password.
        TransferError::Failed(format!("what begins with {:?} {what}", url.get(..8).unwrap_or(url)))
    })
}

/// Takes data over: keys of the same names are replaced, all others stay. A server is followed,
/// as a replica does it, until `go_on` says no, which is asked now and then; where it refuses that,
/// its keys are read one after the other.
///
/// # Errors
///
/// If what is read is damaged or does not fit, if a server does not answer, and from the engine.
/// What was read before stays.
pub fn import(
    from: ImportFrom<'_>,
    to: ImportTo<'_>,
    options: ImportOptions,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<Transferred, TransferError> {
    let mut store_target;
    let mut server_target;
    let target: &mut dyn Target = match to {
        ImportTo::Store(store) => {
            store_target = store.target();
            &mut store_target
        }
        ImportTo::Server(url) => {
            server_target = remote::ServerTarget::open(&address(url)?)?;
            &mut server_target
        }
    };
    match from {
        ImportFrom::Dump(dump) => read_dump(dump, target, (now_ms(), options.is_lenient), go_on),
        ImportFrom::Server(url) => replica::import(&address(url)?, target, options, go_on),
    }
}

/// Reads a dump into a target until its end, or until `go_on` says no. If `is_lenient`, what does
/// not fit is left out and counted. What was read before a failure is kept.
fn read_dump(
    from: impl io::Read,
    target: &mut dyn Target,
    (now_ms, is_lenient): (u64, bool),
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<Transferred, TransferError> {
    let mut dump = Dump::open(from)?;
    let mut all = Transferred::default();
    let outcome = loop {
        all.bytes = dump.offset();
        match step(&mut dump, target, (now_ms, is_lenient), &mut all) {
            Ok(true) => {}
            Ok(false) => {
                all.is_complete = true;
                break Ok(());
            }
            Err(error) => break Err(error),
        }
        if all.keys.is_multiple_of(KEYS_PER_LOOK) && !go_on(&all) {
            break Ok(());
        }
    };
    target.finish()?;
    all.bytes = dump.offset();
    outcome.map(|()| all)
}

/// The beginning of a library's code, which has its name.
fn first_line(code: &[u8]) -> String {
    let end = code.iter().position(|byte| *byte == b'\n').unwrap_or(code.len()).min(LINE_BYTES_MAX);
    format!("\"{}\"", code[..end].escape_ascii())
}

/// Looks at what became of a part of a dump: true if it was taken, false if it was left out.
/// `name` says where it is, for an error, and what.
fn look(
    taken: Result<(), Refusal>,
    is_lenient: bool,
    all: &mut Transferred,
    name: impl FnOnce(&str) -> (String, String),
) -> Result<bool, TransferError> {
    let why = match taken {
        Ok(()) => return Ok(true),
        Err(Refusal::Failed(error)) => return Err(error),
        Err(Refusal::Unfit(why)) => why,
    };
    let (place, what) = name(&why);
    if !is_lenient {
        return Err(TransferError::Failed(format!("{place}{what}")));
    }
    all.unfit += 1;
    all.first_unfit.get_or_insert(what);
    Ok(false)
}

/// Where a dump is read, for an error.
fn place<R: io::Read>(dump: &Dump<R>) -> String {
    format!("offset {} of the dump, ", dump.offset())
}

/// Reads what comes next in a dump; false at its end.
fn step<R: io::Read>(
    dump: &mut Dump<R>,
    target: &mut dyn Target,
    (now_ms, is_lenient): (u64, bool),
    all: &mut Transferred,
) -> Result<bool, TransferError> {
    match dump.next()? {
        None => return Ok(false),
        Some(Record::Aux(..) | Record::Resize(_)) => {}
        Some(Record::Database(number)) => target.database(number)?,
        Some(Record::ModuleAux) => all.modules += 1,
        Some(Record::Key(head)) if head.kind == ValueKind::Module => all.modules += 1,
        Some(Record::Key(head)) if head.expires_ms != 0 && head.expires_ms <= now_ms => {
            all.ended += 1;
        }
        Some(Record::Function(code)) => {
            let taken = target.library(&code);
            let is_taken = look(taken, is_lenient, all, |why| {
                (place(dump), format!("the library {}: {why}", first_line(&code)))
            })?;
            all.functions += u64::from(is_taken);
        }
        Some(Record::Key(head)) => {
            let taken = target.value(&head, &mut || dump.item());
            let is_taken = look(taken, is_lenient, all, |why| {
                (place(dump), format!("the key \"{}\": {why}", head.key.escape_ascii()))
            })?;
            all.keys += u64::from(is_taken);
        }
    }
    Ok(true)
}
