//! Values through `RESTORE` and `DUMP`.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::{LIMITS, SERVER};
use crate::{
    clients::ClientInfo,
    rdb::finish_payload,
    resp::{Frames, Parser, ReadLimits, Reply},
    server::Server,
    session::Session,
};

/// Commands that read all of a value of their kind, and what writes to it; all of them are tried.
const READERS: [&str; 21] = [
    "TYPE a",
    "OBJECT ENCODING a",
    "MEMORY USAGE a",
    "GET a",
    "GETRANGE a 1 3",
    "LRANGE a 0 -1",
    "LINDEX a -1",
    "HGETALL a",
    "HRANDFIELD a 3 WITHVALUES",
    "SMEMBERS a",
    "SRANDMEMBER a -3",
    "ZRANGE a 0 -1 WITHSCORES",
    "ZRANK a b",
    "ZPOPMIN a 2",
    "XRANGE a - +",
    "XINFO STREAM a FULL",
    "XPENDING a g",
    "XREADGROUP GROUP g d COUNT 2 STREAMS a >",
    "XADD a * f v",
    "PFCOUNT a",
    "COPY a b REPLACE",
];

/// The only client, which says one command at a time.
struct One {
    server: MutexGuard<'static, Arc<Server>>,
    session: Session,
}

impl One {
    fn new() -> Self {
        let server = SERVER.lock();
        let info = Arc::new(ClientInfo::new(9, String::new(), String::new()));
        Self { session: Session::new(&server, info, true, Arc::default()), server }
    }

    /// The reply to a command.
    fn call(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut input = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            input.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            input.extend_from_slice(word);
            input.extend_from_slice(b"\r\n");
        }
        let (mut parser, mut frames) = (Parser::default(), Frames::default());
        let limits = ReadLimits { arguments: 1000, bulk_bytes: 1 << 24, ..LIMITS };
        let parsed = parser.parse(&mut input, &mut frames, &limits, usize::MAX);
        assert!(parsed.is_ok() && frames.len() == 1, "one command was sent");
        let mut out = Reply::new(1 << 24);
        self.session.run(&self.server, &input, &frames, 0, 1 << 24, &mut out);
        self.session.finish_waiting(&self.server, &mut out);
        out.bytes().to_vec()
    }

    /// What `DUMP` gives; none if it refuses, or if all fields of the hash have ended.
    fn dump(&mut self, key: &str) -> Option<Vec<u8>> {
        let reply = self.call(&[b"DUMP", key.as_bytes()]);
        if reply.starts_with(b"-") || reply == b"$-1\r\n" {
            return None;
        }
        let end = reply.windows(2).position(|two| two == b"\r\n").expect("a header");
        Some(reply[end + 2..reply.len() - 2].to_vec())
    }
}

/// The bytes are a value with its type, as they lie in a payload.
///
/// # Panics
///
/// If a promise is broken.
pub fn restore(data: &[u8]) {
    let mut one = One::new();
    one.call(&[b"FLUSHALL"]);
    let mut payload = data.to_vec();
    finish_payload(&mut payload);
    if one.call(&[b"RESTORE", b"a", b"0", &payload]) != b"+OK\r\n" {
        assert_eq!(one.call(&[b"EXISTS", b"a"]), b":0\r\n", "refused, and there");
    } else if let Some(dumped) = one.dump("a") {
        let restored = one.call(&[b"RESTORE", b"b", b"0", &dumped]);
        assert_eq!(restored, b"+OK\r\n", "{}", String::from_utf8_lossy(&restored));
        assert_eq!(one.dump("b").as_deref(), Some(&dumped[..]), "another value");
        for line in READERS {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert!(!one.call(&words).is_empty(), "no reply to {line}");
        }
    }
    one.session.end(&one.server);
}

/// Real values of this server, by the commands that make them.
pub(super) fn own_values() -> Vec<Vec<u8>> {
    let mut one = One::new();
    let mut values = Vec::new();
    for lines in [
        &["SET v x"][..],
        &["RPUSH v a b 3 -70000 c"],
        &["SADD v a b 1 2"],
        &["SADD v 1 2 3 70000"],
        &["HSET v f v g w 1 2"],
        &["ZADD v 1 a 2.5 b -inf c"],
        &[
            "XADD v 5-1 f v",
            "XADD v 5-2 f w g h",
            "XGROUP CREATE v g 0",
            "XREADGROUP GROUP g c STREAMS v >",
        ],
    ] {
        one.call(&[b"FLUSHALL"]);
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            one.call(&words);
        }
        let mut value = one.dump("v").expect("a value that can be dumped");
        // Without the version and the checksum, ten bytes.
        value.truncate(value.len() - 10);
        values.push(value);
    }
    one.session.end(&one.server);
    values
}
