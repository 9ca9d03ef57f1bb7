//! `SCAN` and its kin: pages in the order of keys.
//!
//! A cursor stands for the place where a page ended: see [`Cursors`]. A scan that goes from page to
//! page meets every key that is there all the time, whatever is written meanwhile.

use std::ops::Bound;

use super::{Context, Done, NOT_AN_INTEGER, SYNTAX, fields, integer, is_word};
use crate::{
    cursors,
    encode::{Kind, entry::decode_head, format::ID_BYTES, member},
    fault::Fault,
    glob,
    resp::{Args, Reply, number},
    txn::{KeyBound, Space, prefix_range},
};

/// What a page is asked to be.
struct Page<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    /// The name of a type; no key is of an unknown one.
    kind: Option<&'a [u8]>,
}

/// Reads a cursor as C's `strtoul` does: a sign may come first, and nothing is 0.
fn parse_cursor(text: &[u8]) -> Result<u64, Fault> {
    let (is_negative, digits) = match text {
        [] => return Ok(0),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let cursor = number::parse_u64(digits).ok_or("ERR invalid cursor")?;
    Ok(if is_negative { cursor.wrapping_neg() } else { cursor })
}

fn page<'a>(options: impl Iterator<Item = &'a [u8]>, takes_kind: bool) -> Result<Page<'a>, Fault> {
    let mut page = Page { pattern: None, count: 10, kind: None };
    let mut options = options;
    while let Some(option) = options.next() {
        let value = options.next().ok_or(SYNTAX)?;
        if is_word(option, "match") {
            page.pattern = Some(value);
        } else if is_word(option, "count") {
            let count = integer(value).map_err(|_| NOT_AN_INTEGER)?;
            page.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
        } else if takes_kind && is_word(option, "type") {
            page.kind = Some(value);
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(page)
}

/// What all keys of a range begin with; none if there are no keys.
fn shared_front(
    context: &Context<'_, '_>,
    space: Space,
    (from, to): &(KeyBound, KeyBound),
) -> Result<Option<Vec<u8>>, Fault> {
    let end = |reverse| -> Result<Option<_>, Fault> {
        let mut pairs = context.txn.scan(space, from.clone(), to.clone(), reverse)?;
        Ok(pairs.next().transpose()?.map(|(key, _)| key))
    };
    let (Some(first), Some(last)) = (end(false)?, end(true)?) else { return Ok(None) };
    let shared = first.iter().zip(last.iter()).take_while(|(a, b)| a == b).count();
    Ok(Some(first[..shared].to_vec()))
}

/// Where the page begins that a cursor asks for. `own` is what the keys of the range begin with
/// that other collections' keys do not: it is not a part of what is remembered.
fn begin(
    context: &Context<'_, '_>,
    space: Space,
    range: &(KeyBound, KeyBound),
    own: &[u8],
    cursor: u64,
) -> Result<KeyBound, Fault> {
    if cursor == 0 {
        return Ok(range.0.clone());
    }
    if let Some(place) = context.server.cursors.place(cursor) {
        let place = [own, &place].concat();
        // The pattern may be another one now.
        return Ok(match &range.0 {
            Bound::Included(from) if *from > place => range.0.clone(),
            _ => Bound::Excluded(place),
        });
    }
    // Forgotten, or given out before the server was started: from a place at or before the one that
    // it stands for, so that nothing is left out.
    let Some(front) = shared_front(context, space, range)? else { return Ok(range.0.clone()) };
    Ok(match cursors::about(cursor, &front) {
        Some(place) => Bound::Included(place),
        None => range.0.clone(),
    })
}

/// Writes a page of the pairs of a range from a cursor's place on: `write` replies to a pair, if it
/// belongs to the page, and says how many replies that were.
fn write_page(
    context: &mut Context<'_, '_>,
    space: Space,
    (range, own): ((KeyBound, KeyBound), &[u8]),
    (cursor, page): (u64, &Page<'_>),
    mut write: impl FnMut(&mut Context<'_, '_>, &[u8], &[u8]) -> Result<usize, Fault>,
) -> Done {
    context.check_length(page.count as u64)?;
    let from = begin(context, space, &range, own, cursor)?;
    let pairs = context.txn.scan(space, from, range.1.clone(), false)?;
    let mut pairs = pairs.expecting(page.count as u64 + 1);
    let start = context.out.len();
    let (mut replies, mut last) = (0, None);
    for pair in pairs.by_ref().take(page.count) {
        let (key, value) = pair?;
        replies += write(context, &key, &value)?;
        last = Some(key);
    }
    let more = pairs.next().transpose()?.is_some();
    let next = match last {
        Some(last) if more => {
            let front = shared_front(context, space, &range)?.unwrap_or_default();
            let place = last.get(own.len()..).unwrap_or_default();
            context.server.cursors.remember(place, cursors::about_code(&last, &front), cursor != 0)
        }
        _ => 0,
    };
    let written = context.out.split_off(start);
    context.out.array(2);
    context.out.bulk(next.to_string().as_bytes());
    context.out.array(replies);
    context.out.raw(&written);
    Ok(())
}

/// `SCAN`.
pub(super) fn scan(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let cursor = parse_cursor(args.at(1))?;
    let page = page(args.iter_from(2), true)?;
    let range = prefix_range(glob::literal_prefix(page.pattern.unwrap_or_default()));
    write_page(context, Space::Keys, (range, &[]), (cursor, &page), |context, key, value| {
        let kind = decode_head(value).map_or("none", |(kind, ..)| kind.name());
        let belongs = context.txn.is_live(key, value)
            && page.kind.is_none_or(|wanted| is_word(wanted, kind))
            && page.pattern.is_none_or(|pattern| glob::matches(pattern, key));
        if belongs {
            context.out.bulk(key);
        }
        Ok(usize::from(belongs))
    })
}

fn scan_members(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    kind: Kind,
    write: impl Fn(&[u8], &[u8], &mut Reply, &dyn Fn(&[u8]) -> bool) -> usize,
) -> Done {
    let cursor = parse_cursor(args.at(2))?;
    // As in Redis, the options of an absent key are not read.
    let Some(meta) = context.collection(args.at(1), kind)? else {
        context.out.array(2);
        context.out.bulk(b"0");
        context.out.array(0);
        return Ok(());
    };
    let page = page(args.iter_from(3), false)?;
    let prefix = match kind {
        Kind::Zset => member::zset_prefix(meta.id, false),
        _ => member::prefix(meta.id),
    };
    // A place is kept without the collection's number: it is one of this collection.
    let range = (prefix_range(&prefix), &prefix[..ID_BYTES]);
    let pattern = page.pattern;
    let matches = move |member: &[u8]| pattern.is_none_or(|p| glob::matches(p, member));
    write_page(context, Space::Members, range, (cursor, &page), |context, key, value| {
        if kind == Kind::Hash {
            let end_ms = fields::end_of(context, &meta, member::field_of(key))?;
            if end_ms != 0 && end_ms <= context.txn.now_ms {
                return Ok(0);
            }
        }
        Ok(write(key, value, context.out, &matches))
    })
}

/// `HSCAN`.
pub(super) fn hscan(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    scan_members(context, args, Kind::Hash, |key, value, out, matches| {
        let field = member::field_of(key);
        if !matches(field) {
            return 0;
        }
        out.bulk(field);
        out.bulk(value);
        2
    })
}

/// `SSCAN`.
pub(super) fn sscan(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    scan_members(context, args, Kind::Set, |key, _, out, matches| {
        let member = member::set_member_of(key);
        if !matches(member) {
            return 0;
        }
        out.bulk(member);
        1
    })
}

/// `ZSCAN`.
pub(super) fn zscan(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    scan_members(context, args, Kind::Zset, |key, value, out, matches| {
        let member = member::zset_member_of(key);
        if !matches(member) {
            return 0;
        }
        out.bulk(member);
        out.bulk(number::format_f64(super::zsets::decode_score(value)).as_bytes());
        2
    })
}
