//! The nodes between the root and the leaves: bounds, and pointers to the children they lead to.
//!
//! Thread safety: bounds never change; children are replaced by CAS. Invariants:
//!
//! 1. A branch's first bound counts as the least key; its bounds ascend, and a key belongs to the
//!    last child whose bound is not above it.
//! 2. A child's pointer is replaced only while its frozen bit is clear. Once all children of a
//!    branch are frozen the branch never changes again, and a thread that wants to change it
//!    replaces the branch.
//! 3. Children live at least as long as a branch that a pinned thread can reach points to them. So
//!    a borrow of a branch, which begins at a tree's root under a guard, keeps its children.
//! 4. The shortcut beside a child's pointer, and the pivot root at its place, were copied when the
//!    branch was made, from the child that it had then, and never change. The pointer says whether
//!    it still leads to that child, and which of the two that child has.
#![allow(unsafe_code, reason = "follows pointers that epochs keep alive")]

use std::{mem::MaybeUninit, ptr};

use rhumb_model::code::common_prefix_len;
use rhumb_sync::{
    arena::Arena,
    epoch::Guard,
    primitive::{Arc, AtomicPtr, AtomicU32, Lifetime, Ordering, in_models},
};

use super::{
    leaf::{BucketLeaf, BucketWay, Shortcut},
    schema::{KeyProbe, Schema},
};
use crate::{
    address::{BucketLine, PivotRoot, capped, descend_2, search_nodes, word_behind},
    simd::{SearchNode, last_up_to},
};

/// A lower bound of a child.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) word: u64,
    /// The whole key, if keys are wide.
    bytes: Option<Arc<[u8]>>,
}

impl Bound {
    pub(crate) fn new<S: Schema>(probe: KeyProbe<'_>) -> Self {
        let word = if S::WIDE { probe.word } else { capped(probe.word) };
        Self { word, bytes: S::WIDE.then(|| probe.bytes.into()) }
    }

    pub(crate) fn probe(&self) -> KeyProbe<'_> {
        KeyProbe { word: self.word, bytes: self.key() }
    }

    /// The whole key, if keys are wide.
    fn key(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}

/// Words that are searched around the place that a line names: one comparison of a cache line of
/// words.
const WINDOW: usize = 8;

/// A line that names the place of any word to within a window.
struct LineHint {
    line: BucketLine,
    /// The bounds, padded to a window.
    words: Box<[u64]>,
}

impl LineHint {
    /// A hint for these bounds, if a line is good enough.
    fn new(bounds: &[Bound]) -> Option<Self> {
        let (second, last) = (bounds.get(1)?, bounds.last()?);
        let line = BucketLine::new(second.word, last.word, bounds.len());
        let mut words: Vec<u64> = bounds.iter().map(|bound| bound.word).collect();
        words[0] = 0;
        words.resize(words.len().max(WINDOW), u64::MAX);
        let hint = Self { line, words: words.into() };
        let is_exact = bounds.iter().enumerate().all(|(place, bound)| {
            let end = bounds.get(place + 1).map_or(u64::MAX, |next| next.word - 1);
            hint.place(bound.word) == place && hint.place(end) == place
        });
        is_exact.then_some(hint)
    }

    #[inline(always)]
    fn place(&self, word: u64) -> usize {
        let start = self.line.at(word).saturating_sub(WINDOW / 2).min(self.words.len() - WINDOW);
        let window = self.words[start..].first_chunk::<WINDOW>();
        start + window.map_or(0, |window| last_up_to(window, capped(word)))
    }
}

/// A node that a branch leads to.
pub(crate) trait TreeNode: Send + Sync {
    /// What finds a bucket of the node: the shortcut alone, or with the pivot root. A branch keeps
    /// a copy beside the pointer to the node, so that a lookup waits for one cache miss less.
    fn shortcut(&self) -> Option<(Shortcut, Option<&PivotRoot>)>;

    /// Bytes of the node outside of the arena.
    fn heap_bytes(&self) -> usize;

    /// Gives the node's memory back, but neither its children nor the records that its slots point
    /// to.
    ///
    /// # Safety
    /// The node was made with this arena, and no thread uses it again.
    unsafe fn free(self: Box<Self>, arena: &Arena);
}

