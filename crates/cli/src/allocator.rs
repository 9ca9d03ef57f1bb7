//! What the server asks of the C library's allocator: that large buffers go back to the system.
//!
//! Only the binary may say so, since the allocator is the process's. Nothing is allocated here.
#![allow(unsafe_code, reason = "the C library has no safe interface for this")]

/// Allocations of so many bytes and more are made by the system, one by one, and given back as they
/// are freed.
const LARGE_BYTES: i32 = 64 << 10;

/// Has buffers of 64 KiB and more given back when they are freed, where the C library is GNU's.
///
/// It would raise that bound to the largest buffer that was ever freed, up to 32 MiB: memtables,
/// buffers of compactions and pieces of files then leave holes that nothing else fits into. A server
/// with a budget of 128 MiB kept twice as much memory as it used.
pub(crate) fn give_back_large_buffers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `mallopt` may be called at any time, by one thread at a time; this is the only call,
        // before the process has a second thread. A value that it refuses changes nothing.
        let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = LARGE_BYTES;
}
