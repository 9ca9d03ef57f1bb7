//! Faults to inject: which calls are meant, and what happens to them.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
};

/// One kind of call of the file-system traits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after the method of the traits that it is")]
pub enum CallKind {
    CreateDir,
    Create,
    Open,
    List,
    Rename,
    Remove,
    HardLink,
    SyncDir,
    Lock,
    LockShared,
    Write,
    Truncate,
    SyncData,
    SyncAll,
    Read,
    Len,
}

impl CallKind {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 16] = [
        Self::CreateDir,
        Self::Create,
        Self::Open,
        Self::List,
        Self::Rename,
        Self::Remove,
        Self::HardLink,
        Self::SyncDir,
        Self::Lock,
        Self::LockShared,
        Self::Write,
        Self::Truncate,
        Self::SyncData,
        Self::SyncAll,
        Self::Read,
        Self::Len,
    ];

    /// Returns true if the call can change what a power cut leaves.
    #[must_use]
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Open | Self::List | Self::LockShared | Self::Read | Self::Len)
    }

    /// Returns true if the call reads or writes bytes, and so can be short.
    #[must_use]
    pub fn moves_bytes(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Returns true if the call makes earlier ones durable.
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, Self::SyncDir | Self::SyncData | Self::SyncAll)
    }
}

/// What happens to a call instead of its success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device fails (`EIO`). From `sync_data` and `sync_all` this has the consequence that it
    /// has in Linux: the data that was to be synced is lost, although reads may still show it, and
    /// a later sync that succeeds does not bring it back.
    Eio,
    /// No space is left (`ENOSPC`); consequences as for [`Fault::Eio`].
    NoSpace,
    /// A write fails with `EIO` after at most this many of its bytes were appended, perhaps all:
    /// its caller is not told how many. Other calls fail as with [`Fault::Eio`].
    EioAfter(usize),
    /// A signal came before anything was done (`EINTR`).
    Interrupted,
    /// The system answers with another error, by its number (`errno`). Nothing is done or lost.
    Errno(i32),
    /// A read or write moves at most this many bytes. Other calls are not affected.
    Short(usize),
    /// The calling thread panics before anything is done, as a bug in the program would make it.
    Panic,
}

impl Fault {
    pub(super) fn error(self) -> Option<io::Error> {
        let errno = match self {
            Self::Eio | Self::EioAfter(_) => rustix::io::Errno::IO,
            Self::NoSpace => rustix::io::Errno::NOSPC,
            Self::Interrupted => rustix::io::Errno::INTR,
            Self::Errno(number) => return Some(io::Error::from_raw_os_error(number)),
            Self::Short(_) | Self::Panic => return None,
        };
        Some(errno.into())
    }
}

/// Chooses calls by kind, by file name and by number. Starts as "every call" and is narrowed.
#[derive(Clone, Debug)]
pub struct Matcher {
    kinds: Vec<CallKind>,
    name_suffix: String,
    name_part: String,
    calls: Range<u64>,
    /// Of the calls that can change what a power cut leaves, those of these numbers.
    changes: Option<Range<u64>>,
}

impl Matcher {
    /// Every call.
    #[must_use]
    pub fn any() -> Self {
        Self {
            kinds: CallKind::ALL.to_vec(),
            name_suffix: String::new(),
            name_part: String::new(),
            calls: 0..u64::MAX,
            changes: None,
        }
    }

    /// Only calls of these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: &[CallKind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// Only calls on files or directories whose name ends with `suffix`. The name is the last part
    /// of the path; for a rename or link, of the new path.
    #[must_use]
    pub fn name_suffix(mut self, suffix: &str) -> Self {
        suffix.clone_into(&mut self.name_suffix);
        self
    }

    /// Only calls on files or directories whose name contains `part`.
    #[must_use]
    pub fn name_contains(mut self, part: &str) -> Self {
        part.clone_into(&mut self.name_part);
        self
    }

    /// Only the calls whose number (see [`super::Counts::calls`]) is in `calls`.
    #[must_use]
    pub fn calls(mut self, calls: Range<u64>) -> Self {
        self.calls = calls;
        self
    }

    /// Only calls that can change what a power cut leaves ([`CallKind::is_change`]), and whose
    /// number among those (see [`super::Counts::changes`]) is in `changes`.
    #[must_use]
    pub fn changes(mut self, changes: Range<u64>) -> Self {
        self.changes = Some(changes);
        self
    }

    /// Returns true if the newest call of `counts` is one that is meant.
    pub(super) fn matches(&self, counts: &Counts, kind: CallKind, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_change_meant =
            |changes: &Range<u64>| kind.is_change() && changes.contains(&(counts.changes - 1));
        self.calls.contains(&(counts.calls - 1))
            && self.changes.as_ref().is_none_or(is_change_meant)
            && self.kinds.contains(&kind)
            && name.ends_with(&self.name_suffix)
            && name.contains(&self.name_part)
    }
}

/// A call that was made; shows as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number; see [`Counts::calls`].
    pub index: u64,
    /// The kind of the call.
    pub kind: CallKind,
    /// The file or directory; of a rename or link, the new name.
    pub path: PathBuf,
    /// The fault that happened to it, if any.
    pub fault: Option<Fault>,
    /// True if the power went while the call was in progress.
    pub met_power_cut: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.index, self.kind, self.path.display())?;
        if let Some(fault) = self.fault {
            write!(f, " {fault:?}")?;
        }
        if self.met_power_cut { f.write_str(" POWER CUT") } else { Ok(()) }
    }
}

/// A fault and the calls that it happens to.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) matcher: Matcher,
    pub(super) fault: Fault,
    /// The number of further calls that it happens to.
    pub(super) times: u64,
}

/// The number of calls of each kind, and of the bytes that they moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    by_kind: [u64; CallKind::ALL.len()],
    /// The number of all calls, which is also the index of the next call.
    pub calls: u64,
    /// The number of calls that can change what a power cut leaves, which is also the index of the
    /// next one.
    pub changes: u64,
    /// The number of calls that were refused because the power was off.
    pub calls_after_cut: u64,
    /// The number of calls to which an injected fault happened.
    pub faults: u64,
    /// Bytes appended.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Counts {
    /// The number of calls of `kind`.
    #[must_use]
    pub fn of(&self, kind: CallKind) -> u64 {
        self.by_kind[kind as usize]
    }

    pub(super) fn add(&mut self, kind: CallKind) {
        self.by_kind[kind as usize] += 1;
    }
}
