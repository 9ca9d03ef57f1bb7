//! Recognises input that is no text, before any of it is taken for entries: compressed files,
//! archives, databases, and text in other encodings than UTF-8.
//!
//! Sources of the magic numbers: RFC 1952 (gzip), RFC 8878 (zstd), the xz, bzip2, LZ4 frame, 7z and
//! ZIP format specifications, the documentation of SQLite, Apache Parquet and Apache Avro; the byte
//! order marks are in chapter 23.8 of the Unicode Standard.

use super::wrong::Wrong;

/// Bytes of the beginning of an input that are looked at.
pub(super) const HEAD_BYTES: usize = 1024;

/// The byte order mark of UTF-8.
pub(super) const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// How a kind of file starts, what it is called, and the command that makes text of it.
const MAGICS: [(&[u8], &str, Option<&str>); 17] = [
    (b"\x1f\x8b", "compressed by gzip", Some("zcat")),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", Some("zstdcat")),
    (b"\xfd7zXZ\0", "compressed by xz", Some("xzcat")),
    (b"BZh", "compressed by bzip2", Some("bzcat")),
    (b"\x04\x22\x4d\x18", "compressed by lz4", Some("lz4cat")),
    (b"\x02\x21\x4c\x18", "compressed by lz4", Some("lz4cat")),
    (b"\x1f\x9d", "compressed by compress", Some("zcat")),
    (b"\xff\x06\0\0sNaPpY", "compressed by snappy", Some("snzip -dc")),
    (b"PK\x03\x04", "a ZIP archive", Some("unzip -p")),
    (b"PK\x05\x06", "a ZIP archive without files", None),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", Some("7z e -so")),
    (b"SQLite format 3\0", "an SQLite database", None),
    (b"PAR1", "a Parquet file", None),
    (b"Obj\x01", "an Avro file", None),
    (b"ARROW1\0\0", "an Arrow file", None),
    (b"%PDF-", "a PDF document", None),
    (b"\x7fELF", "an executable file", None),
];

/// The digits after `BZh`, which text may start with, and the first block's magic number.
const BZIP2_BLOCK: &[u8] = b"1AY&SY";

/// Where an archive of tar says that it is one.
const TAR_OFFSET: usize = 257;

/// Refuses the input that starts with `head` if it is no text of single bytes or UTF-8.
///
/// # Errors
/// What the input is, and the command to type instead.
pub(super) fn refuse_other(head: &[u8], name: &str, is_text: bool) -> Result<(), Wrong> {
    if let Some((_, what, tool)) = MAGICS.iter().find(|(magic, ..)| is_of(head, magic)) {
        return Err(Wrong::input(match tool {
            Some(tool) => format!("is {what}: {}", pipe(tool, name)),
            None => format!("is {what}, which cannot be loaded: {AS_IT_IS}"),
        }));
    }
    if head.get(TAR_OFFSET..).is_some_and(|rest| rest.starts_with(b"ustar")) {
        return Err(Wrong::input(format!("is a tar archive: {}", pipe("tar -xOf", name))));
    }
    match encoding(head).filter(|_| is_text) {
        Some(encoding) => {
            let tool = format!("iconv -f {encoding} -t UTF-8");
            Err(Wrong::input(format!("is text in {encoding}: {}", pipe(&tool, name))))
        }
        None => Ok(()),
    }
}

const AS_IT_IS: &str = "--as-is takes the bytes as they are";

fn is_of(head: &[u8], magic: &[u8]) -> bool {
    head.starts_with(magic)
        && (magic != b"BZh" || head.get(4..).is_some_and(|rest| rest.starts_with(BZIP2_BLOCK)))
}

fn pipe(tool: &str, name: &str) -> String {
    let file = if name == super::STDIN_NAME { "…" } else { name };
    format!("load it by `{tool} {file} | rhumb load --format FORMAT -`")
}

/// The encoding of text whose characters take two or four bytes: by its mark or, without one, by
/// the zero bytes of its first two characters if those are ASCII.
fn encoding(head: &[u8]) -> Option<&'static str> {
    let zeros = |width: usize| -> Option<Vec<bool>> {
        Some(head.get(..2 * width)?.iter().map(|byte| *byte == 0).collect())
    };
    match head {
        // Before UTF-16, whose mark it starts with.
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => return Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Some("UTF-16"),
        _ => {}
    }
    match zeros(4).as_deref() {
        Some([false, true, true, true, false, true, true, true]) => return Some("UTF-32LE"),
        Some([true, true, true, false, true, true, true, false]) => return Some("UTF-32BE"),
        _ => {}
    }
    match zeros(2).as_deref() {
        Some([false, true, false, true]) => Some("UTF-16LE"),
        Some([true, false, true, false]) => Some("UTF-16BE"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(head: &[u8]) -> String {
        refuse_other(head, "x", true).unwrap_err().to_string()
    }

    #[test]
    fn compressed_files_and_archives_are_named() {
        for (head, what) in [
            (&b"\x1f\x8b\x08\0"[..], "is compressed by gzip: load it by `zcat x |"),
            (b"\x28\xb5\x2f\xfd\x04", "is compressed by zstd: load it by `zstdcat x |"),
            (b"\xfd7zXZ\0\0", "is compressed by xz"),
            (b"BZh91AY&SY", "is compressed by bzip2"),
            (b"\x04\x22\x4d\x18d", "is compressed by lz4"),
            (b"PK\x03\x04", "is a ZIP archive: load it by `unzip -p x |"),
            (b"SQLite format 3\0", "is an SQLite database, which cannot be loaded"),
        ] {
            assert!(refused(head).starts_with(what), "{}", refused(head));
        }
        let mut tar = [b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(refused(&tar).starts_with("is a tar archive"));
    }

    #[test]
    fn wide_text_is_named() {
        for (encoding, text) in [
            ("UTF-16:", &b"\xff\xfea\0"[..]),
            ("UTF-16:", b"\xfe\xff\0a"),
            ("UTF-32:", b"\xff\xfe\0\0a\0\0\0"),
            ("UTF-32:", b"\0\0\xfe\xff\0\0\0a"),
            ("UTF-16LE:", b"a\0b\0"),
            ("UTF-16BE:", b"\0a\0b"),
            ("UTF-32LE:", b"a\0\0\0b\0\0\0"),
            ("UTF-32BE:", b"\0\0\0a\0\0\0b"),
        ] {
            assert!(refused(text).starts_with(&format!("is text in {encoding}")), "{encoding}");
        }
        assert_eq!(refuse_other(b"a\0b\0", "x", false), Ok(()));
    }

    #[test]
    fn text_passes() {
        for text in [&b""[..], b"a", b"BZh", b"BZh9 names", b"PK", b"caf\xe9\n", b"\xff\xfd"] {
            assert_eq!(refuse_other(text, "x", true), Ok(()), "{text:?}");
        }
    }
}
