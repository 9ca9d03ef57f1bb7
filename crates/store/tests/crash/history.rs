//! The steps of a simulated program with a database. They follow from a seed alone, so that a
//! history can be run again, with and without failures.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rhumb::{PersistMode, io::sim::SimRng};

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
            steps: 0,
        }
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

    /// The next step.
    pub(crate) fn step(&mut self) -> Step {
        self.steps += 1;
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
