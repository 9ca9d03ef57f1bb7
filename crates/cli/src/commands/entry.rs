//! `get`, `put` and `del`: one entry.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use rhumb::{Database, Keyspace, PersistMode, Slice};

use super::open::KeyspaceArg;
use crate::{
    failure::{Failure, Outcome},
    input::{Fields, Format, Input},
    keys::{EntryPrinter, Form, KeyFlags},
    output::{Output, counted, grouped},
};

/// Keys that are looked up together.
const KEYS_AT_ONCE: usize = 256;

const GET_EXAMPLES: &str = "\
Examples:
  rhumb get left-pad
  rhumb get --u64 16777216              a key of 8 bytes
  rhumb get picture > picture.png       the bytes as they are
  rhumb get user:17 | jq .name
  shuf -n 1000 names.txt | rhumb get --keys-from -

On a terminal the value is one line, in which bytes that are not printable are written as \\xNN and a
backslash as \\\\. Into a pipe or a file go the bytes of the value and nothing else, no newline
either. --text and --raw choose one of the two, --hex and --json are the same everywhere.

With --keys-from each line is KEY, a tab, VALUE, as `rhumb scan` prints it, in the order of the
keys. Exit code 1 if a key is absent; nothing is printed for it.";

/// Print the value of a key
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct Get {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    wanted: Wanted,
}

impl Get {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        self.wanted.print(out, || self.target.open_read_only())
    }
}

/// Which keys are wanted, and how their values are printed.
#[derive(Debug, Args)]
pub(super) struct Wanted {
    #[command(flatten)]
    keys: KeyFlags,
    /// Print an object with key and value
    #[arg(long)]
    json: bool,
    /// Print the bytes of the value as they are, also on a terminal
    #[arg(long, conflicts_with_all = ["json", "hex", "keys_from"])]
    raw: bool,
    /// Print the value as one line with escapes, also into a pipe
    #[arg(long, conflicts_with_all = ["json", "hex", "keys_from", "raw"])]
    text: bool,
    /// Look up every key of a file, one a line; `-` is the standard input
    #[arg(long, value_name = "FILE")]
    keys_from: Option<PathBuf>,
    /// The key
    #[arg(required_unless_present = "keys_from", conflicts_with = "keys_from")]
    key: Option<OsString>,
}

/// What keys are looked up in.
pub(super) trait Lookup {
    /// A value that was found.
    type Value: AsRef<[u8]>;

    /// The value of a key.
    fn get(&self, key: &[u8]) -> Outcome<Option<Self::Value>>;

    /// The values of several keys, in their order.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Outcome<Vec<Option<Self::Value>>>;
}

impl Lookup for (Database, Keyspace) {
    type Value = Slice;

    fn get(&self, key: &[u8]) -> Outcome<Option<Slice>> {
        Ok(self.1.get(key)?)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Outcome<Vec<Option<Slice>>> {
        Ok(self.1.multi_get(keys)?)
    }
}

impl Wanted {
    /// Prints what `open` has of the keys, once they are known to be keys.
    pub(super) fn print<L: Lookup>(
        &self,
        out: &mut Output,
        open: impl FnOnce() -> Outcome<L>,
    ) -> Outcome {
        let printer = EntryPrinter::new(self.keys, self.json, false);
        let Some(key) = &self.key else { return self.print_many(&printer, out, &open()?) };
        let key = self.keys.key_form().parse_argument("KEY", key)?;
        let Some(value) = open()?.get(&key)? else { return Err(Failure::Absent) };
        let value = value.as_ref();
        let is_line = self.text || (!self.raw && io::stdout().is_terminal());
        let is_raw = !is_line && self.keys.value_form() == Form::Text;
        out.with(|out| {
            if is_raw && !self.json {
                return out.write_all(value);
            }
            if self.json {
                return printer.print(out, &key, value);
            }
            self.keys.value_form().write(out, value)?;
            out.write_all(b"\n")
        })
    }

