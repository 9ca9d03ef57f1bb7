//! What clients read is what the database holds, whatever changes it and by whatever way.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use proptest::prelude::*;
use rhumb::{Database, KeyspaceOptions};
use rhumb_remote::{Client, Error};
use rhumb_share::{Event, Preset, ShareOptions, Shared, Source};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(preset: Preset) -> ShareOptions {
    ShareOptions::default().entry_bytes(30).capacity_bytes(64 << 20).preset(preset)
}

fn database(dir: &Path) -> Database {
    Database::builder(dir.join("data")).memtable_bytes(1 << 20).open().unwrap()
}

fn keyspace(db: &Database, name: &str) -> rhumb::Keyspace {
    db.keyspace(name, KeyspaceOptions::default()).unwrap()
}

fn wait_until_live(shared: &Shared, name: &str) {
    while !shared.stats(name).unwrap().is_live {
        thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u16),
    Remove(u16),
    /// By a client.
    RemoteInsert(u16, u16),
    RemoteRemove(u16),
    RemoteSwap(u16, u16),
    RemoveRange(u16, u16),
    Clear,
    Ingest(u16),
    /// What follows is read from the region.
    WaitUntilLive,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0u16..300;
    let len = || 0u16..100;
    prop_oneof![
        8 => (key(), len()).prop_map(|(key, len)| Step::Insert(key, len)),
        3 => key().prop_map(Step::Remove),
        3 => (key(), len()).prop_map(|(key, len)| Step::RemoteInsert(key, len)),
        1 => key().prop_map(Step::RemoteRemove),
        2 => (key(), len()).prop_map(|(key, len)| Step::RemoteSwap(key, len)),
        2 => (key(), key()).prop_map(|(from, to)| Step::RemoveRange(from, to)),
        1 => Just(Step::Clear),
        1 => key().prop_map(Step::Ingest),
        3 => Just(Step::WaitUntilLive),
    ]
}

/// Keys, some of which are too long for leaves.
fn key(n: u16) -> Vec<u8> {
    let long = if n.is_multiple_of(17) { 300 } else { 0 };
    format!("{:04}{}", n, "k".repeat(long)).into_bytes()
}

/// Values, some of which are too large for leaves.
fn value(len: u16) -> Vec<u8> {
    vec![len as u8; usize::from(len) * if len.is_multiple_of(20) { 100 } else { 1 }]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn clients_read_what_is_there(
        steps in prop::collection::vec(step(), 1..80),
        preset in prop::sample::select(Preset::ALL.to_vec()),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path());
        let written = keyspace(&db, "users");
        written.insert(key(5), value(5)).unwrap();
        let mut map = Map::from([(key(5), value(5))]);
        let shared = Shared::listen(dir.path().join("socket"))
            .share("shared", Source::of(written.clone()), options(preset))
            .start(&db)
            .unwrap();
        let client = Client::connect(shared.path()).unwrap();
        let read = client.keyspace("shared").unwrap();
        for step in &steps {
            match step {
                Step::Insert(n, len) => written.insert(key(*n), value(*len)).unwrap(),
                Step::Remove(n) => written.remove(key(*n)).unwrap(),
                Step::RemoteInsert(n, len) => read.insert(key(*n), value(*len)).unwrap(),
                Step::RemoteRemove(n) => read.remove(key(*n)).unwrap(),
                Step::RemoteSwap(n, len) => {
                    let expected = map.get(&key(*n)).map(Vec::as_slice);
                    let new = value(*len);
                    prop_assert!(!read.compare_and_swap(key(*n), Some(b"not that"), None).unwrap());
                    prop_assert!(read.compare_and_swap(key(*n), expected, Some(&new)).unwrap());
                }
                Step::RemoveRange(from, to) => {
                    written.remove_range(key(*from)..key(*to)).unwrap();
                }
                Step::Clear => written.clear().unwrap(),
                Step::Ingest(n) => drop(written.ingest([(key(*n), b"ingested")]).unwrap()),
                Step::WaitUntilLive => wait_until_live(&shared, "shared"),
            }
            match step {
                Step::Insert(n, len) | Step::RemoteInsert(n, len) | Step::RemoteSwap(n, len) => {
                    map.insert(key(*n), value(*len));
                }
                Step::Remove(n) | Step::RemoteRemove(n) => drop(map.remove(&key(*n))),
                Step::RemoveRange(from, to) => map.retain(|k, _| *k < key(*from) || *k >= key(*to)),
                Step::Clear => map.clear(),
                Step::Ingest(n) => drop(map.insert(key(*n), b"ingested".to_vec())),
                Step::WaitUntilLive => {}
            }
            let calls = read.calls();
            for n in (0..300).step_by(7) {
                let found = read.get(key(n)).unwrap();
                prop_assert_eq!(found.as_ref(), map.get(&key(n)), "{:?}, key {}", step, n);
            }
            if matches!(step, Step::WaitUntilLive) && preset == Preset::Rhumb {
                let asked = (0..300u16).step_by(7).filter(|n| {
                    n.is_multiple_of(17) || map.get(&key(*n)).is_some_and(|v| v.len() > 100)
                });
                prop_assert!(read.calls() - calls <= asked.count() as u64);
            }
            let pairs: Map = read.iter().map(Result::unwrap).collect();
            prop_assert_eq!(&pairs, &map, "{:?}", step);
            prop_assert!(read.iter().rev().map(|pair| pair.unwrap().0).eq(map.into_keys().rev()));
            map = pairs;
        }
    }
}

