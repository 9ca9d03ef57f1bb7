//! A hash's fields as commands see them: those that have ended are absent, whether their bytes are
//! there or not.
//!
//! The times at which fields end are a collection of their own, which a hash has once a field of
//! it has one. A hash without it costs nothing more.

use std::ops::Bound;

use rhumb::Slice;

use super::{Context, Done};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    txn::{Scan, Space, prefix_range},
};

/// A field as it is stored.
pub(super) struct Stored {
    pub(super) value: Slice,
    /// When it ends, in milliseconds since 1970; 0 if it does not.
    pub(super) end_ms: u64,
}

impl Stored {
    /// Returns true if the field has not ended.
    pub(super) fn is_live(&self, now_ms: u64) -> bool {
        self.end_ms == 0 || self.end_ms > now_ms
    }
}

/// A field whose bytes are there.
pub(super) fn stored(
    context: &Context<'_, '_>,
    meta: &Meta,
    field: &[u8],
) -> Result<Option<Stored>, Fault> {
    let Some(value) = context.txn.member(&member::field(meta.id, field))? else {
        return Ok(None);
    };
    Ok(Some(Stored { value, end_ms: end_of(context, meta, field)? }))
}

/// When a field ends; 0 if it does not.
pub(super) fn end_of(context: &Context<'_, '_>, meta: &Meta, field: &[u8]) -> Result<u64, Fault> {
    if meta.times == 0 {
        return Ok(0);
    }
    let time = context.txn.member(&member::time_of_field(meta.times, field))?;
    Ok(time.map_or(0, |time| member::decode_time(&time)))
}

/// A field that is there.
pub(super) fn live(
    context: &Context<'_, '_>,
    meta: &Meta,
    field: &[u8],
) -> Result<Option<Stored>, Fault> {
    let now_ms = context.txn.now_ms;
    Ok(stored(context, meta, field)?.filter(|stored| stored.is_live(now_ms)))
}

/// The value of a field that is there.
pub(super) fn value(
    context: &Context<'_, '_>,
    meta: &Meta,
    field: &[u8],
) -> Result<Option<Slice>, Fault> {
    Ok(live(context, meta, field)?.map(|stored| stored.value))
}

/// The times at which fields end, the earliest first.
fn ends(context: &Context<'_, '_>, meta: &Meta) -> Result<Scan, Fault> {
    Ok(context.txn.members(&member::times_prefix(meta.times, true))?)
}

/// When the first field ends; none if no field does.
pub(super) fn first_end(context: &Context<'_, '_>, meta: &Meta) -> Result<Option<u64>, Fault> {
    if meta.times == 0 {
        return Ok(None);
    }
    let first = ends(context, meta)?.next().transpose()?;
    Ok(first.and_then(|(key, _)| Some(member::field_by_end_of(&key)?.0)))
}

/// How many fields there are. O(1), and what has ended and was not reclaimed yet.
pub(super) fn count(context: &Context<'_, '_>, meta: &Meta) -> Result<u64, Fault> {
    if meta.times == 0 {
        return Ok(meta.count);
    }
    let from = Bound::Included(member::times_prefix(meta.times, true));
    let to = Bound::Excluded(member::field_by_end(meta.times, context.txn.now_ms + 1, &[]));
    let (mut scan, mut ended) = (context.txn.scan(Space::Members, from, to, false)?, 0);
    while let Some(step) = scan.next_with(|_, _| ()) {
        step?;
        ended += 1;
        context.check_length(ended)?;
    }
    Ok(meta.count.saturating_sub(ended))
}

/// A walk over the fields that are there, ascending.
pub(super) struct Walk {
    fields: Scan,
    times: Option<Times>,
}

/// Times at which fields end, in the order of the fields.
struct Times {
    scan: Scan,
    at: Option<(Slice, u64)>,
    now_ms: u64,
}

impl Times {
    fn go_on(&mut self) -> rhumb::Result<()> {
        let next = self.scan.next().transpose()?;
        self.at = next.map(|(key, value)| (key, member::decode_time(&value)));
        Ok(())
    }

