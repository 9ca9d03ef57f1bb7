//! The commands as users are allowed them: by name, by part, and by category.

use std::{collections::HashMap, ops::Range};

/// The categories, in the order in which Redis gives them.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The number of a category, whose name may be in any case.
pub(crate) fn category(name: &[u8]) -> Option<usize> {
    CATEGORIES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// A command, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Its name in lower case; that of a part is as in `config|get`.
    pub(crate) name: String,
    /// A bit for each category that it is in.
    categories: u32,
    /// The slots of its parts.
    pub(crate) parts: Range<usize>,
}

impl Slot {
    /// A command of these categories, whose parts have these slots.
    pub(crate) fn new(name: &str, categories: &[&str], parts: Range<usize>) -> Self {
        let known = categories.iter().filter_map(|name| category(name.as_bytes()));
        let categories = known.fold(0, |bits, number| bits | 1 << number);
        Self { name: name.to_owned(), categories, parts }
    }

    /// Returns true if it is in the category of this number.
    pub(crate) fn is_in(&self, category: usize) -> bool {
        self.categories & 1 << category != 0
    }

    /// Returns true for a part of a command.
    pub(crate) fn is_part(&self) -> bool {
        self.name.contains('|')
    }
}

/// All commands and their parts, each with the slot that it has everywhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    slots: Vec<Slot>,
    by_name: HashMap<String, usize>,
}

impl Catalog {
    /// Of these commands and parts.
    pub(crate) fn new(slots: Vec<Slot>) -> Self {
        let by_name = slots.iter().enumerate().map(|(at, slot)| (slot.name.clone(), at)).collect();
        Self { slots, by_name }
    }

    /// How many slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot `at`.
    pub(crate) fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Slot> {
        self.slots.iter()
    }

    /// The slot of a name, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(&name).copied()
    }
}
