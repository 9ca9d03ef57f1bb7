//! Scans: the tables say which leaves hold the next pairs, and one read brings them all.
//!
//! A scan is not atomic. Its first leaf is proven by its fences; from there on, each leaf is the
//! one that the leaf before links to, since leaves are never freed and a split only adds one to the
//! right of another. Where the whole table was loaded anew meanwhile, that says nothing: the number
//! of loads is read before the first leaf and after all others. Where reads have no order, leaves
//! prove that they are of one load.

use super::{
    client::{Client, Outcome, loads_extent},
    layout::{NO_LEAF, append_bytes, head, kind},
    leaf::{HashPointer, Head, ValuePointer},
};
use crate::{
    error::Result,
    fabric::{Extent, Fabric},
    leaf::Side,
};

/// Leaves that one read brings: 16 pairs each, for scans of up to 512 in leaves half full.
const LEAVES_MAX: usize = 64;
/// Sub-models whose tables are asked for the leaves of one read.
const MODELS_MAX: u32 = 16;
/// Reads that bring no pair, before the host is asked.
const TRIES_MAX: u32 = 4;

/// A part of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Pairs in ascending order; `None` for a value that the host has.
    pub(crate) pairs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Where the host must go on, if the client could not.
    pub(crate) rest: Option<Vec<u8>>,
}

/// A pair of a leaf that was read.
struct Item {
    /// Not known before the record is read, in a leaf of hashes.
    key: Option<Vec<u8>>,
    value: SlotValue,
}

/// A value as a slot has it.
enum SlotValue {
    Here(Vec<u8>),
    Ask,
    Record(u32, u32),
}

impl Client {
    /// The first pairs at and after `from`, at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of the fabric.
    pub(crate) fn scan(
        &mut self,
        fabric: &impl Fabric,
        from: &[u8],
        limit: usize,
    ) -> Result<Scanned> {
        self.counts.scans += 1;
        let mut scanned = Scanned::default();
        let (mut at, mut tries) = (None::<(u32, usize)>, 0);
        self.loads = None;
        while scanned.pairs.len() < limit && tries < TRIES_MAX {
            let Some((number, count)) = at else {
                at = self.first_leaf(fabric, from)?;
                tries += 1;
                continue;
            };
            if number == NO_LEAF {
                return Ok(scanned);
            }
            let wanted = limit - scanned.pairs.len();
            let near = scanned.pairs.last().map_or(from, |(key, _)| key).to_vec();
            let numbers = self.following(fabric, &near, number, wanted.saturating_sub(count))?;
            let before = scanned.pairs.len();
            match self.leaves(fabric, &numbers, from, limit, &mut scanned)? {
                Some(next) => at = Some((next, 0)),
                None => self.counts.retries += 1,
            }
            // Empty leaves are no progress: links that are made up may lead nowhere for ever.
            tries = if scanned.pairs.len() > before { 0 } else { tries + 1 };
        }
        scanned.pairs.truncate(limit);
        if scanned.pairs.len() < limit {
            self.counts.fallbacks += 1;
            let after = scanned.pairs.last().map(|(key, _)| [key, &[0][..]].concat());
            scanned.rest = Some(after.unwrap_or_else(|| from.to_vec()));
        }
        Ok(scanned)
    }

    /// The leaf that a key is in, and how many of its pairs are at or after it, by a lookup. Notes
    /// how often the table was loaded.
    fn first_leaf(&mut self, fabric: &impl Fabric, key: &[u8]) -> Result<Option<(u32, usize)>> {
        let Some(route) = self.route(fabric, key)? else { return Ok(None) };
        let numbers: Vec<u32> = route.entries.iter().map(|entry| entry.number).collect();
        let found = self.heads_after_loads(fabric, &numbers)?;
        for ((leaf, entry), head) in (route.leaves.first..).zip(&route.entries).zip(&found) {
            let is_stale = head.as_ref().is_some_and(|head| head.incarnation != entry.incarnation);
            if is_stale {
                self.counts.stale += 1;
                self.cache.invalidate(route.index, leaf);
            }
        }
        let heads: Vec<Head> = found.into_iter().flatten().collect();
        let Some(sides) = self.sides(fabric, &heads, key)? else { return Ok(None) };
        let Some(leaf) = sides.iter().position(|side| *side == Side::Inside) else {
            // A sibling of what was split, if it is there: as far as one link.
            let right = sides.iter().rposition(|side| *side == Side::Right);
            let next = right.map_or(NO_LEAF, |at| heads[at].next);
            if next == NO_LEAF {
                return Ok(None);
            }
            self.counts.hops += 1;
            let heads: Vec<Head> = self.heads(fabric, &[next])?.into_iter().flatten().collect();
            let sides = self.sides(fabric, &heads, key)?.unwrap_or_default();
            return Ok((sides == [Side::Inside]).then_some((next, 0)));
        };
        let leaf = &heads[leaf];
        let code = rhumb_model::code::code_at(key, 0);
        let count = if leaf.is_exact() {
            leaf.keys().iter().filter(|word| **word >= code).count()
        } else {
            leaf.count / 2
        };
        Ok(Some((leaf.number, count)))
    }

