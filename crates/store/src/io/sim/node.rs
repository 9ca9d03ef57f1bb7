//! Files and directories in two states: what the process sees, and what is certainly on the disk.
//! Knows nothing of faults or of paths.

use std::{collections::BTreeMap, sync::Arc};

use rhumb_sync::primitive::Mutex;

use super::{power::Loss, rng::SimRng};

/// The unit that a disk writes either wholly or not at all, in bytes.
pub const SECTOR_BYTES: usize = 512;

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Self::Truncate { len } => content.resize(*len, 0),
        }
    }

    /// The length of the file after the change.
    pub(super) fn len_after(&self, len: usize) -> usize {
        match self {
            Self::Write { offset, bytes } => len.max(offset + bytes.len()),
            Self::Truncate { len } => *len,
        }
    }

    /// The bytes that the change touches in a file of at most `len_max` bytes.
    pub(super) fn range(&self, len_max: usize) -> std::ops::Range<usize> {
        match self {
            Self::Write { offset, bytes } => *offset..offset + bytes.len(),
            Self::Truncate { len } => *len..len_max.max(*len),
        }
    }

    /// Writes the bytes that the change puts into `range`, a part of its own range.
    pub(super) fn apply_part(&self, out: &mut [u8], range: std::ops::Range<usize>) {
        match self {
            Self::Write { offset, bytes } => {
                out[range.clone()]
                    .copy_from_slice(&bytes[range.start - offset..range.end - offset]);
            }
            Self::Truncate { .. } => out[range].fill(0),
        }
    }
}

/// A file, under any number of names.
#[derive(Debug)]
pub(super) struct FileNode {
    pub(super) id: u64,
    pub(super) state: Mutex<FileState>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    /// The bytes that reads return.
    pub(super) content: Vec<u8>,
    /// The bytes that are certainly on the disk.
    pub(super) durable: Vec<u8>,
    /// The changes since then, in order.
    pub(super) pending: Vec<Change>,
    /// The number of names that the process sees for it.
    pub(super) links: u32,
}

impl FileState {
    /// A file that is wholly on the disk.
    pub(super) fn durable(content: Vec<u8>) -> Self {
        Self { durable: content.clone(), content, pending: Vec::new(), links: 0 }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.change(Change::Write { offset: self.content.len(), bytes: bytes.to_vec() });
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.content);
        self.pending.push(change);
    }

    /// A sync that succeeds.
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A sync that fails: some of the pending changes reached the disk, the rest never will. The
    /// page cache may go on showing them, or may forget them.
    pub(super) fn fail_sync(&mut self, rng: &mut SimRng) {
        self.durable = super::power::surviving_content(self, Loss::Random, &[], rng);
        self.pending.clear();
        if rng.chance(1, 2) {
            let len = self.content.len();
            self.content.clone_from(&self.durable);
            self.content.resize(len, 0);
        }
    }
}

/// A directory.
#[derive(Debug)]
pub(super) struct DirNode {
    pub(super) id: u64,
    pub(super) state: Mutex<DirState>,
}

pub(super) type Entries = BTreeMap<String, Node>;

#[derive(Debug, Default)]
pub(super) struct DirState {
    /// The entries that the process sees.
    pub(super) entries: Entries,
    /// The entries that are certainly on the disk.
    pub(super) durable: Entries,
}

/// The file or directory that a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<FileNode>),
    Dir(Arc<DirNode>),
}

impl Node {
    pub(super) fn id(&self) -> u64 {
        match self {
            Self::File(file) => file.id,
            Self::Dir(dir) => dir.id,
        }
    }
}

/// A change of directory entries that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum DirChange {
    /// A new name: a created file or directory, or a hard link.
    Link { dir: Arc<DirNode>, name: String, node: Node },
    /// A removed name.
    Unlink { dir: Arc<DirNode>, name: String, node: Node },
    /// A rename, which happens wholly or not at all.
    Rename { from: (Arc<DirNode>, String), to: (Arc<DirNode>, String), node: Node },
}

impl DirChange {
    /// The two directories that the change is in; the same one twice unless it is a move.
    pub(super) fn dirs(&self) -> [&Arc<DirNode>; 2] {
        match self {
            Self::Link { dir, .. } | Self::Unlink { dir, .. } => [dir, dir],
            Self::Rename { from, to, .. } => [&from.0, &to.0],
        }
    }

    /// Applies the change to entries that may lack some of the changes before it: a name is removed
    /// only if it still stands for the same file.
    pub(super) fn apply(&self, mut entries_of: impl FnMut(u64, &mut dyn FnMut(&mut Entries))) {
        let unlink = |name: &str, node: &Node, entries: &mut Entries| {
            if entries.get(name).is_some_and(|there| there.id() == node.id()) {
                entries.remove(name);
            }
        };
        match self {
            Self::Link { dir, name, node } => entries_of(dir.id, &mut |entries| {
                entries.insert(name.clone(), node.clone());
            }),
            Self::Unlink { dir, name, node } => {
                entries_of(dir.id, &mut |entries| unlink(name, node, entries));
            }
            Self::Rename { from, to, node } => {
                entries_of(from.0.id, &mut |entries| unlink(&from.1, node, entries));
                entries_of(to.0.id, &mut |entries| {
                    entries.insert(to.1.clone(), node.clone());
                });
            }
        }
    }
}

/// Copies files and directories, each once, however many names it has.
#[derive(Debug, Default)]
pub(super) struct Copier {
    files: BTreeMap<u64, Arc<FileNode>>,
    dirs: BTreeMap<u64, Arc<DirNode>>,
}

impl Copier {
    pub(super) fn dir(&mut self, dir: &DirNode) -> Arc<DirNode> {
        if let Some(copy) = self.dirs.get(&dir.id) {
            return Arc::clone(copy);
        }
        let copy = Arc::new(DirNode { id: dir.id, state: Mutex::default() });
        self.dirs.insert(dir.id, Arc::clone(&copy));
        let (entries, durable) = {
            let state = dir.state.lock();
            (state.entries.clone(), state.durable.clone())
        };
        let state = DirState { entries: self.entries(entries), durable: self.entries(durable) };
        *copy.state.lock() = state;
        copy
    }

    fn entries(&mut self, entries: Entries) -> Entries {
        entries.into_iter().map(|(name, node)| (name, self.node(&node))).collect()
    }

    fn node(&mut self, node: &Node) -> Node {
        match node {
            Node::Dir(dir) => Node::Dir(self.dir(dir)),
            Node::File(file) => {
                Node::File(Arc::clone(self.files.entry(file.id).or_insert_with(|| {
                    let state = Mutex::new(file.state.lock().clone());
                    Arc::new(FileNode { id: file.id, state })
                })))
            }
        }
    }

    pub(super) fn change(&mut self, change: &DirChange) -> DirChange {
        match change {
            DirChange::Link { dir, name, node } => {
                DirChange::Link { dir: self.dir(dir), name: name.clone(), node: self.node(node) }
            }
            DirChange::Unlink { dir, name, node } => {
                DirChange::Unlink { dir: self.dir(dir), name: name.clone(), node: self.node(node) }
            }
            DirChange::Rename { from, to, node } => DirChange::Rename {
                from: (self.dir(&from.0), from.1.clone()),
                to: (self.dir(&to.0), to.1.clone()),
                node: self.node(node),
            },
        }
    }
}
