//! Hashes: fields with values, ascending.

use super::{
    Context, Done, check_member, fields, integer,
    numbers::{add_floats, add_integers, check_addend},
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::{Args, number::i64_bytes},
};

/// Sets a field, which does not end then; says whether it is new.
fn put(
    context: &mut Context<'_, '_>,
    meta: &mut Meta,
    field: &[u8],
    value: &[u8],
) -> Result<bool, Fault> {
    let before = fields::stored(context, meta, field)?;
    let is_new = before.as_ref().is_none_or(|before| !before.is_live(context.txn.now_ms));
    match before {
        None => meta.count += 1,
        Some(before) => fields::forget_end(context, meta, field, before.end_ms),
    }
    context.txn.put_member(member::field(meta.id, field), value.to_vec());
    Ok(is_new)
}

fn put_all(context: &mut Context<'_, '_>, args: Args<'_>, name: &str) -> Result<usize, Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    context.check_length(args.len() as u64)?;
    for at in (2..args.len()).step_by(2) {
        check_member(args.at(at))?;
    }
    let (mut meta, expires) = context.make_collection(args.at(1), Kind::Hash)?;
    let (before, mut new) = (meta.count, 0);
    for at in (2..args.len()).step_by(2) {
        new += usize::from(put(context, &mut meta, args.at(at), args.at(at + 1))?);
    }
    if meta.count > before {
        context.txn.put_meta(args.at(1), Kind::Hash, &meta, expires);
    }
    context.txn.touch(args.at(1));
    context.txn.notify(KeyEvent::hash("hset"), args.at(1));
    Ok(new)
}

/// `HSET`.
pub(super) fn hset(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let new = put_all(context, args, "hset")?;
    context.out.count(new);
    Ok(())
}

/// `HMSET`.
pub(super) fn hmset(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    put_all(context, args, "hmset")?;
    context.out.ok();
    Ok(())
}

/// `HSETNX`.
pub(super) fn hsetnx(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    check_member(args.at(2))?;
    let (mut meta, expires) = context.make_collection(args.at(1), Kind::Hash)?;
    let is_absent = fields::live(context, &meta, args.at(2))?.is_none();
    if is_absent {
        put(context, &mut meta, args.at(2), args.at(3))?;
        fields::put_hash(context, args.at(1), (&meta, expires), "hset");
    }
    context.out.int(is_absent.into());
    Ok(())
}

fn value_of(
    context: &Context<'_, '_>,
    meta: Option<&Meta>,
    field: &[u8],
) -> Result<Option<rhumb::Slice>, Fault> {
    let Some(meta) = meta else { return Ok(None) };
    fields::value(context, meta, field)
}

/// `HGET`.
pub(super) fn hget(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Hash)?;
    let value = value_of(context, meta.as_ref(), args.at(2))?;
    context.out.bulk_or_null(value.as_deref());
    Ok(())
}

/// `HMGET`.
pub(super) fn hmget(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.check_length(args.len() as u64)?;
    let meta = context.collection(args.at(1), Kind::Hash)?;
    context.out.array(args.len() - 2);
    for field in args.iter_from(2) {
        let value = value_of(context, meta.as_ref(), field)?;
        context.out.bulk_or_null(value.as_deref());
    }
    Ok(())
}

/// `HEXISTS`.
pub(super) fn hexists(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Hash)?;
    let value = value_of(context, meta.as_ref(), args.at(2))?;
    context.out.int(value.is_some().into());
    Ok(())
}

/// `HSTRLEN`.
pub(super) fn hstrlen(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Hash)?;
    let value = value_of(context, meta.as_ref(), args.at(2))?;
    context.out.count(value.map_or(0, |value| value.len()));
    Ok(())
}

/// `HLEN`.
pub(super) fn hlen(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let len = match context.collection(args.at(1), Kind::Hash)? {
        Some(meta) => fields::count(context, &meta)?,
        None => 0,
    };
    context.out.int(len as i64);
    Ok(())
}

