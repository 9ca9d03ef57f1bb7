//! Words that lead to keys elsewhere: slots that own nothing.
#![allow(unsafe_code, reason = "follows words")]

use std::marker::PhantomData;

use super::schema::Schema;

/// Words that lead to keys.
///
/// # Safety
/// Where a [`KeyedMap`](crate::engine::KeyedMap) of the type is made,
/// [`set`](crate::engine::KeyedMap::set) is given nothing but words that lead
/// to the key that they are set for, and what they lead to is neither moved nor freed before the
/// map.
pub unsafe trait Keyed: Send + Sync + 'static {
    /// The key that a word of the map leads to.
    ///
    /// # Safety
    /// The word was given to a map of this type, and what it leads to lives while the key is
    /// borrowed.
    unsafe fn key<'a>(word: u64) -> &'a [u8];

    /// Returns true if a word of the map leads to this key.
    ///
    /// # Safety
    /// The word was given to a map of this type, and what it leads to lives.
    unsafe fn is_key(word: u64, key: &[u8]) -> bool;

    /// The word to hold when `new` is set for a key that has `old`. Readers see it only afterwards.
    ///
    /// # Safety
    /// As for [`Keyed::is_key`], for both. One thread at a time calls it for a key.
    unsafe fn succeed(old: u64, new: u64) -> u64;
}

/// The schema of such words for the inside of the index.
pub(crate) struct KeyedSchema<K>(PhantomData<fn() -> K>);

impl<K: Keyed> Schema for KeyedSchema<K> {
    const WIDE: bool = true;
    const HAS_RECORDS: bool = false;
    const IS_OWNER: bool = false;

    /// # Safety
    /// As for every [`Schema`].
    #[inline(always)]
    unsafe fn key<'a>(slot: u64) -> &'a [u8] {
        // SAFETY: slots of the map hold words that were given to it, and the caller says that what
        // this one leads to lives.
        unsafe { K::key(slot) }
    }

    /// # Safety
    /// As for every [`Schema`].
    #[inline(always)]
    unsafe fn is_key(slot: u64, key: &[u8]) -> bool {
        // SAFETY: as for `key`.
        unsafe { K::is_key(slot, key) }
    }

    #[inline(always)]
    fn succeed(old: u64, new: u64) -> u64 {
        // SAFETY: both were given to the map, and what they lead to outlives the map, as [`Keyed`]
        // demands; the thread that writes a slot is the only one.
        unsafe { K::succeed(old, new) }
    }

    /// # Safety
    /// None is needed: slots own nothing.
    unsafe fn free_value(_word: u64) {}
}
