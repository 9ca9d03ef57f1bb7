//! Libraries of functions as bytes: what `FUNCTION DUMP` gives, and a part of a dump.

use super::{
    format::OP_FUNCTION_2, payload::finish_payload, payload::open_payload, source::Source,
    write::push_string,
};

/// The first format of libraries, of versions of Redis that were not released.
const OP_FUNCTION_PRE_GA: u8 = 246;

/// Appends a library.
pub(super) fn push_library(out: &mut Vec<u8>, code: &[u8]) {
    out.push(OP_FUNCTION_2);
    push_string(out, code);
}

/// The payload of libraries that have this code.
pub(crate) fn libraries_payload<'c>(all: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut payload = Vec::new();
    all.for_each(|code| push_library(&mut payload, code));
    finish_payload(&mut payload);
    payload
}

/// The code of each library of a payload.
///
/// # Errors
///
/// The text of Redis, without its code.
pub(crate) fn libraries_of(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut rest = open_payload(payload).ok_or("DUMP payload version or checksum are wrong")?;
    let mut all = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        match *first {
            OP_FUNCTION_2 => {}
            OP_FUNCTION_PRE_GA => return Err("Pre-GA function format not supported"),
            _ => return Err("given type is not a function"),
        }
        let mut source = Source::new(after, false);
        all.push(source.string().map_err(|_| "failed loading library name")?);
        let read = usize::try_from(source.offset()).unwrap_or(usize::MAX);
        rest = after.get(read..).unwrap_or_default();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_come_back_from_their_payload() {
        let all: [&[u8]; 3] = [b"#!lua name=a\nx", b"", &[7; 100_000]];
        let mut payload = libraries_payload(all.into_iter());
        assert_eq!(libraries_of(&payload).unwrap(), all);
        assert!(libraries_of(&libraries_payload(std::iter::empty())).unwrap().is_empty());
        payload[0] = 0;
        assert!(libraries_of(&payload).is_err());
        for (bytes, expected) in [
            (&[0, 1, b'x'][..], "given type is not a function"),
            (&[OP_FUNCTION_PRE_GA], "Pre-GA function format not supported"),
            (&[OP_FUNCTION_2, 9, b'x'], "failed loading library name"),
        ] {
            let mut payload = bytes.to_vec();
            finish_payload(&mut payload);
            assert_eq!(libraries_of(&payload).unwrap_err(), expected);
        }
    }
}
