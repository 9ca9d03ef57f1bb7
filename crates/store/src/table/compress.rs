//! Compression of block payloads: state that is reused from block to block, and checked lengths.

use super::{
    format::{COMPRESSED_RAW_BYTES_MAX, COMPRESSION_LZ4, COMPRESSION_NONE, COMPRESSION_ZSTD},
    options::Compression,
};

/// A block is stored compressed only if that saves at least one part in this many.
const GAIN: usize = 8;

/// The most bytes that one byte of LZ4 decompresses to: each further byte of a length counts for
/// this many.
const LZ4_RATIO_MAX: usize = 255;

/// Zstandard's own default: the level that its users expect.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// Compresses one block after another.
pub(crate) struct Compressor {
    compression: Compression,
    lz4: lz4_flex::block::CompressTable,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    /// A compressor that uses `compression` where that helps.
    pub(crate) fn new(compression: Compression) -> Self {
        Self {
            compression,
            lz4: lz4_flex::block::CompressTable::default(),
            #[cfg(feature = "zstd")]
            zstd: None,
            out: Vec::new(),
        }
    }

    /// The bytes to store for `raw`, and how they are compressed.
    pub(crate) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (u8, &'a [u8]) {
        if raw.len() > COMPRESSED_RAW_BYTES_MAX {
            return (COMPRESSION_NONE, raw);
        }
        let compressed_len = match self.compression {
            Compression::None => None,
            Compression::Lz4 => self.lz4(raw),
            #[cfg(feature = "zstd")]
            Compression::Zstd => self.zstd(raw),
        };
        match compressed_len {
            Some(len) if len <= raw.len() - raw.len().div_ceil(GAIN) => {
                (self.compression.byte(), &self.out[..len])
            }
            _ => (COMPRESSION_NONE, raw),
        }
    }

    fn lz4(&mut self, raw: &[u8]) -> Option<usize> {
        let most = lz4_flex::block::get_maximum_output_size(raw.len());
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        lz4_flex::block::compress_into_with_table(raw, &mut self.out, &mut self.lz4).ok()
    }

