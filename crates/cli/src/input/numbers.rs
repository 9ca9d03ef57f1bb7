//! 64-bit integers as the SOSD benchmark stores them: a little-endian count, then that many
//! little-endian numbers. The value is the place of the number, from 1.

use std::io::{ErrorKind, Read};

use super::{Entry, Records};

/// See the module.
pub(super) struct Numbers<R> {
    reader: R,
    /// How many there are, by the file's own word.
    count: u64,
    /// How many were read.
    read: u64,
}

impl<R: Read> Numbers<R> {
    /// # Errors
    /// If the input ends before the count.
    pub(super) fn new(mut reader: R) -> Result<Self, String> {
        match read_u64(&mut reader)? {
            Some(count) => Ok(Self { reader, count, read: 0 }),
            None => Err("is shorter than the count of 8 bytes that it must start with".into()),
        }
    }
}

impl<R: Read> Records for Numbers<R> {
    fn next(&mut self) -> Result<Option<Entry>, String> {
        if self.read == self.count {
            return match self.reader.read(&mut [0]) {
                Ok(0) => Ok(None),
                Ok(_) => Err(format!("goes on after the {} numbers that it counts", self.count)),
                Err(error) => Err(error.to_string()),
            };
        }
        let Some(number) = read_u64(&mut self.reader)? else {
            return Err(format!("counts {} numbers and ends after {}", self.count, self.read));
        };
        self.read += 1;
        Ok(Some(Entry {
            key: number.to_be_bytes().to_vec(),
            value: self.read.to_string().into_bytes(),
        }))
    }
}

/// A little-endian number; none if the input ends before it does.
fn read_u64(reader: &mut impl Read) -> Result<Option<u64>, String> {
    let mut bytes = [0; 8];
    match reader.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.to_string()),
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
        let mut numbers = Numbers::new(&*bytes).unwrap();
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
    }
}
