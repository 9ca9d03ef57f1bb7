//! Times at which fields of hashes end, as Redis 7.4 has them, and the commands of Redis 8.0 that
//! read or set fields together with them.

use super::{
    Context, Done, SYNTAX, arguments::at_least, check_member, expiry::TimeUnit, fields, integer,
    is_word,
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
    values::FIELD_END_MS_MAX,
};

/// What is replied for a field that is not there, that has no end, that stays as it is, that was
/// changed, and that was removed since its time is over.
const ABSENT: i64 = -2;
const ENDLESS: i64 = -1;
const UNCHANGED: i64 = 0;
const CHANGED: i64 = 1;
const REMOVED: i64 = 2;

/// The fields that stand after the word `FIELDS`, which is the argument `at`, and their number;
/// each with `width` arguments.
fn fields_at<'a>(
    args: Args<'a>,
    at: usize,
    width: usize,
    not_positive: &'static str,
) -> Result<Args<'a>, Fault> {
    if !args.get(at).is_some_and(|word| is_word(word, "fields")) {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    let count = at_least(args.get(at + 1).ok_or(SYNTAX)?, 1, not_positive)?;
    let found = args.from(at + 2);
    let expected = usize::try_from(count).ok().and_then(|count| count.checked_mul(width));
    if expected != Some(found.len()) {
        return Err("ERR The `numfields` parameter must match the number of arguments".into());
    }
    Ok(found)
}

const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// The moment that an argument says.
fn end_of(unit: TimeUnit, text: &[u8], now_ms: u64, name: &str) -> Result<u64, Fault> {
    let time = integer(text)?;
    if time < 0 {
        return Err("ERR invalid expire time, must be >= 0".into());
    }
    let moment = unit.moment(time, now_ms).and_then(|moment| u64::try_from(moment).ok());
    let moment = moment.filter(|moment| *moment <= FIELD_END_MS_MAX);
    moment.ok_or_else(|| format!("ERR invalid expire time in '{name}' command").into())
}

/// When `HEXPIRE` and its kin change a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    NoneBefore,
    SomeBefore,
    Later,
    Earlier,
}

impl Condition {
    fn of_word(word: &[u8]) -> Option<Self> {
        let words = [
            ("nx", Self::NoneBefore),
            ("xx", Self::SomeBefore),
            ("gt", Self::Later),
            ("lt", Self::Earlier),
        ];
        words.into_iter().find(|(name, _)| is_word(word, name)).map(|(_, condition)| condition)
    }

    /// Returns true if a field that ends at `before`, 0 for never, may be given `new`.
    fn allows(self, before: u64, new: u64) -> bool {
        match self {
            Self::Always => true,
            Self::NoneBefore => before == 0,
            Self::SomeBefore => before != 0,
            Self::Later => before != 0 && new > before,
            Self::Earlier => before == 0 || new < before,
        }
    }
}

/// A hash that fields of are given ends, and what has become of it.
struct Changes<'k> {
    key: &'k [u8],
    meta: Meta,
    has_times: bool,
    given: bool,
    taken: bool,
    removed: bool,
}

impl<'k> Changes<'k> {
    fn new(key: &'k [u8], meta: Meta) -> Self {
        Self { key, meta, has_times: false, given: false, taken: false, removed: false }
    }

    /// Gives a stored field another end, 0 for none; one whose time is over is removed.
    fn give(
        &mut self,
        context: &mut Context<'_, '_>,
        field: &[u8],
        (before_ms, end_ms): (u64, u64),
    ) -> Result<i64, Fault> {
        if end_ms == 0 {
            self.taken |= before_ms != 0;
            fields::forget_end(context, &self.meta, field, before_ms);
            return Ok(CHANGED);
        }
        if end_ms <= context.txn.now_ms {
            fields::remove(context, &mut self.meta, field, before_ms);
            self.removed = true;
            return Ok(REMOVED);
        }
        if !self.has_times {
            fields::have_times(context, self.key, &mut self.meta, end_ms)?;
            self.has_times = true;
        }
        fields::put_end(context, &self.meta, field, (before_ms, end_ms));
        self.given = true;
        Ok(CHANGED)
    }

