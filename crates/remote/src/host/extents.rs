//! Which slots, or units, of a region are free.

use std::collections::BTreeMap;

/// Ranges of numbers that are handed out and given back. They are taken from the lowest place where
/// they fit, so that a region that shrank is filled from its beginning.
#[derive(Default)]
pub(crate) struct Extents {
    /// Free ranges by their first number, with their lengths; no two touch.
    free: BTreeMap<u32, u32>,
    /// Numbers that are free, in all.
    free_count: u64,
}

impl Extents {
    /// Takes `count` numbers side by side; `None` if there are none. Linear in the number of free
    /// ranges at worst.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let (&first, &len) = self.free.iter().find(|(_, len)| **len >= count)?;
        self.free.remove(&first);
        if len > count {
            self.free.insert(first + count, len - count);
        }
        self.free_count -= u64::from(count);
        Some(first)
    }

    /// Gives numbers back, or adds new ones.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.free_count += u64::from(count);
        let (mut first, mut count) = (first, count);
        if let Some((&before, &len)) = self.free.range(..first).next_back()
            && before + len == first
        {
            self.free.remove(&before);
            (first, count) = (before, count + len);
        }
        if let Some(len) = self.free.remove(&(first + count)) {
            count += len;
        }
        self.free.insert(first, count);
    }

    /// Ranges of the numbers below `end` that are not free, by their first number and length.
    pub(super) fn taken(&self, end: u32) -> Vec<(u32, u32)> {
        let (mut at, mut taken) = (0, Vec::new());
        for (&first, &len) in self.free.iter().chain(std::iter::once((&end, &0))) {
            if first > at {
                taken.push((at, first - at));
            }
            at = first + len;
        }
        taken
    }

    /// Numbers that are free.
    pub(crate) fn free_count(&self) -> u64 {
        self.free_count
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_taken_is_free_and_what_is_given_comes_back(
            steps in prop::collection::vec((1u32..9, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut extents = Extents::default();
            extents.give(3, 100);
            let mut free: BTreeSet<u32> = (3..103).collect();
            let mut taken = Vec::new();
            for (count, which) in steps {
                let fits = (3..103).find(|first| (*first..first + count).all(|n| free.contains(&n)));
                prop_assert_eq!(extents.take(count), fits);
                match fits {
                    Some(first) => {
                        (first..first + count).for_each(|n| assert!(free.remove(&n)));
                        taken.push((first, count));
                    }
                    None => {
                        let (first, count) = taken.swap_remove(which.index(taken.len()));
                        extents.give(first, count);
                        free.extend(first..first + count);
                    }
                }
                prop_assert_eq!(extents.free_count(), free.len() as u64);
                let taken: u32 = extents.taken(110).iter().map(|(_, count)| count).sum();
                prop_assert_eq!(taken as usize, 110 - free.len());
                prop_assert_eq!(extents.taken(110)[0].0, 0);
            }
            taken.into_iter().for_each(|(first, count)| extents.give(first, count));
            prop_assert_eq!(extents.take(100), Some(3));
        }
    }
}
