//! Times at which keys end.
//!
//! A key ends at its time for every reader; the sweeper takes its bytes away later.

use super::{Context, Done, integer, is_word};
use crate::{encode::Entry, fault::Fault, key_event::KeyEvent, resp::Args};

/// A key was given a time of expiry.
pub(super) const EXPIRE: KeyEvent = KeyEvent::generic("expire");

/// How an argument says when a key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
    SecondsAt,
    MillisecondsAt,
}

impl TimeUnit {
    /// The unit that an option of `SET` and `GETEX` names.
    pub(super) fn of_option(option: &[u8]) -> Option<Self> {
        let units = [
            ("ex", Self::Seconds),
            ("px", Self::Milliseconds),
            ("exat", Self::SecondsAt),
            ("pxat", Self::MillisecondsAt),
        ];
        units.into_iter().find(|(word, _)| is_word(option, word)).map(|(_, unit)| unit)
    }

    /// The moment in milliseconds since 1970, which may be past; none if there is no such moment.
    fn moment(self, time: i64, now_ms: u64) -> Option<i64> {
        let now = i64::try_from(now_ms).ok()?;
        match self {
            Self::Seconds => time.checked_mul(1000)?.checked_add(now),
            Self::Milliseconds => time.checked_add(now),
            Self::SecondsAt => time.checked_mul(1000),
            Self::MillisecondsAt => Some(time),
        }
    }

    /// The moment that the option of the command `name` says, as what a key is given.
    pub(super) fn time_of(self, text: &[u8], now_ms: u64, name: &str) -> Result<u64, Fault> {
        let time = integer(text)?;
        let moment = Some(time).filter(|time| *time > 0).and_then(|time| self.moment(time, now_ms));
        let moment = moment.and_then(|moment| u64::try_from(moment).ok());
        moment.ok_or_else(|| format!("ERR invalid expire time in '{name}' command").into())
    }
}

/// Gives a key another time of expiry; one that is past removes the key.
pub(super) fn give(
    context: &mut Context<'_, '_>,
    key: &[u8],
    entry: &Entry,
    expires_ms: u64,
) -> Done {
    if expires_ms <= context.txn.now_ms {
        context.txn.delete(key, entry)?;
        context.txn.notify(KeyEvent::generic("del"), key);
    } else {
        context.txn.put_expiry(key, entry, expires_ms)?;
        context.txn.notify(EXPIRE, key);
    }
    Ok(())
}

/// Takes a key's time of expiry away, if it has one.
pub(super) fn take(context: &mut Context<'_, '_>, key: &[u8], entry: &Entry) -> Done {
    if entry.expires_ms != 0 {
        context.txn.put_expiry(key, entry, 0)?;
        context.txn.notify(KeyEvent::generic("persist"), key);
    }
    Ok(())
}

/// When `EXPIRE` and its kin change anything.
#[derive(Default)]
struct Conditions {
    none_before: bool,
    some_before: bool,
    later: bool,
    earlier: bool,
}

fn conditions(args: Args<'_>) -> Result<Conditions, Fault> {
    let mut found = Conditions::default();
    for option in args.iter_from(3) {
        let is = |word| is_word(option, word);
        if is("nx") {
            found.none_before = true;
        } else if is("xx") {
            found.some_before = true;
        } else if is("gt") {
            found.later = true;
        } else if is("lt") {
            found.earlier = true;
        } else {
            return Err(
                format!("ERR Unsupported option {}", String::from_utf8_lossy(option)).into()
            );
        }
    }
    if found.none_before && (found.some_before || found.later || found.earlier) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if found.later && found.earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(found)
}

impl Conditions {
    /// Returns true if a key whose time is `before`, 0 for none, may be given `new`.
    fn allow(&self, before: u64, new: i64) -> bool {
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let never = before == 0;
        !(self.none_before && !never
            || self.some_before && never
            || self.later && (never || new <= before)
            || self.earlier && !never && new >= before)
    }
}

fn expire_by(context: &mut Context<'_, '_>, args: Args<'_>, unit: TimeUnit, name: &str) -> Done {
    let conditions = conditions(args)?;
    let time = integer(args.at(2))?;
    let moment = unit
        .moment(time, context.txn.now_ms)
        .ok_or_else(|| Fault::from(format!("ERR invalid expire time in '{name}' command")))?;
    let entry = context.txn.edit(args.at(1))?;
    let Some(entry) = entry.filter(|entry| conditions.allow(entry.expires_ms, moment)) else {
        context.out.int(0);
        return Ok(());
    };
    // What is before 1970 is past as well.
    let expires = u64::try_from(moment).unwrap_or(0).max(1);
    give(context, args.at(1), &entry, expires)?;
    context.out.int(1);
    Ok(())
}

/// `EXPIRE`.
pub(super) fn expire(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire_by(context, args, TimeUnit::Seconds, "expire")
}

/// `PEXPIRE`.
pub(super) fn pexpire(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire_by(context, args, TimeUnit::Milliseconds, "pexpire")
}

/// `EXPIREAT`.
pub(super) fn expireat(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire_by(context, args, TimeUnit::SecondsAt, "expireat")
}

/// `PEXPIREAT`.
pub(super) fn pexpireat(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    expire_by(context, args, TimeUnit::MillisecondsAt, "pexpireat")
}

fn reply_time(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    time: impl FnOnce(u64, u64) -> u64,
) -> Done {
    let reply = match context.txn.read(args.at(1))? {
        None => -2,
        Some(entry) if entry.expires_ms == 0 => -1,
        Some(entry) => {
            i64::try_from(time(entry.expires_ms, context.txn.now_ms)).unwrap_or(i64::MAX)
        }
    };
    context.out.int(reply);
    Ok(())
}

/// `TTL`.
pub(super) fn ttl(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_time(context, args, |expires, now| (expires - now).saturating_add(500) / 1000)
}

/// `PTTL`.
pub(super) fn pttl(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_time(context, args, |expires, now| expires - now)
}

/// `EXPIRETIME`.
pub(super) fn expiretime(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_time(context, args, |expires, _| expires.saturating_add(500) / 1000)
}

/// `PEXPIRETIME`.
pub(super) fn pexpiretime(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_time(context, args, |expires, _| expires)
}

/// `PERSIST`.
pub(super) fn persist(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let entry = context.txn.edit(args.at(1))?.filter(|entry| entry.expires_ms != 0);
    context.out.int(entry.is_some().into());
    entry.map_or(Ok(()), |entry| take(context, args.at(1), &entry))
}
