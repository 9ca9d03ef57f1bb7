//! Keys and values that prove themselves: a value says of which key and of which version it is, and
//! every word of it follows from both.

use std::fmt;

/// Words of a value before what fills it: key and version.
const HEAD_WORDS: u64 = 2;

/// Values with more bytes than fit a leaf, one of this many.
const LARGE_ONE_IN: u64 = 400;

fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Key number `n`: they ascend with the numbers, and no line goes through them.
pub(crate) fn key(n: u64) -> [u8; 8] {
    (n << 24 | mixed(n) & 0xff_ffff).to_be_bytes()
}

/// The number of a key.
pub(crate) fn number(key: &[u8]) -> Option<u64> {
    let n = u64::from_be_bytes(key.try_into().ok()?) >> 24;
    (self::key(n) == key).then_some(n)
}

/// Words of a value: from 2 to 13, and a few large ones. Groups have none of those.
fn words(n: u64, version: u64) -> u64 {
    let drawn = mixed(n ^ version.wrapping_mul(31));
    let is_large = !is_grouped(n) && drawn.is_multiple_of(LARGE_ONE_IN);
    if is_large { 400 } else { HEAD_WORDS + (drawn >> 32) % 12 }
}

/// The value of a version of a key.
pub(crate) fn value(n: u64, version: u64) -> Vec<u8> {
    let fill = (HEAD_WORDS..words(n, version)).map(|at| mixed(n ^ version << 20 ^ at << 56));
    let all = [n, version].into_iter().chain(fill);
    all.flat_map(u64::to_le_bytes).collect()
}

/// What a value says of itself, read as one of key `n`: its version.
pub(crate) fn version(n: u64, found: &[u8]) -> Result<u64, Fault> {
    let (words_found, rest) = found.as_chunks::<8>();
    let word = |at: usize| words_found.get(at).map(|word| u64::from_le_bytes(*word));
    let (Some(of), Some(version)) = (word(0), word(1)) else { return Err(Fault::Torn) };
    let fill = (HEAD_WORDS..words(of, version)).map(|at| mixed(of ^ version << 20 ^ at << 56));
    let is_whole = rest.is_empty()
        && words_found[HEAD_WORDS as usize..].iter().map(|word| u64::from_le_bytes(*word)).eq(fill);
    match is_whole {
        false => Err(Fault::Torn),
        true if of != n => Err(Fault::Wrong),
        true => Ok(version),
    }
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is in parts of several values.
    Torn,
    /// It is another key's.
    Wrong,
}

/// Keys of which two side by side are always there, and the next two come and go.
pub(crate) const KEYS: u64 = 8_000;

/// Groups of keys, each of which a batch sets to one version.
pub(crate) const GROUPS: u64 = 32;

/// Keys of a group, side by side: several leaves of a group are seldom the same.
pub(crate) const MEMBERS: u64 = 6;

/// The keys between two members of a group.
const GAP: u64 = 40;

/// The number of a member of a group.
pub(crate) fn member(group: u64, at: u64) -> u64 {
    KEYS + (group * MEMBERS + at) * GAP
}

/// Returns true for a key of a group.
pub(crate) fn is_grouped(n: u64) -> bool {
    n >= KEYS && (n - KEYS).is_multiple_of(GAP)
}

/// The number of all keys, those beside groups among them.
pub(crate) const ALL_KEYS: u64 = KEYS + GROUPS * MEMBERS * GAP;

/// Returns true for a key that is always there.
pub(crate) fn stays(n: u64) -> bool {
    if n < KEYS { n % 4 < 2 } else { is_grouped(n) }
}

/// What reads have found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Values that were proven, and absent keys that may be.
    pub(crate) reads: u64,
    /// Of these, those that needed the host.
    pub(crate) calls: u64,
    /// Reads of a group at one moment.
    pub(crate) atomic: u64,
    pub(crate) torn: u64,
    pub(crate) wrong: u64,
    /// Keys that are always there, and were not found.
    pub(crate) lost: u64,
    /// Values that are older than one that was read before.
    pub(crate) back: u64,
    /// Groups of which a part was of another version.
    pub(crate) halves: u64,
}

