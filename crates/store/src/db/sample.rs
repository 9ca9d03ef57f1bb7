//! Random keys, each as likely as any other.
//!
//! A draw takes any entry of all sources, which are the blocks of the keyspace's tables and the
//! memtables. It is void unless that entry is the newest version of a living key, so each key has
//! one entry by which it is drawn. All entries are equally likely: a source is chosen in proportion
//! to its places, and then one of its places. A memtable has a place for each version, of any
//! keyspace; all blocks of a table have the same number of places ([`Table::slots_per_block`]).
//!
//! The cost of a draw depends on how many places have no living key of the keyspace: overwritten
//! and deleted entries that are not yet compacted away, entries of other keyspaces in memory, and
//! unused places of blocks that have fewer entries than others. The number of tries is bounded, so
//! a draw in a keyspace in which nearly everything is dead gives up.

use rhumb_sync::{epoch::pin, primitive::Arc};

use super::keyspace::Keyspace;
use crate::{
    error::Result,
    memtable::MemView,
    slice::Slice,
    table::{Drawn, KeyHash, Lookup, Table},
    tree::Tree,
    types::{SeqNo, TreeId},
    version::levels::Levels,
};

/// The largest number of places that a draw tries. Chosen, not measured: if one place in a thousand
/// has a living key, all tries fail once in 60 draws. A try in memory costs less than a
/// microsecond.
const TRIES_MAX: usize = 4096;

/// The largest number of blocks that a draw looks into. Chosen, not measured: each may be a read of
/// the disk, so that a draw which fails takes about 25 ms where a read takes 100 µs.
const BLOCKS_MAX: usize = 256;

/// The work that a draw did.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    /// The number of places that it tried.
    tries: usize,
    /// The number of blocks that it looked into.
    blocks: usize,
}

impl Keyspace {
    /// A random key and its value: each key is as likely as any other. `below` returns a random
    /// number below its argument, which is larger than 0, each as likely as any other.
    ///
    /// `None` if there is no key, or if nearly all entries of the keyspace are overwritten or
    /// deleted and not yet compacted away, so that 4,096 tries and 256 blocks found no key. A walk
    /// then finds one. Also `None` while entries are in a memtable of [`MemtableKind::SkipList`],
    /// which does not number them.
    ///
    /// O(tables + partitions), and a try costs O(log n) in memory or one block. If nothing was
    /// overwritten or deleted, a draw looks into at most 1.5 blocks on average: 1.25 to find an
    /// entry, and those of other tables that may have a newer version of its key. Two kinds of keys
    /// are less likely than others: a key that is written while it is drawn may be missed, and in a
    /// block with more entries than the table's other blocks, the last keys are drawn only after a
    /// draw has looked into that block once.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// let keyspace = db.keyspace("k", rhumb::KeyspaceOptions::default())?;
    /// assert!(keyspace.sample(|_| 0)?.is_none());
    /// keyspace.insert("a", "1")?;
    /// let (key, value) = keyspace.sample(|_| 0)?.unwrap();
    /// assert_eq!((&*key, &*value), (&b"a"[..], &b"1"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    ///
    /// [`MemtableKind::SkipList`]: crate::MemtableKind::SkipList
    pub fn sample(&self, mut below: impl FnMut(u64) -> u64) -> Result<Option<(Slice, Slice)>> {
        self.core().shared.check_process()?;
        self.draw(&mut below, &mut Steps::default())
    }

