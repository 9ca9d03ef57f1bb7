//! The life of keyspaces, and the end of the database.
//!
//! Creating, clearing and dropping keyspaces are manifest edits. They are durable when the call
//! returns, and a log record of a LSM tree that the manifest does not know is never replayed.

use std::{
    collections::HashSet,
    sync::{Weak, atomic::Ordering},
};

use rhumb_sync::{
    drop_queue::DropQueue,
    primitive::{Arc, AtomicBool, Mutex},
    published::Published,
};

use super::{
    catalog::Catalog,
    core::Core,
    hold::Held,
    keyspace::{KeyspaceInner, Retired},
    writer::WriteState,
};
use crate::{
    error::{Error, Result},
    options::{KeyspaceOptions, LiveOptions, PersistMode},
    partition::{NAME_BYTES_MAX, Partitioning, Router},
    tree::{PartitionMap, Tree},
    types::{SeqNo, TreeId},
    version::{
        edit::{Edit, EventKind, KeyspaceEvent},
        levels::Levels,
    },
};

impl Core {
    /// Opens keyspaces, in the order of their names, creates those that are missing, and changes
    /// the options of those that have others: all or none, with one edit of the manifest and one
    /// sync.
    pub(crate) fn open_keyspaces(
        &self,
        names: &[&str],
        options: &KeyspaceOptions,
    ) -> Result<Vec<Arc<KeyspaceInner>>> {
        for name in names {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let what =
                    format!("the name of a keyspace has 1 to {NAME_BYTES_MAX} bytes: {name:?}");
                return Err(Error::InvalidArgument(what.into()));
            }
        }
        options.check()?;
        let router = Router::new(&options.partitions, &self.shared.functions)?;
        self.shared.check_process()?;
        {
            let catalog = self.lock_catalog();
            let (new, changed) = missing(&catalog, names, options)?;
            if new.is_empty() && changed.is_empty() {
                return Ok(found(&catalog, names));
            }
        }
        self.shared.check_takes_writes()?;
        self.open_keyspaces_in(&mut *self.lock_to_change()?, names, options, &router)
    }

    /// As [`Core::open_keyspaces`], of names and options that were checked, under the write lock.
    ///
    /// Each keyspace that is created or changed takes a sequence number of its own, so that streams
    /// of changes know between which writes it happened.
    pub(super) fn open_keyspaces_in(
        &self,
        state: &mut WriteState,
        names: &[&str],
        options: &KeyspaceOptions,
        router: &Router,
    ) -> Result<Vec<Arc<KeyspaceInner>>> {
        self.shared.check_running()?;
        let mut catalog = self.lock_catalog();
        let (new, changed) = missing(&catalog, names, options)?;
        if new.is_empty() && changed.is_empty() {
            // Another thread was faster.
            return Ok(found(&catalog, names));
        }
        let first = state.next_seq;
        let created = new.iter().map(|name| (*name, options.encode()));
        let changed_to = changed.iter().map(|(inner, wanted)| (&*inner.name, wanted.encode()));
        let mut edits: Vec<Edit> = changed
            .iter()
            .flat_map(|(inner, wanted)| catalog.state.change_options(inner.id, wanted.encode()))
            .collect();
        for (seq, (name, options)) in (first..).zip(created.chain(changed_to)) {
            edits.extend(event_edits(seq, name, EventKind::Opened { options }, &[]));
        }
        self.create_keyspaces(&mut catalog, edits, &new, options, router)?;
        changed.iter().for_each(|(inner, wanted)| inner.options.set(wanted));
        state.next_seq += (new.len() + changed.len()) as SeqNo;
        self.writer.visible.store(state.next_seq - 1, Ordering::Release);
        self.writer.wake_waiting(state);
        // All of them exist now.
        Ok(found(&catalog, names))
    }

    /// Creates keyspaces of different names, none of which exists, together with other edits.
    fn create_keyspaces(
        &self,
        catalog: &mut Catalog,
        mut edits: Vec<Edit>,
        names: &[&str],
        options: &KeyspaceOptions,
        router: &Router,
    ) -> Result<()> {
        let first = catalog.state.next_keyspace;
        let ids: Vec<(u32, TreeId)> =
            (first..).zip(names).map(|(id, _)| (id, self.shared.new_tree_id())).collect();
        edits.extend(names.iter().zip(&ids).map(|(name, &(id, tree))| Edit::CreateKeyspace {
            id,
            name: (*name).to_owned(),
            options: options.encode(),
            tree,
        }));
        catalog.state.next_keyspace = ids.last().map_or(first, |(last, _)| last + 1);
        catalog.commit(&self.shared, edits)?;
        for (name, (id, tree)) in names.iter().zip(ids) {
            let (levels, none) = (Levels::default(), PartitionMap::default());
            let options = Arc::new(LiveOptions::new(options));
            let tree = Tree::root(tree, options, levels, none, 0, &self.shared.drops);
            let (name, router) = ((*name).into(), router.clone());
            let inner = KeyspaceInner::new(id, name, Arc::clone(&tree), router, &self.shared.drops);
            self.trees.lock().add(tree);
            catalog.keyspaces.insert(Arc::clone(&inner.name), inner);
        }
        Ok(())
    }

    /// Drops a keyspace. Returns false if there was none.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.shared.check_takes_writes()?;
        let inner = self.lock_catalog().keyspaces.get(name).cloned();
        let Some(inner) = inner else { return Ok(false) };
        self.retire_tree(self.lock_to_change()?, &inner, true)
    }

    /// Empties a keyspace.
    pub(crate) fn clear_keyspace(&self, inner: &Arc<KeyspaceInner>) -> Result<()> {
        self.shared.check_takes_writes()?;
        if self.retire_tree(self.lock_to_change()?, inner, false)? {
            return Ok(());
        }
        Err(Error::KeyspaceDropped(Arc::clone(&inner.name)))
    }

    /// Removes a keyspace's LSM tree, with those of its partitions, and gives the keyspace a new
    /// one unless it is dropped. Returns false if the keyspace was dropped already.
    pub(super) fn retire_tree(
        &self,
        mut state: Held<'_, WriteState>,
        inner: &Arc<KeyspaceInner>,
        drop_keyspace: bool,
    ) -> Result<bool> {
        let mut catalog = self.lock_catalog();
        if inner.dropped.load(Ordering::Acquire) {
            return Ok(false);
        }
        // The change takes a sequence number of its own, so that every snapshot is before or after
        // it.
        let at = state.next_seq;
        let old = inner.tree.get();
        let new_id = self.shared.new_tree_id();
        let edit = if drop_keyspace {
            Edit::DropKeyspace { id: inner.id }
        } else {
            Edit::ReplaceTree { keyspace: inner.id, old: old.id, new: new_id }
        };
        let what = if drop_keyspace { EventKind::Dropped } else { EventKind::Cleared };
        let gone = old.with_partitions();
        let mut edits = vec![edit];
        edits.extend(event_edits(at, &inner.name, what, &gone));
        catalog.commit(&self.shared, edits)?;
        state.next_seq += 1;
        let (options, none) = (Arc::clone(&inner.options), PartitionMap::default());
        let new = Tree::root(new_id, options, Levels::default(), none, at, &self.shared.drops);
        if drop_keyspace {
            catalog.keyspaces.remove(&inner.name);
            inner.dropped.store(true, Ordering::Release);
        } else {
            self.trees.lock().add(Arc::clone(&new));
        }
        self.keep_for_snapshots(inner, &old, at);
        inner.tree.store(new);
        state.taps.reset(inner);
        state.history.record_keyspace(inner.id, at);
        self.end_drop(state, catalog, &gone, at);
        drop((old, gone));
        self.reclaim_soon();
        Ok(true)
    }

    /// Takes the write lock for a change of a keyspace as a whole, which is durable when it
    /// returns.
    ///
    /// So everything written before must be durable: after a crash the state is that of one moment,
    /// never a later change without an earlier write. Most of the log is synced before the lock is
    /// taken again.
    pub(super) fn lock_to_change(&self) -> Result<Held<'_, WriteState>> {
        self.shared.check_writable()?;
        {
            let mut state = self.lock_write();
            self.shared.check_running()?;
            self.writer.release_logs(&mut state);
            // After a flush there is nothing to sync, not even the file's name.
            if state.sealed_logs.is_empty() && state.log.is_bare() {
                return Ok(state);
            }
        }
        self.persist(PersistMode::SyncData)?;
        let mut state = self.lock_write();
        self.shared.check_running()?;
        self.writer.sync_logs(&self.shared, &mut state, PersistMode::SyncData)?;
        Ok(state)
    }

    /// Keeps the present contents of a keyspace for snapshots from before sequence number `at`.
    pub(super) fn keep_for_snapshots(
        &self,
        inner: &Arc<KeyspaceInner>,
        root: &Arc<Tree>,
        until: SeqNo,
    ) {
        let partitions = root.partition_map();
        let (root, view) = (Arc::clone(root), None);
        self.retire(inner, Retired { root, partitions, view, until });
    }

    /// Keeps former contents of a keyspace for the snapshots that see them.
    pub(super) fn retire(&self, inner: &Arc<KeyspaceInner>, retired: Retired) {
        // The order of the locks is that of `release_retired`.
        let mut retiring = self.retiring.lock();
        let mut all = inner.retired.lock();
        if all.is_empty() {
            retiring.push(Arc::downgrade(inner));
        }
        all.push(retired);
    }

    /// Makes the drop of the LSM trees `gone` at sequence number `at` visible, and gives up their
    /// files.
    pub(super) fn end_drop(
        &self,
        mut state: Held<'_, WriteState>,
        catalog: Held<'_, Catalog>,
        gone: &[Arc<Tree>],
        at: SeqNo,
    ) {
        // This comes first: a flush asks for snapshots once it finds a LSM tree buried, and from
        // then on no snapshot may begin before the drop.
        self.writer.visible.store(at, Ordering::Release);
        {
            let mut trees = self.trees.lock();
            gone.iter().for_each(|tree| trees.retire(tree));
        }
        gone.iter().for_each(|tree| tree.discard());
        self.count_tables();
        drop(catalog);
        self.writer.wake_waiting(&mut state);
        drop(state);
        // Releases what was kept for snapshots, unless there are snapshots older than the drop.
        self.release_retired();
        // Files that partitions share may have become mostly dead.
        self.scheduler.wake();
    }

    /// Releases retired LSM trees that no snapshot sees any more.
    pub(crate) fn release_retired(&self) {
        let mut retiring = self.retiring.lock();
        if retiring.is_empty() {
            return;
        }
        // A drop that is not visible yet may be younger than a snapshot that begins now. So the
        // number comes before the list: a snapshot that is not in it has at least this number.
        let now = self.writer.visible_seq();
        let live = self.snapshots.list();
        let mut released = Vec::new();
        retiring.retain(|inner| {
            let Some(inner) = Weak::upgrade(inner) else { return false };
            let mut retired = inner.retired.lock();
            let mut since = 0;
            released.extend(retired.extract_if(.., |retired| {
                let seen = since..retired.until;
                since = retired.until;
                let at = live.partition_point(|seq| *seq < seen.start);
                now >= seen.end && live.get(at).is_none_or(|seq| !seen.contains(seq))
            }));
            !retired.is_empty()
        });
        drop(retiring);
        // Their files are removed now, under no lock.
        drop(released);
    }

    /// Ends the database: the pool stops, the memtable goes to tables, the log is closed.
    ///
    /// Data whose flush fails here is in the log, and is recovered at the next open.
    pub(crate) fn close(&self) -> Result<()> {
        // What asynchronous writers have queued may have to wait for the pool's flushes.
        self.writer.committer.stop();
        self.commit_submitted();
        self.writer.committer.wake_all();
        self.scheduler.stop();
        let result = if self.shared.is_read_only { Ok(()) } else { self.flush_and_close_log() };
        self.reclaim();
        self.shared.drops.close();
        result
    }

    fn flush_and_close_log(&self) -> Result<()> {
        let mut state = self.lock_write();
        self.shared.check_running()?;
        if !self.memtables.get().active.is_empty() {
            self.seal(&mut state)?;
        }
        drop(state);
        let flushed = loop {
            let _one = self.scheduler.flushing.lock();
            match self.flush_oldest() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if self.shared.expires.load(Ordering::Relaxed) {
            // The commit keeps the clock, so that what has expired stays so.
            let mut catalog = self.lock_catalog();
            if self.shared.now_ms() > catalog.state.clock_ms {
                catalog.commit(&self.shared, Vec::new())?;
            }
        }
        let mut state = self.lock_write();
        // A log that holds unflushed records must be durable before it claims a clean end.
        if flushed.is_err() {
            self.writer.sync_logs(&self.shared, &mut state, PersistMode::SyncData)?;
        }
        let _ = state.log.close();
        flushed
    }
}

