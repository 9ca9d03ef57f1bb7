//! Shows the model of a table.

use std::path::PathBuf;

use clap::Args;
use rhumb::inspect::{Inspector, ModelReport, Point, SegmentReport, TableReport};
use serde_json::{Value as Json, json};

use super::{Common, all_tables, database, plot};
use crate::{
    columns::Columns,
    failure::{Failure, Outcome},
    keys::Form,
    output::{Output, Progress, grouped},
};

/// Segments that are listed unless all are asked for.
const LISTED_SEGMENTS: usize = 20;

const EXAMPLES: &str = "\
Examples:
  rhumb inspect model                          the largest table
  rhumb inspect model 12 --all-segments
  rhumb inspect model 12 --plot model.svg
  rhumb inspect model --json

The error is measured, by reading every key of the table: the distance between the block that the
model names and the block that the key is in.";

/// The model of a table: its segments and how well they fit
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Model {
    #[command(flatten)]
    common: Common,
    /// Draw the keys against their places, with the model over them, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keys to draw and, with --json, to list
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    points: u32,
    /// List every segment, and not only the first 20
    #[arg(long)]
    all_segments: bool,
    /// The table, by number or file [default: the largest]
    #[arg(value_name = "TABLE")]
    table: Option<String>,
}

impl Model {
    /// Runs the command.
    pub(super) fn run(self, out: &mut Output) -> Outcome {
        let table = self.table()?;
        let mut progress = Progress::in_bytes("reading");
        let mut report =
            Inspector::new().model(&table.path, self.points as usize, &mut |done, total| {
                progress.update_bytes(done, total);
            })?;
        progress.finish();
        // The database knows more of its tables than a file does of itself.
        report.table = table;
        if let Some(svg) = &self.plot {
            plot::draw(&report, self.common.form(), svg)?;
        }
        if self.common.json {
            return out.json(&to_json(&report, self.common.form()));
        }
        self.print(&report, out)
    }

    fn table(&self) -> Outcome<TableReport> {
        if let Some(name) = &self.table {
            return self.common.table(name);
        }
        let report = self.common.report()?;
        let largest = all_tables(&report).max_by_key(|table| table.file_bytes);
        largest.cloned().ok_or_else(|| {
            let db = self.common.database.db.display();
            Failure::failed(format!("{db} has no tables yet: `rhumb compact` makes them"))
        })
    }

    fn print(&self, report: &ModelReport, out: &mut Output) -> Outcome {
        let form = self.common.form();
        database::print_table(&report.table, form, out)?;
        let mut detail = |name: &str, text: String| out.line(format!("  {name:<10}{text}"));
        let prefix = &report.common_prefix;
        detail(
            "prefix",
            match prefix.len() {
                0 => "none that all keys share".to_owned(),
                bytes => format!("{} ({bytes} bytes) in all keys", Form::Text.show(prefix)),
            },
        )?;
        detail(
            "error",
            match report.error_blocks_max {
                0 => "0 blocks: every key is in the block that the index names".to_owned(),
                blocks => format!("{blocks} blocks at most"),
            },
        )?;
        let (fullest, emptiest) = report.entries_per_block;
        let (largest, smallest) = report.bytes_per_block;
        let empty = grouped(report.empty_blocks.into());
        detail(
            "a block",
            format!(
                "has {emptiest} to {fullest} entries, {smallest} to {largest} bytes; {empty} are empty"
            ),
        )?;
        if let Some(svg) = &self.plot {
            detail("drawn", svg.display().to_string())?;
        }
        if !report.segments.is_empty() {
            out.line("")?;
            self.print_segments(&report.segments, out)?;
        }
        Ok(())
    }

    fn print_segments(&self, segments: &[SegmentReport], out: &mut Output) -> Outcome {
        let listed = if self.all_segments { segments.len() } else { LISTED_SEGMENTS };
        let mut columns = Columns::new(&[
            "segment",
            "blocks",
            "from block",
            "skip",
            "blocks per code",
            "from key",
        ]);
        for (number, segment) in segments.iter().enumerate().take(listed) {
            columns.row(vec![
                number.to_string(),
                segment.blocks.to_string(),
                segment.first_block.to_string(),
                segment.skip.to_string(),
                format!("{:.3e}", segment.slope),
                self.common.form().show(&segment.separator),
            ]);
        }
        columns.write(out)?;
        if segments.len() > listed {
            let more = grouped((segments.len() - listed) as u64);
            out.line(format!("and {more} more: --all-segments lists them"))?;
        }
        Ok(())
    }
}

fn to_json(report: &ModelReport, form: Form) -> Json {
    let segments = report.segments.iter().map(|segment| {
        let mut object = json!({
            "skip": segment.skip,
            "base_code": segment.base_code,
            "slope": segment.slope,
            "first_block": segment.first_block,
            "blocks": segment.blocks,
        });
        let (name, key) = form.to_json("separator", &segment.separator);
        object[name] = key;
        object
    });
    let points = report.points.iter().map(|point| point_json(point, form));
    json!({
        "table": database::table_json(&report.table, form),
        "common_prefix_hex": Form::Hex.show(&report.common_prefix),
        "error_blocks_max": report.error_blocks_max,
        "block_entries_max": report.entries_per_block.0,
        "block_entries_min": report.entries_per_block.1,
        "block_bytes_max": report.bytes_per_block.0,
        "block_bytes_min": report.bytes_per_block.1,
        "empty_blocks": report.empty_blocks,
        "segments": segments.collect::<Vec<_>>(),
        "points": points.collect::<Vec<_>>(),
    })
}

fn point_json(point: &Point, form: Form) -> Json {
    let mut object = json!({
        "code": point.code,
        "block": point.block,
        "predicted_block": point.predicted,
        "rank": point.rank,
    });
    let (name, key) = form.to_json("key", &point.key);
    object[name] = key;
    object
}
