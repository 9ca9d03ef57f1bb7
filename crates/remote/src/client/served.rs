//! Which keys the host of a mapped region serves, and the routing table that it has.
//!
//! A reader looks at the generation in the region's header after it has read. If that is the one
//! whose ranges it knows, the host served the key when it was read; otherwise what was read is
//! worth nothing, and the host is asked.

use std::{ops::Bound, sync::Arc};

use super::{
    Page, RoutingTable,
    connection::unexpected,
    keyspace::{Keyspace, Mapped},
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
pub(super) struct Known {
    generation: u64,
    ranges: KeyRanges,
}

impl Mapped {
    /// Returns true if the host serves what it is known to serve, or everything.
    #[inline]
    fn is_known(&self) -> bool {
        let generation = control::generation(self.words().0);
        generation == 0 || generation == self.known().load().generation
    }

    /// Returns true if the host served `key` when it was read, before this call.
    #[inline]
    pub(super) fn serves(&self, key: &[u8]) -> bool {
        self.serves_if(|ranges| ranges.of(key).is_some())
    }

    /// [`Mapped::serves`] of all keys of a range.
    pub(super) fn serves_range(&self, bounds: Bounds<&[u8]>) -> bool {
        self.serves_if(|ranges| ranges.hold(bounds))
    }

    #[inline]
    fn serves_if(&self, is_served: impl FnOnce(&KeyRanges) -> bool) -> bool {
        let generation = control::generation(self.words().0);
        if generation == 0 {
            return true;
        }
        let known = self.known().load();
        generation == known.generation && is_served(&known.ranges)
    }

    /// Keeps what of a page is of the range that has its beginning: the next page begins at the
    /// range's end. False if the host does not serve the beginning.
    pub(super) fn clip(&self, page: &mut Page, begin: Bound<&[u8]>, reverse: bool) -> bool {
        let generation = control::generation(self.words().0);
        if generation == 0 {
            return true;
        }
        let known = self.known().load();
        let Some(range) = known.ranges.at(begin, reverse) else { return false };
        page.clip(range, reverse);
        generation == known.generation
    }
}

impl Keyspace {
    /// Asks which keys the host serves, if that has changed. What is read without that knowledge
    /// does not count.
    #[inline]
    pub(super) fn learn_ranges(&self, mapped: &Arc<Mapped>) {
        if !mapped.is_known() {
            self.ask_ranges(mapped);
        }
    }

    #[cold]
    fn ask_ranges(&self, mapped: &Arc<Mapped>) {
        let known = self.ask_routing(u64::MAX, |generation, ranges, _| {
            let range = |(low, high): &(&[u8], Option<&[u8]>)| KeyRange::new(low, *high);
            let ranges = KeyRanges::new(ranges.iter().map(range).collect());
            Ok(Known { generation, ranges: ranges.map_err(Error::invalid)? })
        });
        // What another connection's host says is not of this region. An error is that of the call
        // that follows, too.
        if let Ok(known) = known
            && self.mapped().is_some_and(|now| Arc::ptr_eq(&now, mapped))
        {
            mapped.known().store(Arc::new(known));
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
