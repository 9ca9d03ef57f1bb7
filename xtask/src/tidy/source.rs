//! Rules about the text of one file.

use super::{
    Finding, formats, layers,
    mask::{Masked, mask},
};

/// Lines of code (neither blank nor only a comment) of a file: past the first it is listed, past
/// the second it fails.
const FILE_LINES_SOFT: usize = 600;
const FILE_LINES_HARD: usize = 700;

/// Lines of code of a function, likewise.
const FUNCTION_LINES_SOFT: usize = 70;
const FUNCTION_LINES_HARD: usize = 90;

/// The only places where `unsafe` may be written, as prefixes of paths.
const UNSAFE_ALLOWED: [&str; 41] = [
    // Runs something in a forked child.
    "crates/remote/tests/fork.rs",
    // The prefetch instruction.
    "crates/remote/src/prefetch.rs",
    // Maps memory that other processes read or write.
    "crates/remote/src/region/space.rs",
    // A C library that is opened by name, and memory that devices reach.
    "crates/remote/src/verbs/abi.rs",
    "crates/remote/src/verbs/device.rs",
    "crates/remote/src/verbs/library.rs",
    "crates/remote/src/verbs/pair.rs",
    "crates/remote/src/verbs/queue.rs",
    "crates/remote/src/verbs/stream.rs",
    // Tells loom of accesses that it checks.
    "crates/index/src/models/",
    "crates/index/src/raw/",
    "crates/index/src/published/",
    // Each holds pointers that epochs keep alive, or makes or frees what they point to.
    "crates/index/src/bulk.rs",
    "crates/index/src/core/inherit.rs",
    "crates/index/src/core/mod.rs",
    "crates/index/src/core/retrain.rs",
    "crates/index/src/kinds.rs",
    "crates/index/src/map.rs",
    "crates/index/src/scan.rs",
    // Vector instructions, and assembly of them.
    "crates/index/src/simd.rs",
    "crates/index/src/simd/",
    // The kernel reads into memory that the ring's entries point to.
    "crates/store/src/io/uring.rs",
    // Versions point into log records and to each other.
    "crates/store/src/memtable/version.rs",
    "crates/sync/src/arena.rs",
    "crates/sync/src/bulk.rs",
    "crates/sync/src/deferred.rs",
    "crates/sync/src/epoch.rs",
    "crates/sync/src/garbage.rs",
    "crates/sync/src/mapping.rs",
    "crates/sync/src/placed.rs",
    "crates/sync/src/prefetch.rs",
    // Maps a page that a fork empties.
    "crates/sync/src/process.rs",
    "crates/sync/src/published.rs",
    "crates/sync/src/record.rs",
    "crates/sync/src/shared_bytes.rs",
    "crates/sync/src/slot.rs",
    // Run something in a forked child.
    "crates/store/tests/fork.rs",
    "crates/sync/tests/fork.rs",
    // Counts what the program's allocator hands out.
    "crates/store/tests/memory.rs",
    // The rival's own interface is unsafe.
    "compare/src/lmdb.rs",
    // What the disk gives without a store.
    "bench/src/raw_disk.rs",
];

/// Sources whose code must not print: libraries, because printing is for their caller to decide,
/// and the binary, because these macros panic when the reader of a pipe has gone.
const NO_PRINTING: [&str; 8] = [
    "crates/model/src/",
    "crates/sync/src/",
    "crates/index/src/",
    "crates/store/src/",
    "crates/remote/src/",
    "crates/server/src/",
    "crates/cli/src/",
    "bench/src/",
];

/// Checks one file of text; `path` is relative to the root.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = check_whitespace(path, text);
    if path.ends_with(".rs") {
        let masked = mask(text);
        findings.extend(check_module_doc(path, text));
        findings.extend(check_file_length(path, &masked));
        findings.extend(check_functions(path, &masked));
        findings.extend(check_leftovers(path, &masked));
        findings.extend(check_printing(path, &masked));
        findings.extend(check_comments(path, text, &masked));
        findings.extend(check_unsafe(path, &masked));
        findings.extend(layers::check(path, &masked));
        findings.extend(formats::check(path, &masked));
    }
    findings
}

