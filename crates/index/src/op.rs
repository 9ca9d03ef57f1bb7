//! What a write asks of a leaf, and what the leaf answers: the types that leaves of every kind and
//! the map share.
#![cfg_attr(not(feature = "published"), allow(dead_code, reason = "for leaves of other kinds"))]

use rhumb_sync::primitive::in_models;

/// A leaf is replaced when this many of 8 keys that it was built of were removed. With more, memory
/// comes back later; with fewer, keys are copied more often. Chosen, not measured: each removal
/// pays for copying 5/3 keys.
const REMOVED_OF_8: u32 = 3;
/// The fewest removals for which a leaf of buckets is replaced. With fewer removals, copying it
/// costs more than it gives back. Chosen, not measured: 64 keys are the content of seven buckets,
/// less than 2 KiB.
const REMOVED_MIN: u32 = in_models(64, 3) as u32;

/// The action of a write.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// Sets the value, whether the key is present or not.
    Set(u64),
    /// Sets the value of a key that is absent.
    SetIfAbsent(u64),
    /// Sets the value of a key that is present.
    Update(u64),
    Remove,
    /// Sets the value of a key whose value is `current`.
    Exchange {
        current: u64,
        new: u64,
    },
}

impl Action {
    /// Returns true if the action may make an absent key present.
    #[inline]
    pub(crate) fn inserts(self) -> bool {
        matches!(self, Self::Set(_) | Self::SetIfAbsent(_))
    }

    /// The change that this makes to a key whose value is `old`, or that is absent.
    #[inline]
    pub(crate) fn change(self, old: Option<u64>) -> KeyChange {
        match (self, old) {
            (Self::Set(new), _) | (Self::SetIfAbsent(new), None) | (Self::Update(new), Some(_)) => {
                KeyChange::Store(new)
            }
            (Self::Remove, Some(_)) => KeyChange::Remove,
            (Self::Exchange { current, new }, Some(old)) if old == current => KeyChange::Store(new),
            _ => KeyChange::Keep,
        }
    }
}

/// The change that a write makes to a key.
pub(crate) enum KeyChange {
    Keep,
    Store(u64),
    Remove,
}

/// The outcome of a write.
pub(crate) struct WriteOutcome {
    /// The value before, if the key was present.
    pub(crate) old: Option<u64>,
    /// True if anything changed.
    pub(crate) is_done: bool,
}

impl WriteOutcome {
    pub(crate) fn unchanged(old: Option<u64>) -> Self {
        Self { old, is_done: false }
    }

    pub(crate) fn changed(old: Option<u64>) -> Self {
        Self { old, is_done: true }
    }
}

/// A reason to replace a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// It has too many overflow nodes.
    Full,
    /// The bucket at this place has too long a chain, of this many nodes.
    Chain(usize, usize),
    /// It cannot take another node.
    NoRoom,
    /// Many of its keys were removed.
    Removed,
    /// Its memory is worth giving back.
    Stray,
    /// It was not written for a while, and could be smaller or better to read.
    Cold,
    /// A thread is replacing it.
    Frozen,
}

impl Trigger {
    /// Returns true if the successor should have no more room than it needs, and a small leaf
    /// should be joined with the next.
    pub(crate) fn shrinks(self) -> bool {
        matches!(self, Self::Removed | Self::Cold)
    }

    /// The trigger, if any, that follows from a removal from a leaf built of `built_of` keys,
    /// `removed` of which were removed since then.
    pub(crate) fn after_remove(built_of: u32, removed: u32) -> Option<Self> {
        Self::after_removing(built_of, removed, REMOVED_MIN)
    }

    /// [`Trigger::after_remove`], checked after every `every` removals.
    pub(crate) fn after_removing(built_of: u32, removed: u32, every: u32) -> Option<Self> {
        let most = (built_of / 8 * REMOVED_OF_8).max(every);
        (removed >= most && removed.is_multiple_of(every)).then_some(Self::Removed)
    }
}

/// The outcome of a write in a leaf of another kind.
pub(crate) struct LeafWritten {
    pub(crate) outcome: WriteOutcome,
    /// True if the key took a slot or came back to its own, with a new record if it is wide.
    pub(crate) is_added: bool,
    /// The record that the key had before it was removed and came back.
    pub(crate) replaced: Option<u64>,
    pub(crate) trigger: Option<Trigger>,
}

impl LeafWritten {
    pub(crate) fn unchanged(old: Option<u64>) -> Self {
        Self {
            outcome: WriteOutcome::unchanged(old),
            is_added: false,
            replaced: None,
            trigger: None,
        }
    }

    /// The key's own slot was changed.
    pub(crate) fn changed(old: Option<u64>) -> Self {
        Self { outcome: WriteOutcome::changed(old), is_added: false, replaced: None, trigger: None }
    }

    /// A removed wide key is back in its slot, with a new record instead of this one.
    pub(crate) fn renewed(replaced: u64) -> Self {
        Self { replaced: Some(replaced), ..Self::added(None) }
    }

    /// Lets `keep` have the record that was replaced, and return the trigger that follows from that
    /// for the leaf. Otherwise the record is freed when no reader can hold it.
    pub(crate) fn keeping(self, keep: impl FnOnce(u64) -> Option<Trigger>) -> Self {
        match self.replaced {
            Some(record) => Self { replaced: None, trigger: keep(record), ..self },
            None => self,
        }
    }

    /// A key took a slot.
    pub(crate) fn added(trigger: Option<Trigger>) -> Self {
        Self { outcome: WriteOutcome::changed(None), is_added: true, replaced: None, trigger }
    }
}

/// The reason why a leaf takes no write.
pub(crate) enum Blocked {
    /// It is being replaced.
    Frozen,
    NoRoom,
}
