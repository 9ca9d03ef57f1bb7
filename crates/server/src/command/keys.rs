//! Commands on keys of any type.

use std::ops::Bound;

use super::{Context, Done, NO_SUCH_KEY, SYNTAX, integer, is_word, sample};
use crate::{
    clear, counting,
    db::Db,
    encode::{Entry, Kind, Meta, format::DATABASES, member},
    fault::Fault,
    glob,
    key_event::KeyEvent,
    resp::Args,
    txn::{Space, prefix_range},
};

/// `DEL` and `UNLINK`.
pub(super) fn del(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut removed = 0;
    for key in args.iter_from(1) {
        if let Some(entry) = context.txn.edit(key)? {
            context.txn.delete(key, &entry)?;
            context.txn.notify(KeyEvent::generic("del"), key);
            removed += 1;
        }
    }
    context.out.int(removed);
    Ok(())
}

/// `EXISTS` and `TOUCH`: a key that is named twice counts twice.
pub(super) fn exists(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut found = 0;
    for key in args.iter_from(1) {
        found += i64::from(context.txn.exists(key)?);
    }
    context.out.int(found);
    Ok(())
}

/// `TYPE`.
pub(super) fn kind(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let entry = context.txn.read(args.at(1))?;
    context.out.simple(entry.map_or("none", |entry| entry.kind.name()));
    Ok(())
}

/// Moves what is at one key to another; says whether it did.
fn move_key(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    only_if_absent: bool,
) -> Result<bool, Fault> {
    let (from, to) = (args.at(1), args.at(2));
    // Not as before a write: one that has ended is an error, which nothing may be written before.
    let entry = context.txn.read(from)?.ok_or(NO_SUCH_KEY)?;
    if from == to {
        return Ok(!only_if_absent);
    }
    if let Some(before) = context.txn.edit(to)? {
        if only_if_absent {
            return Ok(false);
        }
        context.txn.delete(to, &before)?;
    }
    context.txn.put_moved(to, &entry)?;
    context.txn.remove_moved(from);
    context.txn.notify(KeyEvent::generic("rename_from"), from);
    context.txn.notify(KeyEvent::generic("rename_to"), to);
    Ok(true)
}

/// `RENAME`.
pub(super) fn rename(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    move_key(context, args, false)?;
    context.out.ok();
    Ok(())
}

/// `RENAMENX`.
pub(super) fn renamenx(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let moved = move_key(context, args, true)?;
    context.out.int(moved.into());
    Ok(())
}

/// The number of a database that an argument names.
pub(super) fn database_index(text: &[u8]) -> Result<usize, Fault> {
    let index = integer(text)?;
    let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
    index.ok_or_else(|| "ERR DB index is out of range".into())
}

