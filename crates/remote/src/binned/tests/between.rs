//! Changes that come between two reads of one operation of a client.

use proptest::prelude::*;

use super::*;
use crate::{
    binned::Address,
    fabric::{Extent, Fabric, Image},
};

/// A fabric that has a change done before one of its reads.
struct Interrupted<'a, F> {
    fabric: MappedFabric<'a>,
    reads: Cell<u32>,
    /// The number of the read before which the change is done.
    at: u32,
    change: F,
}

impl<F: Fn()> Fabric for Interrupted<'_, F> {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        let read = self.reads.get();
        self.reads.set(read + 1);
        if read == self.at {
            (self.change)();
        }
        self.fabric.read(extents, image)
    }
}

/// Keys of one gap: of eight bytes, and others.
fn key(n: u16, is_wide: bool) -> Vec<u8> {
    let mut key = vec![0, 0, 0, 0, 0, 5, (n >> 8) as u8, n as u8];
    key.extend(is_wide.then_some(b'w'));
    key
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn keys_that_stay_are_found_whatever_happens_meanwhile(
        before in prop::collection::btree_set((0..900u16, any::<bool>()), 1..130),
        inserts in prop::collection::btree_set((0..900u16, any::<bool>()), 0..90),
        removes in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        sought in any::<prop::sample::Index>(), at in 0..4u32, trains: bool,
    ) {
        let trained: Map =
            (0..30u64).map(|n| ((n << 16).to_be_bytes().to_vec(), vec![1])).collect();
        let local = Local::within(2 << 20, &trained, Options::default());
        let before: Vec<(u16, bool)> = before.into_iter().collect();
        let sought = before[sought.index(before.len())];
        let mut host = local.host.borrow_mut();
        for (n, is_wide) in &before {
            host.set(&key(*n, *is_wide), &n.to_be_bytes(), Address::default()).unwrap();
        }
        host.publish(1);
        drop(host);
        let mut client = local.client(Mode::AllAtClient, CacheBudget::Full);
        let change = || {
            let mut host = local.host.borrow_mut();
            for (n, is_wide) in &inserts {
                host.set(&key(*n, *is_wide), &n.to_be_bytes(), Address::default()).unwrap();
            }
            for (n, is_wide) in removes.iter().map(|at| before[at.index(before.len())]) {
                if (n, is_wide) != sought {
                    host.remove(&key(n, is_wide), Address::default()).unwrap();
                }
            }
            host.publish(2);
            let first = host.tops.values().next().copied();
            host.due.extend(first.filter(|_| trains));
            if let Some(plan) = host.begin_training() {
                host.finish_training(plan.train()).unwrap();
            }
            host.publish(3);
        };
        let (fabric, reads) = (local.fabric(), Cell::new(0));
        let fabric = Interrupted { fabric, reads, at, change };
        let found = client.get(&fabric, 1, &key(sought.0, sought.1)).unwrap();
        prop_assert_eq!(found, Answer::Found(sought.0.to_be_bytes().to_vec()));
        let fabric = Interrupted { reads: Cell::new(0), ..fabric };
        let page = client.range(&fabric, 1, &key(sought.0, sought.1), None, 5).unwrap();
        prop_assert_eq!(&page.pairs[0].0, &key(sought.0, sought.1));
    }
}
