//! The state behind a [`super::SimFs`]: the file tree, the pending changes, and the faults to
//! inject. Everything here happens under one lock.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, ErrorKind},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rhumb_sync::primitive::Mutex;

use super::{
    fault::{Call, CallKind, Counts, Fault, Matcher, Rule},
    node::{Copier, DirChange, DirNode, DirState, FileNode, FileState, Node, SECTOR_BYTES},
    power::{self, Loss, Survivor},
    rng::SimRng,
};
use crate::io::DIRECT_ALIGN;

/// The number of removed files that are remembered, so that their bytes can turn up in later ones.
const STALE_FILES_MAX: usize = 8;
/// The most bytes that are remembered of each removed file.
const STALE_BYTES_MAX: usize = 64 << 10;
/// The number of calls with faults that are remembered.
const FAULTED_CALLS_MAX: usize = 1000;
/// The number of most recent calls that a trace holds.
const TRACE_CALLS_MAX: usize = 4096;

/// A directory that is held open.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) path: PathBuf,
    pub(super) node: Arc<DirNode>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    root: Arc<DirNode>,
    id_next: u64,
    changes: Vec<DirChange>,
    /// The locked files and directories: `None` for a writer, otherwise the number of readers that
    /// hold the lock.
    pub(super) locked: BTreeMap<u64, Option<u32>>,
    /// The directory that the present caller holds open: paths below it are found from there.
    pub(super) held: Option<Arc<Held>>,
    stale: VecDeque<Vec<u8>>,
    pub(super) rng: SimRng,
    pub(super) counts: Counts,
    /// The number of the change during which the power goes.
    pub(super) cut_at: Option<u64>,
    pub(super) is_dead: bool,
    pub(super) rules: Vec<Rule>,
    /// The calls to which a fault happened.
    pub(super) faulted: Vec<(CallKind, PathBuf)>,
    pub(super) lies: Vec<Matcher>,
    /// Of a thousand calls, the number that are interrupted or short without being told to.
    pub(super) restless_per_mille: u64,
    /// Of a thousand writes, the number that the system makes durable without being asked.
    pub(super) write_back_per_mille: u64,
    /// The alignment of the offsets and lengths of direct reads.
    pub(super) direct_align: usize,
    pub(super) free_bytes: Option<u64>,
    pub(super) trace: Option<VecDeque<Call>>,
}

/// How a call that was let through is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permit {
    /// The most bytes that a read or write may move.
    pub(super) bytes_max: usize,
    /// The fault that a write is to report once it has moved them.
    pub(super) fails: Option<Fault>,
}

impl Permit {
    /// All of the call may happen.
    fn whole() -> Self {
        Self { bytes_max: usize::MAX, fails: None }
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn new_dir(id: u64) -> Arc<DirNode> {
    Arc::new(DirNode { id, state: Mutex::new(DirState::default()) })
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            root: new_dir(0),
            id_next: 1,
            changes: Vec::new(),
            locked: BTreeMap::new(),
            held: None,
            stale: VecDeque::new(),
            rng: SimRng::new(seed),
            counts: Counts::default(),
            cut_at: None,
            is_dead: false,
            rules: Vec::new(),
            faulted: Vec::new(),
            lies: Vec::new(),
            restless_per_mille: 0,
            write_back_per_mille: 0,
            direct_align: if seed & 1 == 0 { DIRECT_ALIGN } else { SECTOR_BYTES },
            free_bytes: None,
            trace: None,
        }
    }

    /// A copy of the disk, its files and directories included, that shares nothing with it.
    pub(super) fn copy(&self) -> Self {
        let mut copier = Copier::default();
        Self {
            root: copier.dir(&self.root),
            changes: self.changes.iter().map(|change| copier.change(change)).collect(),
            held: None,
            ..self.clone()
        }
    }

    /// The state that a new process finds after this one was killed.
    pub(super) fn after_kill(&mut self) -> Self {
        let dead = Self { is_dead: true, ..Self::new(0) };
        let before = std::mem::replace(self, dead);
        Self {
            counts: Counts::default(),
            locked: BTreeMap::new(),
            held: None,
            cut_at: None,
            is_dead: false,
            rules: Vec::new(),
            faulted: Vec::new(),
            free_bytes: None,
            ..before
        }
    }

