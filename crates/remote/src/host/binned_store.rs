//! A volatile keyspace in the assembly of trained arrays: the arrays, the values that are too large
//! for the region, and the sessions of clients that know the arrays.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use super::{
    Authority, Change, Pair, Scan, Space,
    authority::bounded,
    care::Bell,
    group::{self, Changed},
    part::Part,
    share::{ModelStats, Region, ShareStats},
};
use crate::{
    binned::{
        Address, Host, Operation, Options, Outcome, Reply, Request, Sizes, Value, Verb,
        write_header,
    },
    clock,
    error::{Error, Result},
    layout::control,
    region::HostRegion,
};

/// The longest value that the region publishes: a longer one costs its message more than the call.
const PUBLISHED_BYTES: usize = 16 << 10;

/// The longest value that comes with the answer to a pipeline operation, which also has a
/// descriptor. A longer one takes another call, which costs it little.
pub(super) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Pairs that a scan looks at beside those that it returns: some milliseconds' work at most.
const SCAN_PAIRS: usize = 256;

/// Trainings between two looks at what waits for sessions: a tenth of a second's, at the 1.5 ms
/// each of the paper's section 5.6.1.
pub(super) const TRAININGS_MAX: usize = 64;

/// Sessions of one connection: as many as a process has threads that read at once. The oldest ends
/// when another one begins, so that no client makes the host keep more.
const SESSIONS_MAX: usize = 256;

/// A keyspace that is in no store.
pub(super) struct BinnedStore {
    region: Region,
    state: Mutex<BinnedState>,
    bell: Arc<Bell>,
    /// Held by this store while it trains, if those that measure have set it.
    alone: OnceLock<Arc<RwLock<()>>>,
}

/// What one thread at a time changes.
struct BinnedState {
    host: Host<Arc<HostRegion>>,
    control: Arc<HostRegion>,
    /// The values that are too large for the region.
    large: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What model retraining took.
    training: Training,
}

/// What model retraining took.
#[derive(Debug, Default)]
struct Training {
    count: u64,
    keys: u64,
    /// Without waits for the state.
    time: Duration,
}

/// A host of no keys in a region, with its header.
///
/// # Errors
///
/// [`Error::Full`].
pub(super) fn arrays_in(region: &Region, options: Options) -> Result<Host<Arc<HostRegion>>> {
    Space::grow(&*region.control, 1)?;
    write_header(region.control.words(), Sizes::new(options.has_checksums));
    let options = Options { value_bytes_max: PUBLISHED_BYTES, ..options };
    Host::build(Arc::clone(&region.leaves), options, [])
}

/// Adds what a host holds.
pub(super) fn add_to(host: &Host<Arc<HostRegion>>, stats: &mut ShareStats) {
    let (arrays, tops) = host.array_counts();
    (stats.entries, stats.leaves, stats.runs) = (host.len(), arrays as u64, tops as u64);
    stats.waiting_bytes = host.waiting().1;
    let live_bytes = host.live_bytes().saturating_sub(stats.waiting_bytes);
    stats.leaf_bytes = live_bytes.checked_div(stats.leaves).unwrap_or(0);
}

/// Answers what a client asks of its session and of the model. `joined` has the sessions that its
/// connection has begun: those of others are none of this client's.
///
/// # Errors
///
/// As [`Host::handle`].
pub(super) fn handle(
    host: &mut Host<Arc<HostRegion>>,
    request: &Request,
    joined: &mut Vec<u64>,
) -> Result<Reply> {
    let reply = match request {
        Request::Renew { session, .. } | Request::Leave { session }
            if !joined.contains(session) =>
        {
            Reply::Unknown
        }
        other => host.handle(clock::now_ms(), other)?,
    };
    if let Reply::Joined { session, .. } = &reply {
        if joined.len() >= SESSIONS_MAX {
            host.leave(joined.remove(0));
        }
        joined.push(*session);
    }
    Ok(reply)
}

impl BinnedStore {
    /// An empty keyspace.
    pub(super) fn new(region: Region, options: Options, bell: Arc<Bell>) -> Result<Self> {
        let host = arrays_in(&region, options)?;
        let control = Arc::clone(&region.control);
        let state =
            BinnedState { host, control, large: BTreeMap::new(), training: Training::default() };
        Ok(Self { region, state: Mutex::new(state), bell, alone: OnceLock::new() })
    }

