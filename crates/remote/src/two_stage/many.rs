//! Gets of several keys, which share their trips: one for the heads of all leaves, one for all
//! values, and one more for values that slots say are elsewhere.

use super::{
    client::{Client, Outcome},
    layout::{append_bytes, kind},
    leaf::{Head, POINTER_LINES_MAX, ValuePointer, hash_of},
    search::record_extent,
};
use crate::{
    error::Result,
    fabric::{Extent, Fabric},
    leaf::Side,
};

/// Where the value of a key should be.
#[derive(Clone, Copy)]
enum ValueSpot {
    Slot { leaf: u32, index: usize },
    Record { first_line: u32, lines: u32 },
}

/// What heads say of a key.
enum HeadVerdict {
    Absent,
    At(ValueSpot),
    Unsure,
}

impl Client {
    /// Gets several keys: `each` is called for those that were answered, with their indexes.
    /// Returns the others, of which the host is to be asked.
    ///
    /// # Errors
    ///
    /// Those of the fabric.
    pub(crate) fn multi_get(
        &mut self,
        fabric: &impl Fabric,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<Vec<usize>> {
        self.counts.gets += keys.len() as u64;
        let (mut numbers, mut ranges) = (Vec::new(), Vec::with_capacity(keys.len()));
        for key in keys {
            let begin = numbers.len();
            if let Some(route) = self.route(fabric, key)? {
                numbers.extend(route.entries.iter().map(|entry| entry.number));
            }
            ranges.push(begin..numbers.len());
        }
        let heads = self.heads(fabric, &numbers)?;
        let (mut wanted, mut missed) = (Vec::new(), Vec::new());
        for (index, range) in ranges.into_iter().enumerate() {
            match seen(&heads[range], keys[index]) {
                HeadVerdict::Absent => each(index, None),
                HeadVerdict::At(spot) => wanted.push((index, spot)),
                HeadVerdict::Unsure => missed.push(index),
            }
        }
        // The second time, for what slots say is in records.
        for _ in 0..2 {
            wanted = self.values(fabric, keys, &wanted, &mut each, &mut missed)?;
        }
        missed.extend(wanted.into_iter().map(|(index, _)| index));
        self.counts.fallbacks += missed.len() as u64;
        missed.sort_unstable();
        Ok(missed)
    }

    /// Reads values; returns those that are elsewhere.
    fn values(
        &mut self,
        fabric: &impl Fabric,
        keys: &[&[u8]],
        wanted: &[(usize, ValueSpot)],
        each: &mut impl FnMut(usize, Option<&[u8]>),
        missed: &mut Vec<usize>,
    ) -> Result<Vec<(usize, ValueSpot)>> {
        let mut elsewhere = Vec::new();
        if wanted.is_empty() {
            return Ok(elsewhere);
        }
        let extents: Vec<Extent> = wanted
            .iter()
            .map(|(_, spot)| match *spot {
                ValueSpot::Slot { leaf, index } => self.slot_extent(fabric, leaf, index),
                ValueSpot::Record { first_line, lines } => record_extent(first_line, lines.max(1)),
            })
            .collect();
        self.read(fabric, &extents)?;
        let mut value = Vec::new();
        for (piece, (index, spot)) in wanted.iter().enumerate() {
            value.clear();
            match self.value_at(fabric, piece, *spot, keys[*index], &mut value) {
                Some(Ok(Outcome::Found)) => each(*index, Some(&value)),
                Some(Err(spot)) => elsewhere.push((*index, spot)),
                Some(Ok(_)) | None => missed.push(*index),
            }
        }
        Ok(elsewhere)
    }

    /// The value in a piece of the last read, or where it is; `None` if that is not known.
    fn value_at(
        &self,
        fabric: &impl Fabric,
        piece: usize,
        spot: ValueSpot,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Option<Result<Outcome, ValueSpot>> {
        let (leaf, index) = match spot {
            ValueSpot::Slot { leaf, index } => (leaf, index),
            ValueSpot::Record { first_line, .. } => {
                let record = self.record(piece, first_line).filter(|record| record.is_of(key))?;
                if record.kind != kind::HERE {
                    return Some(Ok(Outcome::Ask));
                }
                return record.append_value(value).then_some(Ok(Outcome::Found));
            }
        };
        let (words, _) = self.image.piece(piece)?;
        let &[word, pointer, ref rest @ ..] = self.slot(fabric, (leaf, index), words)? else {
            return None;
        };
        if word != rhumb_model::code::code_at(key, 0) {
            return None;
        }
        let pointer = ValuePointer::from_word(pointer);
        match pointer.kind {
            kind::HERE => {
                append_bytes(rest, pointer.size as usize, value).then_some(Ok(Outcome::Found))
            }
            kind::RECORD => {
                Some(Err(ValueSpot::Record { first_line: pointer.first_line, lines: pointer.size }))
            }
            kind::ASK => Some(Ok(Outcome::Ask)),
            _ => None,
        }
    }
}

/// What the heads of the leaves that may have a key say of it.
fn seen(heads: &[Option<Head>], key: &[u8]) -> HeadVerdict {
    let found = || heads.iter().flatten();
    let exact = found().find_map(|leaf| Some((leaf.number, leaf.find_exact(key)?)));
    if let Some((leaf, index)) = exact {
        return HeadVerdict::At(ValueSpot::Slot { leaf, index });
    }
    let hash = hash_of(key);
    let mut records = found().flat_map(|leaf| leaf.find_hashed(hash));
    match (records.next(), records.next()) {
        (Some((_, pointer)), None) if pointer.lines < POINTER_LINES_MAX => {
            return HeadVerdict::At(ValueSpot::Record {
                first_line: pointer.first_line,
                lines: pointer.lines,
            });
        }
        (Some(_), _) => return HeadVerdict::Unsure,
        (None, _) => {}
    }
    // A key that is not among the pairs of the leaf between whose fences it is.
    match found().any(|leaf| leaf.side(key) == Some(Side::Inside)) {
        true => HeadVerdict::Absent,
        false => HeadVerdict::Unsure,
    }
}
