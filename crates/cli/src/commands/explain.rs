//! `explain`: how the store finds one key.

use std::ffi::OsString;

use clap::Args;
use rhumb::inspect::{Answer, Explanation, SegmentStep, TableStep};
use serde_json::{Value as Json, json};

use super::open::KeyspaceArg;
use crate::{
    failure::Outcome,
    keys::{Form, KeyFlags, with_path},
    output::{Output, counted},
};

const EXAMPLES: &str = "\
Examples:
  rhumb explain left-pad
  rhumb explain --u64 16777216 --json

Shows which memtables and tables a read of the key asks, what the filter says, the segment of the
model, the block that it names and the block that the key is in, and the blocks read.";

/// Show how a key is found
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    keys: KeyFlags,
    /// Print an object
    #[arg(long)]
    json: bool,
    /// The key; it need not be there
    key: OsString,
}

impl Explain {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let form = self.keys.key_form();
        let key = form.parse_argument("KEY", &self.key)?;
        let (_db, keyspace) = self.target.open_read_only()?;
        let explanation = keyspace.explain(&key)?;
        if self.json {
            return out.json(&to_json(&explanation, form));
        }
        for line in lines(&explanation, form) {
            out.line(line)?;
        }
        Ok(())
    }
}

fn lines(explanation: &Explanation, form: Form) -> Vec<String> {
    let mut lines = Vec::new();
    let key = form.show(&explanation.key);
    let key_bytes = counted(explanation.key.len() as u64, "byte");
    lines.push(format!("key       {key} ({key_bytes})"));
    let asked = explanation.memtables;
    let answer = if explanation.is_in_memtable { "has the answer" } else { "knows nothing of it" };
    lines.push(format!("memtable  {asked} asked: {answer}"));
    for step in &explanation.tables {
        lines.extend(step_lines(step));
    }
    if explanation.tables_passed > 0 {
        let passed = counted(explanation.tables_passed, "table");
        lines.push(format!("passed    {passed} by their ranges of keys"));
    }
    lines.push(format!("answer    {}", answer_text(explanation.answer)));
    lines.push(format!("reads     {}", counted(explanation.block_reads.into(), "block")));
    lines
}

fn step_lines(step: &TableStep) -> Vec<String> {
    let mut lines = vec![format!("table     {}, level {}", step.path.display(), step.level)];
    let mut detail = |name: &str, text: String| lines.push(format!("  {name:<8}{text}"));
    detail(
        "filter",
        match step.filter {
            None => "none".to_owned(),
            Some(true) => "lets it through".to_owned(),
            Some(false) => "rules it out: no block is read".to_owned(),
        },
    );
    if let Some(segment) = &step.segment {
        detail("segment", segment_text(segment));
        let last = (segment.first_block + segment.blocks).saturating_sub(1);
        let window = format!("blocks {} to {last}", segment.first_block);
        detail("window", format!("{window}, of which the model names one"));
    }
    let actual = match step.actual_block {
        Some(block) => format!("it is in block {block}"),
        None => "no block has it".to_owned(),
    };
    detail("block", format!("{} by the {} index; {actual}", step.predicted_block, step.index));
    if step.filter != Some(false) {
        let (offset, bytes) = step.place;
        let entries = counted(step.block_entries.into(), "entry");
        detail("read", format!("{bytes} bytes at {offset}: {entries}"));
    }
    detail("answer", answer_text(step.answer));
    lines
}

fn segment_text(segment: &SegmentStep) -> String {
    format!(
        "{} of {}: leaves out {}, then the key is {:#018x}",
        segment.number,
        segment.of,
        counted(segment.skip.into(), "byte"),
        segment.code
    )
}

fn answer_text(answer: Answer) -> String {
    match answer {
        Answer::Found { seq, value_bytes } => {
            format!("a value of {}, sequence number {seq}", counted(value_bytes, "byte"))
        }
        Answer::Removed { seq } => format!("removed, sequence number {seq}"),
        Answer::Expiring { seq, value_bytes, expires_ms } => format!(
            "a value of {} until {expires_ms} ms of the Unix epoch, sequence number {seq}",
            counted(value_bytes, "byte")
        ),
        _ => "absent".to_owned(),
    }
}

fn to_json(explanation: &Explanation, form: Form) -> Json {
    let tables = explanation.tables.iter().map(step_json);
    let mut object = json!({
        "memtables": explanation.memtables,
        "in_memtable": explanation.is_in_memtable,
        "tables": tables.collect::<Vec<_>>(),
        "tables_passed": explanation.tables_passed,
        "answer": answer_json(explanation.answer),
        "block_reads": explanation.block_reads,
    });
    let (name, key) = form.to_json("key", &explanation.key);
    object[name] = key;
    object
}

fn step_json(step: &TableStep) -> Json {
    let segment = step.segment.as_ref().map(|segment| {
        json!({
            "number": segment.number,
            "of": segment.of,
            "skip": segment.skip,
            "code": segment.code,
            "first_block": segment.first_block,
            "blocks": segment.blocks,
        })
    });
    let object = json!({
        "level": step.level,
        "filter": step.filter,
        "index": step.index,
        "segment": segment,
        "predicted_block": step.predicted_block,
        "actual_block": step.actual_block,
        "read_offset": step.place.0,
        "read_bytes": step.place.1,
        "block_entries": step.block_entries,
        "answer": answer_json(step.answer),
    });
    with_path(object, &step.path)
}

fn answer_json(answer: Answer) -> Json {
    match answer {
        Answer::Found { seq, value_bytes } => {
            json!({ "found": true, "seq": seq, "value_bytes": value_bytes })
        }
        Answer::Removed { seq } => json!({ "found": false, "removed_by_seq": seq }),
        Answer::Expiring { seq, value_bytes, expires_ms } => json!({
            "found": true, "seq": seq, "value_bytes": value_bytes, "expires_ms": expires_ms,
        }),
        _ => json!({ "found": false }),
    }
}