/// The names that no keyspace has, and the keyspaces that have other options than those requested,
/// with the options that they get; each once.
type Missing<'n> = (Vec<&'n str>, Vec<(Arc<KeyspaceInner>, KeyspaceOptions)>);

/// Finds what opening `names` would create or change.
fn missing<'n>(
    catalog: &Catalog,
    names: &[&'n str],
    options: &KeyspaceOptions,
) -> Result<Missing<'n>> {
    let (mut seen, mut new, mut changed) = (HashSet::new(), Vec::new(), Vec::new());
    for name in names.iter().filter(|name| seen.insert(**name)) {
        let Some(inner) = catalog.keyspaces.get(*name) else {
            new.push(*name);
            continue;
        };
        refuse_other_partitions(inner, options)?;
        let wanted = inner.options.with(options);
        if wanted != inner.options.all() {
            changed.push((Arc::clone(inner), wanted));
        }
    }
    Ok((new, changed))
}

/// The keyspaces of these names.
fn found(catalog: &Catalog, names: &[&str]) -> Vec<Arc<KeyspaceInner>> {
    names.iter().filter_map(|name| catalog.keyspaces.get(*name)).cloned().collect()
}

/// The largest number of LSM trees that an event names. Beyond it, streams of changes begin after
/// the event: the manifest does not grow by the partitions of a large keyspace each time that it is
/// cleared.
const NAMED_MAX: usize = 1000;

