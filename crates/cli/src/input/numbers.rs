//! 64-bit integers as the SOSD benchmark stores them: a little-endian count, then that many
//! little-endian numbers. The value is the place of the number, from 1.

use std::io::{ErrorKind, Read};

use super::{Entry, Records, Wrong};

/// Bytes of the count, and of each number.
const NUMBER_BYTES: u64 = 8;

/// See the module.
pub(super) struct Numbers<R> {
    reader: R,
    /// How many there are, by the file's own word.
    count: u64,
    /// How many were read.
    read: u64,
}

impl<R: Read> Numbers<R> {
    /// The numbers of `reader`, which is `length` bytes long if that is known.
    ///
    /// # Errors
    /// If the input ends before the count, or its length is not that of the numbers it counts.
    pub(super) fn new(mut reader: R, length: Option<u64>) -> Result<Self, Wrong> {
        let Some(count) = read_u64(&mut reader)? else {
            let what = "is shorter than the count of 8 bytes that it must start with";
            return Err(Wrong::input(what));
        };
        let numbers = Self { reader, count, read: 0 };
        // So that nothing is loaded from a file that is no such file.
        match length.map(|length| (length / NUMBER_BYTES - 1, length % NUMBER_BYTES)) {
            Some((there, rest)) if there < count || (there == count && rest > 0) => {
                Err(if there < count { numbers.ends_after(there) } else { numbers.goes_on() })
            }
            Some((there, _)) if there > count => Err(numbers.goes_on()),
            _ => Ok(numbers),
        }
    }

    fn ends_after(&self, there: u64) -> Wrong {
        Wrong::input(format!("counts {} numbers and ends after {there}", self.count))
    }

    fn goes_on(&self) -> Wrong {
        Wrong::input(format!("goes on after the {} numbers that it counts", self.count))
    }
}

impl<R: Read> Records for Numbers<R> {
    fn next(&mut self) -> Result<Option<Entry>, Wrong> {
        if self.read == self.count {
            return match self.reader.read(&mut [0]) {
                Ok(0) => Ok(None),
                Ok(_) => Err(self.goes_on()),
                Err(error) => Err(Wrong::input(error)),
            };
        }
        let Some(number) = read_u64(&mut self.reader)? else {
            return Err(self.ends_after(self.read));
        };
        self.read += 1;
        Ok(Some(Entry {
            key: number.to_be_bytes().to_vec(),
            value: self.read.to_string().into_bytes(),
        }))
    }

    fn line(&self) -> u64 {
        self.read
    }
}

/// A little-endian number; none if the input ends before it does.
fn read_u64(reader: &mut impl Read) -> Result<Option<u64>, Wrong> {
    let mut bytes = [0; NUMBER_BYTES as usize];
    match reader.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(Wrong::input(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Format,
            tests::{default_fields, read_all},
        },
        *,
    };

    fn file(count: u64, numbers: &[u64]) -> Vec<u8> {
        std::iter::once(&count).chain(numbers).flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn numbers_become_keys_in_their_order() {
        let bytes = file(2, &[1, u64::MAX]);
        let mut numbers = Numbers::new(&*bytes, Some(24)).unwrap();
        let first = numbers.next().unwrap().unwrap();
        assert_eq!((first.key, first.value), (vec![0, 0, 0, 0, 0, 0, 0, 1], b"1".to_vec()));
        let second = numbers.next().unwrap().unwrap();
        assert_eq!((second.key, second.value), (vec![255; 8], b"2".to_vec()));
        assert_eq!(numbers.next(), Ok(None));
    }

    #[test]
    fn a_wrong_length_is_named() {
        let read = |bytes: &[u8]| read_all(bytes, Format::U64, &default_fields());
        assert!(read(&file(3, &[1, 2])).unwrap_err().contains("ends after 2"));
        assert!(read(&file(u64::MAX, &[])).unwrap_err().contains("ends after 0"));
        assert!(read(&file(1, &[1, 2])).unwrap_err().contains("goes on"));
        assert!(read(b"1234").unwrap_err().contains("8 bytes"));
        let new =
            |length| Numbers::new(&*file(2, &[1, 2]), Some(length)).err().map(|e| e.to_string());
        assert!(new(20).unwrap().contains("ends after 1"));
        assert!(new(25).unwrap().contains("goes on") && new(32).unwrap().contains("goes on"));
        assert_eq!(new(24), None);
    }
}