fn check_whitespace(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.contains('\t') {
            findings.push(Finding::failure(path, index + 1, "has a tab"));
        }
        if line.ends_with([' ', '\r']) {
            findings.push(Finding::failure(path, index + 1, "ends in a space"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::failure(path, 0, "does not end in a newline"));
    }
    findings
}

fn check_module_doc(path: &str, text: &str) -> Option<Finding> {
    let starts = text.lines().next().is_some_and(|line| line.starts_with("//!"));
    (!starts).then(|| Finding::failure(path, 1, "does not start with `//!` and what it is for"))
}

fn check_file_length(path: &str, masked: &Masked) -> Option<Finding> {
    let lines = masked.code_lines(0, masked.code.len() - 1);
    over(path, 0, "the file", lines, FILE_LINES_SOFT, FILE_LINES_HARD)
}

/// A finding if `lines` is past a limit.
fn over(
    path: &str,
    line: usize,
    what: &str,
    lines: usize,
    soft: usize,
    hard: usize,
) -> Option<Finding> {
    if lines > hard {
        let what = format!("{what} has {lines} lines of code; the most is {hard}");
        return Some(Finding::failure(path, line, what));
    }
    let what = format!("{what} has {lines} lines of code; {soft} read well");
    (lines > soft).then(|| Finding::note(path, line, what))
}

fn check_functions(path: &str, masked: &Masked) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (first, line) in masked.code.iter().enumerate() {
        for (column, _) in words(line, "fn") {
            // `fn(` is a type and not a function.
            let Some(name) = identifier(line[column + 2..].trim_start()) else { continue };
            let Some(last) = body_end(masked, first, column) else { continue };
            let lines = masked.code_lines(first, last);
            let what = format!("`{name}`");
            findings.extend(over(
                path,
                first + 1,
                &what,
                lines,
                FUNCTION_LINES_SOFT,
                FUNCTION_LINES_HARD,
            ));
        }
    }
    findings
}

/// The line on which the body of the function at `line`, `column` ends; none if it has no body.
fn body_end(masked: &Masked, line: usize, column: usize) -> Option<usize> {
    let (mut braces, mut brackets) = (0_i64, 0_i64);
    for (index, text) in masked.code.iter().enumerate().skip(line) {
        let from = if index == line { column } else { 0 };
        for c in text[from..].chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces == 0 && brackets == 0 {
                        return Some(index);
                    }
                }
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// Where `word` stands in `line` as a word of its own, with what follows it.
pub(super) fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        let rest = &line[at + word.len()..];
        let apart = !before.is_some_and(is_word) && !rest.chars().next().is_some_and(is_word);
        apart.then_some((at, rest))
    })
}

/// The identifier that `text` starts with.
fn identifier(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

/// The most columns of a line that is a comment; code has rustfmt's width, which is the same.
const COMMENT_COLUMNS_MAX: usize = 100;

/// What no comment says: a quantity, or the thread or the caller that is meant, has a name.
const UNNAMED: [&str; 2] = ["so many", "whoever"];

fn check_comments(path: &str, text: &str, masked: &Masked) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, (line, comment)) in text.lines().zip(&masked.comments).enumerate() {
        let said = comment.to_lowercase();
        for phrase in UNNAMED.iter().filter(|phrase| said.contains(**phrase)) {
            let what = format!("has \"{phrase}\" in a comment: name what is meant");
            findings.push(Finding::failure(path, index + 1, what));
        }
        // A table's row, or an address, cannot be wrapped.
        let is_whole =
            comment.trim_start_matches(['/', '!', ' ']).starts_with('|') || comment.contains("://");
        let columns = line.chars().count();
        let is_comment = !comment.trim().is_empty() && masked.has_no_code(index);
        if columns > COMMENT_COLUMNS_MAX && is_comment && !is_whole {
            let what =
                format!("has a comment of {columns} columns; the most is {COMMENT_COLUMNS_MAX}");
            findings.push(Finding::failure(path, index + 1, what));
        }
    }
    findings
}

fn check_leftovers(path: &str, masked: &Masked) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, (code, comments)) in masked.code.iter().zip(&masked.comments).enumerate() {
        for word in ["TODO", "FIXME", "XXX"] {
            if words(comments, word).next().is_some() {
                findings.push(Finding::failure(path, index + 1, format!("has a {word}")));
            }
        }
        for name in ["dbg", "todo", "unimplemented"] {
            if calls_macro(code, name) {
                findings.push(Finding::failure(path, index + 1, format!("has a `{name}!`")));
            }
        }
    }
    findings
}

fn check_printing(path: &str, masked: &Masked) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !NO_PRINTING.iter().any(|prefix| path.starts_with(prefix)) || is_test_file(path) {
        return findings;
    }
    // Tests may print.
    for (index, code) in masked.code.iter().enumerate().take(tests_start(masked)) {
        for name in ["println", "eprintln", "print", "eprint"] {
            if calls_macro(code, name) {
                let what = format!("has a `{name}!`: write to the output that was given");
                findings.push(Finding::failure(path, index + 1, what));
            }
        }
    }
    findings
}

