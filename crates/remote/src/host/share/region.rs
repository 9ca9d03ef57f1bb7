//! The memory of a shared keyspace: its two parts, and how they grow.
//!
//! Nothing here knows what is written into the memory, but for the empty structure that it begins
//! with.

use std::sync::Arc;

use super::{
    options::{Preset, ShareOptions},
    stats::ShareStats,
};
use crate::{
    error::{Error, Result},
    host::{
        Space, Table,
        replica::{AnyReplica, Arrays},
        two_stage_store::table_in,
    },
    layout::{Geometry, control},
    primitive::AtomicU64,
    region::{CAPACITY_BYTES_MAX, HostRegion, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN},
};

/// The most that a directory and the header can grow to: with the smallest leaves, descriptors of a
/// few hundred million keys.
const CONTROL_BYTES_MAX: u64 = 1 << 30;

/// The most that records of [`Preset::XStore`] can grow to: their places are 32-bit numbers of
/// lines of 64 bytes, and half of what these reach keeps every sum of two of them in range.
const RECORD_BYTES_MAX: u64 = 1 << 37;

/// The two parts of a region.
#[derive(Clone)]
pub(in crate::host) struct Region {
    pub(in crate::host) control: Arc<HostRegion>,
    pub(in crate::host) leaves: Arc<HostRegion>,
}

impl Region {
    pub(super) fn new(options: ShareOptions) -> Result<Self> {
        let capacity =
            options.capacity_bytes.clamp(1, CAPACITY_BYTES_MAX).next_multiple_of(SEGMENT_BYTES_MIN);
        let records = match options.preset {
            Preset::XStore => capacity.min(RECORD_BYTES_MAX),
            Preset::Rhumb | Preset::FineStore => 0,
        };
        let control = Arc::new(HostRegion::new(records.max(CONTROL_BYTES_MAX))?);
        let leaves = Arc::new(HostRegion::new(capacity)?);
        Ok(Self { control, leaves })
    }

    pub(super) fn table(&self, options: ShareOptions) -> Result<Table<Arc<HostRegion>>> {
        let geometry = Geometry::for_entries_of(options.mean_entry_bytes())
            .with_checksums(options.has_checksums);
        let (leaves, control) = (Arc::clone(&self.leaves), Arc::clone(&self.control));
        let mut table = Table::build(geometry, leaves, control, [])?;
        table.set_cared_for();
        Ok(table)
    }

    /// An empty copy of a keyspace of a store.
    pub(super) fn replica(&self, options: ShareOptions) -> Result<AnyReplica> {
        Ok(match options.preset {
            Preset::Rhumb => AnyReplica::Runs(Box::new(self.table(options)?)),
            Preset::XStore => AnyReplica::TwoStage(Box::new(table_in(self, options.tuning())?)),
            Preset::FineStore => AnyReplica::Binned(Box::new(Arrays::new(self, options.arrays())?)),
        })
    }

    /// The memory of the region, and what all assemblies say alike.
    pub(in crate::host) fn stats(&self) -> ShareStats {
        let regions = [self.control.stats(), self.leaves.stats()];
        ShareStats {
            applied: control::applied(self.control.words()),
            mapped_bytes: regions.iter().map(|region| region.bytes).sum(),
            huge_bytes: regions.iter().map(|region| region.huge_bytes).sum(),
            is_live: true,
            ..ShareStats::default()
        }
    }
}

impl Space for HostRegion {
    fn words(&self) -> &[AtomicU64] {
        Self::words(self)
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        let mut left = bytes as u64;
        while left > 0 {
            // Twice as much as there is, so that a large region has few segments.
            let double = self.len_bytes().max(1).next_power_of_two();
            let segment = left.next_power_of_two().max(double);
            let segment = segment.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
            let grown = match Self::grow(self, segment) {
                Err(Error::Full { .. }) if segment > SEGMENT_BYTES_MIN => {
                    Self::grow(self, SEGMENT_BYTES_MIN).map(|()| SEGMENT_BYTES_MIN)
                }
                other => other.map(|()| segment),
            };
            left = left.saturating_sub(grown?);
        }
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests {
    use super::*;

    /// Ten million records of 100 bytes are more than the least that there is.
    #[test]
    fn records_beside_leaves_may_take_what_leaves_may() {
        let region = Region::new(ShareOptions::default().preset(Preset::XStore)).unwrap();
        assert_eq!(region.control.capacity_bytes(), region.leaves.capacity_bytes());
    }
}
