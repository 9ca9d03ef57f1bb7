//! Text with a key on each line; the value is the number of the line.

use std::io::BufRead;

use super::{Entry, Fields, KEY_BYTES_MAX, LineReader, Records, Wrong, refuse_nul};
use crate::keys::Form;

/// The longest line: a key as hexadecimal, with `0x` before it.
const LINE_BYTES_MAX: usize = 2 * KEY_BYTES_MAX + 2;

/// See the module.
pub(super) struct Lines<R> {
    lines: LineReader<R>,
    key_form: Form,
    takes_nul: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R, fields: &Fields) -> Self {
        let lines = LineReader::new(reader, LINE_BYTES_MAX);
        Self { lines, key_form: fields.key_form, takes_nul: fields.is_as_it_is }
    }
}

impl<R: BufRead> Records for Lines<R> {
    fn next(&mut self) -> Result<Option<Entry>, Wrong> {
        let Some(line) = self.lines.next()? else { return Ok(None) };
        if !self.takes_nul {
            refuse_nul(line)?;
        }
        let key = super::parse(self.key_form, line)?;
        Ok(Some(Entry { key, value: self.lines.number.to_string().into_bytes() }))
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

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_value_is_the_number_of_the_line() {
        let read = read_all(b"b\r\na \nlast", Format::Lines, &default_fields());
        assert_eq!(read, Ok(owned(&[("b", "1"), ("a ", "2"), ("last", "3")])));
        assert_eq!(read_all(b"", Format::Lines, &default_fields()), Ok(vec![]));
    }

    #[test]
    fn an_empty_line_is_no_key_unless_that_is_asked_for() {
        let text = b"a\n\nb\n";
        let wrong = read_all(text, Format::Lines, &default_fields()).unwrap_err();
        assert!(wrong.starts_with("line 2: the key is empty"), "{wrong}");
        let fields = Fields { takes_empty_keys: true, ..default_fields() };
        let read = read_all(text, Format::Lines, &fields);
        assert_eq!(read, Ok(owned(&[("a", "1"), ("", "2"), ("b", "3")])));
    }

    #[test]
    fn bytes_that_are_not_text_are_keys() {
        let read = read_all(b"caf\xe9\n\xff\xfa\n", Format::Lines, &default_fields());
        assert_eq!(read, Ok(owned(&[("caf\\xe9", "1"), ("\\xff\\xfa", "2")])));
    }

    #[test]
    fn keys_are_read_in_their_form() {
        let numbers = Fields { key_form: Form::U64, ..default_fields() };
        let read = read_all(b"1\n256\n", Format::Lines, &numbers).unwrap();
        assert_eq!(read[1].0, "\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x00");
        let wrong = read_all(b"1\nx\n", Format::Lines, &numbers);
        assert!(wrong.unwrap_err().starts_with("line 2: \"x\" is not a number"));
    }
}
