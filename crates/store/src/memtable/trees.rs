//! The LSM trees that a memtable has entries of.
//!
//! Thread safety: any number of threads may look and add; nothing is removed. Invariant: an LSM
//! tree is in the first of its slots that was vacant when it was added, and slots never become
//! vacant. So a search that comes to a vacant slot knows that the LSM tree is absent.

use std::sync::OnceLock;

use crate::types::TreeId;

/// The number of slots of the first table.
const FIRST: usize = 16;
/// The factor by which each further table has more slots than the one before.
const RATIO: usize = 8;
/// The number of slots in each table where an LSM tree may be. It is constant, so that an LSM tree
/// is found in constant time.
const PROBES: usize = 4;

/// A map from LSM trees to their data, which only grows.
pub(super) struct TreeSlots<T> {
    first: SlotTable<T>,
}

/// An LSM tree and its data, once there is one.
type Seat<T> = OnceLock<(TreeId, Box<T>)>;

struct SlotTable<T> {
    slots: Box<[Seat<T>]>,
    next: OnceLock<Box<SlotTable<T>>>,
}

impl<T> SlotTable<T> {
    fn new(len: usize) -> Self {
        Self { slots: (0..len).map(|_| OnceLock::new()).collect(), next: OnceLock::new() }
    }

    /// The slots where an LSM tree may be. The number of slots is a power of two.
    #[inline]
    fn slots_of(&self, tree: TreeId) -> impl Iterator<Item = &Seat<T>> {
        let hash = (u64::from(tree).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        (hash..hash + PROBES).map(|at| &self.slots[at & (self.slots.len() - 1)])
    }
}

impl<T> TreeSlots<T> {
    pub(super) fn new() -> Self {
        Self { first: SlotTable::new(FIRST) }
    }

    /// The data of an LSM tree. Never waits.
    #[inline]
    pub(super) fn get(&self, tree: TreeId) -> Option<&T> {
        let mut table = &self.first;
        loop {
            for slot in table.slots_of(tree) {
                let (found, what) = slot.get()?;
                if *found == tree {
                    return Some(what);
                }
            }
            table = table.next.get()?;
        }
    }

    /// Adds the data of an LSM tree. Returns the LSM tree's data, which is different if another
    /// thread was faster.
    pub(super) fn add(&self, tree: TreeId, what: T) -> &T {
        let mut what = Some(Box::new(what));
        let mut table = &self.first;
        loop {
            for slot in table.slots_of(tree) {
                // One value is left until this very call has filled a slot; it returns then.
                if let Some(new) = what.take_if(|_| slot.get().is_none())
                    && let Err((_, lost)) = slot.set((tree, new))
                {
                    what = Some(lost);
                }
                if let Some((_, found)) = slot.get().filter(|(found, _)| *found == tree) {
                    return found;
                }
            }
            table = table.next.get_or_init(|| Box::new(SlotTable::new(table.slots.len() * RATIO)));
        }
    }

    /// All LSM trees, ascending.
    pub(super) fn all(&self) -> Vec<(TreeId, &T)> {
        let mut all = Vec::new();
        let mut next = Some(&self.first);
        while let Some(table) = next {
            let taken = table.slots.iter().filter_map(OnceLock::get);
            all.extend(taken.map(|(tree, what)| (*tree, &**what)));
            next = table.next.get().map(|next| &**next);
        }
        all.sort_unstable_by_key(|(tree, _)| *tree);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_lsm_trees_are_found_again() {
        let trees = TreeSlots::new();
        let numbers = || (0..5_000).map(|i: u32| i.wrapping_mul(97)).chain([u32::MAX]);
        for tree in numbers() {
            assert!(trees.get(tree).is_none());
            assert_eq!(*trees.add(tree, tree), tree);
        }
        assert!(numbers().all(|tree| trees.get(tree) == Some(&tree)));
        assert!(numbers().all(|tree| *trees.add(tree, 7) == tree));
        assert!(trees.get(1).is_none());
        let all = trees.all();
        assert_eq!(all.len(), numbers().count());
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
