//! Where the records of hot keys lie, so that a get of one is a single trip.
//!
//! By way of the leaf's head a get is two trips, and most of what comes is the head. A *hint* says
//! where the record of a key was found: slot and incarnation of the leaf, place and length of the
//! record, length of the leaf's prefix. One trip brings the leaf's state and the record, without an
//! order between them. They are the answer if
//!
//! 1. the state has the hint's incarnation, latched or not,
//! 2. the record proves itself at its place, in a leaf whose prefix is what the key begins with,
//! 3. the prefix and the record's key are the key, and the value is in the record.
//!
//! Why that is right. Within one incarnation of a leaf, a record that proves itself is the current
//! one of its key, because a host keeps to this order:
//!
//! - What replaces or removes a record erases its proof when it is done: its sum is zeroed, or all
//!   of it is, or the whole leaf is stored anew, and a new record has no sum until its leaf is
//!   unlatched. All leaves of a group are changed before the first of them is unlatched. So once
//!   anything of a group can be seen, nothing that it replaced proves itself any more.
//! - A split stores the left leaf anew, without the records that have moved, before the group is
//!   published. Until then nobody can change them in the sibling.
//! - A leaf whose bytes stay for a while after its end gets another incarnation as it ends. The
//!   leaves that take its place are unlatched after that. What was written into it and not
//!   published before its end gets no sum.
//! - All other leaves that end are zeroed before the leaves that take their place are unlatched.
//!
//! Let the state have been read at one moment and the record at another. If the leaf had not ended
//! when the record was read, the record was current then. Otherwise the leaf ended between the two
//! moments, for the state had the incarnation of before, and the record was current when the leaf
//! ended. Both moments are within the get.
//!
//! A sum is no secret: who can write a value may make one up, and could write the key as well. An
//! incarnation has 24 bits. A hint would have to outlast eight million leaves of its slot to meet
//! its own again.
//!
//! Hints say nothing of keys that are absent, and nothing of one moment for several keys: those are
//! read by way of heads. A hint that fails costs a trip. So one is used only where two gets have
//! found the record at the same place, and it is forgotten once it has failed: keys that are read
//! once, or move between any two gets, cost what they did.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    layout::{
        Geometry, Memory,
        format::{INCARNATION_SHIFT, KIND_INLINE, head},
    },
    leaf::whole::{Lone, lone_record},
    primitive::AtomicU64,
};

/// Bytes of the hints of a keyspace, at most. CHIME (SOSP '24) keeps 30 MB for its hot keys; this
/// is a small constant, which no budget has to count, and holds 65,536 hints.
const HINTS_BYTES: usize = 1 << 20;

/// Parts of the table, each with a lock of its own: several times as many as threads read at once.
const SHARDS: usize = 64;

/// Hints of a part.
const SHARD_HINTS: usize = HINTS_BYTES / SHARDS / size_of::<KeyHint>();

/// Gets that have found a record at the same place before a hint is used.
const FINDS_MIN: u8 = 2;

/// The most gets that are counted of a hint: as many of other keys let it go.
const FINDS_MAX: u8 = 16;

/// Where the record of a key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) slot: u32,
    /// The leaf's incarnation then.
    pub(super) incarnation: u32,
    /// The record's first word in the leaf.
    pub(super) begin: u16,
    /// Words of the record, with its sum.
    pub(super) words: u16,
    pub(super) prefix_len: u8,
}

/// A hint in the table, in 16 bytes.
#[derive(Clone, Copy, Default)]
struct KeyHint {
    slot: u32,
    incarnation: u32,
    begin: u16,
    words: u16,
    /// Bits of the key's hash. The record itself says which key it has.
    tag: u16,
    prefix_len: u8,
    /// Gets that have found the record there; 0 if there is no hint here.
    finds: u8,
}

/// The hints of a region, in the order of keys' hashes: each key has one place in the table.
pub(in crate::client) struct Hints {
    /// Empty until the first hint is learnt.
    shards: [Mutex<Vec<KeyHint>>; SHARDS],
}

impl Default for Hints {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Hint {
    /// The hint of a record of `words` words that was found in a leaf that was in this state.
    pub(super) fn new(
        (slot, state): (u32, u64),
        begin: usize,
        words: usize,
        prefix_len: usize,
    ) -> Self {
        let incarnation = incarnation_of(state);
        // A leaf has 2,048 words at most, and a prefix 255 bytes.
        let (begin, words, prefix_len) = (begin as u16, words as u16, prefix_len as u8);
        Self { slot, incarnation, begin, words, prefix_len }
    }

    /// The words of the record in the leaf.
    pub(super) fn record(&self) -> std::ops::Range<usize> {
        let begin = usize::from(self.begin);
        begin..begin + usize::from(self.words)
    }

