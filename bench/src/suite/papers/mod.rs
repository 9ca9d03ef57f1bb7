//! The papers suite: the figures of the papers that the presets of the remote tier are of, as far
//! as counts on one machine can show them.
//!
//! A *figure* is a name, one line of what the paper says of it, and a function that measures.
//! `docs/papers.md` has the paper's numbers and ours side by side. A host and its clients are
//! threads of this process: what the host costs is the CPU time of the process but for the threads
//! of its clients. Operations, checks and costs are those of the [remote](super::remote) suite:
//! every answer is held against what was written.

mod field;
mod finestore;
mod logging;
mod memory;
pub mod options;
mod price;
mod results;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests;
mod training;
mod ycsb;

use anyhow::{Result, bail, ensure};
use serde_json::json;

use self::{field::Field, results::Results};
pub use self::{options::PapersOptions, price::PRICES};
use super::remote::batch::Tally;
use crate::{environment, progress::Progress, workspace::Workspace};

/// The suite's name.
const SUITE: &str = "papers";

/// A figure of a paper.
pub struct Figure {
    /// The name on the command line and in results: a preset, and the paper's number.
    pub name: &'static str,
    /// What the paper says, in one line.
    pub claim: &'static str,
    run: fn(&mut Field<'_>, &mut Results) -> Result<()>,
}

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All figures, in the order in which they are measured.
pub const FIGURES: &[Figure] = &[
    ycsb::FIGURE_2,
    ycsb::FIGURE_10,
    training::FIGURE_10_ERROR,
    training::FIGURE_11,
    ycsb::FIGURE_12,
    training::FIGURE_14A,
    training::FIGURE_14B,
    training::FIGURE_14C,
    memory::FIGURE_15,
    memory::FIGURE_15D,
    memory::FIGURE_16A,
    memory::FIGURE_HINTS,
    logging::FIGURE_13A,
    logging::TABLE_3,
    finestore::FIGURE_14,
    finestore::FIGURE_15,
    finestore::FIGURE_17,
    finestore::FIGURE_18,
    finestore::FIGURE_19,
    finestore::FIGURE_20,
    finestore::FIGURE_21,
];

/// Chooses among figures by their names; all if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose(names: &[String], known: &'static [Figure]) -> Result<Vec<&'static Figure>> {
    for name in names {
        if !known.iter().any(|figure| figure.name == name) {
            let known: Vec<_> = known.iter().map(|figure| figure.name).collect();
            bail!("no figure {name}: there are {}", known.join(", "));
        }
    }
    let is_chosen = |figure: &&Figure| names.is_empty() || names.iter().any(|n| n == figure.name);
    Ok(known.iter().filter(is_chosen).collect())
}

/// Measures figures and prints their results.
///
/// # Errors
/// If a figure cannot be measured, or, after the results, if any answer was not the truth.
pub fn run(figures: &[&Figure], options: &PapersOptions) -> Result<()> {
    let (results, tally) = measure(figures, options)?;
    results.print(options.run.json)?;
    let faults = tally.faults();
    ensure!(faults == 0, "{faults} answers were missing or wrong");
    Ok(())
}

/// Measures figures; returns what came out and how the answers were.
fn measure(figures: &[&Figure], options: &PapersOptions) -> Result<(Results, Tally)> {
    options.validate()?;
    let workspace = Workspace::create(None)?;
    let mut environment = environment::describe();
    environment["seconds"] = options.time().as_secs_f64().into();
    environment["repeat"] = options.repetitions().into();
    environment["seed"] = options.run.seed.into();
    let mut results = Results::new(environment, options);
    let mut field = Field::new(options, workspace.path("host"), Progress::default())?;
    for figure in figures {
        results.begin(figure);
        (figure.run)(&mut field, &mut results)?;
    }
    let tally = field.tally;
    let Tally { checked, missing, wrong } = tally;
    results.conclude(
        format!("{checked} answers verified, {missing} missing, {wrong} wrong"),
        json!({
            "verified": true, "suite": SUITE, "checked": checked, "missing": missing,
            "wrong": wrong,
        }),
    );
    Ok((results, tally))
}
