//! Messages of both directions, those of all assemblies among them. The first byte says whose they
//! are, the rest is one. What decodes has one encoding, and takes memory in proportion to its
//! bytes.

use super::Input;
use crate::{
    binned,
    message::{Frame, Reply, Request},
    two_stage,
};

/// Decodes a message and encodes it again.
pub fn messages(data: &[u8]) {
    let mut input = Input(data);
    let (kind, bytes) = (input.number(1) % 4, input.0);
    match kind {
        0 => frame(bytes),
        1 => {
            if let Ok(request) = binned::Request::decode(bytes) {
                same(bytes, |out| request.encode(out));
            }
            if let Ok(reply) = binned::Reply::decode(bytes) {
                same(bytes, |out| reply.encode(out));
            }
        }
        2 => {
            if let Ok(lookup) = two_stage::Lookup::decode(bytes) {
                same(bytes, |out| lookup.encode(out));
            }
            if let Ok(answer) = two_stage::Answer::decode(bytes) {
                same(bytes, |out| answer.encode(out));
            }
        }
        // The frame's own length may be anything.
        _ => {
            drop(Frame::parse(bytes).map(|frame| (Request::decode(&frame), Reply::decode(&frame))))
        }
    }
}

/// A message after the length of its frame, which is made right.
fn frame(bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let bytes = [&len.to_le_bytes()[..], bytes].concat();
    let Ok(frame) = Frame::parse(&bytes) else { return };
    if let Ok(request) = Request::decode(&frame) {
        let mut out = Vec::new();
        request.encode(frame.id, &mut out).expect("what decodes encodes");
        assert_eq!(out, bytes, "another encoding");
    }
    if let Ok(reply) = Reply::decode(&frame) {
        let mut out = Vec::new();
        reply.encode(frame.id, &mut out).expect("what decodes encodes");
        assert_eq!(out, bytes, "another encoding");
    }
}

/// Checks that a message of an assembly encodes to what it was decoded from, or to something that
/// is shorter: its numbers have longer forms too.
fn same(bytes: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    encode(&mut out);
    assert!(out.len() <= bytes.len(), "{} bytes became {}", bytes.len(), out.len());
    if out.len() == bytes.len() {
        assert_eq!(out, bytes, "another encoding");
    }
}
