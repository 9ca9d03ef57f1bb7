//! The number of files, and the amount written, if there are many small tables: keys that ascend,
//! databases that are opened for a moment, thousands of keyspaces.
//!
//! The long forms (CONTRIBUTING.md) use the operating system's files and the default sizes.

use std::{path::Path, sync::Arc};

use rhumb::{
    Database, DatabaseBuilder, Keyspace, KeyspaceOptions,
    inspect::Inspector,
    io::{FileSystem, StdFs, sim::CallKind, sim::SimFs},
};

/// A number from the environment, for the long forms.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// The place of a test's database.
struct Place {
    fs: Arc<dyn FileSystem>,
    sim: Option<SimFs>,
    dir: tempfile::TempDir,
}

impl Place {
    /// A place on a simulated disk, or a `real` one.
    fn new(real: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = (!real).then(|| SimFs::new(1));
        let fs: Arc<dyn FileSystem> = match &sim {
            Some(sim) => Arc::new(sim.clone()),
            None => Arc::new(StdFs),
        };
        Self { fs, sim, dir }
    }

    fn builder(&self) -> DatabaseBuilder {
        let builder = Database::builder(self.dir.path().join("db"));
        builder.file_system(Arc::clone(&self.fs))
    }

    /// The number of files whose names contain `part`.
    fn files(&self, part: &str) -> usize {
        let names = self.fs.list(&self.dir.path().join("db")).unwrap();
        names.iter().filter(|name| name.contains(part)).count()
    }

    fn tables(&self) -> usize {
        self.files(".sst") + self.files(".set")
    }

    fn is_sound(&self) -> bool {
        let inspector = Inspector::with_file_system(Arc::clone(&self.fs));
        inspector.check(self.dir.path().join("db"), &mut |_, _| {}).unwrap().is_sound()
    }
}

