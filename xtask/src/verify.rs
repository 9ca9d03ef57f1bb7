//! The suites that need a build of their own: models of the index under loom, whole maps under
//! shuttle, and the index's tests under sanitizers. CONTRIBUTING.md says what each shows. Beside
//! them, those in which planted bugs are to be caught.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

const USAGE: &str = "\
Usage: cargo xtask verify <SUITE> [FILTER]...

Suites:
  models      The index's parts and dead ranges under loom: every order of steps and every value
              that may be read.
  remote      Readers of a region beside its writer, likewise.
  schedules   Whole maps under shuttle; RHUMB_SCHEDULES=n schedules of each kind.
  threads     The index's tests under ThreadSanitizer. Needs a nightly compiler with rust-src.
  addresses   The same under AddressSanitizer.
A FILTER is part of a test's name.
";

/// What sanitized tests run on, unless the environment says otherwise: they are slower by far.
const SMALL: [(&str, &str); 2] = [("RHUMB_INDEX_HISTORIES", "60"), ("RHUMB_INDEX_KEYS", "20000")];

/// Builds for sanitizers name their target, so that build scripts stay as they are.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A suite with a build of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    Models,
    Remote,
    Schedules,
    Threads,
    Addresses,
    /// The library's own tests of the index.
    Unit,
    /// The index's tests from outside.
    Index,
    /// The remote tier's own tests: leaves, tables and what readers see of them.
    Regions,
    /// The remote tier's tests with hosts that are processes of their own.
    Processes,
    /// The remote tier's histories, readers and clients that end, in processes of their own.
    Proofs,
    /// Shared keyspaces of a database.
    Share,
    /// What follows the writes of a keyspace.
    Taps,
    /// Transactions of a database.
    Transactions,
    /// Entries that expire.
    Expiry,
    /// Streams of changes.
    Changes,
    /// Backups in buckets.
    Backups,
    /// The server's sweeper.
    Sweeper,
}

impl Suite {
    fn named(name: &str) -> Option<Self> {
        [Self::Models, Self::Remote, Self::Schedules, Self::Threads, Self::Addresses]
            .into_iter()
            .find(|suite| suite.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Remote => "remote",
            Self::Schedules => "schedules",
            Self::Threads => "threads",
            Self::Addresses => "addresses",
            Self::Unit => "unit",
            Self::Index => "index",
            Self::Regions => "regions",
            Self::Processes => "processes",
            Self::Proofs => "proofs",
            Self::Share => "share",
            Self::Taps => "taps",
            Self::Transactions => "transactions",
            Self::Expiry => "expiry",
            Self::Changes => "changes",
            Self::Backups => "backups",
            Self::Sweeper => "sweeper",
        }
    }

    fn flags(self) -> &'static str {
        match self {
            Self::Models | Self::Remote => "--cfg loom",
            Self::Schedules => "--cfg shuttle",
            Self::Threads => "--cfg sanitized -Zsanitizer=thread",
            Self::Addresses => "--cfg sanitized -Zsanitizer=address",
            _ => "",
        }
    }

    /// The packages that it tests.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Models => &["rhumb-index", "rhumb-testkit"],
            Self::Schedules | Self::Threads | Self::Addresses | Self::Unit | Self::Index => {
                &["rhumb-index"]
            }
            Self::Remote | Self::Regions | Self::Processes | Self::Proofs => &["rhumb-remote"],
            Self::Share => &["rhumb-share"],
            Self::Sweeper => &["rhumb-server"],
            Self::Taps | Self::Transactions | Self::Expiry | Self::Changes | Self::Backups => {
                &["rhumb"]
            }
        }
    }

    /// Returns true if it is built as `cargo test` builds it. The suites of the index are not: they
    /// take several times as long without optimisation.
    fn is_plain(self) -> bool {
        self.flags().is_empty() && !matches!(self, Self::Unit | Self::Index)
    }

    /// Where it is built: what is built alike shares its dependencies.
    fn directory(self) -> &'static str {
        match self {
            Self::Remote => Self::Models.name(),
            _ if self.is_plain() => "plain",
            _ => self.name(),
        }
    }

    /// Its tests, in the package.
    fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Models => &["--lib", "--test", "dead_ranges"],
            Self::Remote | Self::Unit | Self::Regions | Self::Sweeper => &["--lib"],
            Self::Schedules => &["--test", "schedules"],
            Self::Threads => &["--test", "index", "-Zbuild-std", "--target", TARGET],
            Self::Addresses => &["--test", "index", "--target", TARGET],
            Self::Index => &["--test", "index"],
            Self::Processes => &["--test", "processes"],
            Self::Proofs => &["--test", "proofs"],
            Self::Share => &["--test", "shared"],
            Self::Taps => &["--test", "taps"],
            Self::Transactions => &["--test", "transactions"],
            Self::Expiry => &["--test", "expiry"],
            Self::Changes => &["--test", "changes"],
            Self::Backups => &["--features", "object-store", "--test", "bucket"],
        }
    }

    /// The command that runs the tests whose names contain one of `filters`, or all, on the sources
    /// at `root`, with builds in `target`.
    pub(crate) fn command(self, root: &Path, target: &Path, filters: &[&str]) -> Command {
        let is_sanitized = matches!(self, Self::Threads | Self::Addresses);
        let mut command = Command::new("cargo");
        if is_sanitized {
            command.arg("+nightly");
        }
        command.arg("test").args((!self.is_plain()).then_some("--release"));
        for package in self.packages() {
            command.args(["--package", package]);
        }
        command.args(self.tests());
        let all: &[&str] = match self {
            Self::Models => &["models::", "dead_range"],
            Self::Remote => &["models::"],
            _ => &[],
        };
        command.arg("--").args(if filters.is_empty() { all } else { filters });
        command.current_dir(root).env("CARGO_TARGET_DIR", target.join(self.directory()));
        command.env("RUSTFLAGS", self.flags());
        // Built in half of the time.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off");
        if is_sanitized {
            for (variable, value) in SMALL {
                if env::var_os(variable).is_none() {
                    command.env(variable, value);
                }
            }
        }
        command
    }
}

/// Where builds go.
pub(crate) fn target_directory(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Runs a suite.
///
/// # Errors
/// If there is no such suite, it cannot be run, or a test fails.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let Some(suite) = args.first().and_then(|name| Suite::named(name)) else {
        eprint!("{USAGE}");
        bail!("which suite?");
    };
    let filters: Vec<&str> = args[1..].iter().map(String::as_str).collect();
    let mut command = suite.command(root, &target_directory(root), &filters);
    command.arg("--nocapture");
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the suite failed: {status}");
    }
    Ok(())
}
