//! Rules about the repository as a whole: which files there are, how large, and what the documents
//! must say.

use std::{io, path::Path, process::Command};

use super::Finding;

/// The most bytes of a file in the repository.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Files that must be there.
const REQUIRED: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

/// What the README must show: how the source is fetched and how real data are loaded.
const README_COMMANDS: [&str; 2] = ["git clone", "cargo run --release -- load"];

/// How the documents of the bytes on disk begin.
const FORMAT_DOCUMENTS: &str = "docs/format";

/// How a path begins that a document may name.
const NAMED_PATHS: [&str; 7] =
    ["crates/", "bench/", "compare/", "docs/", "fuzz/", "xtask/", ".ci/"];

/// Lists the files of the repository that git tracks or would track, relative to `root`.
pub(crate) fn list_files(root: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let mut files: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter(|path| !path.is_empty() && root.join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Whether the rules about text hold for the file.
pub(super) fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    matches!(extension, Some("rs" | "md" | "toml" | "sh" | "yml" | "py")) || path == ".ci/run"
}

/// Checks `files`, which are relative to `root`.
pub(super) fn check(root: &Path, files: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in files {
        let bytes = root.join(path).metadata().map_or(0, |metadata| metadata.len());
        if bytes > FILE_BYTES_MAX {
            let what = format!("has {bytes} bytes; the most is {FILE_BYTES_MAX}");
            findings.push(Finding::failure(path, 0, what));
        }
    }
    for required in REQUIRED {
        if !files.iter().any(|path| path == required) {
            findings.push(Finding::failure(required, 0, "is missing"));
        }
    }
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    findings.extend(check_readme(&read("README.md")));
    let mut format = String::new();
    for document in files.iter().filter(|path| path.ends_with(".md")) {
        let text = read(document);
        findings.extend(check_named_paths(document, &text, files));
        if document.starts_with(FORMAT_DOCUMENTS) {
            format.push_str(&text);
        }
    }
    findings.extend(check_format_documents(files, &format));
    findings
}

fn check_readme(readme: &str) -> Vec<Finding> {
    let missing = README_COMMANDS.iter().filter(|command| !readme.contains(**command));
    missing
        .map(|command| Finding::failure("README.md", 0, format!("must show `{command}`")))
        .collect()
}

/// Every file of format constants is named by a document of the format.
fn check_format_documents(files: &[String], text: &str) -> Vec<Finding> {
    let mut constants: Vec<&String> = files.iter().collect();
    constants.retain(|path| path.starts_with("crates/") && path.ends_with("/format.rs"));
    constants.retain(|path| !text.contains(path.as_str()));
    let what = format!("is not named in {FORMAT_DOCUMENTS}.md or {FORMAT_DOCUMENTS}/");
    constants.iter().map(|path| Finding::failure(path, 0, &*what)).collect()
}

/// Every path of this repository that a document names in backquotes is there.
fn check_named_paths(document: &str, text: &str, files: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Every other piece is between two backquotes.
        for named in line.split('`').skip(1).step_by(2) {
            let is_path = NAMED_PATHS.iter().any(|start| named.starts_with(start))
                && !named.contains(|c: char| c.is_whitespace() || "*{<".contains(c));
            let directory = format!("{}/", named.trim_end_matches('/'));
            let is_there = files.iter().any(|path| path == named || path.starts_with(&directory));
            if is_path && !is_there {
                let what = format!("names `{named}`, which is not there");
                findings.push(Finding::failure(document, index + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.path.as_str()).collect()
    }

    #[test]
    fn a_format_file_must_be_named() {
        let files = ["crates/store/src/log/format.rs".into(), "crates/store/src/log/mod.rs".into()];
        assert_eq!(
            paths(&check_format_documents(&files, "# Bytes")),
            ["crates/store/src/log/format.rs"]
        );
        let document = "The constants are in `crates/store/src/log/format.rs`.";
        assert!(check_format_documents(&files, document).is_empty());
    }

    #[test]
    fn what_a_document_names_must_be_there() {
        let files = ["crates/store/src/lib.rs".into()];
        let text = "See `crates/store/src/lib.rs`, `crates/store/`, `lib.rs`, `crates/*/x`.\n\
                    And `crates/store/src/gone.rs`.\n";
        let found = check_named_paths("docs/a.md", text, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].line == 2 && found[0].what.contains("gone.rs"));
    }

    #[test]
    fn the_readme_must_show_the_commands() {
        assert_eq!(check_readme("git clone it").len(), 1);
        assert!(check_readme("git clone x\ncargo run --release -- load names.txt").is_empty());
    }

    #[test]
    fn missing_and_large_files_are_found() {
        let dir = std::env::temp_dir().join(format!("rhumb-tidy-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("large.bin"), vec![0; (FILE_BYTES_MAX + 1) as usize]).unwrap();
        std::fs::write(dir.join("LICENSE-MIT"), "x").unwrap();
        let findings = check(&dir, &["large.bin".into(), "LICENSE-MIT".into()]);
        std::fs::remove_dir_all(&dir).unwrap();
        let paths = paths(&findings);
        assert!(paths.contains(&"large.bin") && paths.contains(&"LICENSE-APACHE"));
        assert!(!paths.contains(&"LICENSE-MIT"));
    }

    #[test]
    fn text_is_told_from_data() {
        assert!(is_text("crates/store/src/lib.rs") && is_text(".ci/run") && is_text("README.md"));
        assert!(!is_text("fuzz/seeds/block.bin") && !is_text("LICENSE-MIT"));
    }
}