impl<T: TreeNode> TreeNode for Branch<T> {
    fn shortcut(&self) -> Option<(Shortcut, Option<&PivotRoot>)> {
        None
    }

    fn heap_bytes(&self) -> usize {
        self.bytes()
    }

    /// # Safety
    /// None is needed: nothing of a branch is in the arena.
    unsafe fn free(self: Box<Self>, _arena: &Arena) {}
}

// SAFETY: a branch owns its boxes; children are `Send` and `Sync`, and their pointers are atomic.
unsafe impl<T: TreeNode> Send for Branch<T> {}
// SAFETY: as above.
unsafe impl<T: TreeNode> Sync for Branch<T> {}

/// A child of a branch: half a line.
#[repr(C, align(32))]
struct ChildSlot<T> {
    child: AtomicPtr<T>,
    /// Written if the pointer has [`HAS_SHORTCUT`] set.
    shortcut: MaybeUninit<Shortcut>,
}

impl<T: TreeNode> ChildSlot<T> {
    /// # Safety
    /// As for [`Branch::new`].
    unsafe fn new(child: *mut T) -> Self {
        // SAFETY: the caller's promise.
        match unsafe { &*child }.shortcut() {
            Some((shortcut, pivot_root)) => {
                let tags =
                    if pivot_root.is_some() { HAS_SHORTCUT | HAS_PIVOT_ROOT } else { HAS_SHORTCUT };
                let child = child.map_addr(|address| address | tags);
                Self { child: AtomicPtr::new(child), shortcut: MaybeUninit::new(shortcut) }
            }
            None => Self { child: AtomicPtr::new(child), shortcut: MaybeUninit::uninit() },
        }
    }
}

/// The pivot roots of children that have one, at the children's places, up to the last child that
/// has one.
///
/// # Safety
/// As for [`Branch::new`].
unsafe fn pivot_roots<T: TreeNode>(children: &[*mut T]) -> Box<[PivotRoot]> {
    let pivot_root = |child: &*mut T| {
        // SAFETY: the caller's promise.
        unsafe { &**child }.shortcut().and_then(|(_, pivot_root)| pivot_root.copied())
    };
    let pivot_roots: Vec<Option<PivotRoot>> = children.iter().map(pivot_root).collect();
    let len = pivot_roots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let empty = [SearchNode([0; 8]); 2];
    pivot_roots[..len].iter().map(|pivot_root| pivot_root.unwrap_or(empty)).collect()
}

/// A node of the route: bounds and children. The alignment leaves room for [`HAS_PIVOT_ROOT`] in
/// pointers to it also where a pointer has four bytes.
#[repr(align(8))]
pub(crate) struct Branch<T> {
    nodes: Box<[SearchNode]>,
    levels: usize,
    /// Used instead of more than two levels of search nodes.
    hint: Option<LineHint>,
    /// The prefix of all wide bounds except the first; `codes` are the words of what follows it.
    prefix: Box<[u8]>,
    codes: Box<[u64]>,
    slots: Box<[ChildSlot<T>]>,
    /// The pivot roots of the children whose pointers have [`HAS_PIVOT_ROOT`] set.
    pivot_roots: Box<[PivotRoot]>,
    /// The number of children that were replaced: their slots have no shortcut.
    replaced: AtomicU32,
    bounds: Box<[Bound]>,
    life: Lifetime,
}

/// A child and its lower bound. The child came from a box.
pub(super) type BoundNode<T> = (Bound, *mut T);

/// A branch is worn when more than one in this many of its children were replaced. Chosen, not
/// measured: in a group of 64 leaves at most eight are then found through their own memory, and the
/// group is copied once for nine replacements.
const WORN: usize = in_models(8, 2);

/// Set in a child's pointer when it must not be replaced any more.
const FROZEN: usize = 1;
/// Set in a child's pointer while the shortcut beside it is its own.
const HAS_SHORTCUT: usize = 2;
/// Set as well if the child's pivot root finds a bucket; the branch has a copy of the pivot root.
const HAS_PIVOT_ROOT: usize = 4;

const _: () = assert!(
    align_of::<Branch<BucketLeaf>>() > HAS_PIVOT_ROOT && align_of::<BucketLeaf>() > HAS_PIVOT_ROOT
);

