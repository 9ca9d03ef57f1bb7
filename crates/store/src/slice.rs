//! Bytes handed to a caller, without a copy if they are already shared.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use rhumb_sync::{record::Record, shared_bytes::SharedBytes};

/// The largest number of bytes that a [`Slice`] keeps within itself.
const INLINE_BYTES_MAX: usize = 22;

/// An immutable byte string that a read returned: a key or a value.
///
/// Dereferences to `[u8]`. Cloning is cheap. A slice may keep the cached block that it points into
/// alive, so a program that keeps many small slices for a long time should copy them
/// ([`to_vec`](slice::to_vec)).
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline(Inline),
    Shared(Arc<[u8]>, ByteSpan),
    Record(Record, ByteSpan),
    Block(BlockRef, ByteSpan),
}

// The variants of a slice are aligned to words, so that it is moved in words. Directly after the
// byte of the variant they would be moved in overlapping parts, each of which waits for the one
// before.

/// Bytes within the slice.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Inline {
    len: u8,
    bytes: [u8; INLINE_BYTES_MAX],
}

/// A range of the bytes behind a pointer.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct ByteSpan {
    start: u32,
    len: u32,
}

impl ByteSpan {
    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.start as usize + self.len as usize]
    }
}

impl Slice {
    /// Copies `bytes`; up to 22 of them are kept without an allocation.
    #[must_use]
    pub fn copy_from(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE_BYTES_MAX {
            let mut inline = [0; INLINE_BYTES_MAX];
            inline[..bytes.len()].copy_from_slice(bytes);
            #[expect(clippy::cast_possible_truncation, reason = "at most 22")]
            return Self(Repr::Inline(Inline { len: bytes.len() as u8, bytes: inline }));
        }
        Self::from_shared(Arc::from(bytes))
    }

    /// Takes all of `bytes`, which must be shorter than 4 GiB.
    #[must_use]
    pub(crate) fn from_shared(bytes: Arc<[u8]>) -> Self {
        let len = u32::try_from(bytes.len()).expect("keys and values are at most 1 GiB");
        Self(Repr::Shared(bytes, ByteSpan { start: 0, len }))
    }

    /// Takes `len` bytes of `bytes` from `start`.
    #[must_use]
    pub(crate) fn from_shared_range(bytes: Arc<[u8]>, start: u32, len: u32) -> Self {
        debug_assert!(start as usize + len as usize <= bytes.len());
        Self(Repr::Shared(bytes, ByteSpan { start, len }))
    }

    /// Takes all of a record, or of a large value.
    #[must_use]
    pub(crate) fn from_whole(record: Record) -> Self {
        let len = u32::try_from(record.len()).expect("values are at most 1 GiB");
        Self::from_record(record, 0, len)
    }

    /// Takes `len` bytes of a log record from `start`.
    #[must_use]
    pub(crate) fn from_record(record: Record, start: u32, len: u32) -> Self {
        debug_assert!(start as usize + len as usize <= record.len());
        Self(Repr::Record(record, ByteSpan { start, len }))
    }

    /// The same bytes, kept within the slice itself if there are few enough.
    pub(crate) fn made_small(self) -> Self {
        if self.len() <= INLINE_BYTES_MAX { Self::copy_from(&self) } else { self }
    }

    /// The bytes after the first `count`, of which there must be as many.
    #[must_use]
    pub(crate) fn without_first(self, count: usize) -> Self {
        let less = |span: ByteSpan| {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            ByteSpan { start: span.start + count, len: span.len - count }
        };
        Self(match self.0 {
            Repr::Inline(Inline { len, bytes }) => {
                return Self::copy_from(&bytes[count..usize::from(len)]);
            }
            Repr::Shared(bytes, span) => Repr::Shared(bytes, less(span)),
            Repr::Record(record, span) => Repr::Record(record, less(span)),
            Repr::Block(block, span) => Repr::Block(block, less(span)),
        })
    }

