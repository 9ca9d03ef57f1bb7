//! Leaves that are read without order, while their host changes them.

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod hints;

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::{Hints, Leaves, Unordered};
use crate::{
    client::{Outcome, Page, Reader, States},
    error::Result,
    fabric::torn::{History, Torn},
    host::{Space, Table, heap::HeapSpace},
    layout::Geometry,
    message::Extent,
    primitive::{AtomicU64, Ordering},
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a region says after one step, and what readers may see then.
struct Step {
    control: Vec<AtomicU64>,
    model: Model,
    /// True if no change is under way.
    is_whole: bool,
}

impl Unordered for Torn<'_> {
    fn bring(&self, extents: &[Extent], out: &mut Vec<AtomicU64>) -> Result<bool> {
        out.clear();
        for (extent, words) in extents.iter().zip(Torn::bring(self, extents)) {
            // A head may be read where the last leaf ends.
            let words = words.unwrap_or_else(|| vec![0; extent.len as usize / 8]);
            out.extend(words.into_iter().map(|word| AtomicU64::new(word.to_le())));
        }
        Ok(true)
    }

    fn hints(&self) -> Option<Arc<Hints>> {
        None
    }
}

/// The slot that should hold a key, as a region's control part says.
fn route(control: &[AtomicU64], geometry: Geometry, key: &[u8]) -> Option<u32> {
    let reader = Reader::of(control, &[], geometry);
    let (_, unit) = reader.top_from(key)?.next()?;
    reader.slot_in_block(unit, key)
}

fn copy(words: &[AtomicU64]) -> Vec<AtomicU64> {
    words.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect()
}

/// Changes of a group: keys, and their values' lengths; none removes.
type Group = Vec<(u16, Option<u8>)>;

fn key(number: u16) -> Vec<u8> {
    // Of several lengths, in some runs of several prefixes.
    let text = format!("{:02}/{:03}", number % 7, number);
    text.as_bytes()[..text.len() - usize::from(number.is_multiple_of(3))].to_vec()
}

fn value(key: &[u8], version: usize, len: u8) -> Vec<u8> {
    let mut value = format!("{version}:").into_bytes();
    value.extend(key.iter().cycle().take(usize::from(len)));
    value
}

/// Makes changes, and keeps the region after each step.
fn record(geometry: Geometry, groups: &[Group]) -> (History, Vec<Step>) {
    let leaves = HeapSpace::new(geometry.leaf_bytes() * 4, geometry.leaf_bytes() * 512);
    let control = HeapSpace::new(64 << 10, 1 << 20);
    let mut table = Table::build(geometry, leaves, control, []).unwrap();
    let (mut steps, mut model, mut history) = (Vec::new(), Model::new(), History::default());
    let mut keep = |table: &Table<HeapSpace>, model: &Model, is_whole| {
        history.record(&[], table.leaf_space().words());
        let control = copy(table.control_space().words());
        steps.push(Step { control, model: model.clone(), is_whole });
    };
    keep(&table, &model, true);
    for (version, group) in groups.iter().enumerate() {
        let mut after = model.clone();
        for (number, len) in group {
            let (key, seq) = (key(*number), version as u64 + 1);
            match len {
                Some(len) => {
                    let value = value(&key, version, *len);
                    table.set(&key, &value, seq).unwrap();
                    after.insert(key, value);
                }
                None => {
                    table.remove(&key, seq);
                    after.remove(&key);
                }
            }
            keep(&table, &model, false);
        }
        table.publish(version as u64 + 1);
        model = after;
        keep(&table, &model, true);
    }
    (history, steps)
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    let change = (0..90_u16, prop::option::weighted(0.8, prop_oneof![Just(8), 0..60_u8]));
    prop::collection::vec(prop::collection::vec(change, 1..5), 1..60)
}

fn geometries() -> impl Strategy<Value = Geometry> {
    // Leaves that come as a whole, and such of which the head comes first.
    let sizes = prop_oneof![Just((512, 24)), Just((1_024, 24)), Just((2_048, 48))];
    sizes.prop_map(|(bytes, room)| Geometry::new(bytes, room).unwrap().with_checksums(true))
}

