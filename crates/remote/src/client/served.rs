//! Which keys the host of a region serves, and the routing table that it has.
//!
//! A reader notes which keys the host is known to serve, and in which generation, before it reads.
//! It looks at the generation in the region's header after it has read. If that is the same, the
//! host served the key when it was read; otherwise what was read is worth nothing, and the host is
//! asked.

use std::{ops::Bound, sync::Arc};

use arc_swap::{ArcSwap, Guard};

use super::{
    Page, Reader, RoutingTable,
    connection::unexpected,
    keyspace::{Keyspace, Mapped},
    tcp::Pieces,
};
use crate::{
    bounds::Bounds,
    error::{Error, Result},
    layout::control,
    message::{Reply, Request, Table},
    ranges::{KeyRange, KeyRanges},
};

/// The keys of a generation. The generation 0 has all of them.
#[derive(Debug, Default)]
pub(super) struct ServedKeys {
    generation: u64,
    ranges: KeyRanges,
}

/// What a host was known to serve before something was read.
pub(super) struct Claim {
    /// `None` for all keys, in the generation 0.
    known: Option<Guard<Arc<ServedKeys>>>,
}

impl Claim {
    /// What is known now.
    pub(super) fn of(known: &ArcSwap<ServedKeys>) -> Self {
        let known = known.load();
        Self { known: (known.generation != 0).then_some(known) }
    }

    /// The generation whose keys are known.
    pub(super) fn generation(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.generation)
    }

    /// Returns true if the host served `key` since this claim, where the region has this generation
    /// by now.
    #[inline]
    pub(super) fn serves(&self, generation: u64, key: &[u8]) -> bool {
        self.serves_if(generation, |ranges| ranges.of(key).is_some())
    }

    #[inline]
    fn serves_if(&self, generation: u64, is_served: impl FnOnce(&KeyRanges) -> bool) -> bool {
        match &self.known {
            None => generation == 0,
            // planted: reader-not-look-key-left-host
            // planted: reader-not-look-key-left
            Some(known) => generation == known.generation && is_served(&known.ranges),
        }
    }

    /// Keeps what of a page is of the range that has its beginning: the next page begins at the
    /// range's end. False if the host does not serve the beginning.
    pub(super) fn clip(&self, page: &mut Page, begin: Bound<&[u8]>, reverse: bool) -> bool {
        let Some(known) = &self.known else { return true };
        let range = known.ranges.at(begin, reverse);
        range.is_some_and(|range| {
            page.clip(range, reverse);
            true
        })
    }

    /// The end of the range that has the keys from a lower end on; `None` if it has none, or is not
    /// served.
    pub(super) fn end_of(&self, begin: Bound<&[u8]>) -> Option<&[u8]> {
        self.known.as_ref()?.ranges.at(begin, false)?.high.as_deref()
    }
}

/// A mapped region of runs that is read.
pub(super) struct Reading<'m> {
    pub(super) reader: Reader<'m>,
    mapped: &'m Mapped,
    claim: Claim,
}

impl<'m> Reading<'m> {
    pub(super) fn new(reader: Reader<'m>, mapped: &'m Mapped, claim: Claim) -> Self {
        Self { reader, mapped, claim }
    }

    /// Returns true if the host served `key` when it was read, before this call.
    #[inline]
    pub(super) fn serves(&self, key: &[u8]) -> bool {
        self.claim.serves(self.mapped.generation(), key)
    }

    /// [`Reading::serves`] of all keys of a range.
    pub(super) fn serves_range(&self, bounds: Bounds<&[u8]>) -> bool {
        self.claim.serves_if(self.mapped.generation(), |ranges| ranges.hold(bounds))
    }

    /// [`Claim::clip`] of a page that was read before this call.
    pub(super) fn clip(&self, page: &mut Page, begin: Bound<&[u8]>, reverse: bool) -> bool {
        let is_known = self.mapped.generation() == self.claim.generation();
        is_known && self.claim.clip(page, begin, reverse)
    }
}

impl Mapped {
    /// The generation of the keys that the host serves. What was read before this call was served
    /// by that generation, or by an earlier one.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        control::generation(self.words().0)
    }
}

impl Keyspace {
    /// Which keys the host of a region serves, which is asked if that has changed. What is read
    /// without that knowledge does not count.
    #[inline]
    pub(super) fn claim(&self, mapped: &Arc<Mapped>) -> Claim {
        match mapped.generation() {
            0 => Claim { known: None },
            generation => self.claim_of(mapped, generation),
        }
    }

