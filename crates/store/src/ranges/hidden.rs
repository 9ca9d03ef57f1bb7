//! Which runs of a table's entries its own range tombstones hide from the newest readers.
//!
//! While a snapshot sees them, a table keeps entries that its own range tombstones cover. Its
//! greatest sequence number then does not prove that they are older, as that number may be the
//! tombstones' own, or that of an entry elsewhere. So the writer of a table collects the runs of
//! such entries, and the open table keeps them in memory. The file does not have them: no snapshot
//! outlives the process, so a table that is opened later is compacted without such entries.

use crate::types::SeqNo;

/// Fewer hidden entries than this are no run: walks pass them one by one. A run takes the memory of
/// two keys, and so all runs take at most a sixteenth of the memory of the table's keys.
const ENTRIES_MIN: u64 = 32;

/// Consecutive entries that range tombstones hide, with all versions of each key.
#[derive(Debug)]
struct HiddenRun {
    first: Box<[u8]>,
    last: Box<[u8]>,
    /// The greatest sequence number of an entry.
    most: SeqNo,
    entries: u64,
}

/// Runs of hidden entries, in order.
#[derive(Debug, Default)]
pub(crate) struct HiddenRuns(Box<[HiddenRun]>);

impl HiddenRuns {
    /// Returns true if there are no runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first and the last key of the run of `key`, if all its entries have numbers below `seq`.
    /// O(log runs).
    pub(crate) fn find(&self, key: &[u8], seq: SeqNo) -> Option<(&[u8], &[u8])> {
        let at = self.0.partition_point(|run| *run.first <= *key).checked_sub(1)?;
        let run = self.0.get(at).filter(|run| *key <= *run.last && run.most < seq)?;
        Some((&run.first, &run.last))
    }

    /// The number of entries in runs.
    pub(crate) fn entries(&self) -> u64 {
        self.0.iter().map(|run| run.entries).sum()
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn resident_bytes(&self) -> usize {
        let keys = |run: &HiddenRun| run.first.len() + run.last.len();
        self.0.iter().map(|run| keys(run) + size_of::<HiddenRun>()).sum()
    }
}

/// Makes [`HiddenRuns`] of entries in the order of a table.
#[derive(Default)]
pub(crate) struct HiddenRunsBuilder {
    runs: Vec<HiddenRun>,
    /// The run that may go on.
    open: Option<HiddenRun>,
    /// The key of the last entry; `is_hidden` says whether its newest version was hidden.
    key: Vec<u8>,
    is_hidden: bool,
}

impl HiddenRunsBuilder {
    /// Takes an entry; `newest` is the number of the newest range tombstone that covers it, 0 if
    /// there is none. Amortised O(key).
    pub(crate) fn record(&mut self, key: &[u8], seq: SeqNo, newest: SeqNo) {
        if *key != *self.key {
            // The newest version decides: if it is hidden, so are all older ones.
            self.is_hidden = seq < newest;
            if !self.is_hidden {
                self.close();
            }
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        if self.is_hidden {
            let begin =
                || HiddenRun { first: key.into(), last: Box::default(), most: 0, entries: 0 };
            let run = self.open.get_or_insert_with(begin);
            (run.most, run.entries) = (run.most.max(seq), run.entries + 1);
        }
    }

    /// Ends the open run with the last key.
    fn close(&mut self) {
        if let Some(mut run) = self.open.take_if(|run| run.entries >= ENTRIES_MIN) {
            run.last = self.key.as_slice().into();
            self.runs.push(run);
        }
        self.open = None;
    }

    /// The runs of the table that ends here; further entries belong to the next table.
    pub(crate) fn finish(&mut self) -> HiddenRuns {
        self.close();
        self.key.clear();
        HiddenRuns(std::mem::take(&mut self.runs).into())
    }
}
