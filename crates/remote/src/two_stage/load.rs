//! Loading a table anew: sorted pairs take the place of all that it held, in the same memory.
//!
//! 1. A leaf that is taken down answers for nothing, and comes back with another incarnation: what
//!    clients keep of it, and a record of its old fences, are of a leaf that is no more.
//! 2. Leaves are numbered anew, so that what one links to may come to hold any keys. The number of
//!    loads rises first: a scan, which follows links, takes nothing for its answer that it has read
//!    before and after. Where leaves have checksums, these are of one load.
//! 3. A get may find what is loaded before all of it is there. It is as new as the store was when
//!    the get was under way.

use super::{
    host::{Table, check_key},
    layout::{NO_LEAF, SLOTS, head},
    leaf::Fences,
    place::{Staging, Stored, border},
    write::{latch, load, store},
};
use crate::{error::Result, host::Space, layout::control, primitive::Ordering};

impl<S: Space> Table<S> {
    /// Removes all pairs and puts others in their place, which are sorted, no two of the same key,
    /// and trains the models. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full), and the first error among the pairs. The table is to be
    /// loaded again then.
    pub(crate) fn load(
        &mut self,
        pairs: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        // planted: scan-not-notice-all-loaded
        control::raise_loads(self.control.words());
        self.take_down();
        self.fill(pairs)?;
        self.train_first()
    }

    /// Has all leaves answer for nothing, and frees their records.
    fn take_down(&mut self) {
        for number in 0..self.leaf_count {
            let leaf = self.writer(number).head(number);
            let words = self.writer(number).words();
            latch(words);
            store(&words[head::SHAPE..], [0]);
            self.unlatch_leaf(number);
            let Some(leaf) = leaf else { continue };
            let records = (0..leaf.count).filter_map(|index| self.record_of(&leaf, index));
            let dropped = records.chain(leaf.fences_record()).collect();
            self.finish(Staging { dropped, ..Staging::default() });
        }
        self.begin_again();
        self.forget_trainings();
    }

    /// Writes the leaves of sorted pairs.
    pub(super) fn fill(
        &mut self,
        mut pairs: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        let fill = self.options.fill.clamp(1, SLOTS);
        let mut next = pairs.next().transpose()?;
        let mut low = None::<Vec<u8>>;
        loop {
            let mut some: Vec<(Vec<u8>, Stored)> = Vec::with_capacity(fill);
            while some.len() < fill
                && let Some((key, value)) = next.take()
            {
                check_key(&key)?;
                some.push((key, Stored::Bytes(value)));
                next = pairs.next().transpose()?;
            }
            let high = next.as_ref().zip(some.last());
            let high = high.map(|((next, _), (last, _))| border(last, next));
            self.append(&some, Fences { low: low.clone(), high: high.clone() })?;
            low = high;
            if low.is_none() {
                return Ok(());
            }
        }
    }

    /// Writes a leaf after all others, which readers find at once.
    fn append(&mut self, pairs: &[(Vec<u8>, Stored)], fences: Fences) -> Result<()> {
        let number = self.reserve_leaf()?;
        let incarnation = self.next_incarnation(number);
        let next = if fences.high.is_some() { number + 1 } else { NO_LEAF };
        let low = fences.low.clone().unwrap_or_default();
        let mut staging = Staging::default();
        let parts = match self.parts(pairs, fences, (number, incarnation), &mut staging) {
            Ok(parts) => parts,
            Err(error) => {
                self.abandon(staging);
                return Err(error);
            }
        };
        self.leaf_count += 1;
        self.write_parts(number, next, incarnation, &parts);
        self.finish(staging);
        self.tree.insert(low, number);
        self.entries += pairs.len() as u64;
        self.unlatch_all();
        Ok(())
    }

    /// The incarnation of a leaf that begins at a number: another one than the leaf had that was
    /// there before the table was loaded.
    pub(super) fn next_incarnation(&self, number: u32) -> u32 {
        let words = self.writer(number).words();
        let was_used = words[head::STATE].load(Ordering::Relaxed) != 0;
        let header = load(&words[head::HEADER..=head::HEADER])[0];
        if was_used { (header as u32).wrapping_add(1) & 0xff_ffff } else { 0 }
    }

    /// Removes the keys from `from` on, and before `to` if there is such an end; returns false if
    /// they are more than `limit`, some of which are removed then. Readers see it after
    /// [`Table::publish`].
    pub(crate) fn remove_range(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize) -> bool {
        let (mut number, mut left) = (self.walk(from), limit);
        while number != NO_LEAF {
            let leaf = self.head(number);
            let is_inside = |key: &Vec<u8>| &key[..] >= from && to.is_none_or(|to| &key[..] < to);
            let keys = (0..leaf.count).map(|index| self.key_of(&leaf, index));
            let keys: Vec<Vec<u8>> = keys.filter(is_inside).collect();
            if keys.len() > left {
                return false;
            }
            left -= keys.len();
            for key in &keys {
                self.remove(key, None);
            }
            let high = self.fences(&leaf).high;
            if to.zip(high.as_deref()).is_some_and(|(to, high)| high >= to) {
                break;
            }
            number = leaf.next;
        }
        true
    }
}
