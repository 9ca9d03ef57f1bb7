//! Words: what stands for keys and values in slots, and how one leads to the other.
//!
//! Thread safety: what a slot holds is read while the thread is pinned, or by the only thread that
//! has the leaf. Invariants:
//!
//! 1. A slot holds what [`slot_value`] of its map's schema made.
//! 2. What it leads to is freed only when no thread can hold the leaf, or an entry of it.
#![allow(unsafe_code, reason = "follows words")]

use std::{any::TypeId, marker::PhantomData};

use rhumb_model::code::code_at;
use rhumb_sync::{
    panics::Panics,
    primitive::{AtomicU64, Ordering},
};

use super::record;
use crate::{
    entry::Entry,
    key::{Key, image::QueryOf},
    value::{Value, bits::Bits},
};

/// Keys and values as words.
pub(crate) trait Schema: Send + Sync + 'static {
    /// True if keys are byte strings, which slots lead to, rather than words.
    const WIDE: bool;

    /// True if slots hold records of the index's own, with the key and the word of its value.
    /// Otherwise they hold that word, and wide keys are reached through it.
    const HAS_RECORDS: bool = Self::WIDE;

    /// The wide key that what a slot holds leads to.
    ///
    /// # Safety
    /// It was read from a slot of this schema's map, and what it leads to is not freed while the
    /// key is borrowed.
    #[inline(always)]
    unsafe fn key<'a>(slot: u64) -> &'a [u8] {
        // SAFETY: such slots hold records, and the caller says that this one lives.
        unsafe { record::key(slot) }
    }

    /// Returns true if what a slot holds leads to this wide key.
    ///
    /// # Safety
    /// As for [`Schema::key`].
    #[inline(always)]
    unsafe fn is_key(slot: u64, key: &[u8]) -> bool {
        // SAFETY: the caller's promise.
        unsafe { Self::key(slot) == key }
    }

    /// The word to store where `new` is to take the place of `old`. The caller is the only thread
    /// that may write the slot, and readers see what this returns only afterwards.
    #[inline(always)]
    fn succeed(_old: u64, new: u64) -> u64 {
        new
    }

    /// True if slots own what they lead to, so that it is freed with the map.
    const IS_OWNER: bool = true;

    /// Frees the value that a word stands for, if it stands for one in memory of its own.
    ///
    /// # Safety
    /// The word came from this schema's value, and no thread uses it again.
    unsafe fn free_value(word: u64);
}

/// A key that is being looked up.
#[derive(Clone, Copy)]
pub(crate) struct KeyProbe<'a> {
    /// The key's image, if it is one word.
    pub(crate) word: u64,
    /// The key's image, if it is wide.
    pub(crate) bytes: &'a [u8],
}

impl<'a> KeyProbe<'a> {
    /// The least of all keys.
    pub(crate) const LEAST: KeyProbe<'static> = KeyProbe { word: 0, bytes: &[] };

    /// Returns true if this key is above another.
    pub(crate) fn is_above<S: Schema>(self, other: KeyProbe<'_>) -> bool {
        if S::WIDE { self.bytes > other.bytes } else { self.word > other.word }
    }

    /// The probe of the wide key `bytes`.
    pub(crate) fn wide(bytes: &'a [u8]) -> Self {
        Self { word: code_at(bytes, 0), bytes }
    }
}

/// The schema of a map from `K` to `V`.
pub(crate) struct Of<K, V>(PhantomData<fn() -> (K, V)>);

impl<K: Key, V: Value> Schema for Of<K, V> {
    const WIDE: bool = K::WIDE;

    /// # Safety
    /// As for every [`Schema`]: the word is given up.
    unsafe fn free_value(word: u64) {
        if !is_word::<V>() {
            // SAFETY: values that are not words are boxes that `into_word` leaked, and the caller
            // gives this one up.
            unsafe { record::free_box::<V>(word) };
        }
    }
}

