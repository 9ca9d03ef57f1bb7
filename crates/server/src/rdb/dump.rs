//! A whole dump: keys with their values, and what stands between them.

use std::io::Read;

use super::{
    error::RdbError,
    format::*,
    items::{Item, Items, ValueKind, pass_module_parts},
    source::Source,
};

/// What stands before a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyHead {
    pub(crate) key: Vec<u8>,
    pub(crate) kind: ValueKind,
    /// When it ends in milliseconds since 1970; 0 if it does not.
    pub(crate) expires_ms: u64,
}

/// What comes next in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// What the writer tells of itself: a name and a value.
    Aux(Vec<u8>, Vec<u8>),
    /// The keys that follow are of this database.
    Database(u64),
    /// About how many keys the database has.
    Resize(u64),
    /// The code of a library of functions.
    Function(Vec<u8>),
    /// A module's data that belong to no key; they are passed over.
    ModuleAux,
    /// A key, whose value's items come next.
    Key(KeyHead),
}

/// A dump that is read from its beginning to its end.
pub(crate) struct Dump<R> {
    source: Source<R>,
    version: u16,
    items: Option<Items>,
    is_over: bool,
}

impl<R: Read> Dump<R> {
    /// Reads the beginning.
    ///
    /// # Errors
    ///
    /// If this is no dump, or of a version that is not read.
    pub(crate) fn open(reader: R) -> Result<Self, RdbError> {
        let mut source = Source::new(reader, true);
        let head = source.array::<9>()?;
        let digits = std::str::from_utf8(&head[5..]).ok();
        let version = digits.and_then(|digits| digits.parse::<u16>().ok());
        let Some(version) = version.filter(|_| head.starts_with(MAGIC)) else {
            return Err(RdbError::Damaged { offset: 0, what: "this is no dump of Redis".into() });
        };
        if !(1..=VERSION_READ_MAX).contains(&version) {
            let what =
                format!("a dump of version {version}: versions 1 to {VERSION_READ_MAX} are read");
            return Err(RdbError::Unsupported { offset: 5, what });
        }
        Ok(Self { source, version, items: None, is_over: false })
    }

    /// Where the next byte is.
    pub(crate) fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// The next item of the value of the key that came last; none after the last.
    ///
    /// # Errors
    ///
    /// If the bytes do not come, or are damaged.
    pub(crate) fn item(&mut self) -> Result<Option<Item>, RdbError> {
        let Some(items) = &mut self.items else { return Ok(None) };
        let item = items.next(&mut self.source)?;
        if item.is_none() {
            self.items = None;
        }
        Ok(item)
    }

    /// What comes next; none after the end, whose checksum is right. Passes over what is left of
    /// the value before it.
    ///
    /// # Errors
    ///
    /// If the bytes do not come, or are damaged.
    pub(crate) fn next(&mut self) -> Result<Option<Record>, RdbError> {
        while self.item()?.is_some() {}
        let mut expires_ms = 0;
        while !self.is_over {
            let source = &mut self.source;
            match source.byte()? {
                OP_END => self.end()?,
                OP_EXPIRE_MS => expires_ms = time(source.u64_le()?),
                OP_EXPIRE_S => {
                    let seconds = i32::from_le_bytes(source.array()?);
                    expires_ms = time(u64::try_from(seconds).unwrap_or(0) * 1000);
                }
                OP_IDLE => _ = source.length()?,
                OP_FREQ => _ = source.byte()?,
                OP_SLOT_INFO => {
                    for _ in 0..3 {
                        source.length()?;
                    }
                }
                OP_DATABASE => return Ok(Some(Record::Database(source.length()?))),
                OP_RESIZE => {
                    let keys = source.length()?;
                    source.length()?;
                    return Ok(Some(Record::Resize(keys)));
                }
                OP_AUX => return Ok(Some(Record::Aux(source.string()?, source.string()?))),
                OP_FUNCTION_2 => return Ok(Some(Record::Function(source.string()?))),
                OP_MODULE_AUX => {
                    // Its number, and when it is read, as a part of it.
                    source.length()?;
                    source.length()?;
                    source.length()?;
                    pass_module_parts(source)?;
                    return Ok(Some(Record::ModuleAux));
                }
                type_byte => {
                    let key = source.string()?;
                    let items = Items::begin(type_byte, source)?;
                    let kind = items.kind;
                    self.items = Some(items);
                    return Ok(Some(Record::Key(KeyHead { key, kind, expires_ms })));
                }
            }
        }
        Ok(None)
    }

    fn end(&mut self) -> Result<(), RdbError> {
        self.is_over = true;
        if self.version < VERSION_CHECKSUM {
            return Ok(());
        }
        let (found, at) = (self.source.checksum(), self.source.offset());
        let expected = self.source.u64_le()?;
        if expected != 0 && expected != found {
            let what = format!("the checksum is {found:016x}, and the dump says {expected:016x}");
            return Err(RdbError::Damaged { offset: at, what: what.into() });
        }
        Ok(())
    }
}

/// A time that was written; 0 stands for none here, and what ended then has ended all the same.
fn time(ms: u64) -> u64 {
    // A time before 1970 is a negative number.
    if i64::try_from(ms).is_ok() { ms.max(1) } else { 1 }
}
