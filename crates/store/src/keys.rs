//! Keys beside keys, and spans of keys: pure, and below everything that orders keys.

use crate::types::KEY_BYTES_MAX;

/// From the first key on, up to and without the second, which is absent if there is no end.
pub(crate) type KeySpan = (Box<[u8]>, Option<Box<[u8]>>);

/// The smallest key after `key`; none if there is none that a keyspace may hold.
pub(crate) fn key_after(key: &[u8]) -> Option<Box<[u8]>> {
    if key.len() >= KEY_BYTES_MAX {
        // Keys that go on from this one are too long.
        return prefix_end(key);
    }
    Some([key, &[0]].concat().into())
}

/// The smallest key that is larger than every key with this prefix; none if there is no such key.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into_boxed_slice())
}

/// The smallest byte string that is larger than `key`; it may be too long to be a key.
pub(crate) fn successor(key: &[u8]) -> Box<[u8]> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into_boxed_slice()
}
