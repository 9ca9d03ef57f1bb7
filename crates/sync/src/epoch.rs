//! Epochs: they tell which threads may still hold what was unlinked, so that it is not freed too
//! early.
//!
//! A thread that is about to follow pointers *pins* itself: it stores the current epoch in a slot
//! of its own. Pinning is one store without a fence where the system can make every thread's stores
//! visible on demand (`membarrier`), which the thread that advances the epoch asks for; elsewhere
//! both sides use fences. A fence would also keep a thread's lookups from overlapping, and that
//! costs far more than the fence.
//!
//! Invariants:
//!
//! 1. The epoch advances from `e` only when every pinned slot shows `e`; so once it is seen that a
//!    thread is pinned in `e`, the epoch is at most `e + 1` until that thread is unpinned.
//! 2. What was unlinked when the epoch was `e` (read after the unlinking) may be freed when it is
//!    `e + GRACE`: every thread that could have seen it has been unpinned since.
//! 3. Slots are never freed, and each belongs to at most one thread.
//! 4. A forked child has one thread. The slots of its parent's other threads are unpinned there
//!    before that thread goes on, and stay taken: what those threads held, nothing in the child
//!    uses. (A thread that forks while it uses what another thread's guard keeps breaks the promise
//!    that it gives for the fork, which is unsafe.)

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{Once, OnceLock},
};

use crate::{
    primitive::{
        self, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
    },
    process,
};

/// Epochs that must pass before something unlinked is freed. Two would do; the third allows for an
/// epoch that was read a moment too early.
pub const GRACE: u64 = 3;

/// The value of a slot whose thread is not pinned.
const UNPINNED: u64 = 0;

primitive::global! {
    static EPOCH: AtomicU64 = AtomicU64::new(1);
    static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
    static SLOT_COUNT: AtomicUsize = AtomicUsize::new(0);
}

#[repr(align(128))]
struct Slot {
    /// The epoch in which the thread was pinned.
    pinned: AtomicU64,
    is_taken: AtomicBool,
    index: usize,
    next: Option<&'static Slot>,
}

struct Local {
    slot: Cell<Option<&'static Slot>>,
    /// The number of guards of this thread.
    depth: Cell<usize>,
    /// True if pinning needs a fence.
    is_fenced: Cell<bool>,
}

impl Local {
    /// Records the epoch, before anything that is loaded from now on.
    #[inline(always)]
    fn note(&self, slot: &Slot) {
        // Released, so that a thread that sees this pin knows that all reads of the one before are
        // over.
        slot.pinned.store(EPOCH.load(Ordering::Acquire), Ordering::Release);
        if self.is_fenced.get() {
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }
}

primitive::local! {
    static LOCAL: Local = Local {
        slot: Cell::new(None),
        depth: Cell::new(0),
        is_fenced: Cell::new(true),
    };
    static OWNER: Owner = Owner;
}

/// Gives the slot back when the thread ends.
struct Owner;

impl Drop for Owner {
    fn drop(&mut self) {
        // Only a model's thread can have lost it by now; its slot then stays taken.
        let _ = LOCAL.try_with(|local| {
            // A guard that is still alive then (in another thread-local value) keeps the slot.
            if local.depth.get() == 0
                && let Some(slot) = local.slot.take()
            {
                slot.is_taken.store(false, Ordering::Release);
            }
        });
    }
}

/// Proof that the thread is pinned: nothing that it can reach is freed. Belongs to its thread.
pub struct Guard {
    index: usize,
    thread: PhantomData<*const ()>,
}

impl Guard {
    /// A number of the thread: small, and different for threads that live at the same time.
    #[inline]
    pub fn thread_index(&self) -> usize {
        self.index
    }

    /// Unpins the thread and pins it again, unless it has another guard.
    pub fn repin(&mut self) {
        LOCAL.with(|local| {
            if let (1, Some(slot)) = (local.depth.get(), local.slot.get()) {
                slot.pinned.store(UNPINNED, Ordering::Release);
                local.note(slot);
            }
        });
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        LOCAL.with(|local| {
            let depth = local.depth.get() - 1;
            local.depth.set(depth);
            if depth == 0
                && let Some(slot) = local.slot.get()
            {
                slot.pinned.store(UNPINNED, Ordering::Release);
            }
        });
    }
}

/// Pins the current thread. Takes a nanosecond or two.
#[inline]
pub fn pin() -> Guard {
    LOCAL.with(|local| {
        let slot = local.slot.get().unwrap_or_else(|| register(local));
        let depth = local.depth.get();
        local.depth.set(depth + 1);
        if depth == 0 {
            local.note(slot);
        }
        Guard { index: slot.index, thread: PhantomData }
    })
}

/// Takes a slot for the current thread.
#[cold]
fn register(local: &Local) -> &'static Slot {
    static CHILDREN: Once = Once::new();
    CHILDREN.call_once(|| process::call_in_children(unpin_others));
    let slot = free_slot().unwrap_or_else(new_slot);
    local.is_fenced.set(!is_asymmetric());
    local.slot.set(Some(slot));
    // If the thread is ending already, the slot is not given back: it stays taken and unpinned.
    let _ = OWNER.try_with(|_| ());
    slot
}

