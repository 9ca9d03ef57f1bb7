//! Shows a database and its tables.

use std::path::PathBuf;

use rhumb::inspect::{DatabaseReport, KeyspaceReport, LevelReport, PartitionReport, TableReport};
use serde_json::{Value as Json, json};

use crate::{
    columns::Columns,
    failure::Outcome,
    keys::{Form, path_text, put_path, with_path},
    output::{Output, bytes, grouped},
};

/// Writes what `report` says, level by level.
pub(super) fn print(report: &DatabaseReport, form: Form, out: &mut Output) -> Outcome {
    out.line(format!("database   {}", report.path.display()))?;
    let manifest = report.manifest.file_name().unwrap_or_default().to_string_lossy();
    out.line(format!("manifest   {manifest}, {}", bytes(report.manifest_bytes)))?;
    let sum = |log: &[(PathBuf, u64)]| bytes(log.iter().map(|(_, bytes)| bytes).sum());
    out.line(format!("log        {} segments, {}", report.log.len(), sum(&report.log)))?;
    if !report.kept_log.is_empty() {
        let (count, kept) = (report.kept_log.len(), sum(&report.kept_log));
        out.line(format!("kept log   {count} segments, {kept}, for cursors"))?;
    }
    if !report.leftover_files.is_empty() {
        let count = report.leftover_files.len();
        out.line(format!("leftovers  {count} files, removed when the database is next opened"))?;
    }
    for problem in &report.problems {
        out.line(format!("damaged    {problem}"))?;
    }
    for keyspace in &report.keyspaces {
        out.line("")?;
        print_keyspace(keyspace, form, out)?;
    }
    Ok(())
}

fn print_keyspace(keyspace: &KeyspaceReport, form: Form, out: &mut Output) -> Outcome {
    out.line(format!("keyspace   {}", keyspace.name))?;
    if !keyspace.partitions.is_empty() {
        return print_partitions(keyspace, form, out);
    }
    if keyspace.levels.iter().all(|level| level.tables.is_empty()) {
        return out.line("  no tables: its entries, if it has any, are in the log");
    }
    let mut levels = Columns::new(&[
        "level",
        "tables",
        "size",
        "entries",
        "tombstones",
        "blocks",
        "segments",
        "index",
        "index B/key",
        "filter",
    ]);
    for (number, level) in keyspace.levels.iter().enumerate() {
        if !level.tables.is_empty() {
            levels.row(level_cells(number, level));
        }
    }
    levels.write(out)?;
    let tables = keyspace.levels.iter().flat_map(|level| &level.tables);
    let smallest = tables.clone().map(|table| &table.smallest).min();
    let largest = tables.map(|table| &table.largest).max();
    if let (Some(smallest), Some(largest)) = (smallest, largest) {
        out.line(format!("keys from {} to {}", form.show(smallest), form.show(largest)))?;
    }
    Ok(())
}

/// How many partitions of a keyspace are listed; the JSON form has them all.
const PARTITIONS_SHOWN: usize = 50;

fn print_partitions(keyspace: &KeyspaceReport, form: Form, out: &mut Output) -> Outcome {
    let tables = |partition: &PartitionReport| {
        partition.levels.iter().flat_map(|level| level.tables.clone()).collect::<Vec<_>>()
    };
    let mut rows = Columns::new(&["partition", "tables", "size", "entries", "tombstones"]);
    let cells = |name: String, tables: &[TableReport]| {
        let sum = |of: fn(&TableReport) -> u64| tables.iter().map(of).sum::<u64>();
        vec![
            name,
            tables.len().to_string(),
            bytes(sum(|table| table.file_bytes + table.value_file_bytes)),
            grouped(sum(|table| table.entries)),
            grouped(sum(|table| table.tombstones)),
        ]
    };
    let mut all = Vec::new();
    for (number, partition) in keyspace.partitions.iter().enumerate() {
        let tables = tables(partition);
        if number < PARTITIONS_SHOWN {
            rows.row(cells(form.show(&partition.name), &tables));
        }
        all.extend(tables);
    }
    rows.row(cells(format!("all {}", keyspace.partitions.len()), &all));
    rows.write(out)
}