    /// Writes what is now to be known of the hash, if anything has changed.
    fn end(self, context: &mut Context<'_, '_>, expires: u64) {
        let event = match self {
            Self { removed: true, .. } => "hdel",
            Self { given: true, .. } => "hexpire",
            Self { taken: true, .. } => "hpersist",
            _ => return,
        };
        fields::put_hash(context, self.key, (&self.meta, expires), event);
    }
}

fn expire(context: &mut Context<'_, '_>, args: Args<'_>, unit: TimeUnit, name: &str) -> Done {
    context.read(args.at(1), Kind::Hash)?;
    let end_ms = end_of(unit, args.at(2), context.txn.now_ms, name)?;
    let condition = Condition::of_word(args.at(3));
    let at = if condition.is_some() { 4 } else { 3 };
    let refused = "ERR Parameter `numFields` should be greater than 0";
    let names = fields_at(args, at, 1, refused)?;
    context.check_length(names.len() as u64)?;
    let found = context.edit_collection(args.at(1), Kind::Hash)?;
    context.out.array(names.len());
    let Some((meta, expires)) = found else {
        names.iter_from(0).for_each(|_| context.out.int(ABSENT));
        return Ok(());
    };
    let mut changes = Changes::new(args.at(1), meta);
    for field in names.iter_from(0) {
        let reply = match fields::live(context, &changes.meta, field)? {
            None => ABSENT,
            Some(stored) => {
                let allowed = condition.unwrap_or(Condition::Always).allows(stored.end_ms, end_ms);
                let ends = (stored.end_ms, end_ms);
                if allowed { changes.give(context, field, ends)? } else { UNCHANGED }
            }
        };
        context.out.int(reply);
    }
    changes.end(context, expires);
    Ok(())
}

/// `HEXPIRE`.
pub(super) fn hexpire(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire(context, args, TimeUnit::Seconds, "hexpire")
}

/// `HPEXPIRE`.
pub(super) fn hpexpire(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire(context, args, TimeUnit::Milliseconds, "hpexpire")
}

/// `HEXPIREAT`.
pub(super) fn hexpireat(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire(context, args, TimeUnit::SecondsAt, "hexpireat")
}

/// `HPEXPIREAT`.
pub(super) fn hpexpireat(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire(context, args, TimeUnit::MillisecondsAt, "hpexpireat")
}

/// `HPERSIST`.
pub(super) fn hpersist(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.read(args.at(1), Kind::Hash)?;
    let names = fields_at(args, 2, 1, NOT_POSITIVE)?;
    context.check_length(names.len() as u64)?;
    let found = context.edit_collection(args.at(1), Kind::Hash)?;
    context.out.array(names.len());
    let Some((meta, expires)) = found else {
        names.iter_from(0).for_each(|_| context.out.int(ABSENT));
        return Ok(());
    };
    let mut changes = Changes::new(args.at(1), meta);
    for field in names.iter_from(0) {
        let reply = match fields::live(context, &changes.meta, field)? {
            None => ABSENT,
            Some(stored) if stored.end_ms == 0 => ENDLESS,
            Some(stored) => changes.give(context, field, (stored.end_ms, 0))?,
        };
        context.out.int(reply);
    }
    changes.end(context, expires);
    Ok(())
}

fn reply_ends(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    time: impl Fn(u64, u64) -> u64,
) -> Done {
    let meta = context.collection(args.at(1), Kind::Hash)?;
    let names = fields_at(args, 2, 1, NOT_POSITIVE)?;
    context.check_length(names.len() as u64)?;
    context.out.array(names.len());
    for field in names.iter_from(0) {
        let stored = match &meta {
            Some(meta) => fields::live(context, meta, field)?,
            None => None,
        };
        let reply = match stored {
            None => ABSENT,
            Some(stored) if stored.end_ms == 0 => ENDLESS,
            Some(stored) => time(stored.end_ms, context.txn.now_ms) as i64,
        };
        context.out.int(reply);
    }
    Ok(())
}

