//! The messages of keyspaces of which several hosts have a part each.

use super::*;
use crate::message::{Table, format::SERVER_BYTES_MAX};

/// The first key and the host of each range.
type Routes<'a> = Vec<(&'a [u8], &'a str)>;

/// A reply with these ranges and this table.
fn routing<'a>(
    ranges: Vec<(&'a [u8], Option<&'a [u8]>)>,
    table: Option<(u64, Routes<'a>)>,
) -> Reply<'a> {
    let table = table.map(|(epoch, ranges)| Table { epoch, ranges });
    Reply::Routing { generation: 3, ranges, table }
}

#[test]
fn golden_bytes_of_what_several_hosts_are_asked() {
    assert_golden(&[(
        Request::Routing { keyspace: 5, above: 258 },
        frame(0x28, &[b"\x05\0\0\0\x02\x01\0\0\0\0\0\0"]),
    )]);
    let generation = b"\x03\0\0\0\0\0\0\0";
    for (reply, bytes) in [
        (Reply::Moved { epoch: 9 }, frame(0xa8, &[b"\x09\0\0\0\0\0\0\0"])),
        (routing(vec![], None), frame(0xa9, &[generation, b"\0", &[0; 8]])),
        (
            routing(vec![(b"", Some(b"c")), (b"n", None)], None),
            frame(0xa9, &[generation, b"\x02\0\x01\x01c\x01n\0", &[0; 8]]),
        ),
        (
            routing(vec![(b"", None)], Some((2, vec![(b"", "a"), (b"m", "tcp:b:1")]))),
            frame(
                0xa9,
                &[generation, b"\x01\0\0", b"\x02\0\0\0\0\0\0\0", b"\x02\0\x01a\x01m\x07tcp:b:1"],
            ),
        ),
    ] {
        assert_eq!(encoded_reply(&reply), bytes, "{reply:?}");
        assert_eq!(decode_reply(&bytes).unwrap(), reply);
    }
}

#[test]
fn tables_that_are_malformed_or_too_large_are_refused() {
    let generation = &[0; 8][..];
    let epoch = b"\x01\0\0\0\0\0\0\0";
    assert_refused(&frame(0xa9, &[generation, b"\x01\0\x02"]), "if there is a key");
    assert_refused(&frame(0xa9, &[generation, b"\x02\0\0"]), "a number of ranges");
    assert_refused(&frame(0xa9, &[generation, b"\0", epoch, b"\x05\0\0"]), "a number of ranges");
    assert_refused(&frame(0xa9, &[generation, b"\0", epoch, b"\x01\0\x01\xff"]), "utf-8");
    let long = "s".repeat(SERVER_BYTES_MAX + 1);
    let reply = routing(vec![], Some((1, vec![(b"", &long)])));
    assert!(matches!(reply.encode(7, &mut Vec::new()), Err(Error::InvalidArgument(_))));
    let length = ((SERVER_BYTES_MAX + 1) as u16).to_le_bytes();
    let length = [length[0] | 0x80, length[1] << 1];
    let body = [generation, b"\0", epoch, b"\x01\0", &length, long.as_bytes()];
    assert_refused(&frame(0xa9, &body), "an address");
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let table = option::of((1u64..4, vec((bytes(), "[a-z:/]{0,9}"), 0..4)));
    (vec((bytes(), option::of(bytes())), 0..4), table, any::<u64>(), 0..3).prop_map(
        |(ranges, table, number, kind)| {
            let ranges = ranges.iter().map(|(low, high)| (&low[..], high.as_deref())).collect();
            let table = table.as_ref().map(|(epoch, ranges)| {
                (*epoch, ranges.iter().map(|(low, server)| (&low[..], &server[..])).collect())
            });
            match kind {
                0 => encoded(&Request::Routing { keyspace: number as u32, above: number }),
                1 => encoded_reply(&Reply::Moved { epoch: number }),
                _ => encoded_reply(&routing(ranges, table)),
            }
        },
    )
}

proptest! {
    #[test]
    fn messages_of_several_hosts_are_read_back_or_refused(
        mut bytes in any_message(),
        at: usize,
        xor in 1u8..,
        body in vec(prop_oneof![0u8..4, any::<u8>()], 0..60),
        kind in prop_oneof![Just(0x28u8), Just(0xa8), Just(0xa9)],
    ) {
        prop_assert!(is_canonical(&bytes)?);
        let at = HEAD_BYTES + at % (bytes.len() - HEAD_BYTES);
        bytes[at] ^= xor;
        is_canonical(&bytes)?;
        is_canonical(&frame(kind, &[&body]))?;
    }
}
