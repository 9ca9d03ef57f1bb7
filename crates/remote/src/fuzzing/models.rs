//! Regions of the two-stage assembly, and what their host answers. The first byte says what is
//! hostile: models and tables, all of a region, or an answer; the rest is damage.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::{Input, Map, copied, probes, sample, used};
use crate::{
    fabric::MappedFabric,
    host::heap::HeapSpace,
    primitive::AtomicU64,
    two_stage::{
        Answer, CacheBudget, Client, ClientOptions, Options, Outcome, Sizes, Table, model_words,
    },
};

/// Trips of the reads of one input: each get and each scan takes a few.
const TRIPS_MAX: u64 = 20_000;

/// The first word that is no part of the header, which carries a checksum.
const AFTER_HEADER: usize = 5;

/// Pairs of a scan.
const SCANNED: usize = 40;

/// A region, what is in it, and its host.
struct Sound {
    control: Vec<u64>,
    leaves: Vec<u64>,
    /// Where models and tables lie in `control`: the top's place, and all that was made last.
    models: [std::ops::Range<usize>; 2],
    map: Map,
    table: Mutex<Table<Arc<HeapSpace>>>,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let map = sample();
    let sizes = Sizes::new(16, 64 << 10).expect("sizes that are allowed");
    let options = Options { sizes, fill: 11, keys_per_model_max: 40 };
    let space = || Arc::new(HeapSpace::new(64 << 10, 2 << 20));
    let (leaves, control) = (space(), space());
    let table = Table::build(options, Arc::clone(&leaves), Arc::clone(&control), map.clone());
    let table = table.expect("there is room");
    let (control, leaves) = (used(control.all()), used(leaves.all()));
    let models = model_words(&table, control.len());
    Sound { control, leaves, models, map, table: Mutex::new(table) }
});

/// Reads a hostile region, or learns from hostile answers.
pub fn models(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.number(1) % 4;
    let (control, leaves) = (copied(&SOUND.control), copied(&SOUND.leaves));
    let [top, rest] = SOUND.models.clone();
    match kind {
        0 => input.damage(&control[top]),
        1 => input.damage(&control[rest]),
        2 if input.number(1) % 2 == 0 => input.damage(&control[AFTER_HEADER..]),
        2 => input.damage(&leaves),
        _ => return learn(&control, &leaves, input.0),
    }
    let fabric = MappedFabric::new(&control, &leaves);
    for budget in [CacheBudget::Full, CacheBudget::Bytes(500), CacheBudget::Models] {
        let options = ClientOptions { budget, speculates: true };
        let mut client = Client::open(&fabric, options).expect("its header is right");
        client.fill(&fabric).expect("memory that is mapped is read");
        read(&mut client, &fabric, (kind < 2).then_some(&SOUND.map));
    }
}

/// Reads; with a map, the answers are the map's.
fn read(client: &mut Client, fabric: &MappedFabric<'_>, map: Option<&Map>) {
    for key in probes(&SOUND.map) {
        let mut out = Vec::new();
        let outcome = client.get(fabric, &key, &mut out).expect("memory that is mapped is read");
        match (outcome, map) {
            (Outcome::Found, Some(map)) => assert_eq!(map.get(&key), Some(&out), "{key:?}"),
            (Outcome::Absent, Some(map)) => assert_eq!(map.get(&key), None, "{key:?}"),
            _ => {}
        }
        client.hint(&key);
    }
    for from in probes(&SOUND.map).into_iter().step_by(9) {
        let scanned = client.scan(fabric, &from, SCANNED).expect("memory that is mapped is read");
        assert!(scanned.pairs.len() <= SCANNED);
        if let Some(map) = map {
            let expected = map.range(from..).take(scanned.pairs.len()).map(|(key, _)| key);
            assert!(scanned.pairs.iter().map(|(key, _)| key).eq(expected), "other keys");
        }
    }
    let trips = client.reads().trips;
    assert!(trips < TRIPS_MAX, "{trips} trips");
}

/// Learns from answers that are damaged: what is read in the sound region stays right.
fn learn(control: &[AtomicU64], leaves: &[AtomicU64], damage: &[u8]) {
    let fabric = MappedFabric::new(control, leaves);
    let options = ClientOptions { budget: CacheBudget::Full, speculates: true };
    let mut client = Client::open(&fabric, options).expect("its header is right");
    client.fill(&fabric).expect("memory that is mapped is read");
    let mut input = Input(damage);
    for key in SOUND.map.keys().step_by(60) {
        let mut question = client.lookup(key);
        (question.epoch, question.wants_model) = (input.number(1) as u32 % 3, true);
        let mut table = SOUND.table.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = table.answer(&question, |_| None);
        drop(table);
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        for _ in 0..input.number(1) % 6 {
            let (at, by) = (input.number(2) as usize % bytes.len(), input.number(1) as u8);
            bytes[at] ^= by;
        }
        if let Ok(Answer { fresh: Some(fresh), .. }) = Answer::decode(&bytes) {
            client.learn(fresh);
        }
    }
    read(&mut client, &fabric, Some(&SOUND.map));
}