    /// Puts the value of `key` into `value` if what was read says that it is this: the leaf's
    /// state, followed by the words of the record. Returns false otherwise.
    pub(super) fn read(
        &self,
        geometry: Geometry,
        key: &[u8],
        words: &[AtomicU64],
        value: &mut Vec<u8>,
    ) -> bool {
        let Some((_, record)) = words.split_first() else { return false };
        let Some((prefix, rest)) = key.split_at_checked(self.prefix_len.into()) else {
            return false;
        };
        // planted: hint-followed-whatever-incarnation-leaf
        if incarnation_of(words.load(head::STATE)) != self.incarnation {
            return false;
        }
        let lone = Lone::new(self.begin.into(), record);
        let Some(record) = lone_record(&lone, geometry, prefix) else { return false };
        // planted: record-hint-names-may-any
        if !record.key.equals(rest) || record.kind != KIND_INLINE {
            return false;
        }
        record.value.append_to(value);
        true
    }
}

fn incarnation_of(state: u64) -> u32 {
    (state >> INCARNATION_SHIFT) as u32
}

impl KeyHint {
    fn new(hint: Hint, tag: u16) -> Self {
        let Hint { slot, incarnation, begin, words, prefix_len } = hint;
        Self { slot, incarnation, begin, words, tag, prefix_len, finds: 1 }
    }

    fn hint(self) -> Hint {
        let Self { slot, incarnation, begin, words, prefix_len, .. } = self;
        Hint { slot, incarnation, begin, words, prefix_len }
    }
}

impl Hints {
    /// The hint of a key, if it is to be used.
    pub(super) fn of(&self, key: &[u8]) -> Option<Hint> {
        let (shard, index, tag) = self.place(key);
        let known = shard.get(index).filter(|known| known.tag == tag)?;
        (known.finds >= FINDS_MIN).then(|| known.hint())
    }

    /// Notes where the record of a key was found. A key that is found more often keeps its place
    /// from others for a while.
    pub(super) fn learn(&self, key: &[u8], hint: Hint) {
        let (mut shard, index, tag) = self.place(key);
        if shard.is_empty() {
            *shard = vec![KeyHint::default(); SHARD_HINTS];
        }
        let Some(known) = shard.get_mut(index) else { return };
        let is_ours = known.finds == 0 || known.tag == tag;
        if is_ours && known.finds > 0 && known.hint() == hint {
            known.finds = (known.finds + 1).min(FINDS_MAX);
        } else if is_ours || known.finds == 1 {
            *known = KeyHint::new(hint, tag);
        } else {
            known.finds -= 1;
        }
    }

    /// Forgets a hint that has failed.
    pub(super) fn forget(&self, key: &[u8], hint: Hint) {
        let (mut shard, index, tag) = self.place(key);
        if let Some(known) = shard.get_mut(index)
            && known.tag == tag
            && known.hint() == hint
        {
            *known = KeyHint::default();
        }
    }

    /// Bytes that the hints take now.
    pub(in crate::client) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| size_of::<KeyHint>() * lock(shard).len()).sum()
    }

    /// The part of the table that has a key's place, the place, and its tag.
    fn place(&self, key: &[u8]) -> (MutexGuard<'_, Vec<KeyHint>>, usize, u16) {
        let hash = xxh3_64(key);
        let shard = lock(&self.shards[(hash >> 16) as usize % SHARDS]);
        (shard, (hash >> 32) as usize % SHARD_HINTS, hash as u16)
    }
}

/// Every change of what the locks hold is a single step.
fn lock(shard: &Mutex<Vec<KeyHint>>) -> MutexGuard<'_, Vec<KeyHint>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(slot: u32) -> Hint {
        Hint::new((slot, 7 << INCARNATION_SHIFT | 5), 100, 5, 3)
    }

    #[test]
    fn a_hint_is_used_once_two_gets_have_found_the_same_place() {
        let hints = Hints::default();
        hints.learn(b"k", hint(1));
        assert_eq!(hints.of(b"k"), None);
        hints.learn(b"k", hint(2));
        assert_eq!(hints.of(b"k"), None);
        hints.learn(b"k", hint(2));
        assert_eq!(hints.of(b"k"), Some(hint(2)));
        assert_eq!((hint(2).incarnation, hint(2).record()), (7, 100..105));
        // Of a get that took longer.
        hints.forget(b"k", hint(1));
        assert_eq!(hints.of(b"k"), Some(hint(2)));
        hints.forget(b"k", hint(2));
        assert_eq!(hints.of(b"k"), None);
        hints.learn(b"k", hint(2));
        assert_eq!(hints.of(b"k"), None);
    }

    #[test]
    fn keys_that_are_read_once_let_hot_ones_be() {
        let hints = Hints::default();
        assert_eq!(hints.bytes(), 0);
        for _ in 0..FINDS_MAX {
            hints.learn(b"hot", hint(1));
        }
        let mut others = 0_u32..;
        let mut meet = || loop {
            let key = others.next().unwrap().to_le_bytes();
            let place = |key: &[u8]| {
                let hash = xxh3_64(key);
                ((hash >> 16) as usize % SHARDS, (hash >> 32) as usize % SHARD_HINTS)
            };
            if place(&key) == place(b"hot") {
                return key;
            }
        };
        for _ in 0..FINDS_MAX - FINDS_MIN {
            hints.learn(&meet(), hint(9));
        }
        assert_eq!(hints.of(b"hot"), Some(hint(1)));
        hints.learn(b"hot", hint(1));
        for _ in 0..3 {
            hints.learn(&meet(), hint(9));
        }
        assert_eq!(hints.of(b"hot"), None);
        (0..200_000_u32).for_each(|key| hints.learn(&key.to_be_bytes(), hint(key)));
        assert_eq!(hints.bytes(), HINTS_BYTES);
    }
}
