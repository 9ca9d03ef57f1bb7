//! The harness on maps in memory: a sound one passes every workload, each faulty one fails.

use std::{collections::BTreeMap, sync::RwLock};

use clap::{Args, FromArgMatches};

use super::{
    subject::{Kind, Map, Session, value_of},
    *,
};

/// What a faulty map does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Loses one insert in a thousand.
    LosesInserts,
    /// Answers some lookups with the key.
    WrongValue,
    /// Keeps one in a hundred of the removed keys.
    KeepsRemoved,
    /// Finds keys that were never inserted.
    FindsAbsent,
    /// Leaves an entry out of each scan.
    ScanSkips,
    /// Repeats an entry in each scan.
    ScanRepeats,
    /// Scans see one in a thousand keys that are not there.
    ScanInvents,
    /// Forgets one key of a batch.
    BatchForgets,
    /// Calls a new key an old one.
    CallsNewOld,
}

struct Model {
    map: RwLock<BTreeMap<u64, u64>>,
    fault: Option<Fault>,
}

impl Model {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

impl Map for Model {
    type Session<'a> = &'a Model;

    fn session(&self) -> &Model {
        self
    }

    fn memory_bytes(&self) -> Option<usize> {
        Some(self.map.read().expect("no panics").len() * 20)
    }
}

impl Session for &Model {
    fn get(&mut self, key: u64) -> Option<u64> {
        let found = self.map.read().expect("no panics").get(&key).copied();
        match found {
            Some(_) if self.has(Fault::WrongValue) && key % 64 == 3 => Some(key),
            None if self.has(Fault::FindsAbsent) => Some(value_of(key)),
            found => found,
        }
    }

    fn insert(&mut self, key: u64, value: u64) -> bool {
        if self.has(Fault::LosesInserts) && key.is_multiple_of(97) {
            return true;
        }
        let old = self.map.write().expect("no panics").insert(key, value);
        old.is_none() && !(self.has(Fault::CallsNewOld) && key.is_multiple_of(97))
    }

    fn remove(&mut self, key: u64) -> bool {
        if self.has(Fault::KeepsRemoved) && key.is_multiple_of(97) {
            return true;
        }
        self.map.write().expect("no panics").remove(&key).is_some()
    }

    fn get_many(&mut self, keys: &[u64], out: &mut Vec<Option<u64>>) {
        for (i, &key) in keys.iter().enumerate() {
            let forgets = i == 63 && self.has(Fault::BatchForgets);
            out.push(if forgets { None } else { self.get(key) });
        }
    }

    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>) {
        let map = self.map.read().expect("no panics");
        out.extend(map.range(from..).take(count).map(|(&key, &value)| (key, value)));
        match self.fault {
            Some(Fault::ScanSkips) if out.len() > 7 => drop(out.remove(7)),
            Some(Fault::ScanRepeats) if out.len() > 7 => out[7] = out[6],
            Some(Fault::ScanInvents) if out.len() > 7 => out[7].0 = out[6].0 + 1,
            _ => {}
        }
    }
}

fn subject(fault: Option<Fault>) -> impl Subject {
    let build = move |sorted: &[u64]| {
        let map = sorted.iter().map(|&key| (key, value_of(key))).collect();
        Ok(Model { map: RwLock::new(map), fault })
    };
    Kind { name: "model", options: String::new(), build }
}

fn options(more: &[&str]) -> IndexOptions {
    let usual = ["test", "--keys=6000", "--seconds=0.01", "--repeat=1", "--quiet=0", "--verify"];
    let command = IndexOptions::augment_args(clap::Command::new("test"));
    let matches = command.get_matches_from(usual.iter().chain(more));
    IndexOptions::from_arg_matches(&matches).expect("valid options")
}

