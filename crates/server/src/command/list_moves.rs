//! Commands that take elements from the first list that has some, or move one from a list to
//! another; and their forms that wait for one.

use super::{
    Context, Done, SYNTAX,
    arguments::{at_least, keys_counted, timeout},
    is_word,
    lists::{End, elements, push_one, put_list, take},
};
use crate::{
    encode::{Kind, Meta},
    fault::{Fault, Wait},
    resp::{Args, Reply},
};

/// A list: its key, what is to be known of it, and its time of expiry.
type Found<'a> = (&'a [u8], Meta, u64);

/// The first of the keys that has a list; none if other clients are to take it.
fn first_list<'a>(
    context: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<Found<'a>>, Fault> {
    for key in keys {
        if context.takes.looks_at(key)
            && let Some(entry) = context.read(key, Kind::List)?
        {
            let found = (key, context.txn.meta(&entry)?, entry.expires_ms);
            return Ok(context.takes.may_take().then_some(found));
        }
    }
    Ok(None)
}

/// What a command does that finds nothing to take: it waits, unless it may not.
fn wait<'a>(
    context: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]>,
    timeout: Option<std::time::Duration>,
    nothing: fn(&mut Reply),
) -> Done {
    if context.in_exec {
        nothing(context.out);
        return Ok(());
    }
    let keys = keys.map(<[u8]>::to_vec).collect();
    Err(Wait::new((keys, Kind::List), timeout, Reply::null_array).into())
}

fn blocking_pop(context: &mut Context<'_, '_>, args: Args<'_>, end: End) -> Done {
    let last = args.len() - 1;
    let timeout = timeout(args.at(last))?;
    let keys = || args.iter_from(1).take(last - 1);
    let Some((key, meta, expires)) = first_list(context, keys())? else {
        return wait(context, keys(), timeout, Reply::null_array);
    };
    context.out.array(2);
    context.out.bulk(key);
    take(context, key, (meta, expires), (end, 1))
}

/// `BLPOP`.
pub(super) fn blpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    blocking_pop(context, args, End::Front)
}

/// `BRPOP`.
pub(super) fn brpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    blocking_pop(context, args, End::Back)
}

/// The end that an argument names.
fn end_of(word: &[u8]) -> Result<End, Fault> {
    match word {
        _ if is_word(word, "left") => Ok(End::Front),
        _ if is_word(word, "right") => Ok(End::Back),
        _ => Err(SYNTAX.into()),
    }
}

/// What `LMPOP` is asked for after the number of keys at `at`: how many keys, the end, and how
/// many elements.
fn pop_options(args: Args<'_>, at: usize) -> Result<(usize, End, u64), Fault> {
    let keys = keys_counted(args.at(at))?;
    let mut next = keys.checked_add(at + 1).ok_or(SYNTAX)?;
    let end = end_of(args.get(next).ok_or(SYNTAX)?)?;
    let mut count = None;
    next += 1;
    while let Some(option) = args.get(next) {
        let value = args.get(next + 1).ok_or(SYNTAX)?;
        if !is_word(option, "count") || count.is_some() {
            return Err(SYNTAX.into());
        }
        count = Some(at_least(value, 1, "ERR count should be greater than 0")? as u64);
        next += 2;
    }
    Ok((keys, end, count.unwrap_or(1)))
}

/// Takes elements from the first list that has some; returns false if none has.
fn pop_many<'a>(
    context: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]>,
    (end, count): (End, u64),
) -> Result<bool, Fault> {
    let Some((key, meta, expires)) = first_list(context, keys)? else { return Ok(false) };
    let taken = count.min(meta.count);
    context.check_length(taken)?;
    context.out.array(2);
    context.out.bulk(key);
    context.out.array(taken as usize);
    take(context, key, (meta, expires), (end, taken))?;
    Ok(true)
}

/// `LMPOP`.
pub(super) fn lmpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (keys, end, count) = pop_options(args, 1)?;
    if !pop_many(context, args.iter_from(2).take(keys), (end, count))? {
        context.out.null_array();
    }
    Ok(())
}

/// `BLMPOP`.
pub(super) fn blmpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (keys, end, count) = pop_options(args, 2)?;
    let timeout = timeout(args.at(1))?;
    let keys = || args.iter_from(3).take(keys);
    if pop_many(context, keys(), (end, count))? {
        return Ok(());
    }
    wait(context, keys(), timeout, Reply::null_array)
}

/// Moves an element and replies with it; returns false if there is none.
fn move_one(
    context: &mut Context<'_, '_>,
    (from, to): (&[u8], &[u8]),
    (take_at, put_at): (End, End),
) -> Result<bool, Fault> {
    // Not as before a write: a command that waits has written nothing.
    let Some(entry) = context.read(from, Kind::List)?.filter(|_| context.takes.may_take()) else {
        return Ok(false);
    };
    let (mut source, expires) = (context.txn.meta(&entry)?, entry.expires_ms);
    let at = match take_at {
        End::Front => 0,
        End::Back => source.count - 1,
    };
    let mut found = elements(context, &source, (at, at), false)?;
    let (place, element) = found.next().ok_or("ERR a list has no such element")??;
    let target = if from == to { None } else { Some(context.make_collection(to, Kind::List)?) };
    context.txn.remove_member(place.to_vec());
    source.count -= 1;
    if take_at == End::Front {
        source.first += 1;
    }
    match target {
        None => {
            push_one(context, &mut source, &element, put_at);
            context.txn.notify(put_at.pushed(), to);
        }
        Some((mut target, expires)) => {
            push_one(context, &mut target, &element, put_at);
            put_list(context, to, (&target, expires), put_at.pushed());
        }
    }
    put_list(context, from, (&source, expires), take_at.popped());
    context.out.bulk(&element);
    Ok(true)
}

/// `LMOVE`.
pub(super) fn lmove(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let ends = (end_of(args.at(3))?, end_of(args.at(4))?);
    if !move_one(context, (args.at(1), args.at(2)), ends)? {
        context.out.null();
    }
    Ok(())
}

/// `RPOPLPUSH`.
pub(super) fn rpoplpush(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if !move_one(context, (args.at(1), args.at(2)), (End::Back, End::Front))? {
        context.out.null();
    }
    Ok(())
}

/// `BLMOVE`.
pub(super) fn blmove(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let ends = (end_of(args.at(3))?, end_of(args.at(4))?);
    let timeout = timeout(args.at(5))?;
    if move_one(context, (args.at(1), args.at(2)), ends)? {
        return Ok(());
    }
    wait(context, std::iter::once(args.at(1)), timeout, Reply::null)
}

/// `BRPOPLPUSH`.
pub(super) fn brpoplpush(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let timeout = timeout(args.at(3))?;
    if move_one(context, (args.at(1), args.at(2)), (End::Back, End::Front))? {
        return Ok(());
    }
    wait(context, std::iter::once(args.at(1)), timeout, Reply::null)
}