/// `HTTL`.
pub(super) fn httl(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_ends(context, args, |end_ms, now_ms| (end_ms - now_ms).div_ceil(1000))
}

/// `HPTTL`.
pub(super) fn hpttl(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_ends(context, args, |end_ms, now_ms| end_ms - now_ms)
}

/// `HEXPIRETIME`.
pub(super) fn hexpiretime(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_ends(context, args, |end_ms, _| end_ms.div_ceil(1000))
}

/// `HPEXPIRETIME`.
pub(super) fn hpexpiretime(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_ends(context, args, |end_ms, _| end_ms)
}

/// `HGETDEL`.
pub(super) fn hgetdel(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.read(args.at(1), Kind::Hash)?;
    let names = fields_at(args, 2, 1, NOT_POSITIVE)?;
    context.check_length(names.len() as u64)?;
    let found = context.edit_collection(args.at(1), Kind::Hash)?;
    context.out.array(names.len());
    let Some((mut meta, expires)) = found else {
        names.iter_from(0).for_each(|_| context.out.null());
        return Ok(());
    };
    let before = meta.count;
    for field in names.iter_from(0) {
        let stored = fields::live(context, &meta, field)?;
        context.out.bulk_or_null(stored.as_ref().map(|stored| &*stored.value));
        if let Some(stored) = stored {
            fields::remove(context, &mut meta, field, stored.end_ms);
        }
    }
    if meta.count < before {
        fields::put_hash(context, args.at(1), (&meta, expires), "hdel");
    }
    Ok(())
}

/// What a field's end becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// What it was.
    Kept,
    /// This moment, 0 for none.
    At(u64),
}

/// What stands before the word `FIELDS` in `HGETEX` and `HSETEX`, and where that word is.
struct Before {
    end: Option<End>,
    only_if_absent: bool,
    only_if_present: bool,
    fields: usize,
}

fn read_before(args: Args<'_>, now_ms: u64, name: &str, sets: bool) -> Result<Before, Fault> {
    let mut found = Before { end: None, only_if_absent: false, only_if_present: false, fields: 2 };
    while let Some(word) = args.get(found.fields) {
        let is = |name: &str| is_word(word, name);
        let is_free = !found.only_if_absent && !found.only_if_present;
        if is("fields") {
            return Ok(found);
        } else if sets && is("fnx") && is_free {
            found.only_if_absent = true;
        } else if sets && is("fxx") && is_free {
            found.only_if_present = true;
        } else if found.end.is_some() {
            return Err(SYNTAX.into());
        } else if sets && is("keepttl") {
            found.end = Some(End::Kept);
        } else if !sets && is("persist") {
            found.end = Some(End::At(0));
        } else {
            let unit = TimeUnit::of_option(word).ok_or(SYNTAX)?;
            found.fields += 1;
            let end_ms = end_of(unit, args.get(found.fields).ok_or(SYNTAX)?, now_ms, name)?;
            found.end = Some(End::At(end_ms.max(1)));
        }
        found.fields += 1;
    }
    Ok(found)
}

/// `HGETEX`.
pub(super) fn hgetex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.read(args.at(1), Kind::Hash)?;
    let before = read_before(args, context.txn.now_ms, "hgetex", false)?;
    let names = fields_at(args, before.fields, 1, NOT_POSITIVE)?;
    context.check_length(names.len() as u64)?;
    let found = context.edit_collection(args.at(1), Kind::Hash)?;
    context.out.array(names.len());
    let Some((meta, expires)) = found else {
        names.iter_from(0).for_each(|_| context.out.null());
        return Ok(());
    };
    let mut changes = Changes::new(args.at(1), meta);
    for field in names.iter_from(0) {
        let stored = fields::live(context, &changes.meta, field)?;
        context.out.bulk_or_null(stored.as_ref().map(|stored| &*stored.value));
        if let (Some(stored), Some(End::At(end_ms))) = (stored, before.end) {
            changes.give(context, field, (stored.end_ms, end_ms))?;
        }
    }
    changes.end(context, expires);
    Ok(())
}