    fn draw(
        &self,
        below: &mut dyn FnMut(u64) -> u64,
        steps: &mut Steps,
    ) -> Result<Option<(Slice, Slice)>> {
        let sources = Sources::of(self);
        let Some(mut places) = sources.places() else { return Ok(None) };
        while steps.tries < TRIES_MAX && steps.blocks < BLOCKS_MAX {
            let total = places.last().map_or(0, |(end, _)| *end);
            if total == 0 {
                return Ok(None);
            }
            let drawn = below(total).min(total - 1);
            steps.tries += 1;
            let at = places.partition_point(|(end, _)| *end <= drawn);
            let start = at.checked_sub(1).map_or(0, |before| places[before].0);
            let key = match places[at].1 {
                Source::Memtable(nth) => sources.in_memtable(nth, drawn - start, steps)?,
                Source::Table(tree, table, places_each) => {
                    let place = drawn - start;
                    let (block, place) = (place / places_each, place % places_each);
                    steps.blocks += 1;
                    match table.draw(block as u32, place as usize, sources.seq)? {
                        Drawn::Nothing => None,
                        Drawn::Crowded => {
                            places = sources.places().unwrap_or_default();
                            None
                        }
                        Drawn::Value(key, seq) => {
                            let is_newest = !sources.is_in_memory(tree, &key, seq)
                                && sources.is_newest_of_tables(
                                    tree,
                                    &key,
                                    seq,
                                    Some(table),
                                    steps,
                                )?;
                            is_newest.then_some(key)
                        }
                    }
                }
            };
            // Range tombstones may hide it.
            if let Some(key) = key
                && let Some(value) = self.get(&key)?
            {
                return Ok(Some((key.into(), value)));
            }
        }
        Ok(None)
    }
}

/// A source of entries to draw from.
#[derive(Clone, Copy)]
enum Source<'s> {
    /// A memtable, by its index, the newest first.
    Memtable(usize),
    /// A table, the LSM tree that it belongs to, and the number of places of each of its blocks.
    Table(TreeId, &'s Table, u64),
}

/// The contents of a keyspace at one moment.
struct Sources {
    view: Arc<MemView>,
    /// By id.
    trees: Vec<(Arc<Tree>, Arc<Levels>)>,
    seq: SeqNo,
}

impl Sources {
    fn of(keyspace: &Keyspace) -> Self {
        // Memtables are loaded first: a flush moves entries to tables, so none is missed between
        // them. The sequence number is taken last: what was replaced before that is no longer
        // there.
        let view = keyspace.core().memtables.get();
        let trees = keyspace.inner.tree.get().with_partitions();
        let with_levels = |tree: Arc<Tree>| {
            let levels = tree.levels.get();
            (tree, levels)
        };
        let mut trees: Vec<_> = trees.into_iter().map(with_levels).collect();
        trees.sort_unstable_by_key(|(tree, _)| tree.id);
        Self { view, trees, seq: keyspace.core().writer.visible_seq() }
    }

    /// The sources, each with the number of places of all sources up to and including it; `None` if
    /// a memtable has entries of the keyspace that are not numbered.
    fn places(&self) -> Option<Vec<(u64, Source<'_>)>> {
        let (mut places, mut end) = (Vec::new(), 0);
        for (nth, memtable) in self.view.all().enumerate() {
            if self.trees.iter().any(|(tree, _)| memtable.has_entries_of(tree.id)) {
                end += memtable.versions()?;
                places.push((end, Source::Memtable(nth)));
            }
        }
        for (tree, levels) in &self.trees {
            for (_, table) in levels.all() {
                let places_each = table.slots_per_block();
                end += table.block_count() * places_each;
                places.push((end, Source::Table(tree.id, table, places_each)));
            }
        }
        Some(places)
    }

    fn levels(&self, tree: TreeId) -> Option<&Levels> {
        let at = self.trees.binary_search_by_key(&tree, |(tree, _)| tree.id).ok()?;
        Some(&self.trees[at].1)
    }

    /// The key of a memtable's version, if it is the newest version of a key of this keyspace.
    fn in_memtable(&self, nth: usize, version: u64, steps: &mut Steps) -> Result<Option<Vec<u8>>> {
        let drawn = self.view.all().nth(nth).and_then(|it| it.newest_at(version, self.seq));
        let Some((tree, key, seq)) = drawn.filter(|(tree, ..)| self.levels(*tree).is_some()) else {
            return Ok(None);
        };
        let is_newest = !self.is_in_memory(tree, key, seq + 1)
            && self.is_newest_of_tables(tree, key, seq, None, steps)?;
        Ok(is_newest.then(|| key.to_vec()))
    }

