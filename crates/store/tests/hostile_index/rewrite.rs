//! Tables whose index was changed with malice: taken apart and put together again as
//! `docs/format/index.md` and `docs/format/table.md` say, with valid checksums.

use rhumb::io::sim::SimRng;
use rhumb_model::codec::{DecodeError, Reader, put_column, put_varint};
use xxhash_rust::xxh3::xxh3_64;

const FILE_ALIGN_BYTES: usize = 4096;
const FOOTER_BYTES: usize = 88;
const SECTION_HEADER_BYTES: usize = 17;
/// The number of segments whose fields share columns.
const GROUP: usize = 256;

/// The columns of a segment, in the order of the format.
const SHARED: usize = 0;
const ADDED: usize = 1;
const BEYOND: usize = 2;
const BLOCKS: usize = 3;
const Y0: usize = 4;
const MANTISSA: usize = 5;
const SHIFT: usize = 6;
const CODE: usize = 7;
/// The columns of segments of more than one block.
const LINE: std::ops::Range<usize> = Y0..SHIFT + 1;
/// The kind of learned index with plain codes.
const LEARNED: u8 = 8;
/// The kind of learned index with trained codes.
const CODED: u8 = 9;

/// The part of a model that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing: the index is put together as it was.
    None,
    /// The line of one segment.
    Line,
    /// The lines of all segments.
    Lines,
    /// The number of bytes of a key that segments skip.
    Skip,
    /// The ends of segments among the blocks.
    Blocks,
    /// The ends of segments among the keys.
    Separators,
    /// The trained codes, or the code that each segment has.
    Codes,
    /// All of these.
    Everything,
    /// Any bytes at all.
    Bytes,
}

impl Change {
    pub(crate) const ALL: [Self; 9] = [
        Self::None,
        Self::Line,
        Self::Lines,
        Self::Skip,
        Self::Blocks,
        Self::Separators,
        Self::Codes,
        Self::Everything,
        Self::Bytes,
    ];
}

/// An index block, taken apart.
struct Learned {
    kind: u8,
    /// The trained codes as they are, preceded by their number.
    codes: Vec<u8>,
    /// The positions of classes of symbols in `codes`.
    classes: Vec<std::ops::Range<usize>>,
    /// The fields, with `SHARED` and `ADDED` empty: they follow from the separators. All segments
    /// have lines here.
    fields: [Vec<u64>; 8],
    separators: Vec<Vec<u8>>,
    starts: Vec<u8>,
}

