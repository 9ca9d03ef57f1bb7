//! A process that is forked while its threads are pinned: the pins of threads that the child does
//! not have hold nothing back there, and the pin of the one that it has goes on. This test is alone
//! in its process: no other test's thread holds a lock at the moment of the fork.
#![cfg(unix)]
#![allow(unsafe_code, reason = "the library's way to run something in a child is unsafe")]

use std::{
    cell::Cell,
    io::Error as IoError,
    os::unix::process::CommandExt,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use rhumb_sync::{
    deferred,
    epoch::{self, Guard},
};

/// The answer of a child that panics. Answers are error numbers of the system, because the standard
/// library passes those on from a child.
const PANICKED: i32 = 100;

thread_local! {
    /// The guard that the thread which forks holds meanwhile.
    static HELD: Cell<Option<Guard>> = const { Cell::new(None) };
}

/// Runs `act` in a forked child, and returns its answer.
fn in_fork(act: impl Fn() -> i32 + Send + Sync + 'static) -> i32 {
    let mut command = Command::new("true");
    let run = move || match catch_unwind(AssertUnwindSafe(&act)).unwrap_or(PANICKED) {
        0 => Ok(()),
        answer => Err(IoError::from_raw_os_error(answer)),
    };
    // SAFETY: the child allocates, and glibc takes care of the allocator's locks. It uses nothing
    // that a guard of another thread keeps.
    let command = unsafe { command.pre_exec(run) };
    match command.status() {
        Ok(status) => i32::from(!status.success()),
        Err(error) => error.raw_os_error().expect("the child's answer"),
    }
}

/// Defers something, and returns what tells that it was done.
fn defer() -> Arc<AtomicBool> {
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    deferred::defer(&epoch::pin(), move || done.store(true, Ordering::Relaxed));
    is_done
}

/// Collects more often than the epoch must advance. Returns true if that did it.
fn collect(is_done: &AtomicBool) -> bool {
    (0..10).for_each(|_| deferred::collect());
    is_done.load(Ordering::Relaxed)
}

/// Returns the number of the first surprise. The thread is pinned if `is_held`.
fn child(is_held: bool) -> i32 {
    let first = defer();
    if is_held {
        if collect(&first) {
            return 1;
        }
        HELD.take();
    }
    if !collect(&first) {
        return 2;
    }
    // A thread of its own is like any other.
    let (pinned, is_pinned) = mpsc::channel();
    let (end, is_end) = mpsc::channel::<()>();
    let second = thread::spawn(move || {
        let guard = epoch::pin();
        pinned.send(()).unwrap();
        let _ = is_end.recv();
        drop(guard);
    });
    is_pinned.recv().unwrap();
    let later = defer();
    if collect(&later) {
        return 3;
    }
    end.send(()).unwrap();
    second.join().unwrap();
    if collect(&later) { 0 } else { 4 }
}

#[test]
fn a_child_frees_what_only_threads_of_its_parent_had_pinned() {
    let (pinned, is_pinned) = mpsc::channel();
    let (end, is_end) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let guard = epoch::pin();
        pinned.send(()).unwrap();
        let _ = is_end.recv();
        drop(guard);
    });
    is_pinned.recv().unwrap();
    // Advances the epoch past the pin as far as it goes.
    let waiting = defer();
    assert!(!collect(&waiting), "a thread is pinned");

    assert_eq!(in_fork(|| child(false)), 0, "what `child` says");
    HELD.set(Some(epoch::pin()));
    assert_eq!(in_fork(|| child(true)), 0, "what `child` says if it is pinned itself");

    // In the parent both pins went on.
    HELD.take();
    assert!(!collect(&waiting), "the other thread is pinned still");
    end.send(()).unwrap();
    other.join().unwrap();
    assert!(collect(&waiting));
}
