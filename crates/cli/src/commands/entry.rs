//! `get`, `put` and `del`: one entry.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Read},
};

use clap::Args;
use rhumb::PersistMode;

use super::open::KeyspaceArg;
use crate::{
    failure::{Failure, Outcome},
    keys::KeyFlags,
    output::Output,
};

const GET_EXAMPLES: &str = "\
Examples:
  rhumb get left-pad
  rhumb get --u64 16777216              a key of 8 bytes
  rhumb get --raw picture > picture.png

Exit code 1, and no output, if the key is absent.";

/// Print the value of a key
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct Get {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    keys: KeyFlags,
    /// Print an object with key and value
    #[arg(long)]
    json: bool,
    /// Print the bytes of the value as they are, without a newline
    #[arg(long, conflicts_with_all = ["json", "hex"])]
    raw: bool,
    /// The key
    key: OsString,
}

impl Get {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let key = self.keys.key_form().parse_argument("KEY", &self.key)?;
        let (_db, keyspace) = self.target.open()?;
        let Some(value) = keyspace.get(&key)? else { return Err(Failure::Absent) };
        let (key_form, value_form) = (self.keys.key_form(), self.keys.value_form());
        out.with(|out| {
            if self.raw {
                return out.write_all(&value);
            }
            if self.json {
                out.write_all(b"{")?;
                key_form.write_json(out, "key", &key)?;
                out.write_all(b",")?;
                value_form.write_json(out, "value", &value)?;
                return out.write_all(b"}\n");
            }
            value_form.write(out, &value)?;
            out.write_all(b"\n")
        })
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
    keys: KeyFlags,
    /// The key
    key: OsString,
    /// The value; left out, it is read from the standard input to its end
    value: Option<OsString>,
}

impl Put {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let key = self.keys.key_form().parse_argument("KEY", &self.key)?;
        let value = match &self.value {
            Some(value) => self.keys.value_form().parse_argument("VALUE", value)?,
            None => self.keys.value_form().parse(&read_stdin()?).map_err(Failure::Usage)?,
        };
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
    keys: KeyFlags,
    /// The key
    key: OsString,
}

impl Del {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let key = self.keys.key_form().parse_argument("KEY", &self.key)?;
        let (db, keyspace) = self.target.open()?;
        if !keyspace.contains_key(&key)? {
            return Err(Failure::Absent);
        }
        keyspace.remove(&key)?;
        Ok(db.persist(PersistMode::SyncAll)?)
    }
}
