//! Tells which process this is, cheaply enough that every write can ask.
//!
//! A forked child has its parent's memory and open files and none of its threads. What a database
//! holds is its parent's: the child must notice before it touches anything. The system's call for
//! the number of a process costs some fifty nanoseconds; a page that the kernel empties in a child
//! costs two loads.
#![allow(
    unsafe_code,
    reason = "maps a page that is never unmapped; has the system call a function"
)]

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

/// The process that something belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Process(u32);

impl Default for Process {
    /// This process.
    fn default() -> Self {
        Self(id())
    }
}

impl Process {
    /// Returns false in a process that was forked from this one.
    #[inline]
    pub fn is_here(self) -> bool {
        self.0 == id()
    }

    /// A process that is not this one.
    #[cfg(test)]
    pub(crate) fn other() -> Self {
        Self(!id())
    }

    /// Its number.
    pub fn id(self) -> u32 {
        self.0
    }
}

/// The number of this process.
#[inline]
fn id() -> u32 {
    static MARK: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    let Some(mark) = MARK.get_or_init(system::wiped_word) else { return std::process::id() };
    match mark.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            mark.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// Has the system call `f` in every child that is forked from now on, in its one thread and before
/// `fork` returns there. A child that comes about in another way (`clone`, `vfork`) and one of a
/// system without such calls, or short of memory, does without: `f` may only be an improvement.
///
/// `f` takes no lock and allocates nothing, because another thread may have done so at the fork. It
/// does not panic.
#[cfg(all(unix, not(any(miri, loom, shuttle))))]
pub(crate) fn call_in_children(f: extern "C" fn()) {
    use std::ffi::c_int;
    type Handler = Option<extern "C" fn()>;
    // SAFETY: this is how POSIX declares it, and the standard library links the library it is in.
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    // SAFETY: the function is never unloaded before its handler: the system ties the two together.
    unsafe { pthread_atfork(None, None, Some(f)) };
}

#[cfg(not(all(unix, not(any(miri, loom, shuttle)))))]
pub(crate) fn call_in_children(_: extern "C" fn()) {}

#[cfg(all(target_os = "linux", not(any(miri, loom, shuttle))))]
mod system {
    use std::{ptr, sync::atomic::AtomicU32};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

    /// The size of a page, or less.
    const PAGE_BYTES: usize = 4 << 10;

    /// A word that is 0 at first and again in every child that is forked; none if the kernel, one
    /// before Linux 4.14, has no such memory.
    pub(crate) fn wiped_word() -> Option<&'static AtomicU32> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the system's choice touches nothing.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE) };
        let page = mapped.ok()?;
        // SAFETY: the page was just mapped and nothing is in it.
        unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
        // SAFETY: the page is zeroed, aligned, never unmapped, and used through this reference
        // alone.
        Some(unsafe { &*page.cast::<AtomicU32>() })
    }
}

#[cfg(not(all(target_os = "linux", not(any(miri, loom, shuttle)))))]
mod system {
    use std::sync::atomic::AtomicU32;

    /// There is no such memory here.
    pub(crate) fn wiped_word() -> Option<&'static AtomicU32> {
        None
    }
}
