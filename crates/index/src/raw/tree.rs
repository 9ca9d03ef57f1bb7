//! The tree from the root to the leaves: what is linked where, and what becomes of memory that was
//! unlinked.
//!
//! Thread safety: a thread that changes the tree makes new nodes, publishes them by one CAS and
//! retires what they replaced. Invariants:
//!
//! 1. A node has one place: one branch that is not frozen, or the root, leads to it. A branch that
//!    is made of the children of another takes its place by CAS, after that one was frozen; what
//!    was made in vain is never linked.
//! 2. So the thread whose CAS unlinks a node is alone in that, and threads that are pinned later
//!    cannot reach the node: this thread retires it.
//! 3. The word of a value and a record are retired by the thread that took them out of their slot.
#![allow(unsafe_code, reason = "publishes nodes and retires what they replace")]

use std::{marker::PhantomData, ptr::NonNull};

use rhumb_sync::{
    arena::Arena,
    epoch::Guard,
    garbage::{Garbage, Piece},
    panics::Panics,
    primitive::{Arc, AtomicPtr, Ordering, in_models},
};

use super::{
    branch::{Bound, BoundNode, Branch, ReplaceOutcome, TreeNode, ptr_of},
    record,
    schema::{Schema, free_slot},
};
use crate::{address::PLACES_2, counts::count_moved};

/// The most leaves of a group: those that two levels of a search tell apart.
const GROUP_MAX: usize = in_models(PLACES_2, 3);

/// Bytes that wait in one of sixteen stripes before a thread looks which may be freed. Looking
/// interrupts all threads, and takes longer than most replacements of a leaf may. Chosen, not
/// measured: 1 MiB is some 20 leaves of 1800 keys, and all stripes together let 16 MiB wait.
const GARBAGE_BYTES: usize = 1 << 20;

/// A node under branches.
pub(crate) trait LeafNode: TreeNode {
    /// Bytes of the leaf, in the arena and outside of it.
    fn bytes(&self) -> usize;

    /// Calls `visit` with what each slot holds, and whether its key is present. No thread writes
    /// the leaf meanwhile or afterwards.
    fn for_each_slot<S: Schema>(&self, visit: impl FnMut(u64, bool));
}

/// A leaf and its lower bound.
pub(crate) type BoundLeaf<L> = (Bound, Box<L>);

/// A tree of leaves. It owns them, and, if `S` says so, what their slots hold.
pub(crate) struct LeafTree<L: LeafNode, S: Schema> {
    root: AtomicPtr<Branch<Branch<L>>>,
    arena: Arc<Arena>,
    garbage: Garbage<Waste<L, S>>,
}

/// The position of a leaf on the way from a root.
pub(crate) struct LeafPosition<'g, L> {
    pub(crate) root: &'g Branch<Branch<L>>,
    pub(crate) group_at: usize,
    pub(crate) group: &'g Branch<L>,
    pub(crate) leaf_at: usize,
}

impl<L> Clone for LeafPosition<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for LeafPosition<'_, L> {}

/// The outcome of an attempt to publish leaves.
pub(crate) struct Publication<L> {
    /// The leaves, if they were not published.
    pub(crate) left: Option<Vec<BoundLeaf<L>>>,
    /// The bytes outside of the arena that came, less those that went.
    pub(crate) heap_bytes: i64,
}

/// Memory that was unlinked.
enum Waste<L, S> {
    Leaf(Unlinked<L>),
    Group(Unlinked<Branch<L>>),
    Root(Unlinked<Branch<Branch<L>>>),
    /// A record without its value.
    Record(u64),
    Value(u64, PhantomData<S>),
}

/// A node that nothing leads to any more. Threads may still read it.
struct Unlinked<T>(NonNull<T>);

// SAFETY: what it owns may be freed on any thread: nodes and values are `Send`.
unsafe impl<L, S> Send for Waste<L, S> {}

impl<T: TreeNode> Unlinked<T> {
    /// # Safety
    /// The node came from a box, was made with this arena, and no thread uses it again.
    unsafe fn free(self, arena: &Arena) {
        // SAFETY: the caller's promise.
        unsafe { Box::from_raw(self.0.as_ptr()).free(arena) };
    }
}

impl<L: LeafNode, S: Schema> Piece for Waste<L, S> {
    type Context = Arena;

    /// # Safety
    /// As for every [`Piece`]: no thread uses it again.
    unsafe fn free(self, arena: &Arena) {
        // SAFETY: each pointer came from a box, or word from a record or value, and the caller says
        // that no thread uses it again.
        unsafe {
            match self {
                Self::Leaf(leaf) => leaf.free(arena),
                Self::Group(group) => group.free(arena),
                Self::Root(root) => root.free(arena),
                Self::Record(record) => record::free(record),
                Self::Value(word, _) => S::free_value(word),
            }
        }
    }
}

