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

/// Seconds of processor time: of the system and of the user, of the process, of its children that
/// have ended, and of its first thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuSeconds {
    pub(crate) process: (f64, f64),
    pub(crate) children: (f64, f64),
    pub(crate) first_thread: (f64, f64),
}

/// Where the times stand among the fields of `stat` after the name in parentheses: those of the
/// user and of the system, and of children.
const USER_FIELD: usize = 11;
const CHILDREN_FIELD: usize = 13;

/// The system's and the user's seconds in a `stat` file of Linux.
fn times(text: &str, field: usize) -> Option<(f64, f64)> {
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(field);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / per_second);
    let user = seconds()?;
    Some((seconds()?, user))
}

/// The processor time that was used so far. Where the system has no `/proc`, all that the process
/// used is the user's.
pub(crate) fn cpu_seconds() -> CpuSeconds {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        return CpuSeconds { process: (0.0, used), ..CpuSeconds::default() };
    };
    let first = format!("/proc/self/task/{}/stat", std::process::id());
    let first = fs::read_to_string(first).unwrap_or_default();
    CpuSeconds {
        process: times(&stat, USER_FIELD).unwrap_or_default(),
        children: times(&stat, CHILDREN_FIELD).unwrap_or_default(),
        first_thread: times(&first, USER_FIELD).unwrap_or_default(),
    }
}

/// Threads of the process; none where the system does not say.
pub(crate) fn threads() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}

/// Bytes of memory that the machine has; none where it does not say.
pub(crate) fn machine_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_times_of_a_stat_file_are_read_whatever_the_name() {
        let text = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 200 100 4 3 20 0 5";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(super::times(text, super::USER_FIELD), Some((100.0 / ticks, 200.0 / ticks)));
        assert_eq!(super::times(text, super::CHILDREN_FIELD), Some((3.0 / ticks, 4.0 / ticks)));
        assert_eq!(super::times("7 (a) S", super::USER_FIELD), None);
    }

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
