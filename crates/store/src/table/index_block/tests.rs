//! Both kinds of index against a plain list of keys: every kind of key set, every kind of probe,
//! and bytes that no writer wrote.

mod figures;

use proptest::prelude::*;

use super::{
    BlockAddress, Index, IndexBuilder, IndexKind, PAGE_BYTES, PAGE_PAYLOAD_BYTES, StringCoding,
    learned::BLOCK_COST_FACTOR_MAX,
};

/// A kind of index, and how its keys are coded.
type Way = (IndexKind, StringCoding);

const LEARNED: Way = (IndexKind::Learned, StringCoding::Off);
const CODED: Way = (IndexKind::Learned, StringCoding::On);
const SEARCHED: Way = (IndexKind::BinarySearch, StringCoding::Off);
const WAYS: [Way; 4] = [LEARNED, CODED, (IndexKind::Learned, StringCoding::Auto), SEARCHED];
const FRAME_BYTES: u64 = 17;

/// Sorted distinct keys, each with the sizes of its versions.
type Units = Vec<(Vec<u8>, Vec<usize>)>;

struct Built {
    kind: IndexKind,
    block_bytes: u32,
    units: Units,
    /// The block of each unit.
    block_of: Vec<u32>,
    addresses: Vec<BlockAddress>,
    blocks: u32,
    pages: u32,
    encoded: Vec<u8>,
    index: Index,
}

/// Builds an index as a table writer does, checking the cuts as they come.
fn build(way: Way, block_bytes: u32, units: Units) -> Built {
    let (kind, coding) = way;
    let mut builder = IndexBuilder::new(kind, coding, block_bytes);
    let (mut cuts, mut sizes) = (Vec::new(), Vec::new());
    for (key, versions) in &units {
        for bytes in versions {
            builder.push(key, *bytes, &mut cuts);
            sizes.push(*bytes as u64);
        }
        let decided: u64 = cuts.iter().map(|count| u64::from(*count)).sum();
        assert!(decided < sizes.len() as u64, "the last unit cannot be decided before its end");
    }
    builder.finish_cuts(&mut cuts);
    let decided: u64 = cuts.iter().map(|count| u64::from(*count)).sum();
    assert_eq!(decided, sizes.len() as u64);

    let mut entry_blocks = Vec::new();
    let (mut stream, mut addresses) = (0u64, Vec::<BlockAddress>::new());
    let payload = u64::from(PAGE_PAYLOAD_BYTES);
    for (block, count) in cuts.iter().enumerate() {
        let begin = entry_blocks.len();
        entry_blocks.resize(begin + *count as usize, block as u32);
        let len = FRAME_BYTES + sizes[begin..entry_blocks.len()].iter().sum::<u64>();
        let first_page = (stream / payload) as u32;
        let nth = addresses.iter().rev().take_while(|a| a.first_page == first_page).count() as u32;
        let last_page = ((stream + len - 1) / payload) as u32;
        addresses.push(BlockAddress { first_page, last_page, nth });
        builder.block_written(
            stream / payload * PAGE_BYTES + 2 + stream % payload,
            u32::try_from(len).unwrap(),
        );
        stream += len;
    }
    let pages = stream.div_ceil(payload) as u32;
    let mut encoded = Vec::new();
    builder.encode(&mut encoded);
    let blocks = cuts.len() as u32;
    let index = Index::decode(&encoded, blocks, pages).unwrap();

    let mut block_of = Vec::new();
    let mut at = 0;
    for (_, versions) in &units {
        let block = entry_blocks[at];
        at += versions.len();
        assert!(
            entry_blocks[at - versions.len()..at].iter().all(|b| *b == block),
            "split versions"
        );
        block_of.push(block);
    }
    Built { kind, block_bytes, units, block_of, addresses, blocks, pages, encoded, index }
}