/// Unpins every thread but this one, in a forked child that has no other.
///
/// Slots stay taken. If a signal's handler forked in the midst of [`register`], this thread has a
/// slot that it does not know of yet.
extern "C" fn unpin_others() {
    let _ = LOCAL.try_with(|local| {
        let own = local.slot.get().map(|slot| slot.index);
        for slot in slots().filter(|slot| Some(slot.index) != own) {
            slot.pinned.store(UNPINNED, Ordering::Release);
        }
    });
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut slot = load_slots();
    std::iter::from_fn(move || {
        let current = slot?;
        slot = current.next;
        Some(current)
    })
}

#[allow(unsafe_code, reason = "slots are leaked boxes")]
fn load_slots() -> Option<&'static Slot> {
    // SAFETY: the pointer is null or came from `Box::leak` (invariant 3).
    unsafe { SLOTS.load(Ordering::Acquire).as_ref() }
}

fn free_slot() -> Option<&'static Slot> {
    slots().find(|slot| {
        let (ok, failed) = (Ordering::Acquire, Ordering::Relaxed);
        slot.is_taken.compare_exchange(false, true, ok, failed).is_ok()
    })
}

fn new_slot() -> &'static Slot {
    let slot = Box::leak(Box::new(Slot {
        pinned: AtomicU64::new(UNPINNED),
        is_taken: AtomicBool::new(true),
        index: SLOT_COUNT.fetch_add(1, Ordering::Relaxed),
        next: None,
    }));
    let address = std::ptr::from_mut(slot);
    loop {
        let head = load_slots();
        let head_address =
            head.map_or(std::ptr::null_mut(), |head| std::ptr::from_ref(head).cast_mut());
        link(address, head);
        let (ok, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        if SLOTS.compare_exchange(head_address, address, ok, failed).is_ok() {
            break;
        }
    }
    published(address)
}

#[allow(unsafe_code, reason = "writes a slot that nobody else has seen")]
fn link(slot: *mut Slot, next: Option<&'static Slot>) {
    // SAFETY: the slot is leaked and not published yet, so this thread alone has it.
    unsafe { (*slot).next = next };
}

#[allow(unsafe_code, reason = "slots are leaked boxes")]
fn published(slot: *mut Slot) -> &'static Slot {
    // SAFETY: the slot is leaked, and after publication it is written only through atomics.
    unsafe { &*slot }
}

/// The epoch of this moment, read after all that the thread did before.
pub fn current() -> u64 {
    fence(Ordering::SeqCst);
    EPOCH.load(Ordering::SeqCst)
}

/// Advances the epoch unless a thread is pinned in an earlier one, or the system refuses to make
/// stores visible (a filter of system calls that was set later). Returns the epoch. Takes some
/// microseconds.
pub fn try_advance() -> u64 {
    let epoch = EPOCH.load(Ordering::SeqCst);
    if !barrier() {
        return epoch;
    }
    if slots().any(|slot| ![UNPINNED, epoch].contains(&slot.pinned.load(Ordering::Acquire))) {
        return epoch;
    }
    fence(Ordering::SeqCst);
    let (ok, failed) = (Ordering::SeqCst, Ordering::SeqCst);
    EPOCH.compare_exchange(epoch, epoch + 1, ok, failed).map_or_else(|now| now, |_| epoch + 1)
}

/// Makes the stores of all threads that are pinned visible to this one, and what this one unlinked
/// visible to those that pin themselves from now on. Returns false if the system refuses to.
fn barrier() -> bool {
    fence(Ordering::SeqCst);
    #[cfg(all(target_os = "linux", not(any(miri, loom, shuttle))))]
    if is_asymmetric() {
        use rustix::thread::{MembarrierCommand, membarrier};
        return membarrier(MembarrierCommand::PrivateExpedited).is_ok();
    }
    true
}

/// Returns true if the system makes stores visible on demand.
fn is_asymmetric() -> bool {
    static ASYMMETRIC: OnceLock<bool> = OnceLock::new();
    *ASYMMETRIC.get_or_init(|| {
        #[cfg(all(target_os = "linux", not(any(miri, loom, shuttle))))]
        {
            use rustix::thread::{MembarrierCommand, membarrier};
            membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        }
        #[cfg(not(all(target_os = "linux", not(any(miri, loom, shuttle)))))]
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_holds_the_epoch_back() {
        let guard = pin();
        let nested = pin();
        let start = current();
        for _ in 0..5 {
            assert!(try_advance() <= start + 1, "this thread is pinned");
        }
        drop(nested);
        for _ in 0..5 {
            assert!(try_advance() <= start + 1, "this thread is pinned still");
        }
        drop(guard);
        while current() < start + 2 {
            try_advance();
            std::thread::yield_now();
        }
    }

    #[test]
    fn ended_threads_leave_their_slots_to_others() {
        let index = |_| std::thread::spawn(|| pin().thread_index()).join().ok();
        // Other tests have threads too, but not as many at a time.
        assert!((0..400).filter_map(index).all(|index| index < 200));
    }
}