/// The edits that keep, for streams of changes, what happens to a keyspace at the sequence number
/// `seq`, which it takes, and in which it loses the LSM trees `gone`.
pub(super) fn event_edits(
    seq: SeqNo,
    keyspace: &str,
    what: EventKind,
    gone: &[Arc<Tree>],
) -> Vec<Edit> {
    let is_named = what == EventKind::PartitionsDropped || gone.len() <= NAMED_MAX;
    let named = if is_named { gone } else { &[] };
    let gone = named.iter().map(|tree| (tree.id, tree.name.clone())).collect();
    let event = Edit::Event(KeyspaceEvent { seq, keyspace: keyspace.to_owned(), what, gone });
    let from = (!is_named).then_some(Edit::HistoryFrom { seq });
    from.into_iter().chain([event, Edit::LastSeq { seq }]).collect()
}

/// Refuses to open a keyspace as if its keys were divided in another way: the caller would go on to
/// drop partitions that do not exist. Requesting no partitions accepts those that exist.
fn refuse_other_partitions(inner: &KeyspaceInner, wanted: &KeyspaceOptions) -> Result<()> {
    let (name, has, wanted) = (&inner.name, &inner.options.partitions, &wanted.partitions);
    if *wanted == Partitioning::None || wanted == has {
        return Ok(());
    }
    let (has, wanted) = (has.in_words(), wanted.in_words());
    let what = format!(
        "keyspace {name:?} has the partitions {has}, and not {wanted}, from its creation on"
    );
    Err(Error::InvalidArgument(what.into()))
}

