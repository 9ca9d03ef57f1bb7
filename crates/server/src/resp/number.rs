//! Numbers as text, as Redis reads and writes them.

/// Reads a decimal integer as Redis does: no sign but `-`, no leading zeros, no spaces.
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude = 0_u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // At most 19 digits: below 10^19, which fits.
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Reads an unsigned decimal integer: digits only.
#[must_use]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a float: what C's `strtod` takes whole, without spaces, hexadecimal and NaN. As in Redis,
/// a number too large or too small for a float is none; `inf` is one.
#[must_use]
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let number = strtod(text)?;
    let is_word = || text.iter().any(|byte| matches!(byte, b'i' | b'I'));
    let is_out_of_range = match number {
        0.0 => has_nonzero_digit(text),
        _ => number.is_infinite() && !is_word(),
    };
    (!is_out_of_range).then_some(number)
}

/// Reads an end of a range of scores. Redis is less strict there: spaces may come first, nothing is
/// 0, and a number too large or too small is infinite or 0.
#[must_use]
pub fn parse_f64_end(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C);
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    strtod(&text[start..])
}

fn strtod(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Returns true if a digit before the exponent is not 0.
fn has_nonzero_digit(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    digits.into_iter().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// Appends a decimal integer.
pub fn push_i64(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    push_u64(out, number.unsigned_abs());
}

/// Appends a decimal integer.
pub fn push_u64(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A decimal integer as bytes.
#[must_use]
pub fn i64_bytes(number: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(20);
    push_i64(&mut out, number);
    out
}

/// A float with at most 17 significant digits, as C's `%.17g` writes it and Redis 7.0 replies.
#[must_use]
pub fn format_f64(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    if !(-4..17).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs());
    }
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{digits}");
    };
    if whole == 0 {
        return format!("{sign}0.{digits}");
    }
    if digits.len() <= whole {
        return format!("{sign}{digits}{}", "0".repeat(whole - digits.len()));
    }
    let (integer, fraction) = digits.split_at(whole);
    format!("{sign}{integer}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for number in [0, 1, -1, 42, i64::MAX, i64::MIN, 1_000_000_007] {
            let mut text = Vec::new();
            push_i64(&mut text, number);
            assert_eq!(text, number.to_string().as_bytes());
            assert_eq!(parse_i64(&text), Some(number));
        }
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "1a", "9223372036854775808"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_i64(b"99999999999999999999"), None);
    }

    #[test]
    fn floats_are_written_as_c_writes_them() {
        let cases = [
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (-3.0, "-3"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.25e-5, "1.2500000000000001e-05"),
            (0.0001, "0.0001"),
            (123456.789, "123456.789"),
            (1e300, "1.0000000000000001e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.5, "0.5"),
            (10.0, "10"),
        ];
        for (number, text) in cases {
            assert_eq!(format_f64(number), text);
        }
    }

    #[test]
    fn floats_are_read_as_c_reads_them() {
        assert_eq!(parse_f64(b"1e3"), Some(1000.0));
        assert_eq!(parse_f64(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_f64(b"+5"), Some(5.0));
        assert_eq!(parse_f64(b"4e-324"), Some(5e-324));
        assert_eq!(parse_f64(b"-0e-500"), Some(0.0));
        assert_eq!(parse_f64(b"Infinity"), Some(f64::INFINITY));
        for text in ["1e400", "-1e309", "1e-400", "2e-324", "0.0001e-330"] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_f64_end(b"-1e400"), Some(f64::NEG_INFINITY));
        assert_eq!((parse_f64_end(b"1e-400"), parse_f64_end(b"")), (Some(0.0), Some(0.0)));
        assert_eq!((parse_f64_end(b" \t1"), parse_f64_end(b" ")), (Some(1.0), None));
        assert_eq!((parse_f64_end(b"nan"), parse_f64_end(b"1 ")), (None, None));
        for text in ["", " 1", "nan", "1x", "0x10"] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
    }
}
