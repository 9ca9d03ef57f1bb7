//! Reads entries out of files: one reader for each format, all behind [`Records`].
//!
//! Readers stream: they hold one record at a time. They never touch the store. What a format cannot
//! say exactly is [`Wrong`] and never guessed: bytes stay bytes, and nothing is replaced or left
//! out.

mod delimited;
pub(crate) mod dump;
mod json;
mod json_lines;
mod line_reader;
mod lines;
mod numbers;
mod sniff;
mod wrong;

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    rc::Rc,
};

pub(crate) use self::wrong::{Kind, Wrong};
use self::{delimited::Dialect, line_reader::LineReader};
use crate::{
    failure::{Failure, Outcome},
    keys::{Form, KeyFlags},
};

/// Bytes read from a file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The longest key, in bytes: what the engine takes.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, in bytes: what the engine takes.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// What the standard input is called in messages.
const STDIN_NAME: &str = "standard input";

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// The entries of one input, in its order.
pub(crate) trait Records {
    /// The next entry; none at the end.
    ///
    /// # Errors
    /// What is wrong with the next record. The one after it comes next, unless the error is final.
    fn next(&mut self) -> Result<Option<Entry>, Wrong>;

    /// Lines read so far; for numbers, those.
    fn line(&self) -> u64;
}

/// How an input is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A key a line; the value is the number of the line
    Lines,
    /// Comma-separated values, RFC 4180
    Csv,
    /// Tab-separated values with escapes: \t \n \r \\ \xNN
    Tsv,
    /// A JSON object a line
    Jsonl,
    /// What `dump` and `scan --json` write
    Dump,
    /// 64-bit integers as in the SOSD benchmark: a little-endian count, then that many numbers
    U64,
}

impl Format {
    /// What the name of a file says of its format, if anything.
    pub(crate) fn guess(path: &Path) -> Option<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        Some(match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv") => Self::Csv,
            Some("tsv" | "tab") => Self::Tsv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("u64" | "sosd") => Self::U64,
            Some("txt") => Self::Lines,
            _ if name.ends_with("uint64") => Self::U64,
            _ => return None,
        })
    }
}

/// Which parts of a record are its key and its value, and how they are written.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    /// Columns of CSV and TSV, or fields of JSON lines; none for the format's own choice.
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
    /// True if the first line of CSV and TSV names the columns.
    pub(crate) has_header: bool,
    /// What separates the columns of CSV; none for a comma.
    pub(crate) delimiter: Option<u8>,
    /// True if a quote in CSV encloses a field; otherwise it is a byte like others.
    pub(crate) has_quotes: bool,
    /// True if an empty line or field is a key.
    pub(crate) takes_empty_keys: bool,
    /// True if bytes that do not look like text are taken as they are.
    pub(crate) is_as_it_is: bool,
    pub(crate) key_form: Form,
    pub(crate) value_form: Form,
}

impl Fields {
    /// Fields of a file of keys alone, which may be any.
    pub(crate) fn keys(flags: KeyFlags) -> Self {
        Self {
            key: None,
            value: None,
            has_header: true,
            delimiter: None,
            has_quotes: true,
            takes_empty_keys: true,
            is_as_it_is: false,
            key_form: flags.key_form(),
            value_form: flags.value_form(),
        }
    }

    fn csv(&self) -> Dialect {
        let delimiter = self.delimiter.unwrap_or(b',');
        if self.has_quotes { Dialect::Quoted { delimiter } } else { Dialect::Plain { delimiter } }
    }
}

/// The bytes that `text` stands for in `form`.
fn parse(form: Form, text: &[u8]) -> Result<Vec<u8>, Wrong> {
    form.parse(text).map_err(|what| Wrong::new(Kind::Form, what))
}

/// Refuses text with a NUL byte, which nearly always is no text.
fn refuse_nul(text: &[u8]) -> Result<(), Wrong> {
    match text.iter().position(|byte| *byte == 0) {
        None => Ok(()),
        Some(place) => {
            let what = format!("byte {} is NUL, so this is no text: --as-is takes it", place + 1);
            Err(Wrong::new(Kind::Nul, what))
        }
    }
}

/// An input that is open, with its name and how much of it was read.
pub(crate) struct Input {
    name: String,
    records: Box<dyn Records>,
    read_bytes: Rc<Cell<u64>>,
    takes_empty_keys: bool,
    is_stdin: bool,
}

