//! What the figures were measured on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The machine, the kernel and the sources, for the environment line.
#[must_use]
pub fn describe() -> Value {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    json!({
        "cpu": field(&cpus, "model name").unwrap_or("unknown"),
        "cores": thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes": kibibytes(&memory, "MemTotal"),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(
            |_| std::env::consts::OS.to_owned(),
            |release| format!("Linux {}", release.trim()),
        ),
        "commit": commit(),
    })
}

/// The commit of the sources that this program was built from, with `-dirty` if they have changed.
fn commit() -> Value {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return Value::Null };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changes.is_some_and(|changes| changes.is_empty()) {
        return commit.into();
    }
    format!("{commit}-dirty").into()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let kibibytes: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The memory that this process has resident, in bytes; `None` where the system does not tell.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// The room that the files under `directory` take on disk, in bytes.
///
/// # Errors
/// If a directory cannot be read. Files that vanish meanwhile are not counted.
pub fn disk_bytes(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    for path in files(directory)? {
        if let Ok(metadata) = fs::symlink_metadata(&path) {
            total += metadata.blocks() * 512;
        }
    }
    Ok(total)
}

/// Asks the system to forget its cached copies of the files under `directory`. Pages that are
/// mapped or not yet written stay.
///
/// # Errors
/// If a directory cannot be read, or the system cannot drop them. Files that vanish meanwhile are
/// passed over.
pub fn drop_file_caches(directory: &Path) -> Result<()> {
    for path in files(directory)? {
        if let Ok(file) = fs::File::open(&path) {
            drop_cache(&file)
                .with_context(|| format!("cannot drop cached pages of {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn drop_cache(file: &fs::File) -> Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
fn drop_cache(_: &fs::File) -> Result<()> {
    anyhow::bail!("only Linux is asked to")
}

/// Makes the files under `directory` durable, so that their cached pages can be dropped.
///
/// # Errors
/// If a file cannot be synced.
pub fn sync_files(directory: &Path) -> Result<()> {
    for path in files(directory)? {
        if let Ok(file) = fs::File::open(&path) {
            file.sync_all().with_context(|| format!("cannot sync {}", path.display()))?;
        }
    }
    Ok(())
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = pending.pop() {
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| format!("cannot list {}", directory.display()))?,
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_machine_and_kernel() {
        let environment = describe();
        assert!(environment["cores"].as_u64() >= Some(1));
        assert!(environment["cpu"].is_string() && environment["kernel"].is_string());
    }

    #[test]
    fn disk_bytes_count_files_in_sub_directories() {
        let directory = tempfile::tempdir().expect("a directory");
        let deep = directory.path().join("a/b");
        fs::create_dir_all(&deep).expect("created");
        fs::write(deep.join("file"), vec![1; 100_000]).expect("written");
        sync_files(directory.path()).expect("synced");
        drop_file_caches(directory.path()).expect("dropped");
        assert!(disk_bytes(directory.path()).expect("counted") >= 100_000);
        assert_eq!(disk_bytes(&directory.path().join("missing")).expect("nothing"), 0);
    }
}