    /// The heads of leaves, as [`Client::heads`] reads them, after the number of loads.
    fn heads_after_loads(
        &mut self,
        fabric: &impl Fabric,
        numbers: &[u32],
    ) -> Result<Vec<Option<Head>>> {
        if fabric.is_unordered() {
            // They prove of which load they are.
            let heads = self.heads(fabric, numbers)?;
            self.loads = self.load;
            return Ok(heads);
        }
        let heads = numbers.iter().map(|number| self.leaf_extent(*number, 0, head::WORDS));
        let extents: Vec<Extent> = std::iter::once(loads_extent()).chain(heads).collect();
        self.read(fabric, &extents)?;
        self.counts.leaves += numbers.len() as u64;
        self.loads = self.loads_in(0);
        let found = (1..).zip(numbers);
        Ok(found.map(|(piece, number)| self.head_in(fabric, piece, *number)).collect())
    }

    /// Leaf `number` and those that should follow it, until they hold `wanted` pairs beyond those
    /// of the leaf itself. `near` is a key of it, or of the leaf before.
    fn following(
        &mut self,
        fabric: &impl Fabric,
        near: &[u8],
        number: u32,
        wanted: usize,
    ) -> Result<Vec<u32>> {
        let (mut numbers, mut count) = (vec![number], 0);
        if wanted == 0 {
            return Ok(numbers);
        }
        let Some(route) = self.route(fabric, near)? else { return Ok(numbers) };
        let (mut index, mut descriptor, mut first) =
            (route.index, route.descriptor, route.leaves.first);
        let mut is_after = false;
        for _ in 0..MODELS_MAX {
            let len = descriptor.model.leaves.saturating_sub(first).min(2 * LEAVES_MAX as u32);
            let entries = self.entries(fabric, index, &descriptor, first, len)?;
            let Some(entries) = entries else { return Ok(numbers) };
            for entry in entries {
                // A leaf of two sub-models is in the tables of both.
                if is_after && numbers.last() != Some(&entry.number) {
                    numbers.push(entry.number);
                    count += usize::from(entry.count);
                } else if entry.number == number {
                    is_after = true;
                }
                if count >= wanted || numbers.len() == LEAVES_MAX {
                    return Ok(numbers);
                }
            }
            let Some(next) = index.checked_add(1).filter(|next| self.has_model(*next)) else {
                break;
            };
            let Some(found) = self.descriptor(fabric, next)? else { break };
            (index, descriptor, first) = (next, found, 0);
        }
        Ok(numbers)
    }

    /// Appends the pairs of leaves, which are read whole, as far as each links to the next.
    /// Returns the leaf that follows; `None` if not even the first could be read.
    fn leaves(
        &mut self,
        fabric: &impl Fabric,
        numbers: &[u32],
        from: &[u8],
        limit: usize,
        scanned: &mut Scanned,
    ) -> Result<Option<u32>> {
        let words = self.sizes.leaf_words();
        let mut extents: Vec<Extent> =
            numbers.iter().map(|number| self.leaf_extent(*number, 0, words)).collect();
        let is_unordered = fabric.is_unordered();
        if !is_unordered {
            extents.push(loads_extent());
        }
        self.read(fabric, &extents)?;
        // Where there is no order, each leaf proves of which load it is.
        let loads = if is_unordered { self.load } else { self.loads_in(numbers.len()) };
        if self.loads.is_none() || loads != self.loads {
            return Ok(None);
        }
        let mut next = None;
        let mut leaves = Vec::new();
        for (piece, number) in numbers.iter().enumerate() {
            let Some(leaf) = self.head_in(fabric, piece, *number) else { break };
            if next.is_some_and(|next| next != *number) {
                break;
            }
            let Some(items) = self.items(fabric, &leaf, piece) else { break };
            next = Some(leaf.next);
            leaves.push((leaf, items));
        }
        let mut end = None;
        let is_read = self.read_items(fabric, &mut leaves)?;
        for (leaf, items) in leaves.into_iter().take(is_read) {
            let mut pairs: Vec<_> = items
                .into_iter()
                .filter_map(|item| {
                    let value =
                        if let SlotValue::Here(value) = item.value { Some(value) } else { None };
                    Some((item.key?, value))
                })
                .filter(|(key, _)| &key[..] >= from)
                .collect();
            pairs.sort_unstable();
            if scanned.pairs.last().zip(pairs.first()).is_some_and(|(last, first)| last >= first) {
                // No leaf links to one of lower keys.
                return Ok(None);
            }
            scanned.pairs.append(&mut pairs);
            end = Some(leaf.next);
            if scanned.pairs.len() >= limit {
                break;
            }
        }
        Ok(end)
    }

