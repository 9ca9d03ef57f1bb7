//! Taking the members of the lowest or highest scores, at once or when there are some.

use std::time::Duration;

use rhumb::Slice;

use super::{
    Context, Done, NOT_POSITIVE, SYNTAX,
    arguments::timeout,
    connection::positive,
    integer, is_word,
    zsets::{put_fewer, remove},
};
use crate::{
    encode::{Kind, Meta, member},
    fault::{Fault, Wait},
    resp::{Args, Reply},
    txn::{Space, prefix_range},
};

const NO_COUNT: &str = "ERR count should be greater than 0";
const NO_KEYS: &str = "ERR numkeys should be greater than 0";

/// From which end members are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lowest,
    Highest,
}

/// How a reply tells the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Members and scores, one after the other.
    Flat,
    /// Pairs.
    Nested,
    /// The key, then one member and its score.
    KeyAndOne,
    /// The key, and the pairs.
    KeyAndNested,
}

/// Takes at most `count` members of a sorted set that has some.
fn take(
    context: &mut Context<'_, '_>,
    key: &[u8],
    (mut meta, expires): (Meta, u64),
    (end, count): (End, usize),
    form: Form,
) -> Done {
    context.check_length((count as u64).min(meta.count))?;
    let (from, to) = prefix_range(&member::zset_prefix(meta.id, true));
    let scan = context.txn.scan(Space::Members, from, to, end == End::Highest)?;
    let taken: Vec<Slice> =
        scan.take(count).map(|pair| Ok(pair?.0)).collect::<rhumb::Result<_>>()?;
    let nested = matches!(form, Form::Nested | Form::KeyAndNested);
    match form {
        Form::Flat => context.out.array(taken.len() * 2),
        Form::Nested => context.out.array(taken.len()),
        Form::KeyAndOne => {
            context.out.array(1 + taken.len() * 2);
            context.out.bulk(key);
        }
        Form::KeyAndNested => {
            context.out.array(2);
            context.out.bulk(key);
            context.out.array(taken.len());
        }
    }
    for key in &taken {
        let Some((score, name)) = member::zset_scored_of(key) else { continue };
        if nested {
            context.out.array(2);
        }
        context.out.bulk(name);
        context.out.double(score);
        remove(context, &mut meta, name, score);
    }
    if !taken.is_empty() {
        let event = if end == End::Lowest { "zpopmin" } else { "zpopmax" };
        put_fewer(context, key, (&meta, expires), event);
    }
    Ok(())
}

/// Takes members of the first key that has some. Returns false if none has.
fn take_first<'a>(
    context: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]>,
    wanted: (End, usize),
    form: Form,
) -> Result<bool, Fault> {
    for key in keys {
        // What has ended is removed with the members that are taken, or by the sweeper: nothing is
        // written before a key of another type is met.
        if context.takes.looks_at(key) && context.collection(key, Kind::Zset)?.is_some() {
            if !context.takes.may_take() {
                break;
            }
            let Some(found) = context.edit_collection(key, Kind::Zset)? else { continue };
            take(context, key, found, wanted, form)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn pop(context: &mut Context<'_, '_>, args: Args<'_>, end: End) -> Done {
    if args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let count = args.get(2).map(|text| positive(text).map_err(|_| NOT_POSITIVE)).transpose()?;
    let Some(found) = context.edit_collection(args.at(1), Kind::Zset)? else {
        context.out.array(0);
        return Ok(());
    };
    let form = if context.out.resp3 && count.is_some() { Form::Nested } else { Form::Flat };
    take(context, args.at(1), found, (end, count.unwrap_or(1)), form)
}

/// `ZPOPMIN`.
pub(super) fn zpopmin(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop(context, args, End::Lowest)
}

/// `ZPOPMAX`.
pub(super) fn zpopmax(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop(context, args, End::Highest)
}

/// What `ZMPOP` was asked for: the keys that stand between two places, and what to take.
struct Multiple {
    keys: std::ops::Range<usize>,
    end: End,
    count: usize,
}

/// Reads the arguments from the number of keys on, which stands at `at`.
fn multiple(args: Args<'_>, at: usize) -> Result<Multiple, Fault> {
    let above_zero = |text: &[u8]| integer(text).ok().filter(|number| *number > 0);
    let keys = above_zero(args.at(at)).ok_or(NO_KEYS)?;
    let keys_end = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(at + 1));
    let keys_end = keys_end.filter(|end| *end < args.len()).ok_or(SYNTAX)?;
    let end = match args.at(keys_end) {
        word if is_word(word, "min") => End::Lowest,
        word if is_word(word, "max") => End::Highest,
        _ => return Err(SYNTAX.into()),
    };
    let count = match (args.get(keys_end + 1), args.get(keys_end + 2), args.get(keys_end + 3)) {
        (None, ..) => 1,
        (Some(word), Some(count), more) if is_word(word, "count") => {
            let count = above_zero(count).ok_or(NO_COUNT)?;
            if more.is_some() {
                return Err(SYNTAX.into());
            }
            usize::try_from(count).unwrap_or(usize::MAX)
        }
        _ => return Err(SYNTAX.into()),
    };
    Ok(Multiple { keys: at + 1..keys_end, end, count })
}

/// `ZMPOP`.
pub(super) fn zmpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Multiple { keys, end, count } = multiple(args, 1)?;
    let keys = keys.map(|at| args.at(at));
    if !take_first(context, keys, (end, count), Form::KeyAndNested)? {
        context.out.null_array();
    }
    Ok(())
}

/// Takes members of the first key that has some, or waits until one has.
fn take_or_wait<'a>(
    context: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]> + Clone,
    timeout: Option<Duration>,
    wanted: (End, usize),
    form: Form,
) -> Done {
    if take_first(context, keys.clone(), wanted, form)? {
        return Ok(());
    }
    if context.in_exec {
        context.out.null_array();
        return Ok(());
    }
    let keys = keys.map(<[u8]>::to_vec).collect();
    Err(Wait::new((keys, Kind::Zset), timeout, Reply::null_array).into())
}

fn blocking(context: &mut Context<'_, '_>, args: Args<'_>, end: End) -> Done {
    let last = args.len() - 1;
    let timeout = timeout(args.at(last))?;
    let keys = (1..last).map(|at| args.at(at));
    take_or_wait(context, keys, timeout, (end, 1), Form::KeyAndOne)
}

/// `BZPOPMIN`.
pub(super) fn bzpopmin(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    blocking(context, args, End::Lowest)
}

/// `BZPOPMAX`.
pub(super) fn bzpopmax(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    blocking(context, args, End::Highest)
}

/// `BZMPOP`.
pub(super) fn bzmpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Multiple { keys, end, count } = multiple(args, 2)?;
    let timeout = timeout(args.at(1))?;
    let keys = keys.map(|at| args.at(at));
    take_or_wait(context, keys, timeout, (end, count), Form::KeyAndNested)
}
