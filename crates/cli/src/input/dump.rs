//! What `dump` and `scan --json` write: an object a line with `key` or `key_hex` and `value` or
//! `value_hex`, which together are the whole entry.
//!
//! A dump also says where it starts and where it ends, so that one that was cut short is noticed:
//! `{"rhumb_dump":1,"keyspace":"default"}` is its first line and `{"rhumb_dump_entries":2}` its
//! last.

use std::io::BufRead;

use super::{
    Entry, Fields, KEY_BYTES_MAX, LineReader, Records, VALUE_BYTES_MAX, Wrong,
    json::{Members, text},
    wrong::Kind,
};
use crate::keys::Form;

/// The only version so far.
pub(crate) const VERSION: u64 = 1;

/// The member of the first line, whose value is the version.
pub(crate) const START: &str = "rhumb_dump";

/// The member of the last line, whose value is the number of entries.
pub(crate) const END: &str = "rhumb_dump_entries";

/// The longest line: every byte of the longest key and value as `\u00NN`, and the names.
const LINE_BYTES_MAX: usize =
    (KEY_BYTES_MAX + VALUE_BYTES_MAX).saturating_mul(6).saturating_add(64);

/// See the module.
pub(super) struct Dump<R> {
    lines: LineReader<R>,
    key_form: Form,
    /// Lines of entries since the start of a dump; none outside one.
    entries: Option<u64>,
}

impl<R: BufRead> Dump<R> {
    pub(super) fn new(reader: R, fields: &Fields) -> Self {
        let lines = LineReader::new(reader, LINE_BYTES_MAX);
        Self { lines, key_form: fields.key_form, entries: None }
    }
}

impl<R: BufRead> Records for Dump<R> {
    fn next(&mut self) -> Result<Option<Entry>, Wrong> {
        while let Some(line) = self.lines.next()? {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let members = match Members::parse(line) {
                Ok(members) => members,
                Err(wrong) => {
                    count(&mut self.entries);
                    return Err(wrong);
                }
            };
            if let Some(version) = members.get(START) {
                if version != VERSION.to_string() {
                    let what = format!("a dump of version {version}, and this reads {VERSION}");
                    return Err(Wrong::input(what).at(self.lines.number));
                }
                if self.entries.replace(0).is_some() {
                    let wrong = cut_short("another one starts before it ends");
                    return Err(wrong.at(self.lines.number));
                }
                continue;
            }
            if let Some(stated) = members.get(END) {
                let found = self.entries.take();
                if let Some(found) = found.filter(|found| found.to_string() != stated) {
                    let what = format!("the dump has {found} entries and should have {stated}");
                    return Err(Wrong::input(what).at(self.lines.number));
                }
                continue;
            }
            count(&mut self.entries);
            return entry(&members, self.key_form).map(Some);
        }
        match self.entries.take() {
            Some(_) => Err(cut_short("its last line is missing")),
            None => Ok(None),
        }
    }

    fn line(&self) -> u64 {
        self.lines.number
    }
}

fn count(entries: &mut Option<u64>) {
    *entries = entries.map(|entries| entries + 1);
}

fn cut_short(why: &str) -> Wrong {
    Wrong::input(format!("the dump was cut short: {why}"))
}

fn entry(members: &Members<'_>, key_form: Form) -> Result<Entry, Wrong> {
    if let Some(name) = members.names().find(|name| !is_of_entry(name)) {
        let what = format!(
            "has a field {name:?}, and an entry is `key` and `value` alone: for other objects say \
             --format jsonl"
        );
        return Err(Wrong::new(Kind::Field, what));
    }
    if members.names().count() > 2 {
        return Err(Wrong::new(Kind::Repeated, "has a key or a value twice, as text and as bytes"));
    }
    let key = match members.get("key") {
        Some(json) if !json.starts_with('"') => {
            if key_form != Form::U64 {
                let what = format!("the key {json} is a number: say --u64 if keys are numbers");
                return Err(Wrong::new(Kind::Form, what));
            }
            super::parse(Form::U64, json.as_bytes())?
        }
        Some(json) => text(json, "key")?,
        None => members.bytes("key", Form::Text)?,
    };
    if let Some(json) = members.get("value")
        && !json.starts_with('"')
    {
        let what = "the value is no text: for other objects say --format jsonl";
        return Err(Wrong::new(Kind::Form, what));
    }
    Ok(Entry { key, value: members.bytes("value", Form::Text)? })
}

