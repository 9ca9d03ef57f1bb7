//! What a client can see of a keyspace's shape, without its host's help.
//!
//! Nothing that is read is trusted: every loop is bounded by the size of the memory, and numbers
//! that cannot be right only make wrong sums.

use super::keyspace::{Keyspace, Mapped};
use crate::{
    binned::BLOCK_LINES,
    clock,
    error::{Error, Result},
    fabric::MappedFabric,
    host::Preset,
    layout::{
        Geometry,
        control::{self, UNIT_WORDS, Units},
        format::{KIND_ASK, LAST, LINE_BYTES, LIVE, UNIT_BYTES},
    },
    leaf::{Leaf, read},
    primitive::{AtomicU64, spin_loop},
    route::directory::{Located, blocks, runs},
    two_stage,
};

/// Looks at one leaf that changes meanwhile, before it is passed over: as many as a get has.
const LOOKS_MAX: u32 = 16;

/// What a shared keyspace looks like to a client: read from the mapped region, while its host may
/// be changing it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// How the keyspace is made.
    pub preset: Preset,
    /// Number of runs of leaves, each of which one line describes; of sub-models in the preset
    /// XStore; 0 in the preset FineStore, whose arrays the host alone knows.
    pub runs: u64,
    /// Number of leaves that lines find. Siblings come on top of these. In the preset XStore all
    /// leaves; 0 in the preset FineStore.
    pub leaves: u64,
    /// Number of blocks that the directory keeps its runs in.
    pub blocks: u64,
    /// Bytes of the directory: its blocks, and the top that finds them.
    pub directory_bytes: u64,
    /// Bytes of one leaf, or of one block of an array.
    pub leaf_bytes: u64,
    /// Number of entries that a leaf, or a block, has room for.
    pub leaf_room: u64,
    /// Bytes that are mapped of the control part: the header and the directory.
    pub control_bytes: u64,
    /// Bytes that are mapped of the part with the leaves.
    pub leaves_bytes: u64,
    /// Sequence number of the last write that can be read.
    pub applied: u64,
    /// Milliseconds since the host last said that it is there; `None` if it has ended.
    pub heartbeat_age_ms: Option<u64>,
    /// Milliseconds for which the region is read without such a sign.
    pub lease_ms: u64,
    /// What is in the leaves, if they were walked: those of the preset FineStore are not.
    pub walk: Option<Walk>,
}

/// What a walk through all leaves found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Walk {
    /// Number of leaves that were read, siblings included.
    pub leaves: u64,
    /// Number of these that no line finds: a get comes to them by a link from another leaf.
    pub siblings: u64,
    /// The most siblings one after another.
    pub siblings_in_a_row: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of these whose values are not in the leaves: a get of them asks the host.
    pub asked: u64,
    /// Bytes of the leaves that are in use: heads, fences and records.
    pub used_bytes: u64,
    /// Number of leaves that could not be read, because they changed all the while.
    pub unread: u64,
    /// Number of runs that the host had replaced by the time that they were read.
    pub runs_replaced: u64,
}

impl Inspection {
    /// Bytes of memory that are mapped.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.control_bytes + self.leaves_bytes
    }
}

impl Walk {
    /// Entries of a leaf on average; 0 without leaves.
    #[must_use]
    pub fn entries_per_leaf(&self) -> f64 {
        self.entries as f64 / self.leaves.max(1) as f64
    }

    /// The share of a leaf's bytes that is in use on average, from 0 to 1, where leaves have
    /// `leaf_bytes`.
    #[must_use]
    pub fn fill(&self, leaf_bytes: u64) -> f64 {
        self.used_bytes as f64 / self.leaves.saturating_mul(leaf_bytes).max(1) as f64
    }
}

impl Keyspace {
    /// Describes the keyspace as its region is now, without a call. With `walk` it reads every leaf
    /// as well: 100 ns for each, more or less.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a region without a directory; [`Error::Unsupported`] over TCP, where
    /// no region is mapped.
    pub fn inspect(&self, walk: bool) -> Result<Inspection> {
        let apart = || Error::Unsupported("a region is inspected on its own machine".into());
        let mapped = self.mapped().ok_or_else(apart)?;
        let (control, leaves) = mapped.words();
        let Some(geometry) = mapped.geometry() else { return inspect_models(&mapped, walk) };
        let region = Region { control, leaves, geometry };
        region.inspect(mapped.lease_ms(), clock::now_ms(), walk)
    }
}

