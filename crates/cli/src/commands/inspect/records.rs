//! Shows logs and manifests, record by record.

use std::path::PathBuf;

use rhumb::inspect::{Inspector, RecordContent, RecordReport};
use serde_json::{Value as Json, json};

use crate::{
    failure::Outcome,
    keys::with_path,
    output::{Output, bytes},
};

/// Shows segments of the log.
pub(super) fn logs(files: &[PathBuf], is_json: bool, out: &mut Output) -> Outcome {
    for path in files {
        let report = Inspector::new().log(path)?;
        if is_json {
            let (id, base) = report.header.clone().ok().unzip();
            let object = json!({
                "bytes": report.file_bytes,
                "segment": id,
                "first_place": base,
                "header_problem": report.header.err(),
            });
            out.json(&with_path(object, path))?;
        } else {
            let header = match &report.header {
                Ok((id, base)) => format!("segment {id}, from place {base}"),
                Err(problem) => format!("damaged header: {problem}"),
            };
            let size = bytes(report.file_bytes);
            out.line(format!("log {}: {size}, {header}", path.display()))?;
        }
        records(&report.records, is_json, out)?;
    }
    Ok(())
}

/// Shows manifests.
pub(super) fn manifests(files: &[PathBuf], is_json: bool, out: &mut Output) -> Outcome {
    for path in files {
        let report = Inspector::new().manifest(path)?;
        if is_json {
            out.json(&with_path(json!({ "bytes": report.file_bytes }), path))?;
        } else {
            out.line(format!("manifest {}: {}", path.display(), bytes(report.file_bytes)))?;
        }
        records(&report.records, is_json, out)?;
    }
    Ok(())
}

fn records(records: &[RecordReport], is_json: bool, out: &mut Output) -> Outcome {
    for record in records {
        if is_json {
            out.json(&to_json(record))?;
            continue;
        }
        let place = format!("{:>12}  {:>9}", record.offset, bytes(record.bytes));
        match &record.content {
            RecordContent::Batch { first_seq, operations } => {
                let last = first_seq + u64::from(*operations).saturating_sub(1);
                out.line(format!("{place}  {operations} writes, numbers {first_seq} to {last}"))?;
            }
            RecordContent::Mark { synced } => {
                out.line(format!("{place}  durable up to {synced}"))?;
            }
            RecordContent::Edits(edits) => {
                for (number, edit) in edits.iter().enumerate() {
                    let place = if number == 0 { place.clone() } else { " ".repeat(23) };
                    out.line(format!("{place}  {edit}"))?;
                }
            }
            RecordContent::Damaged(what) => out.line(format!("{place}  damaged: {what}"))?,
            _ => out.line(format!("{place}  of a kind that this program does not know"))?,
        }
    }
    Ok(())
}

fn to_json(record: &RecordReport) -> Json {
    let content = match &record.content {
        RecordContent::Batch { first_seq, operations } => {
            json!({ "batch": { "first_seq": first_seq, "operations": operations } })
        }
        RecordContent::Mark { synced } => json!({ "mark": { "synced": synced } }),
        RecordContent::Edits(edits) => json!({ "edits": edits }),
        RecordContent::Damaged(what) => json!({ "damaged": what }),
        _ => Json::Null,
    };
    json!({ "offset": record.offset, "bytes": record.bytes, "content": content })
}
