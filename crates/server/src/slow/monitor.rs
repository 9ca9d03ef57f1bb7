//! The latency monitor: when events took long, and how long.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

/// How many samples are kept of each event, as in Redis.
const SAMPLES_MAX: usize = 160;

/// The longest time of an event within a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Seconds since 1970.
    pub(crate) at: u64,
    pub(crate) ms: u64,
}

/// The samples of one event, the oldest first, and the longest of all that there ever were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    samples: VecDeque<Sample>,
    pub(crate) max_ms: u64,
}

impl Series {
    fn add(&mut self, at: u64, ms: u64) {
        self.max_ms = self.max_ms.max(ms);
        match self.samples.back_mut() {
            // A second has one sample.
            Some(last) if last.at == at => last.ms = last.ms.max(ms),
            _ => {
                self.samples.push_back(Sample { at, ms });
                if self.samples.len() > SAMPLES_MAX {
                    self.samples.pop_front();
                }
            }
        }
    }

    /// The samples, the oldest first.
    pub(crate) fn samples(&self) -> &VecDeque<Sample> {
        &self.samples
    }
}

/// All events.
#[derive(Debug, Default)]
pub(crate) struct Monitor(Mutex<BTreeMap<&'static str, Series>>);

impl Monitor {
    /// Adds an event that has just ended.
    pub(crate) fn add(&self, event: &'static str, ms: u64) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.lock().entry(event).or_default().add(at, ms);
    }

    /// The samples of an event, if there are some.
    pub(crate) fn series(&self, event: &str) -> Option<Series> {
        self.0.lock().get(event).cloned()
    }

    /// All events that have samples.
    pub(crate) fn all(&self) -> Vec<(&'static str, Series)> {
        self.0.lock().iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    /// Forgets the events that `is_one` names; returns how many they were.
    pub(crate) fn reset(&self, is_one: impl Fn(&str) -> bool) -> usize {
        let mut all = self.0.lock();
        let before = all.len();
        all.retain(|event, _| !is_one(event));
        before - all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_its_longest_time() {
        let mut series = Series::default();
        for (at, ms) in [(1, 5), (1, 9), (1, 3), (2, 4)] {
            series.add(at, ms);
        }
        let samples: Vec<_> =
            series.samples().iter().map(|sample| (sample.at, sample.ms)).collect();
        assert_eq!((samples, series.max_ms), (vec![(1, 9), (2, 4)], 9));
        (10..1000).for_each(|at| series.add(at, 1));
        assert_eq!((series.samples().len(), series.samples()[0].at), (SAMPLES_MAX, 840));
    }
}
