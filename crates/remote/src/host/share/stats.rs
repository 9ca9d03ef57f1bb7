//! What a shared keyspace holds and what it has cost, as plain numbers.
//!
//! Nothing here counts: the stores count, and fill these in when they are asked.

use crate::message::GetCounts;

/// What a shared keyspace holds, and the memory that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareStats {
    /// Number of entries.
    pub entries: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of runs of leaves, each of which one line describes.
    pub runs: u64,
    /// Sequence number of the last write that can be read.
    pub applied: u64,
    /// Bytes of one leaf; of a trained array ([`Preset::FineStore`](crate::Preset::FineStore)) and
    /// what belongs to it, the mean.
    pub leaf_bytes: u64,
    /// Bytes of memory that clients map, of leaves and directory.
    pub mapped_bytes: u64,
    /// Of these, bytes in large pages.
    pub huge_bytes: u64,
    /// True if clients may read the region; otherwise they ask the host for everything.
    pub is_live: bool,
    /// Bytes of what was replaced and waits until the clients that may read it know of that.
    pub waiting_bytes: u64,
    /// Number of times that the region had to be built anew, or could not be built.
    pub resets: u64,
    /// How gets of clients went, as they reported it: seconds ago, and never what a client did
    /// since its last report if it died.
    pub gets: GetCounts,
    /// What models have cost that clients keep, of [`Preset::XStore`](crate::Preset::XStore) and
    /// [`Preset::FineStore`](crate::Preset::FineStore).
    pub models: ModelStats,
}

/// What a host did for the models that clients of a keyspace keep, of
/// [`Preset::XStore`](crate::Preset::XStore). Of [`Preset::FineStore`](crate::Preset::FineStore),
/// whose models are the lines of arrays, it has the first four numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelStats {
    /// Models that are to be trained, or are trained now.
    pub waiting: u64,
    /// Models that were trained, those of complete trainings included.
    pub trained: u64,
    /// Time that copying leaves and training on them took, in nanoseconds, of all threads together.
    /// What a thread waits for a writer is not counted.
    pub training_ns: u64,
    /// Keys that models were trained on.
    pub trained_keys: u64,
    /// Sum of the positions by which predictions of these keys were wrong. A leaf has 16 places.
    pub trained_errors: u64,
    /// Leaves that were split.
    pub splits: u64,
    /// Complete trainings with twice the models, and those with half of them.
    pub expansions: u64,
    /// See [`ModelStats::expansions`].
    pub shrinks: u64,
    /// Gets that clients' models could not do.
    pub lookups: u64,
    /// Writes whose client said in which leaf the key belongs, and was right.
    pub hints_right: u64,
    /// Writes whose client said a wrong leaf.
    pub hints_wrong: u64,
}