impl Built {
    /// Checks everything that holds for any table; `probes` are keys that may be there or not.
    fn check(&self, probes: &[Vec<u8>]) {
        let index = &self.index;
        assert_eq!((index.kind(), index.block_count()), (self.kind, self.blocks));
        assert_eq!(index.encoded_bytes(), self.encoded.len());
        for (block, expected) in self.addresses.iter().enumerate() {
            let found = index.address(block as u32);
            assert_eq!((found.first_page, found.nth), (expected.first_page, expected.nth));
            // A block that ends with its page may be reported to reach into the next one.
            assert!((expected.last_page..=expected.last_page + 1).contains(&found.last_page));
            assert!(found.last_page < self.pages);
        }
        for ((key, _), block) in self.units.iter().zip(&self.block_of) {
            assert_eq!(index.locate(key), *block, "locate {key:?}");
            assert_eq!(index.explain(key).block, *block);
        }
        self.check_block_sizes();
        self.check_segments();
        for probe in probes {
            self.check_seek(probe);
        }
        for (key, _) in &self.units {
            self.check_seek(key);
        }
    }

    fn check_block_sizes(&self) {
        let limit = u64::from(self.block_bytes);
        let mut costs = vec![(0u64, 0u32); self.blocks as usize];
        for ((_, versions), block) in self.units.iter().zip(&self.block_of) {
            let bytes = versions.iter().sum::<usize>() as u64;
            let (cost, units) = &mut costs[*block as usize];
            match self.kind {
                IndexKind::Learned => {
                    *cost += bytes.min(limit);
                    assert!(*units == 0 || *cost <= BLOCK_COST_FACTOR_MAX * limit, "block {block}");
                }
                IndexKind::BinarySearch => {
                    // The newest version of a key decides where it goes; older ones follow it.
                    assert!(*units == 0 || *cost + versions[0] as u64 <= limit, "block {block}");
                    *cost += bytes;
                }
            }
            *units += 1;
        }
        let has_empty = costs.iter().any(|(_, units)| *units == 0);
        assert!(self.kind == IndexKind::Learned || !has_empty);
    }

    fn check_segments(&self) {
        let mut next_block = 0;
        let mut previous: Option<Vec<u8>> = None;
        for (i, segment) in self.index.segments().enumerate() {
            assert!(previous.is_none_or(|previous| previous < segment.separator));
            assert_eq!(segment.first_block, next_block);
            next_block += segment.blocks;
            let last = next_block - 1;
            for block in [segment.first_block, last] {
                assert!(self.block_of.binary_search(&block).is_ok(), "an empty end of a segment");
            }
            let first = self.block_of.partition_point(|block| *block < segment.first_block);
            let explanation = self.index.explain(&self.units[first].0);
            assert_eq!((explanation.segment, explanation.skip), (i, segment.skip));
            assert_eq!(explanation.segment_blocks, (segment.first_block, last));
            previous = Some(segment.separator);
        }
        assert_eq!(next_block, self.blocks);
        assert_eq!(self.index.segments().count(), self.index.segment_count());
    }

    /// A cursor that starts at the hint finds the first key at or above `key`.
    fn check_seek(&self, key: &[u8]) {
        let hint = self.index.seek(key);
        assert!(hint.lo <= hint.block && hint.block <= hint.hi && hint.hi < self.blocks);
        let place = self.units.partition_point(|(k, _)| k[..] < *key);
        if place > 0 {
            assert!(self.block_of[place - 1] <= hint.hi, "{key:?}: entries below it after hi");
        }
        if let Some(block) = self.block_of.get(place) {
            assert!(hint.lo <= *block, "{key:?}: entries above it before lo");
            let next = self.block_of.partition_point(|b| *b <= hint.block);
            let is_first_of_next = next == place && *block > hint.block;
            assert!(*block == hint.block || is_first_of_next, "{key:?}: in {block}, hint {hint:?}");
        }
        assert!(self.index.locate(key) < self.blocks);
    }
}

