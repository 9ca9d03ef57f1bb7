//! Finds the last separator that is at most a key: by the bytes after the prefix that a run of
//! separators shares, its *heads*, and by whole separators where heads do not decide.
//!
//! Real keys share long prefixes: of the addresses of a million repositories, most begin with the
//! same 23 bytes, and some with 10 of them. So separators with one head are a run of their own,
//! which shares a longer prefix and has heads after that. A head has eight bytes; or sixteen where
//! that takes less memory, since paths of files are otherwise in a run within a run within a run.
//! Memory: 8 to 16 bytes for each separator and each run that it is in, of which there are at most
//! [`DEPTH_MAX`](super::heads::DEPTH_MAX).

use super::{
    heads::{Near, Runs},
    separators::Separators,
};

/// The heads of all separators, of one width.
#[derive(Debug)]
enum Heads {
    Short(Runs<u64>),
    Long(Runs<u128>),
}

/// A search structure over [`Separators`].
#[derive(Debug)]
pub(super) struct Finder {
    /// The bytes with which all separators begin.
    prefix: Box<[u8]>,
    /// The number of separators.
    len: usize,
    heads: Heads,
}

impl Heads {
    fn new(separators: &Separators, prefix_len: usize) -> Self {
        let short = Runs::<u64>::new(separators, prefix_len);
        // Long heads take half as much again each, and there is one for each separator at least.
        if short.head_count() / 3 * 2 > separators.len() {
            let long = Runs::<u128>::new(separators, prefix_len);
            if long.resident_bytes() < short.resident_bytes() {
                return Self::Long(long);
            }
        }
        Self::Short(short)
    }

    #[inline(always)]
    fn seek_near(&self, key: &[u8], prefetch_near: impl Fn(usize)) -> Near {
        match self {
            Self::Short(runs) => runs.seek_near(key, prefetch_near),
            Self::Long(runs) => runs.seek_near(key, prefetch_near),
        }
    }

    #[inline(always)]
    fn resolve_tied(
        &self,
        above: usize,
        separators: &Separators,
        key: &[u8],
        prefetch_near: impl Fn(usize),
    ) -> usize {
        match self {
            Self::Short(runs) => runs.resolve_tied(above, separators, key, prefetch_near),
            Self::Long(runs) => runs.resolve_tied(above, separators, key, prefetch_near),
        }
    }

    fn resident_bytes(&self) -> usize {
        match self {
            Self::Short(runs) => runs.resident_bytes(),
            Self::Long(runs) => runs.resident_bytes(),
        }
    }
}

impl Finder {
    /// A finder for separators that all share `prefix_len` bytes. Linear in their bytes, up to
    /// [`DEPTH_MAX`](super::heads::DEPTH_MAX) times.
    pub(super) fn new(separators: &Separators, prefix_len: usize) -> Self {
        let mut prefix = if prefix_len > 0 { separators.get(0) } else { Vec::new() };
        prefix.truncate(prefix_len);
        let heads = Heads::new(separators, prefix_len);
        Self { prefix: prefix.into(), len: separators.len(), heads }
    }

