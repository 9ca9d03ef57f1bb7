//! `XCLAIM` and `XAUTOCLAIM`: pending entries change their consumer.

use super::{
    Group, Range, has_entry, ids, is_word, no_group,
    pending::{idle_ms, locate},
    visit_entries, write_entry, write_id,
};
use crate::{
    command::{Context, Done, SYNTAX, check_member},
    encode::{PendingRecord, StreamId, StreamMeta},
    fault::Fault,
    resp::{Args, number},
};

/// The options of `XCLAIM`.
struct Options {
    ids: Vec<StreamId>,
    /// When the entries count as delivered, if not now.
    delivered_ms: Option<i64>,
    /// How often the entries count as delivered.
    count: Option<u64>,
    forces: bool,
    only_ids: bool,
    last: StreamId,
}

/// Reads a number with an error of its own.
fn special(text: &[u8], option: &str) -> Result<i64, Fault> {
    number::parse_i64(text).ok_or_else(|| format!("ERR Invalid {option} for XCLAIM").into())
}

impl Options {
    fn parse(args: Args<'_>, now_ms: u64) -> Result<Self, Fault> {
        let mut options = Self {
            ids: Vec::new(),
            delivered_ms: None,
            count: None,
            forces: false,
            only_ids: false,
            last: StreamId::MIN,
        };
        options.ids.extend(args.iter_from(5).map_while(|text| ids::strict(text, 0).ok()));
        let mut at = 5 + options.ids.len();
        while let Some(option) = args.get(at) {
            let next = args.get(at + 1);
            at += 1;
            let Some(value) = next else {
                options.flag(option)?;
                continue;
            };
            let text = "option argument";
            if is_word(option, "idle") {
                let idle = special(value, &format!("IDLE {text}"))?;
                options.delivered_ms = Some((now_ms as i64).wrapping_sub(idle));
            } else if is_word(option, "time") {
                options.delivered_ms = Some(special(value, &format!("TIME {text}"))?);
            } else if is_word(option, "retrycount") {
                let count = special(value, &format!("RETRYCOUNT {text}"))?;
                options.count = u64::try_from(count).ok();
            } else if is_word(option, "lastid") {
                options.last = ids::strict(value, 0)?;
            } else {
                options.flag(option)?;
                continue;
            }
            at += 1;
        }
        Ok(options)
    }

    fn flag(&mut self, option: &[u8]) -> Done {
        if is_word(option, "force") {
            self.forces = true;
        } else if is_word(option, "justid") {
            self.only_ids = true;
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
        }
        Ok(())
    }
}

/// Replies with an entry that was claimed.
fn write_claimed(
    context: &mut Context<'_, '_>,
    meta: &StreamMeta,
    id: StreamId,
    only_id: bool,
) -> Done {
    let Context { txn, out, .. } = context;
    if only_id {
        write_id(out, id);
        return Ok(());
    }
    visit_entries(txn, meta, Range::one(id), |id, value| {
        write_entry(out, id, value)?;
        Ok(false)
    })
}

/// `XCLAIM`.
pub(in crate::command) fn xclaim(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (meta, mut group) =
        locate(context, args)?.ok_or_else(|| no_group(args.at(1), args.at(2)))?;
    let min_idle_ms = special(args.at(4), "min-idle-time argument")?.max(0);
    let now_ms = context.txn.now_ms;
    let options = Options::parse(args, now_ms)?;
    check_member(args.at(3))?;
    context.check_length(options.ids.len() as u64)?;
    group.record.last = group.record.last.max(options.last);
    let delivered_ms = options.delivered_ms.and_then(|time| u64::try_from(time).ok());
    let delivered_ms = delivered_ms.filter(|time| *time <= now_ms).unwrap_or(now_ms);
    let consumer = group.make_consumer(&mut context.txn, args.at(3), args.at(1))?;
    let (start, mut claimed) = (context.out.len(), 0);
    for id in options.ids {
        let before = group.pending(&context.txn, id)?;
        if !has_entry(&context.txn, &meta, id)? {
            if let Some(before) = before {
                group.remove_pending(&context.txn, id, &before)?;
            }
            continue;
        }
        let count = match &before {
            Some(before) if min_idle_ms > 0 && idle_ms(before, now_ms) < min_idle_ms => continue,
            Some(before) => before.count,
            // As one that was just delivered.
            None if options.forces => 1,
            None => continue,
        };
        let more = u64::from(!options.only_ids);
        let count = options.count.unwrap_or(count.saturating_add(more));
        let record = PendingRecord { consumer, delivered_ms, count };
        group.put_pending(&context.txn, id, before.as_ref(), &record)?;
        write_claimed(context, &meta, id, options.only_ids)?;
        claimed += 1;
    }
    finish(context, group, consumer, claimed)?;
    context.out.array_before(start, claimed);
    Ok(())
}

