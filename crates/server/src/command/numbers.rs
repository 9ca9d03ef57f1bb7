//! Strings as numbers.

use super::{Context, Done, Fault, NOT_A_FLOAT, integer};
use crate::{
    encode::{Entry, Kind},
    resp::{
        Args,
        number::{i64_bytes, parse_f64},
    },
};

fn add(context: &mut Context<'_, '_>, key: &[u8], by: i64) -> Done {
    let before = context.edit(key, Kind::String)?;
    let old = before.as_ref().map_or(Ok(0), |before| integer(before.bytes()))?;
    let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    let expires = before.as_ref().map_or(0, |before| before.expires_ms);
    context.txn.put_string(key, before.as_ref(), &i64_bytes(new), expires)?;
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
    context.out.bulk(new.as_bytes());
    Ok(())
}

/// Decimal places that are kept, as in Redis.
const PLACES: usize = 17;

/// The sum of two decimal numbers, written without an exponent and with at most 17 places.
///
/// Exact where both have at most 17 places and 20 digits before them, as nearly all have; else in
/// floats. Redis adds in floats of 64 bits' precision and so agrees wherever those are exact enough.
pub(super) fn add_floats(
    old: &[u8],
    by: &[u8],
    old_refused: &'static str,
) -> Result<String, Fault> {
    let by_float = parse_f64(by).ok_or(NOT_A_FLOAT)?;
    let old_float = parse_f64(old).ok_or(old_refused)?;
    if let (Some(a), Some(b)) = (fixed(old), fixed(by))
        && let Some(sum) = a.checked_add(b)
    {
        return Ok(format_fixed(sum));
    }
    let sum = old_float + by_float;
    if !sum.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    let text = format!("{sum:.PLACES$}");
    Ok(trim_zeros(&text).to_owned())
}

/// A decimal number in units of 10^-17; none if it has more places or digits, or an exponent.
fn fixed(text: &[u8]) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
    let kept = fraction.iter().rposition(|byte| *byte != b'0').map_or(0, |last| last + 1);
    let fraction = &fraction[..kept];
    if whole.len() > 20 || fraction.len() > PLACES {
        return None;
    }
    let mut number = 0_i128;
    for byte in whole.iter().chain(fraction) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i128::from(digit);
    }
    // At most 37 digits: below 2^127.
    number *= 10_i128.pow((PLACES - fraction.len()) as u32);
    Some(if negative { -number } else { number })
}

fn format_fixed(number: i128) -> String {
    let unit = 10_u128.pow(PLACES as u32);
    let magnitude = number.unsigned_abs();
    let sign = if number < 0 { "-" } else { "" };
    let text = format!("{sign}{}.{:0PLACES$}", magnitude / unit, magnitude % unit);
    trim_zeros(&text).to_owned()
}

fn trim_zeros(text: &str) -> &str {
    if !text.contains('.') {
        return text;
    }
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0",
        text => text,
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
        assert_eq!(sum("1e20", "1"), "100000000000000000000");
        assert!(add_floats(b"1", b"inf", NOT_A_FLOAT).is_err());
        assert!(add_floats(b"a", b"1", NOT_A_FLOAT).is_err());
    }
}
