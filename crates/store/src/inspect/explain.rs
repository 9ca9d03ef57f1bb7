//! Follows a point read step by step.
//!
//! The steps are those of the engine's own plan: memtables newest first, then one candidate table
//! for each level. The index's answer is compared with the block that really holds the key, which
//! is found without the index, by bisecting over the blocks themselves.

use rhumb_sync::primitive::Arc;

use super::{
    report::{Answer, Explanation, SegmentStep, TableStep},
    table::index_name,
};
use crate::{
    db::Keyspace,
    error::Result,
    expiry::Stamp,
    memtable::Memtable,
    table::{
        BlockIndexKind, KeyHash, Lookup, PAGE_BYTES, Table,
        block::{BlockView, SeekTarget},
    },
    types::{Kind, SeqNo, TreeId},
    version::levels::Levels,
};

impl Keyspace {
    /// Explains how a read of `key` comes to its answer: memtables, tables, filters, models,
    /// blocks. Reads O(log blocks) blocks of each table that may have the key, to say where the key
    /// really is.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let key = key.as_ref();
        let (view, id, levels) = self.view_of(key)?;
        explain(view.all(), id, &levels, key, SeqNo::MAX)
    }
}

/// Explains a read of `key` in the LSM tree `tree`, as a reader at `seq` would do it.
fn explain<'a>(
    memtables: impl Iterator<Item = &'a Arc<Memtable>>,
    tree: TreeId,
    levels: &Levels,
    key: &[u8],
    seq: SeqNo,
) -> Result<Explanation> {
    let mut explanation = Explanation {
        key: key.to_vec(),
        memtables: 0,
        is_in_memtable: false,
        tables: Vec::new(),
        tables_passed: 0,
        answer: Answer::Absent,
        block_reads: 0,
    };
    for memtable in memtables {
        explanation.memtables += 1;
        let removed = memtable.newest_range(tree, key, seq);
        let entry = memtable.get(tree, key, seq).filter(|entry| entry.seq() >= removed);
        if entry.is_none() && removed > 0 {
            explanation.is_in_memtable = true;
            explanation.answer = Answer::Removed { seq: removed };
            return Ok(explanation);
        }
        if let Some(entry) = entry {
            explanation.is_in_memtable = true;
            explanation.answer = match entry.kind() {
                Kind::Tombstone => Answer::Removed { seq: entry.seq() },
                Kind::Expiring => {
                    let stamped = Stamp::split(entry.value());
                    let (stamp, value) = stamped.unwrap_or((Stamp::new(0), &[]));
                    Answer::Expiring {
                        seq: entry.seq(),
                        value_bytes: value.len() as u64,
                        expires_ms: stamp.at_ms,
                    }
                }
                _ => Answer::Found {
                    seq: entry.seq(),
                    value_bytes: entry.value_slice().len() as u64,
                },
            };
            return Ok(explanation);
        }
    }
    for (level, table) in levels.all() {
        let meta = table.meta();
        if key < &*meta.smallest || key > &*meta.largest {
            explanation.tables_passed += 1;
            continue;
        }
        let step = explain_table(table, level, key, seq)?;
        explanation.block_reads += u32::from(step.filter != Some(false));
        explanation.answer = step.answer;
        explanation.tables.push(step);
        if explanation.answer != Answer::Absent {
            break;
        }
    }
    Ok(explanation)
}