    /// Returns true if a memtable has a version of the key whose sequence number is at least `seq`.
    fn is_in_memory(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> bool {
        let newest = |memtable: &Arc<crate::memtable::Memtable>| {
            memtable.get(tree, key, self.seq).is_some_and(|entry| entry.seq() >= seq)
        };
        self.view.all().any(newest)
    }

    /// Returns true if no table but `but` has a version of the key whose sequence number is greater
    /// than `seq`.
    fn is_newest_of_tables(
        &self,
        tree: TreeId,
        key: &[u8],
        seq: SeqNo,
        but: Option<&Table>,
        steps: &mut Steps,
    ) -> Result<bool> {
        let Some(levels) = self.levels(tree) else { return Ok(true) };
        let (hash, code) = (KeyHash::of(key), rhumb_model::code::code_at(key, 0));
        let mut at = 0;
        while let Some(candidate) = levels.candidate(at, key, code) {
            at += 1;
            let is_other = |table: &Table| but.is_none_or(|but| !std::ptr::eq(but, table));
            let may_hold = |table: &&Arc<Table>| table.meta().seq_max > seq && is_other(table);
            let Some(table) = candidate.filter(may_hold) else { continue };
            let lookup = table.lookup(&pin(), None, key, hash, self.seq)?;
            steps.blocks += usize::from(!matches!(lookup, Lookup::Absent));
            let found = match table.resolve(lookup, key, hash, self.seq)? {
                Lookup::Tombstone(found)
                | Lookup::Value(found, _)
                | Lookup::Large(found, _)
                | Lookup::Expiring(found, _) => found,
                Lookup::Absent | Lookup::Need(_) | Lookup::Unsure(_) => 0,
            };
            if found > seq {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use rhumb_testkit::random::Random;

    use super::*;
    use crate::{
        Database, KeyspaceOptions, MemtableKind, Partitioning, TableOptions, io::sim::SimFs,
    };

    /// Draws numbers below another, without a bias.
    fn generator(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut random = Random::new(seed);
        move |end| ((u128::from(random.next()) * u128::from(end)) >> 64) as u64
    }

    fn open(kind: MemtableKind) -> Database {
        let builder = Database::builder("/db").file_system(Arc::new(SimFs::new(5)));
        builder.memtable_kind(kind).background_threads(0).open().unwrap()
    }

    /// The deviation of counts of draws from equality, in standard deviations of the chi-square
    /// statistic, by Wilson and Hilferty's approximation.
    fn deviation(keyspace: &Keyspace, keys: u64, seed: u64) -> f64 {
        let mut below = generator(seed);
        let mut counts: std::collections::HashMap<Vec<u8>, u64> =
            keyspace.iter().map(|pair| (pair.unwrap().0.to_vec(), 0)).collect();
        assert_eq!(counts.len() as u64, keys);
        let draws = keys * 20;
        for _ in 0..draws {
            let (key, value) = keyspace.sample(&mut below).unwrap().expect("there are keys");
            assert_eq!(keyspace.get(&key).unwrap(), Some(value));
            *counts.get_mut(&*key).expect("it is there") += 1;
        }
        let statistic: f64 = counts.values().map(|n| (*n as f64 - 20.0).powi(2) / 20.0).sum();
        let freedom = keys as f64 - 1.0;
        let spread = 2.0 / (9.0 * freedom);
        ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
    }

    #[track_caller]
    fn assert_equal_chances(keyspace: &Keyspace, keys: u64) {
        let deviation = deviation(keyspace, keys, keys);
        assert!(deviation < 5.0, "of {keys}: {deviation:.1} deviations");
    }

    /// Inserts keys that are close together or far apart, with values of very different lengths, so
    /// that blocks have from one to many entries.
    fn fill(keyspace: &Keyspace, keys: std::ops::Range<u64>, what: &str) {
        for n in keys {
            let len = if n % 7 == 0 { 900 } else { (n % 5) as usize };
            keyspace.insert(format!("{}/{n:05}", n % 4), format!("{what}{:len$}", "")).unwrap();
        }
    }

    /// The same in memory, in one table, in several tables of which some cover others, and
    /// compacted; among other keyspaces; with overwritten and removed keys; with and without
    /// partitions.
    #[test]
    fn keys_have_equal_chances_wherever_they_lie() {
        for partitions in [Partitioning::None, Partitioning::Delimiter(b'/')] {
            let db = open(MemtableKind::Learned);
            let table = TableOptions { block_bytes: Some(512), ..TableOptions::default() };
            let keyspace = db
                .keyspace("k", KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() })
                .unwrap();
            let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
            fill(&keyspace, 0..300, "first");
            fill(&other, 0..100, "another's");
            assert_equal_chances(&keyspace, 300);
            db.flush().unwrap();
            assert_equal_chances(&keyspace, 300);
            // Overwritten in memory, above a table.
            fill(&keyspace, 0..100, "second");
            (200..250).for_each(|n| keyspace.remove(format!("{}/{n:05}", n % 4)).unwrap());
            assert_equal_chances(&keyspace, 250);
            db.flush().unwrap();
            // The same keys again and again, and new ones.
            (0..20).for_each(|_| fill(&keyspace, 40..60, "often"));
            fill(&keyspace, 1000..1100, "new");
            assert_equal_chances(&keyspace, 350);
            keyspace.remove_range("0/".."1/").unwrap();
            let left = keyspace.iter().count() as u64;
            assert_equal_chances(&keyspace, left);
            keyspace.compact().unwrap();
            assert_equal_chances(&keyspace, left);
            keyspace.clear().unwrap();
            assert!(keyspace.sample(|_| 0).unwrap().is_none());
            fill(&keyspace, 0..3, "few");
            assert_equal_chances(&keyspace, 3);
            // Written again and again by one batch.
            let mut batch = db.batch();
            for n in [0, 1, 0, 0, 2, 0] {
                batch.insert(&keyspace, format!("{n}/{n:05}"), "twice");
            }
            batch.commit().unwrap();
            assert_equal_chances(&keyspace, 3);
        }
    }

    /// Counts blocks: a draw looks into few of them, however many keys there are.
    #[test]
    fn a_draw_looks_into_few_blocks() {
        let sizes = std::env::var("RHUMB_SAMPLE_KEYS").unwrap_or("10000,60000".to_owned());
        for keys in sizes.split(',').map(|keys| keys.parse::<u64>().unwrap()) {
            let db = open(MemtableKind::Learned);
            let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
            for from in (0..keys).step_by(1000) {
                let mut batch = db.batch();
                for n in from..keys.min(from + 1000) {
                    batch.insert(
                        &keyspace,
                        (n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes(),
                        "value",
                    );
                }
                batch.commit().unwrap();
            }
            let mut below = generator(keys);
            let mut draw = |place: &str, tries_max: f64, blocks_max: f64| {
                let mut steps = Steps::default();
                for _ in 0..1000 {
                    let mut one = Steps::default();
                    assert!(keyspace.draw(&mut below, &mut one).unwrap().is_some());
                    steps.tries += one.tries;
                    steps.blocks += one.blocks;
                }
                let mean = |steps: usize| steps as f64 / 1000.0;
                let (tries, blocks) = (mean(steps.tries), mean(steps.blocks));
                println!("{keys} keys {place}: {tries:.2} tries and {blocks:.2} blocks a draw");
                assert!(tries <= tries_max && blocks <= blocks_max, "{steps:?}");
            };
            // Of a million keys some are in tables already.
            draw("as they were written", 1.5, 1.5);
            db.flush().unwrap();
            draw("in tables", 1.5, 1.5);
        }
    }

    /// A draw among dead entries gives up after a bounded number of tries, and one among entries
    /// that are not numbered gives up at once.
    #[test]
    fn tries_are_bounded() {
        let db = open(MemtableKind::Learned);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let keys = |n: u32| n.to_be_bytes();
        (0..20_000).for_each(|n| keyspace.insert(keys(n), "value").unwrap());
        (0..20_000).for_each(|n| keyspace.remove(keys(n)).unwrap());
        let mut steps = Steps::default();
        assert!(keyspace.draw(&mut generator(1), &mut steps).unwrap().is_none());
        assert_eq!((steps.tries, steps.blocks), (TRIES_MAX, 0));
        let snapshot = db.snapshot();
        db.flush().unwrap();
        let mut steps = Steps::default();
        assert!(keyspace.draw(&mut generator(1), &mut steps).unwrap().is_none());
        assert!(steps.blocks <= BLOCKS_MAX, "{steps:?}");
        drop(snapshot);
        let db = open(MemtableKind::SkipList);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        keyspace.insert("a", "1").unwrap();
        assert!(keyspace.sample(|_| 0).unwrap().is_none());
        db.flush().unwrap();
        assert!(keyspace.sample(|_| 0).unwrap().is_some());
    }
}
