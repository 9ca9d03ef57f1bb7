//! `SORT`: the elements of a list, a set or a sorted set, in the order of numbers or bytes, which
//! may be those of other keys, and with values of other keys in their place.

use std::cmp::Ordering;

use super::{
    Context, Done, SYNTAX, WRONG_TYPE, fields, integer, is_word,
    lists::{self, push_one, put_list},
    permission,
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::{Args, number},
    txn::{Space, prefix_range},
};

/// The errors for users that may not read every key.
const BY_DENIED: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
const GET_DENIED: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";

/// The longest key, in bytes: no entry has a longer one.
const KEY_BYTES_MAX: usize = 64 << 10;

/// What `SORT` is asked for.
#[derive(Default)]
struct Options<'a> {
    by: Option<&'a [u8]>,
    /// True if some pattern to sort by has no `*`: nothing is sorted then.
    unsorted: bool,
    get: Vec<&'a [u8]>,
    offset: i64,
    /// How many, all if negative.
    count: Option<i64>,
    descending: bool,
    alpha: bool,
    store: Option<&'a [u8]>,
}

/// The options of a call. Values of other keys are fetched only if `may_fetch`.
fn options<'a>(args: Args<'a>, (may_store, may_fetch): (bool, bool)) -> Result<Options<'a>, Fault> {
    let mut options = Options::default();
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let is = |word| is_word(option, word);
        match (args.get(at + 1), args.get(at + 2)) {
            _ if is("asc") => options.descending = false,
            _ if is("desc") => options.descending = true,
            _ if is("alpha") => options.alpha = true,
            (Some(offset), Some(count)) if is("limit") => {
                (options.offset, options.count) = (integer(offset)?, Some(integer(count)?));
                at += 2;
            }
            (Some(key), _) if may_store && is("store") => {
                options.store = Some(key);
                at += 1;
            }
            (Some(pattern), _) if is("by") => {
                if !may_fetch && pattern.contains(&b'*') {
                    return Err(BY_DENIED.into());
                }
                options.by = Some(pattern);
                options.unsorted |= !pattern.contains(&b'*');
                at += 1;
            }
            (Some(pattern), _) if is("get") => {
                if !may_fetch {
                    return Err(GET_DENIED.into());
                }
                options.get.push(pattern);
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok(options)
}

/// The indexes that `LIMIT` leaves of `len` elements.
fn limits(options: &Options<'_>, len: u64) -> std::ops::Range<u64> {
    let start = u64::try_from(options.offset).unwrap_or(0).min(len);
    let count = options.count.and_then(|count| u64::try_from(count).ok()).unwrap_or(len);
    start..start.saturating_add(count).min(len)
}

/// An element, and what it is compared by.
struct Item {
    element: Box<[u8]>,
    score: f64,
    /// Absent if the key that is to be compared by is.
    text: Option<Box<[u8]>>,
}

/// The elements at these indexes, which count from the end if `reverse`.
fn load(
    context: &Context<'_, '_>,
    (kind, meta): (Kind, &Meta),
    indexes: std::ops::Range<u64>,
    reverse: bool,
) -> Result<Vec<Item>, Fault> {
    let mut items = Vec::new();
    if indexes.is_empty() {
        return Ok(items);
    }
    let mut walk = if kind == Kind::List {
        lists::elements(context, meta, (0, meta.count - 1), reverse)?
    } else {
        let is_scored = kind == Kind::Zset;
        let prefix = member::prefix(meta.id);
        let prefix = if is_scored { member::zset_prefix(meta.id, true) } else { prefix };
        let (from, to) = prefix_range(&prefix);
        context.txn.scan(Space::Members, from, to, reverse)?.expecting(meta.count)
    };
    let (mut bytes, most) = (0, context.server.config.limits.reply_bytes);
    for index in 0..indexes.end {
        let item = walk.next_with(|key, value| {
            let element: &[u8] = match kind {
                _ if index < indexes.start => &[],
                Kind::List => value,
                Kind::Zset => member::zset_scored_of(key).map_or(&[], |(_, name)| name),
                _ => member::set_member_of(key),
            };
            Item { element: element.into(), score: 0.0, text: None }
        });
        let Some(item) = item.transpose()? else { break };
        if index < indexes.start {
            continue;
        }
        bytes += item.element.len() + size_of::<Item>();
        if bytes > most {
            return Err("ERR the elements have too many bytes to be sorted".into());
        }
        items.push(item);
    }
    Ok(items)
}

/// The value that a pattern names for an element: of a key whose name has the element in the place
/// of the first `*`, or of a field of that key, which stands after `->`.
fn fetch(
    context: &mut Context<'_, '_>,
    pattern: &[u8],
    element: &[u8],
) -> Result<Option<Box<[u8]>>, Fault> {
    if pattern == b"#" {
        return Ok(Some(element.into()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let rest = &pattern[star + 1..];
    let arrow = rest.windows(2).position(|pair| pair == b"->");
    // Nothing after the arrow is no field.
    let arrow = arrow.filter(|at| at + 2 < rest.len());
    let (tail, field) = match arrow {
        Some(at) => (&rest[..at], Some(&rest[at + 2..])),
        None => (rest, None),
    };
    let key = [&pattern[..star], element, tail].concat();
    if key.len() > KEY_BYTES_MAX {
        return Ok(None);
    }
    let Some(entry) = context.txn.read(&key)? else { return Ok(None) };
    Ok(match (entry.kind, field) {
        (Kind::String, None) => Some(entry.bytes().into()),
        (Kind::Hash, Some(field)) => {
            let meta = context.txn.meta(&entry)?;
            fields::value(context, &meta, field)?.map(|value| (&*value).into())
        }
        _ => None,
    })
}

/// A number as C's `strtod` reads it: spaces may come first, and nothing is 0.
fn score_of(text: &[u8]) -> Result<f64, Fault> {
    if text.is_empty() {
        return Ok(0.0);
    }
    let number = number::parse_f64(text.trim_ascii_start());
    number.ok_or_else(|| "ERR One or more scores can't be converted into double".into())
}

/// Gives each element what it is compared by, and sorts them.
fn sort_items(context: &mut Context<'_, '_>, items: &mut [Item], options: &Options<'_>) -> Done {
    for item in items.iter_mut() {
        let text = match options.by {
            None if options.alpha => None,
            None => Some(item.element.clone()),
            Some(pattern) => fetch(context, pattern, &item.element)?,
        };
        match text {
            Some(text) if !options.alpha => item.score = score_of(&text)?,
            text => item.text = text,
        }
    }
    let compare = |a: &Item, b: &Item| -> Ordering {
        if !options.alpha {
            let scores = a.score.partial_cmp(&b.score).unwrap_or(Ordering::Equal);
            return scores.then_with(|| a.element.cmp(&b.element));
        }
        if options.by.is_some() { a.text.cmp(&b.text) } else { a.element.cmp(&b.element) }
    };
    items.sort_by(|a, b| if options.descending { compare(b, a) } else { compare(a, b) });
    Ok(())
}

/// The elements that are asked for, in their order.
fn sorted(
    context: &mut Context<'_, '_>,
    key: &[u8],
    options: &mut Options<'_>,
) -> Result<Vec<Item>, Fault> {
    let Some(entry) = context.txn.read(key)? else { return Ok(Vec::new()) };
    if !matches!(entry.kind, Kind::List | Kind::Set | Kind::Zset) {
        return Err(WRONG_TYPE.into());
    }
    let meta = context.txn.meta(&entry)?;
    let is_known = options.store.is_some() || context.client.script_began.is_some();
    if options.unsorted && entry.kind == Kind::Set && is_known {
        // As in Redis: the order of a list that is made of a set is to be known, and what a script
        // gets.
        (options.unsorted, options.by, options.alpha) = (false, None, true);
    }
    let range = limits(options, meta.count);
    let fetched = options.get.len() as u64 * (range.end - range.start);
    context.check_length(meta.count.saturating_mul(2).saturating_add(fetched))?;
    if options.unsorted {
        let reverse = options.descending && entry.kind != Kind::Set;
        return load(context, (entry.kind, &meta), range, reverse);
    }
    let mut items = load(context, (entry.kind, &meta), 0..meta.count, false)?;
    sort_items(context, &mut items, options)?;
    items.truncate(range.end as usize);
    items.drain(..(range.start as usize).min(items.len()));
    Ok(items)
}

/// Returns true if the client's user may read every key: any may be named by a pattern.
fn may_fetch(context: &Context<'_, '_>, args: Args<'_>) -> bool {
    let Some(user) = context.client.limited_user() else { return true };
    let found = super::find(args.at(0));
    found.is_some_and(|(slot, command)| permission::reads_every_key(&user, (command, slot, args)))
}

fn run(context: &mut Context<'_, '_>, args: Args<'_>, may_store: bool) -> Done {
    let mut options = options(args, (may_store, may_fetch(context, args)))?;
    let items = sorted(context, args.at(1), &mut options)?;
    let per_item = options.get.len().max(1);
    if options.get.is_empty() {
        options.get.push(b"#");
    }
    let Some(to) = options.store else {
        context.out.array(items.len() * per_item);
        for item in &items {
            for pattern in &options.get {
                let value = fetch(context, pattern, &item.element)?;
                context.out.bulk_or_null(value.as_deref());
            }
            if context.out.overflowed() {
                break;
            }
        }
        return Ok(());
    };
    let mut values = Vec::with_capacity(items.len() * per_item);
    for item in &items {
        for pattern in &options.get {
            values.push(fetch(context, pattern, &item.element)?.unwrap_or_default());
        }
    }
    store(context, to, &values)
}

/// Makes a key a list of these elements.
fn store(context: &mut Context<'_, '_>, to: &[u8], values: &[Box<[u8]>]) -> Done {
    let before = context.txn.edit(to)?;
    if let Some(before) = &before {
        context.txn.delete(to, before)?;
    }
    context.out.count(values.len());
    if values.is_empty() {
        if before.is_some() {
            context.txn.notify(KeyEvent::generic("del"), to);
        }
        return Ok(());
    }
    let mut meta = context.txn.new_meta()?;
    for value in values {
        push_one(context, &mut meta, value, lists::End::Back);
    }
    put_list(context, to, (&meta, 0), KeyEvent::list("sortstore"));
    Ok(())
}

/// `SORT`.
pub(super) fn sort(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, true)
}

/// `SORT_RO`.
pub(super) fn sort_ro(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_stay_within_the_elements() {
        let of = |offset, count| {
            limits(&Options { offset, count: Some(count), ..Options::default() }, 5)
        };
        assert_eq!((of(0, -1), of(1, 2), of(3, 100)), (0..5, 1..3, 3..5));
        assert_eq!((of(-3, 2), of(7, 1), of(2, 0)), (0..2, 5..5, 2..2));
        assert_eq!(of(i64::MAX, i64::MAX), 5..5);
    }
}
