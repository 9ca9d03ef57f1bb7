//! Ranks of members in O(log n): for each order of a sorted set of which ranks were asked for, how
//! many members lie in each of many neighbouring ranges.
//!
//! Nothing of it is on the disk. An order is learned by one walk when somebody asks, and from then
//! on kept with the commits, until nobody has asked for [`KEPT`] or the memory is used for others.
//! Forgetting is always right. While nothing is kept it costs a commit one relaxed load.
//!
//! Rules: (1) an order is read by a command that has its key locked against writers, at least; it
//! is learned so as well, or beside the writers, whose changes are kept meanwhile and added under
//! the lock ([`Learning`]); (2) a commit of members changes what is kept under the exclusive locks
//! of their keys, which it holds from before it looks at what is stored until after the change; (3)
//! when it is not known whether a commit happened, everything is forgotten. So what is read agrees
//! with what is stored. Members are committed in two other ways, which break nothing: emptying a
//! database forgets its orders, and the sweeper removes members of collections that no key names
//! any more.

mod blocks;
mod learning;
mod overlay;

use std::{
    collections::HashMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, RwLock};
use rhumb::{Keyspace, Result, Slice};

use crate::encode::{format::ID_BYTES, member::zset_prefix};

pub(crate) use blocks::Blocks;
pub(crate) use learning::Learning;
pub(crate) use overlay::{Overlays, Shifts};

/// How long after it was asked for last an order is kept: as the count of keys.
const KEPT: Duration = Duration::from_secs(600);

/// The memory of all orders until it is set.
const BYTES_MAX: usize = 8 << 20;

/// Bytes of an order besides its blocks.
const ORDER_BYTES: usize = 256;

/// Bytes of what the keys of an order begin with: the collection's number and the order.
const PREFIX_BYTES: usize = ID_BYTES + 1;

/// An order: the number of the keyspaces, and what its keys begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    number: u8,
    prefix: [u8; PREFIX_BYTES],
}

impl Order {
    /// The order to which a member's key belongs, if it can be of one.
    pub(crate) fn of(number: u8, key: &[u8]) -> Option<Self> {
        Some(Self { number, prefix: key.get(..PREFIX_BYTES)?.try_into().ok()? })
    }
}

impl Order {
    /// The key with this after the front that all of the order have.
    pub(crate) fn key(self, rest: &[u8]) -> Vec<u8> {
        [&self.prefix[..], rest].concat()
    }
}

/// What a member's key has after the front that all of its order have.
pub(crate) fn rest_of(key: &[u8]) -> &[u8] {
    key.get(PREFIX_BYTES..).unwrap_or_default()
}

/// What commits have changed: keys with what comes before them, and whether they were put.
type Changed = Vec<(Vec<u8>, bool)>;

/// An order that is kept, or is being learned.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// `None` until it is learned. By what the keys have after their common front.
    pub(crate) blocks: RwLock<Option<Blocks>>,
    /// What commits have changed since a thread began to learn; `None` while no thread learns
    /// beside the writers.
    log: Mutex<Option<Changed>>,
    /// Told when `log` becomes `None`.
    learned: Condvar,
    bytes: AtomicUsize,
    /// Milliseconds from the start of the server to the last time that it was asked for.
    asked_ms: AtomicU64,
}

/// All orders that are kept.
#[derive(Debug)]
pub(crate) struct Ranks {
    /// How many there are.
    len: AtomicUsize,
    orders: Mutex<HashMap<Order, Arc<Kept>>>,
    bytes_max: AtomicUsize,
    began: Instant,
    /// Members that were stepped over.
    #[cfg(test)]
    pub(crate) stepped: AtomicU64,
}

impl Default for Ranks {
    fn default() -> Self {
        Self {
            len: AtomicUsize::new(0),
            orders: Mutex::default(),
            bytes_max: AtomicUsize::new(BYTES_MAX),
            began: Instant::now(),
            #[cfg(test)]
            stepped: AtomicU64::new(0),
        }
    }
}

