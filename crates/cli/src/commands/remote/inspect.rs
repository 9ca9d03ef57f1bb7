//! `remote inspect`: how a keyspace lies in the memory of its host, or of each of several.

use clap::Args;
use rhumb_remote::{Address, Inspection, Preset, RoutingTable, Walk};
use serde_json::{Value as Json, json};

use super::target::Target;
use crate::{
    failure::Outcome,
    output::{Output, bytes, counted, grouped},
};

const INSPECT_EXAMPLES: &str = "\
Examples:
  rhumb remote inspect /run/rhumb.sock users
  rhumb remote inspect /run/rhumb.sock users --walk --json
  rhumb remote inspect users --table users.table   each of several hosts

All of it is read from the mapped memory, without a call, but for the table of several hosts. --walk reads every leaf as well, which
says how full they are.";

/// Show how a keyspace lies in the memory that is shared
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(super) struct Inspect {
    #[command(flatten)]
    target: Target,
    /// Read every leaf: entries, fill, siblings
    #[arg(long)]
    walk: bool,
    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    /// Runs the command.
    pub(super) fn run(self, out: &mut Output) -> Outcome {
        match self.target.read_table()? {
            None => self.one(out),
            Some(table) => self.all(&table, out),
        }
    }

    /// Shows what the host at the URL has.
    fn one(&self, out: &mut Output) -> Outcome {
        let (_, keyspace) = self.target.connect()?;
        let (seen, table) = (keyspace.inspect(self.walk)?, keyspace.routing_table()?);
        if self.json {
            let mut object = object(&self.target.keyspace, &seen);
            if let Some(table) = table {
                object["table"] = json!({ "epoch": table.epoch(), "ranges": ranges(&table, None) });
            }
            return out.json(&object);
        }
        let of_table = table.map(|table| {
            let (ranges, hosts) = (table.len() as u64, table.servers().len() as u64);
            let (ranges, hosts) = (counted(ranges, "range"), counted(hosts, "host"));
            ("table", format!("epoch {}: {ranges} of {hosts}", table.epoch()))
        });
        print(out, lines(&seen).into_iter().chain(of_table))
    }

    /// Shows what each host of a table has.
    fn all(&self, table: &RoutingTable, out: &mut Output) -> Outcome {
        let mut objects = Vec::new();
        for (index, address) in table.servers().iter().enumerate() {
            let (_, keyspace) = self.target.connect_to(address.to_string())?;
            let seen = keyspace.inspect(self.walk)?;
            if self.json {
                let mut object = object(&self.target.keyspace, &seen);
                object["host"] = address.to_string().into();
                object["ranges"] = ranges(table, Some(address));
                objects.push(object);
                continue;
            }
            if index > 0 {
                out.line("")?;
            }
            out.line(address)?;
            let own = table.ranges().filter(|(_, _, server)| *server == address);
            let keys = own.map(|(low, high, _)| ("keys", range(low, high)));
            print(out, keys.chain(lines(&seen)))?;
        }
        if self.json {
            out.json(&json!({ "epoch": table.epoch(), "hosts": objects }))?;
        }
        Ok(())
    }
}

