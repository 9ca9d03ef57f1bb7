//! `LCS`: the longest sequence of bytes that two strings have in common, in their order.
//!
//! The lengths of the common sequences of all beginnings are a table, of which only one row is
//! kept, and one bit of each cell: where the sequence comes from. Time and memory are the product
//! of the lengths, in cells and in bits.

use super::{Context, Done, SYNTAX, integer, is_word, strings::STRING_BYTES_MAX};
use crate::{encode::Kind, fault::Fault, resp::Args};

/// Cells that cost what one element of a collection costs: a cell takes a nanosecond or two.
const CELLS_PER_ELEMENT: u64 = 64;

/// Bytes of a cell in Redis, whose limit of their sum is kept.
const REDIS_CELL_BYTES: u128 = 4;

/// What `LCS` is asked for.
#[derive(Default)]
struct Options {
    indexes: bool,
    length: bool,
    with_lengths: bool,
    least: u64,
}

fn options(args: Args<'_>) -> Result<Options, Fault> {
    let mut options = Options::default();
    let mut at = 3;
    while let Some(option) = args.get(at) {
        if is_word(option, "idx") {
            options.indexes = true;
        } else if is_word(option, "len") {
            options.length = true;
        } else if is_word(option, "withmatchlen") {
            options.with_lengths = true;
        } else if let (true, Some(least)) = (is_word(option, "minmatchlen"), args.get(at + 1)) {
            options.least = u64::try_from(integer(least)?).unwrap_or(0);
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if options.indexes && options.length {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    Ok(options)
}

/// Bits of the cells of two strings: set where the sequence is longer without the last byte of the
/// first string than without that of the second.
struct Steps {
    width: usize,
    bits: Vec<u64>,
}

impl Steps {
    fn is_up(&self, i: usize, j: usize) -> bool {
        let at = (i - 1) * self.width + j - 1;
        self.bits[at / 64] >> (at % 64) & 1 == 1
    }
}

/// The length of the longest common sequence, and where it comes from if `keep`.
fn measure(a: &[u8], b: &[u8], keep: bool) -> (u32, Steps) {
    let cells = if keep { a.len() * b.len() } else { 0 };
    let mut steps = Steps { width: b.len(), bits: vec![0; cells.div_ceil(64)] };
    let mut row = vec![0_u32; b.len() + 1];
    for (i, x) in a.iter().enumerate() {
        // The cell above to the left, and the one to the left.
        let (mut corner, mut left) = (0, 0);
        for (j, y) in b.iter().enumerate() {
            let up = row[j + 1];
            let longest = if x == y { corner + 1 } else { up.max(left) };
            if keep && up > left {
                let at = i * b.len() + j;
                steps.bits[at / 64] |= 1 << (at % 64);
            }
            (corner, left) = (up, longest);
            row[j + 1] = longest;
        }
    }
    (row.last().copied().unwrap_or(0), steps)
}

/// A part of the sequence that is together in both strings: where it begins in each, and its
/// length.
type Match = (usize, usize, usize);

/// The sequence, and its parts, the last first.
fn trace(a: &[u8], b: &[u8], steps: &Steps) -> (Vec<u8>, Vec<Match>) {
    let (mut i, mut j) = (a.len(), b.len());
    let (mut sequence, mut matches): (Vec<u8>, Vec<Match>) = (Vec::new(), Vec::new());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            sequence.push(a[i - 1]);
            match matches.last_mut() {
                Some((from_a, from_b, len)) if (*from_a, *from_b) == (i, j) => {
                    (*from_a, *from_b, *len) = (i - 1, j - 1, *len + 1);
                }
                _ => matches.push((i - 1, j - 1, 1)),
            }
            (i, j) = (i - 1, j - 1);
        } else if steps.is_up(i, j) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    sequence.reverse();
    (sequence, matches)
}

/// `LCS`.
pub(super) fn lcs(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let entries = [context.txn.read(args.at(1))?, context.txn.read(args.at(2))?];
    if entries.iter().flatten().any(|entry| entry.kind != Kind::String) {
        return Err("ERR The specified keys must contain string values".into());
    }
    let options = options(args)?;
    let [a, b] = [&entries[0], &entries[1]].map(|entry| match entry {
        Some(entry) => entry.bytes(),
        None => &[],
    });
    let cells = (a.len() as u128 + 1) * (b.len() as u128 + 1);
    if cells * REDIS_CELL_BYTES > STRING_BYTES_MAX as u128 {
        return Err(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".into()
        );
    }
    context.check_length(cells as u64 / CELLS_PER_ELEMENT)?;
    let (length, steps) = measure(a, b, !options.length);
    if options.length {
        context.out.int(length.into());
        return Ok(());
    }
    let (sequence, mut matches) = trace(a, b, &steps);
    if !options.indexes {
        context.out.bulk(&sequence);
        return Ok(());
    }
    matches.retain(|(.., len)| *len as u64 >= options.least);
    context.out.map(2);
    context.out.bulk(b"matches");
    context.out.array(matches.len());
    for (from_a, from_b, len) in matches {
        context.out.array(if options.with_lengths { 3 } else { 2 });
        for from in [from_a, from_b] {
            context.out.array(2);
            context.out.count(from);
            context.out.count(from + len - 1);
        }
        if options.with_lengths {
            context.out.count(len);
        }
    }
    context.out.bulk(b"len");
    context.out.int(length.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The length, from its definition.
    fn length(a: &[u8], b: &[u8]) -> usize {
        match (a.split_last(), b.split_last()) {
            (Some((x, a)), Some((y, b))) if x == y => length(a, b) + 1,
            (Some((_, shorter)), Some((_, other))) => length(shorter, b).max(length(a, other)),
            _ => 0,
        }
    }

    fn is_within(sequence: &[u8], text: &[u8]) -> bool {
        let mut rest = text.iter();
        sequence.iter().all(|byte| rest.any(|other| other == byte))
    }

    proptest! {
        #[test]
        fn sequences_are_common_and_the_longest(
            a in prop::collection::vec(0..3_u8, 0..9),
            b in prop::collection::vec(0..3_u8, 0..9),
        ) {
            let (found, steps) = measure(&a, &b, true);
            let (sequence, matches) = trace(&a, &b, &steps);
            prop_assert_eq!(found as usize, length(&a, &b));
            prop_assert_eq!(sequence.len(), found as usize);
            prop_assert!(is_within(&sequence, &a) && is_within(&sequence, &b));
            let mut parts = Vec::new();
            for (from_a, from_b, len) in matches.into_iter().rev() {
                prop_assert_eq!(&a[from_a..from_a + len], &b[from_b..from_b + len]);
                parts.extend_from_slice(&a[from_a..from_a + len]);
            }
            prop_assert_eq!(parts, sequence);
        }
    }
}
