//! `MIGRATE`: keys that go to another server.
//!
//! The keys are locked while they are read and while they are removed, and not while the other
//! server is spoken to. If one was written meanwhile, it is sent again, under its lock.

use std::{
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{Context, Done, SYNTAX, dump, integer, is_word};
use crate::{
    commit,
    fault::Fault,
    key_event::KeyEvent,
    peer::{Peer, PeerReply},
    rdb,
    resp::Args,
};

/// Milliseconds that each step may take if 0 or less are asked for, as in Redis.
const DEFAULT_TIMEOUT_MS: i64 = 1000;

/// The longest that each step may take: a client that asks for more waits no longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Bytes of payloads that are sent before their replies are read.
const BATCH_BYTES: usize = 1 << 20;

/// What is asked.
struct Request<'a> {
    host: String,
    port: u16,
    database: i64,
    timeout: Duration,
    keep: bool,
    replace: bool,
    login: Vec<&'a [u8]>,
    keys: Vec<&'a [u8]>,
}

fn request(args: Args<'_>) -> Result<Request<'_>, Fault> {
    let (mut keep, mut replace, mut login) = (false, false, Vec::new());
    let mut keys = vec![args.at(3)];
    let mut at = 6;
    while let Some(option) = args.get(at) {
        match (args.get(at + 1), args.get(at + 2)) {
            _ if is_word(option, "copy") => keep = true,
            _ if is_word(option, "replace") => replace = true,
            (Some(password), _) if is_word(option, "auth") => {
                login = vec![password];
                at += 1;
            }
            (Some(user), Some(password)) if is_word(option, "auth2") => {
                login = vec![user, password];
                at += 2;
            }
            _ if is_word(option, "keys") => {
                if !args.at(3).is_empty() {
                    let what = "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string";
                    return Err(what.into());
                }
                keys = args.iter_from(at + 1).collect();
                break;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let (timeout, database) = (integer(args.at(5))?, integer(args.at(4))?);
    let timeout = if timeout <= 0 { DEFAULT_TIMEOUT_MS } else { timeout };
    let timeout = Duration::from_millis(timeout.unsigned_abs()).min(TIMEOUT_MAX);
    let host = String::from_utf8_lossy(args.at(1)).into_owned();
    let port = integer(args.at(2)).ok().and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(CONNECTING)?;
    Ok(Request { host, port, database, timeout, keep, replace, login, keys })
}

const CONNECTING: &str = "IOERR error or timeout connecting to the client";
const WRITING: &str = "IOERR error or timeout writing to target instance";
const WITH_TIMES: &str = "the key is a hash with fields that end, which Redis knows since 7.4";
const READING: &str = "IOERR error or timeout reading from target instance";

/// A key that goes: its place among those that were named, its value, and when it ends.
struct Parcel<'a> {
    key: &'a [u8],
    payload: Vec<u8>,
    expires_ms: u64,
}

/// The values of those keys that are there.
fn parcels<'a>(context: &mut Context<'_, '_>, keys: &[&'a [u8]]) -> Result<Vec<Parcel<'a>>, Fault> {
    let bytes_max = context.server.limits.read().reply_bytes;
    let (mut all, mut bytes) = (Vec::new(), 0);
    for key in keys {
        let Some(entry) = context.txn.read(key)? else { continue };
        let bytes_left = bytes_max.saturating_sub(bytes);
        let Some(payload) = dump::payload(context, &entry, bytes_left)? else { continue };
        bytes += payload.len();
        all.push(Parcel { key, payload, expires_ms: entry.expires_ms });
    }
    Ok(all)
}

/// What became of what was sent: for each key whether it was taken, and the first error.
#[derive(Default)]
struct Sent {
    taken: Vec<bool>,
    fault: Option<Fault>,
}

fn expect_ok(reply: io::Result<PeerReply>) -> Done {
    match reply {
        Ok(PeerReply::Error(text)) => {
            Err(format!("ERR Target instance replied with error: {text}").into())
        }
        Ok(_) => Ok(()),
        Err(_) => Err(READING.into()),
    }
}

/// As [`expect_ok`], for a value: says it of a hash whose fields end that it may be unknown there.
fn expect_taken(reply: io::Result<PeerReply>, parcel: &Parcel<'_>) -> Done {
    match expect_ok(reply) {
        Err(Fault::Text(text))
            if rdb::has_times(&parcel.payload) && text.contains("payload version") =>
        {
            Err(format!("{text} ({WITH_TIMES})").into())
        }
        done => done,
    }
}

