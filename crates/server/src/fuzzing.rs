//! Entry points for fuzzing: bytes of a client in, and a panic where a promise is broken. Only with
//! the feature `fuzzing`; `fuzz/` and the tests here call them, nothing else.
//!
//! [`resp`] promises that commands are the same however their bytes are split, and that what is
//! kept for them grows with the bytes. [`session`] promises that no bytes make a command panic.
//! [`rdb`] promises that no bytes make a reader of dumps panic, and that a value that can be read
//! is the same once it was written and read again. [`restore`] promises the same of `RESTORE` and
//! `DUMP`, and that what was restored can be read by every command. [`scripts`] promises that no
//! bytes make a converter of scripts panic, that what it made is the same once it was made into
//! bytes and back, and that a script's reply is a whole one.

mod restore;
mod scripts;
mod seeds;

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::{
    clients::ClientInfo,
    command,
    config::{Config, Fsync},
    rdb::{Dump, Item, Items, Source, ValueBytes, ValueKind, open_payload},
    resp::{Frames, Parser, ReadLimits, Reply},
    server::Server,
    session::Session,
};

pub use restore::restore;
pub use scripts::scripts;
pub use seeds::seeds;

/// A target's name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// The targets that begin at [`seeds`].
pub const TARGETS: [Target; 3] = [("rdb", rdb), ("restore", restore), ("scripts", scripts)];

/// Small limits, so that short inputs reach them.
const LIMITS: ReadLimits =
    ReadLimits { inline_bytes: 96, arguments: 10, bulk_bytes: 300, unauthenticated: true };

/// What a connection makes of bytes: its commands, each with its arguments, and the error.
type Parsed = (Vec<Vec<Vec<u8>>>, Option<String>);

/// Parses bytes that come in pieces, as a connection does. `most` commands are parsed at a time.
fn parse<'a>(pieces: impl Iterator<Item = &'a [u8]>, most: usize) -> Parsed {
    let (mut parser, mut frames, mut input) = (Parser::default(), Frames::default(), Vec::new());
    let mut commands = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let parsed = parser.parse(&mut input, &mut frames, &LIMITS, most);
            let complete = frames.len();
            assert!(complete <= most, "{complete} commands, not {most}");
            for at in 0..complete {
                let args = frames.command(&input, at);
                assert!(!args.is_empty() && args.len() <= input.len());
                commands.push(args.iter_from(0).map(<[u8]>::to_vec).collect());
            }
            let taken = parser.consume(&mut frames);
            input.drain(..taken);
            if let Err(error) = parsed {
                return (commands, Some(error.to_string()));
            }
            if complete < most {
                break;
            }
        }
        // An incomplete command: what may be kept of it is bounded by the limits alone.
        let kept_max = LIMITS.inline_bytes + LIMITS.arguments * (LIMITS.bulk_bytes + 80);
        assert!(input.len() <= kept_max + piece.len(), "{} bytes are kept", input.len());
    }
    (commands, None)
}

/// The first byte says how the rest is split.
pub fn resp(data: &[u8]) {
    let Some((&split, bytes)) = data.split_first() else { return };
    let whole = parse(std::iter::once(bytes), usize::MAX);
    let size = usize::from(split % 61) + 1;
    assert_eq!(parse(bytes.chunks(size), 1 + usize::from(split / 61)), whole, "pieces of {size}");
}

/// One server for all inputs, one at a time: each begins with no data. They go with the process.
static SERVER: LazyLock<Mutex<Arc<Server>>> = LazyLock::new(|| {
    let data = std::env::temp_dir().join(format!("rhumb-fuzz-{}", std::process::id()));
    let config = Config { data, memory_bytes: 16 << 20, fsync: Fsync::No, ..Config::default() };
    let server = Server::open(config, Arc::new(crate::log::Log::silent()), command::catalog())
        .expect("an empty directory can be opened");
    // So that there is somebody to share commits with.
    for _ in 0..2 {
        server.clients.enter(9, String::new(), String::new());
    }
    Mutex::new(server.share())
});

/// Bytes that a client sends that has said the password.
pub fn session(data: &[u8]) {
    let server = &*SERVER.lock();
    let info = Arc::new(ClientInfo::new(9, String::new(), String::new()));
    let mut session = Session::new(server, info, true, Arc::default());
    let mut out = Reply::new(1 << 20);
    let (mut parser, mut frames, mut input) =
        (Parser::default(), Frames::default(), b"FLUSHALL\r\n".to_vec());
    input.extend_from_slice(data);
    let limits = ReadLimits { inline_bytes: 4096, arguments: 1000, bulk_bytes: 1 << 16, ..LIMITS };
    let parsed = parser.parse(&mut input, &mut frames, &limits, usize::MAX);
    let mut at = 0;
    while at < frames.len() && !session.client.closing {
        at += session.run(server, &input, &frames, at, 1 << 20, &mut out);
        session.finish_waiting(server, &mut out);
        out.clear(1 << 20);
    }
    drop(parsed);
    session.end(server);
}

/// The items of a value, and its kind; none if the bytes are damaged. Their memory is bounded.
fn read_value(bytes: &[u8]) -> Option<(ValueKind, Vec<Item>)> {
    let mut source = Source::new(bytes, false);
    let type_byte = source.byte().ok()?;
    let mut items = Items::begin(type_byte, &mut source).ok()?;
    let mut all = Vec::new();
    while let Some(item) = items.next(&mut source).ok()? {
        all.push(item);
    }
    Some((items.kind, all))
}

/// The first byte says whether the rest is a dump, a payload of `DUMP`, or a value with its type.
pub fn rdb(data: &[u8]) {
    let Some((&form, bytes)) = data.split_first() else { return };
    match form % 3 {
        0 => {
            let Ok(mut dump) = Dump::open(bytes) else { return };
            while let Ok(Some(_)) = dump.next() {
                while let Ok(Some(_)) = dump.item() {}
            }
            assert!(dump.offset() <= bytes.len() as u64);
        }
        1 => assert!(open_payload(bytes).is_none_or(|value| value.len() < bytes.len())),
        _ => {
            let Some((kind, items)) = read_value(bytes) else { return };
            if kind == ValueKind::Module {
                return;
            }
            let mut value = ValueBytes::new(kind);
            items.iter().for_each(|item| value.push(item));
            let mut written = Vec::new();
            value.finish(&mut written).expect("what was written is read");
            let read = read_value(&written);
            // A consumer's second time is not written.
            if kind != ValueKind::Stream {
                assert_eq!(read, Some((kind, items)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