    fn lock(&self) -> Result<MutexGuard<'_, BinnedState>> {
        self.state.lock().map_err(|_| Error::invalid("a write of this host's own did not end"))
    }

    /// What it holds.
    pub(super) fn stats(&self) -> ShareStats {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats = self.region.stats();
        add_to(&state.host, &mut stats);
        stats.models = state.model_stats();
        stats
    }

    /// Answers a client that keeps descriptors. `joined` has the sessions that its connection has
    /// begun.
    ///
    /// # Errors
    ///
    /// For a write, what keeps it from being done.
    pub(super) fn consult(&self, request: &Request, joined: &mut Vec<u64>) -> Result<Vec<u8>> {
        let mut state = self.lock()?;
        let reply = match request {
            Request::Operate(operation) => state.operate(operation),
            other => handle(&mut state.host, other, joined),
        };
        self.ring_for(&state);
        drop(state);
        let mut answer = Vec::new();
        reply?.encode(&mut answer);
        Ok(answer)
    }

    /// Ends the sessions of a connection that has ended.
    pub(super) fn end(&self, joined: &[u64]) {
        // A host that has failed frees nothing any more.
        let Ok(mut state) = self.lock() else { return };
        joined.iter().for_each(|session| state.host.leave(*session));
        drop(state);
        self.bell.ring();
    }

    fn ring_for(&self, state: &BinnedState) {
        if state.host.due_count() > 0 {
            self.bell.ring();
        }
    }

    /// Trains what is due, while writers go on, and frees what no session may know any more.
    pub(super) fn care(&self) {
        for _ in 0..TRAININGS_MAX {
            let alone = self.alone.get();
            let _alone = alone.map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner));
            let Ok(mut state) = self.lock() else { return };
            let begun = Instant::now();
            let Some(plan) = state.host.begin_training() else { break };
            let seq = state.seq();
            state.publish(seq);
            drop(state);
            let keys = plan.len() as u64;
            let trained = plan.train();
            let mut time = begun.elapsed();
            let Ok(mut state) = self.lock() else { return };
            let begun = Instant::now();
            let finished = state.host.finish_training(trained);
            let seq = state.seq();
            state.publish(seq);
            time += begun.elapsed();
            let training = &mut state.training;
            (training.count, training.keys) = (training.count + 1, training.keys + keys);
            training.time += time;
            if finished.is_err() {
                // Without memory for that, searches in gaps stay calls.
                break;
            }
        }
        let Ok(mut state) = self.lock() else { return };
        state.host.poll(clock::now_ms());
        let seq = state.seq();
        state.publish(seq);
        self.ring_for(&state);
    }

    /// Holds a lock while it trains from here on: what a store costs its clients that has no
    /// barrier, where they hold the lock for reading while they read. For those that measure; the
    /// first lock stays.
    pub(super) fn train_alone(&self, lock: Arc<RwLock<()>>) {
        self.alone.get_or_init(|| lock);
    }

    /// Looks, some time soon, for what waited for sessions whose lease has ended.
    pub(super) fn beat(&self) {
        self.bell.ring();
    }
}

impl Authority for BinnedStore {
    fn get(&self, _keyspace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.lock()?.get(key))
    }

    fn multi_get(
        &self,
        _keyspace: &str,
        keys: &[&[u8]],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let state = self.lock()?;
        bounded(keys.iter().map(|key| state.get(key)), bytes_max)
    }

    fn scan(&self, _keyspace: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        let state = self.lock()?;
        Ok(if scan.reverse { state.scan_down(scan) } else { state.scan_up(scan) })
    }

    fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut state = self.lock()?;
        let applied = group::apply(&mut *state, changes);
        self.ring_for(&state);
        applied
    }

    fn compare_and_swap(&self, change: &Change<'_>, expected: Option<&[u8]>) -> Result<bool> {
        let mut state = self.lock()?;
        let swaps = group::swap(&mut *state, change, expected);
        self.ring_for(&state);
        swaps
    }
}

impl BinnedState {
    fn model_stats(&self) -> ModelStats {
        ModelStats {
            waiting: self.host.due_count() as u64,
            trained: self.training.count,
            training_ns: self.training.time.as_nanos() as u64,
            trained_keys: self.training.keys,
            ..ModelStats::default()
        }
    }

    fn value_of(&self, key: &[u8], value: Value) -> Vec<u8> {
        match value {
            Value::Here(value) => value,
            Value::Ask(_) => self.large.get(key).cloned().unwrap_or_default(),
        }
    }

