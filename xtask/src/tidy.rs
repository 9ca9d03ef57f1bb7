//! The repository's rules, as far as a program can check them.
//!
//! Every rule here is checked in full on the files it names; what cannot be checked from the text
//! is left to `clippy` and to review. A finding is either a failure (the task ends with an error)
//! or a note (a soft limit, listed so that it is seen).

mod formats;
mod layers;
mod mask;
mod repository;
mod source;

pub(crate) use self::repository::list_files;
use std::{fmt, path::Path};

use anyhow::{Context, bail};

/// Checks the repository at `root` and prints what it found.
///
/// # Errors
/// If a rule is broken, or the list of files cannot be read.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let files = repository::list_files(root).context("cannot list the repository's files")?;
    let mut findings = repository::check(root, &files);
    for path in files.iter().filter(|path| repository::is_text(path)) {
        let bytes =
            std::fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        match String::from_utf8(bytes) {
            Ok(text) => findings.extend(source::check(path, &text)),
            Err(_) => findings.push(Finding::failure(path, 0, "is not UTF-8")),
        }
    }
    findings.extend(layers::check_packages(root));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let failures = findings.iter().filter(|f| f.severity == Severity::Failure).count();
    let notes = findings.len() - failures;
    if failures > 0 {
        bail!("{failures} rules broken in {} files, {notes} notes", files.len());
    }
    println!("tidy: {} files, {notes} notes", files.len());
    Ok(())
}

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Past a soft limit: listed only.
    Note,
    /// A broken rule.
    Failure,
}

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    severity: Severity,
    /// Relative to the root, with `/`.
    path: String,
    /// From 1; 0 if the finding is about the whole file.
    line: usize,
    what: String,
}

impl Finding {
    fn failure(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { severity: Severity::Failure, path: path.into(), line, what: what.into() }
    }

    fn note(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { severity: Severity::Note, path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Note => "note",
            Severity::Failure => "error",
        };
        write!(f, "{severity}: {}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.what)
    }
}
