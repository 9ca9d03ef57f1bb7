//! The steps of a simulated program with a database. They follow from a seed alone, so that a
//! history can be run again, with and without failures.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rhumb::{PersistMode, io::sim::SimRng};

use super::oracle::is_inside;

/// When an entry with this value expires: some do, in the next century.
pub(crate) fn expires(value: &[u8]) -> Option<SystemTime> {
    (value.len() % 4 == 1).then(|| UNIX_EPOCH + Duration::from_secs(5_000_000_000))
}

/// The number of keyspaces of a history. It is small, so that they are dropped and created again.
pub(crate) const KEYSPACES: usize = 3;

/// The number of batches that one commit serves: enough that tables are flushed without models.
const SUBMITTED: usize = 5;

/// One change of one key, or of all keys of a range.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put {
        keyspace: usize,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Remove {
        keyspace: usize,
        key: Vec<u8>,
    },
    /// The range has no end if `to` is absent.
    RemoveRange {
        keyspace: usize,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    },
}

impl Change {
    pub(crate) fn keyspace(&self) -> usize {
        match self {
            Self::Put { keyspace, .. }
            | Self::Remove { keyspace, .. }
            | Self::RemoveRange { keyspace, .. } => *keyspace,
        }
    }

    /// The keyspace and the first key that it is about.
    fn first_key(&self) -> (usize, Vec<u8>) {
        let key = match self {
            Self::Put { key, .. } | Self::Remove { key, .. } => key,
            Self::RemoveRange { from, .. } => from,
        };
        (self.keyspace(), key.clone())
    }

    /// Returns true if it changes a key, or may.
    fn touches(&self, at: usize, key: &Vec<u8>) -> bool {
        at == self.keyspace()
            && match self {
                Self::Put { key: own, .. } | Self::Remove { key: own, .. } => own == key,
                Self::RemoveRange { from, to, .. } => is_inside(key, from, to),
            }
    }
}

/// A transaction: reads, writes, writes that are taken back, more writes, a write of another, and
/// its end.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) is_serializable: bool,
    pub(crate) reads: Vec<(usize, Vec<u8>)>,
    /// One or more, the first of which is of one key.
    pub(crate) first: Vec<Change>,
    /// Those between a savepoint and the return to it.
    pub(crate) undone: Vec<Change>,
    pub(crate) then: Vec<Change>,
    /// Of one key, without the transaction, before its commit.
    pub(crate) other: Option<Change>,
    /// False if it is dropped.
    pub(crate) commits: bool,
    pub(crate) durability: Option<PersistMode>,
}

impl Transaction {
    /// What it writes.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &Change> {
        self.first.iter().chain(&self.then)
    }

    /// Returns true if its commit depends on what the other writes.
    pub(crate) fn conflicts(&self) -> bool {
        let (keyspace, key) = match &self.other {
            Some(Change::Put { keyspace, key, .. } | Change::Remove { keyspace, key }) => {
                (*keyspace, key)
            }
            _ => return false,
        };
        // It reads all of the keyspace that it writes to first.
        let is_read = keyspace == self.first[0].keyspace()
            || self.reads.iter().any(|(of, read)| (*of, read) == (keyspace, key));
        self.is_serializable && is_read || self.writes().any(|own| own.touches(keyspace, key))
    }
}

/// One call of the program.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write(Change),
    Batch {
        changes: Vec<Change>,
        durability: Option<PersistMode>,
    },
    /// Batches that are queued together and done by one commit, like those of many writers.
    Submit {
        batches: Vec<Vec<Change>>,
    },
    Persist(PersistMode),
    Flush,
    Compact {
        keyspace: usize,
    },
    Clear {
        keyspace: usize,
    },
    Drop {
        keyspace: usize,
    },
    /// Drops the partition of a key.
    DropPartition {
        keyspace: usize,
        key: Vec<u8>,
    },
    Ingest {
        keyspace: usize,
        entries: Vec<(Vec<u8>, Vec<u8>)>,
    },
    Checkpoint {
        number: usize,
    },
    Get {
        keyspace: usize,
        key: Vec<u8>,
    },
    Transaction(Box<Transaction>),
    /// Adds a point to the backup, and removes the oldest if there are many.
    Backup,
    /// Has a reader beside the program catch up, or opens one; it is closed afterwards if it
    /// `ends`.
    Follow {
        ends: bool,
    },
    /// Takes a snapshot, unless there are many.
    Snapshot,
    /// Reads all of the oldest snapshot, and drops it.
    LookBack,
    Reopen,
}