/// Keys around `key` in the order.
fn neighbours(key: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![[key, &[0]].concat(), [key, &[0xff; 9]].concat()];
    for at in [0, key.len() / 2, key.len().saturating_sub(1)] {
        if at < key.len() {
            all.push(key[..at].to_vec());
            for change in [1, 0xff] {
                let mut other = key.to_vec();
                other[at] = other[at].wrapping_add(change);
                all.push(other);
            }
        }
    }
    all
}

fn check_both(block_bytes: u32, keys: impl IntoIterator<Item = (Vec<u8>, Vec<usize>)>) -> Built {
    let mut units: Units = keys.into_iter().collect();
    units.sort();
    units.dedup_by(|a, b| a.0 == b.0);
    let sample = units.len().div_ceil(500);
    let mut probes: Vec<_> =
        units.iter().step_by(sample).flat_map(|(key, _)| neighbours(key)).collect();
    probes.extend([vec![], vec![0], vec![0xff; 30]]);
    let [learned, ..] = WAYS.map(|way| {
        let built = build(way, block_bytes, units.clone());
        if built.blocks > 0 {
            built.check(&probes);
        }
        built
    });
    learned
}

fn empty_blocks(built: &Built) -> usize {
    (0..built.blocks).filter(|block| built.block_of.binary_search(block).is_err()).count()
}