impl Input {
    /// Opens `path`, or the standard input if it is `-`. Without a format, the name and then the
    /// beginning say what it is.
    ///
    /// # Errors
    /// If the file cannot be read or its beginning is not of its format.
    pub(crate) fn open(path: &Path, format: Option<Format>, fields: &Fields) -> Outcome<Self> {
        let read_bytes = Rc::new(Cell::new(0));
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { STDIN_NAME.into() } else { path.display().to_string() };
        let failed = |wrong: Wrong| Failure::failed(format!("{name}: {wrong}"));
        let mut length = None;
        let source: Box<dyn Read> = if is_stdin {
            Box::new(io::stdin())
        } else {
            let file = File::open(path)
                .map_err(|e| Failure::failed(format!("cannot open {name}: {e}")))?;
            length = file.metadata().ok().filter(|of| of.is_file()).map(|of| of.len());
            Box::new(file)
        };
        let mut source = Counted { source, bytes: Rc::clone(&read_bytes) };
        let mut head = Vec::with_capacity(sniff::HEAD_BYTES);
        let read = source.by_ref().take(sniff::HEAD_BYTES as u64).read_to_end(&mut head);
        read.map_err(|error| failed(Wrong::input(error)))?;
        let guessed = Format::guess(path);
        let resolved = resolve_format(format, guessed, fields, &head, &name).map_err(failed)?;
        let is_text = resolved != Format::U64;
        let mark = head.starts_with(sniff::UTF8_MARK) && is_text && !fields.is_as_it_is;
        head.drain(..if mark { sniff::UTF8_MARK.len() } else { 0 });
        let whole = io::Cursor::new(head).chain(source);
        let reader = BufReader::with_capacity(BUFFER_BYTES, whole);
        let records = open_records(reader, resolved, fields, length).map_err(failed)?;
        // A dump says what it means.
        let takes_empty_keys = fields.takes_empty_keys || resolved == Format::Dump;
        Ok(Self { name, records, read_bytes, takes_empty_keys, is_stdin })
    }

    /// The next entry; none at the end.
    ///
    /// # Errors
    /// What is wrong with the next record, with its line.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Wrong> {
        next_checked(&mut *self.records, self.takes_empty_keys)
    }

    /// What the input is called in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What names the input on the command line.
    pub(crate) fn argument(&self) -> String {
        if self.is_stdin { "-".to_owned() } else { self.name.clone() }
    }

    /// Lines read so far; for numbers, those.
    pub(crate) fn line(&self) -> u64 {
        self.records.line()
    }

    /// Bytes read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.get()
    }
}

/// The next entry, if the engine can take it.
fn next_checked(records: &mut dyn Records, takes_empty_keys: bool) -> Result<Option<Entry>, Wrong> {
    let start = records.line() + 1;
    let entry = match records.next() {
        Ok(Some(entry)) => entry,
        Ok(None) => return Ok(None),
        Err(wrong) if wrong.kind == Kind::Input => return Err(wrong),
        Err(wrong) => return Err(wrong.at(records.line().max(start))),
    };
    let too_long = |what: &str, bytes: usize, max: usize| {
        Wrong::new(Kind::Length, format!("a {what} of {bytes} bytes, and {max} are the most"))
    };
    let wrong = if entry.key.is_empty() && !takes_empty_keys {
        let what = "the key is empty: --empty-keys loads it, --lenient skips it";
        Wrong::new(Kind::EmptyKey, what)
    } else if entry.key.len() > KEY_BYTES_MAX {
        too_long("key", entry.key.len(), KEY_BYTES_MAX)
    } else if entry.value.len() > VALUE_BYTES_MAX {
        too_long("value", entry.value.len(), VALUE_BYTES_MAX)
    } else {
        return Ok(Some(entry));
    };
    Err(wrong.at(start))
}

/// The format of an input that starts with `head`: the one that is asked for, the one that its name
/// says, or what it looks like.
fn resolve_format(
    format: Option<Format>,
    guessed: Option<Format>,
    fields: &Fields,
    head: &[u8],
    name: &str,
) -> Result<Format, Wrong> {
    let named = format.or(guessed);
    if !fields.is_as_it_is {
        sniff::refuse_other(head, name, named != Some(Format::U64))?;
    }
    let is_open = format.is_none() && fields.key.is_none() && fields.value.is_none();
    if is_open && matches!(guessed, None | Some(Format::Jsonl)) && dump::is_dump(head) {
        return Ok(Format::Dump);
    }
    if let Some(named) = named {
        return Ok(named);
    }
    if fields.delimiter.is_some() {
        return Ok(Format::Csv);
    }
    if head.trim_ascii_start().starts_with(b"{") || head.trim_ascii_start().starts_with(b"[") {
        let what = "looks like JSON: say --format jsonl if each line is an object, --format dump \
                    for the output of `rhumb dump`, --format lines if each line is a key";
        return Err(Wrong::input(what));
    }
    Ok(Format::Lines)
}