fn explain_table(table: &Table, level: usize, key: &[u8], seq: SeqNo) -> Result<TableStep> {
    let (index, hash) = (table.index(), KeyHash::of(key));
    let filter = table.filter_answer(hash);
    let explained = index.explain(key);
    let segment = (index.kind() == BlockIndexKind::Learned).then(|| SegmentStep {
        number: u32::try_from(explained.segment).unwrap_or(u32::MAX),
        of: u32::try_from(index.segment_count()).unwrap_or(u32::MAX),
        skip: explained.skip,
        code: explained.code,
        first_block: explained.segment_blocks.0,
        blocks: explained.segment_blocks.1.saturating_sub(explained.segment_blocks.0) + 1,
    });
    let block = table.read_block(explained.block, true)?;
    let view = BlockView::parse(block.bytes())
        .map_err(|damaged| table.damaged_block(explained.block, damaged))?;
    let answer = match filter {
        Some(false) => Answer::Absent,
        _ => {
            let lookup = table.lookup_in(&block, key, hash, seq)?;
            answer(table, table.resolve(lookup, key, hash, seq)?)?
        }
    };
    let removed = table.ranges().map_or(0, |ranges| ranges.newest(key, seq));
    let answer = match answer {
        Answer::Found { seq, .. } | Answer::Removed { seq } | Answer::Expiring { seq, .. }
            if seq >= removed =>
        {
            answer
        }
        _ if removed > 0 => Answer::Removed { seq: removed },
        other => other,
    };
    let address = table.address(explained.block)?;
    let page_bytes = PAGE_BYTES as u64;
    let pages = u64::from(address.last_page - address.first_page) + 1;
    Ok(TableStep {
        path: table.path().to_owned(),
        level: u32::try_from(level).unwrap_or(u32::MAX),
        filter,
        index: index_name(index.kind()),
        segment,
        predicted_block: explained.block,
        actual_block: find_block(table, key)?,
        place: (u64::from(address.first_page) * page_bytes, pages * page_bytes),
        block_entries: u32::try_from(view.count()).unwrap_or(u32::MAX),
        answer,
    })
}

fn answer(table: &Table, lookup: Lookup) -> Result<Answer> {
    Ok(match lookup {
        Lookup::Absent | Lookup::Need(_) | Lookup::Unsure(_) => Answer::Absent,
        Lookup::Tombstone(seq) => Answer::Removed { seq },
        Lookup::Value(seq, value) => Answer::Found { seq, value_bytes: value.len() as u64 },
        Lookup::Large(seq, pointer) => {
            Answer::Found { seq, value_bytes: table.value_pointer(&pointer)?.len }
        }
        Lookup::Expiring(seq, value) => {
            let (stamp, rest) = Stamp::split(&value).unwrap_or((Stamp::new(0), &[]));
            let value_bytes = match Stamp::pointer(&value) {
                Some(pointer) => table.value_pointer(pointer)?.len,
                None => rest.len() as u64,
            };
            Answer::Expiring { seq, value_bytes, expires_ms: stamp.at_ms }
        }
    })
}

/// The block that holds `key`, found without the index: by bisecting over the blocks, which are
/// read from the file. O(log blocks) reads.
fn find_block(table: &Table, key: &[u8]) -> Result<Option<u32>> {
    // The last block that has entries and starts at or before the key.
    let (mut low, mut high) = (0, table.index().block_count());
    let mut candidate = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match first_key_from(table, middle, high)? {
            Some((block, first)) if *first <= *key => {
                candidate = Some(block);
                low = block + 1;
            }
            _ => high = middle,
        }
    }
    let Some(number) = candidate else { return Ok(None) };
    let block = table.read_block(number, true)?;
    let malformed = |damaged| table.damaged_block(number, damaged);
    let view = BlockView::parse(block.bytes()).map_err(malformed)?;
    let position = view.lower_bound(SeekTarget { key, seq: SeqNo::MAX }).map_err(malformed)?;
    if position == view.count() {
        return Ok(None);
    }
    let entry = view.entry(position).map_err(malformed)?;
    let shared = view.shared_prefix(position, entry.shared).map_err(malformed)?;
    let is_key = key.strip_prefix(shared) == Some(entry.suffix);
    Ok(is_key.then_some(number))
}

/// The first block from `from` on and before `to` that has entries, and its first key.
fn first_key_from(table: &Table, from: u32, to: u32) -> Result<Option<(u32, Vec<u8>)>> {
    for number in from..to {
        let block = table.read_block(number, true)?;
        let malformed = |damaged| table.damaged_block(number, damaged);
        let view = BlockView::parse(block.bytes()).map_err(malformed)?;
        if view.count() > 0 {
            return Ok(Some((number, view.head_key(0).map_err(malformed)?.to_vec())));
        }
    }
    Ok(None)
}
