//! `SCAN` and its kin: pages in the order of keys.
//!
//! A cursor is a number that the server has given out for the place where the last page ended. A
//! scan that goes from page to page meets every key that is there all the time, once, whatever is
//! written meanwhile. The server remembers the last places only; see [`Cursors`].

use std::{
    collections::{HashMap, VecDeque},
    ops::Bound,
};

use parking_lot::Mutex;

use super::{Context, Done, Fault, NOT_AN_INTEGER, SYNTAX, integer, is_word, keys::is_live};
use crate::{
    encode::{Kind, entry::decode_head, format::ID_BYTES, member},
    glob,
    resp::{Args, Reply, number},
    txn::{KeyBound, Space, prefix_range},
};

/// How many places are remembered: a scan fails if so many pages were asked for since its last.
const PLACES_MAX: usize = 1 << 16;

/// Bytes of the remembered places.
const PLACE_BYTES_MAX: usize = 16 << 20;

/// The places of scans that may go on.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    last: u64,
    bytes: usize,
    by_cursor: HashMap<u64, Vec<u8>>,
    oldest_first: VecDeque<u64>,
}

impl Cursors {
    /// A cursor for a scan that goes on after `place`.
    fn remember(&self, place: &[u8]) -> u64 {
        let mut places = self.0.lock();
        places.last += 1;
        let cursor = places.last;
        places.bytes += place.len();
        places.by_cursor.insert(cursor, place.to_vec());
        places.oldest_first.push_back(cursor);
        while places.oldest_first.len() > PLACES_MAX || places.bytes > PLACE_BYTES_MAX {
            let Some(oldest) = places.oldest_first.pop_front() else { break };
            let forgotten = places.by_cursor.remove(&oldest);
            places.bytes -= forgotten.map_or(0, |place| place.len());
        }
        cursor
    }

    /// The place that a cursor stands for.
    fn place(&self, cursor: u64) -> Option<Vec<u8>> {
        self.0.lock().by_cursor.get(&cursor).cloned()
    }
}

/// What a page is asked to be.
struct Page<'a> {
    /// The place of the last page's end.
    after: Option<Vec<u8>>,
    pattern: Option<&'a [u8]>,
    count: usize,
    /// The name of a type; no key is of an unknown one.
    kind: Option<&'a [u8]>,
}

fn page<'a>(
    context: &Context<'_, '_>,
    cursor: &[u8],
    options: impl Iterator<Item = &'a [u8]>,
    takes_kind: bool,
) -> Result<Page<'a>, Fault> {
    let cursor = number::parse_u64(cursor).ok_or("ERR invalid cursor")?;
    let after = match cursor {
        0 => None,
        cursor => Some(context.server.cursors.place(cursor).ok_or("ERR invalid cursor")?),
    };
    let mut page = Page { after, pattern: None, count: 10, kind: None };
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

/// Writes a page of the pairs from `from` to `to`: `write` replies to a pair, if it belongs to the
/// page, and says how many replies that were.
fn write_page(
    context: &mut Context<'_, '_>,
    space: Space,
    (from, to): (KeyBound, KeyBound),
    page: &Page<'_>,
    mut write: impl FnMut(&[u8], &[u8], &mut Reply) -> usize,
) -> Done {
    let from = page.after.clone().map_or(from, Bound::Excluded);
    let pairs = context.txn.scan(space, from, to, false)?;
    let mut pairs = pairs.expecting(page.count as u64 + 1);
    let start = context.out.len();
    let (mut replies, mut last) = (0, None);
    for pair in pairs.by_ref().take(page.count) {
        let (key, value) = pair?;
        replies += write(&key, &value, context.out);
        last = Some(key);
    }
    let more = pairs.next().transpose()?.is_some();
    let cursor = match last {
        Some(last) if more => context.server.cursors.remember(&last),
        _ => 0,
    };
    let written = context.out.split_off(start);
    context.out.array(2);
    context.out.bulk(cursor.to_string().as_bytes());
    context.out.array(replies);
    context.out.raw(&written);
    Ok(())
}

/// `SCAN`.
pub(super) fn scan(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let page = page(context, args.at(1), args.iter_from(2), true)?;
    let range = prefix_range(glob::literal_prefix(page.pattern.unwrap_or_default()));
    let now_ms = context.txn.now_ms;
    write_page(context, Space::Keys, range, &page, |key, value, out| {
        let kind = decode_head(value).map_or("none", |(kind, ..)| kind.name());
        let belongs = is_live(value, now_ms)
            && page.kind.is_none_or(|wanted| is_word(wanted, kind))
            && page.pattern.is_none_or(|pattern| glob::matches(pattern, key));
        if belongs {
            out.bulk(key);
        }
        usize::from(belongs)
    })
}

fn scan_members(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    kind: Kind,
    write: impl Fn(&[u8], &[u8], &mut Reply, &dyn Fn(&[u8]) -> bool) -> usize,
) -> Done {
    let page = page(context, args.at(2), args.iter_from(3), false)?;
    let Some(meta) = context.collection(args.at(1), kind)? else {
        context.out.array(2);
        context.out.bulk(b"0");
        context.out.array(0);
        return Ok(());
    };
    let prefix = match kind {
        Kind::Zset => member::zset_prefix(meta.id, false),
        _ => member::prefix(meta.id),
    };
    // A place is kept without the collection's number: it is one of this collection.
    let mut page = page;
    if let Some(after) = &mut page.after {
        after.splice(..ID_BYTES.min(after.len()), meta.id.to_be_bytes());
    }
    let pattern = page.pattern;
    let matches = move |member: &[u8]| pattern.is_none_or(|p| glob::matches(p, member));
    write_page(context, Space::Members, prefix_range(&prefix), &page, |key, value, out| {
        write(key, value, out, &matches)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_places_are_forgotten() {
        let cursors = Cursors::default();
        let first = cursors.remember(b"a");
        assert_eq!(cursors.place(first).as_deref(), Some(&b"a"[..]));
        for _ in 0..PLACES_MAX {
            cursors.remember(b"b");
        }
        assert_eq!(cursors.place(first), None);
        let large = vec![0; 1 << 20];
        (0..64).for_each(|_| {
            cursors.remember(&large);
        });
        assert!(cursors.0.lock().bytes <= PLACE_BYTES_MAX);
    }
}
