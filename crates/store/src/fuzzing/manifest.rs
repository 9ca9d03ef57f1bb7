//! Manifests with correct checksums. The first byte says what follows:
//!
//! * 0: the payload of one record;
//! * 1: payloads of records as chunks;
//! * 2: `[durable length u16]` and a whole manifest, whose checksums are made right;
//! * 3: a file `CURRENT`; 4: one without its checksum;
//! * 5: the options of a keyspace.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::{
    DIR, IDENTITY, Input, file_system, log::repair_frames, overwrite, table::assert_refusal, u64_at,
};
use crate::{
    inspect::Inspector,
    log::frame::FrameSeed,
    options::KeyspaceOptions,
    version::{
        edit::VersionEdit,
        format::{MANIFEST_HEADER_BYTES, MANIFEST_MAGIC, MANIFEST_VERSION},
        manifest::{CURRENT_NAME, Manifest, manifest_path},
        state::CatalogState,
    },
};

/// The number of every crafted manifest.
pub(super) const ID: u64 = 7;
const NAME: &str = "MANIFEST-000007";

/// Reads a manifest, or a part of one.
pub fn manifest(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 6 {
        0 => apply(&mut CatalogState::blank(), input.rest()),
        1 => {
            let mut state = CatalogState::blank();
            while !input.0.is_empty() {
                apply(&mut state, input.chunk());
            }
        }
        2 => {
            let durable_bytes = input.u16();
            let mut file = input.rest().to_vec();
            repair(&mut file);
            let current = with_checksum(format!("{NAME} {durable_bytes:016x}").as_bytes());
            recover(&file, &current);
        }
        3 => recover(&[], input.rest()),
        4 => recover(&[], &with_checksum(input.rest())),
        _ => check_options(input.rest()),
    }
}

/// A line of `CURRENT` with its checksum.
fn with_checksum(line: &[u8]) -> Vec<u8> {
    let mut current = line.to_vec();
    current.extend_from_slice(format!(" {:016x}\n", xxh3_64(line)).as_bytes());
    current
}

/// Decodes a record and applies it: all of it, or nothing.
fn apply(state: &mut CatalogState, payload: &[u8]) {
    let Ok(edit) = VersionEdit::decode(payload) else { return };
    assert_eq!(edit.encode(), payload, "an edit has one encoding");
    let before = state.clone();
    match state.apply(&edit) {
        Ok(()) => check_state(state),
        Err(_) => assert_eq!(*state, before, "what is refused changes nothing"),
    }
}

/// A catalog is what its snapshot says; its LSM trees are those of its keyspaces.
fn check_state(state: &CatalogState) {
    let mut again = CatalogState::blank();
    for record in state.records() {
        let decoded = VersionEdit::decode(&record.encode()).expect("what was encoded is decoded");
        assert_eq!(decoded, record);
        again.apply(&decoded).expect("a snapshot does not contradict itself");
    }
    assert_eq!(again, *state);
    let mut tables = 0;
    for keyspace in state.keyspaces.values() {
        let partitions = state.partitions_of(keyspace.tree).map(|(_, tree)| tree);
        for tree in std::iter::once(keyspace.tree).chain(partitions) {
            assert!(state.has_tree(tree) && !state.is_retired(tree) && tree < state.next_tree);
            for (level, meta) in state.tables_of(tree) {
                assert!(level < 64 && meta.smallest <= meta.largest && meta.id < state.next_file);
                tables += 1;
            }
        }
        check_options(&keyspace.options);
    }
    assert_eq!(tables, state.tables().count(), "every table is in some keyspace");
}

/// Options that are accepted have one encoding.
fn check_options(bytes: &[u8]) {
    if let Ok(options) = KeyspaceOptions::decode(bytes) {
        assert_eq!(options.encode(), bytes);
    }
}

/// Reads the manifest as opening a database does, and as an inspection does.
fn recover(file: &[u8], current: &[u8]) {
    let fs = file_system(&[(NAME, file), (CURRENT_NAME, current)]);
    match Manifest::recover(&*fs, Path::new(DIR)) {
        Ok(recovered) => check_state(&recovered.expect("there is a CURRENT").state),
        Err(error) => assert_refusal(&error),
    }
    let inspector = Inspector::with_file_system(fs);
    match inspector.manifest(manifest_path(Path::new(DIR), ID)) {
        Ok(report) => {
            let listed: u64 = report.records.iter().map(|record| record.bytes).sum();
            assert!(listed <= report.file_bytes);
        }
        Err(error) => assert_refusal(&error),
    }
    if let Err(error) = inspector.database(DIR) {
        assert_refusal(&error);
    }
}

/// Corrects the checksums of a manifest, and the header fields that identify it.
pub(super) fn repair(bytes: &mut [u8]) {
    overwrite(bytes, 0, &MANIFEST_MAGIC);
    overwrite(bytes, 8, &MANIFEST_VERSION.to_le_bytes());
    overwrite(bytes, 16, &ID.to_le_bytes());
    if u64_at(bytes, 24) == 0 {
        overwrite(bytes, 24, &IDENTITY.to_le_bytes());
    }
    let checksum = bytes.get(..32).map_or(0, xxh3_64);
    overwrite(bytes, 32, &checksum.to_le_bytes());
    let seed = FrameSeed::new(u64_at(bytes, 24), ID);
    repair_frames(bytes, MANIFEST_HEADER_BYTES, seed);
}
