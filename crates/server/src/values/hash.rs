//! Hashes with fields that end by themselves, as the items that `rdb` reads and writes.

use super::BAD_DATA;
use crate::{
    encode::{Meta, member},
    fault::Fault,
    rdb::Item,
    txn::{Scan, Space, Txn},
};

/// The last moment at which a field may end, in milliseconds since 1970: that of Redis.
pub(crate) const FIELD_END_MS_MAX: u64 = (1 << 46) - 1;

/// The times of a hash's fields that are left at the moment of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldTimes {
    /// When the first of them ends, in milliseconds since 1970.
    pub(crate) first_ms: u64,
}

/// How many fields of a hash have not ended, and the times of those that will.
pub(super) fn count(txn: &Txn<'_>, meta: &Meta) -> rhumb::Result<(u64, Option<FieldTimes>)> {
    if meta.times == 0 {
        return Ok((meta.count, None));
    }
    let mut ended = 0;
    for pair in txn.members(&member::times_prefix(meta.times, true))? {
        let (key, _) = pair?;
        let (end_ms, _) = member::field_by_end_of(&key).unwrap_or_default();
        if end_ms > txn.now_ms {
            let times = FieldTimes { first_ms: end_ms };
            return Ok((meta.count.saturating_sub(ended), Some(times)));
        }
        ended += 1;
    }
    Ok((meta.count.saturating_sub(ended), None))
}

/// The times of fields, beside a walk over the fields: both ascend.
struct Times {
    scan: Scan,
    at: Option<(Vec<u8>, u64)>,
}

impl Times {
    fn begin(txn: &Txn<'_>, times: u64) -> rhumb::Result<Self> {
        let mut new = Self { scan: txn.members(&member::times_prefix(times, false))?, at: None };
        new.go_on()?;
        Ok(new)
    }

    fn go_on(&mut self) -> rhumb::Result<()> {
        let next = self.scan.next().transpose()?;
        self.at = next.map(|(key, value)| {
            (member::time_of_field_of(&key).to_vec(), member::decode_time(&value))
        });
        Ok(())
    }

    /// When a field ends; 0 if it does not.
    fn of(&mut self, field: &[u8]) -> rhumb::Result<u64> {
        while let Some((at, end_ms)) = &self.at {
            if at.as_slice() >= field {
                return Ok(if at == field { *end_ms } else { 0 });
            }
            self.go_on()?;
        }
        Ok(0)
    }
}

/// Reads the fields of a hash that has times. What has ended is left out.
pub(super) fn read<E: From<rhumb::Error>>(
    txn: &Txn<'_>,
    meta: &Meta,
    each: &mut dyn FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    let mut times = Times::begin(txn, meta.times)?;
    for pair in txn.members(&member::prefix(meta.id))?.expecting(meta.count) {
        let (key, value) = pair?;
        let field = member::field_of(&key);
        let expires_ms = times.of(field)?;
        if expires_ms == 0 || expires_ms > txn.now_ms {
            each(Item::Field { field: field.to_vec(), value: value.to_vec(), expires_ms })?;
        }
    }
    Ok(())
}

/// The times of a hash that is written, field by field.
#[derive(Default)]
pub(super) struct TimesWriter {
    /// The number of their collection; 0 while no field ends.
    pub(super) id: u64,
    /// They are to be reclaimed unless the hash is finished: that is committed.
    is_marked: bool,
    first_ms: u64,
}

impl TimesWriter {
    /// Gives a field an end; `put` writes members.
    pub(super) fn give(
        &mut self,
        txn: &Txn<'_>,
        (field, end_ms): (&[u8], u64),
        put: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if end_ms > FIELD_END_MS_MAX {
            return Err(BAD_DATA.into());
        }
        if self.id == 0 {
            (self.id, self.first_ms) = (txn.new_meta()?.id, end_ms);
        }
        self.first_ms = self.first_ms.min(end_ms);
        put(member::time_of_field(self.id, field), member::encode_time(end_ms))?;
        put(member::field_by_end(self.id, end_ms, field), Vec::new())
    }

    /// Before a part of them is committed: has them reclaimed if the hash is never finished.
    pub(super) fn mark_unfinished(&mut self, txn: &mut Txn<'_>) {
        if self.id != 0 && !std::mem::replace(&mut self.is_marked, true) {
            txn.write(Space::Work, member::reclaim(self.id), Some(Vec::new()));
        }
    }

    /// The hash is that of a key now: its fields are reclaimed when they end.
    pub(super) fn finish(&self, txn: &mut Txn<'_>, key: &[u8]) {
        if self.is_marked {
            txn.write(Space::Work, member::reclaim(self.id), None);
        }
        if self.id != 0 {
            txn.mark_fields(key, self.first_ms);
        }
    }
}
