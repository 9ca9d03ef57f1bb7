//! JSON lines: an object a line; one field is the key, another or the whole line is the value.

use std::io::BufRead;

use serde_json::Value as Json;

use super::{Entry, Fields, LineReader, Records};
use crate::keys::{Form, shown};

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
    fn next(&mut self) -> Result<Option<Entry>, String> {
        let Some(line) = self.lines.next()? else { return Ok(None) };
        let entry = (|| {
            let object: Json = serde_json::from_slice(line)
                .map_err(|e| format!("{:?} is not JSON: {e}", shown(line)))?;
            let key = field(&object, &self.key_field)?;
            let key = self.key_form.parse(text(key).as_bytes())?;
            let value = match &self.value_field {
                Some(name) => self.value_form.parse(text(field(&object, name)?).as_bytes())?,
                None => line.trim_ascii().to_vec(),
            };
            Ok(Entry { key, value })
        })();
        entry.map(Some).map_err(|wrong: String| self.lines.wrong(wrong))
    }
}

fn field<'a>(object: &'a Json, name: &str) -> Result<&'a Json, String> {
    match object.get(name) {
        Some(Json::Null) | None => Err(format!("has no field {name:?}")),
        Some(value) => Ok(value),
    }
}

/// Text as it is, everything else as JSON.
fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
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

    #[test]
    fn fields_are_chosen_by_name() {
        let text = b"{\"id\":7,\"v\":{\"a\":[1]}}\n\n{\"id\":\"x\",\"v\":\"y\"}\n";
        let read = read_all(text, Format::Jsonl, &fields("id", Some("v"))).unwrap();
        assert_eq!(read[0], ("7".into(), "{\"a\":[1]}".into()));
        assert_eq!(read[1], ("x".into(), "y".into()));
    }

    #[test]
    fn the_value_is_the_line() {
        let read = read_all(b"  {\"key\": \"a\", \"b\": 1}\r\n", Format::Jsonl, &default_fields());
        assert_eq!(read.unwrap()[0], ("a".into(), "{\"key\": \"a\", \"b\": 1}".into()));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, wrong) in [
            (&b"{\"key\":\"a\"}\n{\"key\":"[..], "line 2: \"{\\\"key\\\":\" is not JSON"),
            (b"{\"k\":1}", "line 1: has no field \"key\""),
            (b"{\"key\":null}", "line 1: has no field \"key\""),
            (b"[1]", "line 1: has no field \"key\""),
        ] {
            let found = read_all(text, Format::Jsonl, &default_fields()).unwrap_err();
            assert!(found.starts_with(wrong), "{found}");
        }
    }
}
