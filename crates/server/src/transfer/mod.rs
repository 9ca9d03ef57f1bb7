//! Data in and out as Redis serialises them: dumps into the store and out of it. Beside a server,
//! not within one: a store is opened by one process at a time.

mod store;

use std::{fmt, io};

use crate::{
    fault::Fault,
    rdb::{Dump, Item, KeyHead, RdbError, Record, ValueKind},
};

pub use store::Store;

/// What came of an import or an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Keys that were taken over.
    pub keys: u64,
    /// Keys that had ended.
    pub ended: u64,
    /// Keys whose value or name does not fit the store, and were left out because that was asked.
    pub unfit: u64,
    /// The first of these, and why it does not fit.
    pub first_unfit: Option<String>,
    /// Values and data of modules, which no store here can hold.
    pub modules: u64,
    /// Libraries of functions, which were left out.
    pub functions: u64,
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
            Fault::Wait(_) | Fault::TakesLong => Self::Unfit("it takes too long".to_owned()),
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

    /// All that was taken is where it belongs, and stays there.
    fn finish(&mut self) -> Result<(), TransferError>;
}

/// Keys between two looks at whether to go on.
const KEYS_PER_LOOK: u64 = 256;

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
        Some(Record::Function(_)) => all.functions += 1,
        Some(Record::ModuleAux) => all.modules += 1,
        Some(Record::Key(head)) if head.kind == ValueKind::Module => all.modules += 1,
        Some(Record::Key(head)) if head.expires_ms != 0 && head.expires_ms <= now_ms => {
            all.ended += 1;
        }
        Some(Record::Key(head)) => match target.value(&head, &mut || dump.item()) {
            Ok(()) => all.keys += 1,
            Err(Refusal::Failed(error)) => return Err(error),
            Err(Refusal::Unfit(why)) => {
                let what = format!("the key \"{}\": {why}", head.key.escape_ascii());
                if !is_lenient {
                    let at = dump.offset();
                    return Err(TransferError::Failed(format!("offset {at} of the dump, {what}")));
                }
                all.unfit += 1;
                all.first_unfit.get_or_insert(what);
            }
        },
    }
    Ok(true)
}