fn mix(i: u64) -> u64 {
    let z = (i ^ i >> 30).wrapping_add(i << 7).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[test]
fn kinds_have_stable_bytes() {
    assert_eq!([IndexKind::Learned, IndexKind::BinarySearch].map(IndexKind::to_byte), [1, 2]);
    assert_eq!(StringCoding::ALL.map(StringCoding::to_byte), [0, 1, 2]);
    assert_eq!(
        StringCoding::ALL.map(|way| StringCoding::from_byte(way.to_byte()).unwrap()),
        StringCoding::ALL
    );
    assert_eq!(StringCoding::from_byte(3), None);
    for byte in 0..=255 {
        assert!(IndexKind::from_byte(byte).is_none_or(|kind| kind.to_byte() == byte));
    }
    assert_eq!(IndexKind::default(), IndexKind::Learned);
}

#[test]
fn no_entries() {
    for way in WAYS {
        let built = build(way, 4096, Vec::new());
        assert_eq!(
            (built.blocks, built.index.locate(b"k"), built.index.seek(b"k").block),
            (0, 0, 0)
        );
        assert_eq!(built.index.address(0).first_page, 0);
    }
}

#[test]
fn regular_keys_need_few_segments() {
    let sequential =
        check_both(4096, (0..200_000u64).map(|i| (i.to_be_bytes().to_vec(), vec![17])));
    assert!(sequential.index.segment_count() <= 2, "{}", sequential.index.segment_count());
    assert_eq!(empty_blocks(&sequential), 0);
    let uniform = check_both(4096, (0..200_000).map(|i| (mix(i).to_be_bytes().to_vec(), vec![60])));
    assert!(uniform.index.segment_count() <= 60, "{}", uniform.index.segment_count());
    assert!(empty_blocks(&uniform) * 100 <= uniform.blocks as usize);
    let decimal =
        check_both(4096, (0..100_000).map(|i| (format!("user:{:09}", i * 7).into(), vec![40])));
    assert!(decimal.blocks > 500);
}

#[test]
fn keys_that_share_long_prefixes() {
    let prefix = vec![b'p'; 60 << 10];
    check_both(
        256,
        (0..300u64).map(|i| ([&prefix[..], &(i * i).to_be_bytes()].concat(), vec![40])),
    );
    // Clusters: the prefixes differ early, the keys of one only at their ends.
    let clusters = (0..12u64).flat_map(|c| {
        let prefix = vec![b'a' + c as u8; 3000];
        (0..100).map(move |i| ([&prefix[..], &mix(i).to_be_bytes()].concat(), vec![30]))
    });
    let built = check_both(256, clusters);
    assert!(built.index.segment_count() < 200);
}

#[test]
fn clusters_of_equal_codes() {
    // The first eight bytes have only a few values, so most codes are ties until skips grow.
    let keys = (0..6000u64).map(|i| {
        let head = (mix(i) % 5) * 1000;
        ([head.to_be_bytes(), mix(i * 31).to_be_bytes()].concat(), vec![25])
    });
    check_both(512, keys);
    // Ties at two depths at once.
    let keys = (0..4000u64).map(|i| {
        let m = mix(i);
        let key = [(m % 3).to_be_bytes(), (m / 3 % 3).to_be_bytes(), (m / 9).to_be_bytes()];
        (key.concat(), vec![25])
    });
    check_both(512, keys);
}

#[test]
fn keys_that_are_prefixes_of_each_other() {
    check_both(64, (0..600).map(|len| (vec![b'a'; len], vec![20])));
    check_both(64, (0..600).map(|len| (vec![0; len], vec![20])));
    check_both(64, (0..600).map(|len| (vec![0xff; len], vec![20])));
    // The common prefix of the run shrinks with every key.
    check_both(64, (0..600).map(|zeros| ([vec![0; 600 - zeros], vec![1]].concat(), vec![20])));
}

#[test]
fn uneven_entries() {
    let sizes = |i: u64| match mix(i) % 97 {
        0 => vec![1 << 20],
        1..=4 => vec![9000, 10],
        5 => vec![1; 700],
        _ => vec![30],
    };
    let built = check_both(4096, (0..20_000).map(|i| (mix(i).to_be_bytes().to_vec(), sizes(i))));
    assert!(empty_blocks(&built) * 20 <= built.blocks as usize);
    check_both(4096, (0..500u64).map(|i| (i.to_be_bytes().to_vec(), vec![1 << 16])));
    check_both(4096, [(vec![], vec![50; 10_000])]);
    check_both(4096, [(vec![], vec![1]), (vec![0], vec![50; 10_000]), (vec![0, 0], vec![1])]);
}

/// More than two groups of segments, of one block and of many.
#[test]
fn segments_of_many_groups() {
    let word = |i: u64| {
        let letters = mix(i).to_be_bytes();
        letters[..2 + (i % 6) as usize].iter().map(|b| b"aeinorst"[usize::from(b % 8)]).collect()
    };
    let words: std::collections::BTreeSet<Vec<u8>> = (0..60_000).map(word).collect();
    let built = check_both(256, words.into_iter().map(|word| (word, vec![40])));
    assert!(built.index.segment_count() > 600, "{}", built.index.segment_count());
    let singles = built.index.segments().filter(|segment| segment.blocks == 1).count();
    assert!((40..built.index.segment_count() - 40).contains(&singles), "{singles}");
}

#[test]
fn gaps_of_all_scales() {
    check_both(
        256,
        (0..64u32).flat_map(|p| {
            (0..40u64)
                .map(move |k| ((1u64 << p).saturating_add(k * k).to_be_bytes().to_vec(), vec![30]))
        }),
    );
    let outliers = (0..5000u64).map(|i| if i % 1000 == 0 { u64::MAX - i } else { i * 3 });
    check_both(256, outliers.map(|i| (i.to_be_bytes().to_vec(), vec![30])));
}

#[test]
fn what_is_undecided_is_bounded() {
    for (kind, coding) in [LEARNED, CODED] {
        check_bound(IndexBuilder::new(kind, coding, 4096));
    }
}

fn check_bound(mut builder: IndexBuilder) {
    let (mut cuts, mut decided, mut pushed) = (Vec::new(), 0u64, 0u64);
    for i in 0..300_000u64 {
        builder.push(&i.to_be_bytes(), 100, &mut cuts);
        pushed += 1;
        decided += cuts.drain(..).map(u64::from).sum::<u64>();
        assert!((pushed - decided) * 100 <= (4 << 20) + 2 * 100);
    }
    let long = vec![7; 20 << 10];
    for i in 0..2000u64 {
        builder.push(&[&[0xff][..], &long, &i.to_be_bytes()].concat(), 10, &mut cuts);
        pushed += 1;
        decided += cuts.drain(..).map(u64::from).sum::<u64>();
    }
    assert!((pushed - decided) * (20 << 10) <= 9 << 20);
}

fn units(max: usize) -> impl Strategy<Value = Units> {
    let letters = prop::sample::select(vec![0u8, 1, b'a', b'b', 0xfe, 0xff]);
    let texts = prop::collection::vec(letters, 0..24);
    let numbers =
        (any::<u64>(), 0u32..64).prop_map(|(n, shift)| (n >> shift).to_be_bytes().to_vec());
    let clustered = (0u8..4, 0usize..30, any::<u16>())
        .prop_map(|(c, len, n)| [vec![c; len], n.to_be_bytes().to_vec()].concat());
    let sizes = prop_oneof![
        20 => prop::collection::vec(1usize..40, 1..3),
        1 => prop::collection::vec(1usize..3000, 1..9),
    ];
    let keys = prop_oneof![texts, numbers, clustered];
    prop::collection::btree_map(keys, sizes, 1..max).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_keys(units in units(400), probes in units(60), block_bytes in prop::sample::select(vec![1u32, 32, 100, 400, 4096])) {
        let probes: Vec<_> = probes.into_iter().map(|(key, _)| key).collect();
        for way in WAYS {
            build(way, block_bytes, units.clone()).check(&probes);
        }
    }

    /// Few keys of about a block each: where a line within epsilon can still overfill a block.
    #[test]
    fn coarse_units(keys in prop::collection::btree_map(prop_oneof![0u32..40, 0u32..4000], 1usize..=100, 1..40)) {
        let units = keys.into_iter().map(|(key, bytes)| (key.to_be_bytes().to_vec(), vec![bytes]));
        let units: Units = units.collect();
        let full: Units = units.iter().map(|(key, _)| (key.clone(), vec![100])).collect();
        for way in [LEARNED, CODED] {
            build(way, 100, units.clone()).check(&[]);
            build(way, 100, full.clone()).check(&[]);
        }
    }

    #[test]
    fn changed_bytes_never_panic(
        units in units(120), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>(), probes in units(20),
    ) {
        for way in WAYS {
            let built = build(way, 64, units.clone());
            let mut bytes = built.encoded.clone();
            for (at, byte) in &changes {
                *at.get_mut(&mut bytes[..]) = *byte;
            }
            use_hostile(&bytes, built.blocks, built.pages, &probes);
            use_hostile(&bytes[..cut.index(bytes.len())], built.blocks, built.pages, &probes);
            use_hostile(&built.encoded, built.blocks + 1, built.pages, &probes);
            use_hostile(&built.encoded, built.blocks, built.pages - 1, &probes);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 1u8..6, blocks in 0u32..40, pages in 0u32..300, probes in units(20)) {
        use_hostile(&[&[kind], &bytes[..]].concat(), blocks, pages, &probes);
    }
}

/// Whatever is accepted answers with blocks and pages that are there.
fn use_hostile(bytes: &[u8], blocks: u32, pages: u32, probes: &Units) {
    let Ok(index) = Index::decode(bytes, blocks, pages) else { return };
    for (key, _) in probes {
        for block in [index.locate(key), index.seek(key).block, index.explain(key).block] {
            assert!(block < blocks.max(1));
        }
    }
    for block in 0..=blocks {
        let address = index.address(block);
        assert!(
            blocks == 0 || address.first_page <= address.last_page && address.last_page < pages
        );
    }
    assert_eq!(index.segments().count(), index.segment_count());
}

/// The bytes of `docs/format/index.md`.
#[test]
fn golden_bytes() {
    let units = (0..9u8).map(|i| (vec![b'k', i * 16], vec![30])).collect::<Units>();
    let learned = build(LEARNED, 90, units.clone());
    let columns: [&[u8]; 7] = [
        &[0, 0, 1],
        &[1, 0, 1],
        &[0, 0, 1],
        &[2, 0, 1],
        &[0x80, 0x80, 0x40, 0, 1],
        &[11, 0, 1],
        &[59, 0, 1],
    ];
    assert_eq!(learned.encoded, [&[8, 1], &columns.concat()[..], b"k", &[0, 0, 0b0111]].concat());
    let searched = build(SEARCHED, 90, units);
    let offsets: [&[u8]; 3] = [&[0, 0, 0, 0], &[3, 0, 0, 0], &[8, 0, 0, 0]];
    let entries: [&[u8]; 3] = [&[0, 2, 107], &[2, b'k', 48, 109, 107], &[2, b'k', 96, 216, 1, 107]];
    assert_eq!(searched.encoded, [&[2], &offsets.concat()[..], &entries.concat()].concat());
}

/// The bytes of an index with a trained code: the keys of [`golden_bytes`] in another form.
#[test]
fn golden_bytes_of_coded_keys() {
    let units = (0..9u8).map(|i| (vec![b'k', b'0' + i], vec![30])).collect::<Units>();
    let coded = build(CODED, 90, units);
    let mut code = vec![1, 1];
    // Digits 1 to 8: the first key has no key before it to be told apart from.
    code.extend([0, 0, 0, 0, 0, 0, 0b1111_1110, 1].iter().chain(&[0; 24]));
    code.extend([1, 0xcc, 0xcc, 0xcc, 0xcc]);
    let columns: [&[u8]; 8] = [
        &[0, 0, 1],
        &[1, 0, 1],
        &[0, 0, 1],
        &[2, 0, 1],
        &[0x83, 0x80, 0x40, 0, 1],
        &[11, 0, 1],
        &[60, 0, 1],
        &[1, 0, 1],
    ];
    let expected =
        [&[9, 1], &code[..], &[1], &columns.concat()[..], b"k", &[0, 0, 0b0111]].concat();
    assert_eq!(coded.encoded, expected);
    coded.check(&[b"k".to_vec(), b"k/".to_vec(), b"k44".to_vec(), b"ka".to_vec()]);
}

/// Digits need one segment where plain bytes need many.
#[test]
fn keys_of_a_fixed_form_are_coded() {
    let units: Units =
        (0..100_000).map(|i| (format!("user:{:09}", i * 7).into(), vec![40])).collect();
    let [plain, auto] = [LEARNED, WAYS[2]].map(|way| build(way, 4096, units.clone()).index);
    assert!(auto.segment_count() <= 3, "{}", auto.segment_count());
    assert!(plain.segment_count() > 20, "{}", plain.segment_count());
    let coding = auto.coding().unwrap();
    assert_eq!((coding.codes, coding.trained_segments), (1, auto.segment_count()));
    assert_eq!(plain.coding().unwrap(), super::IndexCoding::default());
}

#[test]
fn damage_is_named() {
    let built = build(LEARNED, 64, vec![(b"key".to_vec(), vec![50])]);
    let refusal = |bytes: &[u8], blocks, pages| Index::decode(bytes, blocks, pages).unwrap_err();
    assert_eq!(
        refusal(&[], 1, 1),
        "expected an index kind at byte 0, found 0 bytes left of the 1 needed"
    );
    assert_eq!(refusal(&[7], 1, 1), "expected an index kind of 2, 8 or 9, found 7");
    let starts = refusal(&built.encoded, 1, 0);
    assert!(starts.contains("block 0 to start within 0 pages"), "{starts}");
}