    /// The state in which the disk comes back after a power cut now. The properties of the program
    /// (lies, restlessness, tracing) stay; injected faults, counts and locks do not.
    pub(super) fn after_power_cut(&mut self, loss: Loss, seed: u64) -> Self {
        self.is_dead = true;
        let mut rng = SimRng::new(seed);
        self.stale.make_contiguous();
        let tree = power::surviving_tree(
            &self.root,
            &self.changes,
            self.stale.as_slices().0,
            loss,
            &mut rng,
        );
        let mut after = Self::new(rng.next_u64());
        after.stale = self.stale.clone();
        after.lies = self.lies.clone();
        after.restless_per_mille = self.restless_per_mille;
        after.write_back_per_mille = self.write_back_per_mille;
        after.direct_align = self.direct_align;
        after.trace = self.trace.as_ref().map(|_| VecDeque::new());
        let root = Arc::clone(&after.root);
        after.build(&root, tree, &mut BTreeMap::new());
        after
    }

    fn build(
        &mut self,
        dir: &Arc<DirNode>,
        tree: BTreeMap<String, Survivor>,
        files: &mut BTreeMap<u64, Arc<FileNode>>,
    ) {
        for (name, survivor) in tree {
            let node = match survivor {
                Survivor::Dir(below) => {
                    let child = new_dir(self.new_id());
                    self.build(&child, below, files);
                    Node::Dir(child)
                }
                Survivor::File { id, content } => {
                    let file = files.entry(id).or_insert_with(|| {
                        let state = Mutex::new(FileState::durable(content.to_vec()));
                        Arc::new(FileNode { id: self.new_id(), state })
                    });
                    file.state.lock().links += 1;
                    Node::File(Arc::clone(file))
                }
            };
            let mut state = dir.state.lock();
            state.entries.insert(name.clone(), node.clone());
            state.durable.insert(name, node);
        }
    }

    fn new_id(&mut self) -> u64 {
        self.id_next += 1;
        self.id_next
    }

