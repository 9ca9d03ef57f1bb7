//! Which runs of a table's entries its own range tombstones hide from the newest readers.
//!
//! While a snapshot sees them, a table keeps entries under range tombstones that it has itself. Its
//! greatest number then does not say that they are older, as that is the tombstones' own or that of
//! an entry elsewhere. So the writer of a table takes note of the runs of such entries, and the
//! open table keeps that in memory. The file does not have it: no snapshot outlives the process, so
//! what is opened later is compacted without such entries.

use crate::types::SeqNo;

/// Fewer entries are no run: walks pass them one by one. A run takes the memory of two keys, and so
/// at most a sixteenth of that of the keys of the table.
const ENTRIES_MIN: u64 = 32;

/// Entries one after another that range tombstones hide, all versions of each key.
#[derive(Debug)]
struct Run {
    first: Box<[u8]>,
    last: Box<[u8]>,
    /// The greatest number of an entry.
    most: SeqNo,
    entries: u64,
}

/// Runs of hidden entries, in order.
#[derive(Debug, Default)]
pub(crate) struct HiddenRuns(Box<[Run]>);

impl HiddenRuns {
    /// Whether there are none.
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

    /// How many entries lie in runs.
    pub(crate) fn entries(&self) -> u64 {
        self.0.iter().map(|run| run.entries).sum()
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn resident_bytes(&self) -> usize {
        let keys = |run: &Run| run.first.len() + run.last.len();
        self.0.iter().map(|run| keys(run) + size_of::<Run>()).sum()
    }
}

/// Makes [`HiddenRuns`] of entries in the order of a table.
#[derive(Default)]
pub(crate) struct HiddenRunsBuilder {
    runs: Vec<Run>,
    /// The run that may go on.
    open: Option<Run>,
    /// The key of the last entry, and whether its newest version was hidden.
    key: Vec<u8>,
    is_hidden: bool,
}

impl HiddenRunsBuilder {
    /// Takes note of an entry; `newest` is the number of the newest range tombstone over it, 0 if
    /// there is none. Amortised O(key).
    pub(crate) fn note(&mut self, key: &[u8], seq: SeqNo, newest: SeqNo) {
        if *key != *self.key {
            // The newest version decides: what is older than it is hidden if it is.
            self.is_hidden = seq < newest;
            if !self.is_hidden {
                self.close();
            }
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        if self.is_hidden {
            let begin = || Run { first: key.into(), last: Box::default(), most: 0, entries: 0 };
            let run = self.open.get_or_insert_with(begin);
            (run.most, run.entries) = (run.most.max(seq), run.entries + 1);
        }
    }

    /// Ends a run behind the last key.
    fn close(&mut self) {
        if let Some(mut run) = self.open.take_if(|run| run.entries >= ENTRIES_MIN) {
            run.last = self.key.as_slice().into();
            self.runs.push(run);
        }
        self.open = None;
    }

    /// The runs of the table that ends here; what follows belongs to the next one.
    pub(crate) fn finish(&mut self) -> HiddenRuns {
        self.close();
        self.key.clear();
        HiddenRuns(std::mem::take(&mut self.runs).into())
    }
}
