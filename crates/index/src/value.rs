//! Values of an [`Index`](super::Index): which of them are words that lie inline.

/// A value of an [`Index`](super::Index): any type that can be cloned, sent and shared.
///
/// Words ([`Word`]) lie beside their key. Values of other types are boxed, and the map returns
/// clones of them. Put large values into an [`Arc`](std::sync::Arc).
pub trait Value: Clone + Send + Sync + 'static {}

impl<V: Clone + Send + Sync + 'static> Value for V {}

/// A value that lies inline and can be compared and exchanged.
///
/// Floating-point numbers compare by their bits.
pub trait Word: Value + Copy + bits::Bits {}

/// The bits of words; sealed, because slots hold nothing else.
pub(crate) mod bits {
    /// A value as 64 bits and back.
    pub trait Bits: Sized {
        /// The value as bits; different values have different bits.
        fn into_bits(self) -> u64;
        /// The value that has these bits.
        fn from_bits(bits: u64) -> Self;
    }
}

macro_rules! words {
    ($($word:ty: $value:ident => $into:expr, $bits:ident => $from:expr;)*) => {$(
        impl Word for $word {}

        impl bits::Bits for $word {
            #[inline]
            fn into_bits(self) -> u64 {
                let $value = self;
                $into
            }

            #[inline]
            fn from_bits($bits: u64) -> Self {
                $from
            }
        }
    )*};
}

words! {
    u8: v => u64::from(v), b => b as u8;
    u16: v => u64::from(v), b => b as u16;
    u32: v => u64::from(v), b => b as u32;
    u64: v => v, b => b;
    usize: v => v as u64, b => b as usize;
    i8: v => v as u64, b => b as i8;
    i16: v => v as u64, b => b as i16;
    i32: v => v as u64, b => b as i32;
    i64: v => v as u64, b => b as i64;
    isize: v => v as u64, b => b as isize;
    f32: v => u64::from(v.to_bits()), b => f32::from_bits(b as u32);
    f64: v => v.to_bits(), b => f64::from_bits(b);
    bool: v => u64::from(v), b => b != 0;
    char: v => u64::from(v), b => char::from_u32(b as u32).unwrap_or_default();
    (): _v => 0, _b => ();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back() {
        fn check<W: Word + PartialEq + std::fmt::Debug>(words: &[W]) {
            for word in words {
                assert_eq!(W::from_bits(word.into_bits()), *word);
            }
        }
        check(&[i8::MIN, -1, 0, i8::MAX]);
        check(&[i64::MIN, -1, 0, i64::MAX]);
        check(&[0_u64, u64::MAX]);
        check(&[f32::MIN, -0.0, f32::INFINITY]);
        check(&[f64::MIN, -0.0, f64::INFINITY]);
        check(&[true, false]);
        check(&['\0', char::MAX]);
        check(&[()]);
    }
}
