//! What the disk itself gives: reads of files through the kernel's queue and nothing else, to hold
//! a store's figures against.
#![allow(unsafe_code, reason = "the kernel reads into memory that the ring's entries point to")]

use std::{
    fs::{File, OpenOptions},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, opcode, types};
use rhumb::io::AlignedBuf;

use crate::random::Rng;

/// Files of a store with one piece of memory for each read that goes on.
pub struct RawDisk {
    ring: IoUring,
    files: Vec<(File, u64)>,
    buffers: Vec<AlignedBuf>,
}

/// Which parts of the files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// Any, at multiples of 4096 bytes.
    Random,
    /// All, one after another and again from the start.
    InOrder,
}

impl RawDisk {
    /// Opens the larger files of `directory` for reads past the page cache, `depth` at a time.
    ///
    /// # Errors
    /// If there are none, or the system refuses.
    pub fn open(directory: &Path, depth: usize, read_bytes: usize) -> Result<Self> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let len = std::fs::metadata(&path)?.len();
            if path.extension().is_some_and(|name| name == "sst") && len >= read_bytes as u64 * 4 {
                let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
                let file = OpenOptions::new().read(true).custom_flags(direct).open(&path);
                files.push((file.with_context(|| format!("cannot open {}", path.display()))?, len));
            }
        }
        ensure!(!files.is_empty(), "no files to read in {}", directory.display());
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(u32::try_from(depth)?)
            .context("the kernel refuses io_uring")?;
        let buffers = (0..depth).map(|_| AlignedBuf::new(read_bytes)).collect();
        Ok(Self { ring, files, buffers })
    }

    /// Reads until `goes_on` says no, which is asked after every read; returns the number of reads.
    ///
    /// # Errors
    /// If a read fails.
    pub fn read(
        &mut self,
        places: Places,
        rng: &mut Rng,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<u64> {
        let (mut file, mut offset, mut count) = (0, 0, 0);
        let mut free: Vec<usize> = (0..self.buffers.len()).collect();
        let mut ends = false;
        loop {
            while !ends && let Some(slot) = free.pop() {
                let len = self.buffers[slot].len() as u64;
                if places == Places::Random {
                    file = rng.below(self.files.len() as u64) as usize;
                    offset = rng.below((self.files[file].1 - len) / 4096 + 1) * 4096;
                } else if offset + len > self.files[file].1 {
                    (file, offset) = ((file + 1) % self.files.len(), 0);
                }
                self.begin(slot, file, offset);
                offset += len;
            }
            if free.len() == self.buffers.len() {
                return Ok(count);
            }
            self.ring.submit_and_wait(1)?;
            let completions: Vec<_> = self.ring.completion().collect();
            for entry in completions {
                let slot = entry.user_data() as usize;
                free.push(slot);
                let whole = entry.result() == i32::try_from(self.buffers[slot].len())?;
                // What still goes on has to end before the buffers may go.
                ends |= !goes_on() || !whole;
                ensure!(whole || free.len() < self.buffers.len(), "a read failed");
                count += 1;
            }
        }
    }

    fn begin(&mut self, slot: usize, file: usize, offset: u64) {
        let buffer = &mut self.buffers[slot];
        let fd = types::Fd(self.files[file].0.as_raw_fd());
        let len = buffer.len() as u32;
        let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), len).offset(offset).build();
        // SAFETY: the buffer and the file stay until `read` has seen that the read has ended, since
        // it returns only then; the ring has as many places as there are buffers.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.expect("a place for each buffer");
    }
}
