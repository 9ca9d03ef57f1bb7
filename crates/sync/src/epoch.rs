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
    sync::{Once, OnceLock, atomic},
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
    /// The thread's slot, until [`OWNER`] is gone.
    slot: Cell<Option<&'static Slot>>,
    /// A slot that was taken or is still in use after that. It is given back with the last guard.
    late: Cell<Option<&'static Slot>>,
    /// The number of guards of this thread.
    depth: Cell<usize>,
    /// True if pinning needs a fence.
    is_fenced: Cell<bool>,
}

impl Local {
    /// The thread's slot, if it has one.
    fn any_slot(&self) -> Option<&'static Slot> {
        self.slot.get().or(self.late.get())
    }

    /// Ends the pin of a thread that is ending, and gives its slot back.
    #[cold]
    fn give_back_late(&self) {
        if let Some(slot) = self.late.take() {
            slot.pinned.store(UNPINNED, Ordering::Release);
            slot.is_taken.store(false, Ordering::Release);
        }
    }

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
        late: Cell::new(None),
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
            let Some(slot) = local.slot.take() else { return };
            if local.depth.get() == 0 {
                slot.is_taken.store(false, Ordering::Release);
            } else {
                // A guard is alive in another thread-local value.
                local.late.set(Some(slot));
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
            if let (1, Some(slot)) = (local.depth.get(), local.any_slot()) {
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
            if depth == 0 {
                match local.slot.get() {
                    Some(slot) => slot.pinned.store(UNPINNED, Ordering::Release),
                    None => local.give_back_late(),
                }
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

/// Takes a slot for the current thread; for one that is ending, until its last guard is dropped.
#[cold]
fn register(local: &Local) -> &'static Slot {
    static CHILDREN: Once = Once::new();
    CHILDREN.call_once(|| process::call_in_children(unpin_others));
    if let Some(slot) = local.late.get() {
        return slot;
    }
    let slot = free_slot().unwrap_or_else(new_slot);
    local.is_fenced.set(!is_asymmetric());
    let home = if OWNER.try_with(|_| ()).is_ok() { &local.slot } else { &local.late };
    home.set(Some(slot));
    slot
}

/// Unpins every thread but this one, in a forked child that has no other.
///
/// Slots stay taken. If a signal's handler forked in the midst of [`register`], this thread has a
/// slot that it does not know of yet.
extern "C" fn unpin_others() {
    let _ = LOCAL.try_with(|local| {
        let own = local.any_slot().map(|slot| slot.index);
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

/// Attempts in a row to advance the epoch that a pinned thread refused. No model is about it.
static REFUSALS: atomic::AtomicU64 = atomic::AtomicU64::new(0);

/// The number of times in a row that the epoch did not advance because a thread was pinned in an
/// earlier one. A few are usual; a number that keeps growing is a pin that is kept, and what was
/// unlinked since is not freed. The epoch itself says nothing of that: it is at most one ahead.
pub fn refusals() -> u64 {
    REFUSALS.load(Ordering::Relaxed)
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
        REFUSALS.fetch_add(1, Ordering::Relaxed);
        return epoch;
    }
    REFUSALS.store(0, Ordering::Relaxed);
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

    thread_local! {
        static LAST: PinsLate = const { PinsLate };
        static HELD: Cell<Option<Guard>> = const { Cell::new(None) };
    }

    /// The largest number of a thread that pinned itself while it ended.
    static MOST: AtomicUsize = AtomicUsize::new(0);

    /// Pins its thread when that ends.
    struct PinsLate;

    impl Drop for PinsLate {
        fn drop(&mut self) {
            let (mut guard, nested) = (pin(), pin());
            assert_eq!(guard.thread_index(), nested.thread_index());
            drop(nested);
            guard.repin();
            MOST.fetch_max(guard.thread_index(), Ordering::Relaxed);
        }
    }

    #[test]
    fn a_thread_that_is_pinned_while_it_ends_leaves_its_slot_to_others() {
        let run = |act: fn()| std::thread::spawn(act).join().expect("the thread does not panic");
        for _ in 0..400 {
            // Thread-local values end in the order against that of their first use.
            run(|| {
                LAST.with(|_| ());
                drop(pin());
            });
            run(|| HELD.with(|held| held.set(Some(pin()))));
        }
        // Other tests have threads too, but not as many at a time.
        assert!(MOST.load(Ordering::Relaxed) < 200);
        assert!(std::thread::spawn(|| pin().thread_index()).join().is_ok_and(|index| index < 200));
        let start = current();
        while current() < start + 2 {
            try_advance();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_pin_that_is_kept_is_counted() {
        let guard = pin();
        // The epoch may advance once, and an attempt of another test that began before may end.
        let is_counted = (0..1000).any(|_| {
            try_advance();
            refusals() >= 8
        });
        assert!(is_counted);
        drop(guard);
        while refusals() > 0 {
            try_advance();
            std::thread::yield_now();
        }
    }
}
