//! Where bytes on disk are made and read.
//!
//! A format of the engine has its bytes in files named `format.rs`, or in a directory `format/`.
//! Those do no I/O and read no clock, so that all of a format can be read and tested in one place.
//! Other files of the engine turn no integers into bytes and none back.

use super::{Finding, layers, mask::Masked, source};

/// The sources that this rule is for.
const SOURCES: &str = "crates/store/src/";

/// What turns integers into bytes and back.
const CODECS: [&str; 5] =
    ["to_le_bytes", "from_le_bytes", "to_be_bytes", "from_be_bytes", "varint"];

/// The other files that may, each with its reason.
const CODEC_FILES: [(&str, &str); 12] = [
    ("lib.rs", "names the module of variable-length integers"),
    ("types.rs", "reads keys that are integers"),
    ("ranges/block.rs", "is the codec of the range tombstones of a table"),
    ("table/block/builder.rs", "is the encoder of blocks"),
    ("table/block/view.rs", "is the decoder of blocks, which reads in place"),
    ("table/filter/mod.rs", "is the codec of filters, which are read in place"),
    ("table/footer.rs", "is the codec of footers and sections"),
    ("table/hash.rs", "takes a byte of a hash"),
    ("table/index_block/binary_search.rs", "is the codec of these index blocks, read in place"),
    ("table/pages.rs", "is the codec of pages and of the frames of blocks"),
    ("table/values.rs", "is the codec of places of large values"),
    ("table/writer.rs", "computes lengths of what a block will hold"),
];

/// What a format may not use: I/O, time, and what waits or works in the background.
const NOT_OF_A_FORMAT: [&str; 11] = [
    "crate::io",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::sync",
    "std::thread",
    "std::time",
    "crate::db",
];

/// Checks one file.
pub(super) fn check(path: &str, masked: &Masked) -> Vec<Finding> {
    let is_source = path.starts_with("crates/") && path.contains("/src/");
    if !is_source || source::is_test_file(path) {
        return Vec::new();
    }
    if path.ends_with("/format.rs") || path.contains("/format/") {
        return check_format(path, masked);
    }
    match path.strip_prefix(SOURCES) {
        Some(within) => check_other(path, within, masked),
        None => Vec::new(),
    }
}

fn check_format(path: &str, masked: &Masked) -> Vec<Finding> {
    let leads_into = |import: &str, module: &str| {
        import.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    layers::imports(masked)
        .into_iter()
        .filter(|(_, import)| NOT_OF_A_FORMAT.iter().any(|module| leads_into(import, module)))
        .map(|(line, import)| {
            Finding::failure(path, line, format!("is a format and may not use `{import}`"))
        })
        .collect()
}

fn check_other(path: &str, within: &str, masked: &Masked) -> Vec<Finding> {
    let is_listed = CODEC_FILES.iter().any(|(file, _)| *file == within);
    if is_listed || within.starts_with("fuzzing/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, code) in masked.code.iter().enumerate().take(source::tests_start(masked)) {
        for codec in CODECS {
            if source::words(code, codec).next().is_some() {
                let what = format!("has `{codec}`: bytes on disk are the affair of a `format.rs`");
                findings.push(Finding::failure(path, index + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::mask::mask, *};

    fn findings(path: &str, code: &str) -> Vec<String> {
        check(path, &mask(code)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bytes_are_made_and_read_in_formats() {
        for code in [
            "fn f(a: u32) -> [u8; 4] { a.to_le_bytes() }\n",
            "fn f(a: [u8; 8]) -> u64 { u64::from_be_bytes(a) }\n",
            "use crate::{types::Kind, varint};\n",
            "fn f(out: &mut Vec<u8>) { crate::varint::put(out, 7) }\n",
        ] {
            for path in ["log/writer.rs", "version/manifest.rs", "options.rs", "db/mod.rs"] {
                let found = findings(&format!("{SOURCES}{path}"), code);
                assert_eq!(found.len(), 1, "{path}: {code}");
                assert!(found[0].contains("format.rs"), "{found:?}");
            }
            for path in ["log/format.rs", "log/format/frame.rs", "table/pages.rs"] {
                assert_eq!(findings(&format!("{SOURCES}{path}"), code), [""; 0], "{path}");
            }
            assert_eq!(findings("crates/remote/src/message/codec.rs", code), [""; 0]);
        }
    }

    #[test]
    fn comments_and_tests_may_name_what_makes_bytes() {
        let test = "#[cfg(test)]\nmod tests {\n    fn f() { 7_u32.to_le_bytes(); }\n}\n";
        for code in ["/// As `to_le_bytes`.\nfn f() {}\n", "const A: &str = \"varint\";\n", test] {
            assert_eq!(findings("crates/store/src/db/core.rs", code), [""; 0], "{code}");
        }
        let code = "fn f() { 7_u32.to_le_bytes(); }\n";
        assert_eq!(findings("crates/store/src/log/tests/mod.rs", code), [""; 0]);
    }

    #[test]
    fn formats_do_no_io_and_read_no_clock() {
        for code in [
            "use crate::io::FileSystem;\n",
            "use crate::{error::Error, io::{FileSystem, retry}};\n",
            "use std::{path::Path, time::Instant};\n",
            "fn f() { let _ = std::fs::read(\"a\"); }\n",
        ] {
            for path in ["crates/store/src/log/format/frame.rs", "crates/server/src/a/format.rs"] {
                assert!(!findings(path, code).is_empty(), "{path}: {code}");
            }
            assert_eq!(findings("crates/store/src/log/reader.rs", code), [""; 0]);
        }
        let code = "use crate::{error::Error, iota::A, types::Kind};\nuse std::path::Path;\n";
        assert_eq!(findings("crates/store/src/version/format.rs", code), [""; 0]);
    }

    #[test]
    fn every_exception_is_a_file_that_needs_it() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (file, _) in CODEC_FILES {
            let text = std::fs::read_to_string(root.join(SOURCES).join(file)).unwrap();
            let code = mask(&text).code.concat();
            let uses = CODECS.iter().any(|codec| source::words(&code, codec).next().is_some());
            assert!(uses, "{file} needs no exception");
        }
    }
}
