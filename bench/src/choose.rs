//! Which record an operation goes to.

use crate::random::Rng;

/// The skew of YCSB's request distributions.
pub const ZIPF_EXPONENT: f64 = 0.99;

/// Draws ranks `0..n` with probability proportional to `1 / (rank + 1)^exponent`.
///
/// Rejection-inversion (Hörmann and Derflinger 1996): exact, constant expected time and no table,
/// so that 50 million records cost no more to prepare than 50.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: f64,
    exponent: f64,
    area_first: f64,
    area_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// The distribution over `n` ranks.
    ///
    /// # Panics
    /// If `n` is 0, or if `exponent` is not in `(0, 1) ∪ (1, ∞)`.
    #[must_use]
    pub fn new(n: u64, exponent: f64) -> Self {
        assert!(n > 0, "no ranks to draw from");
        assert!(exponent > 0.0 && exponent != 1.0, "exponent {exponent} is not supported");
        let mut zipf =
            Self { n: n as f64, exponent, area_first: 0.0, area_last: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(zipf.n + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank below `n`; 0 is the most likely.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.area_last + rng.unit() * (self.area_first - self.area_last);
            let x = self.area_inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.shortcut || u >= self.area(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral of the density, up to a constant.
    fn area(&self, x: f64) -> f64 {
        let s = 1.0 - self.exponent;
        (x.powf(s) - 1.0) / s
    }

    fn area_inverse(&self, y: f64) -> f64 {
        let s = 1.0 - self.exponent;
        (1.0 + s * y).max(0.0).powf(1.0 / s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_has_the_stated_frequencies() {
        for (n, exponent) in [(1u64, 0.99), (10, 0.99), (1000, 0.99), (1000, 1.5)] {
            let zipf = Zipf::new(n, exponent);
            let mut rng = Rng::new(11);
            let draws = 400_000;
            let mut seen = vec![0u32; n as usize];
            for _ in 0..draws {
                seen[zipf.draw(&mut rng) as usize] += 1;
            }
            let norm: f64 = (1..=n).map(|k| (k as f64).powf(-exponent)).sum();
            for k in [1, 2, 3, n / 2, n].into_iter().filter(|&k| k > 0 && k <= n) {
                let expected = f64::from(draws) * (k as f64).powf(-exponent) / norm;
                let found = f64::from(seen[k as usize - 1]);
                let slack = 6.0 * expected.sqrt() + 1.0;
                assert!((found - expected).abs() < slack, "{n} {k}: {found} of {expected}");
            }
        }
    }
}
