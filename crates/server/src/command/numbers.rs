//! Strings as numbers.

use super::{
    Context, Done, NOT_A_FLOAT,
    decimal::{self, Number},
    integer,
};
use crate::{
    encode::{Entry, Kind},
    fault::Fault,
    key_event::KeyEvent,
    resp::{Args, number::i64_bytes},
};

fn add(context: &mut Context<'_, '_>, key: &[u8], by: i64) -> Done {
    let before = context.edit(key, Kind::String)?;
    let old = before.as_ref().map_or(Ok(0), |before| integer(before.bytes()))?;
    let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    let expires = before.as_ref().map_or(0, |before| before.expires_ms);
    context.txn.put_string(key, before.as_ref(), &i64_bytes(new), expires)?;
    context.txn.notify(KeyEvent::string("incrby"), key);
    context.out.int(new);
    Ok(())
}

/// `INCR`.
pub(super) fn incr(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    add(context, args.at(1), 1)
}

/// `DECR`.
pub(super) fn decr(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    add(context, args.at(1), -1)
}

/// `INCRBY`.
pub(super) fn incrby(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    add(context, args.at(1), integer(args.at(2))?)
}

/// `DECRBY`.
pub(super) fn decrby(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let by = integer(args.at(2))?;
    let by = by.checked_neg().ok_or("ERR decrement would overflow")?;
    add(context, args.at(1), by)
}

/// `INCRBYFLOAT`.
pub(super) fn incrbyfloat(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let before = context.edit(args.at(1), Kind::String)?;
    let old = before.as_ref().map_or(&b"0"[..], Entry::bytes);
    let new = add_floats(old, args.at(2), NOT_A_FLOAT)?;
    let expires = before.as_ref().map_or(0, |before| before.expires_ms);
    context.txn.put_string(args.at(1), before.as_ref(), new.as_bytes(), expires)?;
    context.txn.notify(KeyEvent::string("incrbyfloat"), args.at(1));
    context.out.bulk(new.as_bytes());
    Ok(())
}

/// The sum of two decimal numbers, written without an exponent and with at most 17 places: exact
/// but for the places that follow. Redis adds in floats of 64 bits' precision and so agrees
/// wherever those are exact enough.
pub(super) fn add_floats(
    old: &[u8],
    by: &[u8],
    old_refused: &'static str,
) -> Result<String, Fault> {
    let old = decimal::parse(old).ok_or(old_refused)?;
    let by = decimal::parse(by).ok_or(NOT_A_FLOAT)?;
    let sum = match (old, by) {
        (Number::Finite(old), Number::Finite(by)) => old.plus(&by).to_text(),
        _ => None,
    };
    sum.ok_or_else(|| "ERR increment would produce NaN or Infinity".into())
}

/// Checks what is to be added to a hash's field, before the field is read.
pub(super) fn check_addend(by: &[u8]) -> Result<(), Fault> {
    match decimal::parse(by).ok_or(NOT_A_FLOAT)? {
        Number::Finite(_) => Ok(()),
        Number::Infinite => Err("ERR value is NaN or Infinity".into()),
    }
}

/// The sum of two integers in a hash's field.
pub(super) fn add_integers(old: &[u8], by: i64) -> Result<i64, Fault> {
    let old = integer(old).map_err(|_| "ERR hash value is not an integer")?;
    old.checked_add(by).ok_or_else(|| "ERR increment or decrement would overflow".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> String {
        add_floats(a.as_bytes(), b.as_bytes(), NOT_A_FLOAT).unwrap()
    }

    #[test]
    fn decimal_sums_are_exact() {
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("10.50", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "2.0e2"), "5200");
        assert_eq!(sum("3", "-3"), "0");
        assert_eq!(sum("-1.5", "1"), "-0.5");
        assert_eq!(sum("3.0", "1.100000000000000000000"), "4.1");
        assert_eq!(sum("1e20", "1"), "100000000000000000001");
        assert_eq!(sum("0.1", "2e-1"), "0.3");
        assert_eq!(sum("1234567890.12345", "1e-05"), "1234567890.12346");
        assert_eq!(sum("9007199254740993", "1e0"), "9007199254740994");
        assert_eq!(sum("123456789012345678901234567890", "1E+0"), "123456789012345678901234567891");
        assert_eq!(sum("-1e3", ".5"), "-999.5");
        assert_eq!(sum("5.", "-0.25e1"), "2.5");
        assert_eq!(sum("0", "1e-400"), "0");
        assert_eq!(sum("0", "1.5e-17"), "0.00000000000000002");
        assert_eq!(sum("0", "2.5e-17"), "0.00000000000000002");
        assert_eq!(sum("0", "-0.4e-17"), "0");
        assert_eq!(sum("3.5", "1e-17"), "3.50000000000000001");
        assert_eq!(sum("0.99999999999999999", "0.9e-17"), "1");
        assert_eq!(sum("1e400", "1"), format!("1{}1", "0".repeat(399)));
        for text in ["1e", "e1", ".", "1_0", "", " 1", "1 ", "nan", "1e5000", "1e-5000", "0x10"] {
            assert!(add_floats(b"1", text.as_bytes(), NOT_A_FLOAT).is_err(), "{text:?}");
        }
        let long = [b'9'; 6000];
        assert!(add_floats(b"1", &long, NOT_A_FLOAT).is_err());
        assert!(add_floats(b"1", b"1e99999999999999999999", NOT_A_FLOAT).is_err());
        assert!(add_floats(b"1e4932", b"9e4931", NOT_A_FLOAT).is_err());
        assert!(add_floats(b"1", b"inf", NOT_A_FLOAT).is_err());
        assert!(add_floats(b"a", b"1", NOT_A_FLOAT).is_err());
    }
}
