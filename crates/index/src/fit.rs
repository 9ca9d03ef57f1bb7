//! Plans the leaves of the published kinds for a run of entries: where the run is cut, and what
//! each leaf's line and room are.
//!
//! Nothing here is shared yet: leaves are built by one thread from entries in ascending order.
//! Whatever the keys are, a run of [`SURE`] of them becomes a leaf, so every run does after some
//! halving.

use std::ops::Range;

use rhumb_model::{
    Fitter,
    code::{code_at, common_prefix_len},
    lpa,
};
use rhumb_sync::{arena::Arena, primitive::in_models};

use crate::{
    entry::{Entry, KeyRun},
    kinds::AnyLeaf,
    op::Trigger,
    plan::{Before, PlannedLeaf},
    published::{
        bins::BinLeaf,
        gapped::{self, GappedLeaf},
        slots::{HEIGHT, SlotLeaf, SlotShape},
    },
    raw::schema::{Schema, key},
};

/// Runs of at most this many entries can always be built, even if all share a word: fewer than a
/// segment of a gapped leaf takes (13), or the narrowest window of a leaf of slots
/// ([`READ_WINDOW`]).
const SURE: usize = in_models(12, 3);
/// The most keys of a leaf of slots. LOFT sets no limit. Chosen, not measured: replacing a leaf
/// takes some tens of nanoseconds for each key, so that none takes more than some 200 microseconds.
const SLOT_LEAF_MAX: usize = in_models(4096, 12);
/// The most keys of a trained array. FineStore sets no limit; the mean in the paper is 1400.
/// Chosen, not measured: the power of two above that mean.
const TRAINED_MAX: usize = in_models(2048, 8);
/// The greatest distance, in keys, at which a line may pass a key that it was fitted to: the
/// training prediction error of LOFT (section 3.4) and the threshold of FineStore (section 3.1).
const EPSILON: u64 = in_models(32, 4) as u64;

/// The window of a leaf of slots that is not written: the predicted range of read-intensive nodes
/// in LOFT (section 3.4).
pub(super) const READ_WINDOW: u32 = in_models(24, 6) as u32;

/// The bytes that all entries' keys start with, if keys are wide, and the words of what follows.
fn words<S: Schema>(entries: &[Entry]) -> (&[u8], Vec<u64>) {
    let prefix: &[u8] = match entries {
        [first, .., last] if S::WIDE => {
            let first = key::<S>(first);
            &first[..common_prefix_len(first, key::<S>(last))]
        }
        _ => &[],
    };
    let word =
        |entry: &Entry| if S::WIDE { code_at(key::<S>(entry), prefix.len()) } else { entry.word };
    (prefix, entries.iter().map(word).collect())
}

