//! Reading beside the process that writes: a database that is open for reading only, and follows
//! the manifest and the log of its writer.
//!
//! Nothing is written and no lock is held; `docs/decisions/reading-beside-the-writer.md` says why
//! nothing vanishes all the same. A reader holds all files open that it refers to (`tables.rs`).
//!
//! It has a memtable for each segment of the log that the manifest still needs, so what a flush of
//! the writer has covered is dropped with the segment. [`Beside::catch_up`] goes in rounds:
//!
//! 1. Read on in the manifest, and open the tables that it names.
//! 2. Read on in the log, into memtables, up to its end, or up to a record that follows an edit
//!    which step 1 has not seen: its number leaves a gap that no edit explains, or it is for a tree
//!    that no edit has made. Then there will be another round.
//! 3. Show what was read: it is the state of one moment (`publish.rs`).
//!
//! Why it is one moment: an edit that takes a sequence number, or makes a tree, is in the manifest
//! before any later record is in the log. So step 2 stops at the first record that follows an
//! unseen edit. And all records before an edit are in the log before the edit is in the manifest,
//! so step 2 reads all those that belong to the edits of step 1.

mod publish;
mod tables;

use std::collections::HashMap;

use rhumb_sync::{
    primitive::{Arc, AtomicU64, Ordering},
    record::Records,
};

use self::tables::{Tables, open_tables, pin};
use super::{
    catalog::Catalog,
    core::Core,
    memory::Memory,
    open::{Parts, assemble, hold_existing, no_database, open_trees, table_context},
    write::insert_record,
};
use crate::{
    db::DatabaseBuilder,
    error::{Error, Result},
    io::{FileSystem, read_only::ReadOnlyFs},
    log::{
        LogRecord, LogWriter, Lsn, Recovery,
        batch::Encoded,
        creation::{Creation, Payload},
        follow::{Follower, Next},
        segment::segment_path,
    },
    memtable::{LogFloor, Memtable},
    types::{FileId, SeqNo, TreeId},
    version::{edit::FILE_ID_END, manifest::Manifest, tail::ManifestTail},
};

/// The number of rounds of one call. Each takes what the writer wrote during the one before, so a
/// few are enough, unless it drops or clears all the time: then the call ends at a state before the
/// newest.
const ROUNDS_MAX: u32 = 1000;

/// The number of times that the log is looked at again if a segment seems to be missing that the
/// manifest still needs: a listing of a directory that is being changed may lack a new file.
const LOOKS_MAX: u32 = 3;

/// What follows the writer.
pub(crate) struct Beside {
    tail: ManifestTail,
    /// `None` if the log is not followed.
    follower: Option<Follower>,
    /// The open tables of the manifest's state.
    tables: Tables,
    /// True if the manifest was read on, and what it says is not shown yet.
    is_stale: bool,
    /// A record that waits for an edit of the manifest.
    waiting: Option<LogRecord>,
    /// The number after the last one that a record had.
    next_seq: SeqNo,
    /// Where the records of the memtables are allocated.
    records: Records,
    /// One for each segment, or more; oldest first.
    memtables: Vec<Arc<Memtable>>,
    /// True if readers do not see those memtables yet.
    is_detached: bool,
    created: CreatedPartitions,
}

/// The partitions that records of the log have created, as long as the log is needed.
#[derive(Default)]
struct CreatedPartitions {
    /// With the segment of the record.
    by_tree: HashMap<TreeId, (FileId, Creation)>,
    /// The last one of each name, of the keyspace with this LSM tree.
    by_name: HashMap<(TreeId, Box<[u8]>), TreeId>,
    /// Those that are not shown yet.
    unseen: Vec<TreeId>,
}

/// Why the log is not read further.
enum Halt {
    /// That is all there is for now.
    End,
    /// What follows depends on an edit of the manifest that was not read yet.
    Edit,
    /// What follows is gone, or not there yet.
    Lagged,
}