fn print(out: &mut Output, lines: impl Iterator<Item = (&'static str, String)>) -> Outcome {
    for (name, text) in lines {
        out.line(format!("{name:<10} {text}"))?;
    }
    Ok(())
}

/// A range of keys, for people.
fn range(low: &[u8], high: Option<&[u8]>) -> String {
    let low = low.escape_ascii();
    match high {
        Some(high) => format!("from \"{low}\" to before \"{}\"", high.escape_ascii()),
        None => format!("from \"{low}\" to the last"),
    }
}

/// The ranges of a table, of all hosts or of one. Bytes of keys that are no text are escaped.
fn ranges(table: &RoutingTable, of: Option<&Address>) -> Json {
    let own = table.ranges().filter(|(_, _, server)| of.is_none_or(|of| *server == of));
    let object = |(low, high, server): (&[u8], Option<&[u8]>, &Address)| {
        let high = high.map(|high| high.escape_ascii().to_string());
        let mut object = json!({ "from": low.escape_ascii().to_string(), "to": high });
        if of.is_none() {
            object["host"] = server.to_string().into();
        }
        object
    };
    own.map(object).collect()
}

fn object(keyspace: &str, seen: &Inspection) -> Json {
    let mut object = json!({
        "keyspace": keyspace,
        "preset": seen.preset.name(),
        "runs": seen.runs,
        "leaves": seen.leaves,
        "blocks": seen.blocks,
        "directory_bytes": seen.directory_bytes,
        "leaf_bytes": seen.leaf_bytes,
        "leaf_room": seen.leaf_room,
        "control_bytes": seen.control_bytes,
        "leaves_bytes": seen.leaves_bytes,
        "mapped_bytes": seen.mapped_bytes(),
        "applied": seen.applied,
        "heartbeat_age_ms": seen.heartbeat_age_ms,
        "lease_ms": seen.lease_ms,
    });
    if let Some(walk) = &seen.walk {
        object["walk"] = json!({
            "leaves": walk.leaves,
            "siblings": walk.siblings,
            "siblings_in_a_row": walk.siblings_in_a_row,
            "entries": walk.entries,
            "asked": walk.asked,
            "used_bytes": walk.used_bytes,
            "unread": walk.unread,
            "runs_replaced": walk.runs_replaced,
            "fill": walk.fill(seen.leaf_bytes),
            "entries_per_leaf": walk.entries_per_leaf(),
        });
    }
    object
}

fn lines(seen: &Inspection) -> Vec<(&'static str, String)> {
    let heard = seen.heartbeat_age_ms.map_or_else(
        || "has ended".to_owned(),
        |age| format!("heard of {} ms ago, lease {} ms", grouped(age), grouped(seen.lease_ms)),
    );
    let mut lines = vec![
        ("host", heard),
        ("applied", format!("write {}", grouped(seen.applied))),
        (
            "mapped",
            format!(
                "{}: {} of leaves, {} of directory and header",
                bytes(seen.mapped_bytes()),
                bytes(seen.leaves_bytes),
                bytes(seen.control_bytes)
            ),
        ),
    ];
    let size = format!(
        "{} each with room for {}",
        bytes(seen.leaf_bytes),
        counted(seen.leaf_room, "entry")
    );
    match seen.preset {
        Preset::XStore => {
            lines.push(("models", counted(seen.runs, "sub-model")));
            lines.push(("leaves", format!("{}, {size}", grouped(seen.leaves))));
        }
        Preset::FineStore => lines.push(("blocks", size)),
        _ => {
            let directory = format!(
                "{} in {}, {}",
                counted(seen.runs, "run"),
                counted(seen.blocks, "block"),
                bytes(seen.directory_bytes)
            );
            lines.push(("directory", directory));
            lines.push(("leaves", format!("{} found by lines, {size}", grouped(seen.leaves))));
        }
    }
    lines.extend(seen.walk.iter().flat_map(|walk| walk_lines(walk, seen.leaf_bytes)));
    lines
}

fn walk_lines(walk: &Walk, leaf_bytes: u64) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        (
            "siblings",
            format!(
                "{}, at most {} in a row",
                grouped(walk.siblings),
                grouped(walk.siblings_in_a_row)
            ),
        ),
        (
            "entries",
            format!(
                "{}, {:.1} a leaf; {} must be asked for",
                grouped(walk.entries),
                walk.entries_per_leaf(),
                grouped(walk.asked)
            ),
        ),
        (
            "fill",
            format!(
                "{:.1}% of {}: {}",
                100.0 * walk.fill(leaf_bytes),
                bytes(walk.leaves.saturating_mul(leaf_bytes)),
                bytes(walk.used_bytes)
            ),
        ),
    ];
    if walk.unread + walk.runs_replaced > 0 {
        let text = format!(
            "{} leaves that changed all the while, {} that were replaced",
            grouped(walk.unread),
            counted(walk.runs_replaced, "run")
        );
        lines.push(("not read", text));
    }
    lines
}
