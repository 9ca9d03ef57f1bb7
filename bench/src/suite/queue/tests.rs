//! The queues on a store in memory: a sound one passes, each faulty one fails.

use std::collections::BTreeMap;

use clap::{Args, FromArgMatches};

use super::*;
use crate::subject::OnEntry;

/// What a faulty queue does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Pops the second entry, where there is one.
    PopsSecond,
    /// Pops an entry and leaves it there.
    Keeps,
    /// Changes the last byte of values.
    ChangedByte,
    /// Finds nothing at one pop in a hundred.
    FindsNothing,
    /// Pops more than it was asked to.
    PopsTwice,
}

struct MapEngine {
    fault: Option<Fault>,
    group: usize,
}

#[derive(Default)]
struct MapStore {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    fault: Option<Fault>,
    pops: u64,
}

impl QueueEngine for MapEngine {
    fn name(&self) -> &'static str {
        "rhumb"
    }

    fn options(&self, _: &Tuning) -> String {
        "a map".into()
    }

    fn group(&self) -> usize {
        self.group
    }

    fn open(&self, _: &Path, _: &Tuning) -> Result<Box<dyn QueueStore>> {
        Ok(Box::new(MapStore { fault: self.fault, ..MapStore::default() }))
    }
}

impl MapStore {
    fn pop(&mut self, is_first: bool, on_popped: OnEntry<'_>) -> Result<()> {
        self.pops += 1;
        let mut keys: Box<dyn Iterator<Item = &Vec<u8>>> =
            if is_first { Box::new(self.map.keys()) } else { Box::new(self.map.keys().rev()) };
        let at = usize::from(self.fault == Some(Fault::PopsSecond) && self.map.len() > 1);
        let Some(key) = keys.nth(at).cloned() else { return Ok(()) };
        drop(keys);
        let mut value = self.map[&key].clone();
        match self.fault {
            Some(Fault::FindsNothing) if self.pops.is_multiple_of(100) => return Ok(()),
            Some(Fault::ChangedByte) => *value.last_mut().expect("not empty") ^= 1,
            Some(Fault::PopsTwice) => drop(on_popped(&key, &value)?),
            _ => {}
        }
        if self.fault != Some(Fault::Keeps) {
            self.map.remove(&key);
        }
        on_popped(&key, &value)?;
        Ok(())
    }
}

impl QueueStore for MapStore {
    fn perform(&mut self, steps: &[Step], on_popped: OnEntry<'_>) -> Result<()> {
        for step in steps {
            match step {
                Step::Push { key, value } => drop(self.map.insert(key.to_vec(), value.clone())),
                Step::PopFirst => self.pop(true, on_popped)?,
                Step::PopLast => self.pop(false, on_popped)?,
            }
        }
        Ok(())
    }
}

fn options() -> Options {
    let command = Options::augment_args(clap::Command::new("test"));
    let matches = command.get_matches_from(["test", "--keys=1000", "--repeat=1"]);
    Options::from_arg_matches(&matches).expect("valid options")
}

#[test]
fn a_sound_store_passes_in_any_group() {
    for group in [1, 7, 1000] {
        let engine = MapEngine { fault: None, group };
        let report = run(&[&engine], &options()).expect("sound");
        for (name, ..) in CASES {
            for line in ["", "_first", "_last", "_last_to_first", "_cpu", "_cpu_last_to_first"] {
                let name = format!("{name}{line}");
                assert!(report.value("rhumb", &name, 1).is_some(), "{name}");
            }
        }
        let lines = report.json_lines();
        let all = "\"cycles\":1000,\"cycles_per_second\":[";
        assert_eq!(lines.matches(all).count(), CASES.len(), "{lines}");
    }
}

#[test]
fn every_fault_is_caught() {
    use Fault::{ChangedByte, FindsNothing, Keeps, PopsSecond, PopsTwice};
    for fault in [PopsSecond, Keeps, ChangedByte, FindsNothing, PopsTwice] {
        let engine = MapEngine { fault: Some(fault), group: 1 };
        assert!(run(&[&engine], &options()).is_err(), "{fault:?} passed");
    }
}

#[test]
fn the_workload_is_chosen_by_itself() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert!(is_chosen(&names(&["queue"])).expect("alone"));
    assert!(!is_chosen(&names(&["scan"])).expect("another"));
    assert!(is_chosen(&names(&["queue", "scan"])).is_err());
    let engine = MapEngine { fault: None, group: 1 };
    assert!(choose(&names(&["other"]), &[&engine]).is_err());
}
