//! Regions of trained arrays, and descriptors of them. The first byte says what is hostile: the
//! region, or what the host says of its arrays; the rest is damage.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use super::{Input, Map, copied, probes, sample, used};
use crate::{
    binned::{Address, Answer, CacheBudget, Caller, Client, Host, Mode, Options, Reply, Request},
    error::Result,
    fabric::MappedFabric,
    host::heap::HeapSpace,
};

/// Pairs of a range.
const RANGED: usize = 20;

/// A host, what it holds, and a copy of its region.
struct Sound {
    host: Mutex<Host<Arc<HeapSpace>>>,
    words: Vec<u64>,
    map: Map,
}

/// A host with bins, small arrays and removed keys.
static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let mut map = sample();
    let space = Arc::new(HeapSpace::new(64 << 10, 4 << 20));
    let entries = map.iter().map(|(key, value)| (key.clone(), value.clone()));
    let host = Host::build(Arc::clone(&space), Options::default(), entries);
    let mut host = host.expect("there is room");
    for n in 0..400u64 {
        let key = ((n * 13 % 17) << 34 | n << 20).to_be_bytes().to_vec();
        host.set(&key, b"later", Address::default()).expect("there is room");
        map.insert(key, b"later".to_vec());
    }
    let gone: Vec<Vec<u8>> = map.keys().step_by(9).cloned().collect();
    for key in &gone {
        host.remove(key, Address::default()).expect("there is room");
        map.remove(key);
    }
    host.publish(1);
    let words = used(space.all());
    Sound { host: Mutex::new(host), words, map }
});

/// Damages what the host says of its arrays.
struct Forger<'a>(Option<Input<'a>>);

impl Caller for Forger<'_> {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        let mut host = SOUND.host.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = host.handle(1, request)?;
        drop(host);
        let Some(input) = &mut self.0 else { return Ok(reply) };
        let mut forge = |lesson| {
            let mut bytes = Vec::new();
            Reply::Learned(lesson).encode(&mut bytes);
            for _ in 0..input.number(1) % 6 {
                let (at, by) = (input.number(2) as usize % bytes.len(), input.number(1) as u8);
                bytes[at] ^= by;
            }
            match Reply::decode(&bytes) {
                Ok(Reply::Learned(lesson)) => Some(lesson),
                _ => None,
            }
        };
        Ok(match reply {
            Reply::Learned(lesson) => match forge(lesson.clone()) {
                Some(lesson) => Reply::Learned(lesson),
                None => Reply::Learned(lesson),
            },
            Reply::Done { outcome, lesson } => {
                Reply::Done { outcome, lesson: lesson.and_then(forge) }
            }
            reply => reply,
        })
    }
}

/// Reads a hostile region, or one of which hostile things are said.
pub fn arrays(data: &[u8]) {
    let mut input = Input(data);
    let is_region = input.number(1) % 2 == 0;
    let words = copied(&SOUND.words);
    if is_region {
        input.damage(&words);
    }
    let fabric = MappedFabric::new(&[], &words);
    for mode in [Mode::Pipeline, Mode::AllAtClient] {
        let forger = Forger((!is_region).then_some(Input(input.0)));
        let mut client = Client::new(forger, mode, CacheBudget::Full);
        // A model with a hole is none.
        let _ = client.renew(1);
        read(&mut client, &fabric, (!is_region).then_some(&SOUND.map));
        client.leave().expect("the host is in this process");
    }
}

/// Reads; with a map, the answers are the map's.
fn read(client: &mut Client<Forger<'_>>, fabric: &MappedFabric<'_>, map: Option<&Map>) {
    for key in probes(&SOUND.map) {
        let answer = client.get(fabric, 1, &key).expect("the host is in this process");
        match (answer, map) {
            (Answer::Found(found), Some(map)) => assert_eq!(map.get(&key), Some(&found), "{key:?}"),
            (Answer::Absent, Some(map)) => assert_eq!(map.get(&key), None, "{key:?}"),
            _ => {}
        }
    }
    for from in probes(&SOUND.map).into_iter().step_by(9) {
        let page = client.range(fabric, 1, &from, None, RANGED).expect("the host is here");
        assert!(page.pairs.len() <= RANGED);
        if let Some(map) = map {
            let found: BTreeMap<_, ()> = page.pairs.into_iter().map(|(key, _)| (key, ())).collect();
            let expected = map.range(from..).take(found.len()).map(|(key, _)| key);
            assert!(found.keys().eq(expected), "other keys");
        }
    }
}
