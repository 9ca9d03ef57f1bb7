//! `[probe length u8][probe][sequence number u16]`, then the payload of a data block.

use super::{
    Input,
    table::{Crafted, Frame, walk},
};
use crate::{
    table::{
        KeyHash,
        block::{BlockView, SeekTarget, view::Entry},
    },
    types::{SeqNo, compare_entries},
};

/// The number of keys of the block that are looked up.
const PROBES_MAX: usize = 24;

/// Payloads up to this long are also read as the only block of a table.
const WALKED_BYTES_MAX: usize = 8 << 10;

/// Reads everything of a data block.
pub fn block(data: &[u8]) {
    let mut input = Input(data);
    let probe = input.short();
    let seq = SeqNo::from(input.u16());
    let payload = input.rest();
    let Ok(view) = BlockView::parse(payload) else { return };
    let entries: Vec<_> =
        (0..view.count()).map(|position| read(&view, payload, position)).collect();
    let mut probes = vec![(probe, seq), (&[], seq), (&[0xff; 9], 0)];
    for (key, entry) in entries.iter().flatten().take(PROBES_MAX) {
        probes.extend([(&key[..], entry.seq), (&key[..], entry.seq.saturating_sub(1))]);
        probes.push((&key[..key.len() / 2], SeqNo::MAX));
    }
    for (key, seq) in probes {
        check_find(&view, payload, &entries, SeekTarget { key, seq });
        check_lower_bound(&view, &entries, SeekTarget { key, seq });
    }
    if payload.len() <= WALKED_BYTES_MAX {
        walk(&Crafted::of_blocks(vec![Frame::plain(payload)]).encode(), &[probe], 0);
    }
}

type Read<'a> = Option<(Vec<u8>, Entry<'a>)>;

/// An entry and its key, if they can be read; what can be read lies within the payload.
fn read<'a>(view: &BlockView<'a>, payload: &[u8], position: usize) -> Read<'a> {
    let head = view.group_head(position);
    assert!(head <= position, "group head {head} of entry {position}");
    let entry = view.entry(position).ok()?;
    let end = entry.value_start + entry.value_len;
    assert!(end <= payload.len(), "a value that ends at {end} of {}", payload.len());
    if let Ok(next) = view.entry_at(end) {
        assert!(next.value_start + next.value_len <= payload.len());
    }
    let mut key = view.shared_prefix(position, entry.shared).ok()?.to_vec();
    assert_eq!(key.len(), entry.shared);
    key.extend_from_slice(entry.suffix);
    Some((key, entry))
}

/// A lookup finds nothing, or an entry of the key that the reader sees. With crafted tags it need
/// not be the newest.
fn check_find(view: &BlockView<'_>, payload: &[u8], entries: &[Read<'_>], target: SeekTarget<'_>) {
    let Ok(Some(found)) = view.find(target.key, KeyHash::of(target.key), target.seq) else {
        return;
    };
    assert!(found.seq <= target.seq);
    assert!(found.value_start + found.value_len <= payload.len());
    let is_it = |(key, entry): &(Vec<u8>, Entry<'_>)| {
        *key == target.key && entry.seq == found.seq && entry.value_start == found.value_start
    };
    assert!(entries.iter().flatten().any(is_it), "found what no entry is: {found:?}");
}

/// The place is within the block; and the right one if the entries ascend.
fn check_lower_bound(view: &BlockView<'_>, entries: &[Read<'_>], target: SeekTarget<'_>) {
    let Ok(place) = view.lower_bound(target) else { return };
    assert!(place <= view.count(), "place {place} of {}", view.count());
    let ascends = entries.iter().all(Option::is_some)
        && entries.iter().flatten().is_sorted_by(|(a_key, a), (b_key, b)| {
            compare_entries(a_key, a.seq, b_key, b.seq).is_lt()
        });
    if ascends {
        let is_before = |(key, entry): &&(Vec<u8>, Entry<'_>)| {
            compare_entries(key, entry.seq, target.key, target.seq).is_lt()
        };
        assert_eq!(place, entries.iter().flatten().take_while(is_before).count());
    }
}
