//! Entry points for fuzzing: each takes bytes, runs the decoders of one format, and panics if they
//! break a promise. Only with the feature `fuzzing`; only `fuzz/` and the tests here call them.
//!
//! A fuzzer cannot guess a checksum, so none stands in its way: the bytes are what checksums
//! protect, and the harness frames them with correct ones. The decoders promise for any bytes: no
//! panic, no endless loop, answers within their ranges, and memory in proportion to the bytes. If
//! the bytes happen to be well formed, the answers must be right too.

mod backup;
mod block;
mod cursor;
mod dump;
mod index;
mod log;
mod manifest;
mod salvage;
mod seeds;
mod table;
#[cfg(test)]
mod tests;
mod transactions;

use std::{path::Path, sync::Arc};

use crate::io::{FileSystem, sim::SimFs};

pub use backup::backup;
pub use block::block;
pub use cursor::cursor;
pub use dump::dump;
pub use index::index;
pub use log::log;
pub use manifest::manifest;
pub use salvage::salvage;
pub use seeds::seeds;
pub use table::table;
pub use transactions::transactions;

/// An entry point: it returns, or panics if it has found a fault.
pub type Target = fn(&[u8]);

/// The entry points of this crate, by the names of their fuzz targets.
pub const TARGETS: [(&str, Target); 10] = [
    ("block", block),
    ("index", index),
    ("table", table),
    ("log", log),
    ("manifest", manifest),
    ("dump", dump),
    ("salvage", salvage),
    ("backup", backup),
    ("cursor", cursor),
    ("transactions", transactions),
];

/// The database that crafted files belong to.
const IDENTITY: u64 = 0x5EED_5EED_5EED_5EED;

/// The directory that crafted files are in.
const DIR: &str = "/db";

/// Splits a fuzzer's bytes into values. After their end, numbers are 0 and strings are empty, so
/// that any bytes mean something.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    fn u32(&mut self) -> u32 {
        self.number(4) as u32
    }

    fn u64(&mut self) -> u64 {
        self.number(8)
    }

    /// A string of up to 255 bytes, after its length.
    fn short(&mut self) -> &'a [u8] {
        let len = self.u8();
        self.take(usize::from(len))
    }

    /// A string of up to 64 KiB, after its length.
    fn chunk(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.take(usize::from(len))
    }

    fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}

/// A file system in memory that holds these files in [`DIR`].
fn file_system(files: &[(&str, &[u8])]) -> Arc<dyn FileSystem> {
    let fs = SimFs::new(1);
    let dir = Path::new(DIR);
    fs.create_dir_all(dir).expect("nothing fails unless it is told to");
    for (name, bytes) in files {
        let path = dir.join(name);
        fs.create(&path).expect("the names differ");
        fs.set_content(&path, bytes.to_vec()).expect("the file was just created");
    }
    Arc::new(fs)
}

/// Writes a number over the bytes at `at`, if they are there.
fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..with.len())) {
        place.copy_from_slice(with);
    }
}

/// The number at `at`; 0 beyond the end.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    Input(bytes.get(at..).unwrap_or_default()).u64()
}

/// The number at `at`; 0 beyond the end.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    Input(bytes.get(at..).unwrap_or_default()).u32()
}
