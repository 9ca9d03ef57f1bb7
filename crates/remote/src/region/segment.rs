//! Segments: files in memory that are made by a host, sealed, and checked by its readers.
//!
//! Knows files and nothing of where they are mapped.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{
        CWD, FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod,
        fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create, openat,
    },
    io::{Errno, retry_on_intr},
};

use super::{PAGE_BYTES, SEGMENT_BYTES_MIN};
use crate::error::{Error, Result};

/// What `/proc/PID/maps` and `/proc/PID/fd` call a segment.
const NAME: &str = "rhumb-region";

/// The seals of a segment. The file keeps its length by the first two (a read past its end would
/// kill the reader). By the third nobody writes to it but through the mappings that exist, and
/// nobody punches holes (a read of one would find memory on the reader's account). By the last no
/// reader adds seals.
const SEALS: [(SealFlags, &str); 4] = [
    (SealFlags::SHRINK, "SHRINK"),
    (SealFlags::GROW, "GROW"),
    (SealFlags::FUTURE_WRITE, "FUTURE_WRITE"),
    (SealFlags::SEAL, "SEAL"),
];

/// What `fstatfs` calls the file system of every memfd but those of hugetlbfs (`linux/magic.h`).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// What `st_blocks` counts in (`man 3 stat`), whatever the file system's own blocks are.
const STAT_BLOCK_BYTES: u64 = 512;

/// Makes a file of zeroed memory, which nobody but its owner may open, and only for reading. One
/// small page is found for each large one that it can become: what the system asks for before it
/// puts a range into a large page. [`fill`] finds the rest.
pub(super) fn create(bytes: u64) -> Result<OwnedFd> {
    let file = create_empty().map_err(|e| Error::io("create a segment", e))?;
    ftruncate(&file, bytes)
        .map_err(|e| Error::io(format!("size a segment to {bytes} bytes"), e))?;
    for at in (0..bytes).step_by(SEGMENT_BYTES_MIN as usize) {
        find_memory(&file, at, PAGE_BYTES as u64)?;
    }
    fchmod(&file, Mode::RUSR).map_err(|e| Error::io("make a segment's file read-only", e))?;
    Ok(file)
}

/// Finds the memory that a segment still lacks, in small pages.
pub(super) fn fill(file: BorrowedFd<'_>, bytes: u64) -> Result<()> {
    find_memory(file, 0, bytes)
}

fn find_memory(file: impl AsFd, at: u64, bytes: u64) -> Result<()> {
    // A signal ends the search for memory, and what was found stays.
    retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), at, bytes))
        .map_err(|e| Error::io(format!("find {bytes} bytes of memory for a segment"), e))
}

fn create_empty() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 there was no such flag.
        Err(Errno::INVAL) => memfd_create(NAME, flags),
        done => done,
    }
}

/// Opens the file once more, for reading alone: what readers are given.
pub(super) fn reopen_read_only(file: BorrowedFd<'_>) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    openat(CWD, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::io(format!("reopen a segment by {path}"), e))
}

/// Forbids every change of the file but by the mappings that exist.
pub(super) fn seal(file: BorrowedFd<'_>) -> Result<()> {
    let seals = SEALS.iter().fold(SealFlags::empty(), |all, &(seal, _)| all | seal);
    fcntl_add_seals(file, seals).map_err(|e| Error::io("seal a segment", e))
}

/// Refuses a file that is not a sealed segment of `bytes` bytes.
pub(super) fn check(file: BorrowedFd<'_>, bytes: u64) -> Result<()> {
    let stat = |file| fstat(file).map_err(|e| Error::io("look at a segment's file", e));
    if FileType::from_raw_mode(stat(file)?.st_mode) != FileType::RegularFile {
        return Err(Error::invalid("a segment is not a regular file"));
    }
    // hugetlbfs has seals too, and refuses mappings where it runs out of pages.
    let stat_fs = fstatfs(file).map_err(|e| Error::io("ask where a segment's file is", e))?;
    if u64::try_from(stat_fs.f_type) != Ok(TMPFS_MAGIC) {
        return Err(Error::invalid("a segment's file is not in a tmpfs"));
    }
    check_seals(file)?;
    // Read after the seals, which keep both from changing.
    let stat = stat(file)?;
    let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    if file_bytes != bytes {
        let what = format!("a segment's file has {file_bytes} bytes and should have {bytes}");
        return Err(Error::invalid(what));
    }
    let held_bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK_BYTES);
    if held_bytes < bytes {
        let what = format!("a segment of {bytes} bytes has holes: it holds {held_bytes}");
        return Err(Error::invalid(what));
    }
    Ok(())
}

fn check_seals(file: BorrowedFd<'_>) -> Result<()> {
    let seals = match fcntl_get_seals(file) {
        Ok(seals) => seals,
        Err(Errno::INVAL) => return Err(Error::invalid("a segment's file cannot be sealed")),
        Err(e) => return Err(Error::io("ask for a segment's seals", e)),
    };
    let is_missing = |&&(seal, _): &&(SealFlags, &str)| !seals.contains(seal);
    let missing: Vec<&str> = SEALS.iter().filter(is_missing).map(|&(_, name)| name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!("a segment's file lacks the seals {}", missing.join(", "))))
}
