//! What the status page shows of the learned models: the largest table's keys against its model.
//!
//! Measuring a model reads every key of its table, so it is done apart from the clients, for one
//! table at a time, and again only when there is another largest table.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rhumb::inspect::{Inspector, ModelReport, TableReport};

/// Points of the picture.
const POINTS: usize = 240;

/// Beginnings of segments that are shown, at most; of more than that, some in even steps.
const SEGMENTS_MAX: usize = 48;

/// A larger table is not measured, in bytes.
const TABLE_BYTES_MAX: u64 = 256 << 20;

/// The directory is looked at again after this.
const FRESH: Duration = Duration::from_secs(5);

/// The last picture.
#[derive(Debug, Default)]
pub(crate) struct Models {
    last: Mutex<Option<Last>>,
}

#[derive(Debug)]
struct Last {
    made: Instant,
    table: Option<PathBuf>,
    json: String,
}

impl Models {
    /// The figures of the model as JSON; `null` while there is no table. May take a second: to be
    /// called where that holds up nobody.
    pub(crate) fn json(&self, data: &Path) -> String {
        let mut last = self.last.lock();
        if let Some(last) = last.as_ref().filter(|last| last.made.elapsed() < FRESH) {
            return last.json.clone();
        }
        let largest = largest(data);
        let table = largest.as_ref().map(|(_, table)| table.path.clone());
        let json = match (&*last, &largest) {
            (Some(last), _) if last.table == table => last.json.clone(),
            (_, None) => "null".to_owned(),
            (_, Some((keyspace, table))) => {
                match Inspector::new().model(&table.path, POINTS, &mut |_, _| {}) {
                    Ok(model) => picture(keyspace, &model),
                    // A compaction has taken the table away meanwhile.
                    Err(_) => "null".to_owned(),
                }
            }
        };
        *last = Some(Last { made: Instant::now(), table, json: json.clone() });
        json
    }
}

/// The table with the most entries that is not too large, and its keyspace.
fn largest(data: &Path) -> Option<(String, TableReport)> {
    let report = Inspector::new().database(data).ok()?;
    let tables = report.keyspaces.into_iter().flat_map(|keyspace| {
        let tables = keyspace.levels.into_iter().flat_map(|level| level.tables);
        tables.map(move |table| (keyspace.name.clone(), table))
    });
    tables.filter(|(_, t)| t.file_bytes <= TABLE_BYTES_MAX).max_by_key(|(_, table)| table.entries)
}

/// Memory of an index that keeps a key and a place of eight bytes for each block, as an index
/// without a model does; about, because only the lengths of the table's first and last keys are
/// known.
fn plain_index_bytes(table: &TableReport) -> u64 {
    let key_bytes = (table.smallest.len() + table.largest.len()) as u64 / 2;
    u64::from(table.blocks) * (key_bytes + 8)
}

fn picture(keyspace: &str, model: &ModelReport) -> String {
    let (table, points) = (&model.table, &model.points);
    let first = points.first().map_or(0, |point| point.code);
    let span = points.last().map_or(0, |point| point.code).saturating_sub(first).max(1);
    let mut dots = String::new();
    for point in points {
        let x = point.code.saturating_sub(first) as f64 / span as f64;
        let comma = if dots.is_empty() { "" } else { "," };
        let _ = write!(dots, "{comma}[{x:.5},{},{}]", point.block, point.predicted);
    }
    let step = model.segments.len().div_ceil(SEGMENTS_MAX).max(1);
    let starts: Vec<String> = model
        .segments
        .iter()
        .step_by(step)
        .map(|segment| segment.first_block.to_string())
        .collect();
    format!(
        "{{\"keyspace\":\"{keyspace}\",\"table\":{},\"index\":\"{}\",\"entries\":{},\"keys\":{},\
         \"blocks\":{},\"segments\":{},\"index_bytes\":{},\"entries_per_block\":[{},{}],\
         \"plain_index_bytes\":{},\"error_blocks_max\":{},\"starts_step\":{step},\"starts\":[{}],\"points\":[{dots}]}}",
        table.id,
        table.index,
        table.entries,
        table.keys,
        table.blocks,
        table.segments,
        table.index_resident_bytes,
        model.entries_per_block.1,
        model.entries_per_block.0,
        plain_index_bytes(table),
        model.error_blocks_max,
        starts.join(","),
    )
}

#[cfg(test)]
mod tests {
    use rhumb::{Database, KeyspaceOptions};

    use super::Models;

    #[test]
    fn the_largest_table_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Models::default().json(dir.path()), "null");
        let path = dir.path().join("db");
        let db = Database::builder(&path).open().unwrap();
        let keys = db.keyspace("db0.keys", KeyspaceOptions::default()).unwrap();
        for n in 0..20_000_u32 {
            keys.insert(format!("key:{n:08}"), b"value").unwrap();
        }
        db.flush().unwrap();
        let models = Models::default();
        let json = models.json(&path);
        for part in ["\"keyspace\":\"db0.keys\"", "\"entries\":20000", "\"error_blocks_max\":0"] {
            assert!(json.contains(part), "{part} is not in {json}");
        }
        assert_eq!(models.json(&path), json);
    }
}
