//! An element that is pushed while a client waits for it: the time until that client has it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Figures, Size};
use crate::redis_bench::client::{Client, digits};

const KEY: &[u8] = b"bench:queue";

/// Elements of one round.
const ELEMENTS: u64 = 20_000;

/// How long the waiting client is left alone, so that it waits and the server is idle.
const PAUSE: Duration = Duration::from_micros(100);

/// Measures one round.
pub(super) fn hand_over(port: u16, size: Size) -> Result<Figures> {
    super::remove(port, KEY)?;
    let (mut waiting, mut pushing) = (Client::connect(port)?, Client::connect(port)?);
    let mut latencies = Vec::new();
    for number in 0..(ELEMENTS / size.divisor).max(1) {
        let element = digits(number);
        waiting.call(&[b"BLPOP", KEY, b"0"])?;
        std::thread::sleep(PAUSE);
        pushing.push(&[b"RPUSH", KEY, &element]);
        let began = Instant::now();
        pushing.send()?;
        ensure!(waiting.array()? == 2 && waiting.bulk()? == KEY, "another queue");
        ensure!(waiting.bulk()? == element, "another element");
        latencies.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(pushing.int()? == 1, "elements lie in the queue");
    }
    let each = latencies.iter().sum::<f64>() / 1e3 / latencies.len() as f64;
    Ok(Figures::latencies(latencies, 1.0 / each))
}
