//! Asynchronous writes: they block no caller, share syncs, keep the order of the calls, lose
//! nothing when their futures are dropped, and tell of failures. What was awaited survives a power
//! cut.
//!
//! `RHUMB_ASYNC_CUTS` sets the number of power cuts (5000 is a long run).

#[path = "async_reads/common.rs"]
#[expect(dead_code, reason = "the suite of asynchronous reads uses the rest")]
mod common;

use std::{
    future::Future,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use common::{Map, block_on};
use rhumb::{
    Change, CommitFuture, Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions,
    Partitioning, PersistMode, Result, Tap,
    io::sim::{CallKind, Fault, Loss, Matcher, SimFs},
};
use rhumb_testkit::random::Random;

/// A tap that holds the thread which commits, and with it the write lock, while the gate is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    /// True once a thread has been held.
    has_held: bool,
}

impl Gate {
    fn shut() -> Arc<Self> {
        let state = GateState { is_shut: true, has_held: false };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn open(&self) {
        self.state.lock().unwrap().is_shut = false;
        self.changed.notify_all();
    }

    /// Waits until a thread is held.
    fn await_held(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.has_held).unwrap());
    }
}

impl Tap for Gate {
    fn apply(&self, _change: Change<'_>) {
        let mut state = self.state.lock().unwrap();
        state.has_held = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.is_shut).unwrap());
    }
    fn publish(&self, _seq: u64) {}
    fn reset(&self) {}
}

/// A waker that counts.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that runs a function.
struct Running<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Running<F> {
    fn wake(self: Arc<Self>) {
        self.0();
    }
}

fn poll(future: &mut CommitFuture, waker: &Waker) -> Poll<Result<()>> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn synced(path: &Path) -> DatabaseBuilder {
    Database::builder(path).durability(PersistMode::SyncData)
}

fn on_sim(fs: &SimFs) -> DatabaseBuilder {
    synced(Path::new("/db")).file_system(Arc::new(fs.clone()))
}

fn whole(db: &Database) -> Keyspace {
    db.keyspace("k", KeyspaceOptions::default()).unwrap()
}

fn divided(db: &Database) -> Keyspace {
    let partitions = Partitioning::SplitPoints(vec![b"b".to_vec(), b"c".to_vec(), b"d".to_vec()]);
    db.keyspace("p", KeyspaceOptions { partitions, ..KeyspaceOptions::default() }).unwrap()
}