    /// Returns true if `key` begins as all separators do.
    #[inline]
    pub(super) fn has_prefix(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix)
    }

    /// The number of bytes that all separators share.
    #[inline]
    pub(super) fn prefix_len(&self) -> usize {
        self.prefix.len()
    }

    /// Where the heads of all separators place `key`.
    #[inline(always)]
    pub(super) fn seek_near(&self, key: &[u8], prefetch_near: impl Fn(usize)) -> Near {
        if !self.prefix.is_empty() && !self.has_prefix(key) {
            let above = if *key < *self.prefix { 0 } else { self.len };
            return Near { above, is_tied: false };
        }
        self.heads.seek_near(key, prefetch_near)
    }

    /// The last separator that is at most `key`, which is `near`; the first of all, if none is.
    #[inline(always)]
    pub(super) fn resolve(
        &self,
        near: Near,
        separators: &Separators,
        key: &[u8],
        prefetch_near: impl Fn(usize),
    ) -> usize {
        let Near { above, is_tied } = near;
        let above = match is_tied {
            true => self.heads.resolve_tied(above, separators, key, prefetch_near),
            false => above,
        };
        above.saturating_sub(1)
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.prefix.len() + self.heads.resident_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rhumb_model::codec::Reader;

    use super::{
        super::{
            heads::{DEPTH_MAX, Head},
            separators::SeparatorsBuilder,
        },
        *,
    };

    /// Strings most of which begin alike; the others differ after its first bytes. With ties of
    /// heads and zeros at the ends.
    fn strings(most: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
        let begin = prop_oneof![
            6 => Just(&b"git+https://github.com/"[..]),
            1 => Just(&b"git+http"[..]),
            1 => Just(&b""[..]),
        ];
        let pieces: [&[u8]; 6] =
            [b"a", b"\0", b"\xff", b"\0\0\0\0\0\0\0\0", b"12345678", b"12345679"];
        let rest = prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..7);
        let string = (begin, rest).prop_map(|(begin, rest)| [begin, &rest.concat()].concat());
        prop::collection::btree_set(string, 1..most).prop_map(|set| set.into_iter().collect())
    }

    fn finder_of(strings: &[Vec<u8>]) -> (Finder, Separators) {
        let mut builder = SeparatorsBuilder::default();
        strings.iter().for_each(|string| builder.push(string));
        let SeparatorsBuilder { shared, added, bytes, .. } = builder;
        let separators =
            Separators::decode(&mut Reader::new(&bytes), &shared, &added, |_| ()).unwrap();
        let prefix_len = shared.iter().skip(1).min().or(added.first()).copied().unwrap_or(0);
        (Finder::new(&separators, prefix_len as usize), separators)
    }

    /// The number of the separator that is found for `key` by heads of one width.
    fn found_by<H: Head>(separators: &Separators, prefix_len: usize, key: &[u8]) -> usize {
        let runs = Runs::<H>::new(separators, prefix_len);
        let near = runs.seek_near(key, |_| ());
        let above = match near.is_tied {
            true => runs.resolve_tied(near.above, separators, key, |_| ()),
            false => near.above,
        };
        above.saturating_sub(1)
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_finds(strings in strings(90), others in strings(40)) {
            let (finder, separators) = finder_of(&strings);
            for key in strings.iter().chain(&others) {
                let expected = strings.iter().rposition(|s| s <= key).unwrap_or(0);
                let found = finder.resolve(finder.seek_near(key, |_| ()), &separators, key, |_| ());
                prop_assert_eq!(found, expected, "{:?}", key);
                if finder.has_prefix(key) {
                    let prefix_len = finder.prefix_len();
                    prop_assert_eq!(found_by::<u64>(&separators, prefix_len, key), expected, "{:?}", key);
                    prop_assert_eq!(found_by::<u128>(&separators, prefix_len, key), expected, "{:?}", key);
                }
            }
        }
    }

    #[test]
    fn heads_are_long_where_short_ones_tie_again_and_again() {
        let name = |n: usize| format!("git+https://github.com/{n:08}").into_bytes();
        let (finder, _) = finder_of(&(0..2000).map(name).collect::<Vec<_>>());
        assert!(matches!(finder.heads, Heads::Short(_)));
        let path = |n: usize| {
            [[n / 45 + 1; 8], [n % 45 + 1; 8]].concat().iter().map(|b| *b as u8).collect()
        };
        let (finder, _) = finder_of(&(0..2000).map(path).collect::<Vec<_>>());
        assert!(matches!(finder.heads, Heads::Long(_)));
    }

    #[test]
    fn runs_are_made_where_heads_tie_and_no_deeper_than_is_allowed() {
        let of = |host: &'static str| {
            (0..50).map(move |n| format!("https://{host}/{n:04}").into_bytes())
        };
        let mut strings: Vec<_> =
            of("a.org").chain(of("a.net")).chain([b"https:/".to_vec()]).collect();
        strings.sort_unstable();
        let (_, separators) = finder_of(&strings);
        // All separators of one host are in a run, whose heads come after the host; or all are in
        // one run before that.
        assert!(Runs::<u64>::new(&separators, 0).head_count() > 2 * strings.len() - 3);
        let deep: Vec<_> = (1..200_usize).map(|n| vec![b'a'; n * 17]).collect();
        let (finder, separators) = finder_of(&deep);
        let most = (1 + DEPTH_MAX) * deep.len();
        assert!(Runs::<u64>::new(&separators, 0).head_count() <= most);
        assert!(Runs::<u128>::new(&separators, 0).head_count() <= most);
        for key in &deep {
            let found = finder.resolve(finder.seek_near(key, |_| ()), &separators, key, |_| ());
            assert_eq!(&deep[found], key);
        }
    }
}
