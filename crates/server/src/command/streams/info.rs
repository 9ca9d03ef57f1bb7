//! `XINFO`: what a stream, its groups and their consumers are.

use super::{
    Group, Range, counters, find, groups, info_full, is_word, pending::visit_consumers,
    visit_entries, write_entry, write_id,
};
use crate::{
    command::{Context, Done, NO_SUCH_KEY, help, integer},
    encode::{StreamMeta, stream_member},
    fault::Fault,
    resp::{Args, Reply},
    txn::{Txn, prefix_range},
};

/// Entries of a node of Redis with its default settings: for the figures of its radix tree.
const NODE_ENTRIES: u64 = 100;

/// Entries that `FULL` shows of each kind unless `COUNT` says otherwise.
const SHOWN_DEFAULT: u64 = 10;

/// `XINFO` and its parts.
pub(in crate::command) fn xinfo(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    if is_word(part, "help") {
        help::write("XINFO", help::XINFO, context.out);
        return Ok(());
    }
    let (meta, _) = find(context, args.at(2))?.ok_or(NO_SUCH_KEY)?;
    if is_word(part, "stream") {
        return match shown(args)? {
            None => stream(context, &meta),
            Some(most) => info_full::stream(context, &meta, most),
        };
    }
    if is_word(part, "groups") {
        return groups(context, &meta);
    }
    let group = Group::find(&context.txn, meta.id, args.at(3))?;
    consumers(context, &group.ok_or_else(|| groups::no_such_group(args))?)
}

/// What `FULL` is to show of each kind, all if 0; none without it.
fn shown(args: Args<'_>) -> Result<Option<u64>, Fault> {
    if args.len() == 3 {
        return Ok(None);
    }
    let is_full = is_word(args.at(3), "full") && matches!(args.len(), 4 | 6);
    match args.get(5) {
        None if is_full => Ok(Some(SHOWN_DEFAULT)),
        Some(count) if is_full && is_word(args.at(4), "count") => {
            Ok(Some(u64::try_from(integer(count)?).unwrap_or(SHOWN_DEFAULT)))
        }
        _ => Err(groups::wrong_part(args)),
    }
}

/// A number as a reply.
pub(super) fn write_number(out: &mut Reply, name: &str, number: u64) {
    out.bulk(name.as_bytes());
    out.int(i64::try_from(number).unwrap_or(i64::MAX));
}

/// A number that may be unknown.
fn write_known(out: &mut Reply, name: &str, number: Option<i64>) {
    out.bulk(name.as_bytes());
    match number {
        Some(number) => out.int(number),
        None => out.null(),
    }
}

/// How far a group has come.
pub(super) fn write_progress(out: &mut Reply, meta: &StreamMeta, group: &Group) {
    out.bulk(b"last-delivered-id");
    write_id(out, group.record.last);
    write_known(out, "entries-read", group.record.entries_read.map(|read| read as i64));
    write_known(out, "lag", counters::lag(meta, &group.record));
}

/// What both forms say of a stream.
pub(super) fn write_meta(out: &mut Reply, meta: &StreamMeta) {
    let nodes = meta.length.div_ceil(NODE_ENTRIES);
    write_number(out, "length", meta.length);
    write_number(out, "radix-tree-keys", nodes);
    write_number(out, "radix-tree-nodes", nodes + 1);
    let ids = [("last-generated-id", meta.last), ("max-deleted-entry-id", meta.max_deleted)];
    for (name, id) in ids {
        out.bulk(name.as_bytes());
        write_id(out, id);
    }
    write_number(out, "entries-added", meta.added);
    out.bulk(b"recorded-first-entry-id");
    write_id(out, meta.first);
}

fn stream(context: &mut Context<'_, '_>, meta: &StreamMeta) -> Done {
    let Context { txn, out, .. } = context;
    out.map(10);
    write_meta(out, meta);
    write_number(out, "groups", meta.groups);
    for (name, reverse) in [("first-entry", false), ("last-entry", true)] {
        out.bulk(name.as_bytes());
        let mut is_there = false;
        visit_entries(txn, meta, Range { reverse, ..Range::ALL }, |id, value| {
            is_there = true;
            write_entry(out, id, value)?;
            Ok(false)
        })?;
        if !is_there {
            out.null();
        }
    }
    Ok(())
}

/// Shows the groups of a stream, by their names, until `look` returns false.
pub(super) fn visit_groups(
    txn: &Txn<'_>,
    meta: &StreamMeta,
    mut look: impl FnMut(&[u8], Group) -> Result<bool, Fault>,
) -> Done {
    let mut done = Ok(());
    let bounds = prefix_range(&stream_member::group(meta.id, &[]));
    txn.visit_members(bounds, false, |key, value| {
        let name = stream_member::group_of(key);
        let shown = Group::of(meta.id, name, value).and_then(|group| look(name, group));
        shown.unwrap_or_else(|fault| {
            done = Err(fault);
            false
        })
    })?;
    done
}

fn groups(context: &mut Context<'_, '_>, meta: &StreamMeta) -> Done {
    context.check_length(meta.groups)?;
    let Context { txn, out, .. } = context;
    let (start, mut shown) = (out.len(), 0);
    visit_groups(txn, meta, |name, group| {
        shown += 1;
        out.map(6);
        out.bulk(b"name");
        out.bulk(name);
        write_number(out, "consumers", group.record.consumers);
        write_number(out, "pending", group.record.pending);
        write_progress(out, meta, &group);
        Ok(!out.overflowed())
    })?;
    out.array_before(start, shown);
    Ok(())
}

fn consumers(context: &mut Context<'_, '_>, group: &Group) -> Done {
    context.check_length(group.record.consumers)?;
    let Context { txn, out, .. } = context;
    let (start, mut shown, now_ms) = (out.len(), 0, txn.now_ms);
    visit_consumers(txn, group, |name, record| {
        shown += 1;
        out.map(4);
        out.bulk(b"name");
        out.bulk(name);
        write_number(out, "pending", record.pending);
        write_number(out, "idle", now_ms.saturating_sub(record.seen_ms));
        let active = record.active_ms.map(|active| now_ms.saturating_sub(active) as i64);
        out.bulk(b"inactive");
        out.int(active.unwrap_or(-1));
        Ok(!out.overflowed())
    })?;
    out.array_before(start, shown);
    Ok(())
}
