//! Lists: elements at consecutive places, which grow both ways from a middle.

use std::ops::Bound;

use rhumb::Slice;

use super::{
    Context, Done, NO_SUCH_KEY, NOT_POSITIVE, OUT_OF_RANGE, SYNTAX, connection::positive, integer,
    is_word,
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    resp::Args,
    txn::{Scan, Space},
};

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

fn push(context: &mut Context<'_, '_>, args: Args<'_>, end: End, only_if_present: bool) -> Done {
    let found = context.edit_collection(args.at(1), Kind::List)?;
    let (mut meta, expires) = match found {
        Some(found) => found,
        None if only_if_present => {
            context.out.int(0);
            return Ok(());
        }
        None => (context.txn.new_meta()?, 0),
    };
    for element in args.iter_from(2) {
        let place = match end {
            End::Front => {
                meta.first -= 1;
                meta.first
            }
            End::Back => meta.first + meta.count,
        };
        meta.count += 1;
        context.txn.put_member(member::element(meta.id, place), element.to_vec());
    }
    context.txn.put_meta(args.at(1), Kind::List, &meta, expires);
    context.out.int(meta.count as i64);
    Ok(())
}

/// `LPUSH`.
pub(super) fn lpush(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    push(context, args, End::Front, false)
}

/// `RPUSH`.
pub(super) fn rpush(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    push(context, args, End::Back, false)
}

/// `LPUSHX`.
pub(super) fn lpushx(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    push(context, args, End::Front, true)
}

/// `RPUSHX`.
pub(super) fn rpushx(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    push(context, args, End::Back, true)
}

/// The elements of a list from an index to another, both included.
fn elements(
    context: &Context<'_, '_>,
    meta: &Meta,
    (start, end): (u64, u64),
    reverse: bool,
) -> Result<Scan, Fault> {
    let key = |index| member::element(meta.id, meta.first + index);
    let range = (Bound::Included(key(start)), Bound::Included(key(end)));
    let scan = context.txn.scan(Space::Members, range.0, range.1, reverse)?;
    Ok(scan.expecting(end - start + 1))
}

fn pop(context: &mut Context<'_, '_>, args: Args<'_>, end: End, name: &str) -> Done {
    if args.len() > 3 {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let count = args.get(2).map(|text| positive(text).map_err(|_| NOT_POSITIVE)).transpose()?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::List)? else {
        match count {
            Some(_) => context.out.null_array(),
            None => context.out.null(),
        }
        return Ok(());
    };
    let taken = (count.unwrap_or(1) as u64).min(meta.count);
    if count.is_some() {
        context.out.array(taken as usize);
    }
    if taken == 0 {
        return Ok(());
    }
    let range = match end {
        End::Front => (0, taken - 1),
        End::Back => (meta.count - taken, meta.count - 1),
    };
    for pair in elements(context, &meta, range, end == End::Back)? {
        let (key, value) = pair?;
        context.out.bulk(&value);
        context.txn.remove_member(key.to_vec());
    }
    meta.count -= taken;
    if end == End::Front {
        meta.first += taken;
    }
    context.txn.put_meta(args.at(1), Kind::List, &meta, expires);
    Ok(())
}

/// `LPOP`.
pub(super) fn lpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop(context, args, End::Front, "lpop")
}

/// `RPOP`.
pub(super) fn rpop(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop(context, args, End::Back, "rpop")
}

/// `LLEN`.
pub(super) fn llen(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::List)?;
    context.out.int(meta.map_or(0, |meta| meta.count as i64));
    Ok(())
}

/// The place of an index, which counts from the end if negative; none if there is no such place.
fn place(index: i64, count: u64) -> Option<u64> {
    let index = if index < 0 { index.checked_add_unsigned(count)? } else { index };
    u64::try_from(index).ok().filter(|index| *index < count)
}

/// The places from `start` to `end`, both included, which count from the end if negative; none if
/// there are none.
pub(super) fn places(start: i64, end: i64, count: u64) -> Option<(u64, u64)> {
    let len = i64::try_from(count).unwrap_or(i64::MAX);
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (start, end) = (from_end(start).max(0), from_end(end).min(len - 1));
    (start <= end).then_some((start as u64, end as u64))
}

/// `LINDEX`.
pub(super) fn lindex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let index = integer(args.at(2));
    let meta = context.collection(args.at(1), Kind::List)?;
    let Some(meta) = meta else {
        context.out.null();
        return Ok(());
    };
    let value = match place(index?, meta.count) {
        Some(at) => context.txn.member(&member::element(meta.id, meta.first + at))?,
        None => None,
    };
    context.out.bulk_or_null(value.as_deref());
    Ok(())
}

