//! The result of a fit: a line in integer fixed point, and the window around its prediction.
//!
//! No floating point: a prediction is the same number on every machine, monotone, and total.

/// A non-decreasing line: `y0 + ((x - x0) * mantissa >> shift)`, with `x - x0` saturating at zero
/// and the result saturating to `0..=u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Line {
    /// The end of the line's floor: every `x` up to here predicts `y0`.
    pub x0: u64,
    /// The height at `x0`. May be negative: predictions below zero read as zero.
    pub y0: i64,
    /// The slope's digits.
    pub mantissa: u32,
    /// The slope is `mantissa / 2^shift`. Shifts of [`Line::SHIFT_MAX`] and more read as
    /// `SHIFT_MAX`.
    pub shift: u8,
}

impl Line {
    /// The largest shift that leaves a non-zero slope for any mantissa: the product has 96 bits.
    pub const SHIFT_MAX: u8 = 95;

    /// The height of the line at `x`. Monotone in `x`; total.
    #[must_use]
    #[inline]
    pub fn at(&self, x: u64) -> u64 {
        let product = u128::from(x.saturating_sub(self.x0)) * u128::from(self.mantissa);
        let rise = product >> self.shift.min(Self::SHIFT_MAX);
        // The rise is below 2^96 and y0 above -2^63, so the sum stays within i128.
        let height = rise as i128 + i128::from(self.y0);
        height.clamp(0, i128::from(u64::MAX)) as u64
    }

    /// The slope as a floating-point number, for people and plots; nothing is placed by it.
    #[must_use]
    pub fn slope(&self) -> f64 {
        f64::from(self.mantissa) * (-f64::from(self.shift.min(Self::SHIFT_MAX))).exp2()
    }

    /// Writes a slope (not negative, finite) as a mantissa of at most `bits` (1 to 32) digits and
    /// a shift, rounded to nearest. Slopes of `2^bits` and more take the digits that they need, up
    /// to 32; beyond the representable, the nearest representable one.
    #[must_use]
    pub fn quantise_slope(slope: f64, bits: u32) -> (u32, u8) {
        let bits = bits.clamp(1, 32);
        if !(slope > 0.0 && slope.is_finite()) {
            return (0, 0);
        }
        // 2^(bits-1) <= slope * 2^shift < 2^bits, as far as the shift reaches.
        let exponent = slope.log2().floor() as i32;
        let shift = (bits as i32 - 1 - exponent).clamp(0, i32::from(Self::SHIFT_MAX));
        let scaled = (slope * f64::from(shift).exp2()).round() as u32;
        // Rounding up to a power of two needs one more digit, which is zero.
        if shift > 0 && bits < 32 && scaled == 1 << bits {
            return (scaled / 2, shift as u8 - 1);
        }
        (scaled, shift as u8)
    }
}

/// The positions from `lo` to `hi`, both included, among which an answer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first position.
    pub lo: u64,
    /// The last position; a place in the order may be one past the last key.
    pub hi: u64,
}

impl Window {
    /// Returns true if `position` is in the window.
    #[must_use]
    #[inline]
    pub fn contains(&self, position: u64) -> bool {
        self.lo <= position && position <= self.hi
    }
}

/// A line fitted to a run of points, with the guarantee on its error.
///
/// **Guarantee.** For every trained point `(x, y)`, `window(x)` contains `y`. For every other `x`,
/// it contains the place of `x` in the order: the `y` of the first trained point above `x`, or
/// `end` if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The fitted line.
    pub line: Line,
    /// The greatest distance of a place below the prediction.
    pub below: u64,
    /// The greatest distance of a place above the prediction.
    pub above: u64,
    /// The `y` of the first trained point.
    pub start: u64,
    /// One past the `y` of the last trained point.
    pub end: u64,
}

impl Segment {
    /// The window around the prediction for `x`: see the type for what it guarantees.
    ///
    /// Constant time. Total for any field values, also where `end < start`.
    #[must_use]
    #[inline]
    pub fn window(&self, x: u64) -> Window {
        let predicted = self.line.at(x);
        let end = self.end.max(self.start);
        Window {
            lo: predicted.saturating_sub(self.below).clamp(self.start, end),
            hi: predicted.saturating_add(self.above).clamp(self.start, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn line_is_monotone_and_total(
            x0: u64, y0: i64, mantissa: u32, shift: u8, a: u64, b: u64,
        ) {
            let line = Line { x0, y0, mantissa, shift };
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(line.at(a) <= line.at(b));
            prop_assert!(line.at(0) <= line.at(u64::MAX));
            prop_assert!(line.slope() >= 0.0);
        }

        #[test]
        fn quantised_slope_is_near(exponent in -60i32..30, fraction in 1.0f64..2.0, bits in 4u32..=32) {
            let slope = fraction * f64::from(exponent).exp2();
            let (mantissa, shift) = Line::quantise_slope(slope, bits);
            let found = Line { mantissa, shift, ..Line::default() }.slope();
            let unit = (f64::from(-i32::from(shift))).exp2();
            prop_assert!((found - slope).abs() <= unit.max(slope * 1e-9), "{} {}", found, slope);
        }
    }

    #[test]
    fn hostile_segment_has_a_window() {
        let segment = Segment {
            line: Line { x0: 9, y0: i64::MIN, mantissa: u32::MAX, shift: 255 },
            below: u64::MAX,
            above: u64::MAX,
            start: 5,
            end: 2,
        };
        for x in [0, 9, u64::MAX] {
            let window = segment.window(x);
            assert!(window.lo <= window.hi);
        }
    }
}