impl KeyspaceInner {
    /// A keyspace that holds `tree`.
    pub(crate) fn new(
        id: u32,
        name: Arc<str>,
        tree: Arc<Tree>,
        router: Router,
        drops: &Arc<DropQueue>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            options: Arc::clone(&tree.options),
            router,
            tree: Published::new(tree, drops),
            dropped: AtomicBool::new(false),
            retired: Mutex::default(),
            claims: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlockIndexKind, Compression, Database, Keyspace, Lifetime, StringCoding, TableOptions,
        Training, io::sim::SimFs, table::TableLayout,
    };

    fn open(fs: &SimFs) -> Database {
        let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
        builder.background_threads(0).open().unwrap()
    }

    /// A change of each option, alone.
    fn changes() -> Vec<TableOptions> {
        let none = TableOptions::default();
        vec![
            TableOptions { index: Some(BlockIndexKind::BinarySearch), ..none },
            TableOptions { string_coding: Some(StringCoding::On), ..none },
            TableOptions { training: Some(Training::Never), ..none },
            TableOptions { block_bytes: Some(512), ..none },
            TableOptions { compression: Some(Compression::None), ..none },
            TableOptions { filter_bits_per_key: Some(5), ..none },
            TableOptions { restart_interval: Some(3), ..none },
            TableOptions { large_value_bytes: Some(100), ..none },
        ]
    }