fn contents(keyspace: &Keyspace) -> Map {
    keyspace.iter().map(|item| item.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

#[test]
fn writes_of_one_thread_do_not_block_it_and_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let db = synced(dir.path()).open().unwrap();
    let (keyspace, parted) = (whole(&db), divided(&db));
    let gate = Gate::shut();
    let followed = keyspace.follow(gate.clone()).unwrap();
    let before = db.stats().log_syncs;
    let mut futures = vec![keyspace.insert_async("first", "x")];
    gate.await_held();
    // The write lock is held now. A call that waited for it would never return: not for a write,
    // nor for a partition that must be created.
    for i in 0..1_000_u32 {
        futures.push(match i % 4 {
            0 => keyspace.insert_async(i.to_be_bytes(), i.to_le_bytes()),
            1 => keyspace.remove_async((i - 1).to_be_bytes()),
            2 => parted.insert_async([b'a' + (i % 7) as u8], i.to_le_bytes()),
            _ => {
                let mut batch = db.batch();
                batch.insert(&parted, [b'a' + (i % 5) as u8, 1], i.to_le_bytes());
                batch.insert(&keyspace, i.to_be_bytes(), i.to_le_bytes());
                batch.commit_async()
            }
        });
    }
    let waker = Waker::from(Arc::new(Counting::default()));
    assert!(futures.iter_mut().all(|future| poll(future, &waker).is_pending()));
    assert!(keyspace.get("first").unwrap().is_none_or(|value| value == b"x"));
    gate.open();
    futures.into_iter().for_each(|future| block_on(future).unwrap());
    let syncs = db.stats().log_syncs - before;
    assert!(syncs <= 2, "{syncs} syncs for 1,001 writes");
    assert_eq!(contents(&keyspace).len(), 1 + 250);
    assert_eq!(contents(&parted).len(), 7 + 5);
    drop(followed);
}

#[test]
fn tasks_of_an_executor_with_one_thread_all_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = synced(dir.path()).open().unwrap();
    let keyspace = whole(&db);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..1_000_u32)
            .map(|i| {
                let keyspace = keyspace.clone();
                tokio::spawn(async move {
                    keyspace.insert_async(i.to_be_bytes(), "1").await?;
                    keyspace.insert_async(i.to_be_bytes(), "2").await
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
    assert!(contents(&keyspace).values().all(|value| value == b"2"));
    assert_eq!(contents(&keyspace).len(), 1_000);
}

/// Random writes that are not awaited one by one agree with a model, beside threads that wait for
/// their own writes; also once the database is opened again.
#[test]
fn writes_take_effect_in_the_order_of_the_calls() {
    for (seed, threads) in [(1, 0), (2, 1), (3, 2), (4, 2)] {
        let fs = SimFs::new(seed);
        let mut random = Random::new(seed);
        let (mut map, mut parted_map) = (Map::new(), Map::new());
        let open = || {
            let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
            builder.memtable_bytes(64 << 10).background_threads(threads).open().unwrap()
        };
        let db = open();
        let (keyspace, parted) = (whole(&db), divided(&db));
        std::thread::scope(|scope| {
            let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
            let writes = 0..if threads == 0 { 0_u32 } else { 500 };
            scope.spawn(move || writes.for_each(|i| other.insert(i.to_be_bytes(), "").unwrap()));
            for round in 0..60_u8 {
                let mut futures = Vec::new();
                for _ in 0..random.below(80) {
                    let mut batch = db.batch();
                    for _ in 0..=random.below(3) {
                        let key = vec![b'a' + random.below(5) as u8, random.below(20) as u8];
                        let value = random.next().to_be_bytes().to_vec();
                        let (map, keyspace) = match random.one_in(2) {
                            true => (&mut map, &keyspace),
                            false => (&mut parted_map, &parted),
                        };
                        match random.below(8) {
                            0 => {
                                map.remove(&key);
                                batch.remove(keyspace, &key);
                            }
                            1 => {
                                map.remove(&key);
                                futures
                                    .push(std::mem::replace(&mut batch, db.batch()).commit_async());
                                futures.push(keyspace.remove_async(&key));
                            }
                            2 => {
                                map.insert(key.clone(), value.clone());
                                futures
                                    .push(std::mem::replace(&mut batch, db.batch()).commit_async());
                                futures.push(keyspace.insert_async(&key, &value));
                            }
                            _ => {
                                map.insert(key.clone(), value.clone());
                                batch.insert(keyspace, &key, &value);
                            }
                        }
                    }
                    futures.push(batch.commit_async());
                }
                map.insert(b"last".to_vec(), vec![round]);
                futures.push(keyspace.insert_async("last", [round]));
                // The last one is done after all others. Those are awaited in any order, or
                // dropped.
                let mut is_awaited = true;
                while let Some(future) = futures.pop() {
                    if is_awaited {
                        block_on(future).unwrap();
                    }
                    is_awaited = random.one_in(3);
                }
                assert_eq!(contents(&keyspace), map, "seed {seed}, round {round}");
                if round % 16 == 15 {
                    let name = [b'a' + random.below(4) as u8];
                    let name = parted.partition_of(name);
                    parted_map.retain(|key, _| parted.partition_of(key) != name);
                    parted.drop_partition(&name).unwrap();
                }
            }
        });
        assert_eq!(contents(&parted), parted_map, "seed {seed}");
        drop((keyspace, parted));
        db.close().unwrap();
        let db = open();
        assert_eq!(contents(&whole(&db)), map, "seed {seed}");
        assert_eq!(contents(&divided(&db)), parted_map, "seed {seed}");
        let other = contents(&db.keyspace("other", KeyspaceOptions::default()).unwrap());
        assert_eq!(other.len(), if threads == 0 { 0 } else { 500 });
    }
}

#[test]
fn futures_that_are_dropped_lose_nothing_and_closing_ends_the_others() {
    for threads in [0, 2] {
        let dir = tempfile::tempdir().unwrap();
        let db = synced(dir.path()).background_threads(threads).open().unwrap();
        let keyspace = whole(&db);
        let counting = Arc::new(Counting::default());
        let waker = Waker::from(Arc::clone(&counting));
        let (mut kept, mut pending) = (Vec::new(), 0);
        for i in 0..600_u32 {
            let mut future = keyspace.insert_async(i.to_be_bytes(), "v");
            match i % 3 {
                0 => drop(future),
                1 => drop(poll(&mut future, &waker)),
                _ => {
                    pending += usize::from(poll(&mut future, &waker).is_pending());
                    kept.push(future);
                }
            }
        }
        drop(keyspace);
        db.close().unwrap();
        assert!(counting.0.load(Ordering::SeqCst) >= pending);
        for future in &mut kept {
            assert!(matches!(poll(future, &waker), Poll::Ready(Ok(()))));
            assert!(matches!(poll(future, &waker), Poll::Ready(Ok(()))), "polled again");
        }
        let db = synced(dir.path()).open().unwrap();
        assert_eq!(contents(&whole(&db)).len(), 600);
    }
}

/// A waker may write, and may close the database: it is called without a lock, also where another
/// writer has committed the batch.
#[test]
fn a_waker_may_do_anything() {
    let dir = tempfile::tempdir().unwrap();
    let db = synced(dir.path()).open().unwrap();
    let keyspace = whole(&db);
    let gate = Gate::shut();
    let followed = keyspace.follow(gate.clone()).unwrap();
    let mut first = keyspace.insert_async("first", "");
    gate.await_held();
    let (sender, ended) = std::sync::mpsc::channel();
    let writer = keyspace.clone();
    let waker = Waker::from(Arc::new(Running(move || {
        writer.insert("by the waker", "").unwrap();
        sender.send(()).unwrap();
    })));
    let mut second = keyspace.insert_async("second", "");
    assert!(poll(&mut first, &waker).is_pending() && poll(&mut second, &waker).is_pending());
    std::thread::scope(|scope| {
        scope.spawn(|| keyspace.insert("by a thread", "").unwrap());
        gate.open();
    });
    (0..2).for_each(|_| ended.recv().unwrap());
    assert!(keyspace.contains_key("by the waker").unwrap());
    drop((followed, first, second, waker));

    let last = Mutex::new(Some((db, keyspace.clone())));
    let (sender, ended) = std::sync::mpsc::channel();
    let waker = Waker::from(Arc::new(Running(move || {
        drop(last.lock().unwrap().take());
        sender.send(()).unwrap();
    })));
    let mut future = keyspace.insert_async("last", "");
    drop(keyspace);
    if poll(&mut future, &waker).is_pending() {
        ended.recv().unwrap();
        assert!(matches!(poll(&mut future, &waker), Poll::Ready(Ok(()))));
    }
    drop((future, waker));
}

#[test]
fn refusals_come_through_the_future() {
    let dir = tempfile::tempdir().unwrap();
    let db = synced(dir.path()).open().unwrap();
    let (keyspace, parted) = (whole(&db), divided(&db));
    let long = vec![0; (64 << 10) + 1];
    let refused = block_on(keyspace.insert_async(&long, ""));
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    let refused = block_on(keyspace.remove_async(&long));
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");

    // The partition is to be created by the commit, and the keyspace is gone by then.
    let gate = Gate::shut();
    let followed = keyspace.follow(gate.clone()).unwrap();
    let held = keyspace.insert_async("a", "");
    gate.await_held();
    gate.open();
    block_on(held).unwrap();
    drop(followed);
    assert!(db.drop_keyspace("p").unwrap());
    for future in [parted.insert_async("a", ""), parted.remove_async("a")] {
        let refused = block_on(future);
        assert!(matches!(refused, Err(Error::KeyspaceDropped(_))), "{refused:?}");
    }
    assert!(block_on(db.batch().commit_async()).is_ok());
    drop((keyspace, parted));
    db.close().unwrap();

    let db = Database::builder(dir.path()).open_read_only().unwrap();
    let refused = block_on(whole(&db).insert_async("a", ""));
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
}

#[test]
fn failures_come_through_the_future() {
    for threads in [0, 2] {
        // A full disk: nothing is written, and there may be room again.
        let fs = SimFs::new(5);
        let db = on_sim(&fs).background_threads(threads).open().unwrap();
        let keyspace = whole(&db);
        fs.set_free_bytes(Some(0));
        let futures: Vec<_> = (0..20_u8).map(|i| keyspace.insert_async([i], "")).collect();
        for future in futures {
            let failed = block_on(future);
            assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
        }
        fs.clear_faults();
        block_on(keyspace.insert_async("later", "")).unwrap();
        assert_eq!(contents(&keyspace).len(), 1);

        // A sync that fails: nothing is acknowledged any more.
        fs.inject(Matcher::any().kinds(&[CallKind::SyncData]), Fault::Eio, 1);
        let futures: Vec<_> = (0..20_u8).map(|i| keyspace.insert_async([i], "")).collect();
        for (i, future) in futures.into_iter().enumerate() {
            let failed = block_on(future);
            let is_right = matches!(failed, Err(Error::Io(_) | Error::WritesStopped(_)));
            assert!(is_right, "{i}: {failed:?}");
        }
        let stopped = block_on(keyspace.insert_async("no", ""));
        assert!(matches!(stopped, Err(Error::WritesStopped(_))), "{stopped:?}");
        assert_eq!(contents(&keyspace).len(), 1);
    }
    // A panic amid the commit stops all writes, and no future waits for ever.
    let fs = SimFs::new(6);
    let db = on_sim(&fs).background_threads(2).open().unwrap();
    let keyspace = whole(&db);
    fs.inject(Matcher::any().kinds(&[CallKind::Write]).name_suffix(".log"), Fault::Panic, 1);
    let futures: Vec<_> = (0..20_u8).map(|i| keyspace.insert_async([i], "")).collect();
    for future in futures {
        let stopped = block_on(future);
        assert!(matches!(stopped, Err(Error::WritesStopped(_))), "{stopped:?}");
    }
}

/// An empty batch that asks for a sync makes what was queued before it durable.
#[test]
fn an_empty_batch_waits_for_a_sync() {
    for threads in [0, 2] {
        let fs = SimFs::new(7);
        let builder = on_sim(&fs).durability(PersistMode::Buffer).background_threads(threads);
        let db = builder.open().unwrap();
        let keyspace = whole(&db);
        drop(keyspace.insert_async("a", "1"));
        block_on(db.batch().durability(PersistMode::SyncData).commit_async()).unwrap();
        let cut = fs.power_cut(Loss::Adversarial, 1);
        drop((keyspace, db));
        let db = on_sim(&cut).open().unwrap();
        assert_eq!(whole(&db).get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

/// Power cuts at any moment: what is there afterwards is a beginning of what was queued, in the
/// order of the calls, with nothing half and with all that was awaited.
#[test]
fn what_was_awaited_survives_a_power_cut() {
    let most = std::env::var("RHUMB_ASYNC_CUTS").ok().and_then(|text| text.parse().ok());
    let (most, mut cuts, mut seed, mut awaited_in_all) = (most.unwrap_or(150), 0, 0, 0);
    while cuts < most {
        seed += 1;
        let (fs, mut random) = (SimFs::new(seed), Random::new(seed));
        let open = |fs: &SimFs, threads| {
            on_sim(fs).memtable_bytes(64 << 10).background_threads(threads).open()
        };
        let db = open(&fs, random.below(3) as usize).unwrap();
        let (keyspace, parted) = (whole(&db), divided(&db));
        fs.cut_power_at(fs.counts().changes + random.below(120));
        let (mut awaited, mut futures) = (0, std::collections::VecDeque::new());
        for number in 1..=60_u64 {
            let mut batch = db.batch();
            let value = vec![number as u8; random.below(3_000) as usize];
            batch.insert(&keyspace, number.to_be_bytes(), &value);
            batch.insert(
                &parted,
                [&[b'a' + (number % 5) as u8][..], &number.to_be_bytes()].concat(),
                &value,
            );
            futures.push_back((number, batch.commit_async()));
            while futures.len() as u64 > random.below(12) {
                let Some((number, future)) = futures.pop_front() else { break };
                match random.one_in(8) {
                    true => drop(future),
                    false if block_on(future).is_ok() => awaited = number,
                    false => {}
                }
            }
        }
        cuts += u64::from(fs.is_dead());
        awaited_in_all += awaited;
        let loss = if random.one_in(2) { Loss::Adversarial } else { Loss::Random };
        let cut = fs.power_cut(loss, random.next());
        drop((futures, keyspace, parted, db));
        let db = open(&cut, 0).unwrap();
        let (found, parted) = (contents(&whole(&db)), contents(&divided(&db)));
        let last = found.len() as u64;
        assert!(last >= awaited, "seed {seed}: {awaited} were awaited, {last} are there");
        let numbers: Vec<u64> = (1..=last).collect();
        let keys = found.keys().map(|key| u64::from_be_bytes(key[..].try_into().unwrap()));
        assert_eq!(keys.collect::<Vec<_>>(), numbers, "seed {seed}: a gap");
        let mut others: Vec<u64> =
            parted.keys().map(|key| u64::from_be_bytes(key[1..].try_into().unwrap())).collect();
        others.sort_unstable();
        assert_eq!(others, numbers, "seed {seed}: half a batch");
    }
    assert!(
        awaited_in_all > most * 5,
        "{awaited_in_all} writes were awaited: too few to show much"
    );
}
