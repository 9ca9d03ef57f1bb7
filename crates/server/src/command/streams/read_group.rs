//! `XREADGROUP`: new entries for a consumer of a group, or those that it has not acknowledged.

use super::{
    Group, Range, counters, edge, find, ids,
    read::{self, Reading},
    visit_entries, write_entry, write_id,
};
use crate::{
    command::{Context, Done, FEW_ELEMENTS, check_member},
    encode::{PendingRecord, StreamId, StreamMeta},
    fault::Fault,
    resp::Args,
};

/// What is wanted of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// `>`: entries that were delivered to no one.
    New,
    /// Entries after this one that the consumer has not acknowledged.
    History(StreamId),
}

fn wanted(text: &[u8]) -> Result<Wanted, Fault> {
    let meaningless = |symbol: &str| -> Fault {
        format!(
            "ERR The {symbol} ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The {symbol} ID would just return an empty result set."
        )
        .into()
    };
    match text {
        b">" => Ok(Wanted::New),
        b"$" => Err(meaningless("$")),
        b"+" => Err(meaningless("+")),
        _ => match ids::strict(text, 0)? {
            StreamId::MAX => Ok(Wanted::New),
            id => Ok(Wanted::History(id)),
        },
    }
}

/// The stream and the group that are read.
fn locate(
    context: &mut Context<'_, '_>,
    key: &[u8],
    name: &[u8],
) -> Result<(StreamMeta, Group), Fault> {
    let group = match find(context, key)? {
        Some((meta, _)) => Group::find(&context.txn, meta.id, name)?.map(|group| (meta, group)),
        None => None,
    };
    group.ok_or_else(|| {
        let text = String::from_utf8_lossy;
        let (key, name) = (text(key), text(name));
        format!(
            "NOGROUP No such key '{key}' or consumer group '{name}' in XREADGROUP with GROUP option"
        )
        .into()
    })
}

/// Counts the elements that will be gone through, up to some more than are few.
fn count(
    context: &Context<'_, '_>,
    (meta, group): (&StreamMeta, &mut Group),
    (wanted, most, consumer): (Wanted, u64, &[u8]),
) -> Result<u64, Fault> {
    let mut found = 0;
    let mut goes_on = || {
        found += 1;
        Ok(found < most && found <= FEW_ELEMENTS)
    };
    match wanted {
        Wanted::New => {
            if let Some(range) = Range::after(group.record.last) {
                visit_entries(&context.txn, meta, range, |_, _| goes_on())?;
            }
        }
        Wanted::History(id) => {
            let number = group.consumer(&context.txn, consumer)?;
            if let (Some(number), Some(from)) = (number, id.next()) {
                let range = (from, StreamId::MAX);
                group.visit_owned(&context.txn, number, range, |_| goes_on())?;
            }
        }
    }
    Ok(found)
}

/// `XREADGROUP`.
pub(in crate::command) fn xreadgroup(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let reading = Reading::parse(args, true)?;
    let (name, consumer) = reading.group.unwrap_or_default();
    let (mut elements, mut is_ready) = (0, false);
    for (key, text) in reading.streams() {
        let (meta, mut group) = locate(context, key, name)?;
        let wanted = wanted(text)?;
        let chosen = (wanted, reading.most, consumer);
        let found = count(context, (&meta, &mut group), chosen)?;
        is_ready |= found > 0 || wanted != Wanted::New;
        elements += found;
    }
    check_member(consumer)?;
    if !is_ready && reading.may_wait(context) {
        return reading.nothing(context, None);
    }
    context.check_length(elements)?;
    let (start, mut served) = (context.out.len(), 0);
    for (key, text) in reading.streams() {
        served += usize::from(serve(context, &reading, key, wanted(text)?)?);
    }
    if served == 0 {
        return reading.nothing(context, None);
    }
    read::close(context.out, start, served);
    Ok(())
}

/// Gives the consumer what is there for it of one stream; returns true if it replied.
fn serve(
    context: &mut Context<'_, '_>,
    reading: &Reading<'_>,
    key: &[u8],
    wanted: Wanted,
) -> Result<bool, Fault> {
    let (name, consumer) = reading.group.unwrap_or_default();
    let (meta, mut group) = locate(context, key, name)?;
    let number = group.make_consumer(&mut context.txn, consumer, key)?;
    let replied = match wanted {
        Wanted::History(id) => {
            read::open_stream(context.out, key);
            history(context, (&meta, &mut group), number, (id, reading.most))?;
            true
        }
        Wanted::New => {
            let range = Range::after(group.record.last);
            match range.map(|range| edge(&context.txn, &meta, range)).transpose()?.flatten() {
                Some(_) => {
                    read::open_stream(context.out, key);
                    deliver(context, (&meta, &mut group), number, reading)?;
                    true
                }
                None => false,
            }
        }
    };
    group.save(&mut context.txn)?;
    Ok(replied)
}

/// Replies with entries that were delivered to no one, which are pending from now on.
fn deliver(
    context: &mut Context<'_, '_>,
    (meta, group): (&StreamMeta, &mut Group),
    consumer: u64,
    reading: &Reading<'_>,
) -> Done {
    let Some(range) = Range::after(group.record.last) else { return Ok(()) };
    let Context { txn, out, .. } = context;
    let (start, mut ids) = (out.len(), Vec::new());
    visit_entries(txn, meta, range, |id, value| {
        ids.push(id);
        write_entry(out, id, value)?;
        Ok((ids.len() as u64) < reading.most && !out.overflowed())
    })?;
    context.out.array_before(start, ids.len());
    let now_ms = context.txn.now_ms;
    for id in ids {
        counters::advance(meta, &mut group.record, id);
        if reading.no_ack {
            continue;
        }
        // It may be pending if the group was moved back.
        let before = group.pending(&context.txn, id)?;
        let record = PendingRecord { consumer, delivered_ms: now_ms, count: 1 };
        group.put_pending(&mut context.txn, id, before.as_ref(), &record)?;
    }
    group.change(&context.txn, consumer, |record, now_ms| record.active_ms = Some(now_ms))
}

/// Replies with the entries after this one that are pending for the consumer.
fn history(
    context: &mut Context<'_, '_>,
    (meta, group): (&StreamMeta, &mut Group),
    consumer: u64,
    (after, most): (StreamId, u64),
) -> Done {
    let mut ids = Vec::new();
    if let Some(from) = after.next() {
        group.visit_owned(&context.txn, consumer, (from, StreamId::MAX), |id| {
            ids.push(id);
            Ok((ids.len() as u64) < most)
        })?;
    }
    context.out.array(ids.len());
    for id in ids {
        if context.out.overflowed() {
            break;
        }
        let Context { txn, out, .. } = &mut *context;
        let mut is_there = false;
        visit_entries(txn, meta, Range::one(id), |id, value| {
            is_there = true;
            write_entry(out, id, value)?;
            Ok(false)
        })?;
        if !is_there {
            context.out.array(2);
            write_id(context.out, id);
            context.out.null_array();
            continue;
        }
        if let Some(before) = group.pending(&context.txn, id)? {
            let (delivered_ms, count) = (context.txn.now_ms, before.count.saturating_add(1));
            let record = PendingRecord { delivered_ms, count, ..before };
            group.put_pending(&mut context.txn, id, Some(&before), &record)?;
        }
    }
    Ok(())
}
