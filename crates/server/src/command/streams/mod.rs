//! Streams: entries in the order of their identifiers, and groups of consumers that share them.
//!
//! A stream's first identifier is kept with its length: reads begin there, so that none comes to
//! what was trimmed before it.

mod add;
mod claim;
mod consumers;
mod counters;
mod groups;
mod ids;
mod info;
mod info_full;
mod pages;
mod pending;
mod range;
mod read;
mod read_group;
mod trim;

use std::ops::Bound;

use super::{Context, Done, FEW_ELEMENTS, is_word};
use crate::{
    encode::{
        Kind, StreamId, StreamMeta,
        stream_member::{self, Fields},
    },
    fault::Fault,
    resp::Reply,
    txn::{KeyBound, Txn, damaged},
};

use self::consumers::Group;
pub(super) use self::{
    add::{xadd, xdel, xlen, xsetid},
    claim::{xautoclaim, xclaim},
    groups::xgroup,
    info::xinfo,
    pending::{xack, xpending},
    range::{xrange, xrevrange},
    read::xread,
    read_group::xreadgroup,
    trim::xtrim,
};

/// A stream as it was found: what is known of it, and its time of expiry.
type Found = (StreamMeta, u64);

/// The stream at a key, if there is one. Nothing is written.
fn find(context: &mut Context<'_, '_>, key: &[u8]) -> Result<Option<Found>, Fault> {
    Ok(match context.read(key, Kind::Stream)? {
        Some(entry) => Some((context.txn.stream_meta(&entry)?, entry.expires_ms)),
        None => None,
    })
}

/// A new stream in the place of nothing, or of what has ended.
fn create(context: &mut Context<'_, '_>, key: &[u8]) -> Result<Found, Fault> {
    context.txn.edit(key)?;
    Ok((context.txn.new_stream()?, 0))
}

/// A range of entries, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    from: StreamId,
    to: StreamId,
    reverse: bool,
}

impl Range {
    /// The entries after this one.
    fn after(id: StreamId) -> Option<Self> {
        Some(Self { from: id.next()?, to: StreamId::MAX, reverse: false })
    }

    /// One entry.
    fn one(id: StreamId) -> Self {
        Self { from: id, to: id, reverse: false }
    }

    const ALL: Self = Self { from: StreamId::MIN, to: StreamId::MAX, reverse: false };
}

/// The bounds of a range of members whose keys end with an identifier.
fn bounds(key: impl Fn(StreamId) -> Vec<u8>, from: StreamId, to: StreamId) -> (KeyBound, KeyBound) {
    (Bound::Included(key(from)), Bound::Included(key(to)))
}

/// Shows the entries of a range until `look` returns false.
fn visit_entries(
    txn: &Txn<'_>,
    meta: &StreamMeta,
    range: Range,
    mut look: impl FnMut(StreamId, &[u8]) -> Result<bool, Fault>,
) -> Done {
    let (from, to) = (range.from.max(meta.first), range.to.min(meta.last));
    if meta.length == 0 || from > to {
        return Ok(());
    }
    let mut done = Ok(());
    let bounds = bounds(|id| stream_member::entry(meta.id, id), from, to);
    txn.visit_members(bounds, range.reverse, |key, value| {
        let shown = match stream_member::entry_of(key) {
            Some(id) => look(id, value),
            None => Err(damaged().into()),
        };
        shown.unwrap_or_else(|fault| {
            done = Err(fault);
            false
        })
    })?;
    done
}

/// The first entry of a range, in its direction.
fn edge(txn: &Txn<'_>, meta: &StreamMeta, range: Range) -> Result<Option<StreamId>, Fault> {
    let mut found = None;
    visit_entries(txn, meta, range, |id, _| {
        found = Some(id);
        Ok(false)
    })?;
    Ok(found)
}

/// The last entry, which `XDEL` may have made another than that of the last identifier.
fn last_entry(txn: &Txn<'_>, meta: &StreamMeta) -> Result<Option<StreamId>, Fault> {
    edge(txn, meta, Range { reverse: true, ..Range::ALL })
}

/// Returns true if the stream has this entry.
fn has_entry(txn: &Txn<'_>, meta: &StreamMeta, id: StreamId) -> Result<bool, Fault> {
    Ok(edge(txn, meta, Range::one(id))?.is_some())
}

/// Replies with an identifier.
fn write_id(out: &mut Reply, id: StreamId) {
    out.bulk(format!("{}-{}", id.ms, id.seq).as_bytes());
}

/// Replies with an entry.
fn write_entry(out: &mut Reply, id: StreamId, value: &[u8]) -> Done {
    let fields = Fields::of(value).ok_or_else(damaged)?;
    out.array(2);
    write_id(out, id);
    out.array(fields.len());
    for field in fields {
        out.bulk(field.ok_or_else(damaged)?);
    }
    Ok(())
}

/// Replies with the entries of a range, at most `most` of them; returns how many.
///
/// # Errors
///
/// [`Fault::TakesLong`] if they are many and other clients would wait.
fn write_entries(
    context: &mut Context<'_, '_>,
    meta: &StreamMeta,
    range: Range,
    most: u64,
) -> Result<u64, Fault> {
    let few = if context.txn.may_take_long { u64::MAX } else { FEW_ELEMENTS };
    let Context { txn, out, .. } = context;
    let (start, mut written) = (out.len(), 0);
    visit_entries(txn, meta, range, |id, value| {
        written += 1;
        write_entry(out, id, value)?;
        Ok(written < most && written <= few && !out.overflowed())
    })?;
    context.check_length(written)?;
    context.out.array_before(start, usize::try_from(written).unwrap_or(usize::MAX));
    Ok(written)
}

/// The error for a group that is not there, or a key.
fn no_group(key: &[u8], group: &[u8]) -> Fault {
    let text = String::from_utf8_lossy;
    format!("NOGROUP No such key '{}' or consumer group '{}'", text(key), text(group)).into()
}
