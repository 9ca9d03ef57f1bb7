//! CSV and TSV: one column is the key, another or the rest of the record is the value.
//!
//! CSV is RFC 4180, taken strictly: what could be read in two ways is an error. A field that holds
//! the delimiter, a quote or the end of a line is quoted, and its quotes are doubled. TSV has no
//! quotes: a backslash starts an escape, as [`Form::write`] writes it.

use std::io::BufRead;

use super::{
    Entry, Fields, KEY_BYTES_MAX, LineReader, Records, VALUE_BYTES_MAX, Wrong, parse, refuse_nul,
    wrong::Kind,
};
use crate::keys::{Form, shown, unescape};

/// The longest line: a key and a value.
const LINE_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX;

/// How fields are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Fields between delimiters, which may be quoted.
    Quoted { delimiter: u8 },
    /// Fields between delimiters, in which a quote is a byte like any other.
    Plain { delimiter: u8 },
    /// Fields between tabs, with escapes.
    Escaped,
}

/// See the module.
pub(super) struct Delimited<R> {
    rows: Rows<R>,
    /// Names of the columns; empty without a header.
    header: Vec<Vec<u8>>,
    /// Columns that each row must have; none before the first.
    width: Option<usize>,
    key_column: usize,
    /// None for an object (or, without a header, a list) of all the other columns.
    value_column: Option<usize>,
    key_form: Form,
    value_form: Form,
}

impl<R: BufRead> Delimited<R> {
    /// # Errors
    /// If the header cannot be read, lacks a column that `fields` names or has it twice.
    pub(super) fn new(source: R, dialect: Dialect, fields: &Fields) -> Result<Self, Wrong> {
        let mut rows = Rows::new(source, dialect, fields.is_as_it_is);
        let mut header = Vec::new();
        if fields.has_header && rows.next().map_err(|wrong| wrong.at(1).ending())? {
            header = rows.row.iter().map(<[u8]>::to_vec).collect();
        }
        let column = |name: &String| find_column(&header, name);
        let key_column = fields.key.as_ref().map(column).transpose()?.unwrap_or(0);
        let value_column = fields.value.as_ref().map(column).transpose()?;
        if value_column.is_none() {
            require_names(&header)?;
        }
        Ok(Self {
            rows,
            width: (!header.is_empty()).then_some(header.len()),
            header,
            key_column,
            value_column,
            key_form: fields.key_form,
            value_form: fields.value_form,
        })
    }

    fn entry(&self) -> Result<Entry, Wrong> {
        let key = parse(self.key_form, self.column(self.key_column)?)?;
        let value = match self.value_column {
            Some(column) => parse(self.value_form, self.column(column)?)?,
            None => self.rest()?,
        };
        Ok(Entry { key, value })
    }

    fn column(&self, index: usize) -> Result<&[u8], Wrong> {
        self.rows.row.get(index).ok_or_else(|| {
            let len = self.rows.row.len();
            let what = format!("has {len} columns, and column {} is asked for", index + 1);
            Wrong::new(Kind::Width, what)
        })
    }

    /// All columns but the key's, as JSON.
    fn rest(&self) -> Result<Vec<u8>, Wrong> {
        let is_list = self.header.is_empty();
        let mut json = vec![if is_list { b'[' } else { b'{' }];
        for (index, bytes) in self.rows.row.iter().enumerate() {
            if index == self.key_column {
                continue;
            }
            let text = std::str::from_utf8(bytes).map_err(|_| {
                let what = format!(
                    "column {} is not UTF-8, and a value of several columns is JSON: choose one \
                     with --value-column, whose bytes are taken as they are",
                    index + 1
                );
                Wrong::new(Kind::Encoding, what)
            })?;
            if json.len() > 1 {
                json.push(b',');
            }
            if !is_list {
                push_json(&mut json, &String::from_utf8_lossy(&self.header[index]));
                json.push(b':');
            }
            push_json(&mut json, text);
        }
        json.push(if is_list { b']' } else { b'}' });
        Ok(json)
    }

    fn check_width(&mut self) -> Result<(), Wrong> {
        let (len, width) = (self.rows.row.len(), *self.width.get_or_insert(self.rows.row.len()));
        if len == width {
            return Ok(());
        }
        let what = if self.rows.row.is_blank() {
            format!("is empty, and {width} columns are expected")
        } else {
            format!("has {len} columns, and {width} are expected")
        };
        Err(Wrong::new(Kind::Width, what))
    }
}