/// Makes the steps of a history, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct History {
    rng: SimRng,
    /// Decides on the steps of [`History::late_step`]; `None` for a history without them.
    late: Option<SimRng>,
    steps: usize,
    keys: u64,
    /// True if keys are evenly spaced and values are small, so that tables have many blocks and
    /// models are good.
    is_even: bool,
    /// The number of removals among 100 changes.
    removals: u64,
    /// The number of steps among 100 that make something durable.
    persists: u64,
}

impl History {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let is_even = rng.chance(1, 4);
        Self {
            keys: if is_even { 600 } else { [5, 40, 300][rng.index(3)] },
            is_even,
            removals: [5, 30][rng.index(2)],
            persists: [2, 10, 40][rng.index(3)],
            rng,
            late: Some(SimRng::new(seed ^ 0x1a7e)),
            steps: 0,
        }
    }

    /// The history that a seed had before there were transactions, backups and readers beside.
    pub(crate) fn former(seed: u64) -> Self {
        Self { late: None, ..Self::new(seed) }
    }

    /// Returns true if a reader that was there before a recovery is to catch up after it.
    pub(crate) fn is_followed(&mut self) -> bool {
        self.late.as_mut().is_some_and(|late| late.chance(1, 4))
    }

    fn keyspace(&mut self) -> usize {
        self.rng.index(KEYSPACES)
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.rng.below(self.keys);
        match number % 11 {
            _ if self.is_even => format!("user/{number:04}").into_bytes(),
            0 => Vec::new(),
            1 => vec![0xff; 1 + (number % 3) as usize],
            2 => format!("{}/{number}", "long-common-prefix".repeat(6)).into_bytes(),
            3..5 => number.to_be_bytes().to_vec(),
            _ => format!("user/{number:04}").into_bytes(),
        }
    }

    /// A value that no other step writes, so that a value in the wrong place is noticed.
    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(40) {
            _ if self.is_even => self.rng.index(60),
            0 => 2_000 + self.rng.index(4_000),
            1 => 20_000 + self.rng.index(20_000),
            2..5 => 300 + self.rng.index(600),
            5..9 => 0,
            _ => self.rng.index(60),
        };
        let mut value = format!("#{}.{:x}", self.steps, self.rng.below(1 << 20)).into_bytes();
        let start = value.len();
        // Half of the long values do not compress.
        let noise = self.rng.chance(1, 2);
        value.extend((start..len).map(|i| if noise { self.rng.next_u64() as u8 } else { i as u8 }));
        value
    }

    fn change(&mut self) -> Change {
        let keyspace = self.keyspace();
        let key = self.key();
        if self.rng.chance(self.removals, 600) {
            let other = self.key();
            if self.rng.chance(1, 10) {
                return Change::RemoveRange { keyspace, from: key.max(other), to: None };
            }
            let (from, to) = if key < other { (key, other) } else { (other, key) };
            return Change::RemoveRange { keyspace, from, to: Some(to) };
        }
        if self.rng.chance(self.removals, 100) {
            return Change::Remove { keyspace, key };
        }
        Change::Put { keyspace, key, value: self.value() }
    }

    fn durability(&mut self) -> PersistMode {
        [PersistMode::Buffer, PersistMode::SyncData, PersistMode::SyncAll][self.rng.index(3)]
    }

    fn batch(&mut self) -> Step {
        let changes = (0..self.rng.below(8)).map(|_| self.change()).collect();
        let is_durable = self.rng.chance(self.persists, 100);
        Step::Batch { changes, durability: is_durable.then(|| self.durability()) }
    }

    fn submit(&mut self) -> Step {
        let changes = if self.is_even { 80 } else { 2 };
        let mut batch = || (0..changes).map(|_| self.change()).collect();
        Step::Submit { batches: (0..SUBMITTED).map(|_| batch()).collect() }
    }

    fn ingest(&mut self) -> Step {
        let keyspace = self.keyspace();
        let mut keys: Vec<Vec<u8>> = (0..self.rng.below(40)).map(|_| self.key()).collect();
        keys.sort();
        keys.dedup();
        let entries = keys.into_iter().map(|key| (key, self.value())).collect();
        Step::Ingest { keyspace, entries }
    }

    fn transaction(&mut self, mut late: SimRng) -> Step {
        let one = |change: Change| match change {
            Change::RemoveRange { keyspace, from, .. } => Change::Remove { keyspace, key: from },
            other => other,
        };
        let mut some = |least: u64| -> Vec<Change> {
            (0..least + late.below(4)).map(|_| self.change()).collect()
        };
        let (mut first, undone, then) = (some(1), some(0), some(0));
        first[0] = one(first[0].clone());
        let reads: Vec<_> = (0..late.below(3)).map(|_| (self.keyspace(), self.key())).collect();
        let mut other = late.chance(2, 3).then(|| one(self.change()));
        if let Some(other) = &mut other
            && late.chance(2, 3)
        {
            // Of a key that the transaction has read or written, also if it took that back.
            let written = first.iter().chain(&undone).chain(&then).map(Change::first_key);
            let all: Vec<_> = reads.iter().cloned().chain(written).collect();
            let (keyspace, key) = all[late.index(all.len())].clone();
            *other = Change::Put { keyspace, key, value: self.value() };
        }
        let durability = late.chance(self.persists, 100).then(|| self.durability());
        let (is_serializable, commits) = (late.chance(1, 2), late.chance(5, 6));
        Step::Transaction(Box::new(Transaction {
            is_serializable,
            reads,
            first,
            undone,
            then,
            other,
            commits,
            durability,
        }))
    }

    /// One of the steps that there are since later.
    fn late_step(&mut self) -> Option<Step> {
        let late = self.late.as_mut()?;
        if !late.chance(1, 36) {
            return None;
        }
        Some(match late.below(12) {
            0..7 => {
                let own = SimRng::new(late.next_u64());
                self.transaction(own)
            }
            7..10 => Step::Follow { ends: late.chance(1, 4) },
            _ => Step::Backup,
        })
    }

    /// The next step.
    pub(crate) fn step(&mut self) -> Step {
        self.steps += 1;
        if let Some(step) = self.late_step() {
            return step;
        }
        if self.rng.chance(self.persists, 100) {
            return Step::Persist(self.durability());
        }
        match self.rng.below(424) {
            0..240 => Step::Write(self.change()),
            240..320 => self.batch(),
            320..350 => Step::Get { keyspace: self.keyspace(), key: self.key() },
            350..362 => Step::Flush,
            362..370 => Step::Compact { keyspace: self.keyspace() },
            370..376 => Step::Clear { keyspace: self.keyspace() },
            376..379 => Step::Drop { keyspace: self.keyspace() },
            379..384 => Step::DropPartition { keyspace: self.keyspace(), key: self.key() },
            384..392 => self.ingest(),
            392..394 => Step::Checkpoint { number: self.steps },
            394..400 => Step::Reopen,
            400..408 => self.submit(),
            408..416 => Step::Snapshot,
            416..424 => Step::LookBack,
            _ => unreachable!("below 424"),
        }
    }

    /// The next `len` steps.
    pub(crate) fn steps(&mut self, len: usize) -> Vec<Step> {
        (0..len).map(|_| self.step()).collect()
    }
}