impl Learned {
    fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let kind = reader.u8("kind")?;
        assert!(kind == LEARNED || kind == CODED, "a learned index");
        let begin = reader.offset();
        let mut classes = Vec::new();
        if kind == CODED {
            for _ in 0..reader.varint("codes")? {
                classes.push(skip_code(&mut reader)?);
            }
        }
        let codes = payload[begin..reader.offset()].to_vec();
        let classes = classes.into_iter().map(|r| r.start - begin..r.end - begin).collect();
        let count = reader.varint("segments")? as usize;
        let mut fields: [Vec<u64>; 8] = Default::default();
        let columns = if kind == CODED { 8 } else { 7 };
        for group in (0..count).step_by(GROUP) {
            for field in 0..columns {
                if !LINE.contains(&field) {
                    reader.column(GROUP.min(count - group), &mut fields[field], "a column")?;
                    continue;
                }
                let has_line = fields[BLOCKS][group..].iter().map(|blocks| *blocks > 0);
                let has_line: Vec<bool> = has_line.collect();
                let mut line = Vec::new();
                let lines = has_line.iter().filter(|has| **has).count();
                reader.column(lines, &mut line, "a column of lines")?;
                let mut line = line.into_iter();
                let of_all = has_line.iter().map(|has| has.then(|| line.next()).flatten());
                fields[field].extend(of_all.map(|value| value.unwrap_or(0)));
            }
        }
        let mut separators: Vec<Vec<u8>> = Vec::new();
        for (shared, added) in fields[SHARED].iter().zip(&fields[ADDED]) {
            let mut separator =
                separators.last().map_or(vec![], |s| s[..*shared as usize].to_vec());
            separator.extend_from_slice(reader.take(*added as usize, "a separator")?);
            separators.push(separator);
        }
        let starts = reader.take(reader.remaining(), "starts")?.to_vec();
        Ok(Self { kind, codes, classes, fields, separators, starts })
    }

    fn encode(mut self) -> Vec<u8> {
        let mut suffixes = Vec::new();
        let mut last: &[u8] = &[];
        self.fields[SHARED].clear();
        self.fields[ADDED].clear();
        for separator in &self.separators {
            let shared = last.iter().zip(separator).take_while(|(a, b)| a == b).count();
            self.fields[SHARED].push(shared as u64);
            self.fields[ADDED].push((separator.len() - shared) as u64);
            suffixes.extend_from_slice(&separator[shared..]);
            last = separator;
        }
        let mut out = vec![self.kind];
        out.extend_from_slice(&self.codes);
        let count = self.separators.len();
        put_varint(count as u64, &mut out);
        let columns = if self.kind == CODED { 8 } else { 7 };
        for group in (0..count).step_by(GROUP) {
            let segments = group..count.min(group + GROUP);
            for field in 0..columns {
                let is_stored = |i: &usize| !LINE.contains(&field) || self.fields[BLOCKS][*i] > 0;
                let column: Vec<u64> =
                    segments.clone().filter(is_stored).map(|i| self.fields[field][i]).collect();
                put_column(&column, &mut out);
            }
        }
        out.extend_from_slice(&suffixes);
        out.extend_from_slice(&self.starts);
        out
    }

    fn change(&mut self, change: Change, keys: &[Vec<u8>], rng: &mut SimRng) {
        let count = self.separators.len();
        match change {
            Change::None | Change::Bytes => {}
            Change::Line => self.change_line(rng.index(count), rng),
            Change::Lines => (0..count).for_each(|i| self.change_line(i, rng)),
            Change::Skip => {
                for i in 0..count {
                    if rng.chance(1, 2) {
                        self.fields[BEYOND][i] = rng.below(self.separators[i].len() as u64 + 1);
                    }
                }
            }
            Change::Blocks => self.change_blocks(rng),
            Change::Separators => self.change_separators(keys, rng),
            Change::Codes => self.change_codes(rng),
            Change::Everything => {
                self.change_blocks(rng);
                self.change_separators(keys, rng);
                self.change_codes(rng);
                self.change(Change::Lines, keys, rng);
                self.change(Change::Skip, keys, rng);
            }
        }
    }

    /// There is no floating point in an index. The extreme values of these fields come nearest to
    /// infinities and to NaN.
    fn change_line(&mut self, i: usize, rng: &mut SimRng) {
        self.fields[Y0][i] = [0, 1, (1 << 21) - 1, (1 << 21) - 2, rng.below(1 << 21)][rng.index(5)];
        let some = rng.next_u64() >> 32;
        self.fields[MANTISSA][i] = [0, 1, u64::from(u32::MAX), some, some][rng.index(5)];
        self.fields[SHIFT][i] = [0, 95, rng.below(96), rng.below(96)][rng.index(4)];
    }

    /// Moves blocks from some segments to others; each keeps at least one.
    fn change_blocks(&mut self, rng: &mut SimRng) {
        let blocks = &mut self.fields[BLOCKS];
        for _ in 0..blocks.len() * 2 {
            let (from, to) = (rng.index(blocks.len()), rng.index(blocks.len()));
            let moved = rng.below(blocks[from] + 1);
            blocks[from] -= moved;
            blocks[to] += moved;
        }
    }

    /// Makes segments begin at other keys, or near them.
    fn change_separators(&mut self, keys: &[Vec<u8>], rng: &mut SimRng) {
        replace_some(&mut self.separators, 2, keys, rng);
        for (beyond, separator) in self.fields[BEYOND].iter_mut().zip(&self.separators) {
            *beyond = (*beyond).min(separator.len() as u64);
        }
    }

    fn change_codes(&mut self, rng: &mut SimRng) {
        let codes = self.classes.len() as u64;
        for classes in self.classes.clone() {
            for byte in &mut self.codes[classes] {
                if rng.chance(1, 4) {
                    *byte = rng.next_u64() as u8;
                }
            }
        }
        self.fields[CODE].iter_mut().for_each(|code| *code = rng.below(codes + 1));
    }
}

/// Replaces one in `one_in` separators by a key or something near one. They still ascend, and their
/// number stays the same.
fn replace_some(separators: &mut Vec<Vec<u8>>, one_in: u64, keys: &[Vec<u8>], rng: &mut SimRng) {
    let mut changed = separators.clone();
    for separator in &mut changed {
        if rng.chance(1, one_in) {
            separator.clone_from(&keys[rng.index(keys.len())]);
            if rng.chance(1, 2) {
                separator.push(rng.next_u64() as u8);
            }
        }
    }
    changed.sort();
    changed.dedup();
    if changed.len() == separators.len() {
        *separators = changed;
    }
}

