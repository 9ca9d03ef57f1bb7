//! The content of a disk after the power failed: which of the changes that were not durable
//! survived.
//!
//! Nothing that POSIX promises is broken, and nothing more is kept than it promises:
//!
//! 1. Synced contents and lengths, and entries of synced directories, survive.
//! 2. Of a write that was not synced, every sector independently survives or not. A sector holds
//!    one of the versions that it had since the last sync, never a mixture.
//! 3. The length of a file survives independently of its contents, and may be any between the
//!    shortest and the longest that it had since the last sync: where a length survived and a
//!    sector did not, there are zeros, or, with [`Loss::Adversarial`], what an older file left
//!    there.
//! 4. Entries survive independently of each other and of the files. Two changes of one name keep
//!    their order, and a rename happens wholly or not at all.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::Range,
    sync::Arc,
};

use super::{
    node::{DirChange, DirNode, Entries, FileState, Node, SECTOR_BYTES},
    rng::SimRng,
};

/// What happens to changes that were not durable when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All are lost.
    DropUnsynced,
    /// All survive.
    KeepAll,
    /// As on an ordinary disk: changes of directories survive up to some moment; files keep
    /// everything, nothing, a beginning, an end or any set of sectors; and lost sectors are zeros.
    Random,
    /// As bad as is allowed: changes of directories survive in any combination, and lost sectors
    /// may hold the contents of older files.
    Adversarial,
}

impl Loss {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::DropUnsynced, Self::KeepAll, Self::Random, Self::Adversarial];
}

/// Which of the versions of its sectors a file keeps. Sectors are counted from the first one that
/// was changed; fractions are of the changed part.
#[derive(Clone, Copy, Debug)]
enum Keep {
    Nothing,
    Everything,
    /// The newest version below this sector, and the oldest from there on.
    Before(usize),
    /// The newest version from this sector on, and the oldest below.
    From(usize),
    /// The newest version everywhere but in this sector.
    AllBut(usize),
    /// Any version, for each sector on its own.
    Any,
}

impl Keep {
    fn choose(loss: Loss, sectors: &Range<usize>, rng: &mut SimRng) -> Self {
        let some = sectors.start + rng.index(sectors.len().max(1));
        match loss {
            Loss::DropUnsynced => Self::Nothing,
            Loss::KeepAll => Self::Everything,
            Loss::Random | Loss::Adversarial => match rng.below(8) {
                0 => Self::Nothing,
                1 => Self::Everything,
                2 | 3 => Self::Before(some),
                4 => Self::From(some),
                5 => Self::AllBut(some),
                _ => Self::Any,
            },
        }
    }

    /// The number of the `versions` changes of `sector` that reached the disk.
    fn versions(self, sector: usize, versions: usize, rng: &mut SimRng) -> usize {
        let keeps_newest = match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Before(at) => sector < at,
            Self::From(at) => sector >= at,
            Self::AllBut(at) => sector != at,
            Self::Any => return rng.index(versions + 1),
        };
        if keeps_newest { versions } else { 0 }
    }
}

/// The length that the file has afterwards: one that it had since the last sync, or one between,
/// because the system writes a long append back in parts.
fn surviving_len(file: &FileState, loss: Loss, rng: &mut SimRng) -> usize {
    let mut lens = vec![file.durable.len()];
    for change in &file.pending {
        lens.push(change.len_after(*lens.last().expect("never empty")));
    }
    let newest = lens.len() - 1;
    lens[match loss {
        Loss::DropUnsynced => 0,
        Loss::KeepAll => newest,
        Loss::Random | Loss::Adversarial => match rng.below(8) {
            0 | 1 => 0,
            2 => rng.index(lens.len()),
            3 => return between(&lens, rng),
            _ => newest,
        },
    }]
}

/// A length from the shortest of `lens` to the longest.
fn between(lens: &[usize], rng: &mut SimRng) -> usize {
    let shortest = *lens.iter().min().expect("never empty");
    let longest = *lens.iter().max().expect("never empty");
    shortest + rng.index(longest - shortest + 1)
}

/// The content of `file` after a power cut. `stale` is what older files may have left in its place.
pub(super) fn surviving_content(
    file: &FileState,
    loss: Loss,
    stale: &[Vec<u8>],
    rng: &mut SimRng,
) -> Vec<u8> {
    let len = surviving_len(file, loss, rng);
    let len_max = file.pending.iter().fold(file.durable.len(), |max, c| max.max(c.range(max).end));
    let mut versions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, change) in file.pending.iter().enumerate() {
        for sector in sectors_of(&change.range(len_max)) {
            versions.entry(sector).or_default().push(number);
        }
    }
    let first = versions.keys().next().copied().unwrap_or(0);
    let last = versions.keys().next_back().copied().unwrap_or(0);
    let keep = Keep::choose(loss, &(first..last + 1), rng);
    let unkind = loss == Loss::Adversarial && !stale.is_empty() && rng.chance(1, 2);

    let mut out = file.durable.clone();
    out.resize(len_max.max(len), 0);
    for (sector, changes) in versions {
        let range = sector * SECTOR_BYTES..((sector + 1) * SECTOR_BYTES).min(out.len());
        let kept = keep.versions(sector, changes.len(), rng);
        for &number in &changes[..kept] {
            let change = &file.pending[number];
            let part = intersection(&change.range(len_max), &range);
            change.apply_part(&mut out, part);
        }
        if kept == 0 && unkind && range.start >= file.durable.len() {
            leave_stale(&mut out[range.clone()], range.start, &stale[rng.index(stale.len())]);
        }
    }
    out.truncate(len);
    out
}

