//! What came out: tables for people, or a JSON object a line.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use anyhow::Result;
use serde_json::{Value, json};

use super::{Figure, PapersOptions, SUITE};
use crate::report::{align, number, rounded};

/// Numbers by their names.
pub(super) type Counts = Vec<(&'static str, f64)>;

/// One line of a figure.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) case: String,
    pub(super) counts: Counts,
}

/// What was measured of one figure.
#[derive(Debug)]
struct Part {
    name: &'static str,
    claim: &'static str,
    lines: Vec<Line>,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Results {
    environment: Value,
    /// What all objects have.
    common: Value,
    parts: Vec<Part>,
    conclusion: Option<(String, Value)>,
}

impl Results {
    pub(super) fn new(environment: Value, options: &PapersOptions) -> Self {
        let common = json!({
            "suite": SUITE, "data": options.data_name(), "value_bytes": options.value_size,
        });
        Self { environment, common, parts: Vec::new(), conclusion: None }
    }

    /// What is added from here on is of this figure.
    pub(super) fn begin(&mut self, figure: &Figure) {
        self.parts.push(Part { name: figure.name, claim: figure.claim, lines: Vec::new() });
    }

    /// Adds a line of the figure that has begun. `keys` are those of the keyspace.
    pub(super) fn add(&mut self, case: impl Into<String>, keys: usize, counts: Counts) {
        let mut all = vec![("keys", keys as f64)];
        all.extend(counts);
        if let Some(part) = self.parts.last_mut() {
            part.lines.push(Line { case: case.into(), counts: all });
        }
    }

    /// Adds a line at the end: as `text` for people, as `object` for machines.
    pub(super) fn conclude(&mut self, text: String, object: Value) {
        self.conclusion = Some((text, object));
    }

    /// The lines of a figure.
    #[cfg(test)]
    pub(super) fn lines(&self, figure: &str) -> &[Line] {
        let part = self.parts.iter().find(|part| part.name == figure);
        &part.expect("a figure that was measured").lines
    }

    /// Writes to standard output. That the reader of a pipe has gone is no error.
    pub(super) fn print(&self, json: bool) -> Result<()> {
        let text = if json { self.json_lines() } else { self.tables() };
        match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => Ok(result?),
        }
    }

    /// One JSON object a line: the environment, then the lines of all figures.
    fn json_lines(&self) -> String {
        let mut out = format!("{}\n", json!({ "environment": self.environment }));
        for part in &self.parts {
            for line in &part.lines {
                let mut object = self.common.clone();
                object["figure"] = part.name.into();
                object["case"] = line.case.clone().into();
                for (name, value) in &line.counts {
                    object[*name] = rounded(*value).into();
                }
                writeln!(out, "{object}").expect("a string takes every write");
            }
        }
        if let Some((_, object)) = &self.conclusion {
            writeln!(out, "{object}").expect("a string takes every write");
        }
        out
    }

    /// A table for each figure.
    fn tables(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            writeln!(out, "{}: {}\n", part.name, part.claim).expect("a string takes every write");
            let mut names: Vec<&str> = Vec::new();
            for (name, _) in part.lines.iter().flat_map(|line| &line.counts) {
                if !names.contains(name) {
                    names.push(name);
                }
            }
            let head = names.iter().map(|name| name.replace("_per_op", "").replace('_', " "));
            let mut rows = vec![std::iter::once("case".to_owned()).chain(head).collect::<Vec<_>>()];
            for line in &part.lines {
                let mut row = vec![line.case.clone()];
                row.extend(names.iter().map(|name| {
                    let count = line.counts.iter().find(|(other, _)| other == name);
                    count.map_or(String::new(), |(_, value)| number(*value))
                }));
                rows.push(row);
            }
            align(&rows, &mut out);
            out.push('\n');
        }
        if let Some((text, _)) = &self.conclusion {
            out.push_str(text);
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
impl Line {
    /// A number of the line.
    pub(super) fn count(&self, name: &str) -> f64 {
        let count = self.counts.iter().find(|(known, _)| *known == name);
        count.unwrap_or_else(|| panic!("{} has no {name}", self.case)).1
    }
}
