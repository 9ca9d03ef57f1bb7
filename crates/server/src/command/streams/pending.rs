//! `XACK` and `XPENDING`.

use super::{Group, find, ids, is_word, no_group, write_id};
use crate::{
    command::{Context, Done, FEW_ELEMENTS, SYNTAX, integer},
    encode::{PendingRecord, StreamId, StreamMeta, stream_member},
    fault::Fault,
    resp::Args,
    txn::prefix_range,
};

/// The stream and the group of the first two arguments, if both are there.
pub(super) fn locate(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
) -> Result<Option<(StreamMeta, Group)>, Fault> {
    let Some((meta, _)) = find(context, args.at(1))? else { return Ok(None) };
    let group = Group::find(&context.txn, meta.id, args.at(2))?;
    Ok(group.map(|group| (meta, group)))
}

/// `XACK`.
pub(in crate::command) fn xack(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Some((_, mut group)) = locate(context, args)? else {
        context.out.int(0);
        return Ok(());
    };
    let ids: Result<Vec<StreamId>, Fault> =
        args.iter_from(3).map(|text| ids::strict(text, 0)).collect();
    let ids = ids?;
    context.check_length(ids.len() as u64)?;
    let mut acknowledged = 0;
    for id in ids {
        if let Some(record) = group.pending(&context.txn, id)? {
            group.remove_pending(&context.txn, id, &record)?;
            acknowledged += 1;
        }
    }
    if acknowledged > 0 {
        group.save(&mut context.txn)?;
    }
    context.out.int(acknowledged);
    Ok(())
}

/// What `XPENDING` is asked for beyond a summary.
struct Wanted<'a> {
    min_idle_ms: i64,
    ends: (StreamId, StreamId),
    most: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Fault> {
        let (mut at, mut min_idle_ms) = (3, 0);
        if is_word(args.at(3), "idle") {
            min_idle_ms = integer(args.at(4))?;
            if args.len() < 8 {
                return Err(SYNTAX.into());
            }
            at = 5;
        }
        let most = u64::try_from(integer(args.at(at + 2))?).unwrap_or(0);
        let range = ids::range(args.at(at), args.at(at + 1), false)?;
        let (ends, consumer) = ((range.from, range.to), args.get(at + 3));
        Ok(Self { min_idle_ms, ends, most, consumer })
    }
}

/// `XPENDING`.
pub(in crate::command) fn xpending(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() != 3 && !(6..=9).contains(&args.len()) {
        return Err(SYNTAX.into());
    }
    let wanted = if args.len() == 3 { None } else { Some(Wanted::parse(args)?) };
    let (_, mut group) = locate(context, args)?.ok_or_else(|| no_group(args.at(1), args.at(2)))?;
    match wanted {
        None => summary(context, &group),
        Some(wanted) => range(context, &mut group, &wanted),
    }
}

/// How many are pending, the first, the last, and how many for each consumer.
fn summary(context: &mut Context<'_, '_>, group: &Group) -> Done {
    context.check_length(group.record.consumers)?;
    context.out.array(4);
    context.out.int(i64::try_from(group.record.pending).unwrap_or(i64::MAX));
    if group.record.pending == 0 {
        context.out.null();
        context.out.null();
        context.out.null_array();
        return Ok(());
    }
    let mut ends = [StreamId::MIN; 2];
    for (end, reverse) in ends.iter_mut().zip([false, true]) {
        group.visit_pending(&context.txn, (StreamId::MIN, StreamId::MAX), reverse, |id, _| {
            *end = id;
            Ok(false)
        })?;
    }
    ends.into_iter().for_each(|id| write_id(context.out, id));
    let Context { txn, out, .. } = context;
    let (start, mut consumers) = (out.len(), 0);
    visit_consumers(txn, group, |name, record| {
        if record.pending > 0 {
            out.array(2);
            out.bulk(name);
            out.bulk(record.pending.to_string().as_bytes());
            consumers += 1;
        }
        Ok(true)
    })?;
    context.out.array_before(start, consumers);
    Ok(())
}

/// Shows the consumers of a group, by their names, until `look` returns false.
pub(super) fn visit_consumers(
    txn: &crate::txn::Txn<'_>,
    group: &Group,
    mut look: impl FnMut(&[u8], crate::encode::ConsumerRecord) -> Result<bool, Fault>,
) -> Done {
    let mut done = Ok(());
    txn.visit_members(prefix_range(&group.consumers_front()), false, |key, value| {
        let record = crate::encode::ConsumerRecord::decode(value);
        let shown = match record {
            Some(record) => look(stream_member::consumer_of(key), record),
            None => Err(crate::txn::damaged().into()),
        };
        shown.unwrap_or_else(|fault| {
            done = Err(fault);
            false
        })
    })?;
    done
}

/// The pending entries of a range, all or those of a consumer.
fn range(context: &mut Context<'_, '_>, group: &mut Group, wanted: &Wanted<'_>) -> Done {
    let consumer = match wanted.consumer {
        None => None,
        Some(name) => match group.consumer(&context.txn, name)? {
            None => {
                context.out.array(0);
                return Ok(());
            }
            number => number,
        },
    };
    let few = if context.txn.may_take_long { u64::MAX } else { FEW_ELEMENTS };
    let now_ms = context.txn.now_ms;
    let is_idle = |record: &PendingRecord| {
        wanted.min_idle_ms == 0 || idle_ms(record, now_ms) >= wanted.min_idle_ms
    };
    let (mut passed, mut found) = (0, Vec::new());
    let (txn, most) = (&context.txn, wanted.most);
    let take = |id: StreamId, record: PendingRecord| {
        passed += 1;
        if is_idle(&record) {
            found.push((id, record));
        }
        Ok((found.len() as u64) < most && passed <= few)
    };
    match consumer {
        _ if most == 0 => {}
        None => group.visit_pending(txn, wanted.ends, false, take)?,
        Some(number) => group.visit_owned(txn, number, wanted.ends, take)?,
    }
    context.check_length(passed)?;
    context.out.array(found.len());
    for (id, record) in found {
        if context.out.overflowed() {
            break;
        }
        context.out.array(4);
        write_id(context.out, id);
        let name = &group.numbered(&context.txn, record.consumer)?.name;
        context.out.bulk(name);
        context.out.int(idle_ms(&record, now_ms).max(0));
        context.out.int(record.count as i64);
    }
    Ok(())
}

/// How long ago an entry was delivered; negative if the clock was put back.
pub(super) fn idle_ms(record: &PendingRecord, now_ms: u64) -> i64 {
    (now_ms as i64).wrapping_sub(record.delivered_ms as i64)
}