/// Writes what has changed of the group.
fn finish(context: &mut Context<'_, '_>, mut group: Group, consumer: u64, claimed: usize) -> Done {
    if claimed > 0 {
        group.change(&context.txn, consumer, |record, now_ms| record.active_ms = Some(now_ms))?;
    }
    group.save(&mut context.txn)
}

/// Pending entries that `XAUTOCLAIM` looks at for each that it may claim.
const LOOKED_AT: u64 = 10;

/// The most entries that `XAUTOCLAIM` may be asked for, as in Redis.
const CLAIMED_MAX: i64 = i64::MAX / 16;

/// Entries that `XAUTOCLAIM` claims unless `COUNT` says otherwise.
const CLAIMED_DEFAULT: u64 = 100;

fn auto_options(args: Args<'_>) -> Result<(u64, bool), Fault> {
    let (mut count, mut only_ids, mut at) = (CLAIMED_DEFAULT, false, 6);
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            Some(text) if is_word(option, "count") => {
                let most = number::parse_i64(text).filter(|n| (1..=CLAIMED_MAX).contains(n));
                count = most.ok_or("ERR COUNT must be > 0")? as u64;
                at += 1;
            }
            _ if is_word(option, "justid") => only_ids = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok((count, only_ids))
}

/// `XAUTOCLAIM`.
pub(in crate::command) fn xautoclaim(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let min_idle_ms = number::parse_i64(args.at(4))
        .ok_or("ERR Invalid min-idle-time argument for XAUTOCLAIM")?
        .max(0);
    let from = ids::start(args.at(5))?;
    let (count, only_ids) = auto_options(args)?;
    let (meta, mut group) =
        locate(context, args)?.ok_or_else(|| no_group(args.at(1), args.at(2)))?;
    check_member(args.at(3))?;
    let now_ms = context.txn.now_ms;
    // What will be looked at, and the one after it.
    let looked_at = count.saturating_mul(LOOKED_AT);
    context.check_length(looked_at.min(group.record.pending))?;
    let (mut found, mut left, mut looked) = (Vec::new(), count, 0);
    let mut next = StreamId::MIN;
    let txn = &context.txn;
    group.visit_pending(txn, (from, StreamId::MAX), false, |id, record| {
        if left == 0 || looked == looked_at {
            next = id;
            return Ok(false);
        }
        looked += 1;
        let is_there = has_entry(txn, &meta, id)?;
        if is_there && min_idle_ms > 0 && idle_ms(&record, now_ms) < min_idle_ms {
            return Ok(true);
        }
        found.push((id, record, is_there));
        left -= 1;
        Ok(true)
    })?;
    let consumer = group.make_consumer(&mut context.txn, args.at(3), args.at(1))?;
    context.out.array(3);
    write_id(context.out, next);
    let claimed = found.iter().filter(|(.., is_there)| *is_there).count();
    context.out.array(claimed);
    let mut deleted = Vec::new();
    for (id, before, is_there) in found {
        if !is_there {
            group.remove_pending(&context.txn, id, &before)?;
            deleted.push(id);
            continue;
        }
        let count = before.count.saturating_add(u64::from(!only_ids));
        let record = PendingRecord { consumer, delivered_ms: now_ms, count };
        group.put_pending(&context.txn, id, Some(&before), &record)?;
        write_claimed(context, &meta, id, only_ids)?;
    }
    finish(context, group, consumer, claimed)?;
    context.out.array(deleted.len());
    deleted.into_iter().for_each(|id| write_id(context.out, id));
    Ok(())
}
