//! Reads a whole table and holds every part of it against every other: what a check of a database
//! does, and no ordinary read.

use std::sync::Arc;

use super::{
    cursor::{Access, TableCursor},
    hash::KeyHash,
    reader::Table,
};
use crate::{
    error::{Error, Result},
    types::{Kind, SeqNo, compare_entries},
};

/// What was found whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) large_values: u64,
}

/// Verifies a table: every checksum, the order of entries, that the index and the filter lead to
/// every key, every large value, and the counts and bounds in its description. `each` is called
/// for every entry, for progress. Reads the whole of its files once.
///
/// # Errors
///
/// The first damage met, or [`Error::Io`].
pub(crate) fn verify(table: &Arc<Table>, mut each: impl FnMut()) -> Result<Verified> {
    let meta = table.meta();
    let mut found = Verified::default();
    let mut last: Option<(Vec<u8>, SeqNo)> = None;
    let mut cursor = TableCursor::new(Arc::clone(table), Access::Sequential);
    let mut step = cursor.first()?;
    loop {
        cursor.drive(step)?;
        let Some(block) = cursor.block_number() else { break };
        let (key, seq) = (cursor.key(), cursor.seq());
        let wrong = |what: &'static str| {
            let name = format!("key \"{}\" in block {block}", key.escape_ascii());
            Err(Error::corrupt(table.path(), table.block_offset(block), what, name))
        };
        match &mut last {
            None if *key != *meta.smallest => return wrong("the smallest key first"),
            Some((last, last_seq)) if compare_entries(last, *last_seq, key, seq).is_ge() => {
                return wrong("entries in ascending order");
            }
            Some((last, last_seq)) => {
                last.clear();
                last.extend_from_slice(key);
                *last_seq = seq;
            }
            None => last = Some((key.to_vec(), seq)),
        }
        if table.index().locate(key) != block {
            return wrong("an index that leads to every key");
        }
        if !table.may_contain(KeyHash::of(key)) {
            return wrong("a filter that lets every key through");
        }
        if !(meta.seq_min..=meta.seq_max).contains(&seq) {
            return wrong("sequence numbers within the stated bounds");
        }
        found.entries += 1;
        match cursor.kind() {
            Kind::Value => {}
            Kind::Tombstone => found.tombstones += 1,
            Kind::LargeValue => {
                table.read_large(cursor.value())?;
                found.large_values += 1;
            }
        }
        each();
        step = cursor.next()?;
    }
    let largest = last.map(|(key, _)| key.into_boxed_slice());
    let counts = (found.entries, found.tombstones, largest.as_deref());
    if counts != (meta.entries, meta.tombstones, Some(&*meta.largest)) {
        let expected = format!("{} entries, {} tombstones", meta.entries, meta.tombstones);
        return Err(Error::corrupt(table.path(), 0, expected, format!("{counts:?}")));
    }
    Ok(found)
}
