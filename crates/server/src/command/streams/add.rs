//! Adding and removing entries: `XADD`, `XDEL`, `XSETID`, and `XLEN`.

use super::{
    create, find, has_entry,
    ids::{self, Wanted},
    is_word, last_entry, trim, write_id,
};
use crate::{
    command::{Context, Done, NO_SUCH_KEY, SYNTAX, integer},
    encode::{StreamId, StreamMeta, stream_member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
};

/// The most bytes of an entry, its fields and values together.
const ENTRY_BYTES_MAX: usize = 1 << 30;

const NOT_AFTER: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";

/// The identifier of a new entry.
fn new_id(meta: &StreamMeta, wanted: Wanted, now_ms: u64) -> Result<StreamId, Fault> {
    if meta.last == StreamId::MAX {
        return Err(
            "ERR The stream has exhausted the last possible ID, unable to add more items".into()
        );
    }
    let last = meta.last;
    let id = match wanted {
        Wanted::This(id) => Some(id),
        Wanted::NextOf(ms) if ms == last.ms => last.next().filter(|next| next.ms == ms),
        Wanted::NextOf(ms) => Some(StreamId { ms, seq: 0 }),
        Wanted::Next if now_ms > last.ms => Some(StreamId { ms: now_ms, seq: 0 }),
        Wanted::Next => last.next(),
    };
    id.filter(|id| *id > last).ok_or_else(|| NOT_AFTER.into())
}

/// `XADD`.
pub(in crate::command) fn xadd(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = trim::options(args, true)?;
    let (key, fields) = (args.at(1), options.at + 1);
    let count = args.len().saturating_sub(fields);
    if count < 2 || count % 2 == 1 {
        return Err("ERR wrong number of arguments for 'xadd' command".into());
    }
    let wanted = ids::wanted(args.at(options.at))?;
    if wanted == Wanted::This(StreamId::MIN) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let found = find(context, key)?;
    if found.is_none() && options.only_if_present {
        context.out.null();
        return Ok(());
    }
    if args.iter_from(fields).map(<[u8]>::len).sum::<usize>() > ENTRY_BYTES_MAX {
        return Err("ERR Elements are too large to be stored".into());
    }
    let mut after = found.map_or(StreamMeta::new(0), |(meta, _)| meta);
    let id = new_id(&after, wanted, context.txn.now_ms)?;
    add(&mut after, id);
    let removed = match options.trim {
        Some(trim) => trim.count(context, &after)?,
        None => 0,
    };
    trim::check(context, &after, removed)?;
    let (mut meta, expires_ms) = match found {
        Some(found) => found,
        None => create(context, key)?,
    };
    add(&mut meta, id);
    let value = stream_member::encode_fields(args.iter_from(fields));
    context.txn.put_member(stream_member::entry(meta.id, id), value);
    context.txn.touch(key);
    context.txn.notify(KeyEvent::stream("xadd"), key);
    if trim::carry_out(context, &mut meta, removed)? {
        context.txn.notify(KeyEvent::stream("xtrim"), key);
    }
    context.txn.put_stream(key, &meta, expires_ms);
    write_id(context.out, id);
    Ok(())
}

fn add(meta: &mut StreamMeta, id: StreamId) {
    if meta.length == 0 {
        meta.first = id;
    }
    meta.length += 1;
    meta.added += 1;
    meta.last = id;
}

/// `XDEL`.
pub(in crate::command) fn xdel(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Some((mut meta, expires_ms)) = find(context, args.at(1))? else {
        context.out.int(0);
        return Ok(());
    };
    let ids: Result<Vec<StreamId>, Fault> =
        args.iter_from(2).map(|text| ids::strict(text, 0)).collect();
    let mut ids = ids?;
    ids.sort_unstable();
    ids.dedup();
    context.check_length(ids.len() as u64)?;
    let (before, first) = (meta.length, meta.first);
    for id in ids {
        if has_entry(&context.txn, &meta, id)? {
            context.txn.remove_member(stream_member::entry(meta.id, id));
            meta.length -= 1;
            meta.max_deleted = meta.max_deleted.max(id);
            if id == first {
                // Reads begin there until the next one is known.
                meta.first = id.next().unwrap_or(id);
            }
        }
    }
    let deleted = before - meta.length;
    if deleted > 0 {
        if meta.length == 0 {
            meta.first = StreamId::MIN;
        } else if meta.first != first {
            meta.first = trim::first_entry(context, &meta)?;
        }
        context.txn.put_stream(args.at(1), &meta, expires_ms);
        context.txn.touch_without_news(args.at(1));
        context.txn.notify(KeyEvent::stream("xdel"), args.at(1));
    }
    context.out.count(usize::try_from(deleted).unwrap_or(usize::MAX));
    Ok(())
}

/// `XSETID`.
pub(in crate::command) fn xsetid(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let last = ids::strict(args.at(2), 0)?;
    let (mut added, mut max_deleted, mut at) = (None, StreamId::MIN, 3);
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if is_word(option, "entriesadded") => {
                let number = u64::try_from(integer(number)?);
                added = Some(number.map_err(|_| "ERR entries_added must be positive")?);
            }
            Some(id) if is_word(option, "maxdeletedid") => {
                max_deleted = ids::strict(id, 0)?;
                if last < max_deleted {
                    return Err("ERR The ID specified in XSETID is smaller than the provided \
                                max_deleted_entry_id"
                        .into());
                }
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 2;
    }
    let (mut meta, expires_ms) = find(context, args.at(1))?.ok_or(NO_SUCH_KEY)?;
    if meta.length > 0 {
        if last < meta.last && last_entry(&context.txn, &meta)?.is_some_and(|top| last < top) {
            return Err(
                "ERR The ID specified in XSETID is smaller than the target stream top item".into(),
            );
        }
        if added.is_some_and(|added| meta.length > added) {
            return Err("ERR The entries_added specified in XSETID is smaller than the target \
                                stream length"
                .into());
        }
    }
    if last < meta.max_deleted {
        return Err(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id".into()
        );
    }
    meta.last = last;
    meta.added = added.unwrap_or(meta.added);
    if max_deleted != StreamId::MIN {
        meta.max_deleted = max_deleted;
    }
    context.txn.put_stream(args.at(1), &meta, expires_ms);
    context.txn.touch_without_news(args.at(1));
    context.txn.notify(KeyEvent::stream("xsetid"), args.at(1));
    context.out.ok();
    Ok(())
}

/// `XLEN`.
pub(in crate::command) fn xlen(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let found = find(context, args.at(1))?;
    let length = found.map_or(0, |(meta, _)| meta.length);
    context.out.int(i64::try_from(length).unwrap_or(i64::MAX));
    Ok(())
}
