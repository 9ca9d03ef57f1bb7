//! What a transaction has pending of an order, as far as it differs from what is stored. It is kept
//! with the writes, so that ranks between many writes of one transaction do not look at all of them
//! again.

use std::collections::HashMap;

use super::Order;

/// Keys that are there for a transaction and not stored (1), or the other way (-1), ascending, by
/// what they have after their common front.
pub(crate) type Shifts = Vec<(Vec<u8>, i64)>;

/// The difference of one order.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) shifts: Shifts,
    /// Keys that were written since, of which the shifts do not know yet.
    pub(crate) changed: Vec<Vec<u8>>,
}

impl Overlay {
    /// Sets the shift of a key; 0 if it is there as it is stored.
    pub(crate) fn set(&mut self, rest: &[u8], shift: i64) {
        match (self.shifts.binary_search_by(|(key, _)| key.as_slice().cmp(rest)), shift) {
            (Ok(at), 0) => drop(self.shifts.remove(at)),
            (Ok(at), shift) => self.shifts[at].1 = shift,
            (Err(_), 0) => {}
            (Err(at), shift) => self.shifts.insert(at, (rest.to_vec(), shift)),
        }
    }
}

/// The differences of the orders whose places were asked for within a transaction.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    orders: HashMap<Order, Overlay>,
    /// How many writes of the transaction they know of.
    writes: usize,
}

impl Overlays {
    /// Forgets them if the transaction has another number of writes than they know of.
    pub(crate) fn check(&mut self, writes: usize) {
        if self.writes != writes {
            self.orders.clear();
            self.writes = writes;
        }
    }

    /// Takes note of one write more, of no member.
    pub(crate) fn note_other(&mut self) {
        self.writes += 1;
    }

    /// Takes note of one write more, of a member.
    pub(crate) fn note(&mut self, number: u8, key: &[u8]) {
        self.writes += 1;
        if self.orders.is_empty() {
            return;
        }
        let order = Order::of(number, key);
        if let Some(overlay) = order.and_then(|order| self.orders.get_mut(&order)) {
            overlay.changed.push(key.to_vec());
        }
    }

    /// The difference of an order, which begins with the keys that `all` gives.
    pub(crate) fn of(&mut self, order: Order, all: impl FnOnce() -> Vec<Vec<u8>>) -> &mut Overlay {
        let new = || Overlay { shifts: Shifts::new(), changed: all() };
        self.orders.entry(order).or_insert_with(new)
    }

    /// Forgets the difference of an order.
    pub(crate) fn forget(&mut self, order: Order) {
        self.orders.remove(&order);
    }
}
