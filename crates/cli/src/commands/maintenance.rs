//! `compact`, `checkpoint` and `drop`: the database as a whole.

use std::path::PathBuf;

use clap::Args;
use rhumb::KeyspaceOptions;
use serde_json::json;

use super::open::{DatabaseArg, KeyspaceArg};
use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    output::{self, Output, Progress},
};

const COMPACT_EXAMPLES: &str = "\
Examples:
  rhumb compact
  rhumb compact --keyspace users --json

Rewrites a keyspace without replaced and removed entries. Reads and writes of other processes are
not possible meanwhile, as with every command that writes.";

/// Rewrite a keyspace so that it takes the least space
#[derive(Debug, Args)]
#[command(after_help = COMPACT_EXAMPLES)]
pub(crate) struct Compact {
    #[command(flatten)]
    target: KeyspaceArg,
    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Compact {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let (db, keyspace) = self.target.open()?;
        let directory = &self.target.database.db;
        let before = directory_bytes(directory);
        let interrupt = Interrupt::listen()?;
        let mut progress = Progress::new("compacting", None, false);
        let Some(done) = interrupt.or(move || {
            let done = keyspace.compact();
            drop((keyspace, db));
            done
        })?
        else {
            return Err(Failure::Interrupted(format!(
                "interrupted: no entry of {} is lost; what was rewritten so far stays, and `rhumb \
                 compact` does the rest",
                self.target.keyspace
            )));
        };
        done?;
        let time = progress.finish();
        let after = directory_bytes(directory);
        if self.json {
            return out.json(&json!({
                "seconds": time.as_secs_f64(),
                "bytes_before": before,
                "bytes_after": after,
            }));
        }
        out.line(format!(
            "compacted {} in {:.1} s: {} before, {} now",
            self.target.keyspace,
            time.as_secs_f64(),
            output::bytes(before),
            output::bytes(after)
        ))
    }
}

/// Bytes of the files of a directory; those that cannot be seen count nothing.
fn directory_bytes(path: &std::path::Path) -> u64 {
    let Ok(entries) = path.read_dir() else { return 0 };
    let entries = entries.filter_map(|entry| entry.ok());
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  rhumb checkpoint /backup/today
  rhumb count --db /backup/today

The checkpoint is a database of its own. On the same file system it shares its tables with this one
by hard links, and takes little space until the two differ; on another one it is a copy.";

/// Make a second database that holds what this one holds now
#[derive(Debug, Args)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct Checkpoint {
    #[command(flatten)]
    database: DatabaseArg,
    /// Directory to make; it must not be there
    #[arg(value_name = "TO")]
    to: PathBuf,
}

impl Checkpoint {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let db = self.database.open()?;
        let (interrupt, to) = (Interrupt::listen()?, self.to.clone());
        let Some(done) = interrupt.or(move || db.checkpoint(to))? else {
            return Err(Failure::Interrupted(format!(
                "interrupted: {} is not whole: remove it; the database itself is as it was",
                self.to.display()
            )));
        };
        done?;
        out.line(format!("checkpoint of {} at {}", self.database.db.display(), self.to.display()))
    }
}

const DROP_EXAMPLES: &str = "\
Examples:
  rhumb drop users --yes
  rhumb drop orders --partition tenant-7/ --yes

The keyspace and its entries are gone when the command ends, whatever their number: no entry is
visited. The database and its other keyspaces stay. With --partition, one partition goes and the
rest of the keyspace stays; `rhumb inspect` lists the partitions.";

/// Remove a keyspace, or a partition of it, with all its entries
#[derive(Debug, Args)]
#[command(after_help = DROP_EXAMPLES)]
pub(crate) struct Drop {
    #[command(flatten)]
    database: DatabaseArg,
    /// Say that it is meant: there is no way back
    #[arg(long)]
    yes: bool,
    /// Remove this partition alone
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// The keyspace
    #[arg(value_name = "KEYSPACE")]
    keyspace: String,
}

impl Drop {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let db = self.database.open()?;
        if !db.keyspace_names().contains(&self.keyspace) {
            return Err(Failure::failed(format!(
                "there is no keyspace {:?} in {}",
                self.keyspace,
                self.database.db.display()
            )));
        }
        if !self.yes {
            let what = match &self.partition {
                Some(partition) => format!("partition {partition:?} of "),
                None => String::new(),
            };
            return Err(Failure::Usage(format!(
                "this removes every entry of {what}keyspace {:?}: add --yes if that is meant",
                self.keyspace
            )));
        }
        if let Some(partition) = &self.partition {
            let keyspace = db.keyspace(&self.keyspace, KeyspaceOptions::default())?;
            if !keyspace.drop_partition(partition)? {
                let name = &self.keyspace;
                let what = format!("there is no partition {partition:?} in keyspace {name:?}");
                return Err(Failure::failed(what));
            }
            return out.line(format!("dropped {partition} of {}", self.keyspace));
        }
        db.drop_keyspace(&self.keyspace)?;
        out.line(format!("dropped {}", self.keyspace))
    }
}
