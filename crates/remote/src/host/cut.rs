//! Sorted entries as runs of leaves, ready to be stored.

use rhumb_model::code::separator_len;

use crate::{
    layout::Geometry,
    leaf::{Entry, Fences, LeafImage},
    route::{Run, fit::plan},
};

/// A run and its leaves. The run has no slots yet, and the leaves no neighbours.
pub(super) struct Cut {
    pub(super) run: Run,
    pub(super) leaves: Vec<LeafImage>,
    /// Number of entries in the leaves.
    pub(super) taken: usize,
    /// The high fence of the last leaf.
    pub(super) high: Option<Vec<u8>>,
}

/// Cuts the first run off `entries`, which are sorted by key: keys between `low` and `high`, where
/// `None` is the end of the keyspace. The run has this number and, without entries, one leaf.
pub(super) fn cut(
    entries: &[Entry],
    low: Option<&[u8]>,
    high: Option<&[u8]>,
    geometry: Geometry,
    number: u32,
) -> Cut {
    let mut considered = entries.len();
    loop {
        let plan = plan(&entries[..considered], geometry);
        let taken = plan.taken();
        let high = entries.get(taken).map_or(high.map(<[u8]>::to_vec), |next| {
            Some(match taken.checked_sub(1) {
                Some(last) => next.key[..separator_len(&entries[last].key, &next.key)].to_vec(),
                None => next.key.clone(),
            })
        });
        let prefix = entries.first().map_or(&[][..], |first| &first.key[..plan.prefix_len]);
        let run = Run {
            low: low.map_or(Vec::new(), <[u8]>::to_vec),
            prefix: prefix.to_vec(),
            line: plan.line,
            base: 0,
            leaves: plan.ends.len() as u32,
            number,
        };
        match leaves(&run, low, high.as_deref(), entries, &plan.ends, geometry) {
            Ok(leaves) => return Cut { run, leaves, taken, high },
            // The fences at the run's ends may be longer than those that the plan counts with.
            Err(full_at) => considered = full_at.max(1),
        }
    }
}

/// The leaves of a run; the number of the first entry that finds no room otherwise.
fn leaves(
    run: &Run,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
    entries: &[Entry],
    ends: &[usize],
    geometry: Geometry,
) -> Result<Vec<LeafImage>, usize> {
    let mut leaves = Vec::with_capacity(ends.len());
    let mut below = low.map(<[u8]>::to_vec);
    let mut begin = 0;
    for (leaf, end) in (1..).zip(ends) {
        let above = if leaf == run.leaves { high.map(<[u8]>::to_vec) } else { run.fence(leaf) };
        let fences = Fences::new(below, above.clone());
        let mut image = LeafImage::new(geometry, &fences, run.number);
        for (index, entry) in entries[begin..*end].iter().enumerate() {
            if !image.push(entry.by_ref()) {
                return Err(begin + index);
            }
        }
        leaves.push(image);
        (below, begin) = (above, *end);
    }
    Ok(leaves)
}
