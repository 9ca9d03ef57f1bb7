//! Figures as bars in an SVG file: a chart for each workload, a bar for each subject.

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use crate::report::Report;

/// Height of one chart, and width of all, in pixels.
const CHART_HEIGHT: u32 = 320;
const WIDTH: u32 = 900;

/// Draws the rates of `subjects` in each of `workloads` with one thread count into the file `path`.
///
/// # Errors
/// If the file cannot be written.
pub fn write_rates(
    report: &Report,
    workloads: &[&str],
    subjects: &[&str],
    (threads, per_second): (usize, &str),
    path: &Path,
) -> Result<()> {
    let svg = draw(report, workloads, subjects, (threads, per_second))
        .map_err(|error| anyhow!("cannot draw the figures: {error}"))?;
    fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn draw(
    report: &Report,
    workloads: &[&str],
    subjects: &[&str],
    (threads, per_second): (usize, &str),
) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let charts = u32::try_from(workloads.len())?.max(1);
        let root =
            SVGBackend::with_string(&mut svg, (WIDTH, charts * CHART_HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        for (workload, area) in workloads.iter().zip(root.split_evenly((workloads.len(), 1))) {
            let rate = |name: &&str| report.value(name, workload, threads).unwrap_or(0.0) / 1e3;
            let rates: Vec<f64> = subjects.iter().map(rate).collect();
            let highest = rates.iter().copied().fold(1e-3, f64::max) * 1.05;
            let count = i32::try_from(subjects.len())?;
            let mut chart = ChartBuilder::on(&area)
                .caption(format!("{workload}: thousand {per_second} a second"), ("sans-serif", 16))
                .margin(8)
                .x_label_area_size(28)
                .y_label_area_size(60)
                .build_cartesian_2d((0..count - 1).into_segmented(), 0.0..highest)?;
            let name = |at: &SegmentValue<i32>| match at {
                SegmentValue::CenterOf(i) => usize::try_from(*i)
                    .ok()
                    .and_then(|i| subjects.get(i))
                    .map_or_else(String::new, |name| (*name).to_owned()),
                _ => String::new(),
            };
            chart
                .configure_mesh()
                .disable_x_mesh()
                .x_labels(subjects.len())
                .x_label_formatter(&name)
                .draw()?;
            let bars = (0..count).zip(rates).map(|(i, rate)| {
                let corners = [(SegmentValue::Exact(i), 0.0), (SegmentValue::Exact(i + 1), rate)];
                let mut bar = Rectangle::new(corners, BLUE.mix(0.6).filled());
                bar.set_margin(0, 0, 8, 8);
                bar
            });
            chart.draw_series(bars)?;
        }
        root.present()?;
    }
    Ok(svg)
}
