//! `replicate`: keeps a copy of a database up to date, from its log.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use rhumb::{
    Changes, ChangesOptions, Commit, Cursor, Database, DatabaseBuilder, Error, PersistMode,
};
use rhumb_server::parse_memory;
use serde_json::json;

use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    output::{Output, counted},
};

/// How long the copy waits for the next commit before it looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The number of commits that the copy takes together, with one write to its log.
const GROUP_MAX: usize = 1024;

/// The most bytes of commits that are held in memory at a time, but for one that is larger.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// How often the copy is made durable and the cursor moved, while commits come: what is taken again
/// after a crash is at most this much.
const PERSIST_EVERY: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  rhumb replicate shop.db copy.db           go on until Ctrl-C
  rhumb replicate shop.db copy.db --once    take what there is, and end

Without COPY, a copy is made first, for which no other process may have the database open. While a
server has it open, restore a backup of it as COPY (BGSAVE, then `rhumb restore`): call this once
before the backup, which keeps the log from then on.

The copy is at every moment what the database was at some moment, and takes no other writes. Either
process may be killed at any time: start it again. Only what survives a power cut is taken. A cursor
keeps the log of the database for the copy while this command does not run, up to --keep. To use the
copy as a database of its own, open it as any other; from then on it takes no more changes.";

/// Keep a copy of a database up to date
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Replicate {
    /// Directory of the database
    #[arg(value_name = "DB")]
    source: PathBuf,
    /// Directory of the copy
    #[arg(value_name = "COPY")]
    copy: PathBuf,
    /// End once the copy has what the database has
    #[arg(long)]
    once: bool,
    /// Name of the cursor; each copy of a database needs one of its own
    #[arg(long, value_name = "NAME", default_value = "replicate")]
    cursor: String,
    /// Log that is kept for the copy, at most: 512MiB, 4GiB, or bytes
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_memory)]
    keep: u64,
    /// Memory for each of the two databases: 64MiB, 4GiB, or bytes
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_memory)]
    memory: u64,
    /// Print an object at the end
    #[arg(long)]
    json: bool,
}

impl Replicate {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let interrupt = Interrupt::listen()?;
        if !self.copy.exists() {
            self.make_copy()?;
        }
        let copy = self.builder(&self.copy).replica(true).open()?;
        let source = self.builder(&self.source).open_read_only()?;
        let cursor = source.cursor(&self.cursor, self.keep)?;
        let from = copy.stats().sequence_number + 1;
        let options = ChangesOptions::default().durable(true);
        let changes = source.changes_with(from, options).map_err(|error| self.explained(error))?;
        let mut follower = Follower { copy, cursor, taken: 0, persisted: Instant::now() };
        follower.follow(changes, self.once, &interrupt).map_err(|error| self.explained(error))?;
        let (taken, at) = (follower.taken, follower.copy.stats().sequence_number);
        if self.json {
            return out.json(&json!({ "commits": taken, "sequence_number": at }));
        }
        let (copy, commits) = (self.copy.display(), counted(taken, "commit"));
        out.line(format!("{copy}: {commits} taken, up to number {at}"))
    }

    fn builder(&self, path: &Path) -> DatabaseBuilder {
        let builder = Database::builder(path).memory_budget_bytes(self.memory);
        builder.create_if_missing(false)
    }

    /// Makes the copy, under another name until it is whole.
    fn make_copy(&self) -> Outcome {
        let source = match self.builder(&self.source).open() {
            Err(Error::Locked { holder, .. }) => return Err(self.refused(&holder)?),
            other => other?,
        };
        let mut partial = self.copy.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let failed = |what: &str, error: std::io::Error| {
            Failure::failed(format!("cannot {what} {}: {error}", partial.display()))
        };
        if partial.exists() {
            // What a copy has left that was ended.
            fs::remove_dir_all(&partial).map_err(|error| failed("remove", error))?;
        }
        // The log is kept from here on.
        drop(source.cursor(&self.cursor, self.keep)?);
        source.checkpoint(&partial)?;
        fs::rename(&partial, &self.copy).map_err(|error| failed("rename", error))?;
        Ok(source.close()?)
    }

    /// Says what to do if another process has the database open: it makes a backup, and the log is
    /// kept from now on.
    fn refused(&self, holder: &str) -> Outcome<Failure> {
        let source = self.builder(&self.source).open_read_only()?;
        drop(source.cursor(&self.cursor, self.keep)?);
        Ok(Failure::failed(format!(
            "there is no copy at {}, and {holder} has {} open: have it make a backup now (BGSAVE), \
             restore that as the copy, and call again; the log is kept until then",
            self.copy.display(),
            self.source.display()
        )))
    }

    /// Says what to do about a copy that cannot go on.
    fn explained(&self, error: Error) -> Failure {
        match error {
            Error::Lagged { .. } => Failure::failed(format!(
                "{}: {error}; remove it, and call again",
                self.copy.display()
            )),
            error => error.into(),
        }
    }
}

/// Takes commits into the copy.
struct Follower {
    copy: Database,
    cursor: Cursor,
    taken: u64,
    /// When the copy was last made durable.
    persisted: Instant,
}

impl Follower {
    /// Takes what comes, until there is nothing more, or a signal comes.
    fn follow(
        &mut self,
        mut changes: Changes,
        once: bool,
        interrupt: &Interrupt,
    ) -> rhumb::Result<()> {
        let mut commits: Vec<Commit> = Vec::new();
        while !interrupt.has_come() {
            let mut bytes = 0;
            while commits.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
                let Some(commit) = changes.try_next()? else { break };
                bytes += commit.bytes();
                commits.push(commit);
            }
            if !commits.is_empty() {
                self.taken += self.copy.apply(&commits)?;
                commits.clear();
                if self.persisted.elapsed() >= PERSIST_EVERY {
                    self.persist()?;
                }
                continue;
            }
            self.persist()?;
            if once {
                return Ok(());
            }
            commits.extend(changes.next_within(LOOK_EVERY)?);
        }
        self.persist()
    }

    /// Makes the copy durable, and lets the log go up to there.
    fn persist(&mut self) -> rhumb::Result<()> {
        let position = self.copy.stats().sequence_number + 1;
        if position > self.cursor.position() {
            self.copy.persist(PersistMode::SyncData)?;
            self.cursor.advance(position)?;
        }
        self.persisted = Instant::now();
        Ok(())
    }
}
