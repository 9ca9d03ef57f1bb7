//! The keys of a server that runs, read one after the other by `SCAN` and `DUMP`. A key that is
//! written meanwhile is read before or after; one that is renamed may be missed.

use std::io::Write;

use super::{
    KEYS_PER_LOOK, Refusal, Target, TransferError, Transferred, address, first_line, look,
    remote::REPLY_TIMEOUT,
};
use crate::{
    db::now_ms,
    peer::{Peer, PeerReply},
    rdb::{
        DumpWriter, Item, Items, KeyHead, RdbError, Source, ValueBytes, ValueKind, libraries_of,
        open_payload,
    },
};

/// Keys that are read together.
const KEYS_AT_A_TIME: &[u8] = b"256";

fn unexpected(what: &str, reply: &PeerReply) -> TransferError {
    let text = match reply {
        PeerReply::Error(text) => text.clone(),
        _ => "an unexpected reply".to_owned(),
    };
    TransferError::Failed(format!("the server's {what}: {text}"))
}

/// The databases that have keys.
fn databases(peer: &mut Peer) -> Result<Vec<u64>, TransferError> {
    let reply = peer.call(&[b"INFO", b"keyspace"])?;
    let PeerReply::Bulk(text) = &reply else { return Err(unexpected("INFO", &reply)) };
    let text = String::from_utf8_lossy(text);
    let number = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
    let mut all: Vec<u64> = text.lines().filter_map(number).collect();
    if all.is_empty() {
        // Not every server tells before it is asked for its keys.
        all = (0..16).collect();
    }
    Ok(all)
}

/// Reads the libraries of functions of a server into a target: a server before Redis 7.0 has none.
fn read_libraries(
    peer: &mut Peer,
    target: &mut dyn Target,
    is_lenient: bool,
    all: &mut Transferred,
) -> Result<(), TransferError> {
    let payload = match peer.call(&[b"FUNCTION", b"DUMP"])? {
        PeerReply::Bulk(payload) => payload,
        PeerReply::Error(text) if text.starts_with("ERR unknown command") => return Ok(()),
        other => return Err(unexpected("FUNCTION DUMP", &other)),
    };
    let failed = |what: &str| TransferError::Failed(format!("the server's FUNCTION DUMP: {what}"));
    for code in libraries_of(&payload).map_err(failed)? {
        let is_taken = look(target.library(&code), is_lenient, all, |why| {
            (String::new(), format!("the library {}: {why}", first_line(&code)))
        })?;
        all.functions += u64::from(is_taken);
    }
    Ok(())
}

