//! Decimal numbers with any exponent that Redis takes, and their exact sums.
//!
//! Redis keeps what `INCRBYFLOAT` adds in floats of 80 bits, whose exponents bound the numbers
//! here. A sum has some ten thousand digits at most.

/// Decimal places that are kept, as in Redis.
const PLACES: i32 = 17;

/// A longer text is no number: the size of the buffer that Redis reads one in.
const TEXT_BYTES_MAX: usize = 5 * 1024;

/// The largest float of 80 bits: its exponent, and its first digits.
const LARGEST: (i32, &[u8]) = (4932, b"11897314953572317650");

/// Half the smallest float of 80 bits, below which a number is 0 there: its exponent, and its first
/// digits.
const SMALLEST: (i32, &[u8]) = (-4951, b"18225997659412373012");

/// What a text says.
pub(super) enum Number {
    Finite(Decimal),
    Infinite,
}

/// The digits of a number, the first one and the last one not 0, times ten to the `exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    /// Digits as numbers, the highest first; none for 0.
    digits: Vec<u8>,
    exponent: i32,
}

/// Reads a number; none for what C's `strtold` does not take whole, spaces, hexadecimal and NaN,
/// and for what is too large or too small for a float of 80 bits. O(length).
pub(super) fn parse(text: &[u8]) -> Option<Number> {
    if text.len() >= TEXT_BYTES_MAX {
        return None;
    }
    let (is_negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        return Some(Number::Infinite);
    }
    let end = rest.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(rest.len());
    let (mantissa, exponent) = (&rest[..end], rest.get(end + 1..));
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let (whole, fraction) = (&mantissa[..point], mantissa.get(point + 1..).unwrap_or_default());
    let digits: Vec<u8> =
        whole.iter().chain(fraction).map(|byte| byte.wrapping_sub(b'0')).collect();
    if digits.is_empty() || digits.iter().any(|digit| *digit > 9) {
        return None;
    }
    let exponent = exponent.map_or(Some(0), parse_exponent)?;
    // Less than 5,120 places: no overflow.
    let number = Decimal::new(is_negative, digits, exponent - fraction.len() as i32);
    (!number.is_too_large() && !number.is_too_small()).then_some(Number::Finite(number))
}

/// Reads an exponent; one that is out of every range stays so.
fn parse_exponent(text: &[u8]) -> Option<i32> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |number: i32, digit: &u8| (number * 10 + i32::from(digit - b'0')).min(1_000_000);
    let magnitude = digits.iter().fold(0, add);
    Some(if is_negative { -magnitude } else { magnitude })
}

impl Decimal {
    /// The number of these digits, which may begin and end with 0.
    fn new(is_negative: bool, mut digits: Vec<u8>, exponent: i32) -> Self {
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        let kept = digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        let exponent = exponent + (digits.len() - kept) as i32;
        digits.truncate(kept);
        Self { is_negative, digits, exponent }
    }

    /// The exponent of the first digit, and the digits, for comparisons.
    fn magnitude(&self) -> (i32, &[u8]) {
        (self.exponent + self.digits.len() as i32 - 1, &self.digits)
    }

    fn is_above(&self, (exponent, digits): (i32, &[u8])) -> bool {
        let (own_exponent, own) = self.magnitude();
        let digits = digits.iter().map(|digit| digit - b'0');
        !own.is_empty()
            && (own_exponent > exponent
                || (own_exponent == exponent && own.iter().copied().gt(digits)))
    }

    fn is_too_large(&self) -> bool {
        self.is_above(LARGEST)
    }

    fn is_too_small(&self) -> bool {
        !self.digits.is_empty() && !self.is_above(SMALLEST)
    }

    /// The digits in units of ten to the `exponent`, which is at most that of the number.
    fn in_units(&self, exponent: i32) -> Vec<u8> {
        let zeros = usize::try_from(self.exponent - exponent).unwrap_or(0);
        let mut digits = self.digits.clone();
        digits.resize(digits.len() + zeros, 0);
        digits
    }

    /// The sum, exact. O(digits and zeros between both).
    pub(super) fn plus(&self, other: &Self) -> Self {
        if self.digits.is_empty() || other.digits.is_empty() {
            return if self.digits.is_empty() { other.clone() } else { self.clone() };
        }
        let exponent = self.exponent.min(other.exponent);
        let (mut large, mut small) = (self.in_units(exponent), other.in_units(exponent));
        let mut is_negative = self.is_negative;
        if (large.len(), &large) < (small.len(), &small) {
            std::mem::swap(&mut large, &mut small);
            is_negative = other.is_negative;
        }
        let is_sum = self.is_negative == other.is_negative;
        let (mut digits, mut carry) = (Vec::with_capacity(large.len() + 1), 0);
        let small = small.iter().rev().copied().chain(std::iter::repeat(0));
        for (a, b) in large.iter().rev().zip(small) {
            let digit = i16::from(*a) + if is_sum { i16::from(b) } else { -i16::from(b) } + carry;
            carry = digit.div_euclid(10);
            digits.push(digit.rem_euclid(10) as u8);
        }
        // Of a difference nothing is carried: the larger number comes first.
        digits.push(carry as u8);
        digits.reverse();
        Self::new(is_negative, digits, exponent)
    }

    /// The number without an exponent, its places after the seventeenth rounded, to even where it
    /// lies in the middle; none if it is too large for a float of 80 bits.
    pub(super) fn to_text(&self) -> Option<String> {
        if self.is_too_large() {
            return None;
        }
        let number = self.rounded();
        if number.digits.is_empty() {
            return Some("0".to_owned());
        }
        let digit = |digit: &u8| char::from(b'0' + digit);
        let point = number.exponent + number.digits.len() as i32;
        let (whole, fraction) =
            number.digits.split_at(usize::try_from(point).unwrap_or(0).min(number.digits.len()));
        let mut text = String::from(if number.is_negative { "-" } else { "" });
        text.extend(whole.iter().map(digit));
        text.extend((0..number.exponent).map(|_| '0'));
        if point <= 0 {
            text.push('0');
        }
        if !fraction.is_empty() {
            text.push('.');
            text.extend((point..0).map(|_| '0'));
            text.extend(fraction.iter().map(digit));
        }
        Some(text)
    }

    fn rounded(&self) -> Self {
        let Ok(surplus @ 1..) = usize::try_from(-PLACES - self.exponent) else {
            return self.clone();
        };
        let Some(kept) = self.digits.len().checked_sub(surplus) else {
            // Less than a tenth of the last place.
            return Self::new(false, Vec::new(), 0);
        };
        let (kept, cut) = self.digits.split_at(kept);
        let is_odd = kept.last().is_some_and(|digit| digit % 2 == 1);
        // The last digit is not 0, so that five and more digits are more than the middle.
        let is_up = cut[0] > 5 || (cut[0] == 5 && (cut.len() > 1 || is_odd));
        let down = Self::new(self.is_negative, kept.to_vec(), -PLACES);
        if is_up { down.plus(&Self::new(self.is_negative, vec![1], -PLACES)) } else { down }
    }
}
