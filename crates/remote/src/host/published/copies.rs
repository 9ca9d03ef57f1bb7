//! Copies of a sorted map in every assembly, and their readers.

use std::{
    ops::{Bound, RangeBounds},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Map, Publisher, Region, check_reader, region, replica};
use crate::{
    binned::{self, Caller, Mode},
    client::{Outcome, Reader},
    error::Result,
    fabric::MappedFabric,
    host::{Authority, Change, Pair, Preset, Scan, consult::Consultant, question::Question},
    layout::control,
    two_stage::{self, Answer},
};

pub(super) const PRESETS: [Preset; 3] = [Preset::Rhumb, Preset::XStore, Preset::FineStore];

/// A time at which leases last that were asked for then.
const NOW_MS: u64 = 1;

/// A map, and a copy of it in a region.
pub(super) struct Copy {
    pub(super) preset: Preset,
    pub(super) region: Region,
    pub(super) publisher: Publisher,
    pub(super) store: Store,
}

/// What the store's own readers see.
#[derive(Default)]
pub(super) struct Store(Mutex<Map>);

impl Authority for Store {
    fn get(&self, _keyspace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().get(key).cloned())
    }

    fn multi_get(&self, _: &str, keys: &[&[u8]], _: usize) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get("", key)).collect()
    }

    fn scan(&self, _keyspace: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        assert!(!scan.reverse);
        let map = self.0.lock().unwrap();
        let mut inside = map.iter().filter(|(key, _)| (scan.from, scan.to).contains(&key[..]));
        let pairs =
            inside.by_ref().take(scan.limit).map(|(key, value)| (key.clone(), value.clone()));
        Ok((pairs.collect(), inside.next().is_some()))
    }

    fn commit(&self, _changes: &[Change<'_>]) -> Result<()> {
        unreachable!("clients of these tests write nothing")
    }

    fn compare_and_swap(&self, _: &Change<'_>, _: Option<&[u8]>) -> Result<bool> {
        unreachable!("clients of these tests write nothing")
    }
}

/// The way of a reader to the host.
struct Way<'c>(&'c Copy, Vec<u64>);

impl Caller for Way<'_> {
    fn call(&mut self, request: &binned::Request) -> Result<binned::Reply> {
        let question = Question::Arrays(request.clone());
        let consultant = Consultant::new(&self.0.publisher, &self.0.store, "");
        binned::Reply::decode(&consultant.answer(&question, &mut self.1)?)
    }
}

/// What clients of an assembly keep.
enum Reads<'c> {
    Runs(Reader<'c>),
    TwoStage(Option<Box<two_stage::Client>>),
    Binned(Box<binned::Client<Way<'c>>>),
}

/// A client that maps the region.
pub(super) struct Client<'c> {
    copy: &'c Copy,
    reads: Reads<'c>,
}

/// What a client found: a value, or nothing; `None` if it has to ask for it.
type Seen = Option<Option<Vec<u8>>>;

impl Copy {
    pub(super) fn new(preset: Preset, capacity_bytes: u64) -> Self {
        let region = region(capacity_bytes);
        let publisher = Publisher::new(region.clone(), replica(&region, preset), Arc::default());
        Self { preset, region, publisher, store: Store::default() }
    }

    pub(super) fn set_map(&self, map: &Map) {
        self.store.0.lock().unwrap().clone_from(map);
    }

