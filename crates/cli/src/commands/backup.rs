//! `backup` and `restore`: points of a database in a directory, and databases made of them.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use rhumb::{BackupInfo, Backups};
use serde_json::json;

use super::open::DatabaseArg;
use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    output::Output,
};

const BACKUP_EXAMPLES: &str = "\
Examples:
  rhumb backup /backup/shop
  rhumb backup /backup/shop --keep 7
  rhumb restore /backup/shop --list

Adds a point to the backup: the database as it is now. Only files that no earlier point has are
copied. The directory may be on another file system; it is for backups of one database.";

/// Add a point to a backup
#[derive(Debug, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub(crate) struct Backup {
    #[command(flatten)]
    database: DatabaseArg,
    /// Directory of the backup; made if it is not there
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Remove all points but the newest N afterwards
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Backup {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let db = self.database.open()?;
        let (interrupt, to) = (Interrupt::listen()?, self.to.clone());
        let Some(done) = interrupt.or(move || db.backup(to))? else {
            return Err(Failure::Interrupted(format!(
                "interrupted: no point was added to {}; the points before it are whole",
                self.to.display()
            )));
        };
        let info = done?;
        if let Some(count) = self.keep {
            Backups::open(&self.to)?.keep_newest(usize::try_from(count).unwrap_or(usize::MAX))?;
        }
        if self.json {
            return out.line(json_of(&info));
        }
        out.line(format!(
            "point {} of {} in {}: {} files, {} bytes, of which {} were copied",
            info.number,
            self.database.db.display(),
            self.to.display(),
            info.files,
            info.bytes,
            info.copied_bytes
        ))
    }
}

const RESTORE_EXAMPLES: &str = "\
Examples:
  rhumb restore /backup/shop --list
  rhumb restore /backup/shop shop.db
  rhumb restore /backup/shop shop.db --point 3
  rhumb restore /backup/shop --verify
  rhumb restore /backup/shop --remove 3

Every file is compared with what was backed up. The restored database has nothing to do with the
backup any more; its own backups go to another directory.";

/// Make a database of a point of a backup; list, verify and remove points
#[derive(Debug, Args)]
#[command(after_help = RESTORE_EXAMPLES)]
#[command(group = ArgGroup::new("what").required(true).args(["to", "list", "verify", "remove"]))]
pub(crate) struct Restore {
    /// Directory of the backup
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// Directory of the database; it must not be there
    #[arg(value_name = "TO")]
    to: Option<PathBuf>,
    /// Number of the point; the last one if none is given
    #[arg(long, value_name = "N", conflicts_with_all = ["list", "remove"])]
    point: Option<u64>,
    /// Print the points
    #[arg(long)]
    list: bool,
    /// Read all files of the point, or of all points, and compare them with what was backed up
    #[arg(long)]
    verify: bool,
    /// Remove a point, and the files that no other one has
    #[arg(long, value_name = "N")]
    remove: Option<u64>,
    /// Print an object for each point
    #[arg(long, requires = "list")]
    json: bool,
}

impl Restore {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let backups = Backups::open(&self.from)?;
        if let Some(number) = self.remove {
            backups.remove(number)?;
            return out.line(format!("removed point {number} of {}", self.from.display()));
        }
        let points = backups.list()?;
        if self.list {
            return points.iter().try_for_each(|info| out.line(self.line_of(info)));
        }
        let Some(last) = points.last().map(|info| info.number) else {
            let what = format!("{} has no points", self.from.display());
            return Err(rhumb::Error::NotFound(what.into()).into());
        };
        let Some(to) = &self.to else {
            let all = || points.iter().map(|info| info.number).collect();
            let chosen: Vec<u64> = self.point.map_or_else(all, |point| vec![point]);
            for number in chosen {
                backups.verify(number)?;
                out.line(format!("point {number} is whole"))?;
            }
            return Ok(());
        };
        let number = self.point.unwrap_or(last);
        backups.restore(number, to)?;
        out.line(format!("restored point {number} of {} to {}", self.from.display(), to.display()))
    }

    fn line_of(&self, info: &BackupInfo) -> String {
        if self.json {
            return json_of(info);
        }
        let BackupInfo { number, time_ms, files, bytes, .. } = info;
        format!("point {number}: {files} files, {bytes} bytes, at {}", seconds(*time_ms))
    }
}

/// A time, in seconds since 1970.
fn seconds(time_ms: u64) -> String {
    format!("{}.{:03}", time_ms / 1000, time_ms % 1000)
}

fn json_of(info: &BackupInfo) -> String {
    json!({
        "point": info.number,
        "time_ms": info.time_ms,
        "sequence_number": info.sequence_number,
        "files": info.files,
        "bytes": info.bytes,
        "copied_bytes": info.copied_bytes,
    })
    .to_string()
}