impl<R: BufRead> Records for Delimited<R> {
    fn next(&mut self) -> Result<Option<Entry>, Wrong> {
        if !self.rows.next()? {
            return Ok(None);
        }
        let line = self.rows.first_line;
        let entry = self.check_width().and_then(|()| self.entry());
        entry.map(Some).map_err(|wrong| wrong.at(line))
    }

    fn line(&self) -> u64 {
        self.rows.lines.number
    }
}

fn push_json(json: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(json, text).expect("writing to memory does not fail");
}

/// The index of a column by its name or, if no column has that name, by its number from 1.
fn find_column(header: &[Vec<u8>], name: &str) -> Result<usize, Wrong> {
    let mut named = header.iter().enumerate().filter(|(_, column)| *column == name.as_bytes());
    match (named.next(), named.next()) {
        (Some((index, _)), None) => return Ok(index),
        (Some((first, _)), Some((second, _))) => {
            let (first, second) = (first + 1, second + 1);
            let what = format!("columns {first} and {second} are both called {name:?}: choose one");
            return Err(Wrong::input(format!("{what} by its number")));
        }
        _ => {}
    }
    match name.parse::<usize>() {
        Ok(number) if number > 0 && (header.is_empty() || number <= header.len()) => Ok(number - 1),
        _ if header.is_empty() => {
            Err(Wrong::input(format!("column {name:?} must be a number from 1")))
        }
        _ => {
            let names: Vec<_> = header.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let names = names.join(", ");
            Err(Wrong::input(format!("there is no column {name:?}; there are: {names}")))
        }
    }
}

/// Refuses a header whose names cannot be those of an object's fields.
fn require_names(header: &[Vec<u8>]) -> Result<(), Wrong> {
    let instead = "choose one with --value-column, or say --no-header";
    let mut seen = std::collections::HashMap::new();
    for (index, name) in header.iter().enumerate() {
        if std::str::from_utf8(name).is_err() {
            let what = format!("the name of column {} is not UTF-8: {instead}", index + 1);
            return Err(Wrong::new(Kind::Encoding, what).at(1).ending());
        }
        if let Some(first) = seen.insert(name, index) {
            let (first, second, name) = (first + 1, index + 1, shown(name));
            let what = format!("columns {first} and {second} are both called {name:?}: {instead}");
            return Err(Wrong::input(what).at(1));
        }
    }
    Ok(())
}

