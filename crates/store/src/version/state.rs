//! The catalog: what all edits of a manifest add up to.
//!
//! Plain data: no files are opened here. An edit that contradicts the catalog is refused, so that a
//! manifest that is whole but wrong is found at opening and not by a read.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{
    edit::{Edit, KeyspaceEvent, VersionEdit},
    tracked::Tracked,
};
use crate::{
    expiry::Millis,
    log::{LogStart, Lsn},
    table::TableMeta,
    types::{FileId, LEVELS_MAX, SeqNo, TreeId},
};

/// The largest number of events that are kept for streams of changes. A keyspace is seldom changed
/// as a whole, and a stream that is this far back is better begun anew.
const EVENTS_MAX: usize = 1024;

/// The most bytes of the events that are kept. Each manifest is written with all of them.
const EVENT_BYTES_MAX: u64 = 1 << 20;

/// A keyspace, as the manifest knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyspaceState {
    /// Its number.
    pub(crate) id: u32,
    /// Its name.
    pub(crate) name: String,
    /// Its options, as the engine encodes them.
    pub(crate) options: Vec<u8>,
    /// Its LSM tree.
    pub(crate) tree: TreeId,
}

/// The tables of one LSM tree.
#[derive(Clone, Debug, Default, PartialEq)]
struct TreeState {
    levels: Vec<BTreeMap<FileId, Arc<TableMeta>>>,
}

/// The result of all edits so far.
///
/// Cloning costs O(keyspaces + partitions), not O(tables); applying edits copies nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CatalogState {
    /// The database's random number.
    pub(crate) identity: u64,
    /// The keyspaces by number.
    pub(crate) keyspaces: Tracked<u32, Arc<KeyspaceState>>,
    /// The numbers of the keyspaces by name.
    names: Tracked<String, u32>,
    /// The numbers of the keyspaces by their LSM trees.
    roots: Tracked<TreeId, u32>,
    /// The LSM trees of partitions, by the LSM tree of the keyspace and the partition's name.
    partitions: Tracked<(TreeId, Arc<[u8]>), TreeId>,
    /// LSM trees of dropped partitions whose creation the log may still hold, with the last segment
    /// that may hold it.
    retired: Tracked<TreeId, FileId>,
    trees: Tracked<TreeId, Arc<TreeState>>,
    /// The first log segment that is needed.
    pub(crate) log_floor: FileId,
    /// The place of its first byte.
    pub(crate) log_lsn: Lsn,
    /// True if that segment never existed: a checkpoint has no log, and its floor is a number that
    /// is not used yet. Its manifest says so by a record that holds the floor alone.
    has_no_log: bool,
    /// No file has this number or a greater one.
    pub(crate) next_file: FileId,
    /// No LSM tree ever had this number or a greater one.
    pub(crate) next_tree: TreeId,
    /// No keyspace ever had this number or a greater one.
    pub(crate) next_keyspace: u32,
    /// The greatest sequence number of a write that is in tables or was before the log's floor.
    pub(crate) last_seq: SeqNo,
    /// The latest time by which the database has left out entries that had expired.
    pub(crate) clock_ms: Millis,
    /// The newest changes of keyspaces as a whole, by their sequence numbers.
    events: Tracked<SeqNo, Arc<KeyspaceEvent>>,
    /// The bytes of the events.
    event_bytes: u64,
    /// All events of this sequence number and later are there, and the names of all LSM trees that
    /// the log has writes into from there on.
    pub(crate) history_from: SeqNo,
    /// The identity of the database whose changes this one takes; 0 for none.
    pub(crate) source: u64,
}

/// The numbers of a catalog.
#[derive(Clone, Copy)]
struct Numbers {
    identity: u64,
    source: u64,
    log: (FileId, Lsn),
    /// The next file, LSM tree and keyspace.
    next: (FileId, TreeId, u32),
    last_seq: SeqNo,
    clock_ms: Millis,
    /// The bytes of the events, and where they begin.
    history: (u64, SeqNo),
}

/// The catalog of a new database: empty, with a random identity.
impl Default for CatalogState {
    fn default() -> Self {
        Self { identity: random_identity(), ..Self::blank() }
    }
}

/// A number that no other database has.
fn random_identity() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

