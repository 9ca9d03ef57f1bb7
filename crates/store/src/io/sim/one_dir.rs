//! A simulated file system of one directory, whose files tests call by their names alone.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rhumb_testkit::random::Random;

use super::{CallKind, Fault, Loss, Matcher, SimFs};
use crate::io::FileSystem;

/// The directory.
const DIR: &str = "db";

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

impl SimFs {
    /// A file system with the durable and empty directory `db`.
    pub(crate) fn one_dir() -> Self {
        let fs = Self::new(0);
        fs.create_dir_all(Path::new(DIR)).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        fs
    }

    pub(crate) fn shared(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.clone())
    }

    /// Fails the change of number `change` from now, and all later ones if `sticky`. A write that
    /// fails leaves at most `kept` of its bytes.
    pub(crate) fn fail_after(&self, change: u64, sticky: bool, kept: usize) {
        let first = self.counts().changes + change;
        let end = if sticky { u64::MAX } else { first + 1 };
        self.inject(Matcher::any().changes(first..end), Fault::EioAfter(kept), u64::MAX);
    }

    /// The kinds of the calls that were failed since the faults were last cleared.
    pub(crate) fn failed(&self) -> Vec<CallKind> {
        self.faulted_calls().into_iter().map(|(kind, _)| kind).collect()
    }

    /// The content of a file.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        self.content(&path(name)).unwrap()
    }

    /// Replaces or creates a file, durably.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        self.set_content(&path(name), bytes.to_vec()).unwrap();
    }

    /// Removes a file, if there is one. Not counted as a call; a power cut may bring the file back.
    pub(crate) fn remove(&self, name: &str) {
        let _ = self.state().remove_file(&path(name));
    }

    /// The names of all files, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        self.files(Path::new(DIR)).iter().map(name).collect()
    }

    /// Flips a bit of a file, durably.
    pub(crate) fn flip(&self, name: &str, bit: usize) {
        let mut bytes = self.read(name);
        bytes[bit / 8] ^= 1 << (bit % 8);
        self.put(name, &bytes);
    }

    /// What killing the process now would leave. This file system goes on.
    pub(crate) fn after_kill(&self) -> Self {
        self.copy().kill()
    }

    /// What a power cut now would leave, on an ordinary or on a bad disk. This file system goes on.
    pub(crate) fn after_power_cut(&self, rng: &mut Random) -> Self {
        let loss = if rng.one_in(2) { Loss::Random } else { Loss::Adversarial };
        self.copy().power_cut(loss, rng.next())
    }
}
