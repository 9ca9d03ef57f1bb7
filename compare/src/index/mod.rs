//! The rivals in memory: concurrent ordered maps of 64-bit words.
//!
//! None of them can be loaded in bulk but the standard library's map, so they are loaded by
//! ascending inserts, which gives each the most orderly memory that it can have.

mod concurrent_map;
mod congee;
mod locked_btree;
mod scc;
mod skip_list;

use anyhow::Result;
use rhumb_bench::{
    rhumb_index,
    suite::index::{self, IndexOptions, subject::Subject},
};

/// Subjects of runs that name none. scc's tree is not among them: the beginning of a range does not
/// come to an end in 3.8.8 once most of 100,000 keys were removed, as `insert` with `--verify`
/// does.
const USUAL: [&str; 5] = ["rhumb", "congee", "skiplist", "concurrent-map", "btreemap"];

/// Measures the subjects named and prints the report.
pub(crate) fn run(
    workloads: &[String],
    poisons: &[String],
    names: &[String],
    options: &IndexOptions,
) -> Result<()> {
    let names = if names.is_empty() { USUAL.map(str::to_owned).to_vec() } else { names.to_vec() };
    let ours: Vec<_> = names.iter().filter(|name| name.starts_with("rhumb")).cloned().collect();
    let ours = rhumb_index::subjects(&ours, options.trainers)?;
    let rivals: [Box<dyn Subject>; 5] = [
        Box::new(congee::subject()),
        Box::new(skip_list::subject()),
        Box::new(scc::subject()),
        Box::new(concurrent_map::subject()),
        Box::new(locked_btree::subject()),
    ];
    let known: Vec<&dyn Subject> = ours.iter().chain(&rivals).map(Box::as_ref).collect();
    let workloads = index::choose_workloads(workloads, poisons)?;
    index::run(&index::choose(&names, &known)?, &workloads, options)
}