/// The index of kind 2 with other separators.
fn searched(
    payload: &[u8],
    blocks: usize,
    keys: &[Vec<u8>],
    rng: &mut SimRng,
) -> Result<Vec<u8>, DecodeError> {
    let mut reader = Reader::new(payload);
    assert_eq!(reader.u8("kind")?, 2, "an index that is searched");
    reader.take(blocks * 4, "offsets")?;
    let (mut separators, mut handles) = (Vec::new(), Vec::new());
    for _ in 0..blocks {
        let len = reader.varint("a length")? as usize;
        separators.push(reader.take(len, "a separator")?.to_vec());
        handles.push([reader.varint("an offset")?, reader.varint("a length")?]);
    }
    replace_some(&mut separators, 6, keys, rng);
    let (mut offsets, mut entries) = (Vec::new(), Vec::new());
    for (separator, handle) in separators.iter().zip(handles) {
        offsets.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        put_varint(separator.len() as u64, &mut entries);
        entries.extend_from_slice(separator);
        handle.into_iter().for_each(|number| put_varint(number, &mut entries));
    }
    Ok([&[2][..], &offsets, &entries].concat())
}

/// Reads over a trained code. Returns the positions of the classes of its symbols.
fn skip_code(reader: &mut Reader<'_>) -> Result<std::ops::Range<usize>, DecodeError> {
    let context = reader.u8("context")?;
    reader.varint("base")?;
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    let symbols = ones(reader.take(32, "alphabet")?);
    let rows = match context {
        1 => usize::from(reader.u8("rows")?),
        _ => ones(reader.take(32, "own rows")?) + 1,
    };
    let begin = reader.offset();
    reader.take(rows * symbols.div_ceil(2), "rows")?;
    Ok(begin..reader.offset())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The table file `bytes` with another index. `None` if that does not fit a file of the same
/// length, which the manifest states.
pub(crate) fn rewrite(
    bytes: &[u8],
    change: Change,
    keys: &[Vec<u8>],
    rng: &mut SimRng,
) -> Option<Vec<u8>> {
    let footer = &bytes[bytes.len() - FOOTER_BYTES..];
    let table = word(footer, 0);
    let place = |i: usize| (word(footer, 16 + i * 16) as usize, word(footer, 24 + i * 16) as usize);
    let [index, filter, properties] = [place(0), place(1), place(2)];
    let payload = &bytes[index.0 + SECTION_HEADER_BYTES..index.0 + index.1];
    let mut payload = if payload[0] == 2 {
        let blocks = u32::from_le_bytes(footer[12..16].try_into().expect("four bytes")) as usize;
        searched(payload, blocks, keys, rng).expect("an index of the engine's own")
    } else {
        let mut learned = Learned::parse(payload).expect("an index of the engine's own");
        learned.change(change, keys, rng);
        learned.encode()
    };
    if change == Change::Bytes {
        for _ in 0..1 + rng.below(12) {
            // The kind is not changed: other kinds of index are another subject.
            let at = 1 + rng.index(payload.len() - 1);
            payload[at] = rng.next_u64() as u8;
        }
    }

    let mut checked = [table.to_le_bytes().as_slice(), &[1]].concat();
    checked.extend_from_slice(&xxh3_64(&payload).to_le_bytes());
    let mut out = bytes[..index.0].to_vec();
    out.push(1);
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&xxh3_64(&checked).to_le_bytes());
    out.extend_from_slice(&payload);
    let mut places = vec![(index.0, out.len() - index.0)];
    for (begin, len) in [filter, properties] {
        places.push((out.len(), len));
        out.extend_from_slice(&bytes[begin..begin + len]);
    }
    let end = (out.len() + FOOTER_BYTES).next_multiple_of(FILE_ALIGN_BYTES);
    if end != bytes.len() {
        return None;
    }
    out.resize(end - FOOTER_BYTES, 0);
    let mut footer = footer.to_vec();
    for (i, (begin, len)) in places.into_iter().enumerate() {
        footer[16 + i * 16..24 + i * 16].copy_from_slice(&(begin as u64).to_le_bytes());
        footer[24 + i * 16..32 + i * 16].copy_from_slice(&(len as u64).to_le_bytes());
    }
    let checksum = xxh3_64(&footer[..72]);
    footer[72..80].copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&footer);
    Some(out)
}