proptest! {
    #[test]
    fn gets_are_right_at_some_moment_of_their_time(
        geometry in geometries(), groups in groups(), seed: u64, most in 0..4_usize,
    ) {
        let (history, steps) = record(geometry, &groups);
        let torn = Torn::new(&history, most, seed);
        for begin in (0..steps.len()).step_by(1 + most) {
            let keys: Vec<Vec<u8>> = (0..92).map(key).collect();
            let slots = keys.iter().map(|key| route(&steps[begin].control, geometry, key).unwrap_or(0));
            let wanted: Vec<u32> = slots.collect();
            torn.begin_at(begin);
            let found = RefCell::new(vec![None; keys.len()]);
            let pairs = wanted.iter().zip(&keys).map(|(slot, key)| (*slot, &key[..]));
            let is_read = Leaves::new(&torn, geometry).get_many(pairs, |index, outcome, value| {
                let again = found.borrow_mut()[index].replace((outcome, value.to_vec(), torn.now()));
                assert!(again.is_none());
            });
            prop_assert!(is_read.unwrap());
            for (key, found) in keys.iter().zip(found.take()) {
                let (outcome, value, end) = found.unwrap();
                let mut moments = steps[begin..=end].iter().map(|step| step.model.get(key));
                match outcome {
                    Outcome::Found => prop_assert!(moments.any(|now| now == Some(&value))),
                    Outcome::Absent => prop_assert!(
                        moments.any(|now| now.is_none()),
                        "{:?} from {begin} to {end} of {:?}",
                        key.escape_ascii().to_string(),
                        steps.iter().map(|s| (s.is_whole, s.model.contains_key(key))).collect::<Vec<_>>()
                    ),
                    // Without a change at the same time nothing is asked for.
                    _ => prop_assert!(most > 0 || !steps[begin].is_whole, "{key:?}: {outcome:?}"),
                }
            }
        }
    }

    #[test]
    fn what_is_unchanged_was_there_at_one_moment(
        geometry in geometries(), groups in groups(), seed: u64, numbers in prop::collection::vec(0..92_u16, 1..8),
    ) {
        let (history, steps) = record(geometry, &groups);
        let torn = Torn::new(&history, 2, seed);
        let keys: Vec<Vec<u8>> = numbers.into_iter().map(key).collect();
        for begin in 0..steps.len() {
            torn.begin_at(begin);
            let slot = |key: &Vec<u8>| route(&steps[begin].control, geometry, key).unwrap_or(0);
            let wanted: Vec<(u32, &[u8])> = keys.iter().map(|key| (slot(key), &key[..])).collect();
            let (states, mut values) = (States::default(), vec![None; keys.len()]);
            let mut is_sure = true;
            let leaves = Leaves::new(&torn, geometry).noting(&states);
            leaves
                .get_many(wanted, |index, outcome, value| match outcome {
                    Outcome::Found => values[index] = Some(value.to_vec()),
                    Outcome::Absent => {}
                    Outcome::Busy | Outcome::Ask(_) => is_sure = false,
                })
                .unwrap();
            if is_sure && leaves.are_unchanged(&states).unwrap() {
                let is_there = |step: &Step| {
                    keys.iter().zip(&values).all(|(key, value)| step.model.get(key) == value.as_ref())
                };
                prop_assert!(steps[begin..=torn.now()].iter().any(is_there));
            }
        }
    }

    #[test]
    fn pages_pass_over_nothing_that_stays(
        geometry in geometries(), groups in groups(), seed: u64, limit in 1..200_usize,
    ) {
        let (history, steps) = record(geometry, &groups);
        let torn = Torn::new(&history, 2, seed);
        for begin in (0..steps.len()).step_by(2) {
            torn.begin_at(begin);
            let from = key((begin * 7 % 92) as u16);
            let slot = route(&steps[begin].control, geometry, &from).unwrap_or(0);
            let mut page = Page::default();
            let leaves = Leaves::new(&torn, geometry);
            if !leaves.page_up(slot, (&from, false), limit, &mut page).unwrap() {
                continue;
            }
            let steps = &steps[begin..=torn.now()];
            let pairs: Model = page
                .pairs
                .iter()
                .map(|(key, value)| (key.to_vec(), value.unwrap().to_vec()))
                .collect();
            prop_assert!(pairs.len() == page.pairs.len() && pairs.len() <= limit);
            prop_assert!(page.pairs.iter().is_sorted());
            for (key, value) in &pairs {
                prop_assert!(steps.iter().any(|step| step.model.get(key) == Some(value)));
            }
            let is_passed = |key: &Vec<u8>| *key >= from && page.next.as_ref().is_none_or(|n| key < n);
            for key in steps[0].model.keys().filter(|key| is_passed(key)) {
                let stays = steps.iter().all(|step| step.model.contains_key(key));
                prop_assert!(!stays || pairs.contains_key(key), "{key:?}");
            }
        }
    }

    #[test]
    fn pages_down_pass_over_nothing_that_stays(
        geometry in geometries(), groups in groups(), seed: u64, limit in 1..200_usize, takes: bool,
    ) {
        let (history, steps) = record(geometry, &groups);
        let torn = Torn::new(&history, 2, seed);
        for begin in (0..steps.len()).step_by(2) {
            torn.begin_at(begin);
            let to = (begin % 5 > 0).then(|| key((begin * 7 % 92) as u16));
            let likely = to.as_deref().unwrap_or(&[0xff; 20]);
            let slot = route(&steps[begin].control, geometry, likely).unwrap_or(0);
            let mut page = Page::default();
            let leaves = Leaves::new(&torn, geometry);
            if !leaves.page_down(slot, (to.as_deref(), takes), limit, &mut page).unwrap() {
                // Without a change at the same time all is read.
                continue;
            }
            let steps = &steps[begin..=torn.now()];
            let pairs: Model = page
                .pairs
                .iter()
                .map(|(key, value)| (key.to_vec(), value.unwrap().to_vec()))
                .collect();
            prop_assert!(pairs.len() == page.pairs.len() && pairs.len() <= limit.max(1));
            prop_assert!(page.pairs.iter().rev().is_sorted());
            for (key, value) in &pairs {
                prop_assert!(steps.iter().any(|step| step.model.get(key) == Some(value)));
                prop_assert!(to.as_ref().is_none_or(|to| key < to || takes && key == to));
            }
            // The next page begins with what is below this one's `next`.
            let is_passed = |key: &Vec<u8>| {
                to.as_ref().is_none_or(|to| key < to || takes && key == to)
                    && page.next.as_ref().is_none_or(|next| key >= next)
            };
            for key in steps[0].model.keys().filter(|key| is_passed(key)) {
                let stays = steps.iter().all(|step| step.model.contains_key(key));
                prop_assert!(!stays || pairs.contains_key(key), "{key:?}");
            }
        }
    }

    #[test]
    fn what_stands_still_is_read_down_in_few_trips(
        geometry in geometries(), groups in groups(), limit in 1..200_usize,
    ) {
        let (history, steps) = record(geometry, &groups);
        let (last, torn) = (steps.len() - 1, Torn::new(&history, 0, 0));
        torn.begin_at(last);
        let (mut all, mut to, mut page) = (Vec::new(), None::<Vec<u8>>, Page::default());
        loop {
            let likely = to.as_deref().unwrap_or(&[0xff; 20]);
            let slot = page.slot.or(route(&steps[last].control, geometry, likely)).unwrap();
            let leaves = Leaves::new(&torn, geometry);
            prop_assert!(leaves.page_down(slot, (to.as_deref(), false), limit, &mut page).unwrap());
            all.extend(page.pairs.iter().map(|(key, value)| (key.to_vec(), value.unwrap().to_vec())));
            match page.next.take() {
                Some(next) => to = Some(next),
                None => break,
            }
        }
        let wanted = steps[last].model.iter().rev().map(|(key, value)| (key.clone(), value.clone()));
        prop_assert!(all.into_iter().eq(wanted));
    }
}
