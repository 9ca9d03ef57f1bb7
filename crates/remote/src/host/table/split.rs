//! Room for an entry in a leaf that has none: its leaf packed anew, or split.

use rhumb_model::code::separator_len;

use super::{At, CHAIN_MAX, SIBLING_SHARE, Table};
use crate::{
    error::{Error, Result},
    host::Space,
    layout::format::NO_SLOT,
    leaf::{EntryRef, Fences, Leaf, LeafImage},
    primitive::AtomicU64,
};

/// What a leaf holds, beside it: one piece of memory for all entries, as writers wait for it.
struct LeafContents {
    bytes: Vec<u8>,
    records: Vec<CopiedRecord>,
}

/// An entry among the bytes of a [`LeafContents`].
struct CopiedRecord {
    key_at: usize,
    value_at: usize,
    end: usize,
    kind: u8,
    value_len: usize,
}

impl LeafContents {
    fn of(leaf: Leaf<'_, [AtomicU64]>) -> Self {
        let head = leaf.head();
        // Each key lacks the prefix in the leaf.
        let mut bytes = Vec::with_capacity(head.used + head.count * head.prefix_len);
        let mut records = Vec::with_capacity(head.count);
        for record in (0..head.count).filter_map(|index| leaf.record(index)) {
            let key_at = bytes.len();
            if let Some(prefix) = leaf.prefix(&head) {
                prefix.append_to(&mut bytes);
            }
            record.key.append_to(&mut bytes);
            let value_at = bytes.len();
            record.value.append_to(&mut bytes);
            let (kind, value_len, end) = (record.kind, record.value_len, bytes.len());
            records.push(CopiedRecord { key_at, value_at, end, kind, value_len });
        }
        Self { bytes, records }
    }

    fn entries(&self) -> Vec<EntryRef<'_>> {
        let entry = |record: &CopiedRecord| EntryRef {
            key: &self.bytes[record.key_at..record.value_at],
            kind: record.kind,
            value_len: record.value_len,
            value: &self.bytes[record.value_at..record.end],
        };
        // One more is put among them.
        let mut entries = Vec::with_capacity(self.records.len() + 1);
        entries.extend(self.records.iter().map(entry));
        entries
    }
}

impl<S: Space> Table<S> {
    /// Puts an entry into a leaf that has no room for it: in the place of entry `index`, or before
    /// it.
    pub(super) fn make_room(
        &mut self,
        at: &At,
        index: usize,
        replaces: bool,
        entry: EntryRef<'_>,
        seq: u64,
    ) -> Result<()> {
        let copy = LeafContents::of(self.leaf(at.slot));
        let mut entries = copy.entries();
        entries.splice(index..index + usize::from(replaces), [entry]);
        let fences = self.fences_of(at.slot);
        let leaf = self.leaf(at.slot);
        let (run, next, previous) = (leaf.head().run, leaf.next(), leaf.previous());
        // Without the bytes of records that are gone, there may be room.
        if let Some(mut image) = self.image(&entries, &fences, run) {
            image.set_links(next, previous);
            image.set_seq(seq);
            self.writer(at.slot).replace(&image);
            return Ok(());
        }
        if self.siblings_of(at) >= CHAIN_MAX {
            // One more, and readers would not follow the chain to its end.
            self.rebuild(self.directory.find(entry.key), seq)?;
            return self.put(entry, seq).map(drop);
        }
        let (mut left, mut right) = self.halves(&entries, index, &fences, run)?;
        let sibling = self.take_slots(1)?;
        // planted: split-leaf-sibling-no-link
        right.set_links(next, at.slot);
        right.set_seq(seq);
        self.writer(sibling).begin(&right);
        self.latched.push(sibling);
        left.set_links(sibling, previous);
        left.set_seq(seq);
        self.writer(at.slot).replace(&left);
        self.link(next, None, Some(sibling));
        let leaves = at.located.leaves;
        let state = self.runs.entry(run).or_default();
        state.siblings += 1;
        if state.siblings * SIBLING_SHARE > leaves {
            // Without memory for that, the run is found by more links.
            let _ = self.renew(run, entry.key, seq);
        }
        Ok(())
    }

    /// Number of leaves between a leaf that a run's line finds and the next one.
    fn siblings_of(&self, at: &At) -> u32 {
        let found_by_line = at.located.base..at.located.base + at.located.leaves;
        let (mut slot, mut count) = (self.leaf(at.located.slot).next(), 0);
        while slot != NO_SLOT
            && !found_by_line.contains(&slot)
            && self.leaf(slot).head().run == at.located.run
        {
            (slot, count) = (self.leaf(slot).next(), count + 1);
        }
        count
    }

    /// A leaf of these entries, if they fit.
    fn image(&self, entries: &[EntryRef<'_>], fences: &Fences, run: u32) -> Option<LeafImage> {
        let mut image = LeafImage::new(self.geometry, fences, run);
        entries.iter().all(|entry| image.push(*entry)).then_some(image)
    }

    /// Two leaves of entries that do not fit into one, of which entry `index` is new.
    fn halves(
        &self,
        entries: &[EntryRef<'_>],
        index: usize,
        fences: &Fences,
        run: u32,
    ) -> Result<(LeafImage, LeafImage)> {
        // Keys that come in order leave full leaves.
        let wanted = match index {
            0 => 1,
            last if last + 1 == entries.len() => last,
            _ => entries.len() / 2,
        };
        let mut cuts: Vec<usize> = (1..entries.len()).collect();
        cuts.sort_by_key(|cut| cut.abs_diff(wanted));
        for cut in cuts {
            let (lower, upper) = entries.split_at(cut);
            let (Some(last), Some(first)) = (lower.last(), upper.first()) else { continue };
            let fence = first.key[..separator_len(last.key, first.key)].to_vec();
            let left = Fences::new(fences.low.clone(), Some(fence.clone()));
            let right = Fences::new(Some(fence), fences.high.clone());
            let (left, right) = (self.image(lower, &left, run), self.image(upper, &right, run));
            if let (Some(left), Some(right)) = (left, right) {
                return Ok((left, right));
            }
        }
        Err(Error::InvalidArgument("an entry that no leaf has room for".into()))
    }
}
