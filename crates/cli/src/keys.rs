//! Keys and values between the shell and the store: how an argument becomes bytes, and how bytes
//! become text that fits on one line.

use std::io::{self, Write};

use serde_json::Value as Json;

use crate::failure::{Failure, Outcome};

/// How keys and values are written on the command line and in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct KeyFlags {
    /// Read and print keys and values as hexadecimal
    #[arg(long, conflicts_with = "u64")]
    hex: bool,
    /// Read and print keys as decimal numbers, stored as 8 bytes, big-endian
    #[arg(long)]
    u64: bool,
}

/// A way to write byte strings as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The bytes as they are; in output, what is not printable UTF-8 becomes `\xNN`.
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
    /// A decimal number for 8 bytes, big-endian, so that the order of keys is that of numbers.
    U64,
}

impl KeyFlags {
    /// How keys are written.
    pub(crate) fn key_form(self) -> Form {
        match (self.hex, self.u64) {
            (true, _) => Form::Hex,
            (false, true) => Form::U64,
            (false, false) => Form::Text,
        }
    }

    /// How values are written.
    pub(crate) fn value_form(self) -> Form {
        if self.hex { Form::Hex } else { Form::Text }
    }
}

impl Form {
    /// The bytes that `text` stands for.
    ///
    /// # Errors
    /// Says what is wrong with the text, without the place it came from.
    pub(crate) fn parse(self, text: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Text => Ok(text.to_vec()),
            Self::Hex => parse_hex(text),
            Self::U64 => {
                let number =
                    std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
                let number: u64 = number.ok_or_else(|| {
                    format!("{:?} is not a number from 0 to {}", shown(text), u64::MAX)
                })?;
                Ok(number.to_be_bytes().to_vec())
            }
        }
    }

    /// The bytes of an argument.
    ///
    /// # Errors
    /// [`Failure::Usage`], which names `what`.
    pub(crate) fn parse_argument(self, what: &str, text: &std::ffi::OsStr) -> Outcome<Vec<u8>> {
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(text);
        self.parse(bytes).map_err(|wrong| Failure::Usage(format!("{what}: {wrong}")))
    }

    /// Writes `bytes` on one line.
    pub(crate) fn write(self, out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
        match (self, <[u8; 8]>::try_from(bytes)) {
            (Self::Text, _) => write_text(out, bytes),
            (Self::Hex, _) => write_hex(out, bytes),
            (Self::U64, Ok(number)) => write!(out, "{}", u64::from_be_bytes(number)),
            (Self::U64, Err(_)) => {
                out.write_all(b"0x")?;
                write_hex(out, bytes)
            }
        }
    }

    /// Writes `bytes` as a member of a JSON object, without a comma: `"name":…`, or
    /// `"name_hex":"…"` where the form asks for it or the bytes cannot be the form's.
    pub(crate) fn write_json(
        self,
        out: &mut dyn Write,
        name: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        match (self, <[u8; 8]>::try_from(bytes), std::str::from_utf8(bytes)) {
            (Self::U64, Ok(number), _) => write!(out, "\"{name}\":{}", u64::from_be_bytes(number)),
            (Self::Text, _, Ok(text)) => {
                write!(out, "\"{name}\":")?;
                Ok(serde_json::to_writer(out, text)?)
            }
            _ => {
                write!(out, "\"{name}_hex\":\"")?;
                write_hex(out, bytes)?;
                out.write_all(b"\"")
            }
        }
    }

    /// The name and value of a member of a JSON object, as [`Form::write_json`] writes it.
    pub(crate) fn to_json(self, name: &str, bytes: &[u8]) -> (String, Json) {
        match (self, <[u8; 8]>::try_from(bytes), std::str::from_utf8(bytes)) {
            (Self::U64, Ok(number), _) => (name.to_owned(), u64::from_be_bytes(number).into()),
            (Self::Text, _, Ok(text)) => (name.to_owned(), text.into()),
            _ => (format!("{name}_hex"), Self::Hex.show(bytes).into()),
        }
    }

    /// `bytes` on one line, for a message.
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        let mut text = Vec::new();
        self.write(&mut text, bytes).expect("writing to memory does not fail");
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Adds the member `path` to a JSON object, or `path_hex` if the path is not UTF-8.
pub(crate) fn put_path(object: &mut Json, path: &std::path::Path) {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let (name, shown) = Form::Text.to_json("path", bytes);
    object[name] = shown;
}

/// The same object with that member.
pub(crate) fn with_path(mut object: Json, path: &std::path::Path) -> Json {
    put_path(&mut object, path);
    object
}

/// A path as JSON text: with escapes if it is not UTF-8.
pub(crate) fn path_text(path: &std::path::Path) -> Json {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    path.to_str().map_or_else(|| Form::Text.show(bytes).into(), Json::from)
}

/// How entries are printed, one a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPrinter {
    key_form: Form,
    value_form: Form,
    is_json: bool,
    keys_only: bool,
}

impl EntryPrinter {
    /// A printer of objects, or of keys and values with a tab between them.
    pub(crate) fn new(flags: KeyFlags, is_json: bool, keys_only: bool) -> Self {
        Self { key_form: flags.key_form(), value_form: flags.value_form(), is_json, keys_only }
    }

    /// Prints an entry.
    pub(crate) fn print(&self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
        if self.is_json {
            out.write_all(b"{")?;
            self.key_form.write_json(out, "key", key)?;
            if !self.keys_only {
                out.write_all(b",")?;
                self.value_form.write_json(out, "value", value)?;
            }
            return out.write_all(b"}\n");
        }
        self.key_form.write(out, key)?;
        if !self.keys_only {
            out.write_all(b"\t")?;
            self.value_form.write(out, value)?;
        }
        out.write_all(b"\n")
    }
}

