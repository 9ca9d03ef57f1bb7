//! A tap sees what the readers of its keyspace see, however the keyspace changes.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use proptest::prelude::*;
use rhumb::{
    Change, Database, Followed, Keyspace, KeyspaceOptions, Partitioning, PersistMode, Result, Tap,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A copy of a keyspace, made from the calls of a tap.
#[derive(Default)]
struct Copy(Mutex<State>);

#[derive(Default)]
struct State {
    /// With the applied changes.
    map: Map,
    /// With the published changes.
    published: Map,
    seq: u64,
    resets: u32,
    /// Changes that were prepared and not applied yet.
    prepared: Vec<String>,
}

impl Copy {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Starts again with the present contents.
    fn load(&self, followed: &Followed, keyspace: &Keyspace) {
        let snapshot = followed.snapshot().unwrap();
        let pairs = snapshot.keyspace(keyspace).unwrap().iter().map(|pair| {
            let (key, value) = pair.unwrap();
            (key.to_vec(), value.to_vec())
        });
        let map: Map = pairs.collect();
        let mut state = self.state();
        state.resets = 0;
        state.map.clone_from(&map);
        state.published = map;
    }
}

impl Tap for Copy {
    fn prepare(&self, change: Change<'_>) {
        self.state().prepared.push(format!("{change:?}"));
    }

    fn apply(&self, change: Change<'_>) {
        let state = &mut *self.state();
        assert_eq!(state.prepared.remove(0), format!("{change:?}"));
        let map = &mut state.map;
        match change {
            Change::Insert { key, value } => drop(map.insert(key.to_vec(), value.to_vec())),
            Change::Remove { key } => drop(map.remove(key)),
            Change::RemoveRange { from, to } => {
                let to = to.map_or(Bound::Unbounded, Bound::Excluded);
                let bounds = (Bound::Included(from), to);
                let gone: Vec<Vec<u8>> =
                    map.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
                gone.iter().for_each(|key| drop(map.remove(key)));
            }
            other => panic!("{other:?}"),
        }
    }

    fn publish(&self, seq: u64) {
        let state = &mut *self.state();
        assert!(seq > state.seq, "numbers ascend");
        state.seq = seq;
        state.published.clone_from(&state.map);
    }

    fn reset(&self) {
        self.state().resets += 1;
    }
}

fn contents(keyspace: &Keyspace) -> Map {
    keyspace.iter().map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u16),
    Remove(u8),
    RemoveRange(u8, u8),
    RemoveFrom(u8),
    /// A batch over this keyspace and another.
    Batch(Vec<(u8, Option<u16>)>),
    Swap(u8, Option<u16>),
    Other(u8),
    Flush,
    Clear,
    Ingest(u8),
    DropPartition(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let op = (any::<u8>(), prop::option::of(0..2_000u16));
    prop_oneof![
        6 => (any::<u8>(), 0..2_000u16).prop_map(|(key, len)| Step::Insert(key, len)),
        2 => any::<u8>().prop_map(Step::Remove),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Step::RemoveRange(from, to)),
        1 => any::<u8>().prop_map(Step::RemoveFrom),
        3 => prop::collection::vec(op, 1..6).prop_map(Step::Batch),
        2 => (any::<u8>(), prop::option::of(0..100u16)).prop_map(|(key, len)| Step::Swap(key, len)),
        1 => any::<u8>().prop_map(Step::Other),
        1 => Just(Step::Flush),
        1 => Just(Step::Clear),
        1 => any::<u8>().prop_map(Step::Ingest),
        1 => any::<u8>().prop_map(Step::DropPartition),
    ]
}

fn key(n: u8) -> Vec<u8> {
    format!("{}/{n}", n % 5).into_bytes()
}

fn value(len: u16) -> Vec<u8> {
    vec![len as u8; usize::from(len) * if len.is_multiple_of(50) { 60 } else { 1 }]
}

