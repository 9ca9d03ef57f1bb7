//! A sorted set as two maps: members with their scores, and the order of both.

use std::collections::{BTreeMap, BTreeSet};

use rhumb_testkit::random::Random;

use super::{Step, common::Value};

/// How many names there are: past the 256 members from which on the server keeps counts.
const NAMES: usize = 700;

/// A score by whose order of bits members are sorted; all are halves, so that texts are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

fn text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    score.to_string()
}

/// The model of the key `z`.
#[derive(Default)]
pub(crate) struct Model {
    scores: BTreeMap<String, Score>,
    order: BTreeSet<(Score, String)>,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn score(random: &mut Random) -> f64 {
    match random.index(20) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        // Many have the same.
        2..=9 => random.index(4) as f64,
        _ => random.index(400) as f64 / 2.0 - 100.0,
    }
}

/// An end of a range: its text, its score, and true if the score itself is left out.
fn end(random: &mut Random) -> (String, f64, bool) {
    let (score, is_open) = (score(random), random.one_in(3));
    (format!("{}{}", if is_open { "(" } else { "" }, text(score)), score, is_open)
}

impl Model {
    fn put(&mut self, name: &str, score: f64) -> bool {
        let before = self.scores.insert(name.to_owned(), Score(score));
        if let Some(before) = before {
            self.order.remove(&(before, name.to_owned()));
        }
        self.order.insert((Score(score), name.to_owned()));
        before.is_none()
    }

    fn remove(&mut self, name: &str) -> bool {
        let Some(score) = self.scores.remove(name) else { return false };
        self.order.remove(&(score, name.to_owned()))
    }

    fn between(&self, random: &mut Random) -> (String, Vec<(Score, String)>) {
        let ((low, from, no_from), (high, to, no_to)) = (end(random), end(random));
        let is_in = |score: f64| {
            (if no_from { score > from } else { score >= from })
                && (if no_to { score < to } else { score <= to })
        };
        let found = self.order.iter().filter(|(score, _)| is_in(score.0)).cloned().collect();
        (format!("{low} {high}"), found)
    }

    /// Members by rank, as the indexes of a command say.
    fn by_rank(&self, from: i64, to: i64) -> Vec<(Score, String)> {
        let len = self.order.len() as i64;
        let at = |index: i64| if index < 0 { index + len } else { index };
        let (from, to) = (at(from).max(0), at(to).min(len - 1));
        let taken = (to - from + 1).max(0) as usize;
        self.order.iter().skip(from as usize).take(taken).cloned().collect()
    }

    /// A command, and its reply.
    pub(crate) fn step(&mut self, random: &mut Random) -> Step {
        let name = format!("m{:03}", random.index(NAMES));
        let index = |random: &mut Random| random.index(2 * NAMES) as i64 - NAMES as i64;
        match random.index(24) {
            0..=7 => {
                let (mut line, mut added) = ("ZADD z".to_owned(), 0);
                for _ in 0..=random.index(4) {
                    let (score, name) = (score(random), format!("m{:03}", random.index(NAMES)));
                    line += &format!(" {} {name}", text(score));
                    added += i64::from(self.put(&name, score));
                }
                (words(&line), Value::Int(added))
            }
            8..=9 => (words(&format!("ZREM z {name}")), Value::Int(self.remove(&name).into())),
            10 => {
                let by = random.index(20) as f64 - 10.0;
                let before = self.scores.get(&name).map_or(0.0, |score| score.0);
                self.put(&name, before + by);
                let reply = Value::bulk(text(before + by));
                (words(&format!("ZINCRBY z {} {name}", text(by))), reply)
            }
            11..=13 => {
                let is_reverse = random.one_in(2);
                let rank = self.scores.get(&name).map(|score| {
                    let before = self.order.range(..(*score, name.clone())).count();
                    if is_reverse { self.order.len() - 1 - before } else { before }
                });
                let reply = rank.map_or(Value::Null, |rank| Value::Int(rank as i64));
                let command = if is_reverse { "ZREVRANK" } else { "ZRANK" };
                (words(&format!("{command} z {name}")), reply)
            }
            14..=15 => {
                let (ends, found) = self.between(random);
                (words(&format!("ZCOUNT z {ends}")), Value::Int(found.len() as i64))
            }
            16 => {
                let (ends, found) = self.between(random);
                let (skip, most) = (random.index(20), random.index(20));
                let found = found.into_iter().skip(skip).take(most).map(|(_, name)| name);
                let line = format!("ZRANGEBYSCORE z {ends} LIMIT {skip} {most}");
                (words(&line), Value::Array(found.map(Value::bulk).collect()))
            }
            17..=18 => {
                let (from, len) = (index(random), random.index(12) as i64);
                // A range does not go from the end over to the beginning.
                let to = if from < 0 { (from + len).min(-1) } else { from + len };
                let found = self.by_rank(from, to).into_iter();
                let pairs = found.flat_map(|(score, name)| [name, text(score.0)]);
                let reply = Value::Array(pairs.map(Value::bulk).collect());
                (words(&format!("ZRANGE z {from} {to} WITHSCORES")), reply)
            }
            19 => {
                let (from, len) = (random.index(NAMES) as i64, random.index(4) as i64);
                let found = self.by_rank(from, from + len);
                for (_, name) in &found {
                    self.remove(name);
                }
                let line = format!("ZREMRANGEBYRANK z {from} {}", from + len);
                (words(&line), Value::Int(found.len() as i64))
            }
            20 => {
                let at = random.index(400) as f64 / 2.0 - 100.0;
                let is_in = |score: &Score| score.0 >= at && score.0 <= at + 2.0;
                let all = self.order.iter().filter(|(score, _)| is_in(score)).cloned();
                let found: Vec<_> = all.collect();
                for (_, name) in &found {
                    self.remove(name);
                }
                let line = format!("ZREMRANGEBYSCORE z {} {}", text(at), text(at + 2.0));
                (words(&line), Value::Int(found.len() as i64))
            }
            21 => self.pop(random.one_in(2)),
            22 => (words("ZCARD z"), Value::Int(self.order.len() as i64)),
            _ => {
                let score = self.scores.get(&name);
                let reply = score.map_or(Value::Null, |score| Value::bulk(text(score.0)));
                (words(&format!("ZSCORE z {name}")), reply)
            }
        }
    }

    fn pop(&mut self, is_least: bool) -> Step {
        let end = if is_least { self.order.first() } else { self.order.last() };
        let popped = end.cloned();
        let mut reply = Vec::new();
        if let Some((score, name)) = popped {
            self.remove(&name);
            reply = vec![Value::bulk(name), Value::bulk(text(score.0))];
        }
        let command = if is_least { "ZPOPMIN z" } else { "ZPOPMAX z" };
        (words(command), Value::Array(reply))
    }
}
