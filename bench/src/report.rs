//! Figures: one sample per repetition, medians over repetitions, ratios between subjects; as a
//! table for people or as JSON lines for machines.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
};

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::drive::Measured;

/// The subject that all others are compared with.
const OURS: &str = "rhumb";

/// Latencies in nanoseconds: P50, P99, P99.9, P99.99 and the longest.
pub type Latency = [u64; 5];

/// One figure of one repetition.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The figure.
    pub value: f64,
    /// Its unit; figures in `ops/s` and `keys/s` are better when larger, all others when smaller.
    pub unit: &'static str,
    /// Latencies, where operations were timed.
    pub latency: Option<Latency>,
}

impl Sample {
    /// The rate of a run, with its latencies.
    #[must_use]
    pub fn rate(measured: &Measured, unit: &'static str) -> Self {
        Self { value: measured.rate(), unit, latency: latency(&measured.latency) }
    }

    /// A figure without latencies.
    #[must_use]
    pub fn plain(value: f64, unit: &'static str) -> Self {
        Self { value, unit, latency: None }
    }
}

/// Reads the percentiles of a histogram; `None` if it is empty.
#[must_use]
pub fn latency(histogram: &Histogram<u64>) -> Option<Latency> {
    let at = |quantile| histogram.value_at_quantile(quantile);
    (!histogram.is_empty()).then(|| [at(0.5), at(0.99), at(0.999), at(0.9999), histogram.max()])
}

/// What all lines of a report have in common.
#[derive(Clone, Debug)]
pub struct Heading {
    /// The suite's name.
    pub suite: &'static str,
    /// The data set's name.
    pub data: String,
    /// How many keys.
    pub keys: usize,
    /// The length of each value, in bytes.
    pub value_bytes: usize,
}

/// Names a line: workload, threads, and the order of the subject in the run.
type LineKey = (usize, usize, usize);