#[test]
fn a_sound_map_passes_every_workload_and_every_line_is_reported() {
    let sound = subject(None);
    for data in ["uniform", "hard"] {
        let data = format!("--data={data}");
        let options = options(&["--threads=1,2", &data]);
        let (report, faults) = measure(&[&sound], &Workload::ALL, &options).expect("measured");
        let text = report.json_lines();
        assert_eq!(faults, 0, "{text}");
        for workload in Workload::ALL {
            let name = match workload {
                Workload::Growth => "growth_6000_lookup",
                _ => workload.name(),
            };
            let line = format!("\"workload\":\"{name}\"");
            assert_eq!(text.matches(&line).count(), 2, "{line} in {text}");
        }
        for line in [
            "insert_removed_memory",
            "removed_share",
            "growth_60_memory",
            "growth_600_insert",
            "mixed50_insert",
            "poison_gaps_lookup_times_random",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        // Operations of each kind are among those that are timed.
        for line in ["mixed95_insert", "mixed50_insert", "dynamic_insert"] {
            let is_timed = |l: &str| l.contains(&format!("\"{line}\"")) && !l.contains("null");
            assert_eq!(text.lines().filter(|l| is_timed(l)).count(), 2, "{line} in {text}");
        }
        let last = text.lines().last().expect("lines");
        assert!(last.contains("\"missing\":0") && last.contains("\"ghosts\":0"), "{last}");
    }
}

#[test]
fn every_fault_is_caught_by_a_workload_that_can_see_it() {
    for (fault, workload) in [
        (Fault::LosesInserts, Workload::Insert),
        (Fault::LosesInserts, Workload::Mixed50),
        (Fault::LosesInserts, Workload::Dynamic),
        (Fault::LosesInserts, Workload::Append),
        (Fault::LosesInserts, Workload::Outside),
        (Fault::LosesInserts, Workload::Growth),
        (Fault::FindsAbsent, Workload::Remove),
        (Fault::KeepsRemoved, Workload::Remove),
        (Fault::WrongValue, Workload::Lookup),
        (Fault::WrongValue, Workload::LookupZipf),
        (Fault::WrongValue, Workload::Mixed95),
        (Fault::KeepsRemoved, Workload::Insert),
        (Fault::FindsAbsent, Workload::Insert),
        (Fault::ScanSkips, Workload::Scan100),
        (Fault::ScanSkips, Workload::Mixed95),
        (Fault::ScanRepeats, Workload::Scan100),
        (Fault::ScanInvents, Workload::Scan100),
        (Fault::ScanInvents, Workload::Insert),
        (Fault::BatchForgets, Workload::Batch64),
        (Fault::CallsNewOld, Workload::Insert),
    ] {
        let faulty = subject(Some(fault));
        let (report, faults) = measure(&[&faulty], &[workload], &options(&[])).expect("measured");
        assert!(faults > 0, "{fault:?} passed {workload:?}: {}", report.tables());
    }
}

#[test]
fn a_timeline_is_drawn() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("plot.svg");
    let plot = format!("--plot={}", path.display());
    let sound = subject(None);
    measure(&[&sound], &[Workload::Insert], &options(&[&plot])).expect("measured");
    let svg = std::fs::read_to_string(path).expect("drawn");
    assert!(svg.contains("model insert, 1 threads") && svg.contains("polyline"), "{svg}");
}

#[test]
fn names_are_chosen_and_poisons_bring_what_they_are_held_against() {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let chosen = choose_workloads(&names(&["insert", "lookup"]), &[]).expect("known");
    assert_eq!(chosen, [Workload::Lookup, Workload::Insert]);
    let chosen = choose_workloads(&[], &names(&["gaps"])).expect("known");
    assert_eq!(chosen, [Workload::PoisonRandom, Workload::PoisonGaps]);
    assert_eq!(choose_workloads(&[], &[]).expect("usual").len(), 8);
    assert!(choose_workloads(&names(&["nonesuch"]), &[]).is_err());
    let model = subject(None);
    assert!(choose(&names(&["nonesuch"]), &[&model]).is_err());
    assert!(choose(&names(&["model", "model"]), &[&model]).is_err());
    assert_eq!(choose(&names(&["model"]), &[&model]).expect("known").len(), 1);
}