    /// Takes `len` bytes of a block's payload from `start`.
    #[must_use]
    pub(crate) fn from_block(block: BlockRef, start: u32, len: u32) -> Self {
        debug_assert!(start as usize + len as usize <= block.bytes().len());
        Self(Repr::Block(block, ByteSpan { start, len }))
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(Inline { len, bytes }) => &bytes[..*len as usize],
            Repr::Shared(bytes, span) => span.of(bytes),
            Repr::Record(record, span) => span.of(record),
            Repr::Block(block, span) => span.of(block.bytes()),
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_from(bytes)
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.len() <= INLINE_BYTES_MAX {
            return Self::copy_from(&bytes);
        }
        Self::from_shared(Arc::from(bytes))
    }
}

impl From<Box<[u8]>> for Slice {
    fn from(bytes: Box<[u8]>) -> Self {
        Vec::from(bytes).into()
    }
}

impl<const N: usize> From<[u8; N]> for Slice {
    fn from(bytes: [u8; N]) -> Self {
        Self::copy_from(&bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Slice {
    fn from(bytes: &[u8; N]) -> Self {
        Self::copy_from(bytes)
    }
}

impl From<&str> for Slice {
    fn from(text: &str) -> Self {
        Self::copy_from(text.as_bytes())
    }
}

impl From<String> for Slice {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Self {
        slice.to_vec()
    }
}

impl From<&Slice> for Vec<u8> {
    fn from(slice: &Slice) -> Self {
        slice.to_vec()
    }
}

impl From<Slice> for Box<[u8]> {
    fn from(slice: Slice) -> Self {
        Self::from(&*slice)
    }
}

impl From<Slice> for Arc<[u8]> {
    /// Needs no copy if the slice is all of what it shares.
    fn from(slice: Slice) -> Self {
        match slice.0 {
            Repr::Shared(bytes, ByteSpan { start: 0, len }) if len as usize == bytes.len() => bytes,
            repr => Self::from(&*Slice(repr)),
        }
    }
}

/// Converts to a string if the bytes are UTF-8. Otherwise the error says where the invalid bytes
/// begin.
impl TryFrom<Slice> for String {
    type Error = std::string::FromUtf8Error;

    fn try_from(slice: Slice) -> Result<Self, Self::Error> {
        Self::from_utf8(slice.to_vec())
    }
}

/// Converts to an array if the slice has its length.
impl<const N: usize> TryFrom<Slice> for [u8; N] {
    type Error = std::array::TryFromSliceError;

    fn try_from(slice: Slice) -> Result<Self, Self::Error> {
        (&*slice).try_into()
    }
}

/// Converts to an array if the slice has its length.
impl<const N: usize> TryFrom<&Slice> for [u8; N] {
    type Error = std::array::TryFromSliceError;

    fn try_from(slice: &Slice) -> Result<Self, Self::Error> {
        (&**slice).try_into()
    }
}

/// Needs no copy: the bytes hold the slice.
#[cfg(feature = "bytes")]
impl From<Slice> for bytes::Bytes {
    fn from(slice: Slice) -> Self {
        Self::from_owner(slice)
    }
}

#[cfg(feature = "bytes")]
impl From<bytes::Bytes> for Slice {
    fn from(bytes: bytes::Bytes) -> Self {
        Self::copy_from(&bytes)
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self::copy_from(&[])
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

/// Comparison with the slice on the right: `bytes == slice`.
macro_rules! equals {
    ($([$($generics:tt)*] $other:ty;)*) => {$(
        impl<$($generics)*> PartialEq<Slice> for $other {
            fn eq(&self, slice: &Slice) -> bool {
                let bytes: &[u8] = self.as_ref();
                *bytes == **slice
            }
        }
    )*};
}

equals! {
    [] [u8];
    [] &[u8];
    [const N: usize] [u8; N];
    [const N: usize] &[u8; N];
    [] Vec<u8>;
    [] Box<[u8]>;
    [] str;
    [] &str;
    [] String;
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Slice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// A data block in memory: shared, immutable, its payload behind one pointer.
#[derive(Clone)]
pub(crate) struct BlockRef(SharedBytes);

impl BlockRef {
    /// Values of up to this many bytes are copied out of a block. That is cheaper than sharing the
    /// block, which then need not stay in memory for them.
    pub(crate) const COPY_BYTES_MAX: usize = 22;

    /// Copies a payload into a block of its own.
    #[cfg(test)]
    pub(crate) fn copy_from(payload: &[u8]) -> Self {
        Self(SharedBytes::copy_from(payload))
    }

    /// The block of the bytes that a cache slot shares.
    #[inline]
    pub(crate) fn from_shared(bytes: SharedBytes) -> Self {
        Self(bytes)
    }

    /// The bytes, to be shared by a cache slot.
    pub(crate) fn to_shared(&self) -> SharedBytes {
        self.0.clone()
    }

    /// The payload, uncompressed.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the block is in the cache's memory.
    pub(crate) fn is_placed(&self) -> bool {
        self.0.is_placed()
    }

    /// The memory that the block takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// `len` bytes of the payload from `start`, which must lie within it.
    #[inline]
    pub(crate) fn slice(&self, start: usize, len: usize) -> Slice {
        if len <= Self::COPY_BYTES_MAX {
            return Slice::copy_from(&self.bytes()[start..start + len]);
        }
        self.clone().into_slice(start, len)
    }

    /// [`BlockRef::slice`] of more than [`BlockRef::COPY_BYTES_MAX`] bytes. It takes the block
    /// over, and its reference count with it.
    #[inline]
    pub(crate) fn into_slice(self, start: usize, len: usize) -> Slice {
        const SMALL: &str = "a block's length is a u32 of its frame";
        let start = u32::try_from(start).expect(SMALL);
        Slice::from_block(self, start, u32::try_from(len).expect(SMALL))
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockRef({} bytes)", self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;

    /// Slices of every kind of memory but that of a block.
    fn slices(text: &str) -> [Slice; 3] {
        let shared: Arc<[u8]> = Arc::from([b"..", text.as_bytes(), b"."].concat());
        let len = text.len() as u32;
        [text.into(), Slice::from_shared_range(shared, 2, len), text.as_bytes().to_vec().into()]
    }

    #[test]
    fn slices_become_what_users_hold_and_back() {
        for text in ["", "ada", "a value of more than twenty-two bytes"] {
            for slice in slices(text) {
                assert_eq!(Vec::from(slice.clone()), text.as_bytes());
                assert_eq!(&*Box::<[u8]>::from(slice.clone()), text.as_bytes());
                assert_eq!(&*Arc::<[u8]>::from(slice.clone()), text.as_bytes());
                assert_eq!(String::try_from(slice.clone()).unwrap(), text);
                assert!(<[u8; 7]>::try_from(&slice).is_err(), "no text has that length");
                let owned = text.to_owned();
                assert!(slice == text && *text == slice && owned == slice);
                assert!(text.as_bytes() == slice && text.as_bytes().to_vec() == slice);
                #[cfg(feature = "bytes")]
                assert_eq!(bytes::Bytes::from(slice), text.as_bytes());
            }
        }
        assert_eq!(<[u8; 3]>::try_from(Slice::from("ada")).unwrap(), *b"ada");
        let ada = Slice::from(b"ada");
        assert!(*b"ada" == ada && Slice::default().is_empty());
        assert!(String::try_from(Slice::from([0xFF])).is_err());
    }

    #[test]
    fn slices_are_found_in_maps_by_plain_bytes() {
        let map = BTreeMap::from([(Slice::from("ada"), 1815), (Slice::from("bob"), 1906)]);
        assert_eq!(map.get(&b"bob"[..]), Some(&1906));
        let set: HashSet<Slice> = slices("a value of more than twenty-two bytes").into();
        assert_eq!(set.len(), 1);
        assert!(set.contains(&b"a value of more than twenty-two bytes"[..]));
    }
}
