//! Elements that lie packed in one string: what Redis calls a listpack, a ziplist, a zipmap and an
//! intset. Their lengths are checked where they are used, so no bytes reach beyond the string.

use super::format::PACKED_END;

/// How elements are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Listpack,
    Ziplist,
    Zipmap,
    Intset,
}

/// Elements that are read one after the other.
#[derive(Debug)]
pub(crate) struct Packed {
    bytes: Vec<u8>,
    packing: Packing,
    at: usize,
    /// Bytes of an integer in an intset.
    width: usize,
    /// The length of the entry before, in a ziplist.
    before: usize,
    /// In a zipmap: the next element is a value.
    is_value: bool,
    /// The integer before, in an intset.
    last: Option<i64>,
    read: u64,
    /// How many elements the header announces, if it does.
    announced: Option<u64>,
}

const SHORT: &str = "packed elements end too early";
const LENGTH: &str = "packed elements are of another length than they say";
const COUNT: &str = "packed elements are not as many as they say";

fn le(bytes: &[u8]) -> i64 {
    let mut word =
        if bytes.last().is_some_and(|last| last & 0x80 != 0) { [0xFF; 8] } else { [0; 8] };
    word[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

fn unsigned(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte))
}

impl Packed {
    /// The elements of these bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with the header.
    pub(crate) fn new(bytes: Vec<u8>, packing: Packing) -> Result<Self, &'static str> {
        let field = |from: usize, to: usize| bytes.get(from..to).map(unsigned).ok_or(SHORT);
        let many = u64::from(u16::MAX);
        let (mut width, mut at) = (0, 0);
        let announced = match packing {
            Packing::Listpack | Packing::Ziplist => {
                at = if packing == Packing::Listpack { 6 } else { 10 };
                let count = field(at - 2, at)? as u64;
                if field(0, 4)? != bytes.len() || bytes.len() <= at {
                    return Err(LENGTH);
                }
                (count < many).then_some(count)
            }
            Packing::Zipmap => {
                at = 1;
                let pairs = field(0, 1)? as u64;
                (pairs < 254).then_some(2 * pairs)
            }
            Packing::Intset => {
                width = field(0, 4)?;
                let count = field(4, 8)?;
                if ![2, 4, 8].contains(&width) {
                    return Err("a set of integers has no such width");
                }
                if count.checked_mul(width).and_then(|all| all.checked_add(8)) != Some(bytes.len())
                {
                    return Err(LENGTH);
                }
                at += 8;
                Some(count as u64)
            }
        };
        let (before, read) = (0, 0);
        Ok(Self { bytes, packing, at, width, before, is_value: false, last: None, read, announced })
    }

    fn take(&mut self, len: usize) -> Result<&[u8], &'static str> {
        let end = self.at.checked_add(len).ok_or(SHORT)?;
        let bytes = self.bytes.get(self.at..end).ok_or(SHORT)?;
        self.at = end;
        Ok(bytes)
    }

    fn integer(&mut self, width: usize) -> Result<Vec<u8>, &'static str> {
        Ok(le(self.take(width)?).to_string().into_bytes())
    }

    /// The next element; none after the last.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let is_over = match self.packing {
            Packing::Intset => self.at == self.bytes.len(),
            _ => *self.bytes.get(self.at).ok_or(SHORT)? == PACKED_END,
        };
        if is_over {
            if self.packing != Packing::Intset && self.at + 1 != self.bytes.len() {
                return Err(LENGTH);
            }
            if self.announced.is_some_and(|count| count != self.read) {
                return Err(COUNT);
            }
            return Ok(None);
        }
        self.read += 1;
        Ok(Some(match self.packing {
            Packing::Intset => self.intset()?,
            Packing::Listpack => self.listpack()?,
            Packing::Ziplist => self.ziplist()?,
            Packing::Zipmap => self.zipmap()?,
        }))
    }

    /// The next element as an integer, where there must be one.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn next_integer(&mut self) -> Result<i64, &'static str> {
        let text = self.next()?.ok_or(SHORT)?;
        let integer = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        integer.ok_or("packed elements have no integer where one should be")
    }

    fn intset(&mut self) -> Result<Vec<u8>, &'static str> {
        let width = self.width;
        let integer = le(self.take(width)?);
        if self.last.is_some_and(|last| last >= integer) {
            return Err("a set of integers does not ascend");
        }
        self.last = Some(integer);
        Ok(integer.to_string().into_bytes())
    }

    fn listpack(&mut self) -> Result<Vec<u8>, &'static str> {
        let start = self.at;
        let first = self.take(1)?[0];
        let element = match first {
            0..=0x7F => first.to_string().into_bytes(),
            0x80..=0xBF => self.take(usize::from(first & 0x3F))?.to_vec(),
            0xC0..=0xDF => {
                let bits = i64::from(first & 0x1F) << 8 | i64::from(self.take(1)?[0]);
                let integer = if bits >= 1 << 12 { bits - (1 << 13) } else { bits };
                integer.to_string().into_bytes()
            }
            0xE0..=0xEF => {
                let len = usize::from(first & 0x0F) << 8 | usize::from(self.take(1)?[0]);
                self.take(len)?.to_vec()
            }
            0xF0 => {
                let len = unsigned(self.take(4)?);
                self.take(len)?.to_vec()
            }
            0xF1 => self.integer(2)?,
            0xF2 => self.integer(3)?,
            0xF3 => self.integer(4)?,
            0xF4 => self.integer(8)?,
            _ => return Err("packed elements have one that begins with no encoding"),
        };
        let (back, len) = back_length(self.at - start);
        if self.take(len)? != &back[..len] {
            return Err("a packed element is of another length backwards");
        }
        Ok(element)
    }

    fn ziplist(&mut self) -> Result<Vec<u8>, &'static str> {
        let start = self.at;
        let before = match self.take(1)?[0] {
            0xFE => unsigned(self.take(4)?),
            len => usize::from(len),
        };
        if before != self.before {
            return Err("a packed element is of another length backwards");
        }
        let first = self.take(1)?[0];
        let element = match first {
            0..=0x3F => self.take(usize::from(first))?.to_vec(),
            0x40..=0x7F => {
                let len = usize::from(first & 0x3F) << 8 | usize::from(self.take(1)?[0]);
                self.take(len)?.to_vec()
            }
            0x80..=0xBF => {
                let len = self.take(4)?.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
                self.take(len)?.to_vec()
            }
            0xC0 => self.integer(2)?,
            0xD0 => self.integer(4)?,
            0xE0 => self.integer(8)?,
            0xF0 => self.integer(3)?,
            0xFE => self.integer(1)?,
            0xF1..=0xFD => ((first & 0x0F) - 1).to_string().into_bytes(),
            _ => return Err("packed elements have one that begins with no encoding"),
        };
        self.before = self.at - start;
        Ok(element)
    }

    fn zipmap(&mut self) -> Result<Vec<u8>, &'static str> {
        let len = match self.take(1)?[0] {
            254 => unsigned(self.take(4)?),
            len => usize::from(len),
        };
        let unused = if self.is_value { usize::from(self.take(1)?[0]) } else { 0 };
        let element = self.take(len)?.to_vec();
        self.take(unused)?;
        self.is_value = !self.is_value;
        Ok(element)
    }
}

