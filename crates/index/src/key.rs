//! Keys of an [`Index`](super::Index): what they are looked up by, and the order-preserving image
//! by which they are placed. This module knows nothing of where keys are stored.

use std::borrow::Borrow;

/// A key of an [`Index`](super::Index): every fixed-width integer, pairs and triples of them, byte
/// strings (`Vec<u8>`, `Box<[u8]>`, arrays `[u8; N]`) and text (`String`, `Box<str>`).
///
/// Every key of the type is usable: 0 and the largest one, the empty string and long ones. The
/// order is that of [`Ord`]. Integers of up to 64 bits are the fast path: they are stored as one
/// word. All others live in records of their own, reached by a code of eight bytes.
pub trait Key: Ord + Clone + Send + Sync + Borrow<Self::Query> + image::Image + 'static {
    /// The type that a key is looked up by: the key itself if its size is known, or a slice of
    /// bytes, or a `str`.
    type Query: Ord + Sync + ?Sized + image::QueryOf<Self>;
}

/// The images of keys; sealed, because placement relies on them.
pub(crate) mod image {
    /// Makes a key again from its image.
    pub trait Image: Sized {
        /// True if the image is a byte string; otherwise it is one word.
        const WIDE: bool;
        /// The key of an image that is one word.
        fn from_word(word: u64) -> Self;
        /// The key of an image that is a byte string.
        fn from_bytes(bytes: &[u8]) -> Self;
    }

    /// Makes a key's image. Images compare as keys do.
    pub trait QueryOf<K> {
        /// A wide key's image.
        type Bytes<'a>: AsRef<[u8]>
        where
            Self: 'a;
        /// The image of a key that is not wide; otherwise 0.
        fn word(&self) -> u64;
        /// The image of a wide key; otherwise empty.
        fn bytes(&self) -> Self::Bytes<'_>;
    }
}

macro_rules! narrow {
    ($($key:ty as $unsigned:ty, $flip:expr;)*) => {$(
        impl Key for $key {
            type Query = $key;
        }

        impl image::Image for $key {
            const WIDE: bool = false;

            #[inline]
            fn from_word(word: u64) -> Self {
                (word as $unsigned ^ $flip) as $key
            }

            fn from_bytes(_bytes: &[u8]) -> Self {
                0
            }
        }

        impl image::QueryOf<$key> for $key {
            type Bytes<'a> = [u8; 0];

            #[inline]
            fn word(&self) -> u64 {
                u64::from(*self as $unsigned ^ $flip)
            }

            #[inline]
            fn bytes(&self) -> [u8; 0] {
                []
            }
        }
    )*};
}

// Flipping the sign bit orders signed numbers as unsigned ones.
narrow! {
    u8 as u8, 0;
    u16 as u16, 0;
    u32 as u32, 0;
    u64 as u64, 0;
    i8 as u8, 1 << 7;
    i16 as u16, 1 << 15;
    i32 as u32, 1 << 31;
    i64 as u64, 1 << 63;
}

macro_rules! pointer_sized {
    ($($key:ty as $image:ty;)*) => {$(
        impl Key for $key {
            type Query = $key;
        }

        impl image::Image for $key {
            const WIDE: bool = false;

            #[inline]
            fn from_word(word: u64) -> Self {
                <$image as image::Image>::from_word(word) as $key
            }

            fn from_bytes(_bytes: &[u8]) -> Self {
                0
            }
        }

        impl image::QueryOf<$key> for $key {
            type Bytes<'a> = [u8; 0];

            #[inline]
            fn word(&self) -> u64 {
                image::QueryOf::<$image>::word(&(*self as $image))
            }

            #[inline]
            fn bytes(&self) -> [u8; 0] {
                []
            }
        }
    )*};
}

// No supported target has pointers of more than 64 bits.
pointer_sized! {
    usize as u64;
    isize as i64;
}

