//! Draws what happened when: throughput and the slowest timed operation, over the time of a run.

use std::{error::Error, path::Path};

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use crate::drive::{Measured, SLOT, Slot};

const WIDTH: u32 = 1200;

/// Height of one run's pair of charts.
const HEIGHT: u32 = 420;

/// Points of a line at most: more than a drawing shows.
const POINTS_MAX: usize = 600;

/// Writes the runs, one below the other, into the SVG file `path`, which it replaces.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn draw(runs: &[(String, Measured)], path: &Path) -> Result<()> {
    let svg = render(runs).map_err(|error| anyhow!("cannot draw the timeline: {error}"))?;
    crate::plot::save(&svg, path).with_context(|| format!("cannot write {}", path.display()))
}

fn render(runs: &[(String, Measured)]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let size = (WIDTH, HEIGHT * runs.len().max(1) as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        for ((title, measured), area) in runs.iter().zip(root.split_evenly((runs.len().max(1), 1)))
        {
            let (above, below) = area.split_vertically(HEIGHT / 2);
            let slots = &measured.timeline;
            let times = (slots.len() / POINTS_MAX).max(1);
            let seconds = SLOT.as_secs_f64() * times as f64;
            let merged: Vec<Slot> = slots.chunks(times).map(merge).collect();
            // Only some operations are timed; the rate of all is in the same proportion.
            let timed: u64 = slots.iter().map(|slot| slot.timed).sum();
            let share = measured.units as f64 / timed.max(1) as f64;
            let rates = merged.iter().map(|slot| slot.timed as f64 * share / seconds / 1e6);
            let worst = merged.iter().map(|slot| (slot.worst_ns.max(1) as f64 / 1e3).log10());
            line(&above, &format!("{title}: million a second"), seconds, rates.collect())?;
            let text = "slowest timed operation, log10 of microseconds";
            line(&below, text, seconds, worst.collect())?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn merge(slots: &[Slot]) -> Slot {
    slots.iter().fold(Slot::default(), |sum, slot| Slot {
        timed: sum.timed + slot.timed,
        worst_ns: sum.worst_ns.max(slot.worst_ns),
    })
}

fn line(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    seconds: f64,
    values: Vec<f64>,
) -> Result<(), Box<dyn Error>> {
    let low = values.iter().copied().fold(0.0, f64::min);
    let high = values.iter().copied().fold(low + 1e-3, f64::max) * 1.05;
    let end = (values.len() as f64 * seconds).max(1e-3);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..end, low..high)?;
    chart.configure_mesh().light_line_style(WHITE).draw()?;
    let points = values.iter().enumerate().map(|(i, &value)| ((i as f64 + 0.5) * seconds, value));
    chart.draw_series(LineSeries::new(points, &BLUE))?;
    Ok(())
}
