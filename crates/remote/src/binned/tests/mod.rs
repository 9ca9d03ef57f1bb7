//! Hosts and clients against sorted maps.

mod barrier;
mod between;
mod counts;
mod hostile;
mod loads;
mod messages;
mod property;
mod threads;
mod torn;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use rhumb_testkit::random::Random;

use super::{
    Answer, CacheBudget, Caller, Client, Host, Mode, Options, Reply, Request, Value, bins,
    layout::{BLOCK_LINES, HEADER_LINES, Link, Record, Sizes, Token},
    slab::size_of,
};
use crate::{error::Result, fabric::MappedFabric, host::heap::HeapSpace};

pub(super) type Map = BTreeMap<Vec<u8>, Vec<u8>>;
pub(super) type TestHost = Host<Arc<HeapSpace>>;

/// A host in this thread, and the clock that it and its clients share.
#[derive(Clone)]
pub(super) struct Local {
    pub(super) host: Rc<RefCell<TestHost>>,
    pub(super) space: Arc<HeapSpace>,
    pub(super) now_ms: Rc<Cell<u64>>,
    /// Calls leave changes unpublished.
    pub(super) holds: Rc<Cell<bool>>,
}

impl Local {
    pub(super) fn new(map: &Map, options: Options) -> Self {
        Self::within(12 << 20, map, options)
    }

    /// A host that has this many bytes.
    pub(super) fn within(bytes: usize, map: &Map, options: Options) -> Self {
        let space = Arc::new(HeapSpace::new(64 << 10, bytes));
        let entries = map.iter().map(|(key, value)| (key.clone(), value.clone()));
        let host = Host::build(Arc::clone(&space), options, entries).unwrap();
        let now_ms = Rc::new(Cell::new(1));
        let holds = Rc::new(Cell::new(false));
        Self { host: Rc::new(RefCell::new(host)), space, now_ms, holds }
    }

    pub(super) fn fabric(&self) -> MappedFabric<'_> {
        MappedFabric::new(&[], self.space.all())
    }

    pub(super) fn client(&self, mode: Mode, budget: CacheBudget) -> Client<Self> {
        let sizes = self.host.borrow().records.slab.sizes();
        let mut client = Client::new(self.clone(), mode, budget).with_sizes(sizes);
        client.renew(self.now_ms.get()).unwrap();
        client
    }
}

impl Caller for Local {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let mut host = self.host.borrow_mut();
        let reply = host.handle(self.now_ms.get(), &Request::decode(&bytes)?)?;
        if !self.holds.get() {
            let seq = host.applied() + 1;
            host.publish(seq);
        }
        bytes.clear();
        reply.encode(&mut bytes);
        Reply::decode(&bytes)
    }
}

/// What a client must find of a value.
pub(super) fn answer(value: Option<&Vec<u8>>, value_bytes_max: usize) -> Answer {
    match value {
        None => Answer::Absent,
        Some(value) if value.len() <= value_bytes_max.max(8) => Answer::Found(value.clone()),
        Some(value) => Answer::Ask(value.len() as u32),
    }
}

/// Checks that what a host has handed out is what can be found, that all of it is in order, and
/// that bins lie in the gaps that they were made for.
pub(super) fn check(host: &TestHost, map: &Map) {
    let mut lines = 0;
    let mut keys = Vec::new();
    for (low, epoch) in &host.tops {
        let array = &host.arrays[epoch];
        assert!(*low == array.descriptor.span.low && !array.is_retired && !array.is_small);
        check_array(host, *epoch, &mut keys, &mut lines);
    }
    assert!(keys.is_sorted(), "keys are out of order");
    assert_eq!(keys.len(), map.len());
    assert_eq!(host.len(), map.len() as u64);
    assert!(keys.iter().eq(map.keys()), "other keys");
    let retired = host.arrays.values().filter(|array| array.is_retired);
    let retired: u64 = retired.map(|a| array_lines(host.records.slab.sizes(), a.len())).sum();
    let dropped = host.barrier.waiting().flat_map(|what| &what.dropped);
    let dropped: u64 = dropped.map(record_lines).sum();
    assert_eq!(host.live_bytes(), (lines + retired + dropped) * 64, "a piece has leaked");
}

fn array_lines(sizes: Sizes, len: usize) -> u64 {
    u64::from(sizes.blocks_of(len) * BLOCK_LINES + HEADER_LINES)
}

fn record_lines(record: &Record) -> u64 {
    record.wide_extent().map_or(0, |extent| size_of(extent.lines).into())
}

fn check_array(host: &TestHost, epoch: u64, keys: &mut Vec<Vec<u8>>, lines: &mut u64) {
    let (array, records) = (&host.arrays[&epoch], &host.records);
    *lines += array_lines(records.slab.sizes(), array.len());
    for index in 0..=array.len() {
        let record = array.record(records, index);
        *lines += record_lines(&record);
        if index > 0 {
            let key = records.key(&record);
            assert_eq!(array.search(records, &key), Ok(index));
            assert!(array.descriptor.span.contains(&key));
            keys.extend((record.token() == Token::Live).then_some(key));
        }
        match record.link() {
            Link::Empty => {}
            Link::Small(slot) => {
                check_array(host, host.small(slot).expect("a small array"), keys, lines);
            }
            Link::Bin(root) => {
                assert!(records.slab.is_current(root));
                *lines += bins::lines(records, root);
                let (mut binned, span) = (Vec::new(), array.gap(records, index));
                bins::collect(records, root, &mut binned);
                assert!(!binned.is_empty(), "an empty bin");
                for record in &binned {
                    let key = records.key(record);
                    assert!(span.contains(&key), "a key in another's bin");
                    *lines += record_lines(record);
                    keys.push(key);
                }
            }
        }
    }
}

/// The value of a pair as a client must find it.
pub(super) fn pair(key: &[u8], value: &[u8], value_bytes_max: usize) -> (Vec<u8>, Value) {
    let value = match value.len() <= value_bytes_max.max(8) {
        true => Value::Here(value.to_vec()),
        false => Value::Ask(value.len() as u32),
    };
    (key.to_vec(), value)
}