/// What else was counted for a line, by name, with a number for each repetition.
type Counts = Vec<(&'static str, Vec<f64>)>;

/// The figures of a run.
#[derive(Debug)]
pub struct Report {
    heading: Heading,
    environment: Value,
    subjects: Vec<String>,
    workloads: Vec<String>,
    samples: BTreeMap<LineKey, Vec<Sample>>,
    counts: BTreeMap<LineKey, Counts>,
    conclusions: Vec<(String, Value)>,
}

/// The median figures of one line.
#[derive(Debug)]
struct Line<'a> {
    workload: &'a str,
    threads: usize,
    subject: &'a str,
    median: Sample,
    counts: Vec<(&'static str, f64)>,
}

impl Report {
    /// An empty report. `environment` is the contents of the first line.
    #[must_use]
    pub fn new(heading: Heading, environment: Value) -> Self {
        Self {
            heading,
            environment,
            subjects: Vec::new(),
            workloads: Vec::new(),
            samples: BTreeMap::new(),
            counts: BTreeMap::new(),
            conclusions: Vec::new(),
        }
    }

    /// Adds a repetition's figure. Lines appear in the order in which workloads and subjects were
    /// first named.
    pub fn add(&mut self, subject: &str, workload: &str, threads: usize, sample: Sample) {
        let subject = index_of(&mut self.subjects, subject);
        let workload = index_of(&mut self.workloads, workload);
        self.samples.entry((workload, threads, subject)).or_default().push(sample);
    }

    /// Adds what else was counted in a repetition whose figure was [added](Self::add): a column of
    /// the table and a member of the object for each name.
    pub fn add_counts(
        &mut self,
        subject: &str,
        workload: &str,
        threads: usize,
        counts: &[(&'static str, f64)],
    ) {
        let subject = index_of(&mut self.subjects, subject);
        let workload = index_of(&mut self.workloads, workload);
        let line = self.counts.entry((workload, threads, subject)).or_default();
        for (name, value) in counts {
            match line.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(*value),
                None => line.push((name, vec![*value])),
            }
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.heading.keys
    }

    /// Adds a line that stands at the end: as `text` for people, as `object` for machines.
    pub fn conclude(&mut self, text: String, object: Value) {
        self.conclusions.push((text, object));
    }

    /// The median of a line so far; `None` if it has no samples.
    #[must_use]
    pub fn value(&self, subject: &str, workload: &str, threads: usize) -> Option<f64> {
        let mut lines = self.lines();
        let line = lines.find(|line| {
            (line.subject, line.workload, line.threads) == (subject, workload, threads)
        });
        line.map(|line| line.median.value)
    }

    /// Writes the report to standard output: JSON lines if `json`, otherwise tables. That the
    /// reader of a pipe has gone is no error.
    pub fn print(&self, json: bool) -> Result<()> {
        let text = if json { self.json_lines() } else { self.tables() };
        match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => Ok(result?),
        }
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.samples.iter().map(|(key, samples)| {
            let &(workload, threads, subject) = key;
            let counts = self.counts.get(key).into_iter().flatten();
            let counts = counts.map(|(name, values)| (*name, middle(values.iter().copied())));
            Line {
                workload: &self.workloads[workload],
                threads,
                subject: &self.subjects[subject],
                median: median(samples),
                counts: counts.collect(),
            }
        })
    }

    /// For each line of ours, how many times better it is than the same line of each rival.
    fn ratios(&self) -> Vec<(String, usize, String, f64)> {
        let lines: Vec<_> = self.lines().collect();
        let mut ratios = Vec::new();
        for ours in lines.iter().filter(|line| line.subject == OURS) {
            let rivals = lines.iter().filter(|line| {
                (line.workload, line.threads) == (ours.workload, ours.threads)
                    && line.subject != OURS
            });
            for rival in rivals {
                let (ours_value, rival_value) = (ours.median.value, rival.median.value);
                let ratio = if is_rate(ours.median.unit) {
                    ours_value / rival_value
                } else {
                    rival_value / ours_value
                };
                if ratio.is_finite() {
                    let workload = ours.workload.to_owned();
                    ratios.push((workload, ours.threads, rival.subject.to_owned(), ratio));
                }
            }
        }
        ratios
    }

    /// One JSON object a line: the environment, the figures, the ratios.
    #[must_use]
    pub fn json_lines(&self) -> String {
        let Heading { suite, data, keys, value_bytes } = &self.heading;
        let mut out = format!("{}\n", json!({ "environment": self.environment }));
        for line in self.lines() {
            let latency = |i: usize| line.median.latency.map(|latency| latency[i]);
            let mut object = json!({
                "suite": suite, "subject": line.subject, "data": data, "keys": keys,
                "value_bytes": value_bytes, "workload": line.workload, "threads": line.threads,
                "value": rounded(line.median.value), "unit": line.median.unit,
                "p50_ns": latency(0), "p99_ns": latency(1), "p999_ns": latency(2),
                "p9999_ns": latency(3), "max_ns": latency(4),
            });
            for (name, value) in line.counts {
                object[name] = rounded(value).into();
            }
            writeln!(out, "{object}").expect("a string takes every write");
        }
        for (workload, threads, against, value) in self.ratios() {
            let object = json!({
                "ratio": true, "suite": suite, "workload": workload, "threads": threads,
                "data": data, "subject": OURS, "against": against, "value": rounded(value),
            });
            writeln!(out, "{object}").expect("a string takes every write");
        }
        for (_, object) in &self.conclusions {
            writeln!(out, "{object}").expect("a string takes every write");
        }
        out
    }

    /// The names of all that was counted, in the order in which they came.
    fn counted(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (name, _) in self.counts.values().flatten() {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }

    /// Tables for people.
    #[must_use]
    pub fn tables(&self) -> String {
        let Heading { suite, data, keys, value_bytes } = &self.heading;
        let mut out = format!("{suite}: {keys} keys of {data}, values of {value_bytes} bytes\n\n");
        let header =
            ["workload", "threads", "subject", "rate", "P50", "P99", "P99.9", "P99.99", "max"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let counted = self.counted();
        rows[0].extend(counted.iter().map(|name| name.replace("_per_op", "").replace('_', " ")));
        for line in self.lines() {
            let mut row = vec![
                line.workload.to_owned(),
                line.threads.to_string(),
                line.subject.to_owned(),
                quantity(line.median.value, line.median.unit),
            ];
            row.extend(line.median.latency.iter().flatten().map(|&ns| duration(ns)));
            if !counted.is_empty() {
                row.resize(header.len(), String::new());
            }
            for name in &counted {
                let count = line.counts.iter().find(|(other, _)| other == name);
                row.push(count.map_or(String::new(), |(_, value)| number(*value)));
            }
            rows.push(row);
        }
        align(&rows, &mut out);
        let mut rows = vec![["rhumb against", "threads", "subject", "times"].map(str::to_owned)];
        for (workload, threads, against, value) in self.ratios() {
            rows.push([workload, threads.to_string(), against, format!("{value:.2}")]);
        }
        if rows.len() > 1 {
            out.push('\n');
            align(&rows, &mut out);
        }
        if !self.conclusions.is_empty() {
            out.push('\n');
        }
        for (text, _) in &self.conclusions {
            out.push_str(text);
            out.push('\n');
        }
        out
    }
}

fn index_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn is_rate(unit: &str) -> bool {
    unit.ends_with("/s")
}

/// The median of each figure by itself; of an even count, the mean of the middle two.
fn median(samples: &[Sample]) -> Sample {
    let latencies: Vec<_> = samples.iter().filter_map(|sample| sample.latency).collect();
    let at = |i: usize| middle(latencies.iter().map(|latency| latency[i] as f64)) as u64;
    Sample {
        value: middle(samples.iter().map(|sample| sample.value)),
        unit: samples.first().map_or("", |sample| sample.unit),
        latency: (!latencies.is_empty()).then(|| std::array::from_fn(at)),
    }
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Four significant digits and no fraction where the number is large.
pub(crate) fn rounded(value: f64) -> f64 {
    let fraction_digits = if value.abs() >= 1000.0 { 0 } else { 3 };
    let factor = 10f64.powi(fraction_digits);
    (value * factor).round() / factor
}

fn quantity(value: f64, unit: &str) -> String {
    match value {
        v if unit == "bytes" && v >= 1e6 => format!("{:.1} MB", v / 1e6),
        v if v >= 1e6 => format!("{:.2}M {unit}", v / 1e6),
        v if v >= 1e3 => format!("{:.1}k {unit}", v / 1e3),
        v => format!("{v:.2} {unit}"),
    }
}

/// A number with three digits, or all of those before the point.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn duration(ns: u64) -> String {
    match ns as f64 {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.1} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.1} us", ns / 1e3),
        ns => format!("{ns} ns"),
    }
}

/// Writes `rows` with each column as wide as its widest cell; figures are set to the right.
pub(crate) fn align(rows: &[impl AsRef<[String]>], out: &mut String) {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let is_text = column == 0 || column == 2;
            let padding = " ".repeat(width - cell.len());
            let (left, right) =
                if is_text { ("", padding.as_str()) } else { (padding.as_str(), "") };
            write!(line, "{left}{cell}{right}  ").expect("a string takes every write");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let heading =
            Heading { suite: "engine", data: "random16".into(), keys: 10, value_bytes: 100 };
        Report::new(heading, json!({ "cores": 2 }))
    }

    #[test]
    fn lines_are_medians_and_ratios_are_above_one_when_ours_is_better() {
        let mut report = report();
        for (ours, theirs) in [(40.0, 10.0), (1.0, 9.0), (50.0, 11.0)] {
            let latency = Some([1, 2, 3, 4, 5]);
            let sample = |value| Sample { value, unit: "ops/s", latency };
            report.add("rhumb", "readrandom", 1, sample(ours));
            report.add("rocksdb", "readrandom", 1, sample(theirs));
        }
        report.add("rhumb", "disk", 1, Sample::plain(500.0, "bytes"));
        report.add("rocksdb", "disk", 1, Sample::plain(600.0, "bytes"));

        let text = report.json_lines();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 1 + 4 + 2);
        assert_eq!(lines[0]["environment"]["cores"], 2);
        assert_eq!(
            lines[1],
            json!({
                "suite": "engine", "subject": "rhumb", "data": "random16", "keys": 10,
                "value_bytes": 100, "workload": "readrandom", "threads": 1, "value": 40.0,
                "unit": "ops/s", "p50_ns": 1, "p99_ns": 2, "p999_ns": 3,
                "p9999_ns": 4, "max_ns": 5,
            })
        );
        assert_eq!(lines[3]["p50_ns"], Value::Null);
        assert_eq!(
            lines[5],
            json!({
                "ratio": true, "suite": "engine", "workload": "readrandom", "threads": 1,
                "data": "random16", "subject": "rhumb", "against": "rocksdb", "value": 4.0,
            })
        );
        assert_eq!(lines[6]["value"], 1.2, "fewer bytes are better");
    }

    #[test]
    fn counts_are_medians_beside_their_line() {
        let mut report = report();
        for calls in [0.0, 0.5, 9.0] {
            report.add("rhumb", "get", 1, Sample::plain(10.0, "ops/s"));
            report.add_counts("rhumb", "get", 1, &[("calls_per_op", calls), ("ns_per_op", 250.0)]);
        }
        report.add("other", "get", 1, Sample::plain(5.0, "ops/s"));
        let text = report.json_lines();
        let line: Value = serde_json::from_str(text.lines().nth(1).expect("a line")).expect("JSON");
        assert_eq!((&line["calls_per_op"], &line["ns_per_op"]), (&json!(0.5), &json!(250.0)));
        assert!(!text.lines().nth(2).expect("a line").contains("per_op"));
        let text = report.tables();
        assert!(text.contains("max  calls   ns") && text.contains("0.50  250"), "{text}");
    }

    #[test]
    fn tables_have_every_line() {
        let mut report = report();
        report.add("rhumb", "scan", 1, Sample::plain(12_345_678.0, "keys/s"));
        report.add("lmdb", "scan", 1, Sample::plain(1_000.0, "keys/s"));
        let text = report.tables();
        assert!(text.contains("12.35M keys/s") && text.contains("12345.68"), "{text}");
    }

    #[test]
    fn the_median_of_an_even_count_is_between() {
        assert_eq!(middle([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
    }
}
