//! Text with a key on each line; the value is the number of the line.

use std::io::BufRead;

use super::{Entry, Fields, LineReader, Records};
use crate::keys::Form;

/// The longest line: a key of 64 KiB as hexadecimal, with `0x` before it.
const LINE_BYTES_MAX: usize = 2 * (64 << 10) + 2;

/// See the module.
pub(super) struct Lines<R> {
    lines: LineReader<R>,
    key_form: Form,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R, fields: &Fields) -> Self {
        Self { lines: LineReader::new(reader, LINE_BYTES_MAX), key_form: fields.key_form }
    }
}

impl<R: BufRead> Records for Lines<R> {
    fn next(&mut self) -> Result<Option<Entry>, String> {
        let Some(line) = self.lines.next()? else { return Ok(None) };
        let key = self.key_form.parse(line);
        let key = key.map_err(|wrong| self.lines.wrong(wrong))?;
        Ok(Some(Entry { key, value: self.lines.number.to_string().into_bytes() }))
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
        let read = read_all(b"b\r\n\na \nlast", Format::Lines, &default_fields());
        assert_eq!(read, Ok(owned(&[("b", "1"), ("a ", "3"), ("last", "4")])));
        assert_eq!(read_all(b"", Format::Lines, &default_fields()), Ok(vec![]));
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