/// `COPY`.
pub(super) fn copy(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (from, to) = (args.at(1), args.at(2));
    let (mut database, mut replace, mut at) = (context.client.database, false, 3);
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            _ if is_word(option, "replace") => replace = true,
            Some(index) if is_word(option, "db") => {
                database = database_index(index)?;
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let (here, there) = (context.txn.number, context.server.databases.number(database));
    if here == there && from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(entry) = context.txn.edit(from)? else {
        context.out.int(0);
        return Ok(());
    };
    context.txn.number = there;
    let copied = copy_to(context, &entry, (here, there), to, replace);
    if matches!(copied, Ok(true)) {
        context.txn.notify(KeyEvent::generic("copy_to"), to);
    }
    context.txn.number = here;
    context.out.int(copied?.into());
    Ok(())
}

/// `MOVE`: members are copied, since each database has keyspaces of its own.
pub(super) fn move_to(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (key, database) = (args.at(1), database_index(args.at(2))?);
    let (here, there) = (context.txn.number, context.server.databases.number(database));
    if here == there {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(entry) = context.txn.edit(key)? else {
        context.out.int(0);
        return Ok(());
    };
    context.txn.number = there;
    let moved = copy_to(context, &entry, (here, there), key, false);
    context.txn.number = here;
    let moved = moved?;
    if moved {
        context.txn.delete(key, &entry)?;
        context.txn.notify(KeyEvent::generic("move_from"), key);
        context.txn.number = there;
        context.txn.notify(KeyEvent::generic("move_to"), key);
        context.txn.number = here;
    }
    context.out.int(moved.into());
    Ok(())
}

/// Copies an entry and its members to a key of the present database.
fn copy_to(
    context: &mut Context<'_, '_>,
    entry: &Entry,
    (here, there): (u8, u8),
    to: &[u8],
    replace: bool,
) -> Result<bool, Fault> {
    let txn = &mut context.txn;
    if let Some(before) = txn.edit(to)? {
        if !replace {
            return Ok(false);
        }
        txn.delete(to, &before)?;
    }
    if entry.kind == Kind::String {
        txn.put_moved(to, entry)?;
        return Ok(true);
    }
    let old = txn.meta(entry)?;
    let mut new = Meta { count: old.count, first: old.first, ..txn.new_meta()? };
    txn.number = here;
    let members = txn.members(&member::prefix(old.id))?;
    txn.number = there;
    for pair in members {
        let (key, value) = pair?;
        if txn.is_removed(here, &key) {
            continue;
        }
        let mut copy = member::prefix(new.id);
        copy.extend_from_slice(member::field_of(&key));
        txn.put_member(copy, value.to_vec());
    }
    let mut value = entry.with_number(new.id).ok_or("ERR an entry cannot be copied")?;
    if old.times != 0 {
        new.times = txn.new_meta()?.id;
        txn.number = here;
        let times = txn.members(&member::prefix(old.times))?;
        txn.number = there;
        for pair in times {
            let (key, value) = pair?;
            let copy = [&member::prefix(new.times), member::field_of(&key)].concat();
            txn.put_member(copy, value.to_vec());
        }
        let bytes = crate::encode::entry::encode_meta(entry.kind, &new, entry.expires_ms);
        value = Entry::decode(bytes.into()).ok_or("ERR an entry cannot be copied")?;
    }
    txn.put_moved(to, &value)?;
    Ok(true)
}

/// `KEYS`: ascending.
pub(super) fn keys(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let pattern = args.at(1);
    let (from, to) = prefix_range(glob::literal_prefix(pattern));
    let start = context.out.len();
    let mut found = 0;
    for pair in context.txn.scan(Space::Keys, from, to, false)? {
        let (key, value) = pair?;
        if context.txn.is_live(&key, &value) && glob::matches(pattern, &key) {
            context.out.bulk(&key);
            found += 1;
            if context.out.overflowed() {
                break;
            }
        }
    }
    context.out.array_before(start, found);
    Ok(())
}

/// `RANDOMKEY`.
pub(super) fn randomkey(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let mut random = context.server.random();
    let key = sample::key(context, &mut random)?;
    context.out.bulk_or_null(key.as_deref());
    Ok(())
}

/// `DBSIZE`.
pub(super) fn dbsize(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    if !context.in_exec {
        let db = context.txn.db()?;
        let databases = &context.server.databases;
        // While nobody takes ended keys away they are counted, as in Redis.
        let rests = databases.met.sweeper_rests();
        let count = if rests { counting::kept_keys } else { counting::live_keys };
        context.out.int(count(databases, db)?);
        return Ok(());
    }
    // Under all locks, and with what the transaction has written so far.
    let mut keys = 0;
    for pair in context.txn.scan(Space::Keys, Bound::Unbounded, Bound::Unbounded, false)? {
        let (key, entry) = pair?;
        keys += i64::from(context.txn.is_live(&key, &entry));
    }
    context.out.int(keys);
    Ok(())
}

fn check_flush_option(args: Args<'_>) -> Done {
    match args.get(1) {
        None => Ok(()),
        Some(option)
            if args.len() == 2 && (is_word(option, "async") || is_word(option, "sync")) =>
        {
            Ok(())
        }
        Some(_) => Err(SYNTAX.into()),
    }
}

/// Returns true if the key is there. One that has ended is not, whether its bytes are reclaimed or
/// not: taking it away changes nothing for clients that watch it.
fn is_among(db: &Db, key: &[u8], now_ms: u64) -> bool {
    // After an error nobody knows: the key counts as changed.
    let entry = db.keys.get(key);
    entry.map_or(true, |entry| entry.is_some_and(|entry| db.is_live(key, &entry, now_ms)))
}

fn flush(context: &mut Context<'_, '_>, numbers: &[u8]) -> Done {
    // What an EXEC has written so far comes first; a clearing cannot be taken back.
    context.commit_so_far()?;
    let now_ms = context.txn.now_ms;
    for number in numbers {
        let db = context.server.databases.numbered(*number)?;
        let watches = &context.server.databases.watches;
        let database = context.server.databases.database_of(*number);
        if watches.any() {
            watches.touch_all(database, |key| is_among(db, key, now_ms));
        }
        clear::clear(&context.server.databases, *number)?;
        // Those that wait for groups are told that there are none.
        context.server.databases.waiters.touch_all(database);
    }
    let listeners = &context.server.databases.listeners;
    listeners.tracking.tell_all(&listeners.limits);
    context.out.ok();
    Ok(())
}

/// `FLUSHDB`.
pub(super) fn flushdb(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    check_flush_option(args)?;
    let number = context.txn.number;
    flush(context, &[number])
}

/// `FLUSHALL`.
pub(super) fn flushall(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    check_flush_option(args)?;
    let numbers: Vec<u8> = context.server.databases.opened().map(|(number, _)| number).collect();
    flush(context, &numbers)
}

/// `SWAPDB`.
pub(super) fn swapdb(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let first = integer(args.at(1)).map_err(|_| "ERR invalid first DB index")?;
    let second = integer(args.at(2)).map_err(|_| "ERR invalid second DB index")?;
    let index = |index| usize::try_from(index).ok().filter(|index| *index < DATABASES);
    let (Some(first), Some(second)) = (index(first), index(second)) else {
        return Err("ERR DB index is out of range".into());
    };
    context.commit_so_far()?;
    let databases = &context.server.databases;
    let dbs = [first, second].map(|database| databases.numbered(databases.number(database)));
    let [one, other] = dbs;
    let (one, other) = (one?, other?);
    // Until both have changed places, other processes ask.
    let paused = [first, second].map(|database| crate::share::pause(context.server, database));
    databases.swap(first, second)?;
    drop(paused);
    if first != second && databases.watches.any() {
        for database in [first, second] {
            let now_ms = context.txn.now_ms;
            let is_touched =
                |key: &[u8]| is_among(one, key, now_ms) || is_among(other, key, now_ms);
            databases.watches.touch_all(database, is_touched);
        }
    }
    for database in [first, second] {
        databases.waiters.touch_all(database);
    }
    context.txn.number = databases.number(context.client.database);
    context.out.ok();
    Ok(())
}
