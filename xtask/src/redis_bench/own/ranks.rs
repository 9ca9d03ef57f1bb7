//! Ranks, counts and ranges by rank of a large sorted set.

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use rhumb_bench::random::Rng;

use super::{CLIENTS, Figures, Size};
use crate::redis_bench::client::{self, Client, Load, digits};

const KEY: &[u8] = b"bench:ranks";

/// How many members a range has.
const RANGE: u64 = 10;

/// Requests of one round, by pipeline.
const REQUESTS: [u64; 2] = [200_000, 800_000];

/// What is asked.
#[derive(Clone, Copy)]
pub(in crate::redis_bench) enum Question {
    /// `ZRANK` of a random member.
    Rank,
    /// `ZCOUNT` between two random scores.
    Count,
    /// `ZRANGE` of ten members from a random rank on.
    Range,
}

/// Which member has which rank: they are told from each other by multiplying modulo their number,
/// so that neither follows from the other's order.
struct Members {
    count: u64,
    factor: u64,
    inverse: u64,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Members {
    fn new(count: u64) -> Self {
        // A share of the members that lies far from simple fractions; the next one without a common
        // divisor.
        let from = count * 618_034 / 1_000_000 + 1;
        let factor = (from..).find(|factor| gcd(*factor, count) == 1).unwrap_or(1);
        let inverse = inverse(factor, count);
        Self { count, factor, inverse }
    }

    fn multiply(&self, a: u64, b: u64) -> u64 {
        (u128::from(a) * u128::from(b) % u128::from(self.count)) as u64
    }

    fn rank_of(&self, member: u64) -> u64 {
        self.multiply(member, self.factor)
    }

    fn at(&self, rank: u64) -> u64 {
        self.multiply(rank, self.inverse)
    }
}

/// The number by which `factor` is to be multiplied for 1, modulo `count`.
fn inverse(factor: u64, count: u64) -> u64 {
    let (mut a, mut b) = (i128::from(factor % count.max(1)), i128::from(count));
    let (mut x, mut y) = (1_i128, 0_i128);
    while b != 0 {
        let times = a / b;
        (a, b) = (b, a - times * b);
        (x, y) = (y, x - times * y);
    }
    x.rem_euclid(i128::from(count)) as u64
}

/// A member's name.
fn name(member: u64) -> Vec<u8> {
    [b"member:", &digits(member)[..]].concat()
}

/// Fills the sorted set, unless a round before this has.
fn fill(port: u16, members: &Members) -> Result<()> {
    const CHUNK: u64 = 100;
    let mut client = Client::connect(port)?;
    client.call(&[b"ZCARD", KEY])?;
    if client.int()? == members.count {
        return Ok(());
    }
    super::remove(port, KEY)?;
    let mut from = 0;
    while from < members.count {
        let mut expected = Vec::new();
        for _ in 0..100 {
            let to = (from + CHUNK).min(members.count);
            let of = |member| [digits(members.rank_of(member)), name(member)];
            let words: Vec<Vec<u8>> = (from..to).flat_map(of).collect();
            let head: [&[u8]; 2] = [b"ZADD", KEY];
            let all = head.into_iter().chain(words.iter().map(Vec::as_slice));
            client.push(&all.collect::<Vec<_>>());
            expected.push(to - from);
            from = to;
            if from == members.count {
                break;
            }
        }
        client.send()?;
        for added in expected {
            ensure!(client.int()? == added, "members were there already");
        }
    }
    Ok(())
}

struct Questions {
    members: Members,
    question: Question,
    rng: Rng,
    /// By client, what was asked: a rank or a count.
    asked: Vec<VecDeque<u64>>,
}

impl Load for Questions {
    fn ask(&mut self, client: usize, out: &mut Vec<u8>) {
        let drawn = self.rng.below(self.members.count);
        let expected = match self.question {
            Question::Rank => {
                client::push_words(out, &[b"ZRANK", KEY, &name(drawn)]);
                self.members.rank_of(drawn)
            }
            Question::Count => {
                let other = self.rng.below(self.members.count);
                let (from, to) = (drawn.min(other), drawn.max(other));
                client::push_words(out, &[b"ZCOUNT", KEY, &digits(from), &digits(to)]);
                to - from + 1
            }
            Question::Range => {
                let from = drawn.min(self.members.count - RANGE);
                let to = from + RANGE - 1;
                client::push_words(out, &[b"ZRANGE", KEY, &digits(from), &digits(to)]);
                from
            }
        };
        self.asked[client].push_back(expected);
    }

    fn check(&mut self, client: usize, replies: &mut Client) -> Result<()> {
        let expected = self.asked[client].pop_front().unwrap_or_default();
        if !matches!(self.question, Question::Range) {
            let got = replies.int()?;
            ensure!(got == expected, "{got} in the place of {expected}");
            return Ok(());
        }
        let count = replies.array()?;
        ensure!(count == RANGE, "a range of {count} members");
        for rank in expected..expected + RANGE {
            let (got, wanted) = (replies.bulk()?, name(self.members.at(rank)));
            ensure!(got == wanted, "the member of rank {rank} is wrong");
        }
        Ok(())
    }
}

/// Measures one round.
pub(super) fn measure(
    port: u16,
    size: Size,
    question: Question,
    pipeline: usize,
) -> Result<Figures> {
    let members = Members::new(size.keys.max(RANGE));
    fill(port, &members)?;
    let asked = vec![VecDeque::new(); CLIENTS];
    let mut load = Questions { members, question, rng: Rng::new(38), asked };
    let requests = REQUESTS[usize::from(pipeline > 1)] / size.divisor;
    // The first question may have the server learn: that is no one's rate.
    client::drive(port, (1, 1, 1), &mut load)?;
    client::drive(port, (CLIENTS, pipeline, requests), &mut load)
}

#[cfg(test)]
mod tests {
    use super::Members;

    #[test]
    fn members_and_ranks_are_told_from_each_other() {
        for count in [10, 11, 999, 100_000] {
            let members = Members::new(count);
            let mut seen = vec![false; usize::try_from(count).unwrap()];
            for member in 0..count {
                let rank = members.rank_of(member);
                assert_eq!(members.at(rank), member);
                seen[usize::try_from(rank).unwrap()] = true;
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
