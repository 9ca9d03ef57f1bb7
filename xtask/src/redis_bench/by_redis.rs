//! The workloads that Redis's own `redis-benchmark` measures.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Size, VALUE_BYTES, figures::Figures};

/// Tests of redis-benchmark that are measured only if they are named, at pipelines of 1, 16 and 64:
/// the name with the pipeline after it, such as `incr16`. With the requests of one round at
/// pipeline 1, and how many times more there are at most where they are pipelined.
const NAMED: [(&str, u64, u64); 12] = [
    ("set", 400_000, 5),
    ("get", 400_000, 7),
    ("incr", 400_000, 5),
    ("lpush", 400_000, 3),
    ("rpush", 400_000, 3),
    ("lpop", 400_000, 3),
    ("rpop", 400_000, 3),
    ("sadd", 400_000, 5),
    ("hset", 400_000, 3),
    ("spop", 400_000, 5),
    ("zadd", 400_000, 3),
    ("zpopmin", 400_000, 5),
];

/// The pipelines of those.
const PIPELINES: [u32; 3] = [1, 16, 64];

/// One run of redis-benchmark.
#[derive(Clone, Copy)]
pub(super) struct ByRedis {
    test: &'static str,
    pipeline: u32,
    /// Requests of one round.
    requests: u64,
}

impl ByRedis {
    /// Requests of a test.
    pub(super) const fn new(test: &'static str, pipeline: u32, requests: u64) -> Self {
        Self { test, pipeline, requests }
    }

    /// The test of this name with the pipeline after it.
    pub(super) fn named(name: &str) -> Option<Self> {
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let pipeline: u32 = name[letters.len()..].parse().ok()?;
        let (test, requests, times) = NAMED.into_iter().find(|(test, ..)| *test == letters)?;
        let times = if pipeline == 1 { 1 } else { times };
        PIPELINES.contains(&pipeline).then_some(Self::new(test, pipeline, times * requests))
    }

    /// The names that [`ByRedis::named`] knows.
    pub(super) fn names() -> impl Iterator<Item = String> {
        let of = |test| PIPELINES.into_iter().map(move |pipeline| format!("{test}{pipeline}"));
        NAMED.into_iter().flat_map(move |(test, ..)| of(test))
    }

    /// Measures one round.
    pub(super) fn measure(&self, port: u16, size: Size) -> Result<Figures> {
        let output = Command::new("redis-benchmark")
            .args(["-p", &port.to_string(), "-c", "50", "--csv", "--precision", "3"])
            .args(["-d", &VALUE_BYTES.to_string(), "-r", &size.keys.to_string()])
            .args(["-n", &(self.requests / size.divisor).to_string()])
            .args(["-P", &self.pipeline.to_string(), "-t", self.test])
            .output()
            .context("cannot run redis-benchmark")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "redis-benchmark failed: {text}");
        let figures = Figures::parse(&text);
        let figures = figures.with_context(|| format!("redis-benchmark said: {text}"))?;
        Ok(Figures { requests: (self.requests / size.divisor) as f64, ..figures })
    }
}