fn open_records(
    reader: impl BufRead + 'static,
    format: Format,
    fields: &Fields,
    length: Option<u64>,
) -> Result<Box<dyn Records>, Wrong> {
    use delimited::Delimited;

    Ok(match format {
        Format::Lines => Box::new(lines::Lines::new(reader, fields)),
        Format::Csv => Box::new(Delimited::new(reader, fields.csv(), fields)?),
        Format::Tsv => Box::new(Delimited::new(reader, Dialect::Escaped, fields)?),
        Format::Jsonl => Box::new(json_lines::JsonLines::new(reader, fields)),
        Format::Dump => Box::new(dump::Dump::new(reader, fields)),
        Format::U64 => Box::new(numbers::Numbers::new(reader, length)?),
    })
}

/// The bytes of all `paths`, if every one is a file.
pub(crate) fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    let lengths = paths.iter().map(|path| {
        let metadata = path.metadata().ok()?;
        metadata.is_file().then_some(metadata.len())
    });
    lengths.sum()
}

/// Counts what is read.
struct Counted<R> {
    source: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buf)?;
        self.bytes.set(self.bytes.get() + n as u64);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Fields as a command line without options gives them.
    pub(super) fn default_fields() -> Fields {
        Fields { takes_empty_keys: false, ..Fields::keys(KeyFlags::default()) }
    }

    /// Everything that `text` holds, as text, or the first error.
    pub(super) fn read_all(
        text: &[u8],
        format: Format,
        fields: &Fields,
    ) -> Result<Vec<(String, String)>, String> {
        let reader = Cursor::new(text.to_vec());
        let records = open_records(reader, format, fields, None);
        let mut records = records.map_err(|wrong| wrong.to_string())?;
        let takes_empty_keys = fields.takes_empty_keys || format == Format::Dump;
        let mut all = Vec::new();
        while let Some(entry) =
            next_checked(&mut *records, takes_empty_keys).map_err(|wrong| wrong.to_string())?
        {
            all.push((Form::Text.show(&entry.key), Form::Text.show(&entry.value)));
        }
        Ok(all)
    }

    #[test]
    fn formats_are_guessed_by_name() {
        for (name, format) in [
            ("a/names.txt", Some(Format::Lines)),
            ("names", None),
            ("-", None),
            ("x.CSV", Some(Format::Csv)),
            ("x.tsv", Some(Format::Tsv)),
            ("x.ndjson", Some(Format::Jsonl)),
            ("x.dump", None),
            ("ip.u64", Some(Format::U64)),
            ("books_200M_uint64", Some(Format::U64)),
        ] {
            assert_eq!(Format::guess(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn formats_are_guessed_by_content_where_the_name_says_nothing() {
        let resolved = |format, guessed, head: &str| {
            resolve_format(format, guessed, &default_fields(), head.as_bytes(), "x").ok()
        };
        let entry = "{\"key\":\"a\",\"value\":\"b\"}\n";
        assert_eq!(resolved(None, None, entry), Some(Format::Dump));
        assert_eq!(resolved(None, Some(Format::Jsonl), entry), Some(Format::Dump));
        assert_eq!(resolved(Some(Format::Jsonl), None, entry), Some(Format::Jsonl));
        assert_eq!(resolved(None, Some(Format::Lines), entry), Some(Format::Lines));
        assert_eq!(resolved(None, None, "{\"id\":1}\n"), None);
        assert_eq!(resolved(None, None, "[\n"), None);
        assert_eq!(resolved(None, None, "name\n"), Some(Format::Lines));
    }

    #[test]
    fn what_was_read_is_counted() {
        let bytes = Rc::new(Cell::new(0));
        let mut counted = Counted { source: &b"abcde"[..], bytes: Rc::clone(&bytes) };
        counted.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(bytes.get(), 3);
    }

    #[test]
    fn what_the_engine_cannot_take_is_named_with_its_line() {
        let fields = Fields { key: Some("1".into()), value: Some("2".into()), ..default_fields() };
        let long = format!("k,v\na,1\n{},2\n", "x".repeat(KEY_BYTES_MAX + 1));
        let wrong = read_all(long.as_bytes(), Format::Csv, &fields).unwrap_err();
        assert_eq!(wrong, "line 3: a key of 65537 bytes, and 65536 are the most");
    }
}