/// Describes a keyspace whose clients keep models.
fn inspect_models(mapped: &Mapped, walk: bool) -> Result<Inspection> {
    let (control, leaves) = mapped.words();
    let beat = control::heartbeat(control);
    let mut seen = Inspection {
        preset: mapped.models().map_or(Preset::FineStore, |models| models.preset()),
        runs: 0,
        leaves: 0,
        blocks: 0,
        directory_bytes: 0,
        leaf_bytes: u64::from(BLOCK_LINES) * LINE_BYTES as u64,
        leaf_room: mapped.models().map_or(0, |models| models.block_records() as u64),
        control_bytes: control.len() as u64 * 8,
        leaves_bytes: leaves.len() as u64 * 8,
        applied: control::applied(control),
        heartbeat_age_ms: (beat != 0).then(|| clock::now_ms().saturating_sub(beat)),
        lease_ms: mapped.lease_ms(),
        walk: None,
    };
    if seen.preset == Preset::XStore {
        let shape = two_stage::inspect(&MappedFabric::new(control, leaves), leaves.len(), walk)?;
        (seen.runs, seen.leaves) = (shape.sub_models, shape.leaves);
        (seen.leaf_bytes, seen.leaf_room) = (shape.leaf_bytes, shape.leaf_room);
        seen.walk = walk.then(|| Walk {
            leaves: shape.leaves - shape.unread,
            entries: shape.pairs,
            asked: shape.asked,
            used_bytes: shape.used_bytes,
            unread: shape.unread,
            ..Walk::default()
        });
    }
    Ok(seen)
}

/// A region that is mapped.
struct Region<'r> {
    control: &'r [AtomicU64],
    leaves: &'r [AtomicU64],
    geometry: Geometry,
}

/// What one leaf holds, and where the next one is.
struct LeafSurvey {
    run: u32,
    next: Option<u32>,
    entries: u64,
    asked: u64,
    used_bytes: u64,
}

impl<'r> Region<'r> {
    fn inspect(&self, lease_ms: u64, now_ms: u64, walk: bool) -> Result<Inspection> {
        let top = control::top(self.control);
        let top = top.filter(|top| top.count > 0 && top.of(self.control).is_some());
        let top = top.ok_or_else(|| Error::invalid("a region without a directory"))?;
        let beat = control::heartbeat(self.control);
        let bytes = |words: &[AtomicU64]| words.len() as u64 * 8;
        let mut seen = Inspection {
            preset: Preset::Rhumb,
            runs: 0,
            leaves: 0,
            blocks: 0,
            directory_bytes: 0,
            leaf_bytes: self.geometry.leaf_bytes() as u64,
            leaf_room: self.geometry.room() as u64,
            control_bytes: bytes(self.control),
            leaves_bytes: bytes(self.leaves),
            applied: control::applied(self.control),
            heartbeat_age_ms: (beat != 0).then(|| now_ms.saturating_sub(beat)),
            lease_ms,
            walk: None,
        };
        let mut found = Walk::default();
        // No leaf has two places, so that a walk of more steps goes in circles.
        let mut steps = self.leaves.len() / self.geometry.leaf_words();
        for block in self.blocks(top) {
            seen.blocks += 1;
            for run in runs(block) {
                seen.runs += 1;
                seen.leaves = seen.leaves.saturating_add(u64::from(run.leaves));
                if walk {
                    self.walk(run, &mut steps, &mut found);
                }
            }
        }
        seen.directory_bytes = (seen.blocks + u64::from(top.count)) * UNIT_BYTES as u64;
        seen.walk = walk.then_some(found);
        Ok(seen)
    }

