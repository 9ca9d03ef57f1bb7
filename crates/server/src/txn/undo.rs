//! Taking back what a script has written that was ended within a transaction or a commit
//! group.

use super::{Pending, Space};

/// What was pending for a key before it was written.
type Before = Option<Option<Vec<u8>>>;

/// What is to be taken back: the writes in their order, and how much there was before them.
pub(crate) struct Undo {
    writes: Vec<(u8, Space, Vec<u8>, Before)>,
    count: usize,
    changes: u64,
    ranges: usize,
    touched: usize,
    told: usize,
}

impl Pending {
    /// Keeps from now on what is written over.
    pub(crate) fn keep_undo(&mut self) {
        self.undo = Some(Undo {
            writes: Vec::new(),
            count: self.count,
            changes: self.changes,
            ranges: self.ranges.len(),
            touched: self.touched.len(),
            told: self.told.len(),
        });
    }

    /// Keeps it no longer.
    pub(crate) fn forget_undo(&mut self) {
        self.undo = None;
    }

    /// Says what was pending for a key that is written now.
    pub(super) fn note_undo(&mut self, number: u8, space: Space, key: Vec<u8>, before: Before) {
        if let Some(undo) = &mut self.undo {
            undo.writes.push((number, space, key, before));
        }
    }

    /// Takes back what was written since [`Pending::keep_undo`].
    pub(crate) fn take_back(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        // What was looked at before is as it was. What the script has looked at ended with it.
        (self.count, self.changes) = (undo.count, undo.changes);
        for (number, space, key, before) in undo.writes.into_iter().rev() {
            let mut all = self.writes.iter_mut();
            let Some((.., writes)) = all.find(|(n, s, _)| (*n, *s) == (number, space)) else {
                continue;
            };
            match before {
                Some(value) => writes.insert(key, value),
                None => writes.remove(&key),
            };
        }
        self.ranges.truncate(undo.ranges);
        self.touched.truncate(undo.touched);
        self.told.truncate(undo.told);
    }
}