    fn asking(table: TableOptions, partitions: &Partitioning) -> KeyspaceOptions {
        let lifetime = Some(Lifetime::Endless);
        KeyspaceOptions { table, partitions: partitions.clone(), lifetime }
    }

    /// Writes entries, some of them with large values, and flushes them; `round` is part of their
    /// keys.
    fn fill(db: &Database, keyspace: &Keyspace, round: usize) {
        for n in 0..400 {
            let value = vec![b'v'; if n % 10 == 0 { 300 } else { 5 }];
            keyspace.insert(format!("{}/{n:04}/{round}", n % 3), value).unwrap();
        }
        db.flush().unwrap();
    }

    /// The layouts that the tables were written with, and their kinds of index; oldest first.
    fn written(keyspace: &Keyspace) -> Vec<(TableLayout, BlockIndexKind)> {
        let trees = keyspace.inner.tree.get().with_partitions();
        let mut all = Vec::new();
        for tree in trees {
            all.extend(tree.levels.get().all().map(|(_, table)| Arc::clone(table)));
        }
        all.sort_by_key(|table| table.meta().id);
        let layout = |table: &Arc<crate::table::Table>| {
            let (written, index) = (table.written(), table.index().kind());
            let layout = TableLayout {
                block_bytes: written.block_bytes,
                compression: Compression::from_byte(written.compression).unwrap(),
                filter_bits_per_key: written.filter_bits_per_key,
                restart_interval: written.restart_interval,
                large_value_bytes: written.large_value_bytes,
                ..TableLayout::default()
            };
            (layout, index)
        };
        all.iter().map(layout).collect()
    }

    /// An option that is set takes effect for new tables, through all handles, and is stored.
    #[test]
    fn each_option_of_tables_may_change() {
        for partitions in [Partitioning::None, Partitioning::Delimiter(b'/')] {
            let fs = SimFs::new(7);
            let mut db = open(&fs);
            let ask = |table| asking(table, &partitions);
            let mut keyspace = db.keyspace("k", ask(TableOptions::default())).unwrap();
            let mut has = TableLayout::default();
            for (round, change) in changes().into_iter().enumerate() {
                fill(&db, &keyspace, round);
                has = change.over(&has);
                let again = db.keyspace("k", ask(change)).unwrap();
                assert_eq!(again.options(), asking(has.into(), &partitions), "{change:?}");
                assert_eq!(keyspace.options(), again.options());
                fill(&db, &keyspace, round + 100);
                let tables = written(&keyspace);
                let described = TableLayout {
                    index: TableLayout::default().index,
                    string_coding: StringCoding::default(),
                    training: Training::default(),
                    ..has
                };
                let index = has.with_writers(0).index;
                assert_eq!(tables.last(), Some(&(described, index)), "{change:?}");
                drop((keyspace, again, db));
                db = open(&fs);
                keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
                assert_eq!(keyspace.options(), asking(has.into(), &partitions), "{change:?}");
            }
            // Back to the defaults: each option is requested.
            keyspace = db.keyspace("k", ask(TableLayout::default().into())).unwrap();
            assert_eq!(keyspace.options(), ask(TableLayout::default().into()));
            keyspace.compact().unwrap();
            assert_eq!(keyspace.iter().count(), 400 * 2 * changes().len());
            let found = keyspace.get("0/0000/107").unwrap().unwrap();
            assert_eq!(found.len(), 300);
        }
    }

    /// Options that a keyspace has already, and options that are not set, cost no edit of the
    /// manifest.
    #[test]
    fn asking_for_what_there_is_writes_nothing() {
        let fs = SimFs::new(7);
        let db = open(&fs);
        let table = TableOptions { block_bytes: Some(512), ..TableOptions::default() };
        let asked = asking(table, &Partitioning::Delimiter(b'/'));
        let keyspace = db.keyspace("k", asked.clone()).unwrap();
        let before = fs.counts().bytes_written;
        for options in [KeyspaceOptions::default(), asked, keyspace.options()] {
            db.keyspace("k", options).unwrap();
        }
        assert_eq!(fs.counts().bytes_written, before);
        let table = TableOptions { block_bytes: Some(511), ..TableOptions::default() };
        db.keyspace("k", asking(table, &Partitioning::None)).unwrap();
        assert!(fs.counts().bytes_written > before);
    }

