//! Files of cursors, `[name u8][form u8][text as a short string]` for each. The form is what the
//! text is: the file, the line before its checksum, or two numbers, of which a right file is made.

use std::{path::Path, sync::Arc};

use xxhash_rust::xxh3::xxh3_64;

use super::{DIR, Input};
use crate::{
    db::{Cursor, CursorInfo, Database, Keyspace},
    error::Error,
    io::{FileSystem, sim::SimFs},
    options::KeyspaceOptions,
};

/// Files by these names are cursors.
const NAMES: [&str; 3] = ["a", "b-1_c.d", "search index"];

/// Files by these names are none.
const OTHERS: [&str; 3] = [".hidden.cursor", "a.cursor.tmp", "caf\u{e9}.cursor"];

/// The most files of a history: each name once.
const FILES_MAX: usize = NAMES.len() + OTHERS.len();

/// Keeps all of the log that a history here writes.
const KEEP_BYTES: u64 = 1 << 20;

/// Has a database find these files, keep its log for them, and read and replace them.
///
/// # Panics
///
/// If a file is taken for something else than it is, or the log is not kept.
pub fn cursor(data: &[u8]) {
    let fs = Arc::new(SimFs::new(1));
    let shared: Arc<dyn FileSystem> = Arc::<SimFs>::clone(&fs);
    let db = Database::builder(DIR).file_system(shared).background_threads(0).open();
    let db = db.expect("a new database on a disk without faults");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("a new keyspace");
    let mut input = Input(data);
    let (mut whole, mut damaged): (Vec<CursorInfo>, Vec<&str>) = (Vec::new(), Vec::new());
    for _ in 0..FILES_MAX {
        if input.0.is_empty() {
            break;
        }
        let (name, form, text) = (usize::from(input.u8()) % FILES_MAX, input.u8(), input.short());
        let file = file_of(form, text);
        let (known, path) = match NAMES.get(name) {
            Some(known) => (Some(*known), format!("{known}.cursor")),
            None => (None, OTHERS[name - NAMES.len()].to_owned()),
        };
        let path = Path::new(DIR).join(path);
        if fs.create(&path).is_err() {
            // Each name has one file.
            continue;
        }
        let Some(known) = known else { continue };
        fs.set_content(&path, file.clone()).expect("the file was just created");
        match numbers_of(&file) {
            Some((position, keep_bytes)) => {
                whole.push(CursorInfo { name: known.to_owned(), position, keep_bytes });
            }
            None => damaged.push(known),
        }
    }
    whole.sort_by(|a, b| a.name.cmp(&b.name));
    write(&db, &keyspace);
    assert_eq!(db.cursors().expect("a disk without faults"), whole);
    check_log(&db, &whole);
    for name in damaged {
        let refused = db.cursor(name, 1).map(drop);
        assert!(refused.as_ref().is_err_and(Error::is_corruption), "{refused:?}");
        assert!(db.remove_cursor(name).expect("a disk without faults"));
    }
    for info in whole {
        check_handle(&db, &info);
    }
    assert!(db.cursors().expect("a disk without faults").is_empty());
}

fn file_of(form: u8, text: &[u8]) -> Vec<u8> {
    let line = match form % 3 {
        0 => return text.to_vec(),
        1 => text.to_vec(),
        _ => {
            let mut input = Input(text);
            format!("RHUMBCURSOR 1 {:016x} {:016x}", input.u64(), input.u64()).into_bytes()
        }
    };
    let end = format!(" {:016x}\n", xxh3_64(&line));
    [line, end.into_bytes()].concat()
}

/// What a file says, by its columns; `None` if it is no file of a cursor.
fn numbers_of(file: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| {
        let digits = std::str::from_utf8(file.get(at..at + 16)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let (position, keep_bytes) = (number(14)?, number(31)?);
    let numbers = [position.to_le_bytes(), keep_bytes.to_le_bytes()].concat();
    (file == file_of(2, &numbers)).then_some((position, keep_bytes))
}

/// Writes, and has the log cut three times.
fn write(db: &Database, keyspace: &Keyspace) {
    for round in 0..3 {
        for key in 0..2 {
            keyspace.insert([round, key], b"value").expect("a disk without faults");
        }
        db.flush().expect("a disk without faults");
    }
}

/// All changes are there from the position of any cursor on that keeps enough.
fn check_log(db: &Database, cursors: &[CursorInfo]) {
    let end = db.stats().sequence_number + 1;
    for cursor in cursors {
        let mut changes = match db.changes(cursor.position) {
            Ok(changes) => changes,
            Err(Error::InvalidArgument(_)) => {
                assert!(cursor.position > end);
                continue;
            }
            Err(error) => return check_lag(cursor, &error),
        };
        assert!(cursor.position <= end);
        loop {
            match changes.try_next() {
                Ok(Some(_)) => {}
                Ok(None) => break assert_eq!(changes.position(), end, "changes are missing"),
                Err(error) => break check_lag(cursor, &error),
            }
        }
    }
    if cursors.is_empty() {
        let gone = db.changes(1).and_then(|mut changes| changes.try_next().map(drop));
        assert!(matches!(gone, Err(Error::Lagged { .. })), "the log is kept for no cursor");
    }
}

fn check_lag(cursor: &CursorInfo, error: &Error) {
    assert!(matches!(error, Error::Lagged { .. }), "{error}");
    assert!(cursor.keep_bytes < KEEP_BYTES, "changes are not kept for {cursor:?}");
}

/// Opens a cursor, moves and removes it.
fn check_handle(db: &Database, info: &CursorInfo) {
    let opened = db.cursor(&info.name, KEEP_BYTES).expect("its file is whole");
    assert_eq!(opened.position(), info.position);
    let position = moved(opened, info.position.saturating_add(1));
    let found = db.cursors().expect("a disk without faults");
    let found = found.into_iter().find(|found| found.name == info.name);
    let expected = CursorInfo { name: info.name.clone(), position, keep_bytes: KEEP_BYTES };
    assert_eq!(found, Some(expected));
    assert!(db.remove_cursor(&info.name).expect("a disk without faults"));
}

fn moved(mut cursor: Cursor, position: u64) -> u64 {
    cursor.advance(position).expect("a disk without faults");
    cursor.position()
}
