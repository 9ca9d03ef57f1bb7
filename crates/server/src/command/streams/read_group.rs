//! `XREADGROUP`: new entries for a consumer of a group, or those that it has not acknowledged.

use std::collections::BTreeMap;

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

/// Counts the elements that will be gone through, up to some more than are few. If `most` of each
/// stream are few together, new ones are only looked for: then `most` stands for their number.
fn count(
    context: &Context<'_, '_>,
    (meta, group): (&StreamMeta, &mut Group),
    (wanted, consumer): (Wanted, &[u8]),
    reading: &Reading<'_>,
) -> Result<u64, Fault> {
    let (most, mut found) = (reading.most, 0);
    let mut goes_on = || {
        found += 1;
        Ok(found < most && found <= FEW_ELEMENTS)
    };
    match wanted {
        Wanted::New => {
            let Some(range) = Range::after(group.record.last) else { return Ok(0) };
            let streams = reading.streams().count() as u64;
            if most.saturating_mul(streams) > FEW_ELEMENTS {
                visit_entries(&context.txn, meta, range, |_, _| goes_on())?;
            } else if !reading.may_wait(context) || edge(&context.txn, meta, range)?.is_some() {
                return Ok(most);
            }
        }
        Wanted::History(id) => {
            let number = group.consumer(&context.txn, consumer)?;
            if let (Some(number), Some(from)) = (number, id.next()) {
                let range = (from, StreamId::MAX);
                group.visit_owned(&context.txn, number, range, |_, _| goes_on())?;
            }
        }
    }
    Ok(found)
}

/// `XREADGROUP`.
pub(in crate::command) fn xreadgroup(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let reading = Reading::parse(args, true)?;
    let (name, consumer) = reading.group.unwrap_or_default();
    let (mut elements, mut is_ready, mut last) = (0, false, None);
    for (key, text) in reading.streams() {
        let (meta, mut group) = locate(context, key, name)?;
        let wanted = wanted(text)?;
        let found = count(context, (&meta, &mut group), (wanted, consumer), &reading)?;
        is_ready |= found > 0 || wanted != Wanted::New;
        elements += found;
        last = Some((meta, group));
    }
    // Of several streams one may be named twice: what is found of it changes in between.
    let mut only = last.filter(|_| reading.streams().count() == 1);
    check_member(consumer)?;
    if !is_ready && reading.may_wait(context) {
        enter(context, &reading)?;
        return reading.nothing(context, None);
    }
    context.check_length(elements)?;
    let (start, mut served) = (context.out.len(), 0);
    for (key, text) in reading.streams() {
        let located = match only.take() {
            Some(located) => located,
            None => locate(context, key, name)?,
        };
        served += usize::from(serve(context, &reading, (key, wanted(text)?), located)?);
    }
    if served == 0 {
        return reading.nothing(context, None);
    }
    read::close(context.out, start, served);
    Ok(())
}

/// Makes the consumer that is to wait, or notes that it was heard of. One that looks again has been
/// heard of.
fn enter(context: &mut Context<'_, '_>, reading: &Reading<'_>) -> Done {
    if !context.enters {
        return Ok(());
    }
    let (name, consumer) = reading.group.unwrap_or_default();
    for (key, _) in reading.streams() {
        let (_, mut group) = locate(context, key, name)?;
        group.make_consumer(&mut context.txn, consumer, key)?;
        group.save(&mut context.txn)?;
    }
    Ok(())
}

/// Gives the consumer what is there for it of one stream; returns true if it replied.
fn serve(
    context: &mut Context<'_, '_>,
    reading: &Reading<'_>,
    (key, wanted): (&[u8], Wanted),
    (meta, mut group): (StreamMeta, Group),
) -> Result<bool, Fault> {
    let (_, consumer) = reading.group.unwrap_or_default();
    let number = group.make_consumer(&mut context.txn, consumer, key)?;
    let from = context.out.len();
    read::open_stream(context.out, key);
    let replied = match wanted {
        Wanted::History(id) => {
            history(context, (&meta, &mut group), number, (id, reading.most))?;
            true
        }
        Wanted::New => deliver(context, (&meta, &mut group), number, reading)? > 0,
    };
    if !replied {
        context.out.truncate(from);
    }
    group.save(&mut context.txn)?;
    Ok(replied)
}

/// Replies with entries that were delivered to no one, which are pending from now on; returns how
/// many.
fn deliver(
    context: &mut Context<'_, '_>,
    (meta, group): (&StreamMeta, &mut Group),
    consumer: u64,
    reading: &Reading<'_>,
) -> Result<usize, Fault> {
    let Some(range) = Range::after(group.record.last) else { return Ok(0) };
    let Context { txn, out, .. } = context;
    let (start, mut ids) = (out.len(), Vec::new());
    visit_entries(txn, meta, range, |id, value| {
        ids.push(id);
        write_entry(out, id, value)?;
        Ok((ids.len() as u64) < reading.most && !out.overflowed())
    })?;
    let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
        return Ok(0);
    };
    context.out.array_before(start, ids.len());
    let now_ms = context.txn.now_ms;
    // Some may be pending if the group was moved back: otherwise none is after the last one.
    let mut before = BTreeMap::new();
    if !reading.no_ack {
        group.visit_pending(&context.txn, (first, last), false, |id, record| {
            before.insert(id, record);
            Ok(true)
        })?;
    }
    for id in &ids {
        counters::advance(meta, &mut group.record, *id);
        if !reading.no_ack {
            let record = PendingRecord { consumer, delivered_ms: now_ms, count: 1 };
            group.put_pending(&context.txn, *id, before.get(id), &record)?;
        }
    }
    group.change(&context.txn, consumer, |record, now_ms| record.active_ms = Some(now_ms))?;
    Ok(ids.len())
}

/// Replies with the entries after this one that are pending for the consumer.
fn history(
    context: &mut Context<'_, '_>,
    (meta, group): (&StreamMeta, &mut Group),
    consumer: u64,
    (after, most): (StreamId, u64),
) -> Done {
    let mut found = Vec::new();
    if let Some(from) = after.next() {
        group.visit_owned(&context.txn, consumer, (from, StreamId::MAX), |id, record| {
            found.push((id, record));
            Ok((found.len() as u64) < most)
        })?;
    }
    context.out.array(found.len());
    for (id, before) in found {
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
        let (delivered_ms, count) = (context.txn.now_ms, before.count.saturating_add(1));
        let record = PendingRecord { delivered_ms, count, ..before };
        group.put_pending(&context.txn, id, Some(&before), &record)?;
    }
    Ok(())
}