    /// Returns true if a field has ended. Fields ascend from call to call.
    fn has_ended(&mut self, field: &[u8]) -> rhumb::Result<bool> {
        while let Some((key, end_ms)) = &self.at {
            let of = member::time_of_field_of(key);
            if of >= field {
                return Ok(of == field && *end_ms <= self.now_ms);
            }
            self.go_on()?;
        }
        Ok(false)
    }
}

impl Walk {
    /// A walk over all fields.
    pub(super) fn begin(context: &Context<'_, '_>, meta: &Meta) -> Result<Self, Fault> {
        let fields = context.txn.members(&member::prefix(meta.id))?.expecting(meta.count);
        let now_ms = context.txn.now_ms;
        let mut times = None;
        // If none has ended, the times need not be looked at.
        if first_end(context, meta)?.is_some_and(|end_ms| end_ms <= now_ms) {
            let (from, to) = prefix_range(&member::times_prefix(meta.times, false));
            let scan = context.txn.scan(Space::Members, from, to, false)?;
            let mut walked = Times { scan, at: None, now_ms };
            walked.go_on()?;
            times = Some(walked);
        }
        Ok(Self { fields, times })
    }

    /// Has `look` look at the next field and its value.
    pub(super) fn next_with<T>(
        &mut self,
        look: &mut impl FnMut(&[u8], &[u8]) -> T,
    ) -> Option<rhumb::Result<T>> {
        loop {
            let times = &mut self.times;
            let step = self.fields.next_with(|key, value| {
                let field = member::field_of(key);
                if let Some(times) = times
                    && times.has_ended(field)?
                {
                    return Ok(None);
                }
                Ok(Some(look(field, value)))
            })?;
            match step.and_then(|looked| looked) {
                Ok(None) => {}
                Ok(Some(looked)) => return Some(Ok(looked)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Takes the time away at which a stored field ends.
pub(super) fn forget_end(context: &mut Context<'_, '_>, meta: &Meta, field: &[u8], end_ms: u64) {
    if end_ms != 0 {
        context.txn.remove_member(member::time_of_field(meta.times, field));
        context.txn.remove_member(member::field_by_end(meta.times, end_ms, field));
    }
}

/// Takes a stored field away.
pub(super) fn remove(context: &mut Context<'_, '_>, meta: &mut Meta, field: &[u8], end_ms: u64) {
    context.txn.remove_member(member::field(meta.id, field));
    forget_end(context, meta, field, end_ms);
    meta.count = meta.count.saturating_sub(1);
}

/// Gives a stored field of a hash that has times another end. The caller has the hash marked.
pub(super) fn put_end(
    context: &mut Context<'_, '_>,
    meta: &Meta,
    field: &[u8],
    (before_ms, end_ms): (u64, u64),
) {
    if before_ms != 0 && before_ms != end_ms {
        context.txn.remove_member(member::field_by_end(meta.times, before_ms, field));
    }
    let key = member::time_of_field(meta.times, field);
    context.txn.put_member(key, member::encode_time(end_ms));
    context.txn.put_member(member::field_by_end(meta.times, end_ms, field), Vec::new());
}

/// Sees to it that the hash has times, and that fields which end at `end_ms` are reclaimed then.
pub(super) fn have_times(
    context: &mut Context<'_, '_>,
    key: &[u8],
    meta: &mut Meta,
    end_ms: u64,
) -> Done {
    if first_end(context, meta)?.is_none_or(|first| end_ms < first) {
        context.txn.mark_fields(key, end_ms);
    }
    if meta.times == 0 {
        meta.times = context.txn.new_meta()?.id;
    }
    Ok(())
}

/// Writes what is now to be known of a hash, and tells of what happened to it and of its end if it
/// has no fields any more.
pub(super) fn put_hash(
    context: &mut Context<'_, '_>,
    key: &[u8],
    (meta, expires): (&Meta, u64),
    event: &'static str,
) {
    context.txn.put_meta(key, Kind::Hash, meta, expires);
    context.txn.notify(KeyEvent::hash(event), key);
    if meta.count == 0 {
        context.txn.notify(KeyEvent::generic("del"), key);
    }
}