    /// Looks up the keys of a file.
    fn print_many<L: Lookup>(
        &self,
        printer: &EntryPrinter,
        out: &mut Output,
        source: &L,
    ) -> Outcome {
        let path = self.keys_from.as_deref().unwrap_or(Path::new("-"));
        let mut input = Input::open(path, Some(Format::Lines), &Fields::keys(self.keys))?;
        let (mut looked_up, mut absent) = (0_u64, 0_u64);
        let mut keys = Vec::with_capacity(KEYS_AT_ONCE);
        loop {
            keys.clear();
            while keys.len() < KEYS_AT_ONCE
                && let Some(entry) = input
                    .next()
                    .map_err(|wrong| Failure::failed(format!("{}: {wrong}", input.name())))?
            {
                keys.push(entry.key);
            }
            if keys.is_empty() {
                break;
            }
            looked_up += keys.len() as u64;
            for (key, value) in keys.iter().zip(source.multi_get(&keys)?) {
                match value {
                    Some(value) => out.with(|out| printer.print(out, key, value.as_ref()))?,
                    None => absent += 1,
                }
            }
        }
        if absent == 0 {
            return Ok(());
        }
        Err(Failure::SomeAbsent(format!(
            "{} of {} are absent",
            grouped(absent),
            counted(looked_up, "key")
        )))
    }
}

const PUT_EXAMPLES: &str = "\
Examples:
  rhumb put greeting hello
  rhumb put picture < picture.png       the value from the standard input
  rhumb put --hex 00ff 01               key and value in hexadecimal

The entry is on disk when the command ends.";

/// Insert a key, or replace its value
#[derive(Debug, Args)]
#[command(after_help = PUT_EXAMPLES)]
pub(crate) struct Put {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    entry: EntryArg,
}

/// An entry to write.
#[derive(Debug, Args)]
pub(super) struct EntryArg {
    #[command(flatten)]
    keys: KeyFlags,
    /// The key
    key: OsString,
    /// The value; left out, it is read from the standard input to its end
    value: Option<OsString>,
}

impl EntryArg {
    /// The bytes of its key and value.
    pub(super) fn parse(&self) -> Outcome<(Vec<u8>, Vec<u8>)> {
        let key = self.keys.key_form().parse_argument("KEY", &self.key)?;
        let value = match &self.value {
            Some(value) => self.keys.value_form().parse_argument("VALUE", value)?,
            None => self.keys.value_form().parse(&read_stdin()?).map_err(Failure::Usage)?,
        };
        Ok((key, value))
    }
}

impl Put {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let (key, value) = self.entry.parse()?;
        let (db, keyspace) = self.target.open_or_create()?;
        keyspace.insert(&key, &value)?;
        Ok(db.persist(PersistMode::SyncAll)?)
    }
}

fn read_stdin() -> Outcome<Vec<u8>> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let what = "give VALUE, or send the value to the standard input";
        return Err(Failure::Usage(what.to_owned()));
    }
    let mut value = Vec::new();
    let read = stdin.lock().read_to_end(&mut value);
    read.map_err(|error| Failure::failed(format!("cannot read the standard input: {error}")))?;
    Ok(value)
}

const DEL_EXAMPLES: &str = "\
Examples:
  rhumb del greeting
  rhumb del --u64 16777216

Exit code 1 if the key was absent. The removal is on disk when the command ends.";

/// Remove a key
#[derive(Debug, Args)]
#[command(after_help = DEL_EXAMPLES)]
pub(crate) struct Del {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    key: KeyArg,
}

/// A key.
#[derive(Debug, Args)]
pub(super) struct KeyArg {
    #[command(flatten)]
    keys: KeyFlags,
    /// The key
    key: OsString,
}

impl KeyArg {
    /// The key's bytes.
    pub(super) fn parse(&self) -> Outcome<Vec<u8>> {
        self.keys.key_form().parse_argument("KEY", &self.key)
    }
}

impl Del {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let key = self.key.parse()?;
        let (db, keyspace) = self.target.open()?;
        if !keyspace.contains_key(&key)? {
            return Err(Failure::Absent);
        }
        keyspace.remove(&key)?;
        Ok(db.persist(PersistMode::SyncAll)?)
    }
}
