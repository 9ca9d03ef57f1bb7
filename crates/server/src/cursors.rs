//! Cursors: numbers for the places where pages ended.
//!
//! The server remembers the exact places of the last cursors. A cursor that it has forgotten, or
//! that it gave out before it was started, says by itself about where its place was: the two bytes
//! after those that all keys of the range share. A scan that goes on there meets some keys again
//! and leaves out none. If the keys share other bytes now, it begins again.
//!
//! A cursor has 53 bits, because some clients read it as a float. From the highest: 9 bits of a
//! hash of the shared bytes, 16 bits about the place, 28 bits that tell it from others.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::random::Random;

/// How many places are remembered of first pages, and how many of later ones: so a scan that goes
/// on is not forgotten for the sake of those that only begin.
const PLACES_MAX: usize = 1 << 16;

/// Bytes of the remembered places, of each of the two.
const PLACE_BYTES_MAX: usize = 8 << 20;

/// Bits of a cursor that tell it from others; 0 is none of theirs.
const NUMBER_BITS: u32 = 28;

/// Bits about the place.
const PLACE_BITS: u32 = 16;

/// Bits of the hash of the shared bytes.
const SHARED_BITS: u32 = 9;

/// The places of scans that may go on.
#[derive(Debug)]
pub(crate) struct Cursors(Mutex<Places>);

impl Default for Cursors {
    fn default() -> Self {
        // Those that were given out before the last start are told from these.
        let last = Random::new().below(1 << NUMBER_BITS);
        Self(Mutex::new(Places {
            last,
            begun: Remembered::default(),
            later: Remembered::default(),
        }))
    }
}

#[derive(Debug)]
struct Places {
    last: u64,
    /// Of first pages, and of later ones.
    begun: Remembered,
    later: Remembered,
}

#[derive(Debug, Default)]
struct Remembered {
    bytes: usize,
    by_cursor: HashMap<u64, Box<[u8]>>,
    oldest_first: VecDeque<u64>,
}

impl Remembered {
    fn add(&mut self, cursor: u64, place: &[u8]) {
        self.bytes += place.len();
        if let Some(before) = self.by_cursor.insert(cursor, place.into()) {
            self.bytes -= before.len();
        } else {
            self.oldest_first.push_back(cursor);
        }
        while self.oldest_first.len() > PLACES_MAX || self.bytes > PLACE_BYTES_MAX {
            let Some(oldest) = self.oldest_first.pop_front() else { break };
            let forgotten = self.by_cursor.remove(&oldest);
            self.bytes -= forgotten.map_or(0, |place| place.len());
        }
    }
}

impl Cursors {
    /// A cursor for a scan that goes on after `place`. `code` is that of [`about_code`]; `is_later`
    /// says that the page was not the scan's first.
    pub(crate) fn remember(&self, place: &[u8], code: u64, is_later: bool) -> u64 {
        let mut places = self.0.lock();
        places.last = places.last % ((1 << NUMBER_BITS) - 1) + 1;
        let cursor = code << NUMBER_BITS | places.last;
        let remembered = if is_later { &mut places.later } else { &mut places.begun };
        remembered.add(cursor, place);
        cursor
    }

    /// The place that a cursor stands for, if it is remembered.
    pub(crate) fn place(&self, cursor: u64) -> Option<Vec<u8>> {
        let places = self.0.lock();
        let found = places.later.by_cursor.get(&cursor);
        found.or_else(|| places.begun.by_cursor.get(&cursor)).map(|place| place.to_vec())
    }
}

fn hash_of(shared: &[u8]) -> u64 {
    xxh3_64(shared) >> (u64::BITS - SHARED_BITS)
}

/// What a cursor says of a place: of the two bytes after the `shared` ones, and of those.
pub(super) fn about_code(place: &[u8], shared: &[u8]) -> u64 {
    let byte = |at: usize| u64::from(place.get(shared.len() + at).copied().unwrap_or(0));
    hash_of(shared) << PLACE_BITS | byte(0) << 8 | byte(1)
}

/// A place at or before the one that a cursor stands for, among keys that all begin with `shared`;
/// none if it is not one of theirs.
pub(super) fn about(cursor: u64, shared: &[u8]) -> Option<Vec<u8>> {
    let code = cursor >> NUMBER_BITS;
    if code >> PLACE_BITS != hash_of(shared) {
        return None;
    }
    let mut place = [shared, &(code as u16).to_be_bytes()].concat();
    // A key may end where the bytes are 0.
    while place.len() > shared.len() && place.last() == Some(&0) {
        place.pop();
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scans_that_go_on_are_not_forgotten_for_those_that_begin() {
        let cursors = Cursors::default();
        let (first, later) = (cursors.remember(b"a", 0, false), cursors.remember(b"b", 0, true));
        assert_eq!(cursors.place(first).as_deref(), Some(&b"a"[..]));
        for _ in 0..2 * PLACES_MAX {
            let cursor = cursors.remember(b"c", (1 << (PLACE_BITS + SHARED_BITS)) - 1, false);
            // What a float of 64 bits holds, and never the cursor of the beginning.
            assert!((1..1 << 53).contains(&cursor));
        }
        assert_eq!(cursors.place(first), None);
        assert_eq!(cursors.place(later).as_deref(), Some(&b"b"[..]));
        let large = vec![0; 1 << 20];
        (0..64).for_each(|_| {
            cursors.remember(&large, 0, true);
        });
        assert!(cursors.0.lock().later.bytes <= PLACE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn forgotten_cursors_lead_to_no_later_place(
            shared in prop::collection::vec(any::<u8>(), 0..4),
            rest in prop::collection::vec(0..3_u8, 0..5),
            other in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let place = [&shared[..], &rest].concat();
            let cursor = Cursors::default().remember(&place, about_code(&place, &shared), true);
            let about = super::about(cursor, &shared).unwrap();
            prop_assert!(about <= place && about.starts_with(&shared));
            prop_assert!(place[shared.len()..].starts_with(&about[shared.len()..]));
            if hash_of(&other) != hash_of(&shared) {
                prop_assert_eq!(super::about(cursor, &other), None);
            }
        }
    }
}