/// Opens the database that the builder describes for reading only. Nothing is written, and nothing
/// can be: the file system refuses it.
///
/// Files that nothing refers to stay, and so does a torn tail of the log. Without a pool nothing is
/// compacted and no model is trained.
pub(super) fn open_read_only(builder: DatabaseBuilder) -> Result<Arc<Core>> {
    let DatabaseBuilder { path: dir, options, functions, fs, clock } = builder;
    let cursor_fs = hold_existing(&fs, &dir)?;
    let fs: Arc<dyn FileSystem> = Arc::new(ReadOnlyFs(Arc::clone(&cursor_fs)));
    let Some(mut tail) = ManifestTail::open(&fs, &dir)? else {
        return Err(no_database(&dir));
    };
    let (files, lock) = pin(&fs, &dir, options.open_files_max, &mut tail)?;
    let memory = Memory::default();
    let ctx = table_context(&fs, &dir, &options, &memory, files);
    let mut tables = Tables::new();
    open_tables(&ctx, &mut tail, &mut tables)?;
    let drops = Arc::default();
    let state = tail.state().clone();
    let (trees, keyspaces) =
        open_trees(&state, &dir, &functions, &drops, &mut |meta| publish::opened(&tables, meta))?;
    let cause = Error::ReadOnly { path: dir.clone() };
    let recovery = Recovery { end: state.log_lsn, ..Recovery::default() };
    let header = recovery.next_header(state.identity, FILE_ID_END);
    let is_followed = options.follow_log;
    let follower = is_followed.then(|| Follower::new(&fs, &dir, state.identity, state.log_start()));
    let beside = Beside {
        follower,
        tables,
        is_stale: false,
        waiting: None,
        next_seq: state.last_seq + 1,
        records: Records::new(Arc::clone(&memory.records)),
        memtables: Vec::new(),
        is_detached: true,
        created: CreatedPartitions::default(),
        tail,
    };
    let core = assemble(Parts {
        floor: None,
        log: LogWriter::read_only(&fs, &dir, header, cause.clone()),
        next_file: AtomicU64::new(state.next_file),
        next_tree: state.next_tree,
        catalog: Catalog {
            manifest: Manifest::read_only(&dir, beside.tail.id(), cause),
            state,
            keyspaces,
        },
        is_read_only: true,
        trees,
        replayed: None,
        records: Records::new(Arc::clone(&memory.records)),
        memory,
        recovery,
        drops,
        tables: ctx,
        lock,
        dir,
        options,
        functions,
        cursor_fs,
        fs,
        clock,
    });
    *core.beside.lock() = Some(beside);
    if let Err(error) = core.catch_up() {
        let _ = core.close();
        return Err(error);
    }
    core.shared.balance_memory();
    Ok(core)
}

impl Core {
    /// Reads what the writer has written since. Returns the number of the last write that is seen.
    pub(crate) fn catch_up(&self) -> Result<SeqNo> {
        self.shared.check_process()?;
        let mut beside = self.beside.lock();
        let Some(follower) = &mut *beside else {
            let what =
                "only a database that is open for reading alone can catch up with its writer";
            return Err(Error::InvalidArgument(what.into()));
        };
        let is_changed = follower.catch_up(self)?;
        drop(beside);
        if is_changed {
            self.reclaim();
            self.shared.balance_memory();
        }
        Ok(self.writer.visible_seq())
    }
}

impl Beside {
    /// Reads what the writer has written since, and shows it. Returns true if tables have changed.
    fn catch_up(&mut self, core: &Core) -> Result<bool> {
        let (mut is_changed, mut looks, mut waits) = (false, 0, false);
        for _ in 0..ROUNDS_MAX {
            let is_moved = self.tail.read_on()?;
            if let Some(waiting) = self.waiting.as_ref().filter(|_| waits && !is_moved) {
                let path = segment_path(&core.shared.dir, waiting.segment);
                let expected = format!("a record at place {} that fits the manifest", waiting.lsn);
                return Err(Error::corrupt(path, 0, expected, "one that follows an unknown edit"));
            }
            self.is_stale |= is_moved;
            if self.is_stale {
                is_changed = true;
                open_tables(&core.shared.tables, &mut self.tail, &mut self.tables)?;
                self.leave_old_segments(core);
            }
            match self.follow(core)? {
                Halt::End => {
                    self.publish(core)?;
                    return Ok(is_changed);
                }
                Halt::Edit => {
                    self.publish(core)?;
                    waits = true;
                }
                Halt::Lagged if is_moved || looks < LOOKS_MAX => {
                    looks += u32::from(!is_moved);
                    waits = false;
                }
                Halt::Lagged => {
                    // The log is needed from here on, so it ends here, or is damaged.
                    self.follower.as_ref().map_or(Ok(()), Follower::check_end)?;
                    self.publish(core)?;
                    return Ok(is_changed);
                }
            }
        }
        Ok(is_changed)
    }

    /// Goes on at the manifest's floor if the log is read at an older place.
    fn leave_old_segments(&mut self, core: &Core) {
        let floor = self.tail.state().log_start().segment;
        if self.follower.as_ref().is_some_and(|follower| follower.segment() < floor) {
            self.restart(core);
        }
        let CreatedPartitions { by_tree, by_name, .. } = &mut self.created;
        by_tree.retain(|_, (segment, _)| *segment >= floor);
        by_name.retain(|_, tree| by_tree.contains_key(tree));
    }