/// At most the first 40 bytes of `bytes`, for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 40;
    if bytes.len() <= SHOWN_BYTES_MAX {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    format!("{}…", String::from_utf8_lossy(&bytes[..SHOWN_BYTES_MAX]))
}

fn parse_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.chunks(2).map(|pair| match *pair {
        #[expect(clippy::cast_possible_truncation, reason = "two digits are at most 255")]
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    });
    pairs
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{:?} is not an even number of hexadecimal digits", shown(text)))
}

fn write_hex(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.write_all(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])?;
    }
    Ok(())
}

/// Writes printable text as it is and everything else so that a line stays a line.
fn write_text(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    // Nearly all keys: no decoding needed.
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\') {
        return out.write_all(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                // At the start of a file it would be taken for a byte order mark.
                '\u{feff}' => out.write_all(b"\\xef\\xbb\\xbf")?,
                '\\' => out.write_all(b"\\\\")?,
                '\n' => out.write_all(b"\\n")?,
                '\t' => out.write_all(b"\\t")?,
                '\r' => out.write_all(b"\\r")?,
                c if c.is_control() => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        write!(out, "\\x{byte:02x}")?;
                    }
                }
                c => write!(out, "{c}")?,
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

/// Appends to `bytes` what `text` stands for, which is written as [`Form::Text`] writes it.
///
/// # Errors
/// Names a backslash that starts no escape.
pub(crate) fn unescape(text: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(place) = rest.iter().position(|byte| *byte == b'\\') {
        bytes.extend_from_slice(&rest[..place]);
        let (byte, len) = match rest[place + 1..] {
            [b'\\', ..] => (b'\\', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'r', ..] => (b'\r', 1),
            [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (parse_hex(&[high, low])?[0], 3)
            }
            [other, ..] => {
                let other = shown(&[other]);
                return Err(format!("\\{other} is no escape: a backslash itself is \\\\"));
            }
            [] => return Err("a backslash at the end is no escape: it is \\\\".to_owned()),
        };
        bytes.push(byte);
        rest = &rest[place + 1 + len..];
    }
    bytes.extend_from_slice(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_stays_on_one_line() {
        assert_eq!(Form::Text.show("@babel/core é".as_bytes()), "@babel/core é");
        assert_eq!(Form::Text.show(b"a\tb\nc\\d\x1b\xff"), "a\\tb\\nc\\\\d\\x1b\\xff");
    }

    #[test]
    fn a_byte_order_mark_is_escaped() {
        assert_eq!(Form::Text.show("\u{feff}a".as_bytes()), "\\xef\\xbb\\xbfa");
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for wrong in ["\\", "a\\d", "\\x", "\\x0", "\\xg0", "\\X00"] {
            assert!(unescape(wrong.as_bytes(), &mut Vec::new()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_big_endian_keys() {
        assert_eq!(Form::U64.parse(b"258"), Ok(vec![0, 0, 0, 0, 0, 0, 1, 2]));
        assert_eq!(Form::U64.show(&[255; 8]), u64::MAX.to_string());
        assert_eq!(Form::U64.show(b"abc"), "0x616263");
        for wrong in ["", "-1", "18446744073709551616", "0x10", "1.0"] {
            assert!(Form::U64.parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wrong_hexadecimal_is_refused() {
        assert_eq!(Form::Hex.parse(b"0x00fF"), Ok(vec![0, 255]));
        for wrong in ["0", "0g", "é", "00 1"] {
            assert!(Form::Hex.parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_says_how_bytes_are_written() {
        let json = |form: Form, bytes: &[u8]| {
            let mut text = Vec::new();
            form.write_json(&mut text, "key", bytes).unwrap();
            let (name, value) = form.to_json("key", bytes);
            let written: Json =
                serde_json::from_str(&format!("{{{}}}", String::from_utf8(text.clone()).unwrap()))
                    .unwrap();
            assert_eq!(written[&name], value);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(json(Form::Text, b"a\"b"), r#""key":"a\"b""#);
        assert_eq!(json(Form::Text, b"\xff"), r#""key_hex":"ff""#);
        assert_eq!(json(Form::Hex, b"a"), r#""key_hex":"61""#);
        assert_eq!(json(Form::U64, &[255; 8]), format!("\"key\":{}", u64::MAX));
        assert_eq!(json(Form::U64, b"a"), r#""key_hex":"61""#);
    }

    proptest! {
        #[test]
        fn hexadecimal_reads_back(bytes: Vec<u8>) {
            prop_assert_eq!(Form::Hex.parse(Form::Hex.show(&bytes).as_bytes()), Ok(bytes));
        }

        #[test]
        fn text_reads_back(bytes: Vec<u8>, text: String) {
            for bytes in [bytes, text.into_bytes()] {
                let mut read = Vec::new();
                prop_assert_eq!(unescape(Form::Text.show(&bytes).as_bytes(), &mut read), Ok(()));
                prop_assert_eq!(read, bytes);
            }
        }

        #[test]
        fn text_never_breaks_a_line(bytes: Vec<u8>) {
            let shown = Form::Text.show(&bytes);
            prop_assert!(!shown.contains(|c: char| c.is_control()), "{:?}", shown);
        }

        #[test]
        fn different_bytes_are_shown_differently(a: Vec<u8>, b: Vec<u8>) {
            prop_assert_eq!(a == b, Form::Text.show(&a) == Form::Text.show(&b));
        }
    }
}