/// What of each field is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    Fields,
    Values,
    Both,
}

fn write_all(context: &mut Context<'_, '_>, key: &[u8], parts: Parts) -> Done {
    let meta = context.collection(key, Kind::Hash)?;
    let mut walk = None;
    let mut len = 0;
    if let Some(meta) = meta {
        context.check_length(meta.count)?;
        len = fields::count(context, &meta)? as usize;
        walk = Some(fields::Walk::begin(context, &meta)?);
    }
    match parts {
        Parts::Both => context.out.map(len),
        Parts::Fields | Parts::Values => context.out.array(len),
    }
    let Some(mut walk) = walk else { return Ok(()) };
    let mut write = |field: &[u8], value: &[u8]| {
        if parts != Parts::Values {
            context.out.bulk(field);
        }
        if parts != Parts::Fields {
            context.out.bulk(value);
        }
        context.out.overflowed()
    };
    while let Some(overflowed) = walk.next_with(&mut write) {
        if overflowed? {
            break;
        }
    }
    Ok(())
}

/// `HGETALL`.
pub(super) fn hgetall(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    write_all(context, args.at(1), Parts::Both)
}

/// `HKEYS`.
pub(super) fn hkeys(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    write_all(context, args.at(1), Parts::Fields)
}

/// `HVALS`.
pub(super) fn hvals(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    write_all(context, args.at(1), Parts::Values)
}

/// `HDEL`.
pub(super) fn hdel(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.check_length(args.len() as u64)?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Hash)? else {
        context.out.int(0);
        return Ok(());
    };
    let (before, mut removed) = (meta.count, 0);
    for field in args.iter_from(2) {
        let Some(stored) = fields::stored(context, &meta, field)? else { continue };
        fields::remove(context, &mut meta, field, stored.end_ms);
        removed += i64::from(stored.is_live(context.txn.now_ms));
    }
    if meta.count < before {
        fields::put_hash(context, args.at(1), (&meta, expires), "hdel");
    }
    context.out.int(removed);
    Ok(())
}

/// Replaces a field's value by what `change` makes of it. The time at which it ends stays.
fn change<T>(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    event: &'static str,
    change: impl FnOnce(&[u8]) -> Result<(Vec<u8>, T), Fault>,
) -> Result<T, Fault> {
    let (key, field) = (args.at(1), args.at(2));
    check_member(field)?;
    let (mut meta, expires) = context.make_collection(key, Kind::Hash)?;
    let stored = fields::stored(context, &meta, field)?;
    let old = stored.as_ref().filter(|stored| stored.is_live(context.txn.now_ms));
    let (new, result) = change(old.map_or(b"0", |old| &old.value))?;
    match (&stored, old) {
        (Some(ended), None) => fields::forget_end(context, &meta, field, ended.end_ms),
        _ => meta.count += u64::from(stored.is_none()),
    }
    context.txn.put_member(member::field(meta.id, field), new);
    if stored.is_none() {
        context.txn.put_meta(key, Kind::Hash, &meta, expires);
    }
    context.txn.touch(key);
    context.txn.notify(KeyEvent::hash(event), key);
    Ok(result)
}

/// `HINCRBY`.
pub(super) fn hincrby(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let by = integer(args.at(3))?;
    let new = change(context, args, "hincrby", |old| {
        let new = add_integers(old, by)?;
        Ok((i64_bytes(new), new))
    })?;
    context.out.int(new);
    Ok(())
}

/// `HINCRBYFLOAT`.
pub(super) fn hincrbyfloat(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let by = args.at(3);
    check_addend(by)?;
    let new = change(context, args, "hincrbyfloat", |old| {
        let new = add_floats(old, by, "ERR hash value is not a float")?;
        Ok((new.clone().into_bytes(), new))
    })?;
    context.out.bulk(new.as_bytes());
    Ok(())
}