/// The fields of a row, one after the other.
#[derive(Default)]
struct Row {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Row {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn end_field(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true for the row of a line without anything on it.
    fn is_blank(&self) -> bool {
        self.len() == 1 && self.bytes.is_empty()
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? };
        self.bytes.get(start..*self.ends.get(index)?)
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

/// Where in a row the reader is.
#[derive(Clone, Copy)]
enum State {
    FieldStarts,
    InField,
    InQuotes,
    /// After a quote within quotes: it ends the field, or a second one follows.
    AfterQuote,
}

/// Reads rows.
struct Rows<R> {
    lines: LineReader<R>,
    dialect: Dialect,
    takes_nul: bool,
    row: Row,
    /// Line on which the row starts, from 1.
    first_line: u64,
}

impl<R: BufRead> Rows<R> {
    fn new(source: R, dialect: Dialect, takes_nul: bool) -> Self {
        let lines = LineReader::new(source, LINE_BYTES_MAX);
        Self { lines, dialect, takes_nul, row: Row::default(), first_line: 1 }
    }

    /// Reads the next row into `row`; returns false at the end.
    fn next(&mut self) -> Result<bool, Wrong> {
        self.row.clear();
        self.first_line = self.lines.number + 1;
        let read = match self.dialect {
            Dialect::Quoted { delimiter } => self.next_quoted(delimiter),
            Dialect::Plain { delimiter } => self.next_split(delimiter, false),
            Dialect::Escaped => self.next_split(b'\t', true),
        };
        let line = self.first_line;
        read.map_err(|wrong| wrong.at(line))
    }

    fn next_split(&mut self, delimiter: u8, is_escaped: bool) -> Result<bool, Wrong> {
        let Some(line) = self.lines.next()? else { return Ok(false) };
        if !self.takes_nul {
            refuse_nul(line)?;
        }
        for field in line.split(|byte| *byte == delimiter) {
            if field.contains(&b'\r') {
                return Err(bare_return());
            }
            if is_escaped {
                let unescaped = unescape(field, &mut self.row.bytes);
                unescaped.map_err(|what| Wrong::new(Kind::Escape, what))?;
            } else {
                self.row.bytes.extend_from_slice(field);
            }
            self.row.end_field();
        }
        Ok(true)
    }

    fn next_quoted(&mut self, delimiter: u8) -> Result<bool, Wrong> {
        let mut state = State::FieldStarts;
        let mut is_first = true;
        loop {
            let Some(line) = self.lines.next_whole()? else {
                if is_first {
                    return Ok(false);
                }
                let what = "a quote is opened and never closed: everything after it is inside it";
                return Err(Wrong::new(Kind::Quote, what).ending());
            };
            is_first = false;
            if !self.takes_nul {
                refuse_nul(line)?;
            }
            state = quoted_line(line, delimiter, state, &mut self.row)?;
            if !matches!(state, State::InQuotes) {
                self.row.end_field();
                return Ok(true);
            }
            if self.row.bytes.len() > LINE_BYTES_MAX {
                let what = format!("is longer than {LINE_BYTES_MAX} bytes: a quote is not closed");
                return Err(Wrong::new(Kind::Length, what).ending());
            }
        }
    }
}

/// Adds the fields of a line to `row`, all but the end of the last.
fn quoted_line(
    line: &[u8],
    delimiter: u8,
    mut state: State,
    row: &mut Row,
) -> Result<State, Wrong> {
    for (place, &byte) in line.iter().enumerate() {
        let ends_line = byte == b'\n' || (byte == b'\r' && line[place + 1..] == *b"\n");
        state = match (state, byte) {
            (State::InQuotes, b'"') => State::AfterQuote,
            (State::AfterQuote, b'"') | (State::InQuotes, _) => {
                row.bytes.push(byte);
                State::InQuotes
            }
            (State::FieldStarts, b'"') => State::InQuotes,
            (State::InField, b'"') => {
                let what = "a quote within a field that does not start with one: quote the whole \
                            field and double the quote, or say --no-quotes";
                return Err(Wrong::new(Kind::Quote, what));
            }
            (state, _) if ends_line => return Ok(state),
            (_, byte) if byte == delimiter => {
                row.end_field();
                State::FieldStarts
            }
            (State::AfterQuote, _) => {
                let what = "a field goes on after its closing quote: double the quotes within it";
                return Err(Wrong::new(Kind::Quote, what));
            }
            (State::FieldStarts | State::InField, b'\r') => return Err(bare_return()),
            (State::FieldStarts | State::InField, _) => {
                row.bytes.push(byte);
                State::InField
            }
        };
    }
    Ok(state)
}

fn bare_return() -> Wrong {
    let what = "a carriage return within a line: lines end with a line feed, with or without a \
                carriage return before it";
    Wrong::new(Kind::Escape, what)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Format,
            tests::{default_fields, read_all},
        },
        *,
    };

    const TABLE: &[u8] = b"name,id,note\n\"a,1\",7,\"x \"\"y\"\"\"\nb,8,\n";

    fn fields(key: &str, value: Option<&str>) -> Fields {
        Fields { key: Some(key.to_owned()), value: value.map(str::to_owned), ..default_fields() }
    }