fn is_of_entry(name: &str) -> bool {
    matches!(name, "key" | "key_hex" | "value" | "value_hex")
}

/// Returns true if an input that starts with `head` is written this way.
pub(super) fn is_dump(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match Members::parse(line) {
        Ok(members) => {
            members.get(START).is_some()
                || (members.names().count() == 2 && entry(&members, Form::U64).is_ok())
        }
        // A line that is longer than what was looked at.
        Err(_) if line.len() == head.len() => {
            [&b"{\"key\":"[..], b"{\"key_hex\":"].iter().any(|start| line.starts_with(start))
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{
            Format,
            tests::{default_fields, read_all},
        },
        *,
    };
    use crate::keys::{EntryPrinter, KeyFlags};

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        read_all(text.as_bytes(), Format::Dump, &default_fields())
    }

    #[test]
    fn entries_are_read_exactly() {
        let found =
            read("{\"key\":\"\",\"value\":\"a\\nb\"}\n{\"key_hex\":\"ff\",\"value_hex\":\"\"}");
        let expected = [("", "a\\nb"), ("\\xff", "")];
        assert_eq!(found, Ok(expected.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec()));
    }

    #[test]
    fn a_dump_that_was_cut_short_is_noticed() {
        let start = "{\"rhumb_dump\":1,\"keyspace\":\"default\"}\n";
        let entry = "{\"key\":\"a\",\"value\":\"b\"}\n";
        let end = "{\"rhumb_dump_entries\":1}\n";
        let whole = [start, entry, end].concat();
        assert_eq!(read(&whole).map(|all| all.len()), Ok(1));
        assert_eq!(read(&whole.repeat(2)).map(|all| all.len()), Ok(2));
        for (text, wrong) in [
            ([start, entry].concat(), "the dump was cut short"),
            ([start, entry, start].concat(), "line 3: the dump was cut short"),
            ([start, end].concat(), "line 2: the dump has 0 entries and should have 1"),
            (start.replace('1', "2"), "line 1: a dump of version 2"),
        ] {
            let found = read(&text).unwrap_err();
            assert!(found.contains(wrong), "{found}");
        }
    }

    #[test]
    fn what_is_no_entry_is_named() {
        for (line, wrong) in [
            ("{\"key\":1,\"value\":\"a\"}", "line 1: the key 1 is a number"),
            ("{\"key\":\"a\",\"value\":1}", "line 1: the value is no text"),
            ("{\"key\":\"a\"}", "line 1: has no field \"value\""),
            ("{\"key\":\"a\",\"value\":\"b\",\"c\":1}", "line 1: has a field \"c\""),
            ("{\"key\":\"a\",\"value\":\"b\",\"key_hex\":\"\"}", "line 1: has a key or a value"),
            ("{\"key_hex\":\"f\",\"value\":\"b\"}", "line 1: \"f\" is not an even number"),
        ] {
            let found = read(line).unwrap_err();
            assert!(found.starts_with(wrong), "{found}");
        }
    }

    #[test]
    fn a_dump_is_known_by_its_first_line() {
        for head in [
            "{\"rhumb_dump\":1}\n",
            "{\"key\":\"a\",\"value\":\"b\"}\n{",
            "{\"key\":17,\"value_hex\":\"ff\"}",
            "{\"key\":\"a\",\"value\":\"a long val",
        ] {
            assert!(is_dump(head.as_bytes()), "{head}");
        }
        for head in ["", "key", "{\"key\":\"a\",\"b\":1}\n", "{\"key\":\"a\"}\n", "{\"id\":1"] {
            assert!(!is_dump(head.as_bytes()), "{head}");
        }
    }

    proptest! {
        /// Whatever the form, what is printed is read.
        #[test]
        fn what_is_printed_is_read(entries: Vec<(Vec<u8>, Vec<u8>)>, texts: Vec<(String, String)>) {
            let texts = texts.into_iter().map(|(key, value)| (key.into_bytes(), value.into_bytes()));
            let entries: Vec<_> = entries.into_iter().chain(texts).collect();
            let mut text = Vec::new();
            let printer = EntryPrinter::new(KeyFlags::default(), true, false);
            for (key, value) in &entries {
                printer.print(&mut text, key, value).unwrap();
            }
            let mut dump = Dump::new(&*text, &default_fields());
            for (key, value) in entries {
                prop_assert_eq!(dump.next(), Ok(Some(Entry { key, value })));
            }
            prop_assert_eq!(dump.next(), Ok(None));
        }
    }
}
