//! A part of a scan, as a volatile keyspace puts it together.

use std::ops::{ControlFlow, RangeBounds};

use super::{Pair, Scan};

/// The pairs of a scan so far.
pub(super) struct Part<'a> {
    pub(super) scan: Scan<'a>,
    pub(super) pairs: Vec<Pair>,
    bytes: usize,
}

impl<'a> Part<'a> {
    pub(super) fn new(scan: &Scan<'a>) -> Self {
        Self { scan: *scan, pairs: Vec::new(), bytes: 0 }
    }

    /// Adds a pair; breaks if it is none of the scan's, which is at its end then, or if it has no
    /// room, with true.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<bool> {
        if !(self.scan.from, self.scan.to).contains(key) {
            return ControlFlow::Break(false);
        }
        self.bytes += key.len() + value.len();
        let is_full = self.bytes > self.scan.bytes_max && !self.pairs.is_empty();
        if self.pairs.len() >= self.scan.limit || is_full {
            return ControlFlow::Break(true);
        }
        self.pairs.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    }
}
