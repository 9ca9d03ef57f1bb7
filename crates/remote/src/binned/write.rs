//! Writes at the host: into trained records, bins and small arrays, and what they make due.

use std::sync::Arc;

use super::{
    array::{Array, Draft, shared_len},
    bins::{self, Insert},
    descriptor::Span,
    host::{Host, Spot},
    layout::{Link, Slot, Token, incarnation_of_epoch},
    message::{Address, Verb},
};
use crate::{
    error::{Error, Result},
    host::Space,
    message::format::KEY_BYTES_MAX,
};

/// Small arrays lie in one another this deep at most. The array is due for retraining from the
/// second on; where nobody retrains it, the write that would need a fourth does.
pub(super) const SMALL_DEPTH_MAX: usize = 3;
/// Removed keys that make an array due for retraining, if they are also half of it.
const REMOVED_MIN: u32 = 64;
/// Times that one write makes room before it inserts.
const ROOM_STEPS_MAX: usize = 8;

impl<S: Space> Host<S> {
    pub(super) fn write(
        &mut self,
        verb: Verb,
        address: Address,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        check_key(key)?;
        let mut address = address;
        for _ in 0..ROOM_STEPS_MAX {
            let Some((top, spot)) = self.locate(address, key) else { break };
            if spot.is_record {
                return self.write_record(verb, top, spot, key, value);
            }
            let link = self.record(spot).link();
            if let Link::Bin(root) = link
                && let Some(found) = bins::find(&self.records, root, key)
                && found.found.is_some()
            {
                return self.write_binned(verb, (top, spot), (root, found), key, value);
            }
            if matches!(verb, Verb::Update | Verb::Remove) {
                return Ok(false);
            }
            match link {
                Link::Bin(root) => {
                    let skip = bins::skip(&self.records, root);
                    let record = self.records.make(key, value, skip)?;
                    match bins::insert(&mut self.records, root, key, record) {
                        Ok(Insert::Done) => {
                            // An old array may have a record where this one has only the bin.
                            self.end_in_ancestors(top, key);
                            self.entries += 1;
                            return Ok(false);
                        }
                        Ok(Insert::Full) => {
                            self.records.release(&record);
                            self.make_small(top, spot, root)?;
                        }
                        Err(error) => {
                            self.records.release(&record);
                            return Err(error);
                        }
                    }
                }
                _ => return self.begin_bin(top, spot, key, value).map(|()| false),
            }
            // Room was made, and the address tells of what was before.
            address = Address::default();
        }
        Err(Error::invalid("arrays that are damaged"))
    }

    /// Writes a key that has a trained record.
    fn write_record(
        &mut self,
        verb: Verb,
        top: u64,
        spot: Spot,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let old = self.record(spot);
        let was_there = old.token() == Token::Live;
        match verb {
            Verb::Insert if was_there => return Ok(true),
            Verb::Update | Verb::Remove if !was_there => return Ok(false),
            Verb::Remove => {
                self.end_in_ancestors(top, key);
                let removed = self.records.without_value(&old);
                self.store(spot, removed);
                self.entries -= 1;
                self.count_removed(top, true);
            }
            _ => {
                let skip = self.arrays.get(&spot.array).map_or(0, |a| a.descriptor.prefix.len());
                let record = self.records.make_again(&old, key, value, skip)?;
                let record = record.with_link(old.link());
                self.end_in_ancestors(top, key);
                self.store(spot, record);
                if record.wide_extent() != old.wide_extent() {
                    self.records.release(&old);
                }
                self.entries += u64::from(!was_there);
            }
        }
        Ok(was_there)
    }

    /// Writes a key that was found in the bins of a gap.
    fn write_binned(
        &mut self,
        verb: Verb,
        (top, spot): (u64, Spot),
        (root, found): (Slot, bins::BinSpot),
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        match verb {
            Verb::Insert => {}
            Verb::Remove => {
                if bins::remove(&mut self.records, root, &found) {
                    let record = self.record(spot);
                    self.store(spot, record.with_link(Link::Empty));
                    self.count_removed(top, false);
                }
                self.entries -= 1;
            }
            _ => {
                let skip = bins::skip(&self.records, root);
                let record = self.records.make(key, value, skip)?;
                bins::replace(&mut self.records, &found, record);
                if let Some(old) = found.found {
                    self.records.release(&old);
                }
            }
        }
        Ok(true)
    }