/// Calls `f` with the probe of a key.
#[inline(always)]
pub(crate) fn with_probe<K: Key, R>(key: &K::Query, f: impl FnOnce(KeyProbe<'_>) -> R) -> R {
    if K::WIDE {
        let bytes = QueryOf::<K>::bytes(key);
        f(KeyProbe::wide(bytes.as_ref()))
    } else {
        f(KeyProbe { word: QueryOf::<K>::word(key), bytes: &[] })
    }
}

/// The key of an entry.
///
/// # Safety
/// For wide keys, `value` is that of a slot, read while the thread is pinned, as it still is.
#[inline]
pub(crate) unsafe fn key_of<K: Key>(word: u64, value: u64) -> K {
    if K::WIDE {
        // SAFETY: wide keys' values are records, which the pin keeps.
        K::from_bytes(unsafe { record::key(value) })
    } else {
        K::from_word(word)
    }
}

/// The word of a slot's value.
///
/// # Safety
/// As for [`key_of`].
#[inline]
pub(crate) unsafe fn value_word<K: Key>(slot: u64) -> u64 {
    if K::WIDE {
        // SAFETY: wide keys' values are records, which the pin keeps.
        unsafe { record::value(slot) }.load(Ordering::Acquire)
    } else {
        slot
    }
}

/// Calls `each` on every type of word, until one is `V`.
macro_rules! with_word {
    ($V:ty, $word:ident => $then:expr, $otherwise:expr) => {{
        with_word!(@ $V, $word => $then, $otherwise;
            () u64 i64 usize isize u32 i32 u16 i16 u8 i8 f64 f32 bool char)
    }};
    (@ $V:ty, $word:ident => $then:expr, $otherwise:expr; $($candidate:ty)*) => {{
        $(if TypeId::of::<$V>() == TypeId::of::<$candidate>() {
            type $word = $candidate;
            $then
        } else)* {
            $otherwise
        }
    }};
}

/// Returns true if values of the type lie inline. Known when compiled with optimisation.
#[inline(always)]
pub(crate) fn is_word<V: Value>() -> bool {
    size_of::<V>() <= 8 && with_word!(V, W => { let _: Option<W> = None; true }, false)
}

/// The word that stands for a value; it owns the value.
#[expect(clippy::unit_arg, reason = "one of the types of words is the unit")]
#[inline(always)]
pub(crate) fn into_word<V: Value>(value: V) -> u64 {
    if size_of::<V>() > 8 {
        return record::new_box(value);
    }
    with_word!(V, W => {
        // SAFETY: `V` is `W`, which is `Copy`.
        Bits::into_bits(unsafe { std::mem::transmute_copy::<V, W>(&value) })
    }, record::new_box(value))
}

/// The value, or a clone of it, that a word stands for.
///
/// # Safety
/// The word came from [`into_word`] of the same type, and what it points to is not freed yet.
#[inline(always)]
pub(crate) unsafe fn value_of<V: Value>(word: u64) -> V {
    if size_of::<V>() > 8 {
        // SAFETY: such values are boxed, and the caller says that this box lives.
        return unsafe { record::boxed::<V>(word) }.clone();
    }
    with_word!(V, W => {
        // SAFETY: `V` is `W`, which is `Copy`.
        unsafe { std::mem::transmute_copy::<W, V>(&<W as Bits>::from_bits(word)) }
    }, {
        // SAFETY: values that are not words are boxed, and the caller says that this box lives.
        unsafe { record::boxed::<V>(word) }.clone()
    })
}

/// The wide key of what a slot of a leaf holds, for callers that can reach the leaf.
#[cfg(feature = "published")]
#[inline]
pub(crate) fn key_in_leaf<'a, S: Schema>(slot: u64) -> &'a [u8] {
    // SAFETY: what slots of wide keys lead to lives for as long as any thread can reach their leaf.
    unsafe { S::key(slot) }
}

/// Gives the slot of a removed wide key a new record with this value, and returns the old one. The
/// caller is the only thread that writes the slot. A reader that has found the old record in a leaf
/// that was replaced since, or in a scan, takes its content for the value that was removed. It must
/// not see the new value before others do.
#[cfg(feature = "published")]
pub(crate) fn renew<S: Schema>(slot: &AtomicU64, value: u64) -> u64 {
    let old = slot.load(Ordering::Relaxed);
    slot.store(record::new(key_in_leaf::<S>(old), value), Ordering::Release);
    old
}

/// Returns a function that is true for the slot whose key is the one being looked up.
#[inline(always)]
pub(crate) fn is_same<S: Schema>(probe: KeyProbe<'_>) -> impl Fn(u64) -> bool + Copy {
    move |value| {
        // SAFETY: what slots of wide keys lead to is freed only when no thread can hold the leaf;
        // the thread that compares holds it.
        !S::WIDE || unsafe { S::is_key(value, probe.bytes) }
    }
}

/// The cell that holds the word of a slot's value.
#[inline(always)]
pub(crate) fn cell_of<S: Schema>(cell: &AtomicU64) -> &AtomicU64 {
    if S::HAS_RECORDS {
        // SAFETY: slots hold records, which live as long as the leaf does.
        unsafe { record::value(cell.load(Ordering::Relaxed)) }
    } else {
        cell
    }
}

/// The content of a new slot for a key and its value.
#[inline(always)]
pub(crate) fn slot_value<S: Schema>(probe: KeyProbe<'_>, value: u64) -> u64 {
    if S::HAS_RECORDS { record::new(probe.bytes, value) } else { value }
}

/// Reads the value of a slot, if the slot is the key's.
#[inline(always)]
pub(crate) fn reader<S: Schema>(probe: KeyProbe<'_>) -> impl Fn(u64) -> Option<u64> {
    move |slot| {
        if !is_same::<S>(probe)(slot) {
            return None;
        }
        Some(if S::HAS_RECORDS {
            // SAFETY: slots hold records, which live as long as the leaf does, and the thread is
            // pinned.
            unsafe { record::value(slot) }.load(Ordering::Acquire)
        } else {
            slot
        })
    }
}

/// The key of an entry whose value is a record. The caller holds what keeps the record alive.
pub(crate) fn key<S: Schema>(entry: &Entry) -> &[u8] {
    // SAFETY: what entries of wide keys lead to lives while the leaf that they came from can be
    // held; the caller is pinned or has them to itself.
    unsafe { S::key(entry.value) }
}

/// Sorts entries of one leaf by their keys.
#[inline]
pub(crate) fn sort<S: Schema>(new: &mut [Entry]) {
    if S::WIDE {
        // Words of one leaf are in the order of the keys, which lie elsewhere and need to be looked
        // at only where words tie.
        let order =
            |a: &Entry, b: &Entry| a.word.cmp(&b.word).then_with(|| key::<S>(a).cmp(key::<S>(b)));
        new.sort_unstable_by(order);
    } else {
        new.sort_unstable_by_key(|entry| entry.word);
    }
}

/// Frees what a slot owns. A destructor's panic is kept in `panics`.
///
/// # Safety
/// The slot was one of this schema, and nothing that it leads to is used again.
pub(crate) unsafe fn free_slot<S: Schema>(slot: u64, is_present: bool, panics: &mut Panics) {
    // SAFETY: slots own their record, and present ones their value; the caller gives them up.
    unsafe {
        if is_present {
            let value = match S::HAS_RECORDS {
                true => record::value(slot).load(Ordering::Relaxed),
                false => slot,
            };
            panics.catch(|| S::free_value(value));
        }
        if S::HAS_RECORDS {
            record::free(slot);
        }
    }
}
