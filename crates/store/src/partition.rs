//! Partitions: the part of a keyspace that a key belongs to, and the LSM tree of that part.
//!
//! A partition has a name, a byte string that follows from the key alone. Unless the caller
//! partitions by a function, larger keys have equal or larger names. The partitions of a keyspace
//! are then ranges of its keys, and a scan goes through them one after another. No I/O here, and no
//! locks.

mod format;

use std::{borrow::Cow, collections::HashMap, fmt};

use rhumb_sync::primitive::Arc;

use crate::error::{Error, Result};

/// The longest name of a partition, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The largest number of split points of a keyspace.
pub(crate) const SPLIT_POINTS_MAX: usize = 65_535;

/// How the keys of a keyspace are divided into partitions: parts that can be
/// [dropped](crate::Keyspace::drop_partition) at once. A partition is created by the first write
/// into it, and that costs no sync. Names of partitions have at most 255 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Partitioning {
    /// Not at all.
    #[default]
    None,
    /// By the first bytes of the key, this many, 1 to 255. The bytes are the partition's name; a
    /// shorter key is a partition by itself.
    PrefixLength(u8),
    /// By the part of the key before the first occurrence of this byte; that part and the byte are
    /// the partition's name. A key without the byte is a partition by itself, and a longer name is
    /// cut to its first 255 bytes.
    Delimiter(u8),
    /// At these keys, ascending: 1 to 65,535 of them, of 1 to 255 bytes each. A partition is named
    /// by the key that it begins with; the first has the empty name.
    SplitPoints(Vec<Vec<u8>>),
    /// By a function of the key, [registered](crate::DatabaseBuilder::partition_function) under
    /// this name whenever the database is opened. Scans merge all partitions.
    Function(String),
}

/// A function from keys to names of partitions.
pub(crate) type PartitionFunction = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// The functions that keyspaces may ask for, by name.
#[derive(Clone, Default)]
pub(crate) struct Functions(pub(crate) HashMap<String, PartitionFunction>);

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Partitioning {
    /// Rejects what is out of its documented bounds.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_name = |name: &[u8]| (1..=NAME_BYTES_MAX).contains(&name.len());
        match self {
            Self::PrefixLength(0) => Err("partitions by a prefix of 0 bytes".into()),
            Self::SplitPoints(points) if !(1..=SPLIT_POINTS_MAX).contains(&points.len()) => {
                Err(format!("{} split points instead of 1 to {SPLIT_POINTS_MAX}", points.len()))
            }
            Self::SplitPoints(points) if !points.iter().all(|point| is_name(point)) => {
                Err(format!("a split point that has not 1 to {NAME_BYTES_MAX} bytes"))
            }
            Self::SplitPoints(points) if !points.is_sorted_by(|a, b| a < b) => {
                Err("split points that do not ascend".into())
            }
            Self::Function(name) if !is_name(name.as_bytes()) => {
                Err(format!("a function whose name has not 1 to {NAME_BYTES_MAX} bytes"))
            }
            _ => Ok(()),
        }
    }

    /// The partitions as text for a message; of many split points only the first ones.
    pub(crate) fn in_words(&self) -> String {
        const SHOWN_MAX: usize = 8;
        match self {
            Self::SplitPoints(points) => {
                let shown = points.iter().take(SHOWN_MAX);
                let shown: Vec<String> =
                    shown.map(|point| format!("\"{}\"", point.escape_ascii())).collect();
                let more = if points.len() > SHOWN_MAX { ", …" } else { "" };
                format!("SplitPoints({} of them: {}{more})", points.len(), shown.join(", "))
            }
            Self::Delimiter(byte) => format!("Delimiter('{}')", byte.escape_ascii()),
            other => format!("{other:?}"),
        }
    }
}

/// Finds the partition of a key.
#[derive(Clone)]
pub(crate) enum Router {
    /// The keyspace has no partitions.
    None,
    /// By the bytes of the key or at split points.
    Ordered(Partitioning),
    /// By a caller's function.
    Function(PartitionFunction),
}

impl Router {
    /// The router for `partitioning`, with the function that it names.
    pub(crate) fn new(partitioning: &Partitioning, functions: &Functions) -> Result<Self> {
        match partitioning {
            Partitioning::None => Ok(Self::None),
            Partitioning::Function(name) => match functions.0.get(name) {
                Some(function) => Ok(Self::Function(Arc::clone(function))),
                None => Err(Error::InvalidArgument(
                    format!("partitions by the function {name:?}, which was not registered").into(),
                )),
            },
            ordered => Ok(Self::Ordered(ordered.clone())),
        }
    }

    /// Returns true if the keyspace has partitions.
    pub(crate) fn has_partitions(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true if partitions are ranges of keys, in the order of their names.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self, Self::Function(_))
    }

    /// The name of the partition of `key`. O(log split points), or the cost of the function.
    #[inline]
    pub(crate) fn name_of<'a>(&'a self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::None => Cow::Borrowed(&[]),
            Self::Ordered(ordered) => Cow::Borrowed(ordered.name_of(key).unwrap_or_default()),
            Self::Function(function) => Cow::Owned(function(key)),
        }
    }

    /// Rejects the name of a partition that is too long.
    pub(crate) fn check_name(name: &[u8]) -> Result<()> {
        if name.len() <= NAME_BYTES_MAX {
            return Ok(());
        }
        Err(Error::InvalidArgument(
            format!("a partition's name of {} bytes: the longest is {NAME_BYTES_MAX}", name.len())
                .into(),
        ))
    }
}