impl<L: LeafNode, S: Schema> LeafTree<L, S> {
    /// A tree of these groups of leaves, at least one, of at least one leaf each.
    ///
    /// # Safety
    /// The leaves lie in this arena, and their slots hold what `S` says.
    pub(crate) unsafe fn new(arena: Arc<Arena>, groups: Vec<(Bound, Vec<BoundLeaf<L>>)>) -> Self {
        let groups = groups.into_iter().map(|(bound, leaves)| {
            let leaves = leaves.into_iter().map(|(bound, leaf)| (bound, Box::into_raw(leaf)));
            // SAFETY: the leaves came from boxes just now.
            (bound, Box::into_raw(unsafe { Branch::new(leaves.collect()) }))
        });
        // SAFETY: the groups came from boxes just now.
        let root = unsafe { Branch::new(groups.collect()) };
        let root = AtomicPtr::new(Box::into_raw(root));
        Self { root, arena, garbage: Garbage::new(GARBAGE_BYTES) }
    }

    #[inline(always)]
    pub(crate) fn root<'g>(&'g self, _guard: &'g Guard) -> &'g Branch<Branch<L>> {
        // SAFETY: the root is never null and comes from a box; a replaced one is freed only when no
        // thread that could have loaded it is pinned.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// Puts `leaves` in the place of the neighbours `replaced`, the first of which is at `at`, and
    /// retires those with `dead`. If another thread was faster, the leaves are still the caller's.
    ///
    /// # Safety
    /// The leaves lie in the tree's arena, their slots hold what `S` says, and what they own was
    /// owned by the replaced leaves or by no leaf. These are frozen. `dead` are their records that
    /// the new leaves have not.
    pub(crate) unsafe fn publish(
        &self,
        at: LeafPosition<'_, L>,
        replaced: &[&L],
        leaves: Vec<BoundLeaf<L>>,
        dead: Vec<u64>,
        guard: &Guard,
    ) -> Publication<L> {
        let mut heap_bytes = 0;
        let added: i64 = leaves.iter().map(|(_, leaf)| leaf.heap_bytes() as i64).sum();
        let leaves = leaves.into_iter().map(|(bound, leaf)| (bound, Box::into_raw(leaf)));
        let leaves: Vec<BoundNode<L>> = leaves.collect();
        if !self.link(at, replaced, &leaves, &mut heap_bytes, guard) {
            // SAFETY: they came from boxes just now and were not published.
            let back = |(bound, leaf): BoundNode<L>| (bound, unsafe { Box::from_raw(leaf) });
            return Publication { left: Some(leaves.into_iter().map(back).collect()), heap_bytes };
        }
        heap_bytes += added;
        for leaf in replaced {
            heap_bytes -= leaf.heap_bytes() as i64;
            let bytes = leaf.bytes();
            let unlinked = Waste::Leaf(Unlinked(NonNull::from(*leaf)));
            // SAFETY: the CAS that published the successors unlinked the leaf (invariant 2).
            unsafe { self.garbage.retire(guard, unlinked, bytes, &self.arena) };
        }
        for record in dead {
            // SAFETY: the record was in one of the replaced leaves and is in no other.
            heap_bytes -= unsafe { self.retire_record(record, guard) } as i64;
        }
        Publication { left: None, heap_bytes }
    }

    /// Links `leaves` in the place of the neighbours `replaced`. Returns true if it did.
    fn link(
        &self,
        at: LeafPosition<'_, L>,
        replaced: &[&L],
        leaves: &[BoundNode<L>],
        heap_bytes: &mut i64,
        guard: &Guard,
    ) -> bool {
        if let ([old], [(_, new)]) = (replaced, leaves)
            && !at.group.is_worn()
        {
            // SAFETY: the leaf is the caller's of `publish`.
            match unsafe { at.group.replace(at.leaf_at, old, *new) } {
                ReplaceOutcome::Done => return true,
                ReplaceOutcome::Lost => return false,
                ReplaceOutcome::Frozen => {}
            }
        }
        let mut children = at.group.freeze();
        let span = at.leaf_at..at.leaf_at + replaced.len();
        let is_current = children
            .get(span.clone())
            .is_some_and(|now| now.iter().zip(replaced).all(|((_, p), old)| *p == ptr_of(*old)));
        if is_current {
            children.splice(span, leaves.iter().cloned());
        }
        // Otherwise the group is replaced by one that is the same but not frozen.
        self.link_groups(at, children, heap_bytes, guard) && is_current
    }

    /// Replaces the group at `at`, which is frozen, by groups of these leaves. Returns true if it
    /// did.
    fn link_groups(
        &self,
        at: LeafPosition<'_, L>,
        leaves: Vec<BoundNode<L>>,
        heap_bytes: &mut i64,
        guard: &Guard,
    ) -> bool {
        count_moved(leaves.len());
        let count = leaves.len().div_ceil(GROUP_MAX);
        let size = leaves.len().div_ceil(count);
        let made = leaves.chunks(size).map(|leaves| {
            // SAFETY: the leaves are the old group's, which is frozen, or new.
            let group = unsafe { Branch::new(leaves.to_vec()) };
            (leaves[0].0.clone(), group)
        });
        let made: Vec<(Bound, Box<Branch<L>>)> = made.collect();
        let added: i64 = made.iter().map(|(_, group)| group.bytes() as i64).sum();
        let made: Vec<BoundNode<Branch<L>>> =
            made.into_iter().map(|(bound, group)| (bound, Box::into_raw(group))).collect();
        let is_done = match &made[..] {
            // SAFETY: the group has the children of the old one, which is frozen, but for the
            // leaves that are replaced.
            [(_, new)] => match unsafe { at.root.replace(at.group_at, at.group, *new) } {
                ReplaceOutcome::Done => true,
                ReplaceOutcome::Lost => false,
                ReplaceOutcome::Frozen => self.link_root(at, &made, heap_bytes, guard),
            },
            _ => self.link_root(at, &made, heap_bytes, guard),
        };
        if is_done {
            let gone = at.group.bytes();
            *heap_bytes += added - gone as i64;
            let unlinked = Waste::Group(Unlinked(NonNull::from(at.group)));
            // SAFETY: the CAS that published its successors unlinked the group (invariant 2).
            unsafe { self.garbage.retire(guard, unlinked, gone, &self.arena) };
        } else {
            for (_, group) in made {
                // SAFETY: the group came from a box just now and was not published.
                drop(unsafe { Box::from_raw(group) });
            }
        }
        is_done
    }

    /// Replaces the root by one with these groups in the place of the group at `at`. Returns true
    /// if it did.
    fn link_root(
        &self,
        at: LeafPosition<'_, L>,
        groups: &[BoundNode<Branch<L>>],
        heap_bytes: &mut i64,
        guard: &Guard,
    ) -> bool {
        let mut children = at.root.freeze();
        let is_current = children.get(at.group_at).is_some_and(|c| c.1 == ptr_of(at.group));
        if is_current {
            let span = at.group_at..at.group_at + 1;
            children.splice(span, groups.iter().cloned());
        }
        count_moved(children.len());
        // SAFETY: the groups are the old root's, which is frozen, or new.
        let new = unsafe { Branch::new(children) };
        let added = new.bytes() as i64;
        let (old, new) = (ptr_of(at.root), Box::into_raw(new));
        if self.root.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: the root came from a box just now and was not published.
            drop(unsafe { Box::from_raw(new) });
            return false;
        }
        let gone = at.root.bytes();
        *heap_bytes += added - gone as i64;
        let unlinked = Waste::Root(Unlinked(NonNull::from(at.root)));
        // SAFETY: the CAS unlinked the old root (invariant 2).
        unsafe { self.garbage.retire(guard, unlinked, gone, &self.arena) };
        is_current
    }

