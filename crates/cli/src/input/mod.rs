//! Reads entries out of files: one reader for each format, all behind [`Records`].
//!
//! Readers stream: they hold one record at a time. They never touch the store. An error names the
//! file and the place in it.

mod delimited;
mod json_lines;
mod lines;
mod numbers;

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    rc::Rc,
};

use crate::{
    failure::{Failure, Outcome},
    keys::{Form, KeyFlags},
};

/// Bytes read from a file at once.
const BUFFER_BYTES: usize = 256 << 10;

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
    /// What is wrong and where in the input: "line 12: …".
    fn next(&mut self) -> Result<Option<Entry>, String>;
}

/// How an input is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A key a line; the value is the number of the line
    Lines,
    /// Comma-separated values
    Csv,
    /// Tab-separated values
    Tsv,
    /// A JSON object a line
    Jsonl,
    /// 64-bit integers as in the SOSD benchmark: a little-endian count, then that many numbers
    U64,
}

impl Format {
    /// What the name of a file says of its format; lines if it says nothing.
    pub(crate) fn guess(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("csv") => Self::Csv,
            Some("tsv" | "tab") => Self::Tsv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("u64" | "sosd") => Self::U64,
            _ if name.ends_with("uint64") => Self::U64,
            _ => Self::Lines,
        }
    }
}

/// Which parts of a record are its key and its value, and how they are written.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    /// Columns of CSV and TSV, or fields of JSON lines; none for the format's own choice.
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
    /// Whether the first line of CSV and TSV names the columns.
    pub(crate) has_header: bool,
    pub(crate) key_form: Form,
    pub(crate) value_form: Form,
}

impl Fields {
    /// Fields of a file of keys alone.
    pub(crate) fn keys(flags: KeyFlags) -> Self {
        Self {
            key: None,
            value: None,
            has_header: true,
            key_form: flags.key_form(),
            value_form: flags.value_form(),
        }
    }
}

/// An input that is open, with its name and how much of it was read.
pub(crate) struct Input {
    name: String,
    records: Box<dyn Records>,
    read_bytes: Rc<Cell<u64>>,
}

impl Input {
    /// Opens `path`, or the standard input if it is `-`.
    ///
    /// # Errors
    /// If the file cannot be read or its beginning is not of its format.
    pub(crate) fn open(path: &Path, format: Option<Format>, fields: &Fields) -> Outcome<Self> {
        let read_bytes = Rc::new(Cell::new(0));
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".into() } else { path.display().to_string() };
        let source: Box<dyn Read> = if is_stdin {
            Box::new(io::stdin())
        } else {
            Box::new(
                File::open(path)
                    .map_err(|e| Failure::failed(format!("cannot open {name}: {e}")))?,
            )
        };
        let counted = Counted { source, bytes: Rc::clone(&read_bytes) };
        let reader = BufReader::with_capacity(BUFFER_BYTES, counted);
        let format = format.unwrap_or_else(|| Format::guess(path));
        let records = open_records(reader, format, fields)
            .map_err(|wrong| Failure::failed(format!("{name}: {wrong}")))?;
        Ok(Self { name, records, read_bytes })
    }

    /// The next entry; none at the end.
    pub(crate) fn next(&mut self) -> Outcome<Option<Entry>> {
        self.records.next().map_err(|wrong| Failure::failed(format!("{}: {wrong}", self.name)))
    }

    /// Bytes read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.get()
    }
}

fn open_records(
    reader: impl BufRead + 'static,
    format: Format,
    fields: &Fields,
) -> Result<Box<dyn Records>, String> {
    Ok(match format {
        Format::Lines => Box::new(lines::Lines::new(reader, fields)),
        Format::Csv => Box::new(delimited::Delimited::new(reader, b',', fields)?),
        Format::Tsv => Box::new(delimited::Delimited::new(reader, b'\t', fields)?),
        Format::Jsonl => Box::new(json_lines::JsonLines::new(reader, fields)),
        Format::U64 => Box::new(numbers::Numbers::new(reader)?),
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

/// Reads lines of a bounded length.
struct LineReader<R> {
    reader: R,
    line: Vec<u8>,
    bytes_max: u64,
    /// Of the line read last, from 1.
    number: u64,
}

impl<R: BufRead> LineReader<R> {
    fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader, line: Vec::new(), bytes_max: bytes_max as u64, number: 0 }
    }

    /// The next line that is not empty, without its end; none at the end of the input.
    fn next(&mut self) -> Result<Option<&[u8]>, String> {
        loop {
            self.line.clear();
            self.number += 1;
            // Two bytes more than a line may have: its end.
            let mut bounded = self.reader.by_ref().take(self.bytes_max + 2);
            let n = bounded.read_until(b'\n', &mut self.line).map_err(|e| self.wrong(e))?;
            if n == 0 {
                return Ok(None);
            }
            if self.line.ends_with(b"\n") {
                self.line.pop();
                if self.line.ends_with(b"\r") {
                    self.line.pop();
                }
            }
            if self.line.len() as u64 > self.bytes_max {
                return Err(self.wrong(format!("is longer than {} bytes", self.bytes_max)));
            }
            if !self.line.is_empty() {
                return Ok(Some(&self.line));
            }
        }
    }

    /// `what`, with the line it is about.
    fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("line {}: {what}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Fields as a command line without options gives them.
    pub(super) fn default_fields() -> Fields {
        Fields {
            key: None,
            value: None,
            has_header: true,
            key_form: Form::Text,
            value_form: Form::Text,
        }
    }

    /// Everything that `text` holds, as text, or the first error.
    pub(super) fn read_all(
        text: &[u8],
        format: Format,
        fields: &Fields,
    ) -> Result<Vec<(String, String)>, String> {
        let mut records = open_records(Cursor::new(text.to_vec()), format, fields)?;
        let mut all = Vec::new();
        while let Some(entry) = records.next()? {
            all.push((Form::Text.show(&entry.key), Form::Text.show(&entry.value)));
        }
        Ok(all)
    }

    #[test]
    fn formats_are_guessed_by_name() {
        for (name, format) in [
            ("a/names.txt", Format::Lines),
            ("names", Format::Lines),
            ("-", Format::Lines),
            ("x.CSV", Format::Csv),
            ("x.tsv", Format::Tsv),
            ("x.ndjson", Format::Jsonl),
            ("ip.u64", Format::U64),
            ("books_200M_uint64", Format::U64),
        ] {
            assert_eq!(Format::guess(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn lines_are_bounded() {
        let mut reader = LineReader::new(Cursor::new(b"1234\r\n12345\n".to_vec()), 4);
        assert_eq!(reader.next(), Ok(Some(&b"1234"[..])));
        assert_eq!(reader.next(), Err("line 2: is longer than 4 bytes".into()));
    }

    #[test]
    fn what_was_read_is_counted() {
        let bytes = Rc::new(Cell::new(0));
        let mut counted = Counted { source: &b"abcde"[..], bytes: Rc::clone(&bytes) };
        counted.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(bytes.get(), 3);
    }
}