macro_rules! wide_integer {
    ($($key:ty, $flip:expr;)*) => {$(
        impl Key for $key {
            type Query = $key;
        }

        impl image::Image for $key {
            const WIDE: bool = true;

            fn from_word(_word: u64) -> Self {
                0
            }

            #[inline]
            fn from_bytes(bytes: &[u8]) -> Self {
                let image = bytes.first_chunk::<16>().copied().unwrap_or_default();
                (u128::from_be_bytes(image) ^ $flip) as $key
            }
        }

        impl image::QueryOf<$key> for $key {
            type Bytes<'a> = [u8; 16];

            #[inline]
            fn word(&self) -> u64 {
                0
            }

            #[inline]
            fn bytes(&self) -> [u8; 16] {
                (*self as u128 ^ $flip).to_be_bytes()
            }
        }
    )*};
}

wide_integer! {
    u128, 0;
    i128, 1 << 127;
}

impl<K> image::QueryOf<K> for [u8] {
    type Bytes<'a> = &'a [u8];

    #[inline]
    fn word(&self) -> u64 {
        0
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

macro_rules! byte_string {
    ($($key:ty;)*) => {$(
        impl Key for $key {
            type Query = [u8];
        }

        impl image::Image for $key {
            const WIDE: bool = true;

            fn from_word(_word: u64) -> Self {
                Self::default()
            }

            #[inline]
            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.into()
            }
        }
    )*};
}

byte_string! {
    Vec<u8>;
    Box<[u8]>;
}

impl<K> image::QueryOf<K> for str {
    type Bytes<'a> = &'a [u8];

    #[inline]
    fn word(&self) -> u64 {
        0
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

macro_rules! text {
    ($($key:ty;)*) => {$(
        impl Key for $key {
            type Query = str;
        }

        impl image::Image for $key {
            const WIDE: bool = true;

            fn from_word(_word: u64) -> Self {
                Self::default()
            }

            #[inline]
            fn from_bytes(bytes: &[u8]) -> Self {
                // The image of a text is a text.
                std::str::from_utf8(bytes).unwrap_or_default().into()
            }
        }
    )*};
}

text! {
    String;
    Box<str>;
}

impl<const N: usize> Key for [u8; N] {
    type Query = [u8; N];
}

impl<const N: usize> image::Image for [u8; N] {
    const WIDE: bool = true;

    fn from_word(_word: u64) -> Self {
        [0; N]
    }

    #[inline]
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.first_chunk::<N>().copied().unwrap_or([0; N])
    }
}

impl<const N: usize> image::QueryOf<[u8; N]> for [u8; N] {
    type Bytes<'a> = &'a [u8];