    /// Frees the record of a key, without its value, once no reader can hold it. Returns its bytes.
    ///
    /// # Safety
    /// The record was a slot's of the tree, the current thread took it out, and it is retired once.
    pub(crate) unsafe fn retire_record(&self, record: u64, guard: &Guard) -> usize {
        // SAFETY: the record lives until it is retired.
        let bytes = record::bytes_of(unsafe { record::key(record) }.len());
        // SAFETY: the caller's promise.
        unsafe { self.garbage.retire(guard, Waste::Record(record), bytes, &self.arena) };
        bytes
    }

    /// Frees a value of about `bytes` bytes that a write took out, once no reader can hold it.
    ///
    /// # Safety
    /// The word was a value's of this tree, or made for one, and is retired once.
    pub(crate) unsafe fn retire_value(&self, word: u64, bytes: usize, guard: &Guard) {
        // SAFETY: a write took it out, so that readers from now on cannot find it.
        unsafe { self.garbage.retire(guard, Waste::Value(word, PhantomData), bytes, &self.arena) };
    }

    /// Runs `act`, and only then frees what it would have freed by what it retires: no destructor
    /// of a value runs in the midst of it.
    ///
    /// # Panics
    /// If a destructor does, after `act` and the others have run.
    pub(crate) fn hold_frees<R>(&self, act: impl FnOnce() -> R) -> R {
        self.garbage.hold_frees(&self.arena, act)
    }

    /// Frees what no thread can hold any more.
    pub(crate) fn collect_garbage(&self) {
        self.garbage.collect(&self.arena);
    }

    /// The bytes that wait to be freed.
    pub(crate) fn garbage_bytes(&self) -> usize {
        self.garbage.bytes()
    }
}

impl<L: LeafNode, S: Schema> Drop for LeafTree<L, S> {
    fn drop(&mut self) {
        // Values' destructors may panic: what is left is freed all the same.
        let mut panics = Panics::default();
        panics.catch(|| self.garbage.free_all(&self.arena));
        let root = self.root.load(Ordering::Acquire);
        // SAFETY: `&mut self` says that no other thread uses the tree. What is reachable was not
        // retired: each leaf, each group and the root is in one place, and so is each record and
        // value.
        unsafe {
            let root = Box::from_raw(root);
            for group in root.children() {
                let group = Box::from_raw(group);
                for leaf in group.children() {
                    let leaf = Box::from_raw(leaf);
                    if S::IS_OWNER {
                        leaf.for_each_slot::<S>(|slot, is_present| {
                            free_slot::<S>(slot, is_present, &mut panics)
                        });
                    }
                    leaf.free(&self.arena);
                }
            }
        }
        panics.resume();
    }
}
