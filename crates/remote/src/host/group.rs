//! Changes of a volatile keyspace that are made as one, or not at all.

use super::Change;
use crate::error::Result;

/// What a volatile keyspace holds, as one thread at a time changes it.
pub(super) trait Changed {
    /// The value of a key, also of one that readers do not see yet.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// Sets the value of a key, or removes it. Readers see it after [`Changed::publish`].
    ///
    /// # Errors
    ///
    /// What keeps it from being done; the key has the value that it had then.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()>;

    /// Called before the changes since the last [`Changed::publish`] are undone, which is to need
    /// no more memory than there was before them.
    fn begin_undo(&mut self) {}

    /// The number of the last change that readers see.
    fn seq(&self) -> u64;

    /// Lets readers see the changes since the last call, of which `seq` is the last.
    fn publish(&mut self, seq: u64);
}

/// Makes changes as one and lets readers see them.
///
/// # Errors
///
/// As [`Changed::put`]; nothing was changed then.
pub(super) fn apply(state: &mut impl Changed, changes: &[Change<'_>]) -> Result<()> {
    let mut undo: Vec<(&[u8], Option<Vec<u8>>)> = Vec::with_capacity(changes.len());
    for change in changes {
        let before = state.get(change.key);
        if let Err(error) = state.put(change.key, change.value) {
            state.begin_undo();
            for (key, value) in undo.iter().rev() {
                // There was room for it before.
                let _ = state.put(key, value.as_deref());
            }
            state.publish(state.seq());
            return Err(error);
        }
        undo.push((change.key, before));
    }
    state.publish(state.seq() + 1);
    Ok(())
}

/// Makes a change, and lets readers see it, if its key has the value `expected`; returns false
/// otherwise.
///
/// # Errors
///
/// As [`apply`].
pub(super) fn swap(
    state: &mut impl Changed,
    change: &Change<'_>,
    expected: Option<&[u8]>,
) -> Result<bool> {
    let swaps = state.get(change.key).as_deref() == expected;
    // planted: swap-makes-change-whatever-found
    if swaps {
        apply(state, std::slice::from_ref(change))?;
    }
    Ok(swaps)
}
