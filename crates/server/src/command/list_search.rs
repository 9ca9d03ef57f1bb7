//! Lists by the values of their elements: `LPOS`, `LINSERT`, `LREM`. They walk the list, and keep
//! no element in memory but those that they move.

use super::{
    Context, Done, SYNTAX,
    arguments::at_least,
    integer, is_word,
    lists::{elements, put_list},
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
};

/// Goes through the first `most` elements, from the end if `reverse`, and has `found` look at the
/// index of each that is equal to `value`, until it returns false.
fn search(
    context: &Context<'_, '_>,
    meta: &Meta,
    (value, most, reverse): (&[u8], u64, bool),
    mut found: impl FnMut(u64) -> bool,
) -> Done {
    let range = if reverse { (meta.count - most, meta.count - 1) } else { (0, most - 1) };
    let mut walk = elements(context, meta, range, reverse)?;
    for step in 0..most {
        let is_equal = walk.next_with(|_, element| element == value).transpose()?;
        let index = if reverse { meta.count - 1 - step } else { step };
        if is_equal == Some(true) && !found(index) {
            break;
        }
    }
    Ok(())
}

/// What `LPOS` is asked for.
struct Wanted {
    rank: u64,
    reverse: bool,
    /// How many indexes: none for one that is not in an array, 0 for all.
    count: Option<u64>,
    most: u64,
}

fn wanted(args: Args<'_>) -> Result<Wanted, Fault> {
    let mut wanted = Wanted { rank: 1, reverse: false, count: None, most: 0 };
    let mut at = 3;
    while let Some(option) = args.get(at) {
        let value = args.get(at + 1).ok_or(SYNTAX)?;
        if is_word(option, "rank") {
            let rank = integer(value)?;
            if rank == i64::MIN {
                let (least, most) = (-i64::MAX, i64::MAX);
                let text = "ERR value is out of range, value must between";
                return Err(format!("{text} {least} and {most}").into());
            }
            if rank == 0 {
                return Err("ERR RANK can't be zero: use 1 to start from the first match, 2 from \
                            the second ... or use negative to start from the end of the list"
                    .into());
            }
            (wanted.rank, wanted.reverse) = (rank.unsigned_abs(), rank < 0);
        } else if is_word(option, "count") {
            wanted.count = Some(at_least(value, 0, "ERR COUNT can't be negative")? as u64);
        } else if is_word(option, "maxlen") {
            wanted.most = at_least(value, 0, "ERR MAXLEN can't be negative")? as u64;
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    Ok(wanted)
}

/// `LPOS`.
pub(super) fn lpos(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Wanted { rank, reverse, count, most } = wanted(args)?;
    let mut indexes = Vec::new();
    if let Some(meta) = context.collection(args.at(1), Kind::List)? {
        let most = if most == 0 { meta.count } else { most.min(meta.count) };
        context.check_length(most)?;
        let (mut matches, limit) = (0, count.unwrap_or(1));
        search(context, &meta, (args.at(2), most, reverse), |index| {
            matches += 1;
            if matches >= rank {
                indexes.push(index as i64);
            }
            limit == 0 || (indexes.len() as u64) < limit
        })?;
    }
    if count.is_some() {
        context.out.array(indexes.len());
        indexes.into_iter().for_each(|index| context.out.int(index));
    } else {
        match indexes.first() {
            Some(index) => context.out.int(*index),
            None => context.out.null(),
        }
    }
    Ok(())
}

/// Moves the elements of the range of indexes by some places. Nothing else is written where they
/// come from.
fn shift(
    context: &mut Context<'_, '_>,
    meta: &Meta,
    (start, end): (u64, u64),
    to: impl Fn(u64) -> Option<u64>,
) -> Done {
    if start >= end {
        return Ok(());
    }
    let walk = elements(context, meta, (start, end - 1), false)?;
    for (index, pair) in (start..end).zip(walk) {
        let (_, element) = pair?;
        if let Some(place) = to(index) {
            context.txn.put_member(member::element(meta.id, place), element.to_vec());
        }
    }
    Ok(())
}

/// `LINSERT`: moves the elements on the shorter side of the new one by a place.
pub(super) fn linsert(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let after = is_word(args.at(2), "after");
    if !after && !is_word(args.at(2), "before") {
        return Err(SYNTAX.into());
    }
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::List)? else {
        context.out.int(0);
        return Ok(());
    };
    context.check_length(meta.count)?;
    let mut pivot = None;
    search(context, &meta, (args.at(3), meta.count, false), |index| {
        pivot = Some(index);
        false
    })?;
    let Some(pivot) = pivot else {
        context.out.int(-1);
        return Ok(());
    };
    let (at, first) = (pivot + u64::from(after), meta.first);
    let place = if at < meta.count / 2 {
        shift(context, &meta, (0, at), |index| Some(first + index - 1))?;
        meta.first -= 1;
        first + at - 1
    } else {
        shift(context, &meta, (at, meta.count), |index| Some(first + index + 1))?;
        first + at
    };
    context.txn.put_member(member::element(meta.id, place), args.at(4).to_vec());
    meta.count += 1;
    put_list(context, args.at(1), (&meta, expires), KeyEvent::list("linsert"));
    context.out.int(meta.count as i64);
    Ok(())
}

/// `LREM`: the elements between those that go close up, towards the end that fewer of them have
/// to move to.
pub(super) fn lrem(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let count = integer(args.at(2))?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::List)? else {
        context.out.int(0);
        return Ok(());
    };
    context.check_length(meta.count)?;
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut gone = Vec::new();
    search(context, &meta, (args.at(3), meta.count, count < 0), |index| {
        gone.push(index);
        (gone.len() as u64) < most
    })?;
    gone.sort_unstable();
    let (Some(first_gone), Some(last_gone)) = (gone.first().copied(), gone.last().copied()) else {
        context.out.int(0);
        return Ok(());
    };
    let (first, removed) = (meta.first, gone.len() as u64);
    // How many of the indexes that go are below an index; none if it goes itself.
    let below = |index: &u64| gone.binary_search(index).err().map(|before| before as u64);
    let end = meta.count;
    if last_gone < end - first_gone {
        shift(context, &meta, (0, last_gone), |index| {
            Some(first + index + removed - below(&index)?)
        })?;
        meta.first += removed;
        (first..first + removed)
            .for_each(|place| context.txn.remove_member(member::element(meta.id, place)));
    } else {
        shift(context, &meta, (first_gone, end), |index| Some(first + index - below(&index)?))?;
        (first + end - removed..first + end)
            .for_each(|place| context.txn.remove_member(member::element(meta.id, place)));
    }
    meta.count -= removed;
    put_list(context, args.at(1), (&meta, expires), KeyEvent::list("lrem"));
    context.out.int(removed as i64);
    Ok(())
}
