//! What an ordered store has and Redis has not: ranges of keys, and the neighbours of one.
//!
//! Bounds are written as for `ZRANGEBYLEX`: `[a` with `a`, `(a` without it, `-` and `+` for the
//! ends. A page ends with its last key; the next one begins after it, with `(` before that key.

use std::ops::Bound;

use super::{BYTES_OF_ELEMENT, Context, Done, FEW_ELEMENTS, SYNTAX, connection::positive, is_word};
use crate::{
    commit,
    encode::{Kind, entry::decode_head},
    fault::Fault,
    resp::Args,
    txn::{KeyBound, Space, Txn, prefix_range},
};

const BAD_BOUND: &str = "ERR min or max not valid string range item";

/// Reads a bound; `-` is before every key and `+` after.
pub(super) fn bound(text: &[u8]) -> Result<End, Fault> {
    match text {
        b"-" => Ok(End::First),
        b"+" => Ok(End::Last),
        [b'[', key @ ..] => Ok(End::At(Bound::Included(key.to_vec()))),
        [b'(', key @ ..] => Ok(End::At(Bound::Excluded(key.to_vec()))),
        _ => Err(BAD_BOUND.into()),
    }
}

/// One end of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
    At(KeyBound),
}

/// The range between two ends; none if nothing can be in it.
pub(super) fn between(min: End, max: End) -> Option<(KeyBound, KeyBound)> {
    let from = match min {
        End::First => Bound::Unbounded,
        End::Last => return None,
        End::At(bound) => bound,
    };
    let to = match max {
        End::First => return None,
        End::Last => Bound::Unbounded,
        End::At(bound) => bound,
    };
    Some((from, to))
}

/// How a range is written.
struct Form {
    reverse: bool,
    limit: usize,
    keys_only: bool,
}

