//! Histories of calls that several threads and processes make on a few keys: how a call is noted,
//! how it goes from one process to another, and the check of what all have noted.

use std::{
    fmt::Write,
    io::{BufRead, Write as _},
    process::{Child, ChildStdout},
};

use rhumb_testkit::{
    linearizability::{Answered, Operation, is_linearizable},
    random::Random,
};
use rustix::time::{ClockId, clock_gettime};

/// Keys whose histories are checked.
pub(crate) const KEYS: usize = 4;

/// Bytes after which values repeat their lengths: from a few to the larger part of a leaf.
const FILL_BYTES: u64 = 301;

/// What was asked of a key, and the answer. A value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Also what a scan, or a get of several keys, says of the key.
    Get {
        found: Option<u64>,
    },
    /// Sets the value, or removes the key; also as a part of a batch.
    Set {
        new: Option<u64>,
    },
    /// The same, with an answer that says what was there before.
    Exchange {
        new: Option<u64>,
        old: Option<u64>,
    },
    Swap {
        expected: Option<u64>,
        new: Option<u64>,
        swapped: bool,
    },
}

impl Answered for Call {
    fn apply(self, state: Option<u64>) -> Option<Option<u64>> {
        match self {
            Self::Get { found } => (found == state).then_some(state),
            Self::Set { new } => Some(new),
            Self::Exchange { new, old } => (old == state).then_some(new),
            Self::Swap { expected, new, swapped: true } => (expected == state).then_some(new),
            Self::Swap { expected, swapped: false, .. } => (expected != state).then_some(state),
        }
    }
}

/// Nanoseconds on the clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The value of a number: it says itself whether all of it is there.
pub(crate) fn value(number: u64) -> Vec<u8> {
    let fill = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let fill = [b"abcdefgh"[(fill % 8) as usize]].repeat((fill % FILL_BYTES) as usize);
    [format!("{number}:").as_bytes(), &fill].concat()
}

/// The number of a value. Panics if no call wrote it.
pub(crate) fn number(found: &[u8]) -> u64 {
    let text = found.split(|byte| *byte == b':').next().unwrap_or_default();
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match number {
        Some(number) if value(number) == found => number,
        _ => panic!("a value that nobody wrote: {}", found.escape_ascii()),
    }
}

/// What one thread has done to each key, in order.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    keys: Vec<Vec<Operation<Call>>>,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self { keys: vec![Vec::new(); KEYS] }
    }

    /// Notes a call that has returned just now.
    pub(crate) fn note(&mut self, key: usize, called: u64, call: Call) {
        self.note_until(key, called, now(), call);
    }

    /// Notes a call.
    pub(crate) fn note_until(&mut self, key: usize, called: u64, returned: u64, call: Call) {
        self.keys[key].push(Operation { call, called, returned });
    }

    /// Writes the record to standard output, for [`Record::receive`].
    pub(crate) fn send(&self) {
        let mut text = String::new();
        for (key, operations) in self.keys.iter().enumerate() {
            for Operation { call, called, returned } in operations {
                let (kind, a, b) = match *call {
                    Call::Get { found } => ("get", found, None),
                    Call::Set { new } => ("set", new, None),
                    Call::Exchange { new, old } => ("exchange", new, old),
                    Call::Swap { expected, new, swapped: true } => ("swap", expected, new),
                    Call::Swap { expected, new, swapped: false } => ("keep", expected, new),
                };
                let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
                let (a, b) = (number(a), number(b));
                writeln!(text, "op {key} {called} {returned} {kind} {a} {b}").unwrap();
            }
        }
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).unwrap();
        out.write_all(b"op end\n").unwrap();
        out.flush().unwrap();
    }

    /// The record that a child sends.
    pub(crate) fn receive(child: &mut impl BufRead) -> Self {
        let (mut record, mut line) = (Self::new(), String::new());
        loop {
            line.clear();
            assert!(child.read_line(&mut line).unwrap() > 0, "the child has ended");
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let ["op", rest @ ..] = &words[..] else { continue };
            let [key, called, returned, kind, a, b] = rest else { return record };
            let (number, time) = (|n: &str| n.parse().ok(), |t: &str| t.parse().unwrap());
            let (a, b) = (number(a), number(b));
            let call = match *kind {
                "get" => Call::Get { found: a },
                "set" => Call::Set { new: a },
                "exchange" => Call::Exchange { new: a, old: b },
                kind => Call::Swap { expected: a, new: b, swapped: kind == "swap" },
            };
            let key: usize = key.parse().unwrap();
            record.note_until(key, time(called), time(returned), call);
        }
    }
}

/// Checks that what all threads have noted was answered by registers; returns how many operations
/// that are.
///
/// # Panics
///
/// With the history of a key that none could have had.
pub(crate) fn check(what: &str, records: &[Record], initial: [Option<u64>; KEYS]) -> usize {
    for (key, initial) in initial.into_iter().enumerate() {
        let threads: Vec<_> = records.iter().map(|record| record.keys[key].clone()).collect();
        if !is_linearizable(&threads, initial) {
            threads.iter().for_each(|thread| eprintln!("{thread:?}"));
            panic!("{what}: key {key} is not linearizable from {initial:?}");
        }
    }
    records.iter().flat_map(|record| &record.keys).map(Vec::len).sum()
}

/// Lets some time go by, so that the calls of a thread do not follow one another at once.
pub(crate) fn pause(random: &mut Random) {
    let until = now() + random.below(12_000);
    while now() < until {
        std::hint::spin_loop();
    }
}

/// A process that takes part in histories: it is told of each by a line, and sends what it did.
pub(crate) struct Actor {
    process: Child,
    out: std::io::BufReader<ChildStdout>,
}

impl Actor {
    /// A child whose input and output are pipes.
    pub(crate) fn new(mut process: Child) -> Self {
        let out = std::io::BufReader::new(process.stdout.take().unwrap());
        Self { process, out }
    }

    /// Has the child take part in a history.
    pub(crate) fn begin(&mut self, seed: u64) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{seed}").unwrap();
    }

    /// What it did.
    pub(crate) fn record(&mut self) -> Record {
        Record::receive(&mut self.out)
    }

    /// Ends the child.
    pub(crate) fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}

/// Runs the histories that a parent asks for, until its pipe ends.
pub(crate) fn act(mut run: impl FnMut(u64) -> Record) {
    // The harness has begun a line.
    println!();
    for line in std::io::stdin().lines() {
        let Ok(seed) = line.unwrap().parse() else { return };
        run(seed).send();
    }
}

/// A number from the environment.
pub(crate) fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}
