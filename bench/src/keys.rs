//! Sorted sets of keys in memory, and the two file forms that they come from.
//!
//! Binary files are those of the SOSD benchmark (a little-endian `u64` count, then that many
//! sorted little-endian `u64`); text files have one key a line.

use std::{
    fs,
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::random::Rng;

/// How a 64-bit key becomes bytes. Every form keeps the numeric order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// Eight bytes, most significant first.
    #[default]
    Bytes,
    /// Sixteen hexadecimal digits.
    Hex,
    /// Twenty decimal digits with leading zeros.
    Decimal,
}

impl Encoding {
    fn width(self) -> usize {
        match self {
            Self::Bytes => 8,
            Self::Hex => 16,
            Self::Decimal => 20,
        }
    }

    fn append(self, key: u64, out: &mut Vec<u8>) {
        match self {
            Self::Bytes => out.extend_from_slice(&key.to_be_bytes()),
            Self::Hex => write!(out, "{key:016x}").expect("a vector takes every write"),
            Self::Decimal => write!(out, "{key:020}").expect("a vector takes every write"),
        }
    }
}

/// Distinct keys in ascending byte order, in one buffer.
#[derive(Clone, Debug)]
pub struct Keys {
    bytes: Vec<u8>,
    layout: Layout,
}

#[derive(Clone, Debug)]
enum Layout {
    /// All keys have this length, which is not 0.
    Fixed(usize),
    /// Where each key ends.
    Ends(Vec<u64>),
}

impl Keys {
    /// Encodes `sorted`, which must be strictly ascending.
    #[must_use]
    pub fn from_u64(sorted: &[u64], encoding: Encoding) -> Self {
        debug_assert!(sorted.is_sorted_by(|a, b| a < b));
        let mut bytes = Vec::with_capacity(sorted.len() * encoding.width());
        for &key in sorted {
            encoding.append(key, &mut bytes);
        }
        Self { bytes, layout: Layout::Fixed(encoding.width()) }
    }

    /// Writes out 128-bit keys as 16 bytes each; `sorted` must be strictly ascending.
    #[must_use]
    pub fn from_u128(sorted: &[u128]) -> Self {
        debug_assert!(sorted.is_sorted_by(|a, b| a < b));
        let bytes = sorted.iter().flat_map(|key| key.to_be_bytes()).collect();
        Self { bytes, layout: Layout::Fixed(16) }
    }

