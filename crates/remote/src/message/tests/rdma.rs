//! The messages of keyspaces that are read by RDMA.

use super::*;

const ENDPOINT: Endpoint = Endpoint {
    gid: *b"0123456789abcdef",
    lid: 0x0102,
    mtu: 3,
    reads_in: 16,
    queue: 0x0203_0405,
    sequence: 0x00ab_cdef,
};
const ENDPOINT_BYTES: &[u8] = b"0123456789abcdef\x02\x01\x03\x10\x05\x04\x03\x02\xef\xcd\xab\0";

#[test]
fn golden_bytes_of_what_connects_queue_pairs() {
    assert_golden(&[
        (
            Request::Attach { keyspace: 5, endpoint: ENDPOINT },
            frame(0x30, &[b"\x05\0\0\0", ENDPOINT_BYTES]),
        ),
        (
            Request::AttachCalls { keyspace: 5, endpoint: ENDPOINT },
            frame(0x32, &[b"\x05\0\0\0", ENDPOINT_BYTES]),
        ),
        (
            Request::RemoteSegments { keyspace: 5, part: Part::Leaves, known: 2 },
            frame(0x31, &[b"\x05\0\0\0\x01\x02\0\0\0"]),
        ),
    ]);
    let segment = RemoteSegment { address: 0x7000, bytes: 2 << 20, key: 9 };
    for (reply, bytes) in [
        (Reply::Attached { endpoint: ENDPOINT }, frame(0xb0, &[ENDPOINT_BYTES])),
        (Reply::RemoteSegments { segments: vec![] }, frame(0xb1, &[b"\0"])),
        (
            Reply::RemoteSegments { segments: vec![segment] },
            frame(0xb1, &[b"\x01\0\x70\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\x09\0\0\0"]),
        ),
    ] {
        assert_eq!(encoded_reply(&reply), bytes, "{reply:?}");
        assert_eq!(decode_reply(&bytes).unwrap(), reply);
    }
}

#[test]
fn what_is_cut_off_or_counts_too_much_is_refused() {
    assert_refused(&frame(0x30, &[b"\x05\0\0\0", &ENDPOINT_BYTES[..15]]), "a GID");
    assert_refused(&frame(0x32, &[b"\x05\0\0\0", &ENDPOINT_BYTES[..15]]), "a GID");
    assert_refused(&frame(0x31, &[b"\x05\0\0\0\x02\x02\0\0\0"]), "a part of a region");
    assert_refused(&frame(0xb1, &[b"\x02", &[0; 39]]), "a number of segments");
    assert_refused(&frame(0xb0, &[ENDPOINT_BYTES, b"\0"]), "");
}

proptest! {
    #[test]
    fn any_bytes_are_such_a_message_or_refused(
        body in vec(prop_oneof![0u8..4, any::<u8>()], 0..80),
        kind in prop_oneof![Just(0x30_u8), Just(0x31), Just(0x32), Just(0xb0), Just(0xb1)],
    ) {
        is_canonical(&frame(kind, &[&body]))?;
    }
}
