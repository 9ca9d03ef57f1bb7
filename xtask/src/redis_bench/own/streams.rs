//! Entries that are added to a stream, and that the consumers of a group take and acknowledge.

use anyhow::{Context, Result, ensure};

use super::{CLIENTS, Figures, Size};
use crate::redis_bench::client::{self, Client, Load, digits, number};

const KEY: &[u8] = b"bench:stream";
const GROUP: &[u8] = b"workers";

/// Entries of one round that are added, by pipeline.
const ADDED: [u64; 2] = [300_000, 900_000];

/// Entries of one round that are taken.
const TAKEN: u64 = 300_000;

/// Entries that a consumer takes at a time.
const TOGETHER: u64 = 10;

/// What each entry holds beside its number: as much as a small event.
const PAYLOAD: &[u8] = &[b'x'; 60];

/// An identifier as two numbers.
fn id_of(text: &[u8]) -> Result<(u64, u64)> {
    let at = text.iter().position(|byte| *byte == b'-').context("no identifier")?;
    Ok((number(&text[..at])?, number(&text[at + 1..])?))
}

fn push_entry(out: &mut Vec<u8>, number: u64) {
    client::push_words(out, &[b"XADD", KEY, b"*", b"n", &digits(number), b"payload", PAYLOAD]);
}

struct Adding {
    number: u64,
    /// The last identifier that each client was told.
    last: Vec<(u64, u64)>,
}

impl Load for Adding {
    fn ask(&mut self, _client: usize, out: &mut Vec<u8>) {
        push_entry(out, self.number);
        self.number += 1;
    }

    fn check(&mut self, client: usize, replies: &mut Client) -> Result<()> {
        let id = id_of(replies.bulk()?)?;
        ensure!(id > self.last[client], "identifiers do not ascend");
        self.last[client] = id;
        Ok(())
    }
}

fn length(port: u16) -> Result<u64> {
    let mut client = Client::connect(port)?;
    client.call(&[b"XLEN", KEY])?;
    client.int()
}

/// Measures a round of `XADD`.
pub(super) fn add(port: u16, size: Size, pipeline: usize) -> Result<Figures> {
    super::remove(port, KEY)?;
    let mut load = Adding { number: 0, last: vec![(0, 0); CLIENTS] };
    let requests = ADDED[usize::from(pipeline > 1)] / size.divisor;
    let figures = client::drive(port, (CLIENTS, pipeline, requests), &mut load)?;
    ensure!(length(port)? == load.number, "entries are missing");
    super::remove(port, KEY)?;
    Ok(figures)
}

/// Each consumer takes entries and then acknowledges them, in turns.
struct Taking {
    /// By client, what is to be acknowledged; empty if it is to take.
    taken: Vec<Vec<Vec<u8>>>,
    /// By number, which entries were delivered.
    seen: Vec<bool>,
}

impl Load for Taking {
    fn ask(&mut self, client: usize, out: &mut Vec<u8>) {
        let ids = &self.taken[client];
        if ids.is_empty() {
            let (consumer, count) = (digits(client as u64), digits(TOGETHER));
            let head = [b"XREADGROUP", &b"GROUP"[..], GROUP, &consumer, b"COUNT", &count];
            return client::push_words(out, &[&head[..], &[b"STREAMS", KEY, b">"]].concat());
        }
        let head = [&b"XACK"[..], KEY, GROUP];
        let words: Vec<&[u8]> = head.into_iter().chain(ids.iter().map(Vec::as_slice)).collect();
        client::push_words(out, &words);
    }

    fn check(&mut self, client: usize, replies: &mut Client) -> Result<()> {
        let ids = &mut self.taken[client];
        if !ids.is_empty() {
            ensure!(replies.int()? == ids.len() as u64, "not all entries were pending");
            ids.clear();
            return Ok(());
        }
        ensure!(replies.array()? == 1 && replies.array()? == 2, "not one stream");
        ensure!(replies.bulk()? == KEY, "another stream");
        let entries = replies.array()?;
        ensure!(entries == TOGETHER, "{entries} entries");
        let mut last = (0, 0);
        for _ in 0..entries {
            ensure!(replies.array()? == 2, "no entry");
            let id = replies.bulk()?.to_vec();
            ensure!(id_of(&id)? > last, "identifiers do not ascend");
            last = id_of(&id)?;
            ids.push(id);
            ensure!(replies.array()? == 4 && replies.bulk()? == b"n", "other fields");
            let at = usize::try_from(number(replies.bulk()?)?)?;
            ensure!(replies.bulk()? == b"payload" && replies.bulk()? == PAYLOAD, "other fields");
            let seen = self.seen.get_mut(at).context("an unknown entry")?;
            ensure!(!std::mem::replace(seen, true), "entry {at} was delivered twice");
        }
        Ok(())
    }
}

/// Measures a round of `XREADGROUP` and `XACK`; the rate is of entries.
pub(super) fn read_group(port: u16, size: Size) -> Result<Figures> {
    super::remove(port, KEY)?;
    // Whole rounds of all clients, so that each takes as many as it asks for.
    let each = CLIENTS as u64 * TOGETHER;
    let rounds = (TAKEN / size.divisor / each).max(1);
    let entries = rounds * each;
    let mut filling = Adding { number: 0, last: vec![(0, 0); CLIENTS] };
    client::drive(port, (1, 500, entries), &mut filling)?;
    let mut client = Client::connect(port)?;
    client.call(&[b"XGROUP", b"CREATE", KEY, GROUP, b"0"])?;
    client.ok()?;
    let seen = vec![false; usize::try_from(entries)?];
    let mut load = Taking { taken: vec![Vec::new(); CLIENTS], seen };
    // Each entry is asked for once and acknowledged once, ten at a time.
    let requests = 2 * entries / TOGETHER;
    let per_second = client::drive(port, (CLIENTS, 1, requests), &mut load)?.per_second;
    ensure!(load.seen.iter().all(|seen| *seen), "entries were not delivered");
    client.call(&[b"XPENDING", KEY, GROUP])?;
    ensure!(client.array()? == 4 && client.int()? == 0, "entries are pending");
    super::remove(port, KEY)?;
    Ok(Figures::rate(entries, per_second * TOGETHER as f64 / 2.0))
}
