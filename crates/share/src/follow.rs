//! The thread that keeps the region of a share true: it has the region follow the engine's commits,
//! and loads it when it begins and whenever it was reset.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use rhumb::{Change, Followed, Tap};
use rhumb_remote::{Error, Publisher, Result};

use crate::authority::{Source, told};

/// The first wait after a load that failed. Most such loads need more memory than there is, and
/// try again in vain.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The longest wait after a load that failed.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Why a keyspace is not shared. Readers of a region have no clock that they share with the host.
const EXPIRES: &str = "entries of the keyspace expire, so that it cannot be read without asking";

/// What happened to a share.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Clients read its region from here on.
    Loaded {
        /// Number of entries.
        entries: u64,
        /// How long it took to load them.
        took: Duration,
    },
    /// Its region could not be loaded. Clients ask the host until that succeeds.
    Failed {
        /// Why.
        error: Error,
        /// When it is tried again.
        retry_in: Duration,
    },
}

/// Takes note of what happened to the share of a name.
pub(crate) type Watch = Arc<dyn Fn(&str, Event) + Send + Sync>;

/// One share.
pub(crate) struct Follower {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) publisher: Publisher,
    pub(crate) watch: Watch,
}

impl Follower {
    /// Keeps the region true until the host ends.
    pub(crate) fn run(&self) {
        let (mut followed, mut retry_in) = (None, RETRY_MIN);
        while self.publisher.wait_for_reset() {
            // What it followed may not be what it is to follow.
            drop(followed.take());
            let began = Instant::now();
            match self.load() {
                Ok(loaded) => {
                    retry_in = RETRY_MIN;
                    followed = loaded;
                    if followed.is_some() {
                        let (entries, took) = (self.publisher.stats().entries, began.elapsed());
                        (self.watch)(&self.name, Event::Loaded { entries, took });
                    }
                }
                Err(error) => {
                    (self.watch)(&self.name, Event::Failed { error, retry_in });
                    self.publisher.wait_for_end(retry_in);
                    retry_in = (retry_in * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Loads the region with what there is, and has it follow what comes; returns none if it was
    /// reset meanwhile.
    fn load(&self) -> Result<Option<Followed>> {
        // A share that is paused from here on does not become live, whatever is chosen below.
        // planted: keyspace-chosen-before-load-begins
        let Some(load) = self.publisher.begin_load() else { return Ok(None) };
        let keyspace = (self.source.keyspace)().map_err(|error| told(&error))?;
        let takes_expiring = self.source.removes_expired;
        let tap = Arc::new(Published { to: self.publisher.clone(), takes_expiring });
        let followed = keyspace.follow(tap).map_err(|error| told(&error))?;
        // An entry with a time makes the region go, so that none comes in from here on.
        if !takes_expiring && keyspace.may_expire() {
            return Err(told(&rhumb::Error::InvalidArgument(EXPIRES.into())));
        }
        // Every change that the snapshot does not have is kept.
        let snapshot = followed.snapshot().map_err(|error| told(&error))?;
        let pairs = snapshot
            .keyspace(&keyspace)
            .map_err(|error| told(&error))?
            .iter()
            .map(|pair| pair.map_err(|error| told(&error)));
        let is_live = load.finish(pairs)?;
        Ok(is_live.then_some(followed))
    }
}

/// Tells a publisher what the engine commits.
struct Published {
    to: Publisher,
    /// True if entries that expire are removed by a write.
    takes_expiring: bool,
}

impl Tap for Published {
    fn prepare(&self, change: Change<'_>) {
        if let Change::Insert { key, .. }
        | Change::InsertUntil { key, .. }
        | Change::Remove { key } = change
        {
            self.to.prepare(key);
        }
    }

    fn apply(&self, change: Change<'_>) {
        match change {
            Change::Insert { key, value } => self.to.insert(key, value),
            Change::InsertUntil { key, value, .. } if self.takes_expiring => {
                self.to.insert(key, value);
            }
            Change::Remove { key } => self.to.remove(key),
            Change::RemoveRange { from, to } => self.to.remove_range(from, to),
            // What this does not know, it cannot follow.
            _ => self.to.reset(),
        }
    }

    fn publish(&self, seq: u64) {
        self.to.publish(seq);
    }

    fn reset(&self) {
        // planted: share-goes-after-keyspace-reset
        self.to.reset();
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("name", &self.name).finish_non_exhaustive()
    }
}