    /// Puts the first key into a gap.
    fn begin_bin(&mut self, top: u64, spot: Spot, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(array) = self.arrays.get(&spot.array) else {
            return Err(Error::invalid("an array that is not there"));
        };
        let skip = shared_len(&array.gap(&self.records, spot.index));
        let record = self.records.make(key, value, skip)?;
        let root = match bins::begin(&mut self.records, skip, record) {
            Ok(root) => root,
            Err(error) => {
                self.records.release(&record);
                return Err(error);
            }
        };
        self.end_in_ancestors(top, key);
        let owner = self.record(spot);
        self.store(spot, owner.with_link(Link::Bin(root)));
        self.entries += 1;
        Ok(())
    }

    /// Makes a small array of the full bins of a gap; or, where small arrays lie too deep already,
    /// trains the whole array anew.
    fn make_small(&mut self, top: u64, spot: Spot, root: Slot) -> Result<()> {
        if spot.depth > 0 {
            self.due.insert(top);
        }
        if spot.depth >= SMALL_DEPTH_MAX {
            return self.train(top);
        }
        self.retrain_bins(spot, root)
    }

    /// Makes a small array of the bins of a gap.
    pub(super) fn retrain_bins(&mut self, spot: Spot, root: Slot) -> Result<()> {
        let Some(array) = self.arrays.get(&spot.array) else {
            return Err(Error::invalid("an array that is not there"));
        };
        let span = array.gap(&self.records, spot.index);
        // All keys of the gap begin as its lower end does.
        let low = Arc::clone(&span.low);
        let prefix = low.get(..bins::skip(&self.records, root)).unwrap_or_default();
        let small = self.small_of(root, span, prefix)?;
        bins::give_back(&mut self.records, root);
        let owner = self.record(spot);
        self.store(spot, owner.with_link(Link::Small(small)));
        self.counts.bin_retrainings += 1;
        Ok(())
    }

    fn small_of(&mut self, root: Slot, span: Span, prefix: &[u8]) -> Result<Slot> {
        let mut records = Vec::new();
        bins::collect(&self.records, root, &mut records);
        let codes: Vec<u64> = records.iter().map(|r| r.code_after(prefix.len())).collect();
        let segment = rhumb_model::lpa::train(&codes);
        let below = Link::Empty;
        let draft = Draft { span, prefix: prefix.into(), segment, below, records };
        let epoch = self.take_epoch();
        let mut array = Array::put(&mut self.records, &draft, epoch)?;
        array.is_small = true;
        let header = array.header;
        self.arrays.insert(epoch, array);
        Ok(header)
    }

    /// A number that no array of this host has had.
    pub(super) fn take_epoch(&mut self) -> u64 {
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        if incarnation_of_epoch(self.next_epoch) == 0 {
            // Blocks that answer for nothing have incarnation 0.
            self.next_epoch += 1;
        }
        epoch
    }

    /// Counts a removed record, or else a gap that became empty, and has the array trained anew if
    /// little is left of it.
    fn count_removed(&mut self, top: u64, is_record: bool) {
        let Some(array) = self.arrays.get_mut(&top) else { return };
        array.removed += u32::from(is_record);
        let records = array.descriptor.records;
        // What has nothing left is joined with the array after it.
        let is_empty = array.removed >= records && array.descriptor.span.high.is_some();
        if is_empty || array.removed - array.kept > REMOVED_MIN.max(records / 2) {
            self.due.insert(top);
        }
    }

    /// Ends, in arrays that were replaced and can still be read, the blocks that tell of a key.
    fn end_in_ancestors(&mut self, top: u64, key: &[u8]) {
        let Some(array) = self.arrays.get_mut(&top).filter(|top| !top.ancestors.is_empty()) else {
            return;
        };
        let mut ancestors = std::mem::take(&mut array.ancestors);
        ancestors.retain(|epoch| self.arrays.contains_key(epoch));
        for epoch in &ancestors {
            let answers = self.arrays[epoch].descriptor.span.contains(key);
            let spot = self.descend(*epoch, None, key).filter(|_| answers);
            let array = spot.and_then(|spot| Some((spot, self.arrays.get(&spot.array)?)));
            // What new arrays link to as well is changed in its place.
            if let Some((spot, array)) = array.filter(|(_, array)| array.is_retired) {
                let block = array.block(self.records.slab.sizes(), spot.index);
                self.records.slab.retire_block(block);
                self.counts.blocks_ended += 1;
            }
        }
        if let Some(array) = self.arrays.get_mut(&top) {
            array.ancestors = ancestors;
        }
    }
}

/// Refuses a key that messages do not carry.
pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let what = format!("a key of {} bytes, where {KEY_BYTES_MAX} are the most", key.len());
    Err(Error::InvalidArgument(what.into()))
}
