//! `BITFIELD`: integers of any width at any place of a string.

use super::{
    Context, Done, STRING_TOO_LONG, SYNTAX,
    bits::{elements_of, offset},
    integer, is_word,
    strings::STRING_BYTES_MAX,
};
use crate::{
    encode::{Edited, Entry, Kind},
    fault::Fault,
    key_event::KeyEvent,
    resp::{Args, number::parse_i64},
};

const BAD_TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is \
                        not supported but i64 is.";

/// An integer's type: how many bits, and whether one is the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    bits: u32,
    signed: bool,
}

impl Width {
    /// A number for a signed field as Redis reads it: the difference to the largest one of the
    /// field has 64 bits there, so that a very small number is taken for a very large one.
    fn as_redis(self, number: i64) -> i128 {
        let (_, most) = self.bounds();
        let is_large = self.bits < 64 && (most as i64).wrapping_sub(number) < 0;
        if is_large { i128::from(number as u64) } else { i128::from(number) }
    }

    fn of(text: &[u8]) -> Result<Self, Fault> {
        let (signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(BAD_TYPE.into()),
        };
        let most = if signed { 64 } else { 63 };
        let bits = parse_i64(digits).filter(|bits| (1..=most).contains(bits)).ok_or(BAD_TYPE)?;
        Ok(Self { bits: bits as u32, signed })
    }

    /// The least and the greatest number.
    fn bounds(self) -> (i128, i128) {
        let all = 1_i128 << self.bits;
        if self.signed { (-(all / 2), all / 2 - 1) } else { (0, all - 1) }
    }

    /// A number as it is after it went round.
    fn wrap(self, number: i128) -> i128 {
        let (least, _) = self.bounds();
        (number - least).rem_euclid(1 << self.bits) + least
    }

    /// The integer at a place; zeros follow the bytes.
    fn read(self, bytes: &[u8], at: u64) -> i128 {
        let first = (at >> 3) as usize;
        // 64 bits lie in nine bytes.
        let mut window = [0; 16];
        if let Some(rest) = bytes.get(first..) {
            let len = rest.len().min(9);
            window[..len].copy_from_slice(&rest[..len]);
        }
        let aligned = u128::from_be_bytes(window) << (at & 7);
        self.wrap((aligned >> (128 - self.bits)) as i128)
    }

    /// Puts an integer at a place, which is within the bytes.
    fn write(self, bytes: &mut [u8], at: u64, number: i128) {
        let first = (at >> 3) as usize;
        let rest = &mut bytes[first..];
        let len = rest.len().min(9);
        let mut window = [0; 16];
        window[..len].copy_from_slice(&rest[..len]);
        let shift = 128 - self.bits - (at & 7) as u32;
        let mask = ((1_u128 << self.bits) - 1) << shift;
        let value = ((number as u128) << shift) & mask;
        let window = (u128::from_be_bytes(window) & !mask | value).to_be_bytes();
        rest[..len].copy_from_slice(&window[..len]);
    }
}

/// What is done with a number that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    fn of(word: &[u8]) -> Result<Self, Fault> {
        let all = [("wrap", Self::Wrap), ("sat", Self::Saturate), ("fail", Self::Fail)];
        let found = all.into_iter().find(|(name, _)| is_word(word, name));
        found.map(|(_, found)| found).ok_or_else(|| "ERR Invalid OVERFLOW type specified".into())
    }

    /// The number that is written; none if none is.
    fn fit(self, width: Width, number: i128) -> Option<i128> {
        let (least, most) = width.bounds();
        match self {
            _ if (least..=most).contains(&number) => Some(number),
            Self::Wrap => Some(width.wrap(number)),
            Self::Saturate => Some(number.clamp(least, most)),
            Self::Fail => None,
        }
    }
}

/// What is done with an integer of the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    width: Width,
    at: u64,
    action: Action,
    overflow: Overflow,
}

fn steps(args: Args<'_>) -> Result<Vec<Step>, Fault> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while let Some(word) = args.get(at) {
        let left = args.len() - at - 1;
        let is = |name| is_word(word, name);
        if is("overflow") && left >= 1 {
            overflow = Overflow::of(args.at(at + 1))?;
            at += 2;
            continue;
        }
        let gets = is("get");
        if !(gets && left >= 2 || (is("set") || is("incrby")) && left >= 3) {
            return Err(SYNTAX.into());
        }
        let width = Width::of(args.at(at + 1))?;
        let place = offset(args.at(at + 2), width.bits)?;
        let action = match gets {
            true => Action::Get,
            false if is("set") => Action::Set(integer(args.at(at + 3))?),
            false => Action::Add(integer(args.at(at + 3))?),
        };
        steps.push(Step { width, at: place, action, overflow });
        at += if gets { 3 } else { 4 };
    }
    Ok(steps)
}