    /// Counts a call and decides whether it happens. An error is the call's result; after `Ok`, the
    /// call is to be done and its result passed through [`State::end`].
    pub(super) fn begin(&mut self, kind: CallKind, path: &Path) -> io::Result<Permit> {
        if self.is_dead {
            self.counts.calls_after_cut += 1;
            return Err(power_is_off());
        }
        let index = self.counts.calls;
        self.counts.calls += 1;
        self.counts.add(kind);
        if kind.is_change() {
            // The call during which the power goes is done, but its caller gets an error. Whether
            // it survives is decided with everything else that is not durable.
            self.is_dead = self.cut_at.is_some_and(|at| self.counts.changes >= at);
            self.counts.changes += 1;
        }
        let fault = self.fault(kind, path);
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_CALLS_MAX {
                trace.pop_front();
            }
            let path = path.to_owned();
            trace.push_back(Call { index, kind, path, fault, met_power_cut: self.is_dead });
        }
        let Some(fault) = fault else { return Ok(Permit::whole()) };
        match (fault, fault.error()) {
            (Fault::EioAfter(bytes_max), _) if kind == CallKind::Write => {
                Ok(Permit { bytes_max, fails: Some(fault) })
            }
            (Fault::Short(bytes_max), _) => Ok(Permit { bytes_max, fails: None }),
            (Fault::Panic, _) => panic!("an injected panic at {kind:?} of {}", path.display()),
            (_, Some(error)) => Err(error),
            (_, None) => Ok(Permit::whole()),
        }
    }

    fn fault(&mut self, kind: CallKind, path: &Path) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.times > 0 && rule.matcher.matches(&self.counts, kind, path));
        if let Some(rule) = rule {
            rule.times -= 1;
            let fault = rule.fault;
            if matches!(fault, Fault::Short(_)) && !kind.moves_bytes() {
                return None;
            }
            self.record_fault(kind, path);
            return Some(fault);
        }
        if self.restless_per_mille == 0 || !self.rng.chance(self.restless_per_mille, 1000) {
            return None;
        }
        match kind {
            _ if kind.moves_bytes() && self.rng.chance(1, 2) => {
                Some(Fault::Short(1 + self.rng.index(300)))
            }
            CallKind::Read | CallKind::Write | CallKind::SyncData | CallKind::SyncAll => {
                Some(Fault::Interrupted)
            }
            _ => None,
        }
    }

    /// Draws whether the system makes a write durable without being asked.
    pub(super) fn writes_back(&mut self) -> bool {
        self.write_back_per_mille > 0 && self.rng.chance(self.write_back_per_mille, 1000)
    }

    /// Ends a call that was done: its caller gets an error if the power went meanwhile.
    pub(super) fn end<T>(&self, value: T) -> io::Result<T> {
        if self.is_dead { Err(power_is_off()) } else { Ok(value) }
    }

    /// Returns true if a sync is one that only pretends to be done.
    pub(super) fn is_lie(&self, kind: CallKind, path: &Path) -> bool {
        self.lies.iter().any(|lie| lie.matches(&self.counts, kind, path))
    }

    fn record_fault(&mut self, kind: CallKind, path: &Path) {
        self.counts.faults += 1;
        if self.faulted.len() < FAULTED_CALLS_MAX {
            self.faulted.push((kind, path.to_owned()));
        }
    }

    /// Takes up to `wanted` bytes of the free space, for a write to `path`.
    pub(super) fn take_space(&mut self, wanted: usize, path: &Path) -> io::Result<usize> {
        let Some(free) = self.free_bytes else { return Ok(wanted) };
        let taken = usize::try_from(free).unwrap_or(usize::MAX).min(wanted);
        if taken == 0 && wanted > 0 {
            self.record_fault(CallKind::Write, path);
            return Err(Fault::NoSpace.error().expect("it is an error"));
        }
        self.free_bytes = Some(free - taken as u64);
        Ok(taken)
    }

    pub(super) fn give_space(&mut self, bytes: usize) {
        if let Some(free) = &mut self.free_bytes {
            *free += bytes as u64;
        }
    }

    /// Finds a directory, or returns the error that the system would give.
    pub(super) fn dir(&self, path: &Path) -> io::Result<Arc<DirNode>> {
        let held = self.held.as_deref();
        let below = held.and_then(|held| Some((&held.node, path.strip_prefix(&held.path).ok()?)));
        let (dir, path) = below.unwrap_or((&self.root, path));
        let mut dir = Arc::clone(dir);
        for component in path.components() {
            let name = match component {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => name.to_str().ok_or(ErrorKind::InvalidInput)?,
                _ => return Err(ErrorKind::InvalidInput.into()),
            };
            let child = match dir.state.lock().entries.get(name) {
                Some(Node::Dir(child)) => Arc::clone(child),
                Some(Node::File(_)) => return Err(ErrorKind::NotADirectory.into()),
                None => return Err(ErrorKind::NotFound.into()),
            };
            dir = child;
        }
        Ok(dir)
    }

    /// Splits a path into its directory and the name in it.
    pub(super) fn locate(&self, path: &Path) -> io::Result<(Arc<DirNode>, String)> {
        let name =
            path.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidInput)?;
        let dir = self.dir(path.parent().ok_or(ErrorKind::InvalidInput)?)?;
        Ok((dir, name.to_owned()))
    }

    /// Finds a file.
    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<FileNode>> {
        let (dir, name) = self.locate(path)?;
        match dir.state.lock().entries.get(&name) {
            Some(Node::File(file)) => Ok(Arc::clone(file)),
            Some(Node::Dir(_)) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut below = PathBuf::from("/");
        for component in path.components() {
            let parent = self.dir(&below)?;
            below.push(component);
            match self.dir(&below) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    let (_, name) = self.locate(&below)?;
                    let child = Node::Dir(new_dir(self.new_id()));
                    self.link(parent, name, child);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Creates an empty file.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<Arc<FileNode>> {
        let (dir, name) = self.locate(path)?;
        if dir.state.lock().entries.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file =
            Arc::new(FileNode { id: self.new_id(), state: Mutex::new(FileState::default()) });
        self.link(dir, name, Node::File(Arc::clone(&file)));
        Ok(file)
    }

    /// Creates an empty file whose name is durable.
    pub(super) fn create_durable(&mut self, path: &Path) -> io::Result<Arc<FileNode>> {
        let file = self.create(path)?;
        if let Some(DirChange::Link { dir, name, node }) = self.changes.pop() {
            dir.state.lock().durable.insert(name, node);
        }
        Ok(file)
    }

    fn link(&mut self, dir: Arc<DirNode>, name: String, node: Node) {
        if let Node::File(file) = &node {
            file.state.lock().links += 1;
        }
        dir.state.lock().entries.insert(name.clone(), node.clone());
        self.changes.push(DirChange::Link { dir, name, node });
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        let (dir, name) = self.locate(to)?;
        if dir.state.lock().entries.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.link(dir, name, Node::File(file));
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let file = self.file(path)?;
        let (dir, name) = self.locate(path)?;
        dir.state.lock().entries.remove(&name);
        self.forget(&file);
        self.changes.push(DirChange::Unlink { dir, name, node: Node::File(file) });
        Ok(())
    }

    /// Removes one name of a file, and frees its space if that was the last.
    fn forget(&mut self, file: &Arc<FileNode>) {
        let mut state = file.state.lock();
        state.links -= 1;
        if state.links > 0 {
            return;
        }
        self.give_space(state.content.len());
        if self.stale.len() == STALE_FILES_MAX {
            self.stale.pop_front();
        }
        let len = state.content.len().min(STALE_BYTES_MAX);
        self.stale.push_back(state.content[..len].to_vec());
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let from = self.locate(from)?;
        let to = self.locate(to)?;
        let there =
            |place: &(Arc<DirNode>, String)| place.0.state.lock().entries.get(&place.1).cloned();
        let node = there(&from).ok_or(ErrorKind::NotFound)?;
        match (&node, there(&to)) {
            // Two names of one file: POSIX specifies that nothing is done.
            (_, Some(old)) if old.id() == node.id() => return Ok(()),
            (Node::File(_), Some(Node::File(old))) => self.forget(&old),
            (Node::File(_), Some(Node::Dir(_))) => return Err(ErrorKind::IsADirectory.into()),
            (Node::Dir(_), Some(Node::File(_))) => return Err(ErrorKind::NotADirectory.into()),
            (Node::Dir(_), Some(Node::Dir(_))) => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            (_, None) => {}
        }
        from.0.state.lock().entries.remove(&from.1);
        to.0.state.lock().entries.insert(to.1.clone(), node.clone());
        self.changes.push(DirChange::Rename { from, to, node });
        Ok(())
    }

    /// Locks `ids`, all or none; returns true if no other lock was in the way.
    pub(super) fn try_lock(&mut self, ids: &[u64], shared: bool) -> bool {
        let is_free = |id| match self.locked.get(id) {
            None => true,
            Some(holders) => shared && holders.is_some(),
        };
        if !ids.iter().all(is_free) {
            return false;
        }
        for &id in ids {
            let holders = self.locked.entry(id).or_insert(shared.then_some(0));
            *holders = holders.map(|readers| readers + 1);
        }
        true
    }

    /// Returns true if readers hold a lock of any of `ids`.
    pub(super) fn has_readers(&self, ids: &[u64]) -> bool {
        ids.iter().any(|id| matches!(self.locked.get(id), Some(Some(_))))
    }

    /// Releases one lock of each of `ids`.
    pub(super) fn unlock(&mut self, ids: &[u64]) {
        for id in ids {
            match self.locked.get_mut(id) {
                Some(Some(readers)) if *readers > 1 => *readers -= 1,
                _ => drop(self.locked.remove(id)),
            }
        }
    }

    /// Makes the entries of a directory durable, and those of every directory with which it shares
    /// a pending move, because a move is one change.
    pub(super) fn sync_dir(&mut self, dir: &Arc<DirNode>) {
        let mut synced = BTreeMap::from([(dir.id, Arc::clone(dir))]);
        loop {
            let before = synced.len();
            for change in &self.changes {
                let dirs = change.dirs();
                if dirs.iter().any(|dir| synced.contains_key(&dir.id)) {
                    synced.extend(dirs.map(|dir| (dir.id, Arc::clone(dir))));
                }
            }
            if synced.len() == before {
                break;
            }
        }
        self.changes.retain(|change| !synced.contains_key(&change.dirs()[0].id));
        for dir in synced.values() {
            let mut state = dir.state.lock();
            state.durable = state.entries.clone();
        }
    }
}