    /// Several keyspaces, one of them new and one named twice, change together or not at all.
    #[test]
    fn options_of_several_keyspaces_change_together() {
        let db = open(&SimFs::new(7));
        let plain = KeyspaceOptions::default();
        db.keyspaces(["a", "b"], plain.clone()).unwrap();
        db.keyspace("c", asking(TableOptions::default(), &Partitioning::PrefixLength(3))).unwrap();
        let table = TableOptions { restart_interval: Some(2), ..TableOptions::default() };
        let wanted = asking(table, &Partitioning::Delimiter(b'/'));
        let refused = db.keyspaces(["a", "new", "c"], wanted).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        assert!(!db.has_keyspace("new"));
        let has = |name| db.keyspace(name, plain.clone()).unwrap().options().table.restart_interval;
        assert_eq!((has("a"), has("c")), (Some(16), Some(16)));
        let opened = db.keyspaces(["a", "new", "b", "a"], asking(table, &Partitioning::None));
        assert_eq!(opened.unwrap().len(), 4);
        assert_eq!(["a", "b", "new", "c"].map(has), [Some(2), Some(2), Some(2), Some(16)]);
    }

    /// Partitions are fixed: the error names the keyspace and both ways.
    #[test]
    fn other_partitions_are_named() {
        let points = |n: u8| (1..=n).map(|at| vec![at]).collect::<Vec<_>>();
        let builder = Database::builder("/db").file_system(Arc::new(SimFs::new(7)));
        let builder = builder.partition_function("f", |_| Vec::new());
        let db = builder.background_threads(0).open().unwrap();
        let all = [
            (Partitioning::None, "None"),
            (Partitioning::PrefixLength(3), "PrefixLength(3)"),
            (Partitioning::PrefixLength(4), "PrefixLength(4)"),
            (Partitioning::Delimiter(b'/'), "Delimiter('/')"),
            (Partitioning::SplitPoints(points(2)), "SplitPoints(2 of them: \"\\x01\", \"\\x02\")"),
            (Partitioning::SplitPoints(points(200)), "SplitPoints(200 of them: \"\\x01\","),
            (Partitioning::Function("f".to_owned()), "Function(\"f\")"),
        ];
        for (n, (has, described)) in all.iter().enumerate() {
            let name = format!("keyspace {n}");
            let none = TableOptions::default();
            db.keyspace(&name, asking(none, has)).unwrap();
            for (wanted, other) in all.iter().filter(|(one, _)| *one != Partitioning::None) {
                let opened = db.keyspace(&name, asking(none, wanted));
                if has == wanted {
                    opened.unwrap();
                    continue;
                }
                let error = opened.unwrap_err().to_string();
                for part in [name.as_str(), described, other] {
                    assert!(error.contains(part), "{error}: {part}");
                }
                assert!(error.len() < 300, "{error}");
            }
        }
    }

    /// A change that the disk refuses, or that is out of bounds, changes nothing.
    #[test]
    fn a_refused_change_changes_nothing() {
        let fs = SimFs::new(7);
        let db = open(&fs);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let before = keyspace.options();
        let bad = [
            TableOptions { block_bytes: Some(1), ..TableOptions::default() },
            TableOptions { filter_bits_per_key: Some(33), ..TableOptions::default() },
            TableOptions { restart_interval: Some(0), ..TableOptions::default() },
            TableOptions { large_value_bytes: Some(u32::MAX), ..TableOptions::default() },
        ];
        for table in bad {
            db.keyspace("k", asking(table, &Partitioning::None)).unwrap_err();
        }
        db.core().shared.stop(&Error::InvalidArgument("a test".into()));
        let table = TableOptions { block_bytes: Some(512), ..TableOptions::default() };
        let refused = db.keyspace("k", asking(table, &Partitioning::None)).unwrap_err();
        assert!(matches!(refused, Error::WritesStopped(_)), "{refused}");
        assert_eq!(db.keyspace("k", KeyspaceOptions::default()).unwrap().options(), before);
    }
}
