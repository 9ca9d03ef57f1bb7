//! Lists: elements at consecutive places, which grow both ways from a middle.

use std::ops::Bound;

use super::{
    Context, Done, NO_SUCH_KEY, NOT_POSITIVE, OUT_OF_RANGE, connection::positive, integer,
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
    txn::{Scan, Space},
};

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

impl End {
    /// What happens to a list that elements are added to at this end.
    pub(super) fn pushed(self) -> KeyEvent {
        KeyEvent::list(if self == Self::Front { "lpush" } else { "rpush" })
    }

    /// What happens to a list that elements are taken from at this end.
    pub(super) fn popped(self) -> KeyEvent {
        KeyEvent::list(if self == Self::Front { "lpop" } else { "rpop" })
    }
}

/// Adds an element at one end.
pub(super) fn push_one(context: &mut Context<'_, '_>, meta: &mut Meta, element: &[u8], end: End) {
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

/// Writes what is now to be known of a list, and tells of what happened to it and of its end if
/// it has no elements any more.
pub(super) fn put_list(
    context: &mut Context<'_, '_>,
    key: &[u8],
    (meta, expires): (&Meta, u64),
    event: KeyEvent,
) {
    context.txn.put_meta(key, Kind::List, meta, expires);
    context.txn.notify(event, key);
    if meta.count == 0 {
        context.txn.notify(KeyEvent::generic("del"), key);
    }
}

fn push(context: &mut Context<'_, '_>, args: Args<'_>, end: End, only_if_present: bool) -> Done {
    context.check_length(args.len() as u64)?;
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
        push_one(context, &mut meta, element, end);
    }
    put_list(context, args.at(1), (&meta, expires), end.pushed());
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
pub(super) fn elements(
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

/// Takes elements from one end of a list, which has as many, and replies with each.
pub(super) fn take(
    context: &mut Context<'_, '_>,
    key: &[u8],
    (mut meta, expires): (Meta, u64),
    (end, taken): (End, u64),
) -> Done {
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
    put_list(context, key, (&meta, expires), end.popped());
    Ok(())
}

fn pop(context: &mut Context<'_, '_>, args: Args<'_>, end: End, name: &str) -> Done {
    if args.len() > 3 {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let count = args.get(2).map(|text| positive(text).map_err(|_| NOT_POSITIVE)).transpose()?;
    let Some((meta, expires)) = context.edit_collection(args.at(1), Kind::List)? else {
        match count {
            Some(_) => context.out.null_array(),
            None => context.out.null(),
        }
        return Ok(());
    };
    let taken = (count.unwrap_or(1) as u64).min(meta.count);
    context.check_length(taken)?;
    if count.is_some() {
        context.out.array(taken as usize);
    }
    if taken == 0 {
        return Ok(());
    }
    take(context, args.at(1), (meta, expires), (end, taken))
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
    // Not as before a write: one that has ended is an error, which nothing may be written before.
    let meta = context.collection(args.at(1), Kind::List)?.ok_or(NO_SUCH_KEY)?;
    let at = place(integer(args.at(2))?, meta.count).ok_or(OUT_OF_RANGE)?;
    context.txn.put_member(member::element(meta.id, meta.first + at), args.at(3).to_vec());
    context.txn.touch(args.at(1));
    context.txn.notify(KeyEvent::list("lset"), args.at(1));
    context.out.ok();
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
    context.check_length(end - start + 1)?;
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
        context.check_length(meta.count - count)?;
        let gone = (0..skipped).chain(skipped + count..meta.count);
        for index in gone {
            context.txn.remove_member(member::element(meta.id, meta.first + index));
        }
        (meta.first, meta.count) = (meta.first + skipped, count);
        put_list(context, args.at(1), (&meta, expires), KeyEvent::list("ltrim"));
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