fn form<'a>(mut options: impl Iterator<Item = &'a [u8]>, takes_all: bool) -> Result<Form, Fault> {
    let mut form = Form { reverse: false, limit: usize::MAX, keys_only: false };
    while let Some(option) = options.next() {
        if is_word(option, "limit") {
            form.limit = positive(options.next().ok_or(SYNTAX)?)?;
        } else if takes_all && is_word(option, "rev") {
            form.reverse = true;
        } else if takes_all && is_word(option, "keysonly") {
            form.keys_only = true;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(form)
}

/// Calls `each` with the keys of a range that have not ended, until it says false.
fn each_live(
    txn: &Txn<'_>,
    (from, to): (KeyBound, KeyBound),
    reverse: bool,
    mut each: impl FnMut(&[u8], &[u8]) -> bool,
) -> Done {
    let mut pairs = txn.scan(Space::Keys, from, to, reverse)?;
    let mut go_on = |key: &[u8], value: &[u8]| !txn.is_live(key, value) || each(key, value);
    while let Some(goes_on) = pairs.next_with(&mut go_on) {
        if !goes_on? {
            break;
        }
    }
    Ok(())
}

/// Replies with pairs: one after the other in RESP2, in arrays of two in RESP3. The value of a key
/// that is no string is null.
fn write_range(
    context: &mut Context<'_, '_>,
    range: Option<(KeyBound, KeyBound)>,
    form: &Form,
) -> Done {
    let few = if context.txn.may_take_long { u64::MAX } else { FEW_ELEMENTS };
    let Context { txn, out, .. } = context;
    let start = out.len();
    let (mut replies, mut found, mut spent) = (0, 0, 0);
    let nested = out.resp3 && !form.keys_only;
    if let Some(range) = range.filter(|_| form.limit > 0) {
        each_live(txn, range, form.reverse, |key, value| {
            if nested {
                out.array(2);
            }
            out.bulk(key);
            if !form.keys_only {
                write_value(out, value);
            }
            replies += if nested || form.keys_only { 1 } else { 2 };
            found += 1;
            spent = found as u64 + ((out.len() - start) / BYTES_OF_ELEMENT) as u64;
            found < form.limit && spent <= few && !out.overflowed()
        })?;
    }
    if spent > few {
        return Err(Fault::TakesLong);
    }
    out.array_before(start, replies);
    Ok(())
}

fn write_value(out: &mut crate::resp::Reply, value: &[u8]) {
    let head = decode_head(value).filter(|(kind, ..)| *kind == Kind::String);
    out.bulk_or_null(head.map(|(_, _, body)| &value[body..]));
}

/// `RANGE min max [REV] [LIMIT n] [KEYSONLY]`.
pub(super) fn range(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let form = form(args.iter_from(3), true)?;
    let range = between(bound(args.at(1))?, bound(args.at(2))?);
    write_range(context, range, &form)
}

/// `PREFIX p [REV] [LIMIT n] [KEYSONLY]`.
pub(super) fn prefix(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let form = form(args.iter_from(2), true)?;
    write_range(context, Some(prefix_range(args.at(1))), &form)
}

/// `RANGECOUNT min max`.
pub(super) fn rangecount(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut count = 0;
    if let Some(range) = between(bound(args.at(1))?, bound(args.at(2))?) {
        each_live(&context.txn, range, false, |_, _| {
            count += 1;
            true
        })?;
    }
    context.out.count(count);
    Ok(())
}

/// The neighbour of a key in a direction.
fn neighbour(context: &mut Context<'_, '_>, args: Args<'_>, reverse: bool) -> Done {
    let Form { keys_only, limit, .. } = form(args.iter_from(2), true)?;
    if limit != usize::MAX {
        return Err(SYNTAX.into());
    }
    let key = Bound::Excluded(args.at(1).to_vec());
    let range = if reverse { (Bound::Unbounded, key) } else { (key, Bound::Unbounded) };
    let mut found = None;
    each_live(&context.txn, range, reverse, |key, value| {
        found = Some((key.to_vec(), value.to_vec()));
        false
    })?;
    match found {
        None if keys_only => context.out.null(),
        None => context.out.null_array(),
        Some((key, _)) if keys_only => context.out.bulk(&key),
        Some((key, value)) => {
            context.out.array(2);
            context.out.bulk(&key);
            write_value(context.out, &value);
        }
    }
    Ok(())
}

/// `NEXT k [KEYSONLY]`.
pub(super) fn next(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    neighbour(context, args, false)
}

/// `PREV k [KEYSONLY]`.
pub(super) fn prev(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    neighbour(context, args, true)
}

/// How many keys are removed at a time, under their locks.
const REMOVED_TOGETHER: usize = 1024;

/// The first keys of a range that have not ended.
fn first_keys(
    txn: &Txn<'_>,
    range: (KeyBound, KeyBound),
    most: usize,
) -> Result<Vec<Vec<u8>>, Fault> {
    let mut keys = Vec::new();
    each_live(txn, range, false, |key, _| {
        keys.push(key.to_vec());
        keys.len() < most
    })?;
    Ok(keys)
}

/// `DELRANGE min max [LIMIT n]`: by itself in steps of many keys, each step at once; within `EXEC`
/// all at once.
pub(super) fn delrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut left = form(args.iter_from(3), false)?.limit;
    let range = between(bound(args.at(1))?, bound(args.at(2))?);
    let mut removed = 0;
    let Some((mut from, to)) = range else {
        context.out.int(0);
        return Ok(());
    };
    while left > 0 {
        let most = if context.in_exec { left } else { left.min(REMOVED_TOGETHER) };
        let keys = first_keys(&context.txn, (from.clone(), to.clone()), most)?;
        let Some(last) = keys.last() else { break };
        from = Bound::Excluded(last.clone());
        let locks = &context.server.databases.locks;
        let held = (!context.in_exec).then(|| locks.many_exclusive(keys.iter().map(Vec::as_slice)));
        context.server.databases.commit_submitted();
        for key in &keys {
            if let Some(entry) = context.txn.edit(key)? {
                context.txn.delete(key, &entry)?;
                removed += 1;
                left -= 1;
            }
        }
        if !context.in_exec {
            commit::transaction(&mut context.txn)?;
        }
        drop(held);
        if keys.len() < most {
            break;
        }
    }
    context.out.int(removed);
    Ok(())
}
