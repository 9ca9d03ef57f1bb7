//! Entry points for fuzzing: bytes of a client in, and a panic where a promise is broken. Only with
//! the feature `fuzzing`; `fuzz/` and the tests here call them, nothing else.
//!
//! [`resp`] promises that commands are the same however their bytes are split, and that what is
//! kept for them grows with the bytes. [`session`] promises that no bytes make a command panic.

use std::sync::{Arc, LazyLock};

use crate::{
    clients::ClientInfo,
    command::COMMANDS,
    config::{Config, Fsync},
    resp::{Frames, Parser, ReadLimits, Reply},
    server::Server,
    session::Session,
};

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

/// One server for all inputs; its data go with the process.
static SERVER: LazyLock<Arc<Server>> = LazyLock::new(|| {
    let data = std::env::temp_dir().join(format!("rhumb-fuzz-{}", std::process::id()));
    let config = Config { data, memory_bytes: 16 << 20, fsync: Fsync::No, ..Config::default() };
    let server = Server::open(config, Arc::new(crate::log::Log::silent()), COMMANDS.slots())
        .expect("an empty directory can be opened");
    // So that there is somebody to share commits with.
    for _ in 0..2 {
        server.clients.enter(9, String::new(), String::new());
    }
    Arc::new(server)
});

/// Bytes that a client sends that has said the password.
pub fn session(data: &[u8]) {
    let server = &*SERVER;
    let info = Arc::new(ClientInfo::new(9, String::new(), String::new()));
    let mut session = Session::new(info, true, Arc::default());
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

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: [&[u8]; 7] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"SET a 'x y' \r\n\r\nGET \"\\x61\"\r\nQUIT\r\n",
        b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n*1\r\n$999\r\n",
        b"*1\r\nPING\r\n",
        b"*11\r\n",
        b"\"unbalanced\r\n",
        b"*3\r\n$4\r\nMSET\r\n$0\r\n\r\n$0\r\n\r\n*1\r\n$5\r\nMULTI\r\n",
    ];

    #[test]
    fn seeds_and_what_is_near_them_are_parsed_alike() {
        for seed in SEEDS {
            for split in 0..=255 {
                resp(&[&[split], seed].concat());
            }
            for at in 0..seed.len() {
                for byte in [b'\r', b'\n', b'*', b'$', b'0', b'9', b'-', b'"', 0xFF] {
                    let mut near = [&[7], seed].concat();
                    near[at + 1] = byte;
                    resp(&near);
                }
            }
        }
    }

    #[test]
    fn lines_at_their_limit_are_parsed_alike() {
        for len in 55..110 {
            for end in ["\r\n", "\n"] {
                for start in ["*", "*1\r\n$", "P"] {
                    let line = format!("{start}{}{end}PING\r\n", "0".repeat(len));
                    (0..=255).for_each(|split| resp(&[&[split], line.as_bytes()].concat()));
                }
            }
        }
    }

    #[test]
    fn sessions_take_seeds() {
        SEEDS.iter().for_each(|seed| session(seed));
    }
}