    /// Sorts `keys` and drops repeated ones.
    #[must_use]
    pub fn from_unsorted(mut keys: Vec<&[u8]>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        let mut bytes = Vec::with_capacity(keys.iter().map(|key| key.len()).sum());
        let mut ends = Vec::with_capacity(keys.len());
        for key in keys {
            bytes.extend_from_slice(key);
            ends.push(bytes.len() as u64);
        }
        Self { bytes, layout: Layout::Ends(ends) }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.layout {
            Layout::Fixed(width) => self.bytes.len() / width,
            Layout::Ends(ends) => ends.len(),
        }
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of all keys together, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The key of rank `i`.
    ///
    /// # Panics
    /// If there are not that many.
    #[inline]
    #[must_use]
    pub fn get(&self, i: usize) -> &[u8] {
        match &self.layout {
            Layout::Fixed(width) => &self.bytes[i * width..(i + 1) * width],
            Layout::Ends(ends) => {
                let start = if i == 0 { 0 } else { ends[i - 1] as usize };
                &self.bytes[start..ends[i] as usize]
            }
        }
    }

    /// The rank of `key`, or the rank it would have. O(log n).
    pub fn position(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// A uniform sample of `count` keys, still sorted; all of them if there are no more.
    #[must_use]
    pub fn sample(self, count: usize, rng: &mut Rng) -> Self {
        let n = self.len();
        if count >= n {
            return self;
        }
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(count);
        for i in 0..n {
            let wanted = count - ends.len();
            if rng.below((n - i) as u64) < wanted as u64 {
                bytes.extend_from_slice(self.get(i));
                ends.push(bytes.len() as u64);
            }
        }
        let layout = match self.layout {
            Layout::Fixed(width) => Layout::Fixed(width),
            Layout::Ends(_) => Layout::Ends(ends),
        };
        Self { bytes, layout }
    }

    /// Appends to `out` a key that is not in the set but looks like its members: a member with the
    /// last byte of another member in place of, or after, its own.
    pub fn absent(&self, rng: &mut Rng, out: &mut Vec<u8>) {
        let start = out.len();
        let n = self.len() as u64;
        loop {
            let last = self.get(rng.below(n) as usize).last().copied().unwrap_or(b'x');
            out.truncate(start);
            out.extend_from_slice(self.get(rng.below(n) as usize));
            if let [.., end] = &mut out[start..] {
                *end = last;
                if self.position(&out[start..]).is_err() {
                    return;
                }
            }
            out.push(last);
            if self.position(&out[start..]).is_err() {
                return;
            }
        }
    }
}

/// Reads a key file: SOSD binary if the name ends in `.u64`, otherwise (unless its length says that
/// it is binary) one key a line. Empty lines are skipped, repeated keys dropped.
///
/// # Errors
/// If the file cannot be read, or a binary file is cut short or not sorted.
pub fn read_file(path: &Path, encoding: Encoding) -> Result<Keys> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let counted = bytes.first_chunk::<8>().map(|count| u64::from_le_bytes(*count));
    let is_binary =
        counted.and_then(|n| n.checked_mul(8)?.checked_add(8)) == Some(bytes.len() as u64);
    if is_binary {
        let mut keys: Vec<u64> = bytes[8..]
            .chunks_exact(8)
            .map(|key| u64::from_le_bytes(key.try_into().expect("chunks of 8")))
            .collect();
        ensure!(keys.is_sorted(), "{}: the keys are not sorted", path.display());
        keys.dedup();
        return Ok(Keys::from_u64(&keys, encoding));
    }
    if path.extension().is_some_and(|extension| extension == "u64") {
        let count = counted.unwrap_or(0);
        bail!("{}: {} bytes do not hold the {count} keys stated", path.display(), bytes.len());
    }
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    Ok(Keys::from_unsorted(lines.filter(|line| !line.is_empty()).collect()))
}

/// Writes `sorted` in SOSD's binary form.
///
/// # Errors
/// If the file cannot be written.
pub fn write_sosd(path: &Path, sorted: &[u64]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(fs::File::create(path)?);
        file.write_all(&(sorted.len() as u64).to_le_bytes())?;
        for key in sorted {
            file.write_all(&key.to_le_bytes())?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(keys: &Keys) -> Vec<Vec<u8>> {
        (0..keys.len()).map(|i| keys.get(i).to_vec()).collect()
    }

    #[test]
    fn encodings_keep_the_order() {
        let numbers = [0, 9, 10, 15, 16, 255, 256, 1 << 40, u64::MAX];
        for encoding in [Encoding::Bytes, Encoding::Hex, Encoding::Decimal] {
            let keys = Keys::from_u64(&numbers, encoding);
            assert_eq!(keys.len(), numbers.len());
            assert!(list(&keys).is_sorted_by(|a, b| a < b), "{encoding:?}");
            for i in 0..keys.len() {
                assert_eq!(keys.position(keys.get(i)), Ok(i));
            }
        }
    }

    #[test]
    fn text_keys_are_sorted_and_distinct() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("keys.txt");
        fs::write(&path, "b\r\n\na\nabc\nb\nzz").expect("written");
        let keys = read_file(&path, Encoding::Bytes).expect("read");
        assert_eq!(list(&keys), [&b"a"[..], b"abc", b"b", b"zz"]);
        assert_eq!(keys.position(b"aa"), Err(1));
        assert_eq!(keys.total_bytes(), 7);
    }

    #[test]
    fn binary_keys_survive_the_file_and_damage_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("keys.u64");
        let numbers: Vec<u64> = (0..1000).map(|i| i * i).collect();
        write_sosd(&path, &numbers).expect("written");
        let keys = read_file(&path, Encoding::Bytes).expect("read");
        assert_eq!(list(&keys), list(&Keys::from_u64(&numbers, Encoding::Bytes)));

        let whole = fs::read(&path).expect("read");
        for cut in [0, 5, 8, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).expect("written");
            assert!(read_file(&path, Encoding::Bytes).is_err(), "cut at {cut}");
        }
        write_sosd(&path, &[3, 2]).expect("written");
        assert!(read_file(&path, Encoding::Bytes).is_err());
    }

    #[test]
    fn a_sample_is_a_sorted_part_of_the_set() {
        let numbers: Vec<u64> = (0..10_000).collect();
        let keys = Keys::from_u64(&numbers, Encoding::Decimal);
        let sample = keys.clone().sample(100, &mut Rng::new(1));
        assert_eq!(sample.len(), 100);
        assert!(list(&sample).is_sorted_by(|a, b| a < b));
        assert!(list(&sample).iter().all(|key| keys.position(key).is_ok()));
        assert_eq!(keys.clone().sample(20_000, &mut Rng::new(1)).len(), 10_000);
    }

    #[test]
    fn absent_keys_are_absent_even_from_a_full_range() {
        let numbers: Vec<u64> = (0..256).collect();
        for keys in
            [Keys::from_u64(&numbers, Encoding::Bytes), Keys::from_unsorted(vec![b"", b"a", b"b"])]
        {
            let mut rng = Rng::new(5);
            for _ in 0..1000 {
                let mut key = Vec::new();
                keys.absent(&mut rng, &mut key);
                assert!(keys.position(&key).is_err(), "{key:?}");
            }
        }
    }
}
