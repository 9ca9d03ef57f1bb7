//! Strings: the commands that read and write a key's bytes as a whole or in part.

use super::{
    Context, Done, STRING_TOO_LONG, SYNTAX, WRONG_TYPE,
    expiry::{self, TimeUnit},
    integer, is_word,
};
use crate::{
    encode::{Edited, Entry, Kind},
    fault::Fault,
    key_event::{EventClass, KeyEvent},
    resp::Args,
};

const SET: KeyEvent = KeyEvent::string("set");

/// The longest string, in bytes, as in Redis.
pub(crate) const STRING_BYTES_MAX: usize = 512 << 20;

/// `GET`.
pub(super) fn get(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let entry = context.read(args.at(1), Kind::String)?;
    context.absent += usize::from(entry.is_none());
    context.out.bulk_or_null(entry.as_ref().map(Entry::bytes));
    Ok(())
}

/// What `SET` was asked for besides key and value.
#[derive(Default)]
struct SetOptions {
    only_if_absent: bool,
    only_if_present: bool,
    keep_expiry: bool,
    get: bool,
    expires_ms: Option<u64>,
}

fn set_options(context: &Context<'_, '_>, args: Args<'_>) -> Result<SetOptions, Fault> {
    let mut options = SetOptions::default();
    let mut unit: Option<(TimeUnit, &[u8])> = None;
    let mut at = 3;
    while let Some(option) = args.get(at) {
        let is = |word| is_word(option, word);
        let found = TimeUnit::of_option(option);
        // The same option again replaces the first; another one is refused.
        let may_expire =
            !options.keep_expiry && unit.is_none_or(|(before, _)| Some(before) == found);
        if is("nx") && !options.only_if_present {
            options.only_if_absent = true;
        } else if is("xx") && !options.only_if_absent {
            options.only_if_present = true;
        } else if is("get") {
            options.get = true;
        } else if is("keepttl") && unit.is_none() {
            options.keep_expiry = true;
        } else if let (Some(found), Some(time), true) = (found, args.get(at + 1), may_expire) {
            unit = Some((found, time));
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if let Some((unit, time)) = unit {
        options.expires_ms = Some(unit.time_of(time, context.txn.now_ms, "set")?);
    }
    Ok(options)
}

/// `SET`. Without options it overwrites, as its row in the table says.
pub(super) fn set(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (key, value) = (args.at(1), args.at(2));
    if args.len() == 3 {
        context.txn.overwrite(key, value)?;
        context.out.ok();
        return Ok(());
    }
    let options = set_options(context, args)?;
    let before = context.txn.edit(key)?;
    if options.get && before.as_ref().is_some_and(|before| before.kind != Kind::String) {
        return Err(WRONG_TYPE.into());
    }
    let refused = (options.only_if_absent && before.is_some())
        || (options.only_if_present && before.is_none());
    if options.get {
        context.out.bulk_or_null(before.as_ref().map(Entry::bytes));
    } else if refused {
        context.out.null();
    } else {
        context.out.ok();
    }
    if refused {
        return Ok(());
    }
    let kept = before.as_ref().map_or(0, |before| before.expires_ms);
    let expires = options.expires_ms.unwrap_or(if options.keep_expiry { kept } else { 0 });
    put_or_remove(context, key, before.as_ref(), value, expires)?;
    if options.expires_ms.is_some() {
        context.txn.notify(expiry::EXPIRE, key);
    }
    if expires != 0 && expires <= context.txn.now_ms {
        context.txn.notify(KeyEvent { class: EventClass::EXPIRED, name: "expired" }, key);
    }
    Ok(())
}

/// Writes a string, unless its time is over already.
fn put_or_remove(
    context: &mut Context<'_, '_>,
    key: &[u8],
    before: Option<&Entry>,
    value: &[u8],
    expires: u64,
) -> Done {
    context.txn.notify(SET, key);
    if expires != 0 && expires <= context.txn.now_ms {
        if let Some(before) = before {
            context.txn.delete(key, before)?;
        }
        return Ok(());
    }
    context.txn.put_string(key, before, value, expires)?;
    Ok(())
}

/// `SETNX`.
pub(super) fn setnx(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let is_absent = context.txn.edit(args.at(1))?.is_none();
    if is_absent {
        context.txn.put_string(args.at(1), None, args.at(2), 0)?;
        context.txn.notify(SET, args.at(1));
    }
    context.out.int(is_absent.into());
    Ok(())
}

fn set_expiring(context: &mut Context<'_, '_>, args: Args<'_>, unit: TimeUnit, name: &str) -> Done {
    let expires = unit.time_of(args.at(2), context.txn.now_ms, name)?;
    let before = context.txn.edit(args.at(1))?;
    context.txn.put_string(args.at(1), before.as_ref(), args.at(3), expires)?;
    context.txn.notify(SET, args.at(1));
    context.txn.notify(expiry::EXPIRE, args.at(1));
    context.out.ok();
    Ok(())
}

/// `SETEX`.
pub(super) fn setex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    set_expiring(context, args, TimeUnit::Seconds, "setex")
}

/// `PSETEX`.
pub(super) fn psetex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    set_expiring(context, args, TimeUnit::Milliseconds, "psetex")
}

/// `GETSET`.
pub(super) fn getset(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let before = context.edit(args.at(1), Kind::String)?;
    context.out.bulk_or_null(before.as_ref().map(Entry::bytes));
    context.txn.put_string(args.at(1), before.as_ref(), args.at(2), 0)?;
    context.txn.notify(SET, args.at(1));
    Ok(())
}

