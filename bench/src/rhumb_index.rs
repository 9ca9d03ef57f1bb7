//! Rhumb's index as a subject, through its public interface only.

use anyhow::{Context, Result, ensure};
use rhumb::index::{Index, Preset, moved_by_thread};

use crate::suite::index::subject::{Kind, Map, Session, Subject, value_of};

/// The presets by the names of their subjects.
const PRESETS: [(&str, Preset); 4] = [
    ("rhumb", Preset::Auto),
    ("rhumb-loft", Preset::Loft),
    ("rhumb-finestore", Preset::FineStore),
    ("rhumb-tone", Preset::Tone),
];

/// Rhumb's index under each of `names` (`rhumb`, `rhumb-loft`, …) with this number of trainers.
///
/// # Errors
/// If a name is unknown.
pub fn subjects(names: &[String], trainers: usize) -> Result<Vec<Box<dyn Subject>>> {
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for wanted in names {
        let known = PRESETS.into_iter().find(|(name, _)| name == wanted);
        let (name, preset) = known.with_context(|| {
            let names = PRESETS.map(|(name, _)| name);
            format!("no subject {wanted}: there are {}", names.join(", "))
        })?;
        let options = format!("preset {preset:?}, {trainers} trainers, loaded in bulk");
        let build = move |sorted: &[u64]| build(preset, trainers, sorted);
        subjects.push(Box::new(Kind { name, options, build }));
    }
    Ok(subjects)
}

/// The subject's name of a preset's name on the command line: `auto`, `loft`, ….
#[must_use]
pub fn subject_name(preset: &str) -> String {
    if preset == "auto" { "rhumb".to_owned() } else { format!("rhumb-{preset}") }
}

fn build(preset: Preset, trainers: usize, sorted: &[u64]) -> Result<RhumbIndex> {
    let index = Index::builder().preset(preset).trainers(trainers).build();
    let count = index.bulk_load(sorted.iter().map(|&key| (key, value_of(key))))?;
    ensure!(count == sorted.len(), "{count} of {} keys were loaded", sorted.len());
    Ok(RhumbIndex(index))
}

struct RhumbIndex(Index<u64, u64>);

impl Map for RhumbIndex {
    type Session<'a> = Handle<'a>;

    fn session(&self) -> Handle<'_> {
        Handle { index: &self.0, answers: Vec::new() }
    }

    fn memory_bytes(&self) -> Option<usize> {
        Some(self.0.memory_bytes())
    }
}

struct Handle<'a> {
    index: &'a Index<u64, u64>,
    answers: Vec<Option<u64>>,
}

impl Session for Handle<'_> {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.index.get(&key)
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.index.insert(key, value).is_none()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.index.remove(&key).is_some()
    }

    #[inline]
    fn moved(&self) -> u64 {
        moved_by_thread()
    }

    fn get_many(&mut self, keys: &[u64], out: &mut Vec<Option<u64>>) {
        self.index.multi_get(keys, &mut self.answers);
        out.append(&mut self.answers);
    }

    #[inline]
    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>) {
        self.index.range(from..).read_into(count, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_names() {
        for preset in ["auto", "loft", "finestore", "tone"] {
            assert_eq!(subjects(&[subject_name(preset)], 0).expect(preset).len(), 1);
        }
        let error = subjects(&["rhumb-nonesuch".to_owned()], 0).err().expect("refused").to_string();
        assert!(error.contains("rhumb-nonesuch"), "{error}");
    }
}
