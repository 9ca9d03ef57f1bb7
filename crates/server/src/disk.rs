//! What the data take on the disk, what is left there, and what the process takes in memory.

use std::{fs, path::Path};

/// Bytes that are free for this process on the file system of a directory; none if it does not say.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Bytes of the files in a directory. Costs a system call for each file.
pub(crate) fn used_bytes(directory: &Path) -> Option<u64> {
    let entries = fs::read_dir(directory).ok()?;
    // A file that is removed meanwhile takes nothing.
    let sizes = entries.filter_map(|entry| entry.ok()?.metadata().ok()).filter(|m| m.is_file());
    Some(sizes.map(|found| found.len()).sum())
}

/// Bytes of memory that the process has, by the system's count; none where it does not say.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_directory_takes_what_its_files_take() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), [0; 1000]).unwrap();
        std::fs::write(dir.path().join("b"), [0; 24]).unwrap();
        assert_eq!(super::used_bytes(dir.path()), Some(1024));
        assert!(super::free_bytes(dir.path()).is_some());
        assert_eq!(super::used_bytes(&dir.path().join("none")), None);
        assert_eq!(super::free_bytes(&dir.path().join("none")), None);
    }
}
