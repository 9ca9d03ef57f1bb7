//! `XINFO STREAM FULL`: a stream with its entries, groups and consumers.

use super::{
    Group, Range,
    info::{visit_groups, write_meta, write_number, write_progress},
    pending::visit_consumers,
    write_entries, write_id,
};
use crate::{
    command::{Context, Done},
    encode::{ConsumerRecord, PendingRecord, StreamId, StreamMeta},
    fault::Fault,
    resp::Reply,
    txn::Txn,
};

const ALL: (StreamId, StreamId) = (StreamId::MIN, StreamId::MAX);

/// Replies with the whole stream, at most `most` of each kind, all if 0.
pub(super) fn stream(context: &mut Context<'_, '_>, meta: &StreamMeta, most: u64) -> Done {
    let most = if most == 0 { u64::MAX } else { most };
    context.out.map(9);
    write_meta(context.out, meta);
    context.out.bulk(b"entries");
    write_entries(context, meta, Range::ALL, most)?;
    context.out.bulk(b"groups");
    let (mut groups, mut elements) = (Vec::new(), 0_u64);
    visit_groups(&context.txn, meta, |name, group| {
        // Those of the group, and those of its consumers.
        let shown = group.record.pending.min(most);
        let of_consumers = group.record.consumers.saturating_mul(most).min(group.record.pending);
        elements = elements.saturating_add(1 + group.record.consumers + shown + of_consumers);
        groups.push((name.to_vec(), group));
        Ok(true)
    })?;
    context.check_length(elements)?;
    let Context { txn, out, .. } = context;
    out.array(groups.len());
    for (name, mut group) in groups {
        if out.overflowed() {
            break;
        }
        out.map(7);
        out.bulk(b"name");
        out.bulk(&name);
        write_progress(out, meta, &group);
        write_number(out, "pel-count", group.record.pending);
        out.bulk(b"pending");
        write_pending(txn, out, &mut group, most)?;
        out.bulk(b"consumers");
        write_consumers(txn, out, &group, most)?;
    }
    Ok(())
}

/// The pending entries of a group.
fn write_pending(txn: &Txn<'_>, out: &mut Reply, group: &mut Group, most: u64) -> Done {
    let mut shown = Vec::new();
    group.visit_pending(txn, ALL, false, |id, record| {
        shown.push((id, record));
        Ok((shown.len() as u64) < most)
    })?;
    out.array(shown.len());
    for (id, record) in shown {
        out.array(4);
        write_id(out, id);
        out.bulk(&group.numbered(txn, record.consumer)?.name);
        write_delivery(out, &record);
    }
    Ok(())
}

fn write_delivery(out: &mut Reply, record: &PendingRecord) {
    out.int(record.delivered_ms as i64);
    out.int(record.count as i64);
}

fn write_consumers(txn: &Txn<'_>, out: &mut Reply, group: &Group, most: u64) -> Done {
    let (start, mut shown) = (out.len(), 0);
    visit_consumers(txn, group, |name, record| {
        shown += 1;
        write_consumer(txn, out, group, (name, record), most)?;
        Ok(!out.overflowed())
    })?;
    out.array_before(start, shown);
    Ok(())
}

/// A consumer, with the entries that are pending for it.
fn write_consumer(
    txn: &Txn<'_>,
    out: &mut Reply,
    group: &Group,
    (name, consumer): (&[u8], ConsumerRecord),
    most: u64,
) -> Result<(), Fault> {
    out.map(5);
    out.bulk(b"name");
    out.bulk(name);
    write_number(out, "seen-time", consumer.seen_ms);
    out.bulk(b"active-time");
    out.int(consumer.active_ms.map_or(-1, |active| active as i64));
    write_number(out, "pel-count", consumer.pending);
    out.bulk(b"pending");
    let (start, mut shown) = (out.len(), 0);
    group.visit_owned(txn, consumer.number, ALL, |id, record| {
        shown += 1;
        out.array(3);
        write_id(out, id);
        write_delivery(out, &record);
        Ok((shown as u64) < most)
    })?;
    out.array_before(start, shown);
    Ok(())
}
