//! Arguments that several commands read alike: numbers with a least value, times to wait.

use std::time::Duration;

use super::{NOT_AN_INTEGER, decimal, integer};
use crate::{fault::Fault, resp::number};

/// Reads an integer that is at least `least`; everything else is refused with this text.
pub(super) fn at_least(text: &[u8], least: i64, refused: &'static str) -> Result<i64, Fault> {
    let number = number::parse_i64(text).filter(|number| *number >= least);
    number.ok_or_else(|| refused.into())
}

/// Reads an integer whose sign may be taken away.
pub(super) fn either_sign(text: &[u8]) -> Result<i64, Fault> {
    let number = integer(text)?;
    if number == i64::MIN {
        let (least, most) = (-i64::MAX, i64::MAX);
        let text = "ERR value is out of range, value must between";
        return Err(format!("{text} {least} and {most}").into());
    }
    Ok(number)
}

/// Reads how many keys follow, which is at least one.
pub(super) fn keys_counted(text: &[u8]) -> Result<usize, Fault> {
    let count = at_least(text, 1, "ERR numkeys should be greater than 0")?;
    usize::try_from(count).map_err(|_| NOT_AN_INTEGER.into())
}

/// Reads how long a command may wait, in seconds with decimal places: rounded up to a millisecond,
/// as in Redis, and none for 0, which is without end.
pub(super) fn timeout(text: &[u8]) -> Result<Option<Duration>, Fault> {
    const REFUSED: &str = "ERR timeout is not a float or out of range";
    let seconds = match hexadecimal(text) {
        Some(seconds) => seconds as f64,
        None => {
            decimal::parse(text).ok_or(REFUSED)?;
            // What is larger than a float is infinite here, and refused below.
            number::parse_f64_end(text).ok_or(REFUSED)?
        }
    };
    let ms = (seconds * 1000.0).ceil();
    if ms >= i64::MAX as f64 {
        return Err("ERR timeout is out of range".into());
    }
    if ms < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    let ms = ms as u64;
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

/// Reads how long a command may wait, in milliseconds: none for 0, which is without end.
pub(super) fn timeout_ms(text: &[u8]) -> Result<Option<Duration>, Fault> {
    let ms = integer(text).map_err(|_| "ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

/// Reads an integer with `0x` before it.
fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| are_digits)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
        match result {
            Err(Fault::Text(text)) => text.into_owned(),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn timeouts_are_rounded_up_to_a_millisecond() {
        let ms = |text: &str| timeout(text.as_bytes()).unwrap().map(|time| time.as_millis());
        assert_eq!((ms("0"), ms("-0"), ms("0.0")), (None, None, None));
        assert_eq!(
            (ms("1"), ms("0.0001"), ms("1.5"), ms("1e1")),
            (Some(1000), Some(1), Some(1500), Some(10_000))
        );
        for text in ["", "x", "0x", "0x+1", "nan", " 1", "1 "] {
            assert_eq!(
                refused(timeout(text.as_bytes())),
                "ERR timeout is not a float or out of range"
            );
        }
        assert_eq!(ms("0xa"), Some(10_000));
        for text in ["inf", "0x7FFFFFFFFFFFFF", "1e16", "9223372036854776", "1e400"] {
            assert_eq!(refused(timeout(text.as_bytes())), "ERR timeout is out of range", "{text}");
        }
        assert_eq!(refused(timeout(b"-1")), "ERR timeout is negative");
    }
}
