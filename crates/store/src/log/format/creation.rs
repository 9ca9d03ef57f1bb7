//! The payload of a log record that creates partitions, and how the two kinds of payload are told
//! apart.
//!
//! `[2^64 - 1 u64][count u32]`, then for each partition `[LSM tree of the keyspace varint]
//! [LSM tree of the partition varint][name length varint][name]`. A batch cannot begin like that:
//! its sequence numbers are below 2^56.

use super::batch::{Batch, BatchFault};
use crate::{partition::NAME_BYTES_MAX, types::TreeId, varint};

/// Stored where a batch has its first sequence number.
const CREATION_MARK: u64 = u64::MAX;

/// Bytes before the first partition.
const HEADER_BYTES: usize = 12;

/// A partition that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// The LSM tree of its keyspace.
    pub(crate) root: TreeId,
    /// Its own LSM tree.
    pub(crate) tree: TreeId,
    /// Its name.
    pub(crate) name: Box<[u8]>,
}

/// The payload of a record that creates partitions.
pub(crate) fn encode_creations(creations: &[Creation]) -> Vec<u8> {
    let mut bytes = CREATION_MARK.to_le_bytes().to_vec();
    bytes.extend((creations.len() as u32).to_le_bytes());
    for creation in creations {
        varint::put(&mut bytes, creation.root.into());
        varint::put(&mut bytes, creation.tree.into());
        varint::put(&mut bytes, creation.name.len() as u64);
        bytes.extend_from_slice(&creation.name);
    }
    bytes
}

/// The contents of a record.
pub(crate) enum Payload<'a> {
    /// Writes.
    Batch(Batch<'a>),
    /// New partitions.
    Creations(Vec<Creation>),
}

impl<'a> Payload<'a> {
    /// Checks all of `payload`. O(operations). Allocates at most about 50 times the bytes of a
    /// record that creates partitions, and nothing for a batch.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, BatchFault> {
        if payload.first_chunk::<8>() != Some(&CREATION_MARK.to_le_bytes()) {
            return Batch::decode(payload).map(Self::Batch);
        }
        decode_creations(payload).map(Self::Creations)
    }
}

fn decode_creations(payload: &[u8]) -> Result<Vec<Creation>, BatchFault> {
    let fault = |offset, expected| BatchFault { offset, expected };
    let Some(count) = payload.get(8..).and_then(<[u8]>::first_chunk::<4>) else {
        return Err(fault(8, "a number of partitions"));
    };
    let int = |at: usize, max: usize, expected| match varint::get(&payload[at..]) {
        Some((value, len)) if value <= max as u64 => Ok((value, at + len)),
        _ => Err(fault(at, expected)),
    };
    let mut at = HEADER_BYTES;
    let mut creations = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (root, next) = int(at, u32::MAX as usize, "the number of a sub-tree")?;
        let (tree, next) = int(next, u32::MAX as usize, "the number of a sub-tree")?;
        let (len, start) = int(next, NAME_BYTES_MAX, "a name's length up to 255")?;
        let name = payload.get(start..start + len as usize);
        let name = name.ok_or_else(|| fault(start, "a name within the record"))?;
        at = start + name.len();
        creations.push(Creation { root: root as u32, tree: tree as u32, name: name.into() });
    }
    if at != payload.len() {
        return Err(fault(at, "the end of the record"));
    }
    Ok(creations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn creations() -> impl Strategy<Value = Vec<Creation>> {
        let creation = (any::<u32>(), any::<u32>(), vec(any::<u8>(), 0..9))
            .prop_map(|(root, tree, name)| Creation { root, tree, name: name.into() });
        vec(creation, 0..6)
    }

    fn decode(payload: &[u8]) -> Option<Vec<Creation>> {
        match Payload::decode(payload) {
            Ok(Payload::Creations(creations)) => Some(creations),
            Ok(Payload::Batch(_)) => panic!("no batch begins like this"),
            Err(_) => None,
        }
    }

    #[test]
    fn golden_bytes() {
        let creations = [
            Creation { root: 1, tree: 2, name: (*b"ada").into() },
            Creation { root: 1, tree: 300, name: (*b"").into() },
        ];
        let expected =
            [&[0xFF; 8][..], &[2, 0, 0, 0], &[1, 2, 3], b"ada", &[1, 0xAC, 2, 0]].concat();
        assert_eq!(encode_creations(&creations), expected);
        assert!(Batch::decode(&expected).is_err());
    }

    proptest! {
        #[test]
        fn creations_are_read_back(creations in creations(), edit in any::<(u8, u8)>()) {
            let mut bytes = encode_creations(&creations);
            prop_assert_eq!(decode(&bytes).unwrap(), creations);
            for len in 8..bytes.len() {
                prop_assert!(decode(&bytes[..len]).is_none());
            }
            let at = 8 + usize::from(edit.0) % (bytes.len() - 8);
            bytes[at] = edit.1;
            if let Some(other) = decode(&bytes) {
                prop_assert_eq!(encode_creations(&other), bytes);
            }
        }
    }
}