    fn read(text: &[u8], fields: &Fields) -> Result<Vec<(String, String)>, String> {
        read_all(text, Format::Csv, fields)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn columns_are_chosen_by_name_or_number() {
        let expected = Ok(vec![pair("7", "a,1"), pair("8", "b")]);
        assert_eq!(read(TABLE, &fields("id", Some("name"))), expected);
        assert_eq!(read(TABLE, &fields("2", Some("1"))), expected);
        let wrong = read(TABLE, &fields("none", None)).unwrap_err();
        assert!(wrong.contains("there are: name, id, note"), "{wrong}");
        let wrong = read(b"a,b,a\n1,2,3\n", &fields("a", Some("b"))).unwrap_err();
        assert!(wrong.starts_with("columns 1 and 3 are both called"), "{wrong}");
    }

    #[test]
    fn the_value_is_the_rest_of_the_record() {
        let all = read(TABLE, &default_fields()).unwrap();
        assert_eq!(all[0].0, "a,1");
        assert_eq!(all[1].1, r#"{"id":"8","note":""}"#);
        let wrong = read(b"k,a,a\n1,2,3\n", &default_fields()).unwrap_err();
        assert!(wrong.starts_with("line 1: columns 2 and 3 are both called \"a\""), "{wrong}");
    }

    #[test]
    fn a_table_without_a_header_has_numbers() {
        let headless = Fields { has_header: false, ..fields("2", None) };
        assert_eq!(read(b"a,b,c\n", &headless), Ok(vec![pair("b", r#"["a","c"]"#)]));
        let named = Fields { has_header: false, ..fields("id", None) };
        assert!(read(b"a,b\n", &named).unwrap_err().contains("a number from 1"));
    }

    #[test]
    fn a_record_of_another_width_is_named() {
        for (text, wrong) in [
            (&b"a,b\n1,2\n3\n"[..], "line 3: has 1 columns, and 2 are expected"),
            (b"a,b\n1,2,3\n", "line 2: has 3 columns, and 2 are expected"),
            (b"a,b\n1,2\n\n3,4\n", "line 3: is empty, and 2 columns are expected"),
        ] {
            assert_eq!(read(text, &fields("a", Some("b"))), Err(wrong.to_owned()));
        }
        let headless = Fields { has_header: false, ..fields("1", Some("2")) };
        let wrong = read(b"1,2\n3,4,5\n", &headless).unwrap_err();
        assert_eq!(wrong, "line 2: has 3 columns, and 2 are expected");
    }

    #[test]
    fn quotes_are_where_they_belong_or_named() {
        let both = fields("a", Some("b"));
        for (text, wrong) in [
            (&b"a,b\n1,2\n\"3,4\n5,6\n"[..], "line 3: a quote is opened and never closed"),
            (b"a,b\n1,x\"y\n", "line 2: a quote within a field"),
            (b"a,b\n1,\"x\"y\n", "line 2: a field goes on after its closing quote"),
            (b"a,b\n\"1\n2\",\"x\ny\"z\n", "line 2: a field goes on after its closing quote"),
            (b"a,b\r1,2\r", "line 1: a carriage return within a line"),
        ] {
            let found = read(text, &both).unwrap_err();
            assert!(found.starts_with(wrong), "{found}");
        }
        let text = b"a,b\r\n\"1\r\n,\"\"\",\"\"\r\n2,\"\"\"\"";
        assert_eq!(read(text, &both), Ok(vec![pair("1\\r\\n,\"", ""), pair("2", "\"")]));
        let plain = Fields { has_quotes: false, ..both };
        assert_eq!(read(b"a,b\n1\",\"x\n", &plain), Ok(vec![pair("1\"", "\"x")]));
    }

    #[test]
    fn bytes_that_are_not_text_stay_themselves() {
        let table = b"k,v\n\xff,caf\xe9\n";
        assert_eq!(read(table, &fields("k", Some("v"))), Ok(vec![pair("\\xff", "caf\\xe9")]));
        let wrong = read(table, &default_fields()).unwrap_err();
        assert!(wrong.starts_with("line 2: column 2 is not UTF-8"), "{wrong}");
        let wrong = read(b"k,caf\xe9\n", &default_fields()).unwrap_err();
        assert!(wrong.starts_with("line 1: the name of column 2 is not UTF-8"), "{wrong}");
        assert_eq!(read(b"k,caf\xe9\n1,2\n", &fields("1", Some("2"))), Ok(vec![pair("1", "2")]));
    }

    #[test]
    fn tabs_separate_too_and_quotes_are_nothing_there() {
        let read = |text: &[u8]| read_all(text, Format::Tsv, &fields("k", Some("v")));
        assert_eq!(read(b"k\tv\na\tb,c\n"), Ok(vec![pair("a", "b,c")]));
        assert_eq!(read(b"k\tv\n\"a\t\"b\n"), Ok(vec![pair("\"a", "\"b")]));
        let escaped = read(b"k\tv\r\na\\tb\\n\tc\\\\d\\xff\\r\r\n");
        assert_eq!(escaped, Ok(vec![pair("a\\tb\\n", "c\\\\d\\xff\\r")]));
        let wrong = read(b"k\tv\nC:\\dir\t1\n").unwrap_err();
        assert!(wrong.starts_with("line 2: \\d is no escape"), "{wrong}");
    }

    #[test]
    fn another_delimiter_separates() {
        let semicolon = Fields { delimiter: Some(b';'), ..fields("a", Some("b")) };
        assert_eq!(read(b"a;b\n1,5;\"x;y\"\n", &semicolon), Ok(vec![pair("1,5", "x;y")]));
    }
}
