//! Reads lines of a bounded length.

use std::io::{BufRead, Read};

use super::wrong::{Kind, Wrong};

/// See the module.
pub(super) struct LineReader<R> {
    reader: R,
    line: Vec<u8>,
    bytes_max: u64,
    /// Of the line read last, from 1; 0 before the first.
    pub(super) number: u64,
}

impl<R: BufRead> LineReader<R> {
    /// A reader of lines that have at most `bytes_max` bytes without their end.
    pub(super) fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader, line: Vec::new(), bytes_max: bytes_max as u64, number: 0 }
    }

    /// The next line without its end, which is a line feed with or without a carriage return before
    /// it; none at the end of the input. The last line may have no end.
    ///
    /// A line that is too long is an error and is skipped to its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Wrong> {
        if !self.read()? {
            return Ok(None);
        }
        if self.line.ends_with(b"\n") {
            self.line.pop();
            if self.line.ends_with(b"\r") {
                self.line.pop();
            }
        }
        Ok(Some(&self.line))
    }

    /// The next line with its end, if it has one.
    pub(super) fn next_whole(&mut self) -> Result<Option<&[u8]>, Wrong> {
        Ok(self.read()?.then_some(&self.line))
    }

    fn read(&mut self) -> Result<bool, Wrong> {
        self.line.clear();
        // Two bytes more than a line may have: its end.
        let mut bounded = self.reader.by_ref().take(self.bytes_max + 2);
        let n = bounded.read_until(b'\n', &mut self.line);
        let line = self.number + 1;
        if n.map_err(|error| Wrong::input(error).at(line))? == 0 {
            return Ok(false);
        }
        self.number = line;
        let end = if self.line.ends_with(b"\r\n") { 2 } else { usize::from(self.has_end()) };
        if (self.line.len() - end) as u64 <= self.bytes_max {
            return Ok(true);
        }
        if !self.has_end() {
            self.skip_rest().map_err(|error| Wrong::input(error).at(line))?;
        }
        let what = format!("is longer than {} bytes", self.bytes_max);
        Err(Wrong::new(Kind::Length, what).at(line))
    }

    fn has_end(&self) -> bool {
        self.line.ends_with(b"\n")
    }

    /// Skips what is left of a line.
    fn skip_rest(&mut self) -> std::io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let n = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(n);
            if end.is_some() || n == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let mut reader = LineReader::new(&b"1234\r\n12345\n123456789\nlast"[..], 4);
        assert_eq!(reader.next(), Ok(Some(&b"1234"[..])));
        for line in [2, 3] {
            let wrong = Wrong::new(Kind::Length, "is longer than 4 bytes").at(line);
            assert_eq!(reader.next(), Err(wrong));
        }
        assert_eq!(reader.next(), Ok(Some(&b"last"[..])));
        assert_eq!(reader.next(), Ok(None));
        assert_eq!(reader.number, 4);
    }

    #[test]
    fn a_line_keeps_its_end_if_it_is_wanted() {
        let mut reader = LineReader::new(&b"a\r\n\nb"[..], 4);
        for line in [&b"a\r\n"[..], b"\n", b"b"] {
            assert_eq!(reader.next_whole(), Ok(Some(line)));
        }
        assert_eq!(reader.next_whole(), Ok(None));
    }
}