    #[cold]
    fn claim_of(&self, mapped: &Arc<Mapped>, generation: u64) -> Claim {
        if mapped.known().load().generation != generation {
            // What another connection's host says is not of this region.
            self.ask_ranges(mapped.known(), || {
                self.mapped().is_some_and(|now| Arc::ptr_eq(&now, mapped))
            });
        }
        Claim::of(mapped.known())
    }

    /// Asks which keys the host serves, of a region that is read piece by piece.
    #[cold]
    pub(super) fn learn_ranges(&self, pieces: &Arc<Pieces>) {
        // Those of another connection are not read any more.
        self.ask_ranges(pieces.known(), || {
            self.parts().1.pieces().is_some_and(|now| Arc::ptr_eq(&now.load(), pieces))
        });
    }

    fn ask_ranges(&self, to: &ArcSwap<ServedKeys>, is_of: impl FnOnce() -> bool) {
        let known = self.ask_routing(u64::MAX, |generation, ranges, _| {
            let range = |(low, high): &(&[u8], Option<&[u8]>)| KeyRange::new(low, *high);
            let ranges = KeyRanges::new(ranges.iter().map(range).collect());
            Ok(ServedKeys { generation, ranges: ranges.map_err(Error::invalid)? })
        });
        // An error is that of the call that follows, too.
        if let Ok(known) = known
            && is_of()
        {
            to.store(Arc::new(known));
        }
    }

    /// The routing table that the host has, which says which hosts have which keys; `None` if the
    /// host was told none. One call.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]; [`Error::Invalid`] for a table that is none.
    pub fn routing_table(&self) -> Result<Option<RoutingTable>> {
        self.newer_table(0)
    }

    /// The routing table that the host has, if its epoch is above this one.
    pub(super) fn newer_table(&self, above: u64) -> Result<Option<RoutingTable>> {
        self.ask_routing(above, |_, _, table| match table {
            Some(table) if table.epoch > above => checked(table).map(Some),
            _ => Ok(None),
        })
    }

    fn ask_routing<T>(
        &self,
        above: u64,
        read: impl FnOnce(u64, &[(&[u8], Option<&[u8]>)], Option<Table<'_>>) -> Result<T>,
    ) -> Result<T> {
        let (client, inner) = self.parts();
        client.call(
            inner,
            true,
            |keyspace| Request::Routing { keyspace, above },
            |reply| match reply {
                Reply::Routing { generation, ranges, table } => read(generation, &ranges, table),
                other => Err(unexpected(&other)),
            },
        )
    }
}

/// A table that came from a host.
fn checked(table: Table<'_>) -> Result<RoutingTable> {
    let invalid = |error: Error| Error::invalid(format!("a host's routing table: {error}"));
    let range = |(low, server): (_, &str)| Ok((low, server.parse().map_err(invalid)?));
    let ranges: Vec<_> = table.ranges.into_iter().map(range).collect::<Result<_>>()?;
    RoutingTable::new(table.epoch, ranges).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(generation: u64, low: &str, high: &str) -> Arc<ServedKeys> {
        let range = KeyRange::new(low, Some(high.as_bytes()));
        Arc::new(ServedKeys { generation, ranges: KeyRanges::new(vec![range]).unwrap() })
    }

    #[test]
    fn a_read_counts_by_what_was_known_before_it() {
        let now = ArcSwap::default();
        let whole = Claim::of(&now);
        assert!(whole.serves(0, b"k") && whole.serves(0, b"z"));
        now.store(known(1, "a", "k"));
        let before = Claim::of(&now);
        // Another thread learns that the key has come.
        now.store(known(2, "a", "z"));
        for generation in 0..4 {
            assert_eq!(whole.serves(generation, b"b"), generation == 0);
            assert_eq!(before.serves(generation, b"b"), generation == 1);
            assert!(!before.serves(generation, b"k"));
            assert_eq!(Claim::of(&now).serves(generation, b"k"), generation == 2);
        }
        assert_eq!(before.end_of(Bound::Included(b"b")), Some(&b"k"[..]));
        assert_eq!(before.end_of(Bound::Included(b"k")), None);
        assert_eq!(whole.end_of(Bound::Unbounded), None);
        let page = || Page::of([(&b"b"[..], None), (b"m", None)].into_iter().collect(), None);
        let mut clipped = page();
        assert!(before.clip(&mut clipped, Bound::Included(b"b"), false));
        assert_eq!((clipped.pairs.len(), clipped.next.as_deref()), (1, Some(&b"k"[..])));
        assert!(!before.clip(&mut page(), Bound::Included(b"k"), false));
        let mut all = page();
        assert!(whole.clip(&mut all, Bound::Unbounded, false));
        assert_eq!(all.pairs.len(), 2);
    }
}