/// A child's pointer as it was before anything was set in it.
#[inline(always)]
fn plain<T>(child: *mut T) -> *mut T {
    child.map_addr(|address| address & !(FROZEN | HAS_SHORTCUT | HAS_PIVOT_ROOT))
}

impl<T: TreeNode> Branch<T> {
    /// A branch of at least one child.
    ///
    /// # Safety
    /// Each child is its maker's alone, or was read from a branch of this tree that the current
    /// pin keeps. No thread but the current one uses the branch before a tree leads to it, and from
    /// then on a child is retired only after it was unlinked from the branch, or the branch from
    /// the tree.
    pub(super) unsafe fn new(children: Vec<BoundNode<T>>) -> Box<Self> {
        let (bounds, children): (Vec<Bound>, Vec<*mut T>) = children.into_iter().unzip();
        let mut levels = 2;
        while 8_usize.pow(levels as u32) < bounds.len() {
            levels += 1;
        }
        let is_wide = bounds.iter().any(|bound| bound.bytes.is_some());
        let prefix = match &bounds[..] {
            [_, second, .., last] if is_wide => {
                &second.key()[..common_prefix_len(second.key(), last.key())]
            }
            _ => &[],
        };
        let word = |bound: &Bound| match is_wide {
            true => word_behind(prefix, bound.key()),
            false => bound.word,
        };
        let words: Vec<u64> = bounds.iter().map(word).collect();
        Box::new(Self {
            hint: if levels > 2 && !is_wide { LineHint::new(&bounds) } else { None },
            nodes: search_nodes(&words, levels),
            prefix: prefix.into(),
            codes: if is_wide { words.into() } else { Box::default() },
            levels,
            // SAFETY: the caller's promise.
            pivot_roots: unsafe { pivot_roots(&children) },
            // SAFETY: the caller's promise.
            slots: children.into_iter().map(|child| unsafe { ChildSlot::new(child) }).collect(),
            replaced: AtomicU32::new(0),
            bounds: bounds.into(),
            life: Lifetime::new(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// About the number of bytes of the branch.
    pub(crate) fn bytes(&self) -> usize {
        let bound =
            |bound: &Bound| size_of::<Bound>() + bound.bytes.as_ref().map_or(0, |b| b.len() + 16);
        size_of::<Self>()
            + self.nodes.len() * size_of::<SearchNode>()
            + self.len() * size_of::<ChildSlot<T>>()
            + self.pivot_roots.len() * size_of::<PivotRoot>()
            + self.bounds.iter().map(bound).sum::<usize>()
            + self.prefix.len()
            + self.codes.len() * size_of::<u64>()
    }

    pub(crate) fn bound(&self, at: usize) -> Option<&Bound> {
        self.bounds.get(at)
    }

    /// The child that a key belongs to.
    #[inline(always)]
    pub(crate) fn find<S: Schema>(&self, probe: KeyProbe<'_>) -> usize {
        let place = if S::WIDE {
            self.find_wide(probe.bytes)
        } else if self.levels == 2 {
            // This is so in every group: its search nodes are two levels.
            descend_2(&self.nodes, probe.word)
        } else if let Some(hint) = &self.hint {
            hint.place(probe.word)
        } else {
            self.descend(probe.word)
        };
        place.min(self.slots.len() - 1)
    }

    fn find_wide(&self, key: &[u8]) -> usize {
        let word = word_behind(&self.prefix, key);
        let place = self.descend(word).min(self.codes.len() - 1);
        // Places before it have lower words or equal ones; whole keys settle ties.
        if place == 0 || self.codes[place] < word || self.bounds[place].key() <= key {
            return place;
        }
        self.bounds[1..place].partition_point(|bound| bound.key() <= key)
    }

    #[inline(always)]
    fn descend(&self, word: u64) -> usize {
        let word = capped(word);
        let (mut place, mut level, mut width) = (0, 0, 1);
        for _ in 0..self.levels {
            let node = self.nodes.get(level + place);
            place = place * 8 + node.map_or(0, |node| last_up_to(&node.0, word));
            level += width;
            width *= 8;
        }
        place
    }

    /// A child; the last one for places beyond it.
    #[inline(always)]
    pub(crate) fn child<'g>(&'g self, at: usize, _guard: &'g Guard) -> &'g T {
        self.life.touch();
        let child = self.slots[at.min(self.slots.len() - 1)].child.load(Ordering::Acquire);
        // SAFETY: children are never null, come from boxes, and live while this branch is borrowed
        // (invariant 3).
        unsafe { &*plain(child) }
    }

    /// A child, and the way to its buckets if the branch knows it.
    #[inline(always)]
    pub(crate) fn child_and_way<'g>(
        &'g self,
        at: usize,
        _guard: &'g Guard,
    ) -> (&'g T, BucketWay<'g>) {
        self.life.touch();
        let at = at.min(self.slots.len() - 1);
        let slot = &self.slots[at];
        let child = slot.child.load(Ordering::Acquire);
        // SAFETY: the shortcut was written before the pointer that says so.
        let shortcut = || unsafe { slot.shortcut.assume_init() };
        // SAFETY: the shortcut and the pivot root are the child's (invariant 4), which has a line
        // if it has no pivot root, and lives while this branch is borrowed (invariant 3).
        let way = unsafe {
            match child.addr() & (HAS_SHORTCUT | HAS_PIVOT_ROOT) {
                HAS_SHORTCUT => BucketWay::by_line(shortcut()),
                0 => BucketWay::Leaf,
                _ => self.pivot_roots.get(at).map_or(BucketWay::Leaf, |pivot_root| {
                    BucketWay::by_pivots(shortcut(), pivot_root)
                }),
            }
        };
        // SAFETY: children are never null, come from boxes, and live while this branch is borrowed
        // (invariant 3).
        (unsafe { &*plain(child) }, way)
    }

    /// Replaces a child by one of the same bound.
    ///
    /// # Safety
    /// As for [`Branch::new`], of `new`. The branch was reached from a tree's root.
    pub(super) unsafe fn replace(&self, at: usize, old: &T, new: *mut T) -> ReplaceOutcome {
        let child = &self.slots[at].child;
        let is_old = |child: *mut T| ptr::eq(plain(child), old);
        let now = child.load(Ordering::Acquire);
        if now.addr() & FROZEN == 0 && is_old(now) {
            let (ok, failed) = (Ordering::AcqRel, Ordering::Acquire);
            match child.compare_exchange(now, new, ok, failed) {
                Ok(_) => {
                    self.replaced.fetch_add(1, Ordering::Relaxed);
                    return ReplaceOutcome::Done;
                }
                // The branch was frozen meanwhile.
                Err(now) if is_old(now) => return ReplaceOutcome::Frozen,
                Err(_) => return ReplaceOutcome::Lost,
            }
        }
        if is_old(now) { ReplaceOutcome::Frozen } else { ReplaceOutcome::Lost }
    }

    /// Returns true if enough children were replaced that a new branch of the same children would
    /// be faster.
    pub(crate) fn is_worn(&self) -> bool {
        self.replaced.load(Ordering::Relaxed) as usize > self.len() / WORN
    }

    /// Makes the branch unchangeable and returns its children. Any number of threads may do so at
    /// once.
    pub(super) fn freeze(&self) -> Vec<BoundNode<T>> {
        let frozen = self.slots.iter().map(|ChildSlot { child, .. }| {
            let mut now = child.load(Ordering::Acquire);
            while now.addr() & FROZEN == 0 {
                let tagged = now.map_addr(|address| address | FROZEN);
                match child.compare_exchange(now, tagged, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(changed) => now = changed,
                }
            }
            plain(now)
        });
        self.bounds.iter().cloned().zip(frozen).collect()
    }

    /// The children of a branch that no other thread uses.
    pub(super) fn children(&self) -> impl Iterator<Item = *mut T> {
        self.slots.iter().map(|slot| plain(slot.child.load(Ordering::Acquire)))
    }
}

/// The outcome of an attempt to replace a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplaceOutcome {
    Done,
    /// The branch is being replaced.
    Frozen,
    /// The child is another one now.
    Lost,
}

pub(super) fn ptr_of<T>(shared: &T) -> *mut T {
    ptr::from_ref(shared).cast_mut()
}