/// What a commit will change about an order: keys with what comes before them, and which are put.
struct Change {
    order: Order,
    kept: Arc<Kept>,
    keys: Vec<(Vec<u8>, bool)>,
}

/// What a commit will change about all orders.
#[derive(Default)]
pub(crate) struct Changes(Vec<(Keyspace, Change)>);

impl Ranks {
    /// Sets how much memory all orders may take.
    pub(crate) fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(usize::try_from(bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// The order, which is asked for now. The caller learns it if it is not known.
    pub(crate) fn ask(&self, order: Order) -> Arc<Kept> {
        let mut orders = self.orders.lock();
        let kept = Arc::clone(orders.entry(order).or_default());
        self.len.store(orders.len(), Ordering::Relaxed);
        kept.asked_ms.store(self.now_ms(), Ordering::Relaxed);
        kept
    }

    /// Keeps what was learned, within the memory that there is.
    pub(crate) fn keep(&self, kept: &Kept, mut blocks: Blocks) {
        self.fit(&mut blocks);
        kept.bytes.store(blocks.bytes() + ORDER_BYTES, Ordering::Relaxed);
        *kept.blocks.write() = Some(blocks);
        self.make_room();
    }

    /// Makes the blocks of an order larger until it takes at most half of the memory of all.
    fn fit(&self, blocks: &mut Blocks) {
        let most = self.bytes_max.load(Ordering::Relaxed) / 2;
        while blocks.bytes() > most && blocks.halve() {}
    }

    /// Forgets the orders that were asked for longest ago, until they take seven eighths of the
    /// memory that they may.
    fn make_room(&self) {
        let most = self.bytes_max.load(Ordering::Relaxed);
        let mut orders = self.orders.lock();
        let bytes_of = |kept: &Kept| kept.bytes.load(Ordering::Relaxed);
        let mut bytes: usize = orders.values().map(|kept| bytes_of(kept)).sum();
        if bytes <= most {
            return;
        }
        let asked = |kept: &Kept| kept.asked_ms.load(Ordering::Relaxed);
        let mut all: Vec<_> =
            orders.iter().map(|(order, kept)| (asked(kept), *order, bytes_of(kept))).collect();
        all.sort_unstable_by_key(|(asked, ..)| *asked);
        for (_, order, size) in all {
            if bytes <= most / 8 * 7 {
                break;
            }
            orders.remove(&order);
            bytes -= size;
        }
        self.len.store(orders.len(), Ordering::Relaxed);
    }

    fn retain(&self, mut stays: impl FnMut(&Order, &Kept) -> bool) {
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut orders = self.orders.lock();
        orders.retain(|order, kept| stays(order, kept));
        self.len.store(orders.len(), Ordering::Relaxed);
    }

    /// Forgets an order.
    fn forget(&self, order: Order) {
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut orders = self.orders.lock();
        orders.remove(&order);
        self.len.store(orders.len(), Ordering::Relaxed);
    }

    /// Forgets the orders of a collection whose members are removed.
    pub(crate) fn forget_collection(&self, number: u8, id: u64) {
        for by_score in [false, true] {
            if let Some(order) = Order::of(number, &zset_prefix(id, by_score)) {
                self.forget(order);
            }
        }
    }

    /// Forgets the orders of a database that is emptied.
    pub(crate) fn forget_database(&self, number: u8) {
        self.retain(|order, _| order.number != number);
    }

    /// Forgets all orders.
    pub(crate) fn forget_all(&self) {
        self.retain(|_, _| false);
    }

    /// Forgets the orders that nobody has asked for in some time.
    pub(crate) fn lapse(&self) {
        let before = self.now_ms().checked_sub(KEPT.as_millis() as u64);
        let Some(before) = before else { return };
        self.retain(|_, kept| kept.asked_ms.load(Ordering::Relaxed) >= before);
    }

    /// Bytes of memory of all orders.
    pub(crate) fn bytes(&self) -> u64 {
        let orders = self.orders.lock();
        orders.values().map(|kept| kept.bytes.load(Ordering::Relaxed) as u64).sum()
    }

    /// Adds to `changes` what a commit of these members will change: those keys that it puts and
    /// that are not stored, and the other way. Called before the commit, under the locks of the
    /// keys.
    pub(crate) fn look<'w>(
        &self,
        changes: &mut Changes,
        (number, members): (u8, &Keyspace),
        writes: impl Iterator<Item = (&'w [u8], bool)>,
    ) {
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut last: Option<(Order, Option<Change>)> = None;
        let mut end = |last: Option<(Order, Option<Change>)>| {
            let Some((order, Some(mut change))) = last else { return };
            match remove_unchanged(members, &mut change.keys) {
                Ok(()) if change.keys.is_empty() => {}
                Ok(()) => changes.0.push((members.clone(), change)),
                Err(_) => self.forget(order),
            }
        };
        for (key, is_put) in writes {
            let Some(order) = Order::of(number, key) else { continue };
            if last.as_ref().is_none_or(|(other, _)| *other != order) {
                end(last.take());
                let kept = self.orders.lock().get(&order).cloned();
                let change = kept.map(|kept| Change { order, kept, keys: Vec::new() });
                last = Some((order, change));
            }
            if let Some((_, Some(change))) = &mut last {
                change.keys.push((key.to_vec(), is_put));
            }
        }
        end(last.take());
    }

    /// Changes the orders as the commit has. Called after it, under the same locks.
    pub(crate) fn apply(&self, changes: Changes) {
        if changes.0.is_empty() {
            return;
        }
        let mut has_grown = false;
        for (members, Change { order, kept, keys }) in changes.0 {
            let mut slot = kept.blocks.write();
            let Some(blocks) = slot.as_mut() else {
                drop(slot);
                if !kept.note(keys) {
                    self.forget(order);
                }
                continue;
            };
            match change(blocks, order, &members, &keys) {
                Ok(true) => {
                    self.fit(blocks);
                    let bytes = blocks.bytes() + ORDER_BYTES;
                    has_grown |= kept.bytes.swap(bytes, Ordering::Relaxed) < bytes;
                }
                Ok(false) | Err(_) => {
                    *slot = None;
                    self.forget(order);
                }
            }
        }
        if has_grown {
            self.make_room();
        }
    }
}

/// Leaves only keys that are put and not stored, or removed and stored.
fn remove_unchanged(members: &Keyspace, keys: &mut Vec<(Vec<u8>, bool)>) -> Result<()> {
    let names: Vec<&[u8]> = keys.iter().map(|(key, _)| key.as_slice()).collect();
    let stored = members.multi_get(&names)?;
    let mut stored = stored.iter().map(Option::is_some);
    keys.retain(|(_, is_put)| stored.next() != Some(*is_put));
    Ok(())
}

/// Changes the blocks of an order, and splits those that have become large. Returns false if the
/// keys cannot be of this order.
fn change(
    blocks: &mut Blocks,
    order: Order,
    members: &Keyspace,
    keys: &[(Vec<u8>, bool)],
) -> Result<bool> {
    let mut large = Vec::new();
    for (key, is_put) in keys {
        match blocks.change(rest_of(key), *is_put) {
            None => return Ok(false),
            Some(false) => {}
            Some(true) => large.push(rest_of(key)),
        }
    }
    for key in large {
        if !blocks.is_large(key) {
            // It was split for another key.
            continue;
        }
        let found = blocks.block_of(key);
        let (from, to) = range(order, found.start, found.end);
        let all = members.range((from, to));
        let all: Vec<Slice> = all.map(|pair| Ok(pair?.0)).collect::<Result<_>>()?;
        if !blocks.split(key, all.iter().map(|key| rest_of(key))) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The range of an order's keys between two ends, which are what comes after the common front.
pub(crate) fn range(
    order: Order,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let from = [&order.prefix[..], start.unwrap_or_default()].concat();
    let to = match end {
        Some(end) => Bound::Excluded([&order.prefix[..], end].concat()),
        None => {
            let mut end = order.prefix;
            // One of two small numbers.
            end[PREFIX_BYTES - 1] += 1;
            Bound::Excluded(end.to_vec())
        }
    };
    (Bound::Included(from), to)
}
