//! `XGROUP`: makes, moves and removes groups and their consumers.

use super::{Found, Group, create, find, ids, is_word};
use crate::{
    command::{Context, Done, check_member, help, integer},
    encode::{GroupRecord, StreamId, stream_member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
    txn::prefix_range,
};

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE \
                      you may want to use the MKSTREAM option to create an empty stream \
                      automatically.";

/// The error for words that no part has in these places.
pub(super) fn wrong_part(args: Args<'_>) -> Fault {
    let text = |at: usize| String::from_utf8_lossy(args.at(at)).into_owned();
    let (name, part) = (text(0).to_uppercase(), text(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{part}'. Try {name} HELP.")
        .into()
}

/// The options of `CREATE` and `SETID`.
#[derive(Default)]
struct Options {
    makes_stream: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>, is_create: bool) -> Result<Self, Fault> {
        let (mut options, mut at) = (Self::default(), 5);
        while let Some(option) = args.get(at) {
            match args.get(at + 1) {
                _ if is_create && is_word(option, "mkstream") => options.makes_stream = true,
                Some(number) if is_word(option, "entriesread") => {
                    let number = integer(number)?;
                    if number < -1 {
                        return Err("ERR value for ENTRIESREAD must be positive or -1".into());
                    }
                    options.entries_read = u64::try_from(number).ok();
                    at += 1;
                }
                _ => return Err(wrong_part(args)),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// `XGROUP` and its parts.
pub(in crate::command) fn xgroup(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    if is_word(part, "help") {
        help::write("XGROUP", help::XGROUP, context.out);
        return Ok(());
    }
    let (is_create, is_setid) = (is_word(part, "create"), is_word(part, "setid"));
    let options = match is_create || is_setid {
        true => Options::parse(args, is_create)?,
        false => Options::default(),
    };
    let found = find(context, args.at(2))?;
    if found.is_none() && !options.makes_stream {
        return Err(NO_KEY.into());
    }
    if is_create {
        return create_group(context, args, found, options.entries_read);
    }
    let Some(found) = found else { return Err(NO_KEY.into()) };
    let group = Group::find(&context.txn, found.0.id, args.at(3))?;
    if is_word(part, "destroy") {
        return destroy(context, args, found, group);
    }
    let group = group.ok_or_else(|| no_such_group(args))?;
    if is_setid {
        set_id(context, args, found, group, options.entries_read)
    } else if is_word(part, "createconsumer") {
        create_consumer(context, args, group)
    } else {
        delete_consumer(context, args, group)
    }
}

/// The error for a group that is not there.
pub(super) fn no_such_group(args: Args<'_>) -> Fault {
    let text = String::from_utf8_lossy;
    let (key, group) = (text(args.at(2)), text(args.at(3)));
    format!("NOGROUP No such consumer group '{group}' for key name '{key}'").into()
}

/// The identifier of an argument, or the stream's last one for `$`.
fn last_delivered(text: &[u8], found: Option<Found>, is_strict: bool) -> Result<StreamId, Fault> {
    match text {
        b"$" => Ok(found.map_or(StreamId::MIN, |(meta, _)| meta.last)),
        _ if is_strict => ids::strict(text, 0),
        _ => ids::any(text, 0),
    }
}

fn create_group(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    found: Option<Found>,
    entries_read: Option<u64>,
) -> Done {
    let (key, name) = (args.at(2), args.at(3));
    let last = last_delivered(args.at(4), found, true)?;
    check_member(name)?;
    if let Some((meta, _)) = found
        && Group::find(&context.txn, meta.id, name)?.is_some()
    {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    let (mut meta, expires_ms) = match found {
        Some(found) => found,
        None => {
            context.txn.touch(key);
            create(context, key)?
        }
    };
    let record = GroupRecord {
        number: meta.next_group,
        last,
        entries_read,
        pending: 0,
        first_page: StreamId::MIN,
        last_pending: StreamId::MIN,
        consumers: 0,
        next_consumer: 0,
    };
    meta.groups += 1;
    meta.next_group += 1;
    Group::new(meta.id, name, record).save(&mut context.txn)?;
    context.txn.put_stream(key, &meta, expires_ms);
    context.txn.notify(KeyEvent::stream("xgroup-create"), key);
    context.out.ok();
    Ok(())
}

fn set_id(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    found: Found,
    mut group: Group,
    entries_read: Option<u64>,
) -> Done {
    group.record.last = last_delivered(args.at(4), Some(found), false)?;
    group.record.entries_read = entries_read;
    group.save(&mut context.txn)?;
    context.txn.notify(KeyEvent::stream("xgroup-setid"), args.at(2));
    context.out.ok();
    Ok(())
}

fn destroy(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    (mut meta, expires_ms): Found,
    group: Option<Group>,
) -> Done {
    let Some(group) = group else {
        context.out.int(0);
        return Ok(());
    };
    let (from, to) = prefix_range(&stream_member::of_group(meta.id, group.record.number));
    context.txn.remove_members(from, to);
    context.txn.remove_member(stream_member::group(meta.id, args.at(3)));
    meta.groups = meta.groups.saturating_sub(1);
    context.txn.put_stream(args.at(2), &meta, expires_ms);
    // Clients that wait for the group are told.
    context.txn.touch(args.at(2));
    context.txn.notify(KeyEvent::stream("xgroup-destroy"), args.at(2));
    context.out.int(1);
    Ok(())
}

fn create_consumer(context: &mut Context<'_, '_>, args: Args<'_>, mut group: Group) -> Done {
    let name = args.at(4);
    check_member(name)?;
    let is_new = group.consumer(&context.txn, name)?.is_none();
    if is_new {
        group.make_consumer(&mut context.txn, name, args.at(2))?;
        group.save(&mut context.txn)?;
    }
    context.out.int(is_new.into());
    Ok(())
}

fn delete_consumer(context: &mut Context<'_, '_>, args: Args<'_>, mut group: Group) -> Done {
    let Some(number) = group.consumer(&context.txn, args.at(4))? else {
        context.out.int(0);
        return Ok(());
    };
    let pending = group.numbered(&context.txn, number)?.record.pending;
    context.check_length(pending)?;
    let mut found = Vec::new();
    group.visit_owned(&context.txn, number, (StreamId::MIN, StreamId::MAX), |id, record| {
        found.push((id, record));
        Ok(true)
    })?;
    for (id, record) in found {
        group.remove_pending(&context.txn, id, &record)?;
    }
    group.remove_consumer(&mut context.txn, number)?;
    group.save(&mut context.txn)?;
    context.txn.notify(KeyEvent::stream("xgroup-delconsumer"), args.at(2));
    context.out.int(i64::try_from(pending).unwrap_or(i64::MAX));
    Ok(())
}
