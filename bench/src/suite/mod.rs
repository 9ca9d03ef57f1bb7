//! The suites: which workloads run in which order, on which state of the stores.

#[cfg(all(
    feature = "rhumb",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
pub mod ablation;
#[cfg(all(
    feature = "rhumb",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
pub mod async_reads;
#[cfg(feature = "rhumb")]
pub mod beside;
pub mod engine;
#[cfg(feature = "rhumb")]
pub mod idle;
pub mod index;
#[cfg(feature = "rhumb")]
pub mod memory;
#[cfg(feature = "rhumb")]
pub mod models;
#[cfg(all(feature = "rhumb", unix))]
pub mod papers;
pub mod queue;
#[cfg(feature = "rhumb")]
pub mod readafterdelete;
#[cfg(unix)]
pub mod remote;
#[cfg(feature = "rhumb")]
pub mod series;
#[cfg(feature = "rhumb")]
pub mod training;
pub mod transact;
pub mod ycsb;

use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::{
    environment,
    options::Options,
    subject::{Engine, Tuning},
};

/// Chooses engines by their names, in the order of the names; all of them if none is named.
///
/// # Errors
/// If a name is unknown or comes twice.
pub fn choose<'e>(names: &[String], engines: &[&'e dyn Engine]) -> Result<Vec<&'e dyn Engine>> {
    choose_by(names, engines, |engine| engine.name())
}

/// [`choose`] among subjects of any kind, which have these names.
fn choose_by<'e, E: ?Sized>(
    names: &[String],
    engines: &[&'e E],
    name_of: impl Fn(&'e E) -> &'e str,
) -> Result<Vec<&'e E>> {
    let mut chosen: Vec<&E> = Vec::new();
    for name in names {
        let Some(engine) = engines.iter().find(|engine| name_of(engine) == name) else {
            let known: Vec<_> = engines.iter().map(|engine| name_of(engine)).collect();
            bail!("no subject {name}: there are {}", known.join(", "));
        };
        let is_new = chosen.iter().all(|other| name_of(other) != name);
        ensure!(is_new, "subject {name} is named twice");
        chosen.push(*engine);
    }
    Ok(if names.is_empty() { engines.to_vec() } else { chosen })
}

/// Returns true if the workloads named are this one alone, which makes its own data.
///
/// # Errors
/// If it is named beside others, which need data sets.
fn is_alone(names: &[String], workload: &str) -> Result<bool> {
    let is_named = names.iter().any(|name| name == workload);
    ensure!(!is_named || names.len() == 1, "{workload} runs by itself, not beside other workloads");
    Ok(is_named)
}

/// The contents of the environment line: machine, run and subjects.
fn environment_line(
    options: &Options,
    engines: &[&dyn Engine],
    tunings: &[(&str, Tuning)],
) -> Value {
    let mut line = environment::describe();
    let subjects: Map<_, _> = engines
        .iter()
        .map(|engine| {
            let states = tunings.iter();
            let stated: Map<_, _> = states
                .map(|(state, tuning)| ((*state).to_owned(), engine.options(tuning).into()))
                .collect();
            (engine.name().to_owned(), stated.into())
        })
        .collect();
    let run = json!({
        "seconds": options.run.time().as_secs_f64(),
        "repeat": options.run.repetitions(),
        "seed": options.run.seed,
        "quick": options.run.quick,
        "compression": options.compression.name(),
        "redundancy_percent": options.redundancy,
        "subjects": subjects,
    });
    if let (Some(line), Value::Object(run)) = (line.as_object_mut(), run) {
        line.extend(run);
    }
    line
}

#[cfg(test)]
mod tests;