impl Counts {
    /// The counts that [`fmt::Display`] has written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let numbers = text.strip_prefix("counts ")?.split(' ').map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        let [reads, calls, atomic, torn, wrong, lost, back, halves] = numbers[..] else {
            return None;
        };
        Some(Self { reads, calls, atomic, torn, wrong, lost, back, halves })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.calls += other.calls;
        self.atomic += other.atomic;
        self.torn += other.torn;
        self.wrong += other.wrong;
        self.lost += other.lost;
        self.back += other.back;
        self.halves += other.halves;
    }

    /// Returns true if nothing was wrong.
    pub(crate) fn are_right(&self) -> bool {
        self.torn + self.wrong + self.lost + self.back + self.halves == 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads, calls, atomic, torn, wrong, lost, back, halves } = self;
        write!(f, "counts {reads} {calls} {atomic} {torn} {wrong} {lost} {back} {halves}")
    }
}

/// The versions that a reader has seen of each key: a later read never finds an older one.
pub(crate) struct Seen {
    versions: Vec<u64>,
    pub(crate) counts: Counts,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self { versions: vec![0; ALL_KEYS as usize], counts: Counts::default() }
    }

    /// Takes note of what a read of key `n` has found; returns the version.
    pub(crate) fn note(&mut self, n: u64, found: Option<&[u8]>) -> u64 {
        self.counts.reads += 1;
        let Some(found) = found else {
            self.counts.lost += u64::from(stays(n));
            return 0;
        };
        match version(n, found) {
            Ok(version) => {
                let seen = &mut self.versions[n as usize];
                self.counts.back += u64::from(version < *seen);
                *seen = version.max(*seen);
                return version;
            }
            Err(Fault::Torn) => self.counts.torn += 1,
            Err(Fault::Wrong) => self.counts.wrong += 1,
        }
        0
    }

    /// Takes note of a group that was read at one moment: all its versions.
    pub(crate) fn note_group(&mut self, versions: &[u64]) {
        self.counts.atomic += 1;
        let is_half = versions.len() as u64 != MEMBERS
            || versions.iter().any(|version| *version != versions[0]);
        self.counts.halves += u64::from(is_half);
    }
}

#[test]
fn faults_are_found() {
    let found = value(7, 3);
    assert_eq!(version(7, &found), Ok(3));
    assert_eq!(version(8, &found), Err(Fault::Wrong));
    assert_eq!(version(7, &found[..found.len() - 8]), Err(Fault::Torn));
    assert_eq!(version(7, &found[..found.len() - 1]), Err(Fault::Torn));
    assert_eq!(version(7, b""), Err(Fault::Torn));
    for at in 16..found.len() {
        let mut torn = found.clone();
        torn[at] ^= 1;
        assert_eq!(version(7, &torn), Err(Fault::Torn));
    }
    let mut seen = Seen::new();
    for (n, found) in [(7, None), (7, Some(3)), (7, Some(4)), (7, Some(3)), (9, None)] {
        seen.note(n, found.map(|version| value(n, version)).as_deref());
    }
    assert_eq!((seen.counts.back, seen.counts.lost, seen.counts.reads), (1, 1, 5));
    seen.note_group(&[3; MEMBERS as usize]);
    assert!(seen.counts.halves == 0 && !seen.counts.are_right());
    seen.note_group(&[3, 3, 3, 3, 3, 4]);
    seen.note_group(&[3; 5]);
    assert_eq!(seen.counts.halves, 2);
    assert_eq!(Counts::parse(&seen.counts.to_string()), Some(seen.counts));
    let keys: Vec<_> = (0..ALL_KEYS).map(key).collect();
    assert!(keys.is_sorted() && (0..).zip(&keys).all(|(n, key)| number(key) == Some(n)));
}