/// Says who asks, and which database.
fn greet(peer: &mut Peer, request: &Request<'_>) -> Done {
    if !request.login.is_empty() {
        let words: Vec<&[u8]> =
            std::iter::once(&b"AUTH"[..]).chain(request.login.clone()).collect();
        peer.push(&words);
    }
    peer.push(&[b"SELECT", request.database.to_string().as_bytes()]);
    peer.flush().map_err(|_| WRITING)?;
    if !request.login.is_empty() {
        expect_ok(peer.reply())?;
    }
    expect_ok(peer.reply())
}

fn send(peer: &mut Peer, parcels: &[Parcel<'_>], replace: bool) -> Sent {
    let mut sent = Sent::default();
    let mut waiting = 0;
    for (at, parcel) in parcels.iter().enumerate() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let ttl = match parcel.expires_ms {
            0 => 0,
            // One that ends now is sent all the same, as in Redis.
            ends => u128::from(ends).saturating_sub(now).max(1),
        };
        let ttl = ttl.to_string();
        let mut words = vec![&b"RESTORE"[..], parcel.key, ttl.as_bytes(), &parcel.payload];
        if replace {
            words.push(b"REPLACE");
        }
        peer.push(&words);
        waiting += 1;
        if peer.pending() < BATCH_BYTES && at + 1 < parcels.len() {
            continue;
        }
        if peer.flush().is_err() {
            sent.fault.get_or_insert_with(|| WRITING.into());
            return sent;
        }
        let first = at + 1 - std::mem::take(&mut waiting);
        for parcel in &parcels[first..=at] {
            let taken = match expect_taken(peer.reply(), parcel) {
                Ok(()) => true,
                Err(fault) => {
                    let is_over = matches!(&fault, Fault::Text(text) if text == READING);
                    sent.fault.get_or_insert(fault);
                    if is_over {
                        return sent;
                    }
                    false
                }
            };
            sent.taken.push(taken);
        }
    }
    sent
}

/// `MIGRATE`.
pub(super) fn migrate(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let request = request(args)?;
    let databases = &context.server.databases;
    let lock = |context: &Context<'_, '_>| {
        // `EXEC` has locked all keys.
        let held = (!context.in_exec)
            .then(|| databases.locks.many_exclusive(request.keys.iter().copied()));
        databases.commit_submitted();
        held
    };
    let held = lock(context);
    let first = parcels(context, &request.keys)?;
    drop(held);
    if first.is_empty() {
        context.out.simple("NOKEY");
        return Ok(());
    }
    let peer = Peer::connect(&request.host, request.port, request.timeout);
    let mut peer = peer.map_err(|_| CONNECTING)?;
    greet(&mut peer, &request)?;
    let mut sent = send(&mut peer, &first, request.replace);
    if !request.keep {
        let held = lock(context);
        remove_taken(context, &mut peer, &first, &mut sent)?;
        if !context.in_exec {
            commit::transaction(&mut context.txn)?;
        }
        drop(held);
    }
    match sent.fault {
        // What was taken is gone: the error is a reply, and no reason to take that back.
        Some(Fault::Text(text)) => context.out.error(&text),
        Some(fault) => return Err(fault),
        None => context.out.ok(),
    }
    Ok(())
}

/// Removes the keys that were taken. What was written meanwhile is sent again, and removed then.
fn remove_taken(
    context: &mut Context<'_, '_>,
    peer: &mut Peer,
    first: &[Parcel<'_>],
    sent: &mut Sent,
) -> Done {
    let taken = first.iter().zip(&sent.taken).filter(|(_, taken)| **taken);
    let mut gone = Vec::new();
    for (parcel, _) in taken {
        let now = parcels(context, &[parcel.key])?;
        let is_same = |now: &Parcel<'_>| {
            (now.expires_ms, &now.payload) == (parcel.expires_ms, &parcel.payload)
        };
        if !now.iter().all(is_same) {
            let again = send(peer, &now, true);
            sent.fault = sent.fault.take().or(again.fault);
            if again.taken != [true] {
                continue;
            }
        }
        gone.push(parcel.key);
    }
    for key in gone {
        if let Some(entry) = context.txn.edit(key)? {
            context.txn.delete(key, &entry)?;
            context.txn.notify(KeyEvent::generic("del"), key);
        }
    }
    Ok(())
}
