//! A map whose changes can be undone, so that edits which turn out to contradict the catalog leave
//! no trace, without a copy of the catalog for each of them.

use std::{collections::BTreeMap, ops::Deref};

/// A map that remembers what its changes replaced, until they are kept or undone. Each change costs
/// O(log n), as in the map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tracked<K, V> {
    map: BTreeMap<K, V>,
    /// What was there before each change, in order.
    replaced: Vec<(K, Option<V>)>,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), replaced: Vec::new() }
    }
}

impl<K, V> Deref for Tracked<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.map
    }
}

impl<K: Ord + Clone, V: Clone> Tracked<K, V> {
    /// Puts `value` at `key`; returns the old value.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = self.map.insert(key.clone(), value);
        self.replaced.push((key, old.clone()));
        old
    }

    /// Removes and returns the value at `key`.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let old = self.map.remove(key)?;
        self.replaced.push((key.clone(), Some(old.clone())));
        Some(old)
    }

    /// The value at `key`, to be changed. Several changes of one entry in a row are remembered as
    /// one.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let value = self.map.get_mut(key)?;
        if self.replaced.last().is_none_or(|(last, _)| last != key) {
            self.replaced.push((key.clone(), Some(value.clone())));
        }
        Some(value)
    }

    /// Keeps all changes.
    pub(super) fn keep(&mut self) {
        self.replaced.clear();
    }

    /// Undoes all changes since the last [`Tracked::keep`].
    pub(super) fn take_back(&mut self) {
        while let Some((key, old)) = self.replaced.pop() {
            match old {
                Some(old) => drop(self.map.insert(key, old)),
                None => drop(self.map.remove(&key)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_back_in_any_mixture() {
        let mut map = Tracked::default();
        map.insert(1, 10);
        map.insert(2, 20);
        map.keep();
        let before = map.clone();
        *map.get_mut(&1).unwrap() += 1;
        *map.get_mut(&1).unwrap() += 1;
        map.insert(3, 30);
        map.remove(&1);
        assert_eq!(map.remove(&1), None);
        map.insert(1, 7);
        *map.get_mut(&2).unwrap() = 0;
        *map.get_mut(&3).unwrap() = 0;
        assert_eq!(map.values().copied().collect::<Vec<_>>(), [7, 0, 0]);
        map.take_back();
        assert_eq!(map, before);
    }
}
