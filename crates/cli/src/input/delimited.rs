//! CSV and TSV: one column is the key, another or the rest of the record is the value.

use std::io::Read;

use csv::{ByteRecord, Reader, ReaderBuilder};
use serde_json::{Map, Value as Json};

use super::{Entry, Fields, Records};
use crate::keys::Form;

/// See the module.
pub(super) struct Delimited<R> {
    reader: Reader<R>,
    record: ByteRecord,
    /// Names of the columns; empty without a header.
    header: Vec<String>,
    key_column: usize,
    /// None for an object (or, without a header, a list) of all the other columns.
    value_column: Option<usize>,
    key_form: Form,
    value_form: Form,
}

impl<R: Read> Delimited<R> {
    /// # Errors
    /// If the header cannot be read or lacks a column that `fields` names.
    pub(super) fn new(source: R, delimiter: u8, fields: &Fields) -> Result<Self, String> {
        let mut reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(fields.has_header)
            .flexible(true)
            .from_reader(source);
        let header: Vec<String> = if fields.has_header {
            let header = reader.byte_headers().map_err(|e| describe(&e))?;
            header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        } else {
            Vec::new()
        };
        let column = |name: &String| find_column(&header, name);
        let key_column = fields.key.as_ref().map(column).transpose()?.unwrap_or(0);
        let value_column = fields.value.as_ref().map(column).transpose()?;
        Ok(Self {
            reader,
            record: ByteRecord::new(),
            header,
            key_column,
            value_column,
            key_form: fields.key_form,
            value_form: fields.value_form,
        })
    }

    fn entry(&self) -> Result<Entry, String> {
        let key = self.key_form.parse(self.column(self.key_column)?)?;
        let value = match self.value_column {
            Some(column) => self.value_form.parse(self.column(column)?)?,
            None => self.rest().to_string().into_bytes(),
        };
        Ok(Entry { key, value })
    }

    fn column(&self, index: usize) -> Result<&[u8], String> {
        self.record.get(index).ok_or_else(|| {
            format!("has {} columns, and column {} is asked for", self.record.len(), index + 1)
        })
    }

    /// All columns but the key's.
    fn rest(&self) -> Json {
        let others = self.record.iter().enumerate().filter(|(index, _)| *index != self.key_column);
        let text = |bytes: &[u8]| Json::from(String::from_utf8_lossy(bytes));
        if self.header.is_empty() {
            return others.map(|(_, bytes)| text(bytes)).collect();
        }
        let named = others.map(|(index, bytes)| {
            let name = self.header.get(index).cloned();
            (name.unwrap_or_else(|| (index + 1).to_string()), text(bytes))
        });
        Json::Object(named.collect::<Map<_, _>>())
    }
}

impl<R: Read> Records for Delimited<R> {
    fn next(&mut self) -> Result<Option<Entry>, String> {
        if !self.reader.read_byte_record(&mut self.record).map_err(|e| describe(&e))? {
            return Ok(None);
        }
        let entry = self.entry().map_err(|wrong| {
            let line = self.record.position().map_or(0, csv::Position::line);
            format!("line {line}: {wrong}")
        })?;
        Ok(Some(entry))
    }
}

/// The index of a column by its name or, if no column has that name, by its number from 1.
fn find_column(header: &[String], name: &str) -> Result<usize, String> {
    if let Some(index) = header.iter().position(|column| column == name) {
        return Ok(index);
    }
    match name.parse::<usize>() {
        Ok(number) if number > 0 && (header.is_empty() || number <= header.len()) => Ok(number - 1),
        _ if header.is_empty() => Err(format!("column {name:?} must be a number from 1")),
        _ => Err(format!("there is no column {name:?}; there are: {}", header.join(", "))),
    }
}

fn describe(error: &csv::Error) -> String {
    match error.position() {
        Some(position) => format!("line {}: {error}", position.line()),
        None => error.to_string(),
    }
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
    }

    #[test]
    fn the_value_is_the_rest_of_the_record() {
        let read = read(TABLE, &default_fields()).unwrap();
        assert_eq!(read[0].0, "a,1");
        assert_eq!(read[1].1, r#"{"id":"8","note":""}"#);
    }

    #[test]
    fn a_table_without_a_header_has_numbers() {
        let headless = Fields { has_header: false, ..fields("2", None) };
        assert_eq!(read(b"a,b,c\n", &headless), Ok(vec![pair("b", r#"["a","c"]"#)]));
        let named = Fields { has_header: false, ..fields("id", None) };
        assert!(read(b"a,b\n", &named).unwrap_err().contains("a number from 1"));
    }

    #[test]
    fn a_short_record_is_named() {
        let wrong = read(b"a,b\n1,2\n3\n", &fields("b", None)).unwrap_err();
        assert!(wrong.starts_with("line 3: has 1 columns"), "{wrong}");
    }

    #[test]
    fn tabs_separate_too() {
        let read = read_all(b"k\tv\na\tb,c\n", Format::Tsv, &fields("k", Some("v")));
        assert_eq!(read, Ok(vec![pair("a", "b,c")]));
    }
}
