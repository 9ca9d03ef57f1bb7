//! Plants known bugs in a copy of the sources, one at a time, and sees that a suite catches each: a
//! suite that catches none of its bugs would not catch others.
//!
//! The copy and its builds are in `target/planted`; the sources are not touched.

mod bugs;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};

use self::bugs::Bug;
use crate::{
    tidy,
    verify::{Suite, target_directory},
};

/// Plants the bugs whose names contain one of `names`, or all of them.
///
/// # Errors
/// If a suite fails without a bug; or, once all bugs were tried, if one was not caught, does not
/// compile, or is not in the sources any more.
pub(crate) fn run(root: &Path, names: &[String]) -> anyhow::Result<()> {
    let is_wanted = |bug: &Bug| names.is_empty() || names.iter().any(|n| bug.name.contains(&**n));
    let bugs: Vec<&Bug> = bugs::all().filter(|bug| is_wanted(bug)).collect();
    let copy = Copy::new(root)?;
    let mut suites: Vec<Suite> = bugs.iter().map(|bug| bug.suite).collect();
    suites.dedup();
    for suite in suites {
        let filters: Vec<&str> =
            bugs.iter().filter(|bug| bug.suite == suite).map(|bug| bug.test).collect();
        if !copy.passes(suite, &filters)? {
            bail!("the suite {} fails without a bug", suite.name());
        }
    }
    let mut missed = Vec::new();
    for bug in &bugs {
        let start = Instant::now();
        // One that does not compile any more is told of, and the others are planted all the same.
        let outcome = copy.catches(bug);
        let seconds = start.elapsed().as_secs_f64();
        let says = match outcome {
            Ok(true) => "caught",
            Ok(false) => "MISSED",
            Err(_) => "FAILED",
        };
        let (suite, test) = (bug.suite.name(), bug.test);
        println!("{says} in {seconds:3.0} s: {} ({suite}, {test})", bug.name);
        if let Err(error) = &outcome {
            println!("{error:#}");
        }
        if !matches!(outcome, Ok(true)) {
            missed.push(bug.name);
        }
    }
    if !missed.is_empty() {
        bail!("{} of {} bugs were not caught: {missed:?}", missed.len(), bugs.len());
    }
    println!("{} bugs were planted and caught", bugs.len());
    Ok(())
}

/// A copy of the repository that bugs are planted in.
struct Copy {
    root: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn new(root: &Path) -> anyhow::Result<Self> {
        let place = target_directory(root).join("planted");
        let copy = Self { root: place.join("sources"), target: place.join("builds") };
        for path in tidy::list_files(root).context("cannot list the repository's files")? {
            let text = fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
            copy.write(&path, &text)?;
        }
        Ok(copy)
    }

    /// Writes a file unless it is the same already, which would have it compiled again.
    fn write(&self, path: &str, text: &[u8]) -> anyhow::Result<()> {
        let to = self.root.join(path);
        if fs::read(&to).is_ok_and(|now| now == text) {
            return Ok(());
        }
        fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))
    }

    /// Whether the suite catches the bug.
    fn catches(&self, bug: &Bug) -> anyhow::Result<bool> {
        let sound = fs::read_to_string(self.root.join(bug.file))
            .with_context(|| format!("cannot read {}", bug.file))?;
        let planted = bug.plant(&sound)?;
        self.write(bug.file, planted.as_bytes())?;
        let outcome = self.passes(bug.suite, &[bug.test]);
        self.write(bug.file, sound.as_bytes())?;
        outcome.map(|passes| !passes).with_context(|| format!("with the bug {}", bug.name))
    }

    /// Whether the tests pass, each in a build that succeeds.
    fn passes(&self, suite: Suite, filters: &[&str]) -> anyhow::Result<bool> {
        let mut build = suite.command(&self.root, &self.target, &["--list"]);
        let built = build.stderr(Stdio::piped()).stdout(Stdio::null()).output()?;
        if !built.status.success() {
            bail!("does not compile: {}", String::from_utf8_lossy(&built.stderr));
        }
        let mut command = suite.command(&self.root, &self.target, filters);
        // A failure is enough: nobody reads the smallest input, and the next run finds its own.
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        let Output { status, stdout, .. } = command.stderr(Stdio::null()).output()?;
        // A suite may be of several programs, and the test is in one of them.
        let stdout = String::from_utf8_lossy(&stdout);
        let mut runs = stdout.lines().filter_map(|line| line.strip_prefix("running "));
        if status.success() && runs.all(|tests| tests.starts_with("0 ")) {
            bail!("no test of {} is named {filters:?}", suite.name());
        }
        Ok(status.success())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_bug_can_be_planted_and_is_in_the_documents() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let document = fs::read_to_string(root.join("docs/testing.md")).unwrap();
        let mut wrong = Vec::new();
        for bug in bugs::all() {
            let text = fs::read_to_string(root.join(bug.file)).unwrap();
            match bug.plant(&text) {
                Ok(planted) if planted != text => {}
                Ok(_) => wrong.push(format!("{}: changes nothing", bug.name)),
                Err(error) => wrong.push(error.to_string()),
            }
            let row = document.lines().find(|line| line.contains(&format!("| {} |", bug.name)));
            match row {
                Some(row) if row.contains(bug.suite.name()) && row.contains(bug.test) => {}
                Some(row) => wrong.push(format!("{}: another suite or test in {row}", bug.name)),
                None => wrong.push(format!("docs/testing.md lacks {}", bug.name)),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_anchor_in_the_sources_is_of_one_bug() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut planted: BTreeSet<(String, String)> = BTreeSet::new();
        for (file, anchor) in bugs::all().filter_map(Bug::anchor) {
            let is_new = planted.insert((file.to_owned(), anchor.to_owned()));
            assert!(is_new, "two bugs have the anchor {anchor}");
        }
        let sources = tidy::list_files(&root).unwrap();
        for path in sources.iter().filter(|path| path.starts_with("crates/")) {
            let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
            for anchor in text.lines().filter_map(|line| line.trim().strip_prefix(bugs::ANCHOR)) {
                let is_known = planted.remove(&(path.clone(), anchor.to_owned()));
                assert!(is_known, "{path}: no bug is for {anchor}; left are {planted:?}");
            }
        }
        assert!(planted.is_empty(), "anchors that are in no source: {planted:?}");
    }
}
