//! Hashes: fields with values, ascending.

use super::{
    Context, Done, check_member, integer,
    numbers::{add_floats, add_integers, check_addend},
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    resp::{Args, number::i64_bytes},
};

/// Sets a field; says whether it is new.
fn put(
    context: &mut Context<'_, '_>,
    meta: &mut Meta,
    field: &[u8],
    value: &[u8],
) -> Result<bool, Fault> {
    let key = member::field(meta.id, field);
    let is_new = context.txn.member(&key)?.is_none();
    meta.count += u64::from(is_new);
    context.txn.put_member(key, value.to_vec());
    Ok(is_new)
}

fn put_all(context: &mut Context<'_, '_>, args: Args<'_>, name: &str) -> Result<usize, Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    for at in (2..args.len()).step_by(2) {
        check_member(args.at(at))?;
    }
    let (mut meta, expires) = context.make_collection(args.at(1), Kind::Hash)?;
    let mut new = 0;
    for at in (2..args.len()).step_by(2) {
        new += usize::from(put(context, &mut meta, args.at(at), args.at(at + 1))?);
    }
    if new > 0 {
        context.txn.put_meta(args.at(1), Kind::Hash, &meta, expires);
    }
    context.txn.touch(args.at(1));
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
    let key = member::field(meta.id, args.at(2));
    let is_absent = context.txn.member(&key)?.is_none();
    if is_absent {
        context.txn.put_member(key, args.at(3).to_vec());
        meta.count += 1;
        context.txn.put_meta(args.at(1), Kind::Hash, &meta, expires);
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
    Ok(context.txn.member(&member::field(meta.id, field))?)
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
    let meta = context.collection(args.at(1), Kind::Hash)?;
    context.out.int(meta.map_or(0, |meta| meta.count as i64));
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
    let len = meta.map_or(0, |meta| meta.count as usize);
    match parts {
        Parts::Both => context.out.map(len),
        Parts::Fields | Parts::Values => context.out.array(len),
    }
    let Some(meta) = meta else { return Ok(()) };
    let mut fields = context.txn.members(&member::prefix(meta.id))?.expecting(meta.count);
    let mut write = |key: &[u8], value: &[u8]| {
        if parts != Parts::Values {
            context.out.bulk(member::field_of(key));
        }
        if parts != Parts::Fields {
            context.out.bulk(value);
        }
        context.out.overflowed()
    };
    while let Some(overflowed) = fields.next_with(&mut write) {
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
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Hash)? else {
        context.out.int(0);
        return Ok(());
    };
    let mut removed = 0;
    for field in args.iter_from(2) {
        let key = member::field(meta.id, field);
        if context.txn.member(&key)?.is_some() {
            context.txn.remove_member(key);
            removed += 1;
        }
    }
    if removed > 0 {
        meta.count -= removed;
        context.txn.put_meta(args.at(1), Kind::Hash, &meta, expires);
    }
    context.out.int(removed as i64);
    Ok(())
}

/// Replaces a field's value by what `change` makes of it.
fn change<T>(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    change: impl FnOnce(&[u8]) -> Result<(Vec<u8>, T), Fault>,
) -> Result<T, Fault> {
    check_member(args.at(2))?;
    let (mut meta, expires) = context.make_collection(args.at(1), Kind::Hash)?;
    let key = member::field(meta.id, args.at(2));
    let old = context.txn.member(&key)?;
    let (new, result) = change(old.as_deref().unwrap_or(b"0"))?;
    context.txn.put_member(key, new);
    if old.is_none() {
        meta.count += 1;
        context.txn.put_meta(args.at(1), Kind::Hash, &meta, expires);
    }
    context.txn.touch(args.at(1));
    Ok(result)
}

/// `HINCRBY`.
pub(super) fn hincrby(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let by = integer(args.at(3))?;
    let new = change(context, args, |old| {
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
    let new = change(context, args, |old| {
        let new = add_floats(old, by, "ERR hash value is not a float")?;
        Ok((new.clone().into_bytes(), new))
    })?;
    context.out.bulk(new.as_bytes());
    Ok(())
}
