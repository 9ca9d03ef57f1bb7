//! Answers to clients that cannot map a region: looks into the leaves that they name, and pieces of
//! the directory by which they find those.
//!
//! What a client names is a guess. A leaf proves its answer by its fences, as it does to a client
//! that reads it itself, and a guess that leads nowhere costs this host a route by its own
//! directory. No lock is taken, unless the authority takes one.

use std::ops::{Bound, Range, RangeBounds};

use super::{Pair, Scan, share::Share};
use crate::{
    client::{Outcome, Page, Reader},
    error::{Error, Result},
    message::{
        Guess, How,
        format::{FRAME_BYTES_MAX, failure},
    },
};

/// The most bytes of keys in a part of the directory's top: what a connection holds at most, as of
/// a scan.
const TOP_BYTES: usize = 256 << 10;

/// Keys of which the leaves are asked for before the first is read: what a core has under way at
/// once.
const AHEAD: usize = 16;

/// What was found of a key: how, and where its value lies in the buffer, if there is one.
pub(super) type Found = (How, Option<Range<usize>>);

/// A block of the directory, and between which keys it finds runs.
pub(super) struct Block {
    pub(super) low: Vec<u8>,
    pub(super) high: Option<Vec<u8>>,
    pub(super) image: Vec<u8>,
}

/// A keyspace that is looked into, by the name under which it is shared.
#[derive(Clone, Copy)]
pub(super) struct Looker<'s> {
    share: &'s Share,
    name: &'s str,
}

impl<'s> Looker<'s> {
    pub(super) fn new(share: &'s Share, name: &'s str) -> Self {
        Self { share, name }
    }

    /// Looks for a key where it is expected, and appends its value to `out`.
    ///
    /// # Errors
    ///
    /// Those of the authority, if it is asked.
    pub(super) fn read(&self, guess: Guess, key: &[u8], out: &mut Vec<u8>) -> Result<Found> {
        let reader = self.share.reader();
        let slot = reader.as_ref().and_then(|reader| slot_of(reader, guess, key));
        self.read_at(reader.as_ref(), slot, key, out)
    }

    /// [`Looker::read`] of several keys, in their order.
    ///
    /// # Errors
    ///
    /// As [`Looker::read`]; [`Error::Refused`] as soon as there are more bytes of values than a
    /// frame has: a large value that is asked for again and again takes no more memory than that.
    pub(super) fn read_many(
        &self,
        wanted: &[(Guess, &[u8])],
        out: &mut Vec<u8>,
    ) -> Result<Vec<Found>> {
        let reader = self.share.reader();
        let mut found = Vec::with_capacity(wanted.len());
        for some in wanted.chunks(AHEAD) {
            let mut slots = [None; AHEAD];
            for (slot, (guess, key)) in slots.iter_mut().zip(some) {
                *slot = reader.as_ref().and_then(|reader| slot_of(reader, *guess, key));
                if let (Some(reader), Some(slot)) = (&reader, *slot) {
                    reader.prefetch_leaf(slot);
                }
            }
            for (slot, (_, key)) in slots.iter().zip(some) {
                found.push(self.read_at(reader.as_ref(), *slot, key, out)?);
                if out.len() > FRAME_BYTES_MAX {
                    let text = "the values do not fit a message".to_owned();
                    return Err(Error::Refused { code: failure::TOO_LARGE, text });
                }
            }
        }
        Ok(found)
    }

    fn read_at(
        &self,
        reader: Option<&Reader<'_>>,
        slot: Option<u32>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Found> {
        let (begin, mut how) = (out.len(), How::Guessed);
        let outcome = match (reader, slot) {
            // The region answers for nothing: no guess was wrong.
            (None, _) => Outcome::Busy,
            (Some(reader), slot) => {
                let seen = slot.and_then(|slot| reader.get_at(slot, key, out));
                seen.unwrap_or_else(|| {
                    how = How::Routed;
                    reader.get(key, out)
                })
            }
        };
        let is_found = match outcome {
            Outcome::Found => true,
            Outcome::Absent => false,
            Outcome::Ask(_) | Outcome::Busy => {
                if how == How::Guessed {
                    how = How::Asked;
                }
                let value = self.share.authority().get(self.name, key)?;
                out.extend_from_slice(value.as_deref().unwrap_or_default());
                value.is_some()
            }
        };
        Ok((how, is_found.then_some(begin..out.len())))
    }

    /// The first pairs of a range, out of the leaves where they can be read; and true if there may
    /// be more.
    ///
    /// # Errors
    ///
    /// Those of the authority, if it is asked.
    pub(super) fn scan(&self, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        let read = self.share.reader().and_then(|reader| scan_leaves(&reader, scan));
        read.map_or_else(|| self.share.authority().scan(self.name, scan), Ok)
    }

    /// Entries of the directory's top, at most `limit`, from that of the block on which has a key;
    /// and true if there are more.
    pub(super) fn top(&self, from: &[u8], limit: usize) -> (Vec<(Vec<u8>, u32)>, bool) {
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        let entries = self.share.reader().and_then(|reader| reader.top_from(from));
        for (low, unit) in entries.into_iter().flatten() {
            bytes += low.len();
            if blocks.len() == limit || bytes > TOP_BYTES {
                return (blocks, true);
            }
            blocks.push((low, unit));
        }
        (blocks, false)
    }

    /// The block of the directory that has a key; `None` while the region answers for nothing.
    pub(super) fn block(&self, key: &[u8]) -> Option<Block> {
        let reader = self.share.reader()?;
        let mut entries = reader.top_from(key)?;
        let (low, unit) = entries.next()?;
        let image = reader.copy_block(unit)?;
        let image = image.iter().flat_map(|word| word.to_le_bytes()).collect();
        Some(Block { low, high: entries.next().map(|(high, _)| high), image })
    }
}

/// The slot where a client expects a key.
fn slot_of(reader: &Reader<'_>, guess: Guess, key: &[u8]) -> Option<u32> {
    match guess {
        Guess::None => None,
        Guess::Leaf(slot) => Some(slot),
        Guess::Block(unit) => reader.slot_in_block(unit, key),
    }
}

/// The first pairs of a range and true if there may be more; `None` if the authority must be asked
/// for the first.
fn scan_leaves(reader: &Reader<'_>, scan: &Scan<'_>) -> Option<(Vec<Pair>, bool)> {
    let (mut pairs, mut bytes, mut page) = (Vec::new(), 0, Page::default());
    let mut at = if scan.reverse { scan.to } else { scan.from };
    let mut next;
    loop {
        // One more says that there is more.
        let left = scan.limit.saturating_sub(pairs.len()).saturating_add(1);
        let is_read = if scan.reverse {
            reader.page_down(at, left, &mut page)
        } else {
            reader.page_up(at, left, &mut page)
        };
        if !is_read || page.has_long_keys {
            return (!pairs.is_empty()).then_some((pairs, true));
        }
        for (key, value) in page.pairs.iter() {
            if !(scan.from, scan.to).contains(key) {
                return Some((pairs, false));
            }
            let Some(value) = value else {
                return (!pairs.is_empty()).then_some((pairs, true));
            };
            bytes += key.len() + value.len();
            if pairs.len() >= scan.limit || bytes > scan.bytes_max && !pairs.is_empty() {
                return Some((pairs, true));
            }
            pairs.push((key.to_vec(), value.to_vec()));
        }
        let Some(following) = page.next.take() else { return Some((pairs, false)) };
        next = following;
        at = if scan.reverse { Bound::Excluded(&next[..]) } else { Bound::Included(&next[..]) };
    }
}