    /// Follows the log from the manifest's floor on, into memtables of its own.
    fn restart(&mut self, core: &Core) {
        let (shared, state) = (&core.shared, self.tail.state());
        let follower = Follower::new(&shared.fs, &shared.dir, state.identity, state.log_start());
        self.follower = Some(follower);
        self.next_seq = state.last_seq + 1;
        self.waiting = None;
        self.memtables.clear();
        self.is_detached = true;
        self.created = CreatedPartitions::default();
    }

    /// Reads the log as far as it can be.
    fn follow(&mut self, core: &Core) -> Result<Halt> {
        loop {
            let Some(follower) = &mut self.follower else { return Ok(Halt::End) };
            let record = match self.waiting.take() {
                Some(record) => record,
                None => match follower.read()? {
                    Next::Record(record) => record,
                    Next::Nothing => return Ok(Halt::End),
                    Next::Lagged => return Ok(Halt::Lagged),
                    Next::Undone => {
                        self.restart(core);
                        continue;
                    }
                },
            };
            match self.must_wait(core, &record) {
                Ok(false) => self.insert(core, record),
                other => {
                    self.waiting = Some(record);
                    return other.map(|_| Halt::Edit);
                }
            }
        }
    }

    /// Returns true if a record follows an edit of the manifest that was not read yet. Checks all
    /// of the record.
    fn must_wait(&self, core: &Core, record: &LogRecord) -> Result<bool> {
        let state = self.tail.state();
        let decoded = Payload::decode(&record.payload).map_err(|fault| {
            let at = format!(
                "{} at byte {} of the record at place {}",
                fault.expected, fault.offset, record.lsn
            );
            Error::corrupt(segment_path(&core.shared.dir, record.segment), 0, at, "something else")
        })?;
        Ok(match decoded {
            Payload::Creations(created) => created.iter().any(|new| {
                let by_name = self.created.by_name.get(&(new.root, new.name.clone())).copied();
                let is_other = |tree: TreeId| tree != new.tree && !state.is_retired(tree);
                new.root >= state.next_tree
                    || by_name.is_some_and(is_other)
                    || state.partition(new.root, &new.name).is_some_and(is_other)
            }),
            Payload::Batch(batch) => {
                let is_known = |tree: TreeId| {
                    tree < state.next_tree || self.created.by_tree.contains_key(&tree)
                };
                batch.first_seq() > self.next_seq.max(state.last_seq + 1)
                    || batch.ops().any(|op| !is_known(op.tree))
            }
        })
    }

    /// Takes a record that was checked into the memtable of its segment.
    fn insert(&mut self, core: &Core, record: LogRecord) {
        let LogRecord { lsn, segment, payload } = record;
        let memtable = self.memtable_of(core, segment, lsn);
        core.shared.counters.replayed_records.fetch_add(1, Ordering::Relaxed);
        match Payload::decode(&payload) {
            Ok(Payload::Creations(created)) => {
                memtable.add_created(&created);
                for new in created {
                    self.created.unseen.push(new.tree);
                    self.created.by_name.insert((new.root, new.name.clone()), new.tree);
                    self.created.by_tree.insert(new.tree, (segment, new));
                }
            }
            Ok(Payload::Batch(batch)) => {
                let first_seq = batch.first_seq();
                let record = Encoded::Bytes(payload).keep_in(&mut self.records);
                let end = insert_record(&memtable, &record, first_seq);
                self.next_seq = self.next_seq.max(end);
            }
            // It was checked.
            Err(_) => {}
        }
    }

    /// The memtable of the records of a segment, the newest one.
    fn memtable_of(&mut self, core: &Core, segment: FileId, lsn: Lsn) -> Arc<Memtable> {
        let last = self.memtables.last();
        if let Some(last) = last.filter(|last| last.log().is_some_and(|log| log.segment == segment))
        {
            return Arc::clone(last);
        }
        let (log, options) = (Some(LogFloor { segment, lsn }), &core.shared.options);
        let next = Arc::new(match last {
            Some(last) => last.successor(log, options.memtable_bytes),
            None => new_memtable(core, log),
        });
        self.memtables.push(Arc::clone(&next));
        if !self.is_detached {
            self.show_memtables(core);
        }
        next
    }
}

/// An empty memtable that has learned nothing from others.
fn new_memtable(core: &Core, log: Option<LogFloor>) -> Memtable {
    let (options, memory) = (&core.shared.options, &core.shared.memory);
    Memtable::new(options.memtable_kind, log, options.memtable_bytes, &memory.mapped)
}