/// Readers see what was acknowledged before they began, while the database is written to, cleared
/// and loaded, by threads of its own and by clients.
#[test]
fn what_was_acknowledged_is_read() {
    Preset::ALL.into_iter().for_each(read_what_was_acknowledged);
}

fn read_what_was_acknowledged(preset: Preset) {
    const KEYS: u64 = 64;
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path());
    let written = keyspace(&db, "users");
    let shared = Shared::listen(dir.path().join("socket"))
        .share("shared", Source::of(written.clone()), options(preset))
        .start(&db)
        .unwrap();
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let (done, live_reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..2 {
            let (written, acknowledged) = (&written, &acknowledged);
            let client = Client::connect(shared.path()).unwrap();
            scope.spawn(move || {
                let remote = client.keyspace("shared").unwrap();
                for version in 1..1_500u64 {
                    let n = (version * 7 + writer) % (KEYS / 2) * 2 + writer;
                    let bytes = version.to_le_bytes();
                    if writer == 0 {
                        written.insert(n.to_be_bytes(), bytes).unwrap();
                    } else {
                        remote.insert(n.to_be_bytes(), bytes).unwrap();
                    }
                    acknowledged[n as usize].store(version, Ordering::SeqCst);
                }
            });
        }
        for seed in 0..2u64 {
            let (acknowledged, done, live_reads) = (&acknowledged, &done, &live_reads);
            let client = Client::connect(shared.path()).unwrap();
            scope.spawn(move || {
                let read = client.keyspace("shared").unwrap();
                let (mut n, mut count) = (seed, 0);
                while !done.load(Ordering::Relaxed) {
                    n = (n * 5 + 1) % KEYS;
                    let least = acknowledged[n as usize].load(Ordering::SeqCst);
                    let found = read.get(n.to_be_bytes()).unwrap();
                    let found = found.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
                    assert!(found >= least, "{preset:?}: key {n}: {found} after {least}");
                    count += 1;
                }
                live_reads.fetch_add(count - read.calls(), Ordering::Relaxed);
            });
        }
        // Has the region loaded again and again meanwhile.
        scope.spawn(|| {
            for _ in 0..40 {
                wait_until_live(&shared, "shared");
                thread::sleep(Duration::from_millis(2));
                drop(shared.pause("shared"));
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    let live_reads = live_reads.load(Ordering::Relaxed);
    assert!(live_reads > 500, "{preset:?}: {live_reads} reads without a call");
}

#[test]
fn a_share_may_stand_for_another_keyspace() {
    Preset::ALL.into_iter().for_each(stand_for_another);
}

fn stand_for_another(preset: Preset) {
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path());
    let both = [keyspace(&db, "a"), keyspace(&db, "b")];
    both[0].insert("of", "a").unwrap();
    both[1].insert("of", "b").unwrap();
    let chosen = Arc::new(AtomicU64::new(0));
    let source = {
        let (both, chosen) = (both.clone(), Arc::clone(&chosen));
        Source::chosen(move || Ok(both[chosen.load(Ordering::SeqCst) as usize].clone()))
    };
    let shared = Shared::listen(dir.path().join("socket"))
        .share("one", source.read_only("write to the keyspaces themselves"), options(preset))
        .start(&db)
        .unwrap();
    let read = Client::connect(shared.path()).unwrap().keyspace("one").unwrap();
    for round in 0..20 {
        let expected = [b"a", b"b"][round % 2];
        assert_eq!(read.get("of").unwrap().unwrap(), expected);
        if round % 3 == 0 {
            wait_until_live(&shared, "one");
            assert_eq!(read.get("of").unwrap().unwrap(), expected);
        }
        let paused = shared.pause("one").unwrap();
        chosen.store((round as u64 + 1) % 2, Ordering::SeqCst);
        assert!(!shared.stats("one").unwrap().is_live);
        drop(paused);
    }
    let refused = read.insert("of", "c").unwrap_err();
    assert!(matches!(&refused, Error::Refused { text, .. } if text.contains("themselves")));
    assert!(shared.pause("another").is_none());
}

/// The share is paused for another keyspace right after the one before it was chosen to be loaded.
#[test]
fn a_choice_that_is_out_of_date_is_not_loaded() {
    Preset::ALL.into_iter().for_each(choose_too_early);
}

fn choose_too_early(preset: Preset) {
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path());
    let both = [keyspace(&db, "a"), keyspace(&db, "b")];
    both[0].insert("of", "a").unwrap();
    both[1].insert("of", "b").unwrap();
    let chosen = Arc::new(AtomicU64::new(0));
    let is_armed = Arc::new(AtomicBool::new(false));
    let itself: Arc<OnceLock<Shared>> = Arc::default();
    let source = {
        // What it shares must not keep the share.
        let itself = Arc::downgrade(&itself);
        let (chosen, is_armed) = (chosen.clone(), is_armed.clone());
        Source::chosen(move || {
            let keyspace = both[chosen.load(Ordering::SeqCst) as usize].clone();
            if is_armed.swap(false, Ordering::SeqCst) {
                let itself = itself.upgrade().unwrap();
                let paused = itself.get().unwrap().pause("one").unwrap();
                chosen.store(1, Ordering::SeqCst);
                drop(paused);
            }
            Ok(keyspace)
        })
    };
    let shared = Shared::listen(dir.path().join("socket"))
        .share("one", source.read_only("write to the keyspaces themselves"), options(preset))
        .start(&db)
        .unwrap();
    let shared = itself.get_or_init(|| shared);
    wait_until_live(shared, "one");
    is_armed.store(true, Ordering::SeqCst);
    drop(shared.pause("one").unwrap());
    while is_armed.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    wait_until_live(shared, "one");
    let read = Client::connect(shared.path()).unwrap().keyspace("one").unwrap();
    let calls = read.calls();
    assert_eq!(read.get("of").unwrap().unwrap(), b"b");
    assert_eq!(read.calls(), calls, "{preset:?}: the region answers");
}

#[test]
fn a_budget_that_is_spent_fails_no_write() {
    Preset::ALL.into_iter().for_each(spend_a_budget);
}

fn spend_a_budget(preset: Preset) {
    // Leaves of XStore's that refer to values have room for more.
    let keys = if preset == Preset::XStore { 60_000 } else { 25_000 };
    // In no order, and a hundredth of them stays in the end.
    let key = |n: u32| n.wrapping_mul(0x9e37_79b1).to_be_bytes();
    // The least that trained arrays and their bins take is more.
    let budget = if preset == Preset::FineStore { 4 << 20 } else { 2 << 20 };
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path());
    let written = keyspace(&db, "users");
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let shared = Shared::listen(dir.path().join("socket"))
        .share("shared", Source::of(written.clone()), options(preset).capacity_bytes(budget))
        .watch(move |name, event| seen.lock().unwrap().push((name.to_owned(), event)))
        .start(&db)
        .unwrap();
    wait_until_live(&shared, "shared");
    let read = Client::connect(shared.path()).unwrap().keyspace("shared").unwrap();
    for n in 0..keys {
        written.insert(key(n), [7; 100]).unwrap();
    }
    for n in (0..keys).step_by(97) {
        assert_eq!(read.get(key(n)).unwrap().unwrap(), [7; 100]);
    }
    // It may have been loaded again before what there was did not fit any more.
    let is_refused =
        |event: &Event| matches!(event, Event::Failed { error: Error::Full { .. }, .. });
    while !events.lock().unwrap().iter().any(|(_, event)| is_refused(event)) {
        thread::sleep(Duration::from_millis(1));
    }
    let (name, first) = events.lock().unwrap()[0].clone();
    assert_eq!(name, "shared");
    assert!(matches!(first, Event::Loaded { .. }), "{first:?}");
    written.remove_range((u32::MAX / 100).to_be_bytes()..).unwrap();
    wait_until_live(&shared, "shared");
    let left = written.iter().count();
    assert!((100..keys as usize / 50).contains(&left), "{left} keys are left");
    assert_eq!(read.iter().count(), left);
}

