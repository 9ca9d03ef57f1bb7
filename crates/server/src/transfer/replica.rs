//! A server that runs is followed as its replica does it: it sends a dump, and then every command
//! that writes.

use std::{
    io::{self, Read},
    time::{Duration, Instant},
};

use super::{
    ImportOptions, Target, TransferError, Transferred, read_dump, remote::REPLY_TIMEOUT, scan,
};
use crate::{
    db::now_ms,
    peer::{Peer, PeerAddress, PeerReply},
    resp::{Frames, Parser, ReadLimits},
};

/// How often the server is told how far its commands were taken; it gives a replica up that says
/// nothing for a minute.
const ACK_EVERY: Duration = Duration::from_secs(1);

/// Bytes of commands that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// Bytes at the end of a dump whose length is not known beforehand.
const MARK_BYTES: usize = 40;

/// What the server says of the dump that it sends.
enum Transfer {
    /// It has this number of bytes.
    Length(u64),
    /// These bytes come after it.
    Mark([u8; MARK_BYTES]),
}

fn failed(what: impl Into<String>) -> TransferError {
    TransferError::Failed(what.into())
}

/// Asks the server to be followed; how far its commands are at the dump. `None` if it refuses.
fn ask(peer: &mut Peer) -> Result<Option<(Transfer, u64)>, TransferError> {
    // A server that does not know this sends the dump with its length.
    peer.call(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
    peer.push(&[b"PSYNC", b"?", b"-1"]);
    peer.flush()?;
    let mut offset = 0;
    let mut line = filled_line(peer)?;
    if line.starts_with(b"-") {
        peer.push(&[b"SYNC"]);
        peer.flush()?;
        line = filled_line(peer)?;
        if line.starts_with(b"-") {
            return Ok(None);
        }
    } else {
        let text = String::from_utf8_lossy(&line).into_owned();
        let last = text.rsplit(' ').next().and_then(|last| last.parse().ok());
        let known = last.filter(|_| text.starts_with("+FULLRESYNC "));
        offset = known.ok_or_else(|| failed(format!("the server replies to PSYNC: {text}")))?;
        line = filled_line(peer)?;
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    let wrong = || failed(format!("the server sends no dump, but {text:?}"));
    let rest = line.strip_prefix(b"$").ok_or_else(wrong)?;
    let transfer = match rest.strip_prefix(b"EOF:") {
        Some(mark) => Transfer::Mark(mark.try_into().map_err(|_| wrong())?),
        None => Transfer::Length(text[1..].parse().map_err(|_| wrong())?),
    };
    Ok(Some((transfer, offset)))
}

/// The next line that has something: the server sends empty ones while it prepares the dump.
fn filled_line(peer: &mut Peer) -> io::Result<Vec<u8>> {
    loop {
        let line = peer.line()?;
        if !line.is_empty() {
            return Ok(line);
        }
    }
}

/// Returns false if the server is of this kind: it sends its data, and no writes after them.
fn sends_writes(peer: &mut Peer) -> io::Result<bool> {
    let info = peer.call(&[b"INFO", b"server"])?;
    let PeerReply::Bulk(info) = info else { return Ok(true) };
    Ok(!info.windows(OURS.len()).any(|part| part == OURS))
}

/// The beginning of a line of `INFO` that only servers of this kind have.
const OURS: &[u8] = b"\nrhumb_version:";

/// Takes over what a server has, and follows it unless that is not wanted.
pub(super) fn import(
    address: &PeerAddress,
    target: &mut dyn Target,
    options: ImportOptions,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<Transferred, TransferError> {
    let mut peer = Peer::open(address, REPLY_TIMEOUT).map_err(TransferError::Failed)?;
    if let PeerReply::Error(text) = peer.call(&[b"PING"])? {
        return Err(failed(format!("the server refuses: {text}")));
    }
    let sends_writes = sends_writes(&mut peer)?;
    let Some((transfer, offset)) = ask(&mut peer)? else {
        return scan::read_keys(&mut peer, target, options.is_lenient, go_on);
    };
    let settings = (now_ms(), options.is_lenient);
    let mut all = match transfer {
        Transfer::Length(len) => {
            let all = read_dump(peer.reader().by_ref().take(len), target, settings, go_on)?;
            if all.is_complete && all.bytes != len {
                return Err(failed("the dump is shorter than the server says"));
            }
            all
        }
        Transfer::Mark(mark) => {
            let all = read_dump(peer.reader().by_ref(), target, settings, go_on)?;
            let mut end = [0; MARK_BYTES];
            if all.is_complete {
                peer.reader().read_exact(&mut end)?;
                if end != mark {
                    return Err(failed("the dump does not end as the server says"));
                }
            }
            all
        }
    };
    all.is_snapshot = !sends_writes;
    if all.is_complete && sends_writes && !options.is_once {
        follow(&mut peer, target, offset, &mut all, go_on)?;
    }
    Ok(all)
}

/// What a server may send in one command.
const COMMAND_LIMITS: ReadLimits = ReadLimits {
    inline_bytes: 64 << 10,
    arguments: 1 << 20,
    bulk_bytes: 512 << 20,
    unauthenticated: false,
};

/// Runs the commands that come, until `go_on` says no.
fn follow(
    peer: &mut Peer,
    target: &mut dyn Target,
    mut offset: u64,
    all: &mut Transferred,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<(), TransferError> {
    // A read waits for no longer than the server waits for a word.
    peer.set_read_timeout(ACK_EVERY)?;
    let (mut parser, mut frames, mut input) = (Parser::default(), Frames::default(), Vec::new());
    let mut chunk = vec![0; READ_BYTES];
    let mut told: Option<Instant> = None;
    while go_on(all) {
        if told.is_none_or(|told| told.elapsed() >= ACK_EVERY) {
            tell(peer, offset)?;
            told = Some(Instant::now());
        }
        match peer.reader().read(&mut chunk) {
            Ok(0) => return Err(failed("the server has ended the connection")),
            Ok(len) => input.extend_from_slice(&chunk[..len]),
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Err(error.into()),
        }
        let parsed = parser.parse(&mut input, &mut frames, &COMMAND_LIMITS, usize::MAX);
        parsed.map_err(|error| failed(format!("the server's commands: {error}")))?;
        let (mut commands, mut count, mut is_asked) = (Vec::new(), 0, false);
        for at in 0..frames.len() {
            let args = frames.command(&input, at);
            let name = args.at(0).to_ascii_lowercase();
            is_asked |= name == b"replconf";
            if name != b"ping" && name != b"replconf" {
                push_command(&mut commands, args.iter_from(0), args.len());
                count += 1;
            }
        }
        let taken = parser.consume(&mut frames);
        input.drain(..taken);
        target.run(&commands, count, all)?;
        all.commands += count as u64;
        offset += taken as u64;
        if is_asked {
            tell(peer, offset)?;
        }
    }
    target.finish()
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn push_command<'a>(out: &mut Vec<u8>, words: impl Iterator<Item = &'a [u8]>, len: usize) {
    out.extend_from_slice(format!("*{len}\r\n").as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Tells the server how far its commands were taken.
fn tell(peer: &mut Peer, offset: u64) -> io::Result<()> {
    peer.push(&[b"REPLCONF", b"ACK", offset.to_string().as_bytes()]);
    peer.flush()
}