/// The first line of a file's tests, which stand at its end; the number of lines if it has none.
pub(super) fn tests_start(masked: &Masked) -> usize {
    let starts = masked.code.windows(2).position(|lines| {
        lines[0].starts_with("#[cfg(test)]")
            && lines[1].starts_with("mod ")
            && lines[1].contains('{')
    });
    starts.unwrap_or(masked.code.len())
}

/// Whether a file under `src/` holds only tests.
pub(super) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn calls_macro(code: &str, name: &str) -> bool {
    words(code, name).any(|(_, rest)| rest.starts_with('!'))
}

fn check_unsafe(path: &str, masked: &Masked) -> Vec<Finding> {
    let mut findings = Vec::new();
    let allowed = UNSAFE_ALLOWED.iter().any(|prefix| path.starts_with(prefix));
    for (index, code) in masked.code.iter().enumerate() {
        for (_, rest) in words(code, "unsafe") {
            let after = rest.trim_start();
            let is_declaration = after.starts_with("fn ") || after.starts_with("trait ");
            // A type such as `unsafe fn(*mut u8)`, or the name of a lint's attribute, is no act.
            if after.starts_with("fn(") || after.starts_with(')') {
                continue;
            }
            if !allowed {
                let what = "has `unsafe` outside the modules that may";
                findings.push(Finding::failure(path, index + 1, what));
            }
            let wanted = if is_declaration { "# Safety" } else { "SAFETY:" };
            if !is_justified(masked, index, wanted) {
                let what = format!("has `unsafe` without `{wanted}` in the comment above it");
                findings.push(Finding::failure(path, index + 1, what));
            }
        }
        if !allowed && code.contains("allow(unsafe_code") {
            let what = "allows unsafe code outside the modules that may";
            findings.push(Finding::failure(path, index + 1, what));
        }
    }
    findings
}

