//! Streams by `DUMP` and `RESTORE`, to Redis and back.

mod common;
#[path = "common/oracle.rs"]
mod oracle;

use common::{Client, Value};
use oracle::Oracle;

fn payload(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&["DUMP", key]) {
        Value::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// What is pending, without the time that has passed.
fn without_idle(mut reply: Value) -> Value {
    if let Value::Array(all) = &mut reply {
        for one in all {
            if let Value::Array(parts) = one {
                parts.remove(2);
            }
        }
    }
    reply
}

#[test]
fn streams_go_both_ways_with_their_groups_and_what_is_pending() {
    let (_dir, _server, mut ours) = common::start();
    let Some(oracle) = Oracle::start() else {
        return println!("no redis-server 7.0: not compared");
    };
    let mut theirs = Client::connect(oracle.address);
    for entry in 0..1000 {
        let other = format!("other{entry}");
        let field = if entry % 7 == 0 { &other } else { "same" };
        theirs.call(&["XADD", "s", &format!("{}-{}", 5 + entry / 3, entry), field, "v", "n", "1"]);
    }
    for line in [
        "XDEL s 5-0 6-3 100-286",
        "XGROUP CREATE s g 0",
        "XGROUP CREATE s h 20-47",
        "XGROUP CREATE s none $",
        "XREADGROUP GROUP g alice COUNT 5 STREAMS s >",
        "XREADGROUP GROUP g bob COUNT 3 STREAMS s >",
        "XREADGROUP GROUP h carol COUNT 2 STREAMS s >",
        "XGROUP CREATECONSUMER s g idle",
        "XGROUP CREATE empty g $ MKSTREAM",
        "XADD gone 1-1 a b",
        "XDEL gone 1-1",
    ] {
        assert!(!matches!(theirs.run(line), Value::Error(_)), "{line}");
    }
    for key in ["s", "empty", "gone"] {
        let bytes = payload(&mut theirs, key);
        let words = [b"RESTORE", key.as_bytes(), b"0", &bytes];
        assert_eq!(ours.call_bytes(&words), Value::ok(), "{key}");
        for line in [
            format!("XRANGE {key} - +"),
            format!("XINFO GROUPS {key}"),
            format!("XPENDING {key} g"),
            format!("XPENDING {key} h"),
            format!("XREADGROUP GROUP g alice STREAMS {key} 0"),
        ] {
            assert_eq!(ours.run(&line), theirs.run(&line), "{line}");
        }
        let bytes = payload(&mut ours, key);
        let back = format!("{key}:back");
        let words = [b"RESTORE", back.as_bytes(), b"0", &bytes];
        assert_eq!(theirs.call_bytes(&words), Value::ok(), "{key} back");
        assert_eq!(
            theirs.run(&format!("XRANGE {key} - +")),
            theirs.run(&format!("XRANGE {back} - +"))
        );
        assert_eq!(
            theirs.run(&format!("DEBUG DIGEST-VALUE {key}")),
            theirs.run(&format!("DEBUG DIGEST-VALUE {back}"))
        );
        assert_eq!(
            theirs.run(&format!("XINFO GROUPS {key}")),
            theirs.run(&format!("XINFO GROUPS {back}"))
        );
        // It has no group.
        if key == "gone" {
            continue;
        }
        let mut pending =
            |key: &str| without_idle(theirs.run(&format!("XPENDING {key} g - + 100")));
        assert_eq!(pending(key), pending(&back));
    }
    // It goes on as any stream.
    assert_eq!(ours.run("XADD s 1000-1 a b"), Value::bulk("1000-1"));
    assert_eq!(ours.run("XACK s g 5-1"), theirs.run("XACK s g 5-1"));
    assert_eq!(ours.run("XLEN s"), Value::Int(998));
    assert_eq!(ours.run("DEL s"), Value::Int(1));
}