/// `LSET`.
pub(super) fn lset(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let found = context.edit_collection(args.at(1), Kind::List)?;
    let (meta, _) = found.ok_or(NO_SUCH_KEY)?;
    let at = place(integer(args.at(2))?, meta.count).ok_or(OUT_OF_RANGE)?;
    context.txn.put_member(member::element(meta.id, meta.first + at), args.at(3).to_vec());
    context.txn.touch(args.at(1));
    context.out.ok();
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
    let all = elements(context, &meta, (0, meta.count - 1), false)?;
    let all: Vec<Slice> = all.map(|pair| Ok(pair?.1)).collect::<rhumb::Result<_>>()?;
    let Some(pivot) = all.iter().position(|element| **element == *args.at(3)) else {
        context.out.int(-1);
        return Ok(());
    };
    let at = pivot + usize::from(after);
    // Places from the new first element on: those before `at` keep their index, the others go on.
    let moved = if at < all.len() / 2 {
        meta.first -= 1;
        0..at
    } else {
        at..all.len()
    };
    for index in moved {
        let to = (index + usize::from(index >= at)) as u64;
        context.txn.put_member(member::element(meta.id, meta.first + to), all[index].to_vec());
    }
    let key = member::element(meta.id, meta.first + at as u64);
    context.txn.put_member(key, args.at(4).to_vec());
    meta.count += 1;
    context.txn.put_meta(args.at(1), Kind::List, &meta, expires);
    context.out.int(meta.count as i64);
    Ok(())
}

/// `LREM`: closes up what follows the first element that goes.
pub(super) fn lrem(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let count = integer(args.at(2))?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::List)? else {
        context.out.int(0);
        return Ok(());
    };
    let all = elements(context, &meta, (0, meta.count - 1), false)?;
    let all: Vec<Slice> = all.map(|pair| Ok(pair?.1)).collect::<rhumb::Result<_>>()?;
    let matches = |index: &usize| *all[*index] == *args.at(3);
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let mut gone: Vec<usize> = if count < 0 {
        (0..all.len()).rev().filter(matches).take(most).collect()
    } else {
        (0..all.len()).filter(matches).take(most).collect()
    };
    gone.sort_unstable();
    let from = gone.first().copied().unwrap_or(all.len());
    let stays = |index: &usize| gone.binary_search(index).is_err();
    let kept = (from..all.len()).filter(stays).map(|index| all[index].to_vec());
    let mut to = from as u64;
    for element in kept {
        context.txn.put_member(member::element(meta.id, meta.first + to), element);
        to += 1;
    }
    for place in to..meta.count {
        context.txn.remove_member(member::element(meta.id, meta.first + place));
    }
    if !gone.is_empty() {
        meta.count = to;
        context.txn.put_meta(args.at(1), Kind::List, &meta, expires);
    }
    context.out.count(gone.len());
    Ok(())
}

/// `LRANGE`.
pub(super) fn lrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
    let meta = context.collection(args.at(1), Kind::List)?;
    let range = meta.and_then(|meta| Some((meta, places(start, end, meta.count)?)));
    let Some((meta, (start, end))) = range else {
        context.out.array(0);
        return Ok(());
    };
    context.out.array((end - start + 1) as usize);
    let mut elements = elements(context, &meta, (start, end), false)?;
    let mut write = |_: &[u8], element: &[u8]| {
        context.out.bulk(element);
        context.out.overflowed()
    };
    while let Some(overflowed) = elements.next_with(&mut write) {
        if overflowed? {
            break;
        }
    }
    Ok(())
}

/// `LTRIM`.
pub(super) fn ltrim(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
    if let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::List)? {
        // What is kept, as first place and count; where nothing is, all lies before it.
        let kept = places(start, end, meta.count);
        let (skipped, count) = kept.map_or((meta.count, 0), |(a, b)| (a, b - a + 1));
        let gone = (0..skipped).chain(skipped + count..meta.count);
        for index in gone {
            context.txn.remove_member(member::element(meta.id, meta.first + index));
        }
        (meta.first, meta.count) = (meta.first + skipped, count);
        context.txn.put_meta(args.at(1), Kind::List, &meta, expires);
    }
    context.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_from_both_ends() {
        assert_eq!(places(0, -1, 3), Some((0, 2)));
        assert_eq!(places(-2, 100, 3), Some((1, 2)));
        assert_eq!(places(-100, 0, 3), Some((0, 0)));
        assert_eq!(places(2, 1, 3), None);
        assert_eq!(places(3, 5, 3), None);
        assert_eq!(places(0, -1, 0), None);
        assert_eq!((place(-1, 3), place(-4, 3), place(3, 3)), (Some(2), None, None));
    }
}
