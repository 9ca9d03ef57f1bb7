//! The keeper of a tree: takes writes over a socket, and says where its memory is.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result};
use rhumb_remote::memory::{Piece, Written};
use serde_json::{Value, json};

use super::tree::{Layouts, Tree};
use crate::suite::remote::subject::{Place, Server};

/// What a message asks for: its first byte.
pub(super) mod op {
    pub(in super::super) const SET: u8 = 1;
    pub(in super::super) const REMOVE: u8 = 2;
}

/// Where the keeper listens, and where it says which memory there is.
pub(super) struct Paths {
    pub(super) socket: PathBuf,
    pub(super) inner: PathBuf,
    pub(super) leaves: PathBuf,
}

impl Paths {
    pub(super) fn new(directory: &Path) -> Self {
        let path = |name: &str| directory.join(name);
        Self { socket: path("tree.sock"), inner: path("tree.inner"), leaves: path("tree.leaves") }
    }
}

/// A tree that is served.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    tree: Mutex<Tree>,
    paths: Paths,
    layouts: Layouts,
    has_ended: AtomicBool,
}

impl Keeper {
    /// Starts and loads a tree.
    pub(super) fn start(place: &Place<'_>, layouts: Layouts) -> Result<Self> {
        let (data, mut tree) = (place.data, Tree::new(layouts)?);
        let mut value = Vec::new();
        for record in 0..data.records {
            let key = data.key(record);
            data.values.fill(key, 0, &mut value);
            tree.set(layouts.key(key).context("keys of several lengths")?, &value)?;
        }
        let paths = Paths::new(place.directory);
        let has_ended = AtomicBool::new(false);
        let shared = Arc::new(Shared { tree: Mutex::new(tree), paths, layouts, has_ended });
        shared.announce(&shared.tree())?;
        let listener = UnixListener::bind(&shared.paths.socket).context("cannot listen")?;
        let own = Arc::clone(&shared);
        let listener = thread::spawn(move || {
            for stream in listener.incoming().map_while(std::io::Result::ok) {
                if own.has_ended.load(Ordering::Acquire) {
                    return;
                }
                let own = Arc::clone(&own);
                // A client that goes ends its thread.
                thread::spawn(move || own.serve(stream));
            }
        });
        Ok(Self { shared, listener: Some(listener) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        let is_woken = UnixStream::connect(&self.shared.paths.socket).is_ok();
        if let Some(listener) = self.listener.take().filter(|_| is_woken) {
            let _ = listener.join();
        }
        let Paths { socket, inner, leaves } = &self.shared.paths;
        for path in [socket, inner, leaves] {
            let _ = fs::remove_file(path);
        }
    }
}

impl Server for Keeper {
    fn describe(&self) -> (String, Value) {
        let (entries, leaves, inner) = self.shared.tree().counts();
        let inner_bytes = u64::from(inner) * self.shared.layouts.inner.words() as u64 * 8;
        let text = format!(
            "tree: {entries} entries in {leaves} leaves and {inner} inner nodes of {inner_bytes} \
             bytes together"
        );
        let object = json!({
            "host": "tree", "suite": "remote", "entries": entries, "leaves": leaves,
            "inner_nodes": inner, "inner_bytes": inner_bytes,
        });
        (text, object)
    }
}

impl Shared {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says in files which memory there is.
    fn announce(&self, tree: &Tree) -> Result<()> {
        let say = |path: &Path, memory: &Written| {
            let pieces = memory.pieces();
            let lines = pieces.iter().map(|piece| format!("{} {}\n", piece.bytes, piece.path));
            // Renamed, so that a reader sees all of it or what was there before.
            let new = path.with_extension("new");
            fs::write(&new, lines.collect::<String>()).and_then(|()| fs::rename(new, path))
        };
        say(&self.paths.inner, &tree.inner)
            .and_then(|()| say(&self.paths.leaves, &tree.leaves))
            .context("cannot say where the tree is")
    }

    /// Answers one client until it goes.
    fn serve(&self, mut stream: UnixStream) {
        let (key_bytes, value_bytes) = self.layouts.pair_bytes();
        let mut message = vec![0; 1 + key_bytes + value_bytes];
        while stream.read_exact(&mut message).is_ok() {
            let (key, value) = message[1..].split_at(key_bytes);
            let Some(key) = self.layouts.key(key) else { return };
            let mut tree = self.tree();
            let lengths = (tree.inner.words().len(), tree.leaves.words().len());
            let done = match message[0] {
                op::SET => tree.set(key, value),
                _ => {
                    tree.remove(key);
                    Ok(())
                }
            };
            let has_grown = lengths != (tree.inner.words().len(), tree.leaves.words().len());
            let told = if has_grown { self.announce(&tree) } else { Ok(()) };
            drop(tree);
            let is_done = done.and(told).is_ok();
            if stream.write_all(&[u8::from(is_done)]).is_err() {
                return;
            }
        }
    }
}

/// The memory that a keeper says there is.
pub(super) fn announced(path: &Path) -> Result<Vec<Piece>> {
    let text = fs::read_to_string(path).context("no tree is there")?;
    let piece = |line: &str| {
        let (bytes, path) = line.split_once(' ').context("a piece of memory")?;
        Ok(Piece { bytes: bytes.parse()?, path: path.to_owned() })
    };
    text.lines().map(piece).collect()
}