impl Partitioning {
    /// The name of the partition of `key`; `None` if a function decides it. Larger keys have equal
    /// or larger names: a name is a prefix of its key, and of two keys that begin with the same
    /// delimited part, the longer one keeps no more than that part.
    #[inline]
    pub(crate) fn name_of<'a>(&'a self, key: &'a [u8]) -> Option<&'a [u8]> {
        let len = match self {
            Self::PrefixLength(len) => usize::from(*len),
            Self::Delimiter(byte) => {
                let at = key.iter().take(NAME_BYTES_MAX).position(|b| b == byte);
                at.map_or(NAME_BYTES_MAX, |at| at + 1)
            }
            Self::SplitPoints(points) => {
                let after = points.partition_point(|point| **point <= *key);
                return Some(after.checked_sub(1).map_or(&[], |at| &points[at]));
            }
            Self::None => 0,
            Self::Function(_) => return None,
        };
        Some(&key[..key.len().min(len)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn partitioning() -> impl Strategy<Value = Partitioning> {
        let points = proptest::collection::btree_set(vec(0..4_u8, 1..4), 1..6);
        prop_oneof![
            (1..4_u8).prop_map(Partitioning::PrefixLength),
            (0..4_u8).prop_map(Partitioning::Delimiter),
            points.prop_map(|points| Partitioning::SplitPoints(points.into_iter().collect())),
        ]
    }

    #[test]
    fn golden_bytes() {
        let encoded = |partitioning: &Partitioning| {
            let mut bytes = Vec::new();
            partitioning.encode(&mut bytes);
            bytes
        };
        assert_eq!(encoded(&Partitioning::None), []);
        assert_eq!(encoded(&Partitioning::PrefixLength(8)), [1, 8]);
        assert_eq!(encoded(&Partitioning::Delimiter(b'/')), [2, 0x2F]);
        let points = Partitioning::SplitPoints(vec![b"g".to_vec(), b"no".to_vec()]);
        assert_eq!(encoded(&points), [3, 2, 0, 0, 0, 1, 0, 0, 0, 0x67, 2, 0, 0, 0, 0x6E, 0x6F]);
        let function = Partitioning::Function("f".into());
        assert_eq!(encoded(&function), [4, 1, 0, 0, 0, 0x66]);
    }

    #[test]
    fn names_are_what_the_documents_say() {
        let name =
            |partitioning: Partitioning, key: &[u8]| partitioning.name_of(key).unwrap().to_vec();
        assert_eq!(name(Partitioning::PrefixLength(3), b"abcd"), b"abc");
        assert_eq!(name(Partitioning::PrefixLength(3), b"ab"), b"ab");
        assert_eq!(name(Partitioning::Delimiter(b'/'), b"t/a/b"), b"t/");
        assert_eq!(name(Partitioning::Delimiter(b'/'), b"t"), b"t");
        assert_eq!(name(Partitioning::Delimiter(b'/'), &[b'x'; 999]), [b'x'; 255]);
        let points = || Partitioning::SplitPoints(vec![b"g".to_vec(), b"no".to_vec()]);
        assert_eq!(name(points(), b"f\xFF"), b"");
        assert_eq!(name(points(), b"g"), b"g");
        assert_eq!(name(points(), b"nn"), b"g");
        assert_eq!(name(points(), b"z"), b"no");
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let points = |points: &[&[u8]]| {
            Partitioning::SplitPoints(points.iter().map(|point| point.to_vec()).collect())
        };
        for refused in [
            Partitioning::PrefixLength(0),
            points(&[]),
            points(&[b"b", b"a"]),
            points(&[b"a", b"a"]),
            points(&[b""]),
            points(&[&[0; 256]]),
            Partitioning::Function(String::new()),
        ] {
            assert!(refused.check().is_err(), "{refused:?}");
        }
        let function = Partitioning::Function("by".into());
        assert!(Router::new(&function, &Functions::default()).is_err());
    }

    proptest! {
        /// The property that makes partitions ranges of keys.
        #[test]
        fn names_are_in_the_order_of_keys(
            partitioning in partitioning(),
            mut keys in vec(vec(0..4_u8, 0..6), 2..40),
        ) {
            keys.sort();
            let names: Vec<_> = keys.iter().map(|key| partitioning.name_of(key)).collect();
            prop_assert!(names.is_sorted());
        }

        #[test]
        fn what_was_encoded_is_decoded(partitioning in partitioning(), edit in any::<(u8, u8)>()) {
            let mut bytes = Vec::new();
            partitioning.encode(&mut bytes);
            prop_assert_eq!(Partitioning::decode(&bytes).unwrap(), partitioning);
            for len in 0..bytes.len() {
                prop_assert!(Partitioning::decode(&bytes[..len]).is_err());
            }
            let at = usize::from(edit.0) % bytes.len();
            bytes[at] = edit.1;
            if let Ok(other) = Partitioning::decode(&bytes) {
                let mut again = Vec::new();
                other.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