/// Returns true if the fields are there, or are not, as is asked.
fn fits(
    context: &Context<'_, '_>,
    meta: Option<&Meta>,
    pairs: Args<'_>,
    before: &Before,
) -> Result<bool, Fault> {
    if !before.only_if_absent && !before.only_if_present {
        return Ok(true);
    }
    for field in pairs.iter_from(0).step_by(2) {
        let is_there = match meta {
            Some(meta) => fields::live(context, meta, field)?.is_some(),
            None => false,
        };
        if is_there != before.only_if_present {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `HSETEX`: all fields or none.
pub(super) fn hsetex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let key = args.at(1);
    let meta = context.collection(key, Kind::Hash)?;
    let before = read_before(args, context.txn.now_ms, "hsetex", true)?;
    let pairs = fields_at(args, before.fields, 2, NOT_POSITIVE)?;
    context.check_length(pairs.len() as u64)?;
    for field in pairs.iter_from(0).step_by(2) {
        check_member(field)?;
    }
    if !fits(context, meta.as_ref(), pairs, &before)? {
        context.out.int(0);
        return Ok(());
    }
    let (meta, expires) = context.make_collection(key, Kind::Hash)?;
    let mut changes = Changes::new(key, meta);
    for at in (0..pairs.len()).step_by(2) {
        let (field, value) = (pairs.at(at), pairs.at(at + 1));
        let stored = fields::stored(context, &changes.meta, field)?;
        let now_ms = context.txn.now_ms;
        let before_ms = stored.as_ref().map_or(0, |stored| stored.end_ms);
        let is_live = stored.as_ref().is_some_and(|stored| stored.is_live(now_ms));
        changes.meta.count += u64::from(stored.is_none());
        context.txn.put_member(member::field(changes.meta.id, field), value.to_vec());
        match before.end {
            Some(End::Kept) if is_live => {}
            Some(End::At(end_ms)) => {
                changes.give(context, field, (before_ms, end_ms))?;
            }
            _ => fields::forget_end(context, &changes.meta, field, before_ms),
        }
    }
    context.txn.put_meta(key, Kind::Hash, &changes.meta, expires);
    context.txn.notify(KeyEvent::hash("hset"), key);
    changes.end(context, expires);
    context.out.int(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_those_of_redis() {
        let all =
            [Condition::NoneBefore, Condition::SomeBefore, Condition::Later, Condition::Earlier];
        let allowed = |before, new| all.map(|condition| condition.allows(before, new));
        assert_eq!(allowed(0, 5), [true, false, false, true]);
        assert_eq!(allowed(5, 6), [false, true, true, false]);
        assert_eq!(allowed(5, 5), [false, true, false, false]);
        assert_eq!(allowed(5, 4), [false, true, false, true]);
    }

    #[test]
    fn ends_have_a_last_moment() {
        let at = |unit, text: &str| end_of(unit, text.as_bytes(), 1000, "hexpire").ok();
        assert_eq!(at(TimeUnit::Seconds, "2"), Some(3000));
        assert_eq!(at(TimeUnit::MillisecondsAt, "70368744177663"), Some(70_368_744_177_663));
        assert_eq!(at(TimeUnit::MillisecondsAt, "70368744177664"), None);
        assert_eq!(at(TimeUnit::Seconds, "9223372036854775807"), None);
        assert_eq!(at(TimeUnit::Milliseconds, "-1"), None);
    }
}