    /// The pairs of a leaf, as far as it has them itself.
    fn items(&self, fabric: &impl Fabric, leaf: &Head, piece: usize) -> Option<Vec<Item>> {
        let (words, _) = self.image.piece(piece)?;
        let item = |index: usize| {
            let word = words[head::KEYS + index];
            if !leaf.is_exact() {
                let pointer = HashPointer::from_word(word);
                return Some(Item {
                    key: None,
                    value: SlotValue::Record(pointer.first_line, pointer.lines),
                });
            }
            let at = self.sizes.slot_word(index);
            let slot = words.get(at..at + self.sizes.slot_words())?;
            // Read without order, it may be newer than the head.
            let slot = self.slot(fabric, (leaf.number, index), slot)?;
            let slot = (slot[0] == word).then_some(slot)?;
            let pointer = ValuePointer::from_word(slot[1]);
            let value = match pointer.kind {
                kind::HERE => {
                    let mut value = Vec::new();
                    append_bytes(&slot[2..], pointer.size as usize, &mut value)
                        .then_some(SlotValue::Here(value))?
                }
                kind::RECORD => SlotValue::Record(pointer.first_line, pointer.size),
                kind::ASK => SlotValue::Ask,
                _ => return None,
            };
            Some(Item { key: Some(word.to_be_bytes().to_vec()), value })
        };
        (0..leaf.count).map(item).collect()
    }

    /// Reads the records of pairs, all in one read. Returns of how many leaves all are there.
    fn read_items(
        &mut self,
        fabric: &impl Fabric,
        leaves: &mut [(Head, Vec<Item>)],
    ) -> Result<usize> {
        let of = |item: &Item| match item.value {
            SlotValue::Record(first_line, lines) => Some((first_line, lines)),
            _ => None,
        };
        let records: Vec<(u32, u32)> =
            leaves.iter().flat_map(|(_, items)| items.iter().filter_map(of)).collect();
        if records.is_empty() {
            return Ok(leaves.len());
        }
        self.read_records(fabric, &records)?;
        let (mut piece, mut long) = (0, Vec::new());
        for (at, (leaf, items)) in leaves.iter_mut().enumerate() {
            for item in items.iter_mut() {
                let Some(record_at) = of(item) else { continue };
                let Some(record) = self.record(piece, record_at.0) else { return Ok(at) };
                let mut key = Vec::new();
                let is_whole = record.append_key(&mut key);
                if !is_whole || !record.is_of(&key) || !is_of_slot(leaf, item, &key) {
                    return Ok(at);
                }
                let mut value = Vec::new();
                item.key = Some(key);
                if record.kind == kind::ASK {
                    item.value = SlotValue::Ask;
                } else if record.append_value(&mut value) {
                    item.value = SlotValue::Here(value);
                } else {
                    long.push((at, record_at));
                }
                piece += 1;
            }
        }
        self.read_long(fabric, leaves, &long)
    }

    /// Reads records that are longer than their pointers say, one by one.
    fn read_long(
        &mut self,
        fabric: &impl Fabric,
        leaves: &mut [(Head, Vec<Item>)],
        long: &[(usize, (u32, u32))],
    ) -> Result<usize> {
        for (at, (first_line, lines)) in long {
            let items = leaves[*at].1.iter_mut();
            let mut same = items
                .filter(|item| matches!(item.value, SlotValue::Record(p, _) if p == *first_line));
            let Some((item, key)) = same.next().and_then(|item| {
                let key = item.key.clone()?;
                Some((item, key))
            }) else {
                return Ok(*at);
            };
            let mut value = Vec::new();
            self.read_records(fabric, &[(*first_line, *lines)])?;
            if !self.record(0, *first_line).is_some_and(|record| record.is_of(&key)) {
                return Ok(*at);
            }
            match self.value_in_piece(fabric, (*first_line, *lines), 0, &key, &mut value)? {
                Some(Outcome::Found) => item.value = SlotValue::Here(value),
                Some(_) => item.value = SlotValue::Ask,
                None => return Ok(*at),
            }
        }
        Ok(leaves.len())
    }
}

/// Returns true if a record's key is the one whose slot led to it.
fn is_of_slot(leaf: &Head, item: &Item, key: &[u8]) -> bool {
    match &item.key {
        Some(wanted) => wanted == key,
        None => {
            let hash = super::leaf::hash_of(key);
            let is_outside = leaf.side(key).is_some_and(|side| side != Side::Inside);
            !is_outside && leaf.find_hashed(hash).any(|(_, pointer)| {
                matches!(item.value, SlotValue::Record(first_line, _) if first_line == pointer.first_line)
            })
        }
    }
}
