//! `scan` and `count`: entries in key order.

use std::{ffi::OsString, ops::Bound};

use clap::Args;
use rhumb::{Keyspace, Slice};
use serde_json::json;

use super::open::KeyspaceArg;
use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    keys::{EntryPrinter, Form, KeyFlags},
    output::{Output, Progress, counted},
};

/// Entries between two looks at the clock.
const ENTRIES_PER_UPDATE: u64 = 4096;

/// Which keys.
#[derive(Debug, Args)]
struct Selection {
    /// First key
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Key after the last: it is not included
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys that start so
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to", "u64"])]
    prefix: Option<OsString>,
}

type Entries = Box<dyn DoubleEndedIterator<Item = rhumb::Result<(Slice, Slice)>>>;

/// The keys that a selection names.
pub(super) enum Selected {
    Prefix(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Selection {
    /// The bytes of what it names.
    fn parse(&self, form: Form) -> Outcome<Selected> {
        if let Some(prefix) = &self.prefix {
            return Ok(Selected::Prefix(form.parse_argument("--prefix", prefix)?));
        }
        let bound = |what: &str, key: &Option<OsString>| -> Outcome<Option<Vec<u8>>> {
            key.as_ref().map(|key| form.parse_argument(what, key)).transpose()
        };
        let from = bound("--from", &self.from)?;
        let to = bound("--to", &self.to)?;
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return Err(Failure::Usage("--from is after --to: exchange them".to_owned()));
        }
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        Ok(Selected::Range(from, to.map_or(Bound::Unbounded, Bound::Excluded)))
    }

    fn entries(&self, keyspace: &Keyspace, form: Form) -> Outcome<Entries> {
        Ok(entries(keyspace, self.parse(form)?))
    }
}

fn entries(keyspace: &Keyspace, selected: Selected) -> Entries {
    match selected {
        Selected::Prefix(prefix) => Box::new(keyspace.prefix(prefix)),
        Selected::Range(from, to) => Box::new(keyspace.range((from, to))),
    }
}

const SCAN_EXAMPLES: &str = "\
Examples:
  rhumb scan --prefix @babel/ --limit 5
  rhumb scan --from a --to b --keys-only
  rhumb scan --reverse --limit 1        the last entry
  rhumb scan --prefix a --json | rhumb load --db copy.db -

Without --json each line is KEY, a tab, VALUE. Bytes that are not printable text are written as
\\xNN and a backslash as \\\\, so that an entry is always one line; `load --format tsv` reads it.
--hex writes all bytes in hexadecimal.";

/// Print entries in key order
#[derive(Debug, Args)]
#[command(after_help = SCAN_EXAMPLES)]
pub(crate) struct Scan {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    listing: Listing,
}

impl Scan {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let (_db, keyspace) = self.target.open_read_only()?;
        self.listing.print(out, |selected| Ok(entries(&keyspace, selected)))
    }
}

/// Which entries are printed, in which order and how.
#[derive(Debug, Args)]
pub(super) struct Listing {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    keys: KeyFlags,
    /// Stop after this many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long, visible_alias = "rev")]
    reverse: bool,
    /// Print an object a line
    #[arg(long)]
    json: bool,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
}

impl Listing {
    /// Prints the entries that `open` has of what is selected.
    pub(super) fn print<K, V, E, I>(
        &self,
        out: &mut Output,
        open: impl FnOnce(Selected) -> Outcome<I>,
    ) -> Outcome
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        I: DoubleEndedIterator<Item = Result<(K, V), E>>,
        Failure: From<E>,
    {
        let mut entries = open(self.selection.parse(self.keys.key_form())?)?;
        let printer = EntryPrinter::new(self.keys, self.json, self.keys_only);
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 {
            left -= 1;
            let entry = if self.reverse { entries.next_back() } else { entries.next() };
            let Some(entry) = entry else { break };
            let (key, value) = entry?;
            out.with(|out| printer.print(out, key.as_ref(), value.as_ref()))?;
        }
        Ok(())
    }
}

const COUNT_EXAMPLES: &str = "\
Examples:
  rhumb count
  rhumb count --prefix @babel/ --json
  rhumb count --u64 --from 0 --to 16777216

Every entry is read, so the answer is exact.";

/// Count entries
#[derive(Debug, Args)]
#[command(after_help = COUNT_EXAMPLES)]
pub(crate) struct Count {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    keys: KeyFlags,
    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Count {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let (_db, keyspace) = self.target.open_read_only()?;
        let interrupt = Interrupt::listen()?;
        let entries = self.selection.entries(&keyspace, self.keys.key_form())?;
        let count = count_entries(entries, &interrupt)?;
        if self.json { out.json(&json!({ "count": count })) } else { out.line(count) }
    }
}

/// Counts entries until a signal comes.
fn count_entries(entries: Entries, interrupt: &Interrupt) -> Outcome<u64> {
    let mut progress = Progress::new("counting", None, false);
    let mut count = 0_u64;
    for entry in entries {
        if interrupt.has_come() {
            let so_far = counted(count, "entry");
            return Err(Failure::Interrupted(format!("interrupted: {so_far} so far, and more")));
        }
        entry?;
        count += 1;
        if count.is_multiple_of(ENTRIES_PER_UPDATE) {
            progress.update(count, 0);
        }
    }
    progress.finish();
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_a_count_and_says_how_far_it_came() {
        let interrupt = Interrupt::default();
        let entries = |come_at: u64| -> Entries {
            let interrupt = interrupt.clone();
            let entries = (0..10).map(move |n| {
                if n == come_at {
                    interrupt.come();
                }
                Ok((Slice::from(&b"k"[..]), Slice::from(&b"v"[..])))
            });
            Box::new(entries)
        };
        assert_eq!(count_entries(entries(99), &interrupt).unwrap(), 10);
        let Err(failure) = count_entries(entries(7), &interrupt) else { panic!("it went on") };
        assert!(matches!(failure, Failure::Interrupted(_)));
        assert_eq!(failure.message().unwrap(), "interrupted: 7 entries so far, and more");
    }
}
