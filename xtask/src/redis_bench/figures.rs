//! What is measured in a round, and medians over the rounds.

use serde_json::{Value, json};

/// What one round measured. Latencies that were not measured are zero.
#[derive(Clone, Copy, Default)]
pub(super) struct Figures {
    pub(super) per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// How many requests there were.
    pub(super) requests: f64,
    /// Processor time of the server for each of them, in microseconds.
    pub(super) cpu_us: f64,
}

/// The value below which this share of sorted values is.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

impl Figures {
    /// A number of requests, and how many of them there were in a second.
    pub(super) fn rate(requests: u64, per_second: f64) -> Self {
        Self { per_second, requests: requests as f64, ..Self::default() }
    }

    /// Latencies, in milliseconds, and how many of them there were in a second.
    pub(super) fn latencies(mut all: Vec<f64>, per_second: f64) -> Self {
        all.sort_by(f64::total_cmp);
        Self {
            requests: all.len() as f64,
            cpu_us: 0.0,
            per_second,
            p50_ms: quantile(&all, 0.5),
            p99_ms: quantile(&all, 0.99),
            max_ms: all.last().copied().unwrap_or_default(),
        }
    }

    /// Reads the last line that redis-benchmark writes: name, requests a second, then latencies:
    /// average, least, P50, P95, P99, greatest.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let line = text.lines().rfind(|line| line.starts_with('"'))?;
        let fields: Vec<f64> = line
            .split("\",\"")
            .skip(1)
            .map(|field| field.trim_matches(['"', '\r']).parse().ok())
            .collect::<Option<_>>()?;
        let [per_second, _, _, p50_ms, _, p99_ms, max_ms] = fields[..] else { return None };
        Some(Self { per_second, p50_ms, p99_ms, max_ms, ..Self::default() })
    }

    /// The median of each field.
    pub(super) fn median(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| {
            let mut values: Vec<f64> = all.iter().map(field).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            per_second: of(|f| f.per_second),
            p50_ms: of(|f| f.p50_ms),
            p99_ms: of(|f| f.p99_ms),
            max_ms: of(|f| f.max_ms),
            requests: of(|f| f.requests),
            cpu_us: of(|f| f.cpu_us),
        }
    }

    /// The figures as an object.
    pub(super) fn json(&self) -> Value {
        json!({
            "per_second": self.per_second,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "max_ms": self.max_ms,
            "cpu_us": self.cpu_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Figures;

    #[test]
    fn the_last_line_counts() {
        let text = "\"test\",\"rps\"\n\"GET\",\"1000.5\",\"0.1\",\"0.0\",\"0.2\",\"0.3\",\"0.4\",\"0.5\"\n";
        let figures = Figures::parse(text).unwrap();
        assert!((figures.per_second - 1000.5).abs() < 1e-9 && (figures.p99_ms - 0.4).abs() < 1e-9);
        assert!(Figures::parse("nothing").is_none());
    }

    #[test]
    fn quantiles_are_of_the_sorted_latencies() {
        let figures = Figures::latencies((0..1000).rev().map(f64::from).collect(), 1.0);
        assert!((figures.p50_ms - 500.0).abs() < 1e-9 && (figures.p99_ms - 990.0).abs() < 1e-9);
        assert!((figures.max_ms - 999.0).abs() < 1e-9);
    }
}