/// Cuts entries into runs of at most `most`. Of each run, `build` makes a leaf of as many of the
/// first entries as it likes. If it makes none, it is given fewer entries.
pub(super) fn cut<S: Schema>(
    entries: &[Entry],
    most: usize,
    mut build: impl FnMut(&KeyRun<'_>) -> Option<(usize, AnyLeaf)>,
) -> Vec<PlannedLeaf> {
    let mut parts = Vec::new();
    let pieces = entries.len().div_ceil(most).max(1);
    for piece in 0..pieces {
        let cut = |i: usize| entries.len() * i / pieces;
        let mut rest: Range<usize> = cut(piece)..cut(piece + 1);
        let (mut start, (mut prefix, mut known)) = (rest.start, words::<S>(&entries[rest.clone()]));
        loop {
            if S::WIDE && rest.len() < known.len() / 2 {
                // Fewer keys may have more in common, and words then tell more of them apart.
                (start, (prefix, known)) = (rest.start, words::<S>(&entries[rest.clone()]));
            }
            let words = &known[rest.start - start..];
            let run = KeyRun { entries: &entries[rest.clone()], words, prefix };
            let mut len = rest.len();
            let (len, leaf) = loop {
                match build(&run.first(len)) {
                    Some(built) => break built,
                    None => {
                        assert!(len > SURE, "{len} entries can always be built");
                        len = sound::<S>(words, len / 2);
                    }
                }
            };
            parts.push(PlannedLeaf { first: rest.start, leaf: Box::new(leaf) });
            rest.start += len;
            if rest.is_empty() {
                break;
            }
        }
    }
    parts
}

/// The number of the first `len` words that a leaf may have. Bounds do not tell the two largest
/// words apart, so no leaf may start with the largest.
fn sound<S: Schema>(words: &[u64], len: usize) -> usize {
    let is_unsound = !S::WIDE && len > 1 && words.get(len) == Some(&u64::MAX);
    len - usize::from(is_unsound)
}

/// Leaves of slots, each along one line that passes within [`EPSILON`] of its keys (LOFT, section
/// 3.2). Each leaf that was filled twice in a row gets more room, and those that are not written
/// get narrower windows (section 3.4).
pub(super) fn slot_leaves<S: Schema>(
    arena: &Arena,
    entries: &[Entry],
    before: Before<'_>,
) -> Vec<PlannedLeaf> {
    /// The expansion factor, doubled, and the window of the common case: 1.5 and 32 (LOFT, section
    /// 3.4).
    const USUAL: (u32, u32) = (3, in_models(32, 8) as u32);
    /// The most that the doubled expansion factor grows to, and the window of leaves that are
    /// written: 3 and 64 (LOFT, section 3.4). The factor itself grows by a half each time.
    const WRITTEN: (u32, u32) = (6, in_models(64, 12) as u32);
    let (expansion_2, window) = match before {
        Some((AnyLeaf::Slots(leaf), Trigger::Full | Trigger::NoRoom)) => {
            ((leaf.shape().expansion_2 + 1).min(WRITTEN.0), WRITTEN.1)
        }
        Some((AnyLeaf::Slots(_), Trigger::Cold)) => (USUAL.0, READ_WINDOW),
        _ => USUAL,
    };
    let mut fitter = Fitter::new(EPSILON * HEIGHT);
    cut::<S>(entries, SLOT_LEAF_MAX, |run| {
        fitter.clear();
        let points = run.words.iter().enumerate();
        let len =
            points.take_while(|(i, word)| fitter.add_point(**word, *i as u64 * HEIGHT)).count();
        let len = sound::<S>(run.words, len);
        let line = fitter.segment().map(|segment| segment.line).unwrap_or_default();
        let shape = SlotShape { line, expansion_2, window };
        let leaf = SlotLeaf::build(arena, shape, &run.first(len))?;
        Some((len, AnyLeaf::Slots(leaf)))
    })
}

/// Leaves of two gapped arrays, merged where there were two, and cut where they are too large
/// (TONE, section 4.2).
pub(super) fn gapped_leaves<S: Schema>(arena: &Arena, entries: &[Entry]) -> Vec<PlannedLeaf> {
    cut::<S>(entries, gapped::KEYS_MAX, |run| {
        let leaf = GappedLeaf::build(arena, run)?;
        Some((run.entries.len(), AnyLeaf::Gapped(leaf)))
    })
}

/// Leaves of bins, whose trained arrays are the runs that the learning probe finds (FineStore,
/// section 3.1).
pub(super) fn bin_leaves<S: Schema>(arena: &Arena, entries: &[Entry]) -> Vec<PlannedLeaf> {
    /// The learning probe. FineStore names the learning step and gives no number. Chosen, not
    /// measured: a step of 512 keys reaches [`TRAINED_MAX`] in four.
    const PROBE: lpa::Probe = lpa::Probe { threshold: EPSILON, step: 512 };
    cut::<S>(entries, TRAINED_MAX, |run| {
        let (len, model) = PROBE.first_run(run.words).unwrap_or_else(|| (0, lpa::train(&[])));
        let (len, model) = match sound::<S>(run.words, len) {
            sound if sound < len => (sound, lpa::train(&run.words[..sound])),
            _ => (len, model),
        };
        let leaf = BinLeaf::build(arena, model, &run.first(len));
        Some((len, AnyLeaf::Bins(leaf)))
    })
}