impl CatalogState {
    /// The catalog before the first edit.
    pub(crate) fn blank() -> Self {
        Self {
            identity: 0,
            keyspaces: Tracked::default(),
            names: Tracked::default(),
            roots: Tracked::default(),
            partitions: Tracked::default(),
            retired: Tracked::default(),
            trees: Tracked::default(),
            log_floor: 0,
            log_lsn: 0,
            has_no_log: false,
            next_file: 1,
            next_tree: 1,
            next_keyspace: 1,
            last_seq: 0,
            clock_ms: 0,
            events: Tracked::default(),
            event_bytes: 0,
            history_from: 0,
            source: 0,
        }
    }

    /// Applies all edits, or none if one contradicts the catalog; the error says which. O(log
    /// catalog) for each edit, and O(its tables) for each LSM tree whose tables change.
    pub(crate) fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        let numbers = self.numbers();
        let outcome = edit.edits.iter().try_for_each(|edit| self.apply_one(edit));
        macro_rules! all {
            ($end:ident) => {{
                self.keyspaces.$end();
                self.names.$end();
                self.roots.$end();
                self.partitions.$end();
                self.retired.$end();
                self.trees.$end();
                self.events.$end();
            }};
        }
        if outcome.is_err() {
            all!(take_back);
            self.set_numbers(numbers);
            return outcome;
        }
        all!(keep);
        if edit.edits.iter().any(|edit| matches!(edit, Edit::LogFloor { .. })) {
            self.has_no_log = edit.edits.len() == 1;
        }
        Ok(())
    }

    /// All numbers of the catalog.
    fn numbers(&self) -> Numbers {
        Numbers {
            identity: self.identity,
            source: self.source,
            log: (self.log_floor, self.log_lsn),
            next: (self.next_file, self.next_tree, self.next_keyspace),
            last_seq: self.last_seq,
            clock_ms: self.clock_ms,
            history: (self.event_bytes, self.history_from),
        }
    }

    fn set_numbers(&mut self, numbers: Numbers) {
        (self.identity, self.source) = (numbers.identity, numbers.source);
        (self.log_floor, self.log_lsn) = numbers.log;
        (self.next_file, self.next_tree, self.next_keyspace) = numbers.next;
        (self.last_seq, self.clock_ms) = (numbers.last_seq, numbers.clock_ms);
        (self.event_bytes, self.history_from) = numbers.history;
    }

    /// One edit that makes this catalog from a blank one. O(tables).
    pub(crate) fn snapshot(&self) -> VersionEdit {
        let mut edits = vec![Edit::Identity { identity: self.identity }];
        for keyspace in self.keyspaces.values() {
            edits.push(Edit::CreateKeyspace {
                id: keyspace.id,
                name: keyspace.name.clone(),
                options: keyspace.options.clone(),
                tree: keyspace.tree,
            });
        }
        for ((root, name), tree) in self.partitions.iter() {
            edits.push(Edit::CreatePartition { root: *root, name: (**name).into(), tree: *tree });
        }
        for (&tree, &segment) in self.retired.iter() {
            edits.push(Edit::RetireTree { tree, segment });
        }
        for (&tree, state) in self.trees.iter() {
            edits.extend(state.add_tables(tree));
        }
        edits.push(Edit::LogFloor { segment: self.log_floor, lsn: self.log_lsn });
        edits.push(Edit::NextIds {
            file: self.next_file,
            tree: self.next_tree,
            keyspace: self.next_keyspace,
        });
        edits.push(Edit::LastSeq { seq: self.last_seq });
        edits.extend((self.clock_ms > 0).then_some(Edit::Clock { ms: self.clock_ms }));
        edits.extend((self.source != 0).then_some(Edit::Source { identity: self.source }));
        let seq = self.history_from;
        edits.extend((seq > 0).then_some(Edit::HistoryFrom { seq }));
        edits.extend(self.events.values().map(|event| Edit::Event(KeyspaceEvent::clone(event))));
        VersionEdit { edits }
    }

    /// Edits that change only the options of a keyspace. There is no edit for that, so they drop
    /// the keyspace and create it again as it was. O(partitions and tables of the keyspace).
    pub(crate) fn change_options(&self, id: u32, options: Vec<u8>) -> Vec<Edit> {
        let Some(keyspace) = self.keyspaces.get(&id) else { return Vec::new() };
        let (root, name) = (keyspace.tree, keyspace.name.clone());
        let mut edits =
            vec![Edit::DropKeyspace { id }, Edit::CreateKeyspace { id, name, options, tree: root }];
        let mut trees = vec![root];
        for (name, tree) in self.partitions_of(root) {
            edits.push(Edit::CreatePartition { root, name: (**name).into(), tree });
            trees.push(tree);
        }
        for tree in trees {
            edits.extend(self.trees.get(&tree).into_iter().flat_map(|it| it.add_tables(tree)));
        }
        edits
    }

    /// The records that make this catalog from a blank one. O(tables).
    pub(crate) fn records(&self) -> Vec<VersionEdit> {
        let mut records = vec![self.snapshot()];
        if self.has_no_log {
            let floor = Edit::LogFloor { segment: self.log_floor, lsn: self.log_lsn };
            records.push(VersionEdit::from(vec![floor]));
        }
        records
    }

    /// The same contents as another database, whose log and manifests are told from this one's, and
    /// that may take this one's changes.
    pub(crate) fn with_new_identity(self) -> Self {
        Self { identity: random_identity(), source: self.identity, ..self }
    }

    /// The first event of this sequence number or a later one.
    pub(crate) fn event_from(&self, seq: SeqNo) -> Option<&Arc<KeyspaceEvent>> {
        self.events_from(seq).next()
    }

    /// The events of this sequence number and later, in order.
    pub(crate) fn events_from(&self, seq: SeqNo) -> impl Iterator<Item = &Arc<KeyspaceEvent>> {
        self.events.range(seq..).map(|(_, event)| event)
    }

    /// The sequence number of the last event; 0 if there is none.
    pub(crate) fn last_event(&self) -> SeqNo {
        self.events.keys().next_back().copied().unwrap_or(0)
    }

    /// Where the log that is still needed begins.
    pub(crate) fn log_start(&self) -> LogStart {
        let must_exist = self.log_floor != 0 && !self.has_no_log;
        LogStart { segment: self.log_floor, lsn: self.log_lsn, must_exist }
    }

    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableMeta> {
        self.trees.values().flat_map(|tree| tree.tables().map(|(_, meta)| meta))
    }

    /// The tables of a LSM tree with their levels: level by level, and within a level in the order
    /// of their numbers. Empty if there is no such LSM tree.
    pub(crate) fn tables_of(&self, tree: TreeId) -> impl Iterator<Item = (usize, &TableMeta)> {
        self.trees.get(&tree).into_iter().flat_map(|tree| tree.tables())
    }

    fn apply_one(&mut self, edit: &Edit) -> Result<(), String> {
        match edit {
            Edit::Identity { identity } => self.set_identity(*identity),
            Edit::CreateKeyspace { id, name, options, tree } => {
                let keyspace = KeyspaceState {
                    id: *id,
                    name: name.clone(),
                    options: options.clone(),
                    tree: *tree,
                };
                self.create_keyspace(keyspace)
            }
            Edit::DropKeyspace { id } => {
                let keyspace =
                    self.keyspaces.remove(id).ok_or_else(|| format!("no keyspace {id}"))?;
                self.names.remove(&keyspace.name);
                self.roots.remove(&keyspace.tree);
                self.remove_trees(keyspace.tree);
                Ok(())
            }
            Edit::ReplaceTree { keyspace, old, new } => self.replace_tree(*keyspace, *old, *new),
            Edit::AddTable { tree, level, meta } => self.add_table(*tree, *level, meta),
            Edit::RemoveTable { tree, level, id } => self.remove_table(*tree, *level, *id),
            Edit::LogFloor { segment, lsn } => {
                advance(&mut self.log_floor, *segment, "the log's floor")?;
                let risen = self.retired.iter().filter(|(_, last)| **last < *segment);
                let risen: Vec<TreeId> = risen.map(|(tree, _)| *tree).collect();
                for tree in risen {
                    self.retired.remove(&tree);
                }
                advance(&mut self.log_lsn, *lsn, "the place of the log's floor")
            }
            Edit::NextIds { file, tree, keyspace } => {
                advance(&mut self.next_file, *file, "the next file")?;
                advance(&mut self.next_tree, *tree, "the next sub-tree")?;
                advance(&mut self.next_keyspace, *keyspace, "the next keyspace")
            }
            Edit::LastSeq { seq } => advance(&mut self.last_seq, *seq, "the last sequence number"),
            Edit::Clock { ms } => advance(&mut self.clock_ms, *ms, "the clock"),
            Edit::CreatePartition { root, name, tree } => self.create_partition(*root, name, *tree),
            Edit::DropPartition { root, name } => self.drop_partition(*root, name),
            Edit::RetireTree { tree, segment } => self.retire(*tree, *segment),
            Edit::Event(event) => self.add_event(event),
            Edit::HistoryFrom { seq } => {
                advance(&mut self.history_from, *seq, "the begin of the history")?;
                while let Some(first) = self.first_event().filter(|first| *first < *seq) {
                    self.remove_event(first);
                }
                Ok(())
            }
            Edit::Source { identity } => {
                self.source = *identity;
                Ok(())
            }
        }
    }

    /// Keeps an event, and no more of the older ones than is allowed.
    fn add_event(&mut self, event: &KeyspaceEvent) -> Result<(), String> {
        let (seq, last) = (event.seq, self.last_event());
        if seq <= last || seq < self.history_from {
            return Err(format!("an event of number {seq} after {last}"));
        }
        self.event_bytes += event.bytes();
        self.events.insert(seq, Arc::new(event.clone()));
        while self.events.len() > EVENTS_MAX || self.event_bytes > EVENT_BYTES_MAX {
            let Some(first) = self.first_event() else { break };
            self.remove_event(first);
            self.history_from = first + 1;
        }
        Ok(())
    }

    fn first_event(&self) -> Option<SeqNo> {
        self.events.keys().next().copied()
    }

    fn remove_event(&mut self, seq: SeqNo) {
        if let Some(event) = self.events.remove(&seq) {
            self.event_bytes -= event.bytes();
        }
    }

    fn set_identity(&mut self, identity: u64) -> Result<(), String> {
        if self.identity != 0 && self.identity != identity {
            return Err(format!("a second identity, {identity} after {}", self.identity));
        }
        self.identity = identity;
        Ok(())
    }

    fn create_keyspace(&mut self, keyspace: KeyspaceState) -> Result<(), String> {
        if self.keyspaces.contains_key(&keyspace.id) {
            return Err(format!("a second keyspace {}", keyspace.id));
        }
        if self.names.contains_key(&keyspace.name) {
            return Err(format!("a second keyspace named {:?}", keyspace.name));
        }
        self.add_tree(keyspace.tree)?;
        self.next_keyspace = self.next_keyspace.max(keyspace.id.saturating_add(1));
        self.names.insert(keyspace.name.clone(), keyspace.id);
        self.roots.insert(keyspace.tree, keyspace.id);
        self.keyspaces.insert(keyspace.id, Arc::new(keyspace));
        Ok(())
    }

    fn replace_tree(&mut self, keyspace: u32, old: TreeId, new: TreeId) -> Result<(), String> {
        let state =
            self.keyspaces.get_mut(&keyspace).ok_or_else(|| format!("no keyspace {keyspace}"))?;
        if state.tree != old {
            return Err(format!("sub-tree {} of keyspace {keyspace}, not {old}", state.tree));
        }
        Arc::make_mut(state).tree = new;
        self.roots.remove(&old);
        self.roots.insert(new, keyspace);
        self.add_tree(new)?;
        self.remove_trees(old);
        Ok(())
    }

    /// Removes a keyspace's LSM tree with those of its partitions.
    fn remove_trees(&mut self, root: TreeId) {
        self.trees.remove(&root);
        let names: Vec<Arc<[u8]>> =
            self.partitions_of(root).map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(tree) = self.partitions.remove(&(root, name)) {
                self.trees.remove(&tree);
            }
        }
    }

    /// The partitions of the keyspace whose LSM tree is `root`, in the order of their names.
    pub(crate) fn partitions_of(&self, root: TreeId) -> impl Iterator<Item = (&Arc<[u8]>, TreeId)> {
        let from = (root, Arc::from([]));
        let all = self.partitions.range(from..).take_while(move |((of, _), _)| *of == root);
        all.map(|((_, name), tree)| (name, *tree))
    }

    /// The LSM tree of the partition `name` of the keyspace whose LSM tree is `root`. O(log n).
    pub(crate) fn partition(&self, root: TreeId, name: &[u8]) -> Option<TreeId> {
        self.partitions.get(&(root, name.into())).copied()
    }

    /// Returns true if there is a LSM tree of this number.
    pub(crate) fn has_tree(&self, tree: TreeId) -> bool {
        self.trees.contains_key(&tree)
    }

    /// Returns true if a partition with this LSM tree was dropped and the log may still hold its
    /// creation.
    pub(crate) fn is_retired(&self, tree: TreeId) -> bool {
        self.retired.contains_key(&tree)
    }

    fn create_partition(&mut self, root: TreeId, name: &[u8], tree: TreeId) -> Result<(), String> {
        if !self.roots.contains_key(&root) {
            return Err(format!("a partition of no keyspace, under sub-tree {root}"));
        }
        self.add_tree(tree)?;
        if self.partitions.insert((root, name.into()), tree).is_some() {
            return Err(format!("a second partition {:?}", name.escape_ascii().to_string()));
        }
        Ok(())
    }

    fn drop_partition(&mut self, root: TreeId, name: &[u8]) -> Result<(), String> {
        let tree = self.partitions.remove(&(root, name.into())).ok_or_else(|| {
            format!("no partition \"{}\" under sub-tree {root}", name.escape_ascii())
        })?;
        self.trees.remove(&tree);
        Ok(())
    }

    fn retire(&mut self, tree: TreeId, segment: FileId) -> Result<(), String> {
        if self.trees.contains_key(&tree) {
            return Err(format!("sub-tree {tree} retired while it lives"));
        }
        self.next_tree = self.next_tree.max(tree.saturating_add(1));
        if segment >= self.log_floor {
            self.retired.insert(tree, segment);
        }
        Ok(())
    }

    fn add_tree(&mut self, tree: TreeId) -> Result<(), String> {
        if self.is_retired(tree) {
            return Err(format!("the retired sub-tree {tree}"));
        }
        if self.trees.insert(tree, Arc::default()).is_some() {
            return Err(format!("a second sub-tree {tree}"));
        }
        self.next_tree = self.next_tree.max(tree.saturating_add(1));
        Ok(())
    }

    fn tree(&mut self, tree: TreeId) -> Result<&mut TreeState, String> {
        let state = self.trees.get_mut(&tree).ok_or_else(|| format!("no sub-tree {tree}"))?;
        Ok(Arc::make_mut(state))
    }

    fn add_table(&mut self, tree: TreeId, level: u8, meta: &TableMeta) -> Result<(), String> {
        if usize::from(level) >= LEVELS_MAX {
            return Err(format!("level {level} of sub-tree {tree}"));
        }
        let state = self.tree(tree)?;
        if state.levels.iter().any(|tables| tables.contains_key(&meta.id)) {
            return Err(format!("a second table {} in sub-tree {tree}", meta.id));
        }
        let level = usize::from(level);
        if state.levels.len() <= level {
            state.levels.resize_with(level + 1, BTreeMap::new);
        }
        state.levels[level].insert(meta.id, Arc::new(meta.clone()));
        let last = meta.place.map_or(meta.id, |place| place.file.max(meta.id));
        self.next_file = self.next_file.max(last.saturating_add(1));
        Ok(())
    }

    fn remove_table(&mut self, tree: TreeId, level: u8, id: FileId) -> Result<(), String> {
        let levels = &mut self.tree(tree)?.levels;
        levels
            .get_mut(usize::from(level))
            .and_then(|tables| tables.remove(&id))
            .ok_or_else(|| format!("no table {id} in level {level} of sub-tree {tree}"))?;
        while levels.last().is_some_and(BTreeMap::is_empty) {
            levels.pop();
        }
        Ok(())
    }
}

impl TreeState {
    /// The edits that give its tables to the empty LSM tree `tree`.
    fn add_tables(&self, tree: TreeId) -> impl Iterator<Item = Edit> {
        (0..).zip(&self.levels).flat_map(move |(level, tables)| {
            let add = move |meta: &Arc<TableMeta>| Edit::AddTable {
                tree,
                level,
                meta: TableMeta::clone(meta),
            };
            tables.values().map(add)
        })
    }

    fn tables(&self) -> impl Iterator<Item = (usize, &TableMeta)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(level, tables)| tables.values().map(move |meta| (level, &**meta)))
    }
}

/// Raises `value`; it never falls.
fn advance<T: Copy + Ord + std::fmt::Display>(
    value: &mut T,
    next: T,
    name: &str,
) -> Result<(), String> {
    if next < *value {
        return Err(format!("{name} going back from {value} to {next}"));
    }
    *value = next;
    Ok(())
}