fn sectors_of(range: &Range<usize>) -> Range<usize> {
    range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES)
}

fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// Fills a sector at `offset` with what an older file had at the same place.
fn leave_stale(sector: &mut [u8], offset: usize, older: &[u8]) {
    let there = older.get(offset..).unwrap_or_default();
    let n = there.len().min(sector.len());
    sector[..n].copy_from_slice(&there[..n]);
}

/// The entries of all directories after a power cut, by directory.
fn surviving_entries(
    root: &Arc<DirNode>,
    changes: &[DirChange],
    loss: Loss,
    rng: &mut SimRng,
) -> BTreeMap<u64, Entries> {
    let mut tree = BTreeMap::new();
    let mut todo = vec![Arc::clone(root)];
    // A directory whose own name is not durable is reached only through the changes.
    for change in changes {
        todo.extend(change.dirs().map(Arc::clone));
        if let DirChange::Link { node: Node::Dir(child), .. } = change {
            todo.push(Arc::clone(child));
        }
    }
    while let Some(dir) = todo.pop() {
        if let Entry::Vacant(place) = tree.entry(dir.id) {
            let durable = dir.state.lock().durable.clone();
            todo.extend(durable.values().filter_map(|node| match node {
                Node::Dir(child) => Some(Arc::clone(child)),
                Node::File(_) => None,
            }));
            place.insert(durable);
        }
    }
    let kept = surviving_changes(changes, loss, rng);
    for (change, _) in changes.iter().zip(kept).filter(|(_, kept)| *kept) {
        change.apply(|dir, edit| edit(tree.get_mut(&dir).expect("all are there")));
    }
    tree
}

/// Decides which changes survive. A change that survives brings with it the earlier ones of its
/// names.
fn surviving_changes(changes: &[DirChange], loss: Loss, rng: &mut SimRng) -> Vec<bool> {
    let ordered = loss == Loss::Random && rng.chance(1, 2);
    let end = rng.index(changes.len() + 1);
    let mut needed: BTreeSet<(u64, &str)> = BTreeSet::new();
    let mut kept = vec![false; changes.len()];
    for (number, change) in changes.iter().enumerate().rev() {
        let names: [(u64, &str); 2] = match change {
            DirChange::Link { dir, name, .. } | DirChange::Unlink { dir, name, .. } => {
                [(dir.id, name), (dir.id, name)]
            }
            DirChange::Rename { from, to, .. } => [(from.0.id, &from.1), (to.0.id, &to.1)],
        };
        let chosen = match loss {
            Loss::DropUnsynced => false,
            Loss::KeepAll => true,
            Loss::Random if ordered => number < end,
            Loss::Random | Loss::Adversarial => rng.chance(1, 2),
        };
        if chosen || names.iter().any(|name| needed.contains(name)) {
            kept[number] = true;
            needed.extend(names);
        }
    }
    kept
}

/// A file tree by path components, as it is on the disk after a power cut.
#[derive(Debug)]
pub(super) enum Survivor {
    /// A file, with its identity before the cut, so that two names of one file remain two names of
    /// one file.
    File {
        id: u64,
        content: Arc<Vec<u8>>,
    },
    Dir(BTreeMap<String, Survivor>),
}

/// The files on the disk below `root` after a power cut.
pub(super) fn surviving_tree(
    root: &Arc<DirNode>,
    changes: &[DirChange],
    stale: &[Vec<u8>],
    loss: Loss,
    rng: &mut SimRng,
) -> BTreeMap<String, Survivor> {
    let tree = surviving_entries(root, changes, loss, rng);
    let mut walk = Walk { tree, files: BTreeMap::new(), stale, loss, rng };
    walk.dir(root.id)
}

struct Walk<'a> {
    tree: BTreeMap<u64, Entries>,
    files: BTreeMap<u64, Arc<Vec<u8>>>,
    stale: &'a [Vec<u8>],
    loss: Loss,
    rng: &'a mut SimRng,
}

impl Walk<'_> {
    fn dir(&mut self, id: u64) -> BTreeMap<String, Survivor> {
        let entries = self.tree.get(&id).cloned().unwrap_or_default();
        let mut out = BTreeMap::new();
        for (name, node) in entries {
            let survivor = match node {
                Node::Dir(dir) => Survivor::Dir(self.dir(dir.id)),
                Node::File(file) => {
                    let content = match self.files.get(&file.id) {
                        Some(content) => Arc::clone(content),
                        None => {
                            let state = file.state.lock();
                            let content =
                                surviving_content(&state, self.loss, self.stale, self.rng);
                            let content = Arc::new(content);
                            self.files.insert(file.id, Arc::clone(&content));
                            content
                        }
                    };
                    Survivor::File { id: file.id, content }
                }
            };
            out.insert(name, survivor);
        }
        out
    }
}
