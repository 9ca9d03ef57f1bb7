//! `HRANDFIELD`: random fields of a hash. Fields lie in their own order, which tells nothing of how
//! many there are between two places: all are walked over.

use rhumb::Slice;

use super::{Context, Done, SYNTAX, arguments::either_sign, fields, is_word};
use crate::{
    encode::{Kind, Meta},
    fault::Fault,
    random::Random,
    resp::Args,
};

/// Fields that are given at most where they may be repeated.
const REPEATED_MAX: u64 = 1 << 20;

type Pair = (Slice, Slice);

/// `count` different fields, all if there are no more: each is taken with the probability with
/// which it belongs to those that are still wanted. O(n).
fn different(
    context: &Context<'_, '_>,
    meta: &Meta,
    (len, count): (u64, u64),
    random: &mut Random,
) -> Result<Vec<Pair>, Fault> {
    let (mut left, mut wanted, mut found) = (len, count.min(len), Vec::new());
    let mut walk = fields::Walk::begin(context, meta)?;
    while wanted > 0 {
        let is_taken = random.below(left.max(1)) < wanted;
        let step = walk.next_with(&mut |field, value| {
            is_taken.then(|| (Slice::copy_from(field), Slice::copy_from(value)))
        });
        let Some(step) = step else { break };
        left = left.saturating_sub(1);
        if let Some(pair) = step? {
            found.push(pair);
            wanted -= 1;
        }
    }
    Ok(found)
}

/// `count` fields, of which each is drawn from all. O(n + count * log count).
fn repeated(
    context: &Context<'_, '_>,
    meta: &Meta,
    (len, count): (u64, u64),
    random: &mut Random,
) -> Result<Vec<Pair>, Fault> {
    // Which field each draw has met; they are walked over in their order.
    let mut draws: Vec<(u64, usize)> =
        (0..count as usize).map(|at| (random.below(len.max(1)), at)).collect();
    draws.sort_unstable();
    let mut found = vec![(Slice::default(), Slice::default()); draws.len()];
    let (mut draws, mut index) = (draws.into_iter().peekable(), 0);
    let mut walk = fields::Walk::begin(context, meta)?;
    while let Some((wanted, _)) = draws.peek() {
        let is_wanted = *wanted == index;
        let step = walk.next_with(&mut |field, value| {
            is_wanted.then(|| (Slice::copy_from(field), Slice::copy_from(value)))
        });
        let Some(step) = step else { break };
        if let Some(pair) = step? {
            while let Some((_, at)) = draws.next_if(|(wanted, _)| *wanted == index) {
                found[at] = pair.clone();
            }
        }
        index += 1;
    }
    Ok(found)
}

/// The number of fields that is asked for, if any is, and whether their values are wanted.
fn wanted(args: Args<'_>) -> Result<(Option<i64>, bool), Fault> {
    let count = args.get(2).map(either_sign).transpose()?;
    let with_values = match args.get(3) {
        None => false,
        Some(word) if args.len() == 4 && is_word(word, "withvalues") => true,
        Some(_) => return Err(SYNTAX.into()),
    };
    // Twice as many replies have to be counted.
    if with_values && count.is_some_and(|count| count.unsigned_abs() > i64::MAX as u64 / 2) {
        return Err("ERR value is out of range".into());
    }
    Ok((count, with_values))
}

/// `HRANDFIELD`: different fields if the count is positive, repeated ones if it is negative.
pub(super) fn hrandfield(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (count, with_values) = wanted(args)?;
    let meta = context.collection(args.at(1), Kind::Hash)?;
    let len = match &meta {
        Some(meta) => fields::count(context, meta)?,
        None => 0,
    };
    let (Some(meta), 1..) = (meta, len) else {
        match count {
            Some(_) => context.out.array(0),
            None => context.out.null(),
        }
        return Ok(());
    };
    context.check_length(meta.count)?;
    let mut random = context.server.random();
    let Some(count) = count else {
        let found = different(context, &meta, (len, 1), &mut random)?;
        context.out.bulk_or_null(found.first().map(|(field, _)| &**field));
        return Ok(());
    };
    let pairs = if let Ok(count) = u64::try_from(count) {
        different(context, &meta, (len, count), &mut random)?
    } else {
        let count = count.unsigned_abs();
        if count > REPEATED_MAX {
            return Err("ERR value is out of range".into());
        }
        context.check_length(count)?;
        repeated(context, &meta, (len, count), &mut random)?
    };
    let is_flat = with_values && !context.out.resp3;
    context.out.array(if is_flat { pairs.len() * 2 } else { pairs.len() });
    for (field, value) in &pairs {
        if with_values && context.out.resp3 {
            context.out.array(2);
        }
        context.out.bulk(field);
        if with_values {
            context.out.bulk(value);
        }
        if context.out.overflowed() {
            break;
        }
    }
    Ok(())
}
