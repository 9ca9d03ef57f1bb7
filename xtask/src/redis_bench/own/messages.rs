//! Messages to a hundred subscribers of a channel, all of which read what they are sent.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{Figures, Size};
use crate::redis_bench::client::{Client, digits, push_words};

const CHANNEL: &[u8] = b"bench:channel";

/// Clients that listen.
const SUBSCRIBERS: u64 = 100;

/// Messages of one round, by pipeline.
const MESSAGES: [u64; 2] = [6_000, 48_000];

/// Messages that lie with the server while the subscribers are read.
const AHEAD: u64 = 2;

/// Bytes of a message, its number included.
const MESSAGE_BYTES: usize = 100;

fn message(number: u64) -> Vec<u8> {
    let mut message = digits(number);
    message.resize(MESSAGE_BYTES, b'.');
    message
}

/// Measures one round; the rate is of messages that have arrived, those to all subscribers.
pub(super) fn publish(port: u16, size: Size, pipeline: usize) -> Result<Figures> {
    let subscribe = |_| {
        let mut client = Client::connect(port)?;
        client.call(&[b"SUBSCRIBE", CHANNEL])?;
        ensure!(client.array()? == 3 && client.bulk()? == b"subscribe", "no subscription");
        ensure!(client.bulk()? == CHANNEL && client.int()? == 1, "another subscription");
        Ok(client)
    };
    let mut subscribers: Vec<Client> = (0..SUBSCRIBERS).map(subscribe).collect::<Result<_>>()?;
    let mut publisher = Client::connect(port)?;
    let rounds = (MESSAGES[usize::from(pipeline > 1)] / size.divisor / pipeline as u64).max(1);
    let numbers = |round: u64| round * pipeline as u64..(round + 1) * pipeline as u64;
    let began = Instant::now();
    for round in 0..rounds + AHEAD {
        if round < rounds {
            for number in numbers(round) {
                push_words(publisher.requests(), &[b"PUBLISH", CHANNEL, &message(number)]);
            }
            publisher.send()?;
        }
        let Some(done) = round.checked_sub(AHEAD) else { continue };
        let mut expected = Vec::new();
        for number in numbers(done) {
            let got = publisher.int()?;
            ensure!(got == SUBSCRIBERS, "a message was for {got}");
            push_words(&mut expected, &[b"message", CHANNEL, &message(number)]);
        }
        for subscriber in &mut subscribers {
            subscriber.expect(&expected)?;
        }
    }
    let messages = rounds * pipeline as u64 * SUBSCRIBERS;
    Ok(Figures::rate(messages, messages as f64 / began.elapsed().as_secs_f64()))
}
