//! Backups whose points have correct checksums. The first byte says what follows:
//!
//! * 0: the bytes of a point between its first eight ones and its checksum;
//! * 1: files of a backup, `[which u8][number u8][length u16][bytes]` for each: of a table, or a
//!   point as above, or a point as it is;
//! * 2: points by their names, `[name as a short string][length u16][bytes]` for each.

use std::{path::Path, sync::Arc};

use super::{Input, file_system, u64_at};
use crate::{
    db::{BackupInfo, Backups, Database, framed_point, recoded_point},
    error::Error,
    io::{FileSystem, ReadMode},
};

/// The most files of a crafted backup: a few points, and tables for each.
const FILES_MAX: usize = 8;

/// Reads a backup: its list, its checks, and the databases that are restored from it.
///
/// # Panics
///
/// If a reader breaks a promise.
pub fn backup(data: &[u8]) {
    let mut input = Input(data);
    let form = input.u8() % 3;
    if form == 0 {
        let point = framed_point(input.rest());
        return check(&[(&name_of(&point), &point)]);
    }
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    while !input.0.is_empty() && files.len() < FILES_MAX {
        let (name, bytes) = if form == 1 { numbered(&mut input) } else { named(&mut input) };
        if files.iter().all(|(other, _)| *other != name) {
            files.push((name, bytes));
        }
    }
    let named: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    check(&named);
}

/// The name of the file of a point.
fn name_of(point: &[u8]) -> String {
    format!("{:06}.point", u64_at(point, 8))
}

/// A file by its number.
fn numbered(input: &mut Input<'_>) -> (String, Vec<u8>) {
    let (which, number, bytes) = (input.u8(), input.u8() % 16, input.chunk());
    let (ending, bytes) = match which % 5 {
        0 => ("sst", bytes.to_vec()),
        1 => ("set", bytes.to_vec()),
        2 => ("val", bytes.to_vec()),
        3 => ("point", framed_point(bytes)),
        _ => ("point", bytes.to_vec()),
    };
    (format!("{number:06}.{ending}"), bytes)
}

/// A point by its name, of which only what files may be named stays.
fn named(input: &mut Input<'_>) -> (String, Vec<u8>) {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'/';
    let name: String = input.short().iter().copied().filter(is_plain).map(char::from).collect();
    // No file is named like a directory.
    let name = if name.starts_with(['.']) || name.is_empty() { "none".to_owned() } else { name };
    (name, framed_point(input.chunk()))
}

fn check(files: &[(&str, &[u8])]) {
    // Digits alone, and no more zeros than six digits have.
    let is_point = |name: &str| {
        let number = name.strip_suffix(".point").and_then(|digits| digits.parse::<u64>().ok());
        number.is_some_and(|number| format!("{number:06}.point") == name)
    };
    let points: Vec<&(&str, &[u8])> = files.iter().filter(|(name, _)| is_point(name)).collect();
    for (_, point) in &points {
        if let Some(again) = recoded_point(point) {
            assert_eq!(again, *point, "a point has one encoding");
        }
    }
    let fs = file_system(files);
    let backups = Backups::open_on(Arc::clone(&fs), Path::new(super::DIR));
    let backups = backups.expect("the directory is there");
    let listed = match backups.list() {
        Ok(listed) => listed,
        Err(error) => {
            assert!(matches!(error, Error::Corrupt(_)), "{error}");
            return check_nothing_goes(&fs, &backups, files);
        }
    };
    assert_eq!(listed.len(), points.len(), "each point is listed, or refused");
    assert!(listed.is_sorted_by(|a, b| a.number < b.number));
    for info in &listed {
        let verified = backups.verify(info.number);
        let target = format!("/restored-{}", info.number);
        match backups.restore(info.number, &target) {
            Ok(()) => {
                assert!(verified.is_ok(), "{verified:?}");
                check_files(&fs, &target, info);
                open(&fs, &target);
            }
            Err(_) => {
                let left = fs.list(Path::new(&target)).unwrap_or_default();
                assert!(left.is_empty(), "a failed restore leaves {left:?}");
            }
        }
    }
    let newest = listed.last().map(|info| info.number);
    let removed = backups.keep_newest(1).expect("a disk without faults");
    assert_eq!(removed.len(), listed.len().saturating_sub(1));
    let left = backups.list().expect("the points that are left are the same");
    assert_eq!(left.last().map(|info| info.number), newest);
}

/// A backup with a damaged point is left as it is.
fn check_nothing_goes(fs: &Arc<dyn FileSystem>, backups: &Backups, files: &[(&str, &[u8])]) {
    assert!(backups.verify(1).is_err() && backups.restore(1, "/restored").is_err());
    assert!(backups.remove(1).is_err() && backups.keep_newest(0).is_err());
    let names = fs.list(Path::new(super::DIR)).expect("a disk without faults");
    assert!(files.iter().all(|(name, _)| names.iter().any(|left| left == name)));
}

/// What was restored are the files that the list counts, and a manifest.
fn check_files(fs: &Arc<dyn FileSystem>, dir: &str, info: &BackupInfo) {
    let dir = Path::new(dir);
    let (mut files, mut bytes) = (0, 0);
    for name in fs.list(dir).expect("a disk without faults") {
        if name == "CURRENT" || name.starts_with("MANIFEST-") {
            continue;
        }
        let file = fs.open(&dir.join(name), ReadMode::Buffered).expect("it was listed");
        files += 1;
        bytes += file.len().expect("it is open");
    }
    assert_eq!((files, bytes), (info.files, info.bytes));
}

/// Opens what was restored, whose manifest may be made up, and reads all of it.
fn open(fs: &Arc<dyn FileSystem>, dir: &str) {
    let builder = Database::builder(dir).file_system(Arc::clone(fs)).background_threads(0);
    if let Ok(db) = builder.open() {
        let _ = db.dump(std::io::sink());
    }
}
