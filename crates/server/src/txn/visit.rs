//! A walk over members that copies none of what is pending.

use std::{cmp::Ordering, ops::Bound};

use rhumb::{Result, Slice};

use super::{Directed, KeyBound, Space, Txn, is_empty};

/// A pair that is stored.
type Stored = Option<(Slice, Slice)>;

impl Txn<'_> {
    /// Shows the members of a range, ascending or descending, until `look` returns false.
    ///
    /// # Errors
    ///
    /// From the engine.
    pub(crate) fn visit_members(
        &self,
        (from, to): (KeyBound, KeyBound),
        reverse: bool,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        if is_empty(&from, &to) {
            return Ok(());
        }
        let has_ranges = !self.pending.ranges.is_empty();
        let mut look = |key: &[u8], value: &[u8]| {
            (has_ranges && self.is_removed(self.number, key)) || look(key, value)
        };
        let mut stored = Directed {
            stored: Space::Members.of(self.db()?).range((from.clone(), to.clone())),
            reverse,
        };
        let bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>) = (from, to);
        let mut written = self.writes(Space::Members).map(|writes| writes.range(bounds));
        let mut next_written = || {
            let written = written.as_mut()?;
            if reverse { written.next_back() } else { written.next() }
        };
        let Some(mut head) = next_written() else {
            while let Some(goes_on) = stored.next_with(&mut look) {
                if !goes_on? {
                    break;
                }
            }
            return Ok(());
        };
        let mut stored_head: Stored = stored.next().transpose()?;
        loop {
            // Which of the two comes first; what is written stands for what is stored.
            let order = match &stored_head {
                None => Ordering::Greater,
                Some((key, _)) if reverse => head.0.as_slice().cmp(key),
                Some((key, _)) => (**key).cmp(head.0.as_slice()),
            };
            if order.is_lt() {
                let goes_on = stored_head.as_ref().is_none_or(|(key, value)| look(key, value));
                if !goes_on {
                    return Ok(());
                }
                stored_head = stored.next().transpose()?;
                continue;
            }
            if order.is_eq() {
                stored_head = stored.next().transpose()?;
            }
            if head.1.as_ref().is_some_and(|value| !look(head.0, value)) {
                return Ok(());
            }
            match next_written() {
                Some(next) => head = next,
                None => break,
            }
        }
        while let Some((key, value)) = stored_head {
            if !look(&key, &value) {
                break;
            }
            stored_head = stored.next().transpose()?;
        }
        Ok(())
    }
}