fn level_cells(number: usize, level: &LevelReport) -> Vec<String> {
    let (index, keys) = (level.sum(|table| table.index_bytes), level.sum(|table| table.keys));
    vec![
        number.to_string(),
        level.tables.len().to_string(),
        bytes(level.sum(|table| table.file_bytes + table.value_file_bytes)),
        grouped(level.sum(|table| table.entries)),
        grouped(level.sum(|table| table.tombstones)),
        grouped(level.sum(|table| table.blocks.into())),
        grouped(level.sum(|table| table.segments.into())),
        bytes(index),
        format!("{:.4}", per_key(index, keys)),
        bytes(level.sum(|table| table.filter_bytes)),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
fn per_key(bytes: u64, keys: u64) -> f64 {
    if keys == 0 { 0.0 } else { bytes as f64 / keys as f64 }
}

/// Writes what a table says of itself.
pub(super) fn print_table(table: &TableReport, form: Form, out: &mut Output) -> Outcome {
    out.line(format!("table      {}", table.path.display()))?;
    let mut detail = |name: &str, text: String| out.line(format!("  {name:<10}{text}"));
    detail("size", {
        let values = table.value_file_bytes;
        let beside = if values == 0 {
            String::new()
        } else {
            format!(" and {} of values beside it", bytes(values))
        };
        format!("{}{beside}, {} before encoding", bytes(table.file_bytes), bytes(table.raw_bytes))
    })?;
    detail("entries", {
        let tombstones = grouped(table.tombstones);
        let ranges = match table.range_tombstones {
            0 => String::new(),
            count => format!(", {} stretches under range tombstones", grouped(count)),
        };
        format!(
            "{} of {} keys, {tombstones} tombstones{ranges}",
            grouped(table.entries),
            grouped(table.keys)
        )
    })?;
    detail("keys", format!("{} to {}", form.show(&table.smallest), form.show(&table.largest)))?;
    detail("sequence", format!("{} to {}", table.seqs.0, table.seqs.1))?;
    detail("blocks", {
        let meant = table.block_bytes;
        format!(
            "{} of about {meant} bytes, compression {}",
            grouped(table.blocks.into()),
            table.compression
        )
    })?;
    detail("index", {
        let segments = match table.segments {
            0 => String::new(),
            segments => format!(", {} segments", grouped(segments.into())),
        };
        let codes = match table.codes {
            0 => String::new(),
            codes => format!(
                " ({} with trained codes, of which there are {codes})",
                grouped(table.coded_segments.into())
            ),
        };
        format!(
            "{}{segments}{codes}, {} ({:.4} bytes a key), {} in memory",
            table.index,
            bytes(table.index_bytes),
            table.index_bytes_per_key(),
            bytes(table.index_resident_bytes)
        )
    })?;
    detail(
        "filter",
        format!("{}, {} bits a key", bytes(table.filter_bytes), table.filter_bits_per_key),
    )
}

/// The report as an object.
pub(super) fn to_json(report: &DatabaseReport, form: Form) -> Json {
    let segments = |log: &[(PathBuf, u64)]| {
        let each = |(path, bytes): &(PathBuf, u64)| with_path(json!({ "bytes": bytes }), path);
        log.iter().map(each).collect::<Vec<_>>()
    };
    let keyspaces = report.keyspaces.iter().map(|keyspace| {
        let partitions = keyspace.partitions.iter().map(|partition| {
            let mut object = json!({ "levels": levels_json(&partition.levels, form) });
            let (name, shown) = form.to_json("name", &partition.name);
            object[name] = shown;
            object
        });
        json!({
            "name": keyspace.name,
            "levels": levels_json(&keyspace.levels, form),
            "partitions": partitions.collect::<Vec<_>>(),
        })
    });
    let object = json!({
        "manifest": path_text(&report.manifest),
        "manifest_bytes": report.manifest_bytes,
        "log": segments(&report.log),
        "kept_log": segments(&report.kept_log),
        "keyspaces": keyspaces.collect::<Vec<_>>(),
        "leftover_files": report.leftover_files.iter().map(|p| path_text(p)).collect::<Vec<_>>(),
        "problems": report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    with_path(object, &report.path)
}

fn levels_json(levels: &[LevelReport], form: Form) -> Vec<Vec<Json>> {
    let tables = |level: &LevelReport| level.tables.iter().map(|t| table_json(t, form)).collect();
    levels.iter().map(tables).collect()
}

/// A table as an object.
pub(super) fn table_json(table: &TableReport, form: Form) -> Json {
    let mut object = json!({
        "id": table.id,
        "file_bytes": table.file_bytes,
        "value_file_bytes": table.value_file_bytes,
        "entries": table.entries,
        "tombstones": table.tombstones,
        "range_tombstones": table.range_tombstones,
        "keys": table.keys,
        "raw_bytes": table.raw_bytes,
        "seq_min": table.seqs.0,
        "seq_max": table.seqs.1,
        "blocks": table.blocks,
        "block_bytes": table.block_bytes,
        "compression": table.compression,
        "filter_bits_per_key": table.filter_bits_per_key,
        "filter_bytes": table.filter_bytes,
        "index": table.index,
        "index_bytes": table.index_bytes,
        "index_resident_bytes": table.index_resident_bytes,
        "index_bytes_per_key": table.index_bytes_per_key(),
        "segments": table.segments,
        "codes": table.codes,
        "coded_segments": table.coded_segments,
    });
    put_path(&mut object, &table.path);
    for (name, key) in [("smallest", &table.smallest), ("largest", &table.largest)] {
        let (name, key) = form.to_json(name, key);
        object[name] = key;
    }
    object
}