fn take(db: &Database, keyspace: &Keyspace, other: &Keyspace, step: &Step) -> Result<()> {
    match step {
        Step::Insert(n, len) => keyspace.insert(key(*n), value(*len)),
        Step::Remove(n) => keyspace.remove(key(*n)),
        Step::RemoveRange(from, to) => keyspace.remove_range(key(*from)..key(*to)),
        Step::RemoveFrom(from) => keyspace.remove_range(key(*from)..),
        Step::Batch(ops) => {
            let mut batch = db.batch().durability(PersistMode::SyncData);
            for (n, len) in ops {
                batch.insert(other, key(*n), "elsewhere");
                match len {
                    Some(len) => batch.insert(keyspace, key(*n), value(*len)),
                    None => batch.remove(keyspace, key(*n)),
                }
            }
            batch.remove_range(keyspace, key(250)..key(255));
            batch.commit()
        }
        Step::Swap(n, new) => {
            let found = keyspace.get(key(*n))?;
            let new = new.map(value);
            assert!(!keyspace.compare_and_swap(key(*n), Some(b"not that"), None)?);
            assert!(keyspace.compare_and_swap(key(*n), found.as_deref(), new.as_deref())?);
            assert_eq!(keyspace.get(key(*n))?.as_deref(), new.as_deref());
            Ok(())
        }
        Step::Other(n) => other.insert(key(*n), "elsewhere"),
        Step::Flush => db.flush(),
        Step::Clear => keyspace.clear(),
        Step::Ingest(n) => keyspace.ingest([(key(*n), "ingested")]).map(drop),
        Step::DropPartition(n) => keyspace.drop_partition(keyspace.partition_of(key(*n))).map(drop),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_tap_sees_every_change(
        steps in prop::collection::vec(step(), 1..60),
        has_partitions: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path()).memtable_bytes(1 << 20).open().unwrap();
        let partitions =
            if has_partitions { Partitioning::Delimiter(b'/') } else { Partitioning::None };
        let options = KeyspaceOptions { partitions, ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("followed", options).unwrap();
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        keyspace.insert(key(3), "before").unwrap();
        let copy = Arc::new(Copy::default());
        let followed = keyspace.follow(copy.clone()).unwrap();
        copy.load(&followed, &keyspace);
        for step in &steps {
            take(&db, &keyspace, &other, step).unwrap();
            let resets = copy.state().resets;
            let replaces = matches!(step, Step::Clear | Step::Ingest(_) | Step::DropPartition(_));
            prop_assert!(resets == 0 || replaces, "{:?}", step);
            if resets > 0 {
                copy.load(&followed, &keyspace);
            }
            prop_assert_eq!(&copy.state().published, &contents(&keyspace), "{:?}", step);
        }
        drop(followed);
        let seq = copy.state().seq;
        keyspace.insert("after", "that").unwrap();
        prop_assert_eq!(copy.state().seq, seq);
    }
}

#[test]
fn threads_that_write_are_followed_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path()).open().unwrap();
    let keyspace = db.keyspace("followed", KeyspaceOptions::default()).unwrap();
    let copy = Arc::new(Copy::default());
    let followed = keyspace.follow(copy.clone()).unwrap();
    copy.load(&followed, &keyspace);
    thread::scope(|scope| {
        for writer in 0..4u8 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for n in 0..300u16 {
                    keyspace.insert([n as u8 % 16], [writer, n as u8]).unwrap();
                }
            });
        }
    });
    assert_eq!(copy.state().published, contents(&keyspace));
}

#[test]
fn one_swap_of_several_at_a_time_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path()).open().unwrap();
    let keyspace = db.keyspace("counters", KeyspaceOptions::default()).unwrap();
    const EACH: u64 = 300;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    loop {
                        let found = keyspace.get("n").unwrap();
                        let count = found
                            .as_deref()
                            .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
                        let next = (count + 1).to_le_bytes();
                        let expected = found.as_deref();
                        if keyspace.compare_and_swap("n", expected, Some(&next)).unwrap() {
                            break;
                        }
                    }
                }
            });
        }
        // Alongside writes that are grouped, and the clearing of another keyspace.
        scope.spawn(|| {
            let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
            for n in 0..200u64 {
                keyspace.insert("m", n.to_le_bytes()).unwrap();
                if n % 50 == 0 {
                    other.clear().unwrap();
                }
            }
        });
    });
    assert_eq!(*keyspace.get("n").unwrap().unwrap(), (4 * EACH).to_le_bytes());
}

#[test]
fn a_keyspace_that_is_dropped_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path()).open().unwrap();
    let keyspace = db.keyspace("gone", KeyspaceOptions::default()).unwrap();
    let copy = Arc::new(Copy::default());
    let followed = keyspace.follow(copy.clone()).unwrap();
    db.drop_keyspace("gone").unwrap();
    assert_eq!(copy.state().resets, 1);
    assert!(followed.snapshot().unwrap().keyspace(&keyspace).unwrap().iter().next().is_none());
    let refused = keyspace.follow(copy.clone()).unwrap_err();
    assert!(matches!(refused, rhumb::Error::KeyspaceDropped(_)), "{refused}");
    let refused = keyspace.compare_and_swap("k", None, Some(b"v")).unwrap_err();
    assert!(matches!(refused, rhumb::Error::KeyspaceDropped(_)), "{refused}");
}
