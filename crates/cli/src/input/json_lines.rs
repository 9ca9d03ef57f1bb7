//! JSON lines: an object a line; one field is the key, another or the whole line is the value.

use std::io::BufRead;

use super::{Entry, Fields, LineReader, Records, Wrong, json::Members, wrong::Kind};
use crate::keys::Form;

/// The longest line.
const LINE_BYTES_MAX: usize = 1 << 30;

/// The field that is the key if none is chosen: what `rhumb scan --json` writes.
const KEY_FIELD: &str = "key";

/// See the module.
pub(super) struct JsonLines<R> {
    lines: LineReader<R>,
    key_field: String,
    /// None for the whole line.
    value_field: Option<String>,
    key_form: Form,
    value_form: Form,
}

impl<R: BufRead> JsonLines<R> {
    pub(super) fn new(reader: R, fields: &Fields) -> Self {
        Self {
            lines: LineReader::new(reader, LINE_BYTES_MAX),
            key_field: fields.key.clone().unwrap_or_else(|| KEY_FIELD.to_owned()),
            value_field: fields.value.clone(),
            key_form: fields.key_form,
            value_form: fields.value_form,
        }
    }
}

impl<R: BufRead> Records for JsonLines<R> {
    fn next(&mut self) -> Result<Option<Entry>, Wrong> {
        let line = loop {
            match self.lines.next()? {
                None => return Ok(None),
                // A line of white space holds nothing that could be lost.
                Some(line) if line.trim_ascii().is_empty() => {}
                Some(line) => break line.trim_ascii().to_vec(),
            }
        };
        let members = Members::parse(&line)?;
        if let Some(json) = members.get(&self.key_field)
            && json.starts_with(['{', '['])
        {
            let what = format!("the field {:?} is no text and no number", self.key_field);
            return Err(Wrong::new(Kind::Field, what));
        }
        let key = members.bytes(&self.key_field, self.key_form)?;
        let value = self.value_field.as_ref().map(|name| members.bytes(name, self.value_form));
        let value = value.transpose()?;
        Ok(Some(Entry { key, value: value.unwrap_or(line) }))
    }

    fn line(&self) -> u64 {
        self.lines.number
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

    fn fields(key: &str, value: Option<&str>) -> Fields {
        Fields { key: Some(key.to_owned()), value: value.map(str::to_owned), ..default_fields() }
    }

    fn read(text: &[u8], fields: &Fields) -> Result<Vec<(String, String)>, String> {
        read_all(text, Format::Jsonl, fields)
    }

    #[test]
    fn fields_are_chosen_by_name() {
        let text = b"{\"id\":7,\"v\":{\"a\":[1]}}\n\n{\"id\":\"x\",\"v\":\"y\"}\n";
        let read = read(text, &fields("id", Some("v"))).unwrap();
        assert_eq!(read[0], ("7".into(), "{\"a\":[1]}".into()));
        assert_eq!(read[1], ("x".into(), "y".into()));
    }

    #[test]
    fn the_value_is_the_line() {
        let read = read(b"  {\"key\": \"a\", \"b\": 1}\r\n", &default_fields());
        assert_eq!(read.unwrap()[0], ("a".into(), "{\"key\": \"a\", \"b\": 1}".into()));
    }

    #[test]
    fn numbers_keep_their_digits() {
        for number in [
            "9007199254740993",
            "18446744073709551616",
            "123456789012345678901234567890",
            "-9223372036854775809",
            "0.1000000000000000055511151231257827",
            "1.0",
            "1e400",
            "-0",
        ] {
            let line = format!("{{\"id\":{number},\"v\":{number}}}");
            let found = read(line.as_bytes(), &fields("id", Some("v")));
            assert_eq!(found, Ok(vec![(number.to_owned(), number.to_owned())]));
        }
    }

    #[test]
    fn bytes_in_hexadecimal_are_read() {
        let found = read(b"{\"key_hex\":\"00ff\",\"v_hex\":\"0a\"}", &fields("key", Some("v")));
        assert_eq!(found, Ok(vec![("\\x00\\xff".into(), "\\n".into())]));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, wrong) in [
            (&b"{\"key\":\"a\"}\n{\"key\":"[..], "line 2: \"{\\\"key\\\":\" is not a JSON object"),
            (b"{\"k\":1}", "line 1: has no field \"key\""),
            (b"{\"key\":null}", "line 1: has no field \"key\""),
            (b"[1]", "line 1: \"[1]\" is not a JSON object"),
            (b"{\"key\":{}}", "line 1: the field \"key\" is no text and no number"),
            (b"{\"key\":1,\"a\":1,\"key\":2}", "line 1: has the field \"key\" twice"),
            (b"{\"key\":1,\"a\":1,\"\\u0061\":2}", "line 1: has the field \"a\" twice"),
            (b"{\"key\":\"caf\xe9\"}", "line 1: byte 12 is not UTF-8"),
            (b"{\"key\":\"\\ud800\"}", "line 1: the text of the field \"key\" is wrong"),
            (b"{\"key\":\"\"}", "line 1: the key is empty"),
            (b"{\"key\":1} {\"key\":2}", "line 1: \"{\\\"key\\\":1} {\\\"key\\\":2}\" is not"),
        ] {
            let found = read(text, &default_fields()).unwrap_err();
            assert!(found.starts_with(wrong), "{found}");
        }
    }
}