    fn fabric(&self) -> MappedFabric<'_> {
        MappedFabric::new(self.region.control.words(), self.region.leaves.words())
    }

    pub(super) fn client(&self) -> Client<'_> {
        let reads = match self.preset {
            Preset::Rhumb => {
                let (control, leaves) = (self.region.control.words(), self.region.leaves.words());
                Reads::Runs(Reader::new(control, leaves).unwrap())
            }
            Preset::XStore => Reads::TwoStage(None),
            Preset::FineStore => {
                let way = Way(self, Vec::new());
                Reads::Binned(Box::new(binned::Client::new(
                    way,
                    Mode::Pipeline,
                    binned::CacheBudget::Full,
                )))
            }
        };
        Client { copy: self, reads }
    }

    /// Checks what a client says of these keys, and of all.
    pub(super) fn check(&self, map: &Map, keys: &[Vec<u8>]) {
        if self.preset == Preset::Rhumb {
            return check_reader(&self.region, map, keys);
        }
        let mut client = self.client();
        for key in keys.iter().chain(map.keys()) {
            match client.get(key) {
                Some(found) => assert_eq!(found.as_ref(), map.get(key), "{key:?}"),
                None => assert!(self.preset == Preset::XStore, "{key:?} is asked for"),
            }
        }
        assert_eq!(client.all(), *map);
        let stats = self.publisher.stats();
        assert_eq!(stats.entries, map.len() as u64);
    }
}

impl Client<'_> {
    fn is_fresh(&self) -> bool {
        control::heartbeat(self.copy.region.control.words()) != 0
    }

    /// A get; `None` if the store is to be asked.
    pub(super) fn get(&mut self, key: &[u8]) -> Seen {
        if !self.is_fresh() {
            return None;
        }
        let (fabric, mut value) = (self.copy.fabric(), Vec::new());
        match &mut self.reads {
            Reads::Runs(reader) => match reader.get(key, &mut value) {
                Outcome::Found => Some(Some(value)),
                Outcome::Absent => Some(None),
                Outcome::Ask(_) | Outcome::Busy => None,
            },
            Reads::TwoStage(client) => {
                if client.is_none() {
                    let options = two_stage::ClientOptions {
                        budget: two_stage::CacheBudget::Full,
                        speculates: true,
                    };
                    let mut opened = two_stage::Client::open(&fabric, options).unwrap();
                    opened.fill(&fabric).unwrap();
                    *client = Some(Box::new(opened));
                }
                let client = client.as_mut()?;
                match client.get(&fabric, key, &mut value).unwrap() {
                    two_stage::Outcome::Found => Some(Some(value)),
                    two_stage::Outcome::Absent => Some(None),
                    two_stage::Outcome::Ask => None,
                    two_stage::Outcome::Call => {
                        let question = Question::LookUp(client.lookup(key));
                        let consultant =
                            Consultant::new(&self.copy.publisher, &self.copy.store, "");
                        let answer = consultant.answer(&question, &mut Vec::new()).unwrap();
                        let answer = Answer::decode(&answer).unwrap();
                        answer.fresh.into_iter().for_each(|fresh| client.learn(fresh));
                        Some(answer.value)
                    }
                }
            }
            Reads::Binned(client) => {
                if client.wants_renewal(NOW_MS) && client.renew(NOW_MS).is_err() {
                    client.forget();
                }
                match client.get(&fabric, NOW_MS, key).unwrap() {
                    binned::Answer::Found(value) => Some(Some(value)),
                    binned::Answer::Absent => Some(None),
                    binned::Answer::Ask(_) => None,
                }
            }
        }
    }

    /// How many gets the client did by itself.
    pub(super) fn one_sided(&self) -> u64 {
        match &self.reads {
            Reads::Runs(_) => 0,
            Reads::TwoStage(client) => client.as_ref().map_or(0, |client| {
                let counts = client.counts();
                counts.gets - counts.fallbacks - counts.asks
            }),
            Reads::Binned(client) => client.counts().one_sided,
        }
    }

    /// All pairs, part by part; what the client cannot read is asked of the store.
    pub(super) fn all(&mut self) -> Map {
        let (mut map, mut from) = (Map::new(), Vec::new());
        loop {
            let (pairs, next) = self.part(&from);
            for (key, value) in pairs {
                let value = value.or_else(|| self.copy.store.get("", &key).unwrap());
                map.extend(value.map(|value| (key, value)));
            }
            match next {
                Some(next) => from = next,
                None => return map,
            }
        }
    }

    /// A part of a scan, and where the next one begins.
    #[allow(clippy::type_complexity, reason = "pairs whose values may have to be asked for")]
    fn part(&mut self, from: &[u8]) -> (Vec<(Vec<u8>, Option<Vec<u8>>)>, Option<Vec<u8>>) {
        const PAIRS: usize = 50;
        let fabric = self.copy.fabric();
        let after = |key: &Vec<u8>| [&key[..], &[0]].concat();
        let is_fresh = self.is_fresh();
        let found = match &mut self.reads {
            Reads::TwoStage(Some(client)) if is_fresh => {
                let found = client.scan(&fabric, from, PAIRS).unwrap();
                let is_part = found.pairs.len() == PAIRS || found.rest.is_some();
                let next = found.pairs.last().map(|(key, _)| after(key)).filter(|_| is_part);
                let has_some = !found.pairs.is_empty() || found.rest.is_none();
                has_some.then_some((found.pairs, next))
            }
            Reads::Binned(client) if is_fresh => {
                let page = client.range(&fabric, NOW_MS, from, None, PAIRS).unwrap();
                let pairs = page.pairs.into_iter().map(|(key, value)| match value {
                    binned::Value::Here(value) => (key, Some(value)),
                    binned::Value::Ask(_) => (key, None),
                });
                Some((pairs.collect(), page.next))
            }
            _ => None,
        };
        found.unwrap_or_else(|| {
            let (from, to) = (Bound::Included(from), Bound::Unbounded);
            let scan = Scan { from, to, reverse: false, limit: PAIRS, bytes_max: usize::MAX };
            let (pairs, more) = self.copy.store.scan("", &scan).unwrap();
            let next = pairs.last().map(|(key, _)| after(key)).filter(|_| more);
            (pairs.into_iter().map(|(key, value)| (key, Some(value))).collect(), next)
        })
    }
}