    /// The words of each block of the directory: at most as many as the region has room for.
    fn blocks(&self, top: Units) -> impl Iterator<Item = &'r [AtomicU64]> {
        let control = self.control;
        let units = top.of(control).into_iter().flat_map(blocks).take(control.len() / UNIT_WORDS);
        units.filter_map(move |unit| Units { first: unit, count: 1 }.of(control))
    }

    /// Walks through the leaves of one run.
    fn walk(&self, run: Located, steps: &mut usize, found: &mut Walk) {
        let mut slot = run.base;
        let mut in_a_row = 0;
        loop {
            if *steps == 0 {
                return;
            }
            *steps -= 1;
            let Some(words) = self.words(slot) else { return };
            let seen = match self.look(words) {
                None => {
                    found.unread += 1;
                    return;
                }
                Some(Some(seen)) if seen.run == run.run => seen,
                // The leaf of another run, or of none.
                Some(_) => {
                    found.runs_replaced += u64::from(slot == run.base);
                    return;
                }
            };
            found.leaves += 1;
            let is_sibling = slot.wrapping_sub(run.base) >= run.leaves;
            in_a_row = if is_sibling { in_a_row + 1 } else { 0 };
            found.siblings += u64::from(is_sibling);
            found.siblings_in_a_row = found.siblings_in_a_row.max(in_a_row);
            found.entries += seen.entries;
            found.asked += seen.asked;
            found.used_bytes += seen.used_bytes;
            let Some(next) = seen.next else { return };
            slot = next;
        }
    }

    fn words(&self, slot: u32) -> Option<&'r [AtomicU64]> {
        let len = self.geometry.leaf_words();
        let begin = (slot as usize).checked_mul(len)?;
        self.leaves.get(begin..begin.checked_add(len)?)
    }

    /// What a leaf holds, or that it answers for nothing; `None` if it never stood still.
    fn look(&self, words: &[AtomicU64]) -> Option<Option<LeafSurvey>> {
        for _ in 0..LOOKS_MAX {
            if let Some(seen) = read(words, || self.seen(words)) {
                return Some(seen);
            }
            spin_loop();
        }
        None
    }

    fn seen(&self, words: &[AtomicU64]) -> Option<LeafSurvey> {
        let leaf = Leaf::new(words, self.geometry);
        let head = leaf.head();
        if head.flags & LIVE == 0 {
            return None;
        }
        let records = (0..head.count).filter_map(|index| leaf.record(index));
        Some(LeafSurvey {
            run: head.run,
            next: (head.flags & LAST == 0).then(|| leaf.next()),
            entries: head.count as u64,
            asked: records.filter(|record| record.kind == KIND_ASK).count() as u64,
            used_bytes: head.used.min(self.geometry.leaf_bytes()) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        host::{Table, heap::HeapSpace},
        primitive::Ordering,
    };

    /// Entries of the tables.
    const KEYS: u64 = 3_000;

    struct Spaces {
        leaves: Arc<HeapSpace>,
        control: Arc<HeapSpace>,
        table: Table<Arc<HeapSpace>>,
    }

    /// A table of entries, one in a hundred of which is too large for a leaf.
    fn filled(keys: impl Iterator<Item = u64>) -> Spaces {
        let space = || Arc::new(HeapSpace::new(1 << 18, 4 << 20));
        let (leaves, control) = (space(), space());
        let geometry = Geometry::new(1024, 24).unwrap();
        let mut table =
            Table::build(geometry, Arc::clone(&leaves), Arc::clone(&control), []).unwrap();
        for n in keys {
            let value = vec![7; if n % 100 == 0 { 2_000 } else { 16 }];
            table.set(&n.to_be_bytes(), &value, n + 1).unwrap();
        }
        table.publish(KEYS);
        Spaces { leaves, control, table }
    }

    impl Spaces {
        fn region(&self) -> Region<'_> {
            let geometry = self.table.geometry();
            Region { control: self.control.all(), leaves: self.leaves.all(), geometry }
        }
    }

    #[test]
    fn what_is_there_is_counted() {
        // Scattered, so that leaves split in their middle.
        let spaces = filled((0..KEYS).map(|n| n * 1_237 % KEYS));
        control::set_heartbeat(spaces.control.all(), 500);
        let seen = spaces.region().inspect(1_000, 520, true).unwrap();
        let walk = seen.walk.unwrap();
        assert_eq!((walk.entries, walk.asked), (KEYS, KEYS / 100));
        assert_eq!(
            (seen.runs, walk.leaves),
            (spaces.table.run_count() as u64, spaces.table.leaf_count())
        );
        assert_eq!(seen.leaves + walk.siblings, walk.leaves);
        assert_eq!((walk.unread, walk.runs_replaced), (0, 0));
        assert_eq!((seen.applied, seen.heartbeat_age_ms), (KEYS, Some(20)));
        assert_eq!((seen.leaf_bytes, seen.leaf_room, seen.mapped_bytes()), (1024, 24, 8 << 20));
        assert!(seen.blocks >= 1 && seen.directory_bytes >= 2 * UNIT_BYTES as u64);
        let fill = walk.fill(seen.leaf_bytes);
        assert!((0.3..=1.0).contains(&fill) && walk.entries_per_leaf() > 5.0, "{walk:?}");
        control::set_heartbeat(spaces.control.all(), 0);
        let seen = spaces.region().inspect(1_000, 520, false).unwrap();
        assert_eq!((seen.heartbeat_age_ms, seen.walk), (None, None));
    }

    #[test]
    fn siblings_are_those_that_no_line_finds() {
        let mut spaces = filled((0..KEYS).map(|n| n * 2));
        let before = spaces.region().inspect(0, 0, true).unwrap();
        // Enough keys at one place to split its leaf, and too few for its run to be built anew.
        for n in 0..30_u64 {
            let key = [&1_001_u64.to_be_bytes()[..], &[n as u8]].concat();
            spaces.table.set(&key, &[7; 16], KEYS + n).unwrap();
        }
        spaces.table.publish(KEYS + 30);
        let after = spaces.region().inspect(0, 0, true).unwrap();
        let (old, new) = (before.walk.unwrap(), after.walk.unwrap());
        assert_eq!(new.entries, KEYS + 30);
        assert_eq!(after.leaves + new.siblings, spaces.table.leaf_count());
        assert!(new.leaves > old.leaves, "{old:?} {new:?}");
        assert_eq!(new.siblings > 0, new.siblings_in_a_row > 0);
    }

    #[test]
    fn a_walk_beside_a_writer_counts_what_stays() {
        let mut spaces = filled((0..KEYS).map(|n| n * 1_237 % KEYS));
        let (control, leaves) = (Arc::clone(&spaces.control), Arc::clone(&spaces.leaves));
        let geometry = spaces.table.geometry();
        let region = Region { control: control.all(), leaves: leaves.all(), geometry };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..20_000_u64 {
                    let key = [&(n % KEYS).to_be_bytes()[..], &[(n / KEYS) as u8]].concat();
                    spaces.table.set(&key, &[7; 16], KEYS + n).unwrap();
                    spaces.table.publish(KEYS + n);
                }
            });
            while !writer.is_finished() {
                let walk = region.inspect(0, 0, true).unwrap().walk.unwrap();
                assert!(walk.leaves + walk.unread > 0, "{walk:?}");
                assert!(walk.entries <= 24 * walk.leaves, "{walk:?}");
                assert!(walk.siblings <= walk.leaves && walk.asked <= walk.entries, "{walk:?}");
                if walk.unread + walk.runs_replaced == 0 {
                    assert!(walk.asked > 0, "{walk:?}");
                }
            }
        });
        let walk = spaces.region().inspect(0, 0, true).unwrap().walk.unwrap();
        assert_eq!((walk.entries, walk.asked), (KEYS + 20_000, KEYS / 100));
    }

    #[test]
    fn a_region_without_a_directory_is_an_error() {
        let spaces = filled(0..10);
        spaces.control.all()[crate::layout::format::control::TOP].store(0, Ordering::Relaxed);
        let error = spaces.region().inspect(0, 0, true).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }

    proptest! {
        #[test]
        fn damaged_regions_end_every_walk(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<bool>()), 1..200),
            word in prop::sample::select(vec![0u64, 1, u64::MAX, 0xffff_ffff]),
        ) {
            let spaces = filled(0..KEYS);
            for (at, mask, is_leaf) in flips {
                let words = if is_leaf { spaces.leaves.all() } else { spaces.control.all() };
                let words = &words[..words.len() / 4];
                words[at.index(words.len())].store(mask & word, Ordering::Relaxed);
            }
            if let Ok(seen) = spaces.region().inspect(0, 0, true) {
                let walk = seen.walk.unwrap();
                prop_assert!(walk.leaves <= spaces.leaves.all().len() as u64 / 128);
                prop_assert!(walk.siblings <= walk.leaves && walk.entries <= 24 * walk.leaves);
            }
        }
    }
}
