//! Figures as bars in an SVG file: a chart for each workload, a bar for each subject.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

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
    save(&svg, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a drawing into the file `path`, wholly or not at all. It replaces a drawing or an empty
/// file, and no file of another kind.
///
/// # Errors
/// If there is a file of another kind, or the file cannot be written.
pub fn save(svg: &str, path: &Path) -> io::Result<()> {
    let path = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
        // A pipe or a device holds nothing that could be lost.
        Ok(found) if !found.is_file() => return fs::write(path, svg),
        Ok(_) if !is_drawing(path)? => {
            let what = "there is a file that is not a drawing; it is left as it is";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        // What a link leads to is replaced, and not the link.
        Ok(_) => path.canonicalize()?,
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".drawing-")
        // Less what the process masks, as for any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    file.write_all(svg.as_bytes())?;
    file.persist(&path).map_err(|failed| failed.error)?;
    Ok(())
}

/// Returns true for a file that is empty or begins as an SVG file does.
fn is_drawing(path: &Path) -> io::Result<bool> {
    const BEGINNINGS: [&[u8]; 3] = [b"<svg", b"<?xml", b"<!--"];
    let mut head = Vec::new();
    File::open(path)?.take(64).read_to_end(&mut head)?;
    let head = head.trim_ascii_start();
    Ok(head.is_empty() || BEGINNINGS.iter().any(|beginning| head.starts_with(beginning)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_replaces_drawings_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("plot.svg");
        for svg in ["<svg>first</svg>", "<svg>second</svg>"] {
            save(svg, &path).expect("it is written");
            assert_eq!(fs::read_to_string(&path).expect("it is read"), svg);
        }
        let link = dir.path().join("link.svg");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        save("<svg>third</svg>", &link).expect("it is written");
        assert!(link.is_symlink() && fs::read(&path).expect("read") == b"<svg>third</svg>");
        let precious = dir.path().join("000012.sst");
        fs::write(&precious, "RHUMB bytes").expect("written");
        let refused = save("<svg></svg>", &precious).expect_err("it is no drawing");
        assert!(refused.to_string().contains("not a drawing"), "{refused}");
        assert_eq!(fs::read(&precious).expect("read"), b"RHUMB bytes");
        save("<svg></svg>", dir.path()).expect_err("a directory");
        save("<svg></svg>", &dir.path().join("no/such")).expect_err("no directory");
        save("<svg></svg>", Path::new("/dev/null")).expect("a device takes it");
        // Nothing is left of what was begun.
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .expect("listed")
            .map(|e| e.expect("read").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["000012.sst", "link.svg", "plot.svg"]);
    }
}