    #[cfg(feature = "zstd")]
    fn zstd(&mut self, raw: &[u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        let most = zstd::zstd_safe::compress_bound(raw.len());
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        self.zstd.as_mut()?.compress_to_buffer(raw, &mut self.out[..]).ok()
    }
}

/// Why bytes could not be decompressed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecompressError {
    /// They are not what the compressor returned.
    Damaged(&'static str),
    /// This build has no decompressor for them.
    Unsupported(&'static str),
}

/// The error of a build without the feature `zstd` for a block that needs it.
const NO_ZSTD: DecompressError =
    DecompressError::Unsupported("a block compressed with Zstandard, which this build lacks");

/// Checks that `raw_len` is a length that the writer may have stored for `stored_len` bytes. To be
/// called before anything of that length is allocated.
pub(crate) fn check_raw_len(
    kind: u8,
    stored_len: usize,
    raw_len: usize,
) -> Result<(), DecompressError> {
    let possible = match kind {
        COMPRESSION_NONE => raw_len == stored_len,
        COMPRESSION_LZ4 => {
            raw_len <= COMPRESSED_RAW_BYTES_MAX.min(stored_len.saturating_mul(LZ4_RATIO_MAX))
        }
        COMPRESSION_ZSTD if !cfg!(feature = "zstd") => return Err(NO_ZSTD),
        COMPRESSION_ZSTD => raw_len <= COMPRESSED_RAW_BYTES_MAX,
        _ => return Err(DecompressError::Damaged("a known compression")),
    };
    if possible { Ok(()) } else { Err(DecompressError::Damaged("a possible raw length")) }
}

/// Decompresses `stored` into `raw`, which must come out exactly full.
pub(crate) fn decompress(kind: u8, stored: &[u8], raw: &mut [u8]) -> Result<(), DecompressError> {
    let len = match kind {
        COMPRESSION_LZ4 => lz4_flex::block::decompress_into(stored, raw).ok(),
        COMPRESSION_ZSTD => decompress_zstd(stored, raw)?,
        _ => None,
    };
    match len {
        Some(len) if len == raw.len() => Ok(()),
        _ => Err(DecompressError::Damaged("a block that unfolds to its raw length")),
    }
}

#[cfg(feature = "zstd")]
fn decompress_zstd(stored: &[u8], raw: &mut [u8]) -> Result<Option<usize>, DecompressError> {
    use std::cell::RefCell;

    thread_local! {
        static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    Ok(ZSTD.with_borrow_mut(|zstd| {
        if zstd.is_none() {
            *zstd = zstd::bulk::Decompressor::new().ok();
        }
        zstd.as_mut()?.decompress_to_buffer(stored, raw).ok()
    }))
}

#[cfg(not(feature = "zstd"))]
fn decompress_zstd(_stored: &[u8], _raw: &mut [u8]) -> Result<Option<usize>, DecompressError> {
    Err(NO_ZSTD)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn compressions() -> Vec<Compression> {
        vec![
            Compression::None,
            Compression::Lz4,
            #[cfg(feature = "zstd")]
            Compression::Zstd,
        ]
    }

    proptest! {
        #[test]
        fn what_is_compressed_unfolds(raw in vec(0_u8..4, 0..9000)) {
            for compression in compressions() {
                let mut compressor = Compressor::new(compression);
                for raw in [&raw[..], &raw[..raw.len() / 2]] {
                    let (kind, stored) = compressor.compress(raw);
                    prop_assert_eq!(check_raw_len(kind, stored.len(), raw.len()), Ok(()));
                    if kind == COMPRESSION_NONE {
                        prop_assert_eq!(stored, raw);
                        continue;
                    }
                    prop_assert!(stored.len() * 8 <= raw.len() * 7);
                    let mut back = vec![1; raw.len()];
                    prop_assert_eq!(decompress(kind, stored, &mut back), Ok(()));
                    prop_assert_eq!(&back[..], raw);
                    back.push(0);
                    prop_assert!(decompress(kind, stored, &mut back).is_err());
                }
            }
        }

        #[test]
        fn any_bytes_unfold_without_a_panic(stored in vec(any::<u8>(), 0..200), len in 0_usize..500) {
            for kind in 0..4 {
                let _ = decompress(kind, &stored, &mut vec![0; len]);
            }
        }
    }

    #[test]
    fn the_longest_lz4_match_is_possible() {
        let raw = vec![7; 1 << 20];
        let mut compressor = Compressor::new(Compression::Lz4);
        let (kind, stored) = compressor.compress(&raw);
        assert!(stored.len() < raw.len() / (LZ4_RATIO_MAX - 5));
        assert_eq!(check_raw_len(kind, stored.len(), raw.len()), Ok(()));
    }

    #[test]
    fn impossible_raw_lengths_are_refused() {
        assert!(check_raw_len(COMPRESSION_NONE, 10, 11).is_err());
        assert!(check_raw_len(COMPRESSION_LZ4, 10, 10 * LZ4_RATIO_MAX).is_ok());
        assert!(check_raw_len(COMPRESSION_LZ4, 10, 10 * LZ4_RATIO_MAX + 1).is_err());
        let enough = COMPRESSED_RAW_BYTES_MAX;
        assert!(check_raw_len(COMPRESSION_LZ4, enough, COMPRESSED_RAW_BYTES_MAX).is_ok());
        assert!(check_raw_len(COMPRESSION_LZ4, enough, COMPRESSED_RAW_BYTES_MAX + 1).is_err());
        assert!(check_raw_len(7, 10, 10).is_err());
        // Nothing is allocated for a block that cannot be decompressed.
        let zstd = check_raw_len(COMPRESSION_ZSTD, 10, 10);
        assert_eq!(zstd, if cfg!(feature = "zstd") { Ok(()) } else { Err(NO_ZSTD) });
    }
}
