//! A process that is forked from a host that is a client too: what it drops ends nothing of its
//! parent's, and its client connects anew. Alone in its process: no other test's thread holds a
//! lock at the moment of the fork.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "the library's way to run something in a child is unsafe")]

use std::{
    collections::BTreeSet,
    fs,
    io::Error as IoError,
    os::unix::process::CommandExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    pin::pin,
    process::Command,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake},
    thread::{self, Thread},
};

use rhumb_remote::{Client, Host, Keyspace, ShareOptions};

/// What a child answers with if it panics. Its answers are numbers of errors of the system: those
/// are what the standard library passes on from a child.
const PANICKED: i32 = 100;

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs `act` in a forked child, and returns its answer.
fn in_fork(act: impl Fn() -> i32 + Send + Sync + 'static) -> i32 {
    let mut command = Command::new("true");
    let run = move || match catch_unwind(AssertUnwindSafe(&act)).unwrap_or(PANICKED) {
        0 => Ok(()),
        answer => Err(IoError::from_raw_os_error(answer)),
    };
    // SAFETY: the child allocates and takes locks, which is what is tested. The threads that may
    // hold one at the fork are those of the host: glibc sees to the allocator's locks, and a child
    // takes none of the host's.
    let command = unsafe { command.pre_exec(run) };
    match command.status() {
        Ok(status) => i32::from(!status.success()),
        Err(error) => error.raw_os_error().expect("the child's answer"),
    }
}

/// All handles of a process.
struct Handles {
    host: Host,
    keyspace: Keyspace,
}

/// The sockets that this process has open.
fn sockets() -> BTreeSet<PathBuf> {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).collect()
}

/// What a child does with its parent's handles; answers with the number of the first surprise.
fn child(handles: &Mutex<Option<Handles>>) -> i32 {
    let Some(Handles { host, keyspace }) = handles.lock().unwrap().take() else { return 1 };
    if keyspace.get("parent").unwrap().as_deref() != Some(b"1") {
        return 2;
    }
    let inherited = sockets();
    keyspace.insert("child", "2").unwrap();
    if sockets() == inherited {
        return 4;
    }
    // Futures have threads and a connection of the child's own.
    block_on(keyspace.insert_async("child", "2")).unwrap();
    if keyspace.get("child").unwrap().as_deref() != Some(b"2") || keyspace.iter().count() != 2 {
        return 3;
    }
    drop((host, keyspace));
    0
}

#[test]
fn a_forked_child_connects_anew_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rhumb.sock");
    let options = ShareOptions::default().capacity_bytes(64 << 20);
    let host = Host::listen(&path).share("k", options).start().unwrap();
    let keyspace = Client::connect(&path).unwrap().keyspace("k").unwrap();
    block_on(keyspace.insert_async("parent", "1")).unwrap();
    let handles = Box::leak(Box::new(Mutex::new(Some(Handles { host, keyspace }))));
    let shared: &Mutex<Option<Handles>> = handles;
    assert_eq!(in_fork(move || child(shared)), 0, "what `child` says");

    // The parent goes on, over the connection that it had, and others find it.
    let Handles { host, keyspace } = shared.lock().unwrap().take().unwrap();
    assert!(path.exists(), "the child removed the socket");
    let calls = keyspace.calls();
    assert_eq!(keyspace.get("child").unwrap().unwrap(), b"2");
    assert_eq!(keyspace.calls(), calls, "the child ended the lease");
    block_on(keyspace.insert_async("after", "3")).unwrap();
    let other = Client::connect(&path).unwrap().keyspace("k").unwrap();
    assert_eq!(other.iter().count(), 3);
    drop(host);
    assert!(!path.exists());
}