/// The length of a listpack's element as it stands after it, to be read backwards: groups of seven
/// bits, the highest first, all but that with the top bit set.
pub(crate) fn back_length(len: usize) -> ([u8; 5], usize) {
    let bytes = match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    let mut out = [0; 5];
    for (at, byte) in out[..bytes].iter_mut().enumerate() {
        let group = (len >> (7 * (bytes - 1 - at)) & 0x7F) as u8;
        *byte = if at == 0 { group } else { group | 0x80 };
    }
    (out, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], packing: Packing) -> Result<Vec<String>, &'static str> {
        let mut packed = Packed::new(bytes.to_vec(), packing)?;
        let mut out = Vec::new();
        while let Some(element) = packed.next()? {
            out.push(String::from_utf8_lossy(&element).into_owned());
        }
        Ok(out)
    }

    #[test]
    fn sets_of_integers_are_read() {
        let bytes = [2, 0, 0, 0, 3, 0, 0, 0, 0xFF, 0xFF, 1, 0, 0, 1];
        assert_eq!(all(&bytes, Packing::Intset).unwrap(), ["-1", "1", "256"]);
        let descending = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 1, 0];
        assert!(all(&descending, Packing::Intset).is_err());
        assert!(all(&bytes[..12], Packing::Intset).is_err());
        assert!(all(&[3, 0, 0, 0, 0, 0, 0, 0], Packing::Intset).is_err());
    }

    #[test]
    fn zipmaps_are_read() {
        let bytes = b"\x02\x01a\x02\x00xy\x02bc\x01\x02z??\xff";
        assert_eq!(all(bytes, Packing::Zipmap).unwrap(), ["a", "xy", "bc", "z"]);
        let three = b"\x03\x01a\x02\x00xy\x02bc\x01\x02z??\xff";
        assert_eq!(all(three, Packing::Zipmap), Err(COUNT));
    }

    #[test]
    fn ziplists_are_read() {
        let entries = [
            &[0, 2, b'a', b'b'][..],
            &[4, 0xF1],
            &[2, 0xFD],
            &[2, 0xFE, 0x80],
            &[3, 0xC0, 0, 1],
            &[4, 0xF0, 0, 0, 0x80],
            &[5, 0x40, 1, b'z'],
        ]
        .concat();
        let len = 10 + entries.len() + 1;
        let head = [len as u8, 0, 0, 0, 0, 0, 0, 0, 7, 0];
        let bytes = [&head[..], &entries, &[0xFF]].concat();
        let expected = ["ab", "0", "12", "-128", "256", "-8388608", "z"];
        assert_eq!(all(&bytes, Packing::Ziplist).unwrap(), expected);
        let mut wrong = bytes.clone();
        wrong[14] = 9;
        assert!(all(&wrong, Packing::Ziplist).is_err());
    }

    #[test]
    fn listpacks_are_read() {
        let entries = [
            &[5, 1][..],
            &[0x82, b'a', b'b', 3],
            &[0xDF, 0xFF, 2],
            &[0xF1, 0, 0x80, 3],
            &[0xF4, 0, 0, 0, 0, 0, 0, 0, 0x80, 9],
        ]
        .concat();
        let head = [(7 + entries.len()) as u8, 0, 0, 0, 5, 0];
        let bytes = [&head[..], &entries, &[0xFF]].concat();
        let expected = ["5", "ab", "-1", "-32768", "-9223372036854775808"];
        assert_eq!(all(&bytes, Packing::Listpack).unwrap(), expected);
        let mut wrong = bytes.clone();
        wrong[7] = 2;
        assert!(all(&wrong, Packing::Listpack).is_err());
    }

    #[test]
    fn lengths_backwards_have_their_bytes() {
        assert_eq!(back_length(127), ([127, 0, 0, 0, 0], 1));
        assert_eq!(back_length(128), ([1, 0x80, 0, 0, 0], 2));
        assert_eq!(back_length(16_383), ([0, 0xFF, 0xFF, 0, 0], 3));
    }
}
