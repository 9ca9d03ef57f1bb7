//! Draws keys against their places, with the segments of the model over them.

use std::{error::Error, path::Path};

use plotters::prelude::*;
use rhumb::inspect::{ModelReport, Point};

use crate::{
    failure::{Failure, Outcome},
    keys::Form,
    output::grouped,
};

const SIZE: (u32, u32) = (1200, 800);

/// Draws `report` into the file `path`, which it replaces if that is a drawing.
pub(super) fn draw(report: &ModelReport, form: Form, path: &Path) -> Outcome {
    let svg = render(report, form)
        .map_err(|error| Failure::failed(format!("cannot draw the model: {error}")))?;
    rhumb_bench::plot::save(&svg, path)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

/// A place in the drawing: the key as a number, and a block.
#[expect(clippy::cast_precision_loss, reason = "finer than a drawing shows")]
fn place(point: &Point, block: u32) -> (f64, f64) {
    (point.code as f64, f64::from(block))
}

fn render(report: &ModelReport, form: Form) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let places: Vec<(f64, f64)> =
            report.points.iter().map(|point| place(point, point.block)).collect();
        let x_min = places.first().map_or(0.0, |place| place.0);
        let x_max = places.last().map_or(1.0, |place| place.0).max(x_min + 1.0);
        let y_max = f64::from(report.table.blocks.max(1));
        let name = report.table.path.file_name().unwrap_or_default().to_string_lossy();
        let title = format!(
            "{name}: {} keys in {} blocks, {} segments",
            grouped(report.table.keys),
            grouped(report.table.blocks.into()),
            grouped(report.table.segments.into())
        );
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(x_min..x_max, 0.0..y_max)?;
        let key_at = |x: &f64| label(report, form, *x);
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_labels(6)
            .x_label_formatter(&key_at)
            .x_desc("key")
            .y_desc("block")
            .draw()?;
        chart
            .draw_series(places.iter().map(|place| Circle::new(*place, 2, BLUE.mix(0.5).filled())))?
            .label("keys, where they are")
            .legend(|(x, y)| Circle::new((x + 10, y), 3, BLUE.filled()));
        chart
            .draw_series(
                segments(report)
                    .into_iter()
                    .map(|line| PathElement::new(line, RED.stroke_width(2))),
            )?
            .label("segments of the model")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], RED.stroke_width(2)));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE)
            .border_style(BLACK.mix(0.4))
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}

/// A line for each segment that has keys among the points: through what it predicts for them.
fn segments(report: &ModelReport) -> Vec<Vec<(f64, f64)>> {
    let mut lines = Vec::new();
    let mut points = &report.points[..];
    for (number, segment) in report.segments.iter().enumerate() {
        let next = report.segments.get(number + 1).map(|next| &next.separator);
        let count = points.partition_point(|point| next.is_none_or(|next| point.key < *next));
        let (of_segment, rest) = points.split_at(count);
        points = rest;
        let line: Vec<(f64, f64)> =
            of_segment.iter().map(|point| place(point, point.predicted)).collect();
        if line.len() > 1 && segment.blocks > 0 {
            lines.push(line);
        }
    }
    lines
}

/// The key that is nearest to a place of the axis.
fn label(report: &ModelReport, form: Form, x: f64) -> String {
    const LABEL_CHARS_MAX: usize = 24;
    let after = report.points.partition_point(|point| place(point, 0).0 < x);
    let point = report.points.get(after).or(report.points.last());
    let text = point.map(|point| form.show(&point.key)).unwrap_or_default();
    if text.chars().count() <= LABEL_CHARS_MAX {
        return text;
    }
    text.chars().take(LABEL_CHARS_MAX - 1).chain(['…']).collect()
}