/// `GETDEL`.
pub(super) fn getdel(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let before = context.edit(args.at(1), Kind::String)?;
    context.out.bulk_or_null(before.as_ref().map(Entry::bytes));
    if let Some(before) = before {
        context.txn.delete(args.at(1), &before)?;
        context.txn.notify(KeyEvent::generic("del"), args.at(1));
    }
    Ok(())
}

/// `GETEX`.
pub(super) fn getex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let given = match (args.get(2), args.get(3), args.len()) {
        (None, ..) => None,
        (Some(option), None, _) if is_word(option, "persist") => Some(None),
        (Some(option), Some(time), 4) => {
            Some(Some((TimeUnit::of_option(option).ok_or(SYNTAX)?, time)))
        }
        _ => return Err(SYNTAX.into()),
    };
    let Some(entry) = context.edit(args.at(1), Kind::String)? else {
        context.out.null();
        return Ok(());
    };
    let expires = match given {
        Some(Some((unit, time))) => unit.time_of(time, context.txn.now_ms, "getex")?,
        _ => 0,
    };
    context.out.bulk(entry.bytes());
    match given {
        None => Ok(()),
        Some(None) => expiry::take(context, args.at(1), &entry),
        Some(Some(_)) => expiry::give(context, args.at(1), &entry, expires),
    }
}

/// `MGET`: keys of other types are absent.
pub(super) fn mget(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.out.array(args.len() - 1);
    for key in args.iter_from(1) {
        let entry = context.txn.read(key)?.filter(|entry| entry.kind == Kind::String);
        context.out.bulk_or_null(entry.as_ref().map(Entry::bytes));
    }
    Ok(())
}

fn check_pairs(args: Args<'_>, name: &str) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    Ok(())
}

fn put_pairs(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    for at in (1..args.len()).step_by(2) {
        context.txn.overwrite(args.at(at), args.at(at + 1))?;
    }
    Ok(())
}

/// `MSET`.
pub(super) fn mset(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    check_pairs(args, "mset")?;
    put_pairs(context, args)?;
    context.out.ok();
    Ok(())
}

/// `MSETNX`.
pub(super) fn msetnx(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    check_pairs(args, "msetnx")?;
    for at in (1..args.len()).step_by(2) {
        if context.txn.exists(args.at(at))? {
            context.out.int(0);
            return Ok(());
        }
    }
    put_pairs(context, args)?;
    context.out.int(1);
    Ok(())
}

/// `STRLEN`.
pub(super) fn strlen(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let entry = context.read(args.at(1), Kind::String)?;
    context.out.count(entry.map_or(0, |entry| entry.bytes().len()));
    Ok(())
}

/// `APPEND`.
pub(super) fn append(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let before = context.edit(args.at(1), Kind::String)?;
    let (piece, old) = (args.at(2), before.as_ref().map_or(0, |before| before.bytes().len()));
    let len = old + piece.len();
    if len > STRING_BYTES_MAX {
        return Err(STRING_TOO_LONG.into());
    }
    if before.is_some() {
        let mut string = Edited::of(before.as_ref(), len);
        string.extend(piece);
        context.txn.put_edited(args.at(1), before.as_ref(), string)?;
    } else {
        context.txn.put_string(args.at(1), None, piece, 0)?;
    }
    context.txn.notify(KeyEvent::string("append"), args.at(1));
    context.out.count(len);
    Ok(())
}

/// `GETRANGE` and `SUBSTR`.
pub(super) fn getrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
    let entry = context.read(args.at(1), Kind::String)?;
    let bytes = entry.as_ref().map_or(&[][..], Entry::bytes);
    context.out.bulk(part(bytes, start, end));
    Ok(())
}

/// The bytes from `start` to `end`, both included; from the end if negative.
fn part(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    let len = bytes.len() as i64;
    if len == 0 || (start < 0 && end < 0 && start > end) {
        return &[];
    }
    let from_end = |at: i64| if at < 0 { (len.saturating_add(at)).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end {
        return &[];
    }
    &bytes[start as usize..=end as usize]
}

/// `SETRANGE`.
pub(super) fn setrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let offset = integer(args.at(2))?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err("ERR offset is out of range".into());
    };
    let piece = args.at(3);
    let before = context.edit(args.at(1), Kind::String)?;
    if piece.is_empty() {
        context.out.count(before.map_or(0, |before| before.bytes().len()));
        return Ok(());
    }
    let end = offset.saturating_add(piece.len());
    if end > STRING_BYTES_MAX {
        return Err(STRING_TOO_LONG.into());
    }
    context.check_bytes(offset)?;
    let mut string = Edited::of(before.as_ref(), end);
    string.lengthen(end);
    string.bytes_mut()[offset..end].copy_from_slice(piece);
    let len = string.bytes().len();
    context.txn.put_edited(args.at(1), before.as_ref(), string)?;
    context.txn.notify(KeyEvent::string("setrange"), args.at(1));
    context.out.count(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_as_in_redis() {
        let bytes = b"This is a string";
        assert_eq!(part(bytes, 0, 3), b"This");
        assert_eq!(part(bytes, -3, -1), b"ing");
        assert_eq!(part(bytes, 0, -1), bytes);
        assert_eq!(part(bytes, 10, 100), b"string");
        assert_eq!(part(bytes, -1, -3), b"");
        assert_eq!(part(bytes, 3, 1), b"");
        assert_eq!(part(bytes, i64::MIN, i64::MAX), bytes);
        assert_eq!(part(b"", 0, -1), b"");
    }
}