    /// Does a pipeline operation, and lets readers see what it changed.
    fn operate(&mut self, operation: &Operation) -> Result<Reply> {
        let (seq, key) = (self.seq(), &operation.key[..]);
        let mut reply = self.host.operate(operation);
        match &mut reply {
            Ok(Reply::Done { outcome: Outcome::Written { was_there }, .. }) => {
                let changes = match operation.verb {
                    Verb::Insert => !*was_there,
                    Verb::Update | Verb::Remove => *was_there,
                    Verb::Put | Verb::Search | Verb::Range => true,
                };
                let value = (operation.verb != Verb::Remove).then_some(&operation.value[..]);
                if changes {
                    self.keep(key, value);
                }
                self.publish(seq + u64::from(changes));
            }
            Ok(Reply::Done { outcome: Outcome::Found(value), .. }) => {
                let large = self.large.get(key).filter(|large| large.len() <= ANSWER_BYTES_MAX);
                if let (Value::Ask(_), Some(large)) = (&value, large) {
                    *value = Value::Here(large.clone());
                }
            }
            Ok(_) => {}
            Err(_) => self.publish(seq),
        }
        reply
    }

    /// Keeps the value of a key if it is too large for the region, and no other.
    fn keep(&mut self, key: &[u8], value: Option<&[u8]>) {
        match value.filter(|value| value.len() > PUBLISHED_BYTES) {
            Some(value) => self.large.insert(key.to_vec(), value.to_vec()),
            None => self.large.remove(key),
        };
    }

    fn scan_up(&self, scan: &Scan<'_>) -> (Vec<Pair>, bool) {
        let mut part = Part::new(scan);
        let from = match scan.from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            // The first key that is above it.
            Bound::Excluded(key) => [key, &[0]].concat(),
        };
        let address = Address { array: Address::UNTAUGHT, ..Address::default() };
        let mut operation = Operation::new(Verb::Range, address, &from, &[]);
        operation.limit = SCAN_PAIRS as u32;
        loop {
            let Outcome::Pairs { pairs, next } = self.host.range(&operation) else {
                return (part.pairs, false);
            };
            for (key, value) in pairs {
                let value = self.value_of(&key, value);
                if let ControlFlow::Break(has_more) = part.push(&key, &value) {
                    return (part.pairs, has_more);
                }
            }
            let Some(next) = next else { return (part.pairs, false) };
            operation.key = next;
        }
    }

    fn scan_down(&self, scan: &Scan<'_>) -> (Vec<Pair>, bool) {
        let mut part = Part::new(scan);
        let mut to = scan.to.map(<[u8]>::to_vec);
        loop {
            let found = self.host.pairs_down(to.as_ref().map(Vec::as_slice), SCAN_PAIRS);
            let Some((last, _)) = found.last() else { return (part.pairs, false) };
            to = Bound::Excluded(last.clone());
            for (key, value) in found {
                let value = self.value_of(&key, value);
                if let ControlFlow::Break(has_more) = part.push(&key, &value) {
                    return (part.pairs, has_more);
                }
            }
        }
    }
}