#[test]
fn a_database_that_is_dropped_is_closed_with_its_shares() {
    Preset::ALL.into_iter().for_each(drop_the_database);
}

fn drop_the_database(preset: Preset) {
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path());
    let written = keyspace(&db, "users");
    let shared = Shared::listen(dir.path().join("socket"))
        .share("shared", Source::of(written.clone()), options(preset))
        .start(&db)
        .unwrap();
    let read = Client::connect(shared.path()).unwrap().keyspace("shared").unwrap();
    read.insert("ada", "1815").unwrap();
    drop((written, db));
    assert_eq!(read.get("ada").unwrap().unwrap(), b"1815");
    drop(shared);
    let db = database(dir.path());
    assert_eq!(keyspace(&db, "users").get("ada").unwrap().unwrap(), b"1815");
}

/// A batch moves an amount between accounts; readers of one moment find that none is lost.
#[test]
fn batches_are_read_whole() {
    Preset::ALL.into_iter().for_each(read_batches);
}

fn read_batches(preset: Preset) {
    const ACCOUNTS: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path());
    let (left, right) = (keyspace(&db, "left"), keyspace(&db, "right"));
    let shared = Shared::listen(dir.path().join("socket"))
        .share("left", Source::of(left), options(preset))
        .share("right", Source::of(right), options(Preset::Rhumb))
        .start(&db)
        .unwrap();
    let connect = || Client::connect(shared.path()).unwrap();
    let account = |n: u64| [n.to_be_bytes(), [b'a'; 8]].concat();
    let client = connect();
    let (left, right) = (client.keyspace("left").unwrap(), client.keyspace("right").unwrap());
    let mut batch = client.batch();
    (0..ACCOUNTS).for_each(|n| batch.insert(&left, account(n), 100i64.to_le_bytes()));
    batch.insert(&right, "moved", 0u64.to_le_bytes());
    assert_eq!((batch.len(), batch.is_empty()), (41, false));
    batch.commit().unwrap();
    assert_eq!(right.get("moved").unwrap().unwrap(), [0; 8]);
    let done = AtomicBool::new(false);
    let amount = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
    thread::scope(|scope| {
        for is_range in [false, true] {
            let (done, left) = (&done, connect().keyspace("left").unwrap());
            scope.spawn(move || {
                let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
                while !done.load(Ordering::Relaxed) {
                    let sum: i64 = if is_range {
                        let pairs = left.range_atomic::<&str>(.., 1_000).unwrap();
                        assert_eq!(pairs.len() as u64, ACCOUNTS);
                        pairs.iter().map(|(_, value)| amount(value)).sum()
                    } else {
                        let values = left.multi_get_atomic(&keys).unwrap();
                        values.iter().map(|value| amount(value.as_ref().unwrap())).sum()
                    };
                    assert_eq!(sum, 100 * ACCOUNTS as i64);
                }
            });
        }
        let mut amounts = [100i64; ACCOUNTS as usize];
        for n in 0..1_500u64 {
            let (from, to) = (n * 7 % ACCOUNTS, n * 13 % ACCOUNTS);
            amounts[from as usize] -= 3;
            amounts[to as usize] += 3;
            let mut batch = client.batch();
            for n in [from, to] {
                batch.insert(&left, account(n), amounts[n as usize].to_le_bytes());
            }
            batch.insert(&right, "moved", n.to_le_bytes());
            batch.commit().unwrap();
            if n % 500 == 7 {
                drop(shared.pause("left"));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let first = left.range_atomic(account(3).., 2).unwrap();
    assert!(first.iter().map(|(key, _)| key).eq(&[account(3), account(4)]));
    let mut strange = connect().batch();
    strange.insert(&left, "k", "v");
    assert!(matches!(strange.commit(), Err(Error::InvalidArgument(_))));
    assert!(connect().batch().commit().is_ok());
}