/// Waits until there are at most `most` table files: the pool may be removing some, and threads of
/// other tests may hold the epoch back.
fn wait_for_tables(place: &Place, db: &Database, most: usize) {
    let begun = std::time::Instant::now();
    while place.tables() > most {
        assert!(begun.elapsed().as_secs() < 120, "{} files instead of {most}", place.tables());
        // Any write reclaims what it can.
        db.keyspace("other", KeyspaceOptions::default()).unwrap().insert("k", "v").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn entries(keyspace: &Keyspace) -> usize {
    keyspace.iter().inspect(|pair| assert!(pair.is_ok())).count()
}

/// A process that appends a few keys and ends, again and again.
fn opened_for_a_moment(openings: u64, keyspaces: u64, place: &Place, most: usize) {
    let mut slowest = std::time::Duration::ZERO;
    for opening in 0..openings {
        let begun = std::time::Instant::now();
        let db = place.builder().open().unwrap();
        slowest = slowest.max(begun.elapsed());
        for keyspace in 0..keyspaces {
            let keyspace =
                db.keyspace(&format!("k{keyspace}"), KeyspaceOptions::default()).unwrap();
            for key in opening * 3..opening * 3 + 3 {
                keyspace.insert(key.to_be_bytes(), [7; 20]).unwrap();
            }
        }
        drop(db);
        // With the log, the manifest, `CURRENT` and `LOCK`.
        assert!(place.files("") <= most, "{} files after {opening} openings", place.files(""));
        assert!(place.files(".log") <= 2 && place.files("MANIFEST") <= 1);
    }
    println!("{openings} openings: {} files, the slowest opening {slowest:?}", place.files(""));
    let db = place.builder().open().unwrap();
    for keyspace in 0..keyspaces {
        let keyspace = db.keyspace(&format!("k{keyspace}"), KeyspaceOptions::default()).unwrap();
        assert_eq!(entries(&keyspace) as u64, openings * 3);
    }
    drop(db);
    assert!(place.is_sound());
}

#[test]
fn a_database_opened_for_a_moment_again_and_again_keeps_few_files() {
    let openings = setting("RHUMB_OPENINGS");
    let place = Place::new(openings.is_some());
    opened_for_a_moment(openings.unwrap_or(100), 1, &place, 30);
}

#[test]
fn two_keyspaces_opened_for_a_moment_share_their_files() {
    let place = Place::new(false);
    opened_for_a_moment(60, 2, &place, 30);
}

/// Each opening creates a keyspace of its own: no table has a neighbour, and files are packed.
#[test]
fn keyspaces_that_are_written_once_do_not_keep_a_file_each() {
    let place = Place::new(false);
    let count = 80_u32;
    for i in 0..count {
        let db = place.builder().background_threads(0).open().unwrap();
        let keyspace = db.keyspace(&format!("k{i}"), KeyspaceOptions::default()).unwrap();
        keyspace.insert(i.to_be_bytes(), [7; 20]).unwrap();
    }
    assert!(place.tables() <= 40, "{} files", place.tables());
    let db = place.builder().open().unwrap();
    for i in 0..count {
        let keyspace = db.keyspace(&format!("k{i}"), KeyspaceOptions::default()).unwrap();
        assert_eq!(entries(&keyspace), 1);
    }
}

/// A flush of a few ascending keys a minute, as of checkpoints.
#[test]
fn flushes_of_ascending_keys_are_merged_and_each_byte_few_times() {
    let place = Place::new(false);
    let db = place.builder().background_threads(0).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let flushes = 300_u64;
    for key in 0..flushes {
        keyspace.insert(key.to_be_bytes(), [7; 3_000]).unwrap();
        db.flush().unwrap();
    }
    keyspace.insert([255; 9], "last").unwrap();
    let stats = db.stats();
    // Level 0 and three tables of each of four sizes.
    wait_for_tables(&place, &db, 16);
    // log4(300) joins, and the first merge from level 0.
    let written = stats.compacted_written_bytes;
    assert!(written <= 5 * stats.flushed_bytes, "{written} for {}", stats.flushed_bytes);
    assert!(stats.compactions <= flushes / 2, "{} compactions", stats.compactions);
    assert_eq!(entries(&keyspace) as u64, flushes + 1);
    let (first, last) = (keyspace.first_key_value().unwrap(), keyspace.last_key_value().unwrap());
    assert!(first.unwrap().0 == 0_u64.to_be_bytes() && last.unwrap().0 == [255; 9]);
}

/// Ascending keys in many keyspaces at once, like series of measurements.
#[test]
fn series_in_many_keyspaces_have_at_most_twice_the_files_that_they_need() {
    let long = setting("RHUMB_SERIES_BYTES");
    let place = Place::new(long.is_some());
    // In the short form all sizes are 64 times smaller, and values larger.
    let (keyspaces, bytes, value_bytes) = long.map_or((20, 8 << 20, 492), |bytes| (200, bytes, 92));
    let (builder, table_bytes) = match long {
        Some(_) => (place.builder(), 64_u64 << 20),
        None => {
            let builder = place.builder().memtable_bytes(1 << 20).table_bytes(1 << 20);
            (builder.level_one_bytes(4 << 20), 1 << 20)
        }
    };
    let db = builder.open().unwrap();
    let open = |i| db.keyspace(&format!("series {i}"), KeyspaceOptions::default()).unwrap();
    let series: Vec<Keyspace> = (0..keyspaces).map(open).collect();
    let rows = bytes / (8 + value_bytes) / keyspaces;
    let (mut noise, mut value) = (1_u64, vec![0; value_bytes as usize]);
    for row in 0..rows {
        let mut batch = db.batch();
        for one in &series {
            for part in value.chunks_mut(8) {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                part.copy_from_slice(&noise.to_le_bytes()[..part.len()]);
            }
            batch.insert(one, row.to_be_bytes(), &value);
        }
        batch.commit().unwrap();
    }
    db.flush().unwrap();
    let needed: u64 = db.stats().keyspaces.iter().map(|k| k.file_bytes.div_ceil(table_bytes)).sum();
    println!("{} files of tables after the last write, {needed} needed", place.tables());
    wait_for_tables(&place, &db, 2 * needed as usize);
    let stats = db.stats();
    let (written, flushed) = (stats.compacted_written_bytes, stats.flushed_bytes);
    println!("{} files, {written} bytes compacted of {flushed} flushed", place.tables());
    assert!(written <= 7 * flushed, "{written} for {flushed}");
    for one in &series {
        assert_eq!(entries(one) as u64, rows);
    }
    drop((series, db));
    assert!(place.is_sound());
}

#[test]
fn thousands_of_keyspaces_are_flushed_into_one_file() {
    let long = setting("RHUMB_KEYSPACES");
    let (count, place) = (long.unwrap_or(200), Place::new(long.is_some()));
    let db = place.builder().open().unwrap();
    let names: Vec<String> = (0..count).map(|i| format!("keyspace {i}")).collect();
    let syncs = || place.sim.as_ref().map(|sim| sim.counts().of(CallKind::SyncData));
    // Half of them are created one by one, with one sync each, and half together, with one sync.
    let (one_by_one, together) = names.split_at(names.len() / 2);
    let (begun, before) = (std::time::Instant::now(), syncs());
    let mut keyspaces: Vec<Keyspace> =
        one_by_one.iter().map(|n| db.keyspace(n, KeyspaceOptions::default()).unwrap()).collect();
    println!("{} keyspaces created one by one in {:?}", keyspaces.len(), begun.elapsed());
    let (begun, between) = (std::time::Instant::now(), syncs());
    keyspaces.extend(db.keyspaces(together, KeyspaceOptions::default()).unwrap());
    println!("{} keyspaces created together in {:?}", together.len(), begun.elapsed());
    if let (Some(before), Some(between), Some(after)) = (before, between, syncs()) {
        assert_eq!((between - before, after - between), (one_by_one.len() as u64, 1));
    }
    for round in 0..6_u64 {
        for keyspace in &keyspaces {
            (0..5).for_each(|i| keyspace.insert((round * 5 + i).to_be_bytes(), [7; 20]).unwrap());
        }
        let before = syncs();
        let begun = std::time::Instant::now();
        db.flush().unwrap();
        println!("flushed in {:?}", begun.elapsed());
        if let (Some(before), Some(after), 0) = (before, syncs(), round) {
            // One of the shared file and one of the manifest.
            assert_eq!(after - before, 2);
            assert_eq!(place.tables(), 1, "one file for all");
        }
    }
    wait_for_tables(&place, &db, 16);
    drop((keyspaces, db));
    let begun = std::time::Instant::now();
    let db = place.builder().open().unwrap();
    println!("opened in {:?}", begun.elapsed());
    for name in &names {
        let keyspace = db.keyspace(name, KeyspaceOptions::default()).unwrap();
        assert_eq!(entries(&keyspace), 30);
        assert!(keyspace.get(29_u64.to_be_bytes()).unwrap().is_some());
    }
    assert!(Path::new(&db.path()).ends_with("db"));
    drop(db);
    assert!(place.is_sound());
}