/// Whether `wanted` stands in a comment on `line` or above it within the same statement.
fn is_justified(masked: &Masked, line: usize, wanted: &str) -> bool {
    if masked.comments[line].contains(wanted) {
        return true;
    }
    for above in (0..line).rev() {
        let code = masked.code[above].trim();
        let is_attribute = code.starts_with('#') && code.ends_with(']');
        let ends_before = code.ends_with([';', '{', '}', ',']) && !is_attribute;
        if ends_before || (code.is_empty() && masked.comments[above].trim().is_empty()) {
            return false;
        }
        if masked.comments[above].contains(wanted) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{super::Severity, *};

    /// What is found in `code` as a module with a heading.
    fn findings(path: &str, code: &str) -> Vec<String> {
        let text = format!("//! A module.\n{code}");
        check(path, &text).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn assert_found(path: &str, code: &str, what: &str) {
        let found = findings(path, code);
        assert!(found.iter().any(|f| f.contains(what)), "{what:?} not in {found:?}");
    }

    #[track_caller]
    fn assert_clean(path: &str, code: &str) {
        assert_eq!(findings(path, code), [""; 0]);
    }

    const STORE: &str = "crates/store/src/db/x.rs";

    #[test]
    fn whitespace_is_found() {
        assert_found("a.md", "a\tb\n", "tab");
        assert_found("a.md", "a \n", "space");
        assert_found("a.md", "a", "newline");
        assert_clean("a.md", "a b\n");
    }

    #[test]
    fn a_module_says_what_it_is_for() {
        let found = check(STORE, "use std::io;\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("//!"));
    }

    #[test]
    fn lengths_are_counted_in_code() {
        let function =
            |lines: usize| format!("fn long() {{\n{}}}\n", "    f();\n".repeat(lines - 2));
        assert_clean(STORE, &function(FUNCTION_LINES_SOFT));
        assert_found(STORE, &function(FUNCTION_LINES_SOFT + 1), "note: ");
        assert_found(STORE, &function(FUNCTION_LINES_HARD + 1), "error: ");
        let commented = format!("fn f() {{\n{}}}\n", "    // why\n\n".repeat(100));
        assert_clean(STORE, &commented);
        assert_found(STORE, &"const A: u8 = 0;\n".repeat(FILE_LINES_SOFT + 1), "note: ");
        assert_found(STORE, &"const A: u8 = 0;\n".repeat(FILE_LINES_HARD + 1), "error: ");
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let after = "    f();\n".repeat(FUNCTION_LINES_HARD);
        let declared = format!("trait T {{\n    fn f(a: [u8; 2]);\n{after}}}\n");
        assert_clean(STORE, &declared);
        let braces_in_text = format!("fn f() {{ g(\"{{\", '{{') }}\nmod m {{\n{after}}}\n");
        assert_clean(STORE, &braces_in_text);
        let function_type = format!("const F: fn(u8) = g;\nmod m {{\n{after}}}\n");
        assert_clean(STORE, &function_type);
    }

    #[test]
    fn leftovers_are_found() {
        assert_found(STORE, "// TODO: more\n", "TODO");
        assert_found(STORE, "/* FIXME */\n", "FIXME");
        assert_found(STORE, "fn f() { dbg!(1); }\n", "dbg");
        assert_found(STORE, "fn f() { todo!() }\n", "todo");
        assert_clean(STORE, "const A: &str = \"TODO dbg!(1)\"; // todos!\n");
    }

    #[test]
    fn comments_are_wrapped_and_name_what_they_mean() {
        let long = format!("// {}\n", "word ".repeat(20));
        assert_found(STORE, &long, "columns");
        assert_found(STORE, "/// Of So many keys.\nstruct A;\n", "so many");
        assert_found(STORE, "// Freed by whoever holds it.\n", "whoever");
        assert_clean(STORE, &format!("//! | {} |\n", "word ".repeat(30)));
        assert_clean(STORE, "const TEXT: &str = \"so many\";\n");
        let text = format!("const TEXT: &str = \"a\n{}\";\n", "word ".repeat(30));
        assert_clean(STORE, &text);
    }

    #[test]
    fn printing_is_found_in_libraries() {
        for name in ["println", "eprintln", "print", "eprint"] {
            let code = format!("fn f() {{ {name}!(\"a\"); }}\n");
            assert_found(STORE, &code, name);
            assert_clean("crates/store/tests/x.rs", &code);
        }
        let code = "fn f() { println!(\"a\"); }\n";
        assert_clean("crates/model/src/pla/tests.rs", code);
        assert_clean(STORE, &format!("#[cfg(test)]\nmod tests {{\n{code}}}\n"));
        assert_found(STORE, &format!("#[cfg(test)]\nmod tests;\n{code}"), "println");
        assert_clean(STORE, "/// Like `println!(\"a\")`.\nfn f() { writeln!(g, \"println!\"); }\n");
    }

    #[test]
    fn unsafe_is_found_outside_its_modules() {
        let code = "fn f() {\n    // SAFETY: a fact.\n    unsafe { g() }\n}\n";
        assert_found(STORE, code, "outside the modules");
        assert_found(STORE, "#[allow(unsafe_code)]\nfn f() {}\n", "allows unsafe code");
        assert_clean(STORE, "#![deny(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe {\";\n");
    }

    #[test]
    fn unsafe_is_allowed_in_its_modules() {
        let code =
            "#![allow(unsafe_code)]\nfn f() {\n    // SAFETY: a fact.\n    unsafe { g() }\n}\n";
        assert_clean(UNSAFE_ALLOWED[0], code);
    }

    #[test]
    fn unsafe_needs_its_reason() {
        let reason = "without `SAFETY:`";
        assert_found(STORE, "fn f() {\n    unsafe { g() }\n}\n", reason);
        let of_another = "fn f() {\n    // SAFETY: a fact.\n    a();\n    unsafe { g() }\n}\n";
        assert_found(STORE, of_another, reason);
        assert_found(STORE, "/// Does.\npub unsafe fn f() {}\n", "without `# Safety`");
        let lacks_reason = |code: &str| findings(STORE, code).iter().any(|f| f.contains("without"));
        assert!(!lacks_reason("// SAFETY: a fact.\nunsafe impl Send for A {}\n"));
        assert!(!lacks_reason(
            "fn f() {\n    // SAFETY: a fact.\n    let a =\n        unsafe { g() };\n}\n"
        ));
        assert!(!lacks_reason("/// # Safety\n/// A rule.\n#[inline]\npub unsafe fn f() {}\n"));
        assert!(lacks_reason("/// Promises.\npub unsafe trait T {}\n"));
        assert!(!lacks_reason("/// # Safety\n/// A rule.\npub unsafe trait T {}\n"));
        assert!(!lacks_reason("type F = unsafe fn(*mut u8);\n"));
    }

    #[test]
    fn notes_do_not_fail() {
        let note = Finding::note("a", 1, "x");
        let failure = Finding::failure("a", 1, "x");
        assert!(note.severity == Severity::Note && note < failure);
    }
}
