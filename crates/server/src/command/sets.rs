//! Sets: members in the order of their hashes.

use super::{
    Context, Done, NOT_POSITIVE, SYNTAX, check_member, connection::positive, integer, sample,
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
};

/// `SADD`.
pub(super) fn sadd(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.check_length(args.len() as u64)?;
    for name in args.iter_from(2) {
        check_member(name)?;
    }
    let (mut meta, expires) = context.make_collection(args.at(1), Kind::Set)?;
    let before = meta.count;
    for name in args.iter_from(2) {
        let key = member::set_member(meta.id, name);
        if context.txn.member(&key)?.is_none() {
            context.txn.put_member(key, Vec::new());
            meta.count += 1;
        }
    }
    if meta.count > before {
        put_set(context, args.at(1), (&meta, expires), "sadd");
    }
    context.out.int((meta.count - before) as i64);
    Ok(())
}

/// Writes what is now to be known of a set, and tells of what happened to it and of its end if it
/// has no members any more.
pub(super) fn put_set(
    context: &mut Context<'_, '_>,
    key: &[u8],
    (meta, expires): (&Meta, u64),
    event: &'static str,
) {
    context.txn.put_meta(key, Kind::Set, meta, expires);
    context.txn.notify(KeyEvent::set(event), key);
    if meta.count == 0 {
        context.txn.notify(KeyEvent::generic("del"), key);
    }
}

/// `SREM`.
pub(super) fn srem(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.check_length(args.len() as u64)?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Set)? else {
        context.out.int(0);
        return Ok(());
    };
    let before = meta.count;
    for name in args.iter_from(2) {
        let key = member::set_member(meta.id, name);
        if context.txn.member(&key)?.is_some() {
            context.txn.remove_member(key);
            meta.count -= 1;
        }
    }
    if meta.count < before {
        put_set(context, args.at(1), (&meta, expires), "srem");
    }
    context.out.int((before - meta.count) as i64);
    Ok(())
}

fn is_member(context: &Context<'_, '_>, meta: Option<&Meta>, name: &[u8]) -> Result<bool, Fault> {
    let Some(meta) = meta else { return Ok(false) };
    Ok(context.txn.member(&member::set_member(meta.id, name))?.is_some())
}

/// `SISMEMBER`.
pub(super) fn sismember(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Set)?;
    let found = is_member(context, meta.as_ref(), args.at(2))?;
    context.out.int(found.into());
    Ok(())
}

/// `SMISMEMBER`.
pub(super) fn smismember(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.check_length(args.len() as u64)?;
    let meta = context.collection(args.at(1), Kind::Set)?;
    context.out.array(args.len() - 2);
    for name in args.iter_from(2) {
        let found = is_member(context, meta.as_ref(), name)?;
        context.out.int(found.into());
    }
    Ok(())
}

/// `SCARD`.
pub(super) fn scard(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Set)?;
    context.out.int(meta.map_or(0, |meta| meta.count as i64));
    Ok(())
}

/// `SMEMBERS`.
pub(super) fn smembers(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Set)?;
    context.check_length(meta.map_or(0, |meta| meta.count))?;
    context.out.set(meta.map_or(0, |meta| meta.count as usize));
    let Some(meta) = meta else { return Ok(()) };
    let mut members = context.txn.members(&member::prefix(meta.id))?.expecting(meta.count);
    let mut write = |key: &[u8], _: &[u8]| {
        context.out.bulk(member::set_member_of(key));
        context.out.overflowed()
    };
    while let Some(overflowed) = members.next_with(&mut write) {
        if overflowed? {
            break;
        }
    }
    Ok(())
}

/// Steps that a random member takes: a draw meets one member of three, and looks at some sixteen.
const DRAW_STEPS: u64 = 16;

/// To be called before a number of random members are drawn, of which each costs some steps, but
/// all together not more than a few walks over the set.
fn check_draws(context: &Context<'_, '_>, meta: &Meta, count: u64) -> Done {
    let different = count.min(meta.count.saturating_mul(2));
    context.check_length(different.saturating_mul(DRAW_STEPS).min(count.max(meta.count)))
}

/// `SPOP`.
pub(super) fn spop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let count = args.get(2).map(|text| positive(text).map_err(|_| NOT_POSITIVE)).transpose()?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Set)? else {
        match count {
            Some(_) => context.out.set(0),
            None => context.out.null(),
        }
        return Ok(());
    };
    check_draws(context, &meta, count.unwrap_or(1) as u64)?;
    let mut random = context.server.random();
    let keys = sample::different(context, &meta, count.unwrap_or(1), &mut random)?;
    if count.is_some() {
        context.out.set(keys.len());
    }
    for key in &keys {
        context.out.bulk(member::set_member_of(key));
        context.txn.remove_member(key.to_vec());
    }
    if !keys.is_empty() {
        meta.count = meta.count.saturating_sub(keys.len() as u64);
        put_set(context, args.at(1), (&meta, expires), "spop");
    }
    Ok(())
}

/// Members that `SRANDMEMBER` gives at most when it may repeat them.
const REPEATED_MAX: u64 = 1 << 20;

/// `SRANDMEMBER`: different members if the count is positive, repeated ones if it is negative.
pub(super) fn srandmember(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let count = args.get(2).map(integer).transpose()?;
    let meta = context.collection(args.at(1), Kind::Set)?;
    let Some(meta) = meta else {
        match count {
            Some(_) => context.out.array(0),
            None => context.out.null(),
        }
        return Ok(());
    };
    let mut random = context.server.random();
    let Some(count) = count else {
        let key = sample::one(context, &meta, &mut random)?;
        context.out.bulk_or_null(key.as_deref().map(member::set_member_of));
        return Ok(());
    };
    check_draws(context, &meta, count.unsigned_abs())?;
    let keys = if let Ok(count) = usize::try_from(count) {
        sample::different(context, &meta, count, &mut random)?
    } else {
        let count = count.unsigned_abs();
        if count > REPEATED_MAX {
            return Err("ERR value is out of range".into());
        }
        sample::repeated(context, &meta, count as usize, &mut random)?
    };
    context.out.array(keys.len());
    keys.iter().for_each(|key| context.out.bulk(member::set_member_of(key)));
    Ok(())
}

/// `SMOVE`.
pub(super) fn smove(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (from, to, name) = (args.at(1), args.at(2), args.at(3));
    check_member(name)?;
    let Some(entry) = context.read(from, Kind::Set)? else {
        // As in Redis, the other one is not looked at.
        context.out.int(0);
        return Ok(());
    };
    let (mut source, expires) = (context.txn.meta(&entry)?, entry.expires_ms);
    context.read(to, Kind::Set)?;
    let is_there = is_member(context, Some(&source), name)?;
    context.out.int(is_there.into());
    if !is_there || from == to {
        return Ok(());
    }
    context.txn.remove_member(member::set_member(source.id, name));
    source.count -= 1;
    put_set(context, from, (&source, expires), "srem");
    let (mut target, expires) = context.make_collection(to, Kind::Set)?;
    if !is_member(context, Some(&target), name)? {
        context.txn.put_member(member::set_member(target.id, name), Vec::new());
        target.count += 1;
        put_set(context, to, (&target, expires), "sadd");
    }
    Ok(())
}