/// Reads all libraries and all keys of a server into a target.
pub(super) fn read_keys(
    peer: &mut Peer,
    target: &mut dyn Target,
    is_lenient: bool,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<Transferred, TransferError> {
    let mut all = Transferred { was_scanned: true, ..Transferred::default() };
    read_libraries(peer, target, is_lenient, &mut all)?;
    for database in databases(peer)? {
        match peer.call(&[b"SELECT", database.to_string().as_bytes()])? {
            PeerReply::Error(_) if database > 0 => continue,
            error @ PeerReply::Error(_) => return Err(unexpected("SELECT", &error)),
            _ => {}
        }
        target.database(database)?;
        let mut cursor = b"0".to_vec();
        loop {
            let reply = peer.call(&[b"SCAN", &cursor, b"COUNT", KEYS_AT_A_TIME])?;
            let PeerReply::Array(parts) = &reply else { return Err(unexpected("SCAN", &reply)) };
            let [PeerReply::Bulk(next), PeerReply::Array(keys)] = &parts[..] else {
                return Err(unexpected("SCAN", &reply));
            };
            read_page(peer, target, keys, is_lenient, &mut all)?;
            cursor.clone_from(next);
            if cursor == b"0" {
                break;
            }
            if !go_on(&all) {
                target.finish()?;
                return Ok(all);
            }
        }
    }
    target.finish()?;
    all.is_complete = true;
    Ok(all)
}

fn read_page(
    peer: &mut Peer,
    target: &mut dyn Target,
    keys: &[PeerReply],
    is_lenient: bool,
    all: &mut Transferred,
) -> Result<(), TransferError> {
    let keys = || {
        keys.iter().filter_map(|key| if let PeerReply::Bulk(key) = key { Some(key) } else { None })
    };
    for key in keys() {
        peer.push(&[b"PTTL", key]);
        peer.push(&[b"DUMP", key]);
    }
    peer.flush()?;
    for key in keys() {
        let (ttl, payload) = (peer.reply()?, peer.reply()?);
        let expires_ms = match ttl {
            PeerReply::Int(ttl) if ttl >= 0 => now_ms().saturating_add(ttl.unsigned_abs()),
            _ => 0,
        };
        let payload = match payload {
            PeerReply::Bulk(payload) => payload,
            // It has ended, or was removed.
            PeerReply::Null => continue,
            other => return Err(unexpected("DUMP", &other)),
        };
        let name = || format!("the key \"{}\"", key.escape_ascii());
        match read_value(target, (key, expires_ms), &payload) {
            Ok(Some(())) => all.keys += 1,
            Ok(None) => all.modules += 1,
            Err(Refusal::Unfit(why)) if is_lenient => {
                all.unfit += 1;
                all.first_unfit.get_or_insert_with(|| format!("{}: {why}", name()));
            }
            Err(Refusal::Unfit(why)) => {
                return Err(TransferError::Failed(format!("{}: {why}", name())));
            }
            Err(Refusal::Failed(error)) => {
                return Err(TransferError::Failed(format!("{}: {error}", name())));
            }
        }
        all.bytes += payload.len() as u64;
    }
    Ok(())
}

/// Gives the value of a payload to a target; none if it is a module's.
fn read_value(
    target: &mut dyn Target,
    (key, expires_ms): (&[u8], u64),
    payload: &[u8],
) -> Result<Option<()>, Refusal> {
    let wrong = || Refusal::Unfit("its version or checksum is not as it should be".to_owned());
    let bytes = open_payload(payload).ok_or_else(wrong)?;
    let mut source = Source::new(bytes, false);
    let type_byte = source.byte()?;
    let mut items = Items::begin(type_byte, &mut source)?;
    if items.kind == ValueKind::Module {
        return Ok(None);
    }
    let head = KeyHead { key: key.to_vec(), kind: items.kind, expires_ms };
    target.value(&head, &mut || items.next(&mut source))?;
    Ok(Some(()))
}

/// A dump that values go to.
struct DumpTarget<W> {
    writer: DumpWriter<W>,
}

impl<W: Write> Target for DumpTarget<W> {
    fn database(&mut self, number: u64) -> Result<(), TransferError> {
        Ok(self.writer.database(number)?)
    }

    fn value(
        &mut self,
        head: &KeyHead,
        next: &mut dyn FnMut() -> Result<Option<Item>, RdbError>,
    ) -> Result<(), Refusal> {
        let (mut value, mut bytes) = (ValueBytes::new(head.kind), Vec::new());
        while let Some(item) = next()? {
            value.push(&item);
        }
        value.finish(&mut bytes)?;
        if let Some((type_byte, bytes)) = bytes.split_first() {
            self.writer.key(&head.key, *type_byte, head.expires_ms)?;
            self.writer.raw(bytes)?;
        }
        Ok(())
    }

    fn library(&mut self, code: &[u8]) -> Result<(), Refusal> {
        Ok(self.writer.library(code)?)
    }

    fn run(&mut self, _: &[u8], _: usize, _: &mut Transferred) -> Result<(), TransferError> {
        Err(TransferError::Failed("a dump takes no commands".to_owned()))
    }

    fn finish(&mut self) -> Result<(), TransferError> {
        Ok(())
    }
}

/// Writes the keys of a server that runs as a dump, read one after the other: not all at one
/// moment, if its clients write meanwhile. `go_on` is asked now and then.
///
/// # Errors
///
/// If the server does not answer, or the dump cannot be written.
pub fn export_server(
    url: &str,
    to: impl Write,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<Transferred, TransferError> {
    let address = address(url)?;
    let mut peer = Peer::open(&address, REPLY_TIMEOUT).map_err(TransferError::Failed)?;
    let mut target = DumpTarget { writer: DumpWriter::begin(to, now_ms())? };
    let mut looked = 0;
    let mut all = read_keys(&mut peer, &mut target, false, &mut |all| {
        let is_due = all.keys - looked >= KEYS_PER_LOOK;
        looked = if is_due { all.keys } else { looked };
        !is_due || go_on(all)
    })?;
    if all.is_complete {
        let (mut to, bytes) = target.writer.finish()?;
        to.flush()?;
        all.bytes = bytes;
    }
    Ok(all)
}