/// The bytes that the steps write to, if any does; some may lie past the string's end.
fn bytes_written(steps: &[Step]) -> Option<usize> {
    let writes = steps.iter().filter(|step| step.action != Action::Get);
    writes.map(|step| ((step.at + u64::from(step.width.bits) - 1) >> 3) as usize + 1).max()
}

impl Step {
    /// What is replied, and what is written.
    fn take(&self, old: i128) -> (Option<i128>, Option<i128>) {
        let (asked, replies_old) = match self.action {
            Action::Get => return (Some(old), None),
            Action::Add(by) => (old + i128::from(by), false),
            Action::Set(number) if self.width.signed => (self.width.as_redis(number), true),
            // As Redis reads it: a negative number is a very large one.
            Action::Set(number) => (i128::from(number as u64), true),
        };
        let new = self.overflow.fit(self.width, asked);
        (new.map(|new| if replies_old { old } else { new }), new)
    }
}

fn reply(context: &mut Context<'_, '_>, number: Option<i128>) {
    match number {
        // At most 64 bits with the sign.
        Some(number) => context.out.int(number as i64),
        None => context.out.null(),
    }
}

fn read(context: &mut Context<'_, '_>, key: &[u8], steps: &[Step]) -> Done {
    let entry = context.read(key, Kind::String)?;
    let bytes = entry.as_ref().map_or(&[][..], Entry::bytes);
    context.check_length(steps.len() as u64)?;
    context.out.array(steps.len());
    for step in steps {
        let (number, _) = step.take(step.width.read(bytes, step.at));
        reply(context, number);
    }
    Ok(())
}

/// `BITFIELD`.
pub(super) fn bitfield(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (key, steps) = (args.at(1), steps(args)?);
    let Some(len) = bytes_written(&steps) else { return read(context, key, &steps) };
    if len > STRING_BYTES_MAX {
        return Err(STRING_TOO_LONG.into());
    }
    let before = context.edit(key, Kind::String)?;
    let old = before.as_ref().map_or(0, |before| before.bytes().len());
    context.check_length(steps.len() as u64 + elements_of(old.max(len)))?;
    let grows = len > old;
    let mut string = Edited::of(before.as_ref(), len);
    string.lengthen(len);
    let mut changes = false;
    context.out.array(steps.len());
    for step in &steps {
        let old = step.width.read(string.bytes(), step.at);
        let (number, new) = step.take(old);
        reply(context, number);
        if let Some(new) = new {
            changes |= grows || new != old;
            step.width.write(string.bytes_mut(), step.at, new);
        }
    }
    if grows || changes {
        context.txn.put_edited(key, before.as_ref(), string)?;
    }
    if changes {
        context.txn.notify(KeyEvent::string("setbit"), key);
    }
    Ok(())
}

/// `BITFIELD_RO`.
pub(super) fn bitfield_ro(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let steps = steps(args)?;
    if bytes_written(&steps).is_some() {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    read(context, args.at(1), &steps)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn types_have_at_most_64_bits() {
        assert_eq!(Width::of(b"i64").unwrap(), Width { bits: 64, signed: true });
        assert_eq!(Width::of(b"u63").unwrap().bounds(), (0, i128::from(i64::MAX)));
        for text in ["u64", "i65", "i0", "u-1", "x8", "", "i", "I8"] {
            assert!(Width::of(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_fail() {
        let i8 = Width { bits: 8, signed: true };
        let u2 = Width { bits: 2, signed: false };
        assert_eq!(Overflow::Wrap.fit(i8, 128), Some(-128));
        assert_eq!(Overflow::Saturate.fit(i8, -200), Some(-128));
        assert_eq!(Overflow::Fail.fit(i8, 128), None);
        assert_eq!(Overflow::Wrap.fit(u2, -1), Some(3));
        assert_eq!(Overflow::Saturate.fit(u2, -1), Some(0));
        assert_eq!(Overflow::Fail.fit(u2, 3), Some(3));
        let i5 = Width { bits: 5, signed: true };
        let saturated = |number| Overflow::Saturate.fit(i5, i5.as_redis(number)).unwrap();
        assert_eq!(
            [i64::MAX, 16, -17, i64::MIN + 16, i64::MIN + 15].map(saturated),
            [15, 15, -16, -16, 15]
        );
        assert_eq!(Overflow::Wrap.fit(i5, i5.as_redis(i64::MIN + 3)), Some(3));
    }

    proptest! {
        #[test]
        fn integers_are_read_where_they_were_written(
            mut bytes in prop::collection::vec(any::<u8>(), 24),
            at in 0_u64..120,
            bits in 1_u32..=64,
            signed: bool,
            number: i64,
        ) {
            let width = Width { bits: if signed { bits } else { bits.min(63) }, signed };
            let number = width.wrap(number.into());
            let before = bytes.clone();
            width.write(&mut bytes, at, number);
            prop_assert_eq!(width.read(&bytes, at), number);
            // Everything else is as it was.
            width.write(&mut bytes, at, width.read(&before, at));
            prop_assert_eq!(bytes, before);
        }
    }
}