/// What clients read of a region that is loaded again and again beside its writer is never older
/// than what was acknowledged, and never newer than what the store's own readers see.
#[test]
fn readers_beside_loads_and_writes_see_what_the_store_does() {
    for preset in PRESETS {
        read_beside(preset);
    }
}

/// Keys that are written, and others that fill the region.
const KEYS: u64 = 40;
const FILLERS: u64 = 400;

/// A client has read more keys than this number without a question.
const ONE_SIDED_MIN: u64 = 100;
/// That none has done so is a failure after this number of gets; it takes some hundred.
const READS_MAX: u64 = 1_000_000;

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn version(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

/// Versions of keys.
type Versions = Vec<AtomicU64>;

fn read_beside(preset: Preset) {
    let copy = Copy::new(preset, 64 << 20);
    let versions = || -> Versions { (0..KEYS).map(|_| AtomicU64::new(0)).collect() };
    // What the store's readers may see by now, and what its writers know to be there.
    let (visible, acknowledged, done) = (versions(), versions(), AtomicBool::new(false));
    let commits = Mutex::new(0);
    let first: Map = (0..KEYS + FILLERS).map(|n| (key(n).to_vec(), vec![0; 8])).collect();
    copy.set_map(&first);
    let (one_sided, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| keep_loaded(&copy, &commits));
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                copy.publisher.care();
                thread::sleep(Duration::from_millis(1));
            }
        });
        for seed in 0..2 {
            let (copy, visible, acknowledged, done) = (&copy, &visible, &acknowledged, &done);
            let (one_sided, reads) = (&one_sided, &reads);
            scope.spawn(move || {
                let mut client = copy.client();
                let mut n = seed;
                while !done.load(Ordering::Relaxed) {
                    n = (n * 13 + 7) % KEYS;
                    if n % 16 == 3 {
                        read_all(&mut client, visible, acknowledged, preset);
                        continue;
                    }
                    let least = acknowledged[n as usize].load(Ordering::SeqCst);
                    let found = client.get(&key(n));
                    let most = visible[n as usize].load(Ordering::SeqCst);
                    let found = found.unwrap_or_else(|| copy.store.get("", &key(n)).unwrap());
                    let found = version(&found.expect("a key that is never removed"));
                    assert!(found >= least, "{preset:?}: key {n}: {found} after {least}");
                    let most = most.max(visible[n as usize].load(Ordering::SeqCst));
                    assert!(found <= most, "{preset:?}: key {n}: {found} before it is there");
                    one_sided.fetch_max(client.one_sided(), Ordering::Relaxed);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        write(&copy, &commits, &visible, &acknowledged);
        // On a busy machine the last load may end after the last write.
        let is_read = || one_sided.load(Ordering::Relaxed) > ONE_SIDED_MIN;
        while preset != Preset::Rhumb && !is_read() && reads.load(Ordering::Relaxed) < READS_MAX {
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        // The loader ends, wherever it is.
        copy.publisher.beat(0);
    });
    let one_sided = one_sided.into_inner();
    assert!(
        preset == Preset::Rhumb || one_sided > ONE_SIDED_MIN,
        "{preset:?}: {one_sided} were read"
    );
}

/// Loads the region whenever it was reset.
fn keep_loaded(copy: &Copy, commits: &Mutex<u64>) {
    while copy.publisher.wait_for_reset() {
        let no_commits = commits.lock().unwrap();
        let Some(load) = copy.publisher.begin_load() else { continue };
        let pairs = copy.store.0.lock().unwrap().clone();
        drop(no_commits);
        // What changes from here on is kept.
        thread::yield_now();
        load.finish(pairs.into_iter().map(Ok)).unwrap();
    }
}

/// Writes some keys at once, and others beside them that come and go.
fn write(copy: &Copy, commits: &Mutex<u64>, visible: &Versions, acknowledged: &Versions) {
    for round in 1..600_u64 {
        let mut seq = commits.lock().unwrap();
        let written: Vec<u64> = (0..1 + round % 3).map(|n| (round * 7 + n * 11) % KEYS).collect();
        for n in &written {
            copy.publisher.insert(&key(*n), &round.to_le_bytes());
        }
        let filler = key(KEYS + round * 3 % (2 * FILLERS));
        let removes = round.is_multiple_of(2);
        match removes {
            true => copy.publisher.remove(&filler),
            false => copy.publisher.insert(&filler, &round.to_le_bytes()),
        }
        // Readers of the region that are here see what was there before, or have to ask.
        if round.is_multiple_of(8) {
            thread::yield_now();
        }
        {
            let mut map = copy.store.0.lock().unwrap();
            for n in &written {
                visible[*n as usize].store(round, Ordering::SeqCst);
                map.insert(key(*n).to_vec(), round.to_le_bytes().to_vec());
            }
            match removes {
                true => drop(map.remove(&filler[..])),
                false => drop(map.insert(filler.to_vec(), round.to_le_bytes().to_vec())),
            }
        }
        *seq += 1;
        copy.publisher.publish(*seq);
        drop(seq);
        for n in written {
            acknowledged[n as usize].store(round, Ordering::SeqCst);
        }
        if round.is_multiple_of(40) {
            copy.publisher.reset();
        }
        if round.is_multiple_of(16) {
            thread::yield_now();
        }
    }
}

/// Scans all, and looks at what is there of the keys that are written.
fn read_all(client: &mut Client<'_>, visible: &Versions, acknowledged: &Versions, preset: Preset) {
    let least: Vec<u64> = acknowledged.iter().map(|it| it.load(Ordering::SeqCst)).collect();
    let all = client.all();
    for n in 0..KEYS {
        let found = all.get(&key(n)[..]).unwrap_or_else(|| panic!("{preset:?}: key {n} is lost"));
        let (found, most) = (version(found), visible[n as usize].load(Ordering::SeqCst));
        let least = least[n as usize];
        assert!(
            (least..=most).contains(&found),
            "{preset:?}: key {n}: {found} of {least}..={most}"
        );
    }
}
