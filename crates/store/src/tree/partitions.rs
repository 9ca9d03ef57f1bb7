//! The partitions of a keyspace at one moment, by name.
//!
//! A map never changes. A creation or a drop makes another map that shares all but one run of at
//! most [`RUN_MAX`] sub-trees with it. So ten thousand partitions can be created one by one without
//! copying all of them each time, and a reader keeps the map of one moment at the price of a
//! pointer.

use rhumb_sync::primitive::Arc;

use super::Tree;
use crate::types::{SeqNo, TreeId};

/// The largest number of sub-trees of a run. A creation or a drop copies up to this many.
const RUN_MAX: usize = 64;

/// Sub-trees in the order of their names; never empty.
type Run = Arc<[Arc<Tree>]>;

/// The partitions of a keyspace, in the order of their names.
#[derive(Clone, Default)]
pub(crate) struct PartitionMap {
    runs: Vec<Run>,
    count: usize,
    /// Reads at an older sequence number see an earlier map: this is the sequence number of the
    /// last drop.
    pub(crate) since: SeqNo,
}

/// A position in the order of a [`PartitionMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    run: usize,
    at: usize,
}

impl PartitionMap {
    /// The number of partitions.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// All sub-trees, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tree>> {
        self.runs.iter().flat_map(|run| run.iter())
    }

    /// The sub-tree of the partition `name`. O(log n).
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Tree>> {
        let place = self.at_or_after(name);
        self.at(place).filter(|tree| *tree.name == *name)
    }

    /// The first position whose partition is `name` or follows it. O(log n).
    #[inline]
    pub(crate) fn at_or_after(&self, name: &[u8]) -> Place {
        // The last run that begins at or before the name.
        let run = self.runs.partition_point(|run| *run[0].name <= *name).saturating_sub(1);
        let at = self.runs.get(run).map_or(0, |run| run.partition_point(|t| *t.name < *name));
        self.normal(Place { run, at })
    }

    /// The sub-tree at a position; `None` after the last.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&Arc<Tree>> {
        self.runs.get(place.run)?.get(place.at)
    }

    /// The position of the last partition; `None` if there is no partition.
    pub(crate) fn last(&self) -> Option<Place> {
        let run = self.runs.len().checked_sub(1)?;
        Some(Place { run, at: self.runs[run].len() - 1 })
    }

    /// The position after `place`.
    pub(crate) fn after(&self, place: Place) -> Place {
        self.normal(Place { at: place.at + 1, ..place })
    }

    /// The position before `place`; `None` before the first.
    pub(crate) fn before(&self, place: Place) -> Option<Place> {
        if let Some(at) = place.at.checked_sub(1) {
            return Some(Place { at, ..place });
        }
        let run = place.run.checked_sub(1)?;
        Some(Place { run, at: self.runs[run].len() - 1 })
    }

    /// A position at the end of a run is the beginning of the next.
    fn normal(&self, place: Place) -> Place {
        match self.runs.get(place.run) {
            Some(run) if place.at >= run.len() => Place { run: place.run + 1, at: 0 },
            _ => place,
        }
    }

    /// This map with `trees` inserted, whose names are not in it. O(new x (n / run + run)).
    pub(crate) fn with(&self, trees: &[Arc<Tree>]) -> Self {
        let mut next = self.clone();
        trees.iter().for_each(|tree| next.insert(tree));
        next
    }

    fn insert(&mut self, tree: &Arc<Tree>) {
        self.count += 1;
        let name = &*tree.name;
        let run = self.runs.partition_point(|run| *run[0].name <= *name).saturating_sub(1);
        let Some(old) = self.runs.get(run) else {
            self.runs.push(Arc::from([Arc::clone(tree)]));
            return;
        };
        let mut trees = old.to_vec();
        let at = trees.partition_point(|t| *t.name < *name);
        debug_assert!(trees.get(at).is_none_or(|t| *t.name != *name), "a partition twice");
        trees.insert(at, Arc::clone(tree));
        if trees.len() > RUN_MAX {
            // Names often ascend, so a full run stays full.
            let half = if at + 1 == trees.len() { RUN_MAX } else { trees.len() / 2 };
            let rest = trees.split_off(half);
            self.runs.insert(run + 1, rest.into());
        }
        self.runs[run] = trees.into();
    }

    /// This map without the sub-tree `id` of the partition `name`, dropped at sequence number
    /// `since`.
    pub(crate) fn without(&self, name: &[u8], id: TreeId, since: SeqNo) -> Self {
        let mut next = self.clone();
        next.since = since;
        let Place { run, .. } = self.at_or_after(name);
        if self.get(name).is_none_or(|tree| tree.id != id) {
            return next;
        }
        next.count -= 1;
        let kept: Vec<_> = self.runs[run].iter().filter(|tree| tree.id != id).cloned().collect();
        if kept.is_empty() {
            next.runs.remove(run);
        } else {
            next.runs[run] = kept.into();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{KeyspaceOptions, options::LiveOptions, version::levels::Levels};

    proptest! {
        #[test]
        fn a_map_is_a_map(
            steps in vec((vec(any::<u8>(), 0..3), any::<bool>()), 0..600),
            probes in vec(vec(any::<u8>(), 0..3), 20),
        ) {
            let (drops, options) = (Arc::default(), Arc::new(LiveOptions::new(&KeyspaceOptions::default())));
            let (mut map, mut model) = (PartitionMap::default(), BTreeMap::new());
            for (id, (name, remove)) in (1..).zip(steps) {
                match model.get(&name).copied() {
                    Some(old) if remove => {
                        map = map.without(&name, old, id.into());
                        model.remove(&name);
                    }
                    Some(_) => {}
                    None => {
                        let named = name.clone().into_boxed_slice();
                        let levels = Levels::default();
                        let tree = Tree::new(id, named, Arc::clone(&options), levels, 0, &drops);
                        map = map.with(&[tree]);
                        model.insert(name, id);
                    }
                }
            }
            prop_assert_eq!(map.len(), model.len());
            prop_assert!(map.iter().map(|tree| (&*tree.name, tree.id)).eq(
                model.iter().map(|(name, id)| (&**name, *id))
            ));
            for probe in probes {
                prop_assert_eq!(map.get(&probe).map(|t| t.id), model.get(&probe).copied());
                let place = map.at_or_after(&probe);
                let expected = model.range(probe.clone()..).next().map(|(_, id)| *id);
                prop_assert_eq!(map.at(place).map(|t| t.id), expected);
                let before = model.range(..probe).next_back().map(|(_, id)| *id);
                prop_assert_eq!(map.before(place).and_then(|p| map.at(p)).map(|t| t.id), before);
            }
            let mut place = map.at_or_after(&[]);
            for id in model.values() {
                prop_assert_eq!(map.at(place).map(|t| t.id), Some(*id));
                place = map.after(place);
            }
            prop_assert!(map.at(place).is_none());
            prop_assert_eq!(map.last().and_then(|p| map.at(p)).map(|t| t.id), model.values().last().copied());
        }
    }
}