    #[inline]
    fn word(&self) -> u64 {
        0
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The most bytes of a tuple's image: three of the widest integers.
const TUPLE_BYTES_MAX: usize = 3 * size_of::<u128>();

/// The image of a tuple: those of its parts, one after the other.
#[derive(Clone, Copy)]
pub struct JoinedImage {
    bytes: [u8; TUPLE_BYTES_MAX],
    len: usize,
}

impl AsRef<[u8]> for JoinedImage {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// An integer as bytes that compare as it does.
pub trait TuplePart: Copy + Ord + Send + Sync + 'static {
    /// Appends the bytes.
    fn append(self, to: &mut JoinedImage);
    /// Takes the bytes away from the front; 0 if there are too few.
    fn take(from: &mut &[u8]) -> Self;
}

macro_rules! parts {
    ($($part:ty, $flip:expr;)*) => {$(
        impl TuplePart for $part {
            #[inline]
            fn append(self, to: &mut JoinedImage) {
                let bytes = (self ^ $flip).to_be_bytes();
                to.bytes[to.len..to.len + bytes.len()].copy_from_slice(&bytes);
                to.len += bytes.len();
            }

            #[inline]
            fn take(from: &mut &[u8]) -> Self {
                let Some((bytes, rest)) = from.split_first_chunk() else { return 0 };
                *from = rest;
                Self::from_be_bytes(*bytes) ^ $flip
            }
        }
    )*};
}

// Flipping the sign bit orders signed numbers as unsigned ones.
parts! {
    u8, 0;
    u16, 0;
    u32, 0;
    u64, 0;
    u128, 0;
    usize, 0;
    i8, i8::MIN;
    i16, i16::MIN;
    i32, i32::MIN;
    i64, i64::MIN;
    i128, i128::MIN;
    isize, isize::MIN;
}

macro_rules! tuple {
    ($($part:ident $at:tt),*) => {
        impl<$($part: TuplePart),*> Key for ($($part,)*) {
            type Query = ($($part,)*);
        }

        impl<$($part: TuplePart),*> image::Image for ($($part,)*) {
            const WIDE: bool = true;

            fn from_word(_word: u64) -> Self {
                Self::from_bytes(&[])
            }

            #[inline]
            fn from_bytes(mut bytes: &[u8]) -> Self {
                ($($part::take(&mut bytes),)*)
            }
        }

        impl<$($part: TuplePart),*> image::QueryOf<($($part,)*)> for ($($part,)*) {
            type Bytes<'a> = JoinedImage;

            #[inline]
            fn word(&self) -> u64 {
                0
            }

            #[inline]
            fn bytes(&self) -> JoinedImage {
                let mut joined = JoinedImage { bytes: [0; TUPLE_BYTES_MAX], len: 0 };
                $(self.$at.append(&mut joined);)*
                joined
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);

#[cfg(test)]
mod tests {
    use super::{image::*, *};

    fn assert_narrow<K: Key<Query = K> + QueryOf<K> + std::fmt::Debug>(ascending: &[K]) {
        for pair in ascending.windows(2) {
            assert!(QueryOf::<K>::word(&pair[0]) < QueryOf::<K>::word(&pair[1]), "{pair:?}");
        }
        for key in ascending {
            assert_eq!(K::from_word(QueryOf::<K>::word(key)), *key);
        }
    }

    #[test]
    fn images_keep_the_order_and_lead_back() {
        assert_narrow(&[0_u8, 1, 127, 128, 255]);
        assert_narrow(&[i8::MIN, -1, 0, 1, i8::MAX]);
        assert_narrow(&[i16::MIN, -1, 0, 1, i16::MAX]);
        assert_narrow(&[i32::MIN, -1, 0, 1, i32::MAX]);
        assert_narrow(&[i64::MIN, -1, 0, 1, i64::MAX]);
        assert_narrow(&[0_u64, 1, 1 << 63, u64::MAX]);
        assert_narrow(&[0_usize, 1, usize::MAX]);
        assert_narrow(&[isize::MIN, -1, 0, isize::MAX]);
        let ascending = [i128::MIN, -1, 0, 1, i128::MAX];
        for pair in ascending.windows(2) {
            assert!(QueryOf::<i128>::bytes(&pair[0]) < QueryOf::<i128>::bytes(&pair[1]));
        }
        for key in ascending {
            assert_eq!(i128::from_bytes(&QueryOf::<i128>::bytes(&key)), key);
        }
    }

    fn assert_wide<K: Key<Query = K> + QueryOf<K> + std::fmt::Debug>(ascending: &[K]) {
        for pair in ascending.windows(2) {
            let [low, high] = [0, 1].map(|at| QueryOf::<K>::bytes(&pair[at]).as_ref().to_vec());
            assert!(low < high, "{pair:?}");
        }
        for key in ascending {
            assert_eq!(K::from_bytes(QueryOf::<K>::bytes(key).as_ref()), *key);
        }
    }

    #[test]
    fn images_of_arrays_and_tuples_keep_the_order_and_lead_back() {
        assert_wide(&[[0_u8, 0, 0], [0, 0, 1], [0, 1, 0], [255, 0, 0]]);
        assert_wide(&[(i8::MIN, 9_u64), (-1, 0), (-1, u64::MAX), (0, 0), (i8::MAX, 1)]);
        assert_wide(&[
            (0_u128, i128::MIN, 0_u128),
            (0, -1, 7),
            (0, 0, 0),
            (u128::MAX, 0, u128::MAX),
        ]);
    }
}