impl Changed for BinnedState {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.host.get(key).map(|value| self.value_of(key, value))
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        match value {
            Some(value) => self.host.set(key, value, Address::default())?,
            None => self.host.remove(key, Address::default())?,
        };
        self.keep(key, value);
        Ok(())
    }

    fn begin_undo(&mut self) {
        self.host.begin_undo();
    }

    fn seq(&self) -> u64 {
        self.host.applied()
    }

    fn publish(&mut self, seq: u64) {
        self.host.publish(seq);
        control::set_applied(self.control.words(), seq);
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests {
    use super::*;

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    fn store(bytes: u64) -> BinnedStore {
        let region = || Arc::new(HostRegion::new(bytes).unwrap());
        let region = Region { control: region(), leaves: region() };
        // No lease ends while a test is kept waiting.
        let options = Options { lease_ms: u64::MAX, ..Options::default() };
        BinnedStore::new(region, options, Arc::default()).unwrap()
    }

    fn change<'a>(key: &'a [u8], value: Option<&'a [u8]>) -> Change<'a> {
        Change { keyspace: "", key, value }
    }

    fn seen(store: &BinnedStore, reverse: bool) -> Vec<Pair> {
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        let scan = Scan { from, to, reverse, limit: usize::MAX, bytes_max: usize::MAX };
        let (pairs, more) = store.scan("", &scan).unwrap();
        assert!(!more);
        pairs
    }

    fn check(store: &BinnedStore, map: &Map) {
        let pairs = || map.iter().map(|(key, value)| (key.clone(), value.clone()));
        assert!(seen(store, false).into_iter().eq(pairs()));
        assert!(seen(store, true).into_iter().eq(pairs().rev()));
        let keys: Vec<&[u8]> = map.keys().map(Vec::as_slice).collect();
        let values = store.multi_get("", &keys, usize::MAX).unwrap();
        assert!(values.iter().map(Option::as_ref).eq(map.values().map(Some)));
    }

    /// In a region without room, also what was removed or replaced by the group comes back.
    #[test]
    fn a_group_that_fails_changes_nothing() {
        let store = store(2 << 20);
        let mut map = Map::new();
        let key = |n: u64| match n % 3 {
            0 => n.to_be_bytes().to_vec(),
            1 => (n << 44).to_be_bytes().to_vec(),
            _ => format!("a key of more than eight bytes {n:04}").into_bytes(),
        };
        for n in 0..400 {
            let value = vec![n as u8; (n * 37 % 700) as usize];
            store.commit(&[change(&key(n), Some(&value))]).unwrap();
            map.insert(key(n), value);
            store.care();
        }
        let large = vec![1; PUBLISHED_BYTES + 1];
        store.commit(&[change(b"large", Some(&large))]).unwrap();
        map.insert(b"large".to_vec(), large.clone());
        // All that is left is filled, by values of each size.
        for size in [9_000, 3_000, 1_000, 300, 60, 9] {
            for n in 0_u64.. {
                let (key, value) = (format!("{size} {n}").into_bytes(), vec![7; size]);
                if store.commit(&[change(&key, Some(&value))]).is_err() {
                    break;
                }
                map.insert(key, value);
            }
        }
        check(&store, &map);
        let seq = store.lock().unwrap().seq();
        let filler = vec![8; 12_000];
        for n in 0..400 {
            let (one, other) = (key(n), key((n * 7 + 1) % 400));
            let again = vec![2; map[&other].len()];
            let group = [
                change(&one, None),
                change(&other, Some(&again)),
                change(b"large", (n % 2 == 0).then_some(&b"small"[..])),
                change(&one, (n % 4 == 0).then_some(&b"back"[..])),
                change(b"too much", Some(&filler)),
            ];
            assert!(matches!(store.commit(&group), Err(Error::Full { .. })));
            let state = store.lock().unwrap();
            assert_eq!(state.get(&one).as_ref(), Some(&map[&one]), "{n}");
            assert_eq!(state.get(&other).as_ref(), Some(&map[&other]), "{n}");
        }
        check(&store, &map);
        assert_eq!(store.lock().unwrap().seq(), seq);
        assert_eq!(store.lock().unwrap().large, Map::from([(b"large".to_vec(), large)]));
        // Only values that the region does not hold are kept beside it.
        store.commit(&[change(b"large", Some(b"small"))]).unwrap();
        assert_eq!(store.lock().unwrap().large, Map::new());
    }

    fn ask(store: &BinnedStore, request: &Request, joined: &mut Vec<u64>) -> Result<Reply> {
        Reply::decode(&store.consult(request, joined)?)
    }

    fn join(store: &BinnedStore, joined: &mut Vec<u64>) -> u64 {
        match ask(store, &Request::Join, joined).unwrap() {
            Reply::Joined { session, .. } => session,
            other => panic!("{other:?}"),
        }
    }

    /// What a connection began ends with it, and no other connection can renew or end it.
    #[test]
    fn sessions_are_those_of_their_connection() {
        let store = store(4 << 20);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let session = join(&store, &mut one);
        for request in [Request::Renew { session, model: 0 }, Request::Leave { session }] {
            assert_eq!(ask(&store, &request, &mut other).unwrap(), Reply::Unknown);
        }
        let renewed = ask(&store, &Request::Renew { session, model: 0 }, &mut one).unwrap();
        assert!(matches!(renewed, Reply::Renewed { .. }));
        for _ in 0..SESSIONS_MAX * 2 {
            join(&store, &mut other);
        }
        assert_eq!(store.lock().unwrap().host.session_count(), 1 + SESSIONS_MAX);
        store.end(&other);
        assert_eq!(store.lock().unwrap().host.session_count(), 1);
        store.end(&one);
        assert_eq!(store.lock().unwrap().host.session_count(), 0);
    }

    /// A session that acknowledges nothing keeps what was replaced, and no write or read waits.
    #[test]
    fn what_was_replaced_waits_for_a_session_that_lives() {
        let store = store(8 << 20);
        let mut joined = Vec::new();
        join(&store, &mut joined);
        for n in 0..6_000_u64 {
            // Each key comes after all others, where arrays are trained again and again.
            let key = n.to_be_bytes();
            store.commit(&[change(&key, Some(b"value"))]).unwrap();
            if n % 100 == 0 {
                store.care();
            }
        }
        assert!(store.stats().waiting_bytes > 0);
        store.end(&joined);
        store.care();
        assert_eq!(store.stats().waiting_bytes, 0);
        assert_eq!(store.stats().entries, 6_000);
    }
}
