//! Workloads of our own, for what redis-benchmark does not ask for. Every reply is checked.

mod messages;
mod queues;
mod ranks;
mod scripts;
mod streams;

use anyhow::Result;

use super::{Size, client::Client, figures::Figures};

/// Clients that ask at the same time, as many as redis-benchmark has.
const CLIENTS: usize = 50;

/// One workload.
#[derive(Clone, Copy)]
pub(super) enum Own {
    /// Questions to a sorted set, at a pipeline.
    Ranks(ranks::Question, usize),
    /// A script by its hash.
    Script(scripts::Limiter),
    /// Entries that are added to a stream, at a pipeline.
    Add(usize),
    /// Entries that consumers of a group take and acknowledge.
    ReadGroup,
    /// Messages to a hundred subscribers, at a pipeline.
    Publish(usize),
    /// Elements that are given to a client that waits for them.
    HandOver,
}

impl Own {
    /// Each by its name, with what is wanted of it.
    pub(super) const ALL: [(&'static str, Self, super::Wanted); 14] = {
        use super::Wanted::{Latency, Throughput};
        use ranks::Question::{Count, Range, Rank};
        // At most three times as long as Redis takes.
        const THIRD: super::Wanted = Throughput(1.0 / 3.0);
        [
            ("zrank", Self::Ranks(Rank, 1), THIRD),
            ("zrank16", Self::Ranks(Rank, 16), THIRD),
            ("zcount", Self::Ranks(Count, 1), THIRD),
            ("zcount16", Self::Ranks(Count, 16), THIRD),
            ("zrange_by_rank", Self::Ranks(Range, 1), THIRD),
            ("zrange_by_rank16", Self::Ranks(Range, 16), THIRD),
            ("eval_token_bucket", Self::Script(scripts::Limiter::TokenBucket), Throughput(0.8)),
            ("eval_sliding_window", Self::Script(scripts::Limiter::SlidingWindow), Throughput(0.8)),
            ("xadd", Self::Add(1), Throughput(0.8)),
            ("xadd16", Self::Add(16), Throughput(0.8)),
            ("xreadgroup", Self::ReadGroup, Throughput(0.8)),
            ("publish_100", Self::Publish(1), Throughput(0.8)),
            ("publish_100_16", Self::Publish(16), Throughput(0.8)),
            ("blpop_handover", Self::HandOver, Latency(1.5)),
        ]
    };

    /// Measures one round.
    pub(super) fn measure(self, port: u16, size: Size) -> Result<Figures> {
        match self {
            Self::Ranks(question, pipeline) => ranks::measure(port, size, question, pipeline),
            Self::Script(limiter) => scripts::measure(port, size, limiter),
            Self::Add(pipeline) => streams::add(port, size, pipeline),
            Self::ReadGroup => streams::read_group(port, size),
            Self::Publish(pipeline) => messages::publish(port, size, pipeline),
            Self::HandOver => queues::hand_over(port, size),
        }
    }
}

/// Removes a key, and waits for that.
fn remove(port: u16, key: &[u8]) -> Result<()> {
    let mut client = Client::connect(port)?;
    client.call(&[b"DEL", key])?;
    client.int()?;
    Ok(())
}
