//! Requests and replies as bytes.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::binned::{
    Address, Operation, Outcome, Verb,
    descriptor::{Descriptor, Lesson, Span},
};
use rhumb_model::Line;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

fn operation() -> impl Strategy<Value = Operation> {
    let verbs =
        vec![Verb::Search, Verb::Insert, Verb::Update, Verb::Put, Verb::Remove, Verb::Range];
    let address =
        (any::<u64>(), any::<[u32; 3]>()).prop_map(|(array, [record, bin, incarnation])| Address {
            array,
            record,
            bin,
            incarnation,
        });
    let end = prop::option::of(bytes().prop_map(Arc::from));
    (prop::sample::select(verbs), address, bytes(), bytes(), end, 0..4097u32).prop_map(
        |(verb, address, key, value, end, limit)| Operation {
            verb,
            address,
            key,
            value,
            end,
            limit,
        },
    )
}

fn lesson() -> impl Strategy<Value = Lesson> {
    let array = (any::<u64>(), any::<u32>(), 0..8193u32, 0..66u16, 0..66u16, any::<i64>(), bytes());
    let bounds = prop::collection::btree_set(bytes(), 2..9);
    let arrays = prop::collection::vec(array, 8);
    (any::<u64>(), bounds, arrays, any::<bool>()).prop_map(|(model, bounds, arrays, is_last)| {
        let bounds: Vec<Arc<[u8]>> = bounds.into_iter().map(Arc::from).collect();
        let count = bounds.len() - 1;
        let arrays = bounds.windows(2).zip(arrays).enumerate();
        let arrays =
            arrays.map(|(at, (bounds, (epoch, base, records, below, above, y0, prefix)))| {
                let is_open = is_last && at + 1 == count;
                let high = (!is_open).then(|| bounds[1].clone());
                let line = Line { x0: epoch / 3, y0, mantissa: base, shift: 7 };
                let span = Span { low: bounds[0].clone(), high };
                let prefix = prefix.into();
                Descriptor { span, prefix, epoch, base, records, line, below, above }
            });
        Lesson { model, arrays: arrays.collect() }
    })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![bytes().prop_map(Value::Here), any::<u32>().prop_map(Value::Ask)]
}

fn reply() -> impl Strategy<Value = Reply> {
    let pairs = prop::collection::vec((bytes(), value()), 0..5);
    let outcome = prop_oneof![
        value().prop_map(Outcome::Found),
        Just(Outcome::Absent),
        any::<bool>().prop_map(|was_there| Outcome::Written { was_there }),
        (pairs, prop::option::of(bytes())).prop_map(|(pairs, next)| Outcome::Pairs { pairs, next }),
        Just(Outcome::Moved),
    ];
    prop_oneof![
        any::<[u64; 3]>()
            .prop_map(|[session, lease_ms, model]| { Reply::Joined { session, lease_ms, model } }),
        (any::<u64>(), prop::collection::vec(lesson(), 0..3))
            .prop_map(|(model, lessons)| Reply::Renewed { model, lessons }),
        Just(Reply::Unknown),
        lesson().prop_map(Reply::Learned),
        (outcome, prop::option::of(lesson()))
            .prop_map(|(outcome, lesson)| Reply::Done { outcome, lesson }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::Join),
        any::<[u64; 2]>().prop_map(|[session, model]| Request::Renew { session, model }),
        any::<u64>().prop_map(|session| Request::Leave { session }),
        bytes().prop_map(|from| Request::Learn { from }),
        operation().prop_map(Request::Operate),
    ]
}

proptest! {
    #[test]
    fn requests_come_as_they_were_sent(request in request(), cut: prop::sample::Index) {
        let mut out = Vec::new();
        request.encode(&mut out);
        prop_assert_eq!(&Request::decode(&out).unwrap(), &request);
        prop_assert!(Request::decode(&out[..cut.index(out.len())]).is_err());
        out.push(0);
        prop_assert!(Request::decode(&out).is_err());
    }

    #[test]
    fn replies_come_as_they_were_sent(reply in reply(), cut: prop::sample::Index) {
        let mut out = Vec::new();
        reply.encode(&mut out);
        prop_assert_eq!(&Reply::decode(&out).unwrap(), &reply);
        prop_assert!(Reply::decode(&out[..cut.index(out.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..6u8,
    ) {
        let bytes = [&[kind][..], &bytes].concat();
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
    }

    #[test]
    fn damaged_replies_are_read_or_refused(
        reply in reply(), at: prop::sample::Index, byte: u8,
    ) {
        let mut out = Vec::new();
        reply.encode(&mut out);
        let at = at.index(out.len());
        out[at] = byte;
        let _ = Reply::decode(&out);
    }
}

#[test]
fn golden_bytes() {
    let address = Address { array: 300, record: 2, bin: 3, incarnation: 4 };
    let mut out = Vec::new();
    Request::Operate(Operation::new(Verb::Put, address, b"k", b"vv")).encode(&mut out);
    assert_eq!(out, [4, 3, 0xac, 2, 2, 3, 4, 1, b'k', 2, b'v', b'v', 0, 0]);
    out.clear();
    let pairs = vec![(b"k".to_vec(), Value::Here(b"v".to_vec())), (vec![], Value::Ask(5))];
    let outcome = Outcome::Pairs { pairs, next: Some(b"n".to_vec()) };
    Reply::Done { outcome, lesson: None }.encode(&mut out);
    assert_eq!(out, [4, 3, 2, 1, b'k', 0, 1, b'v', 0, 1, 5, 1, 1, b'n', 0]);
}

#[test]
fn golden_sessions_and_lessons() {
    let encoded = |request: Request| {
        let mut out = Vec::new();
        request.encode(&mut out);
        out
    };
    assert_eq!(encoded(Request::Join), [0]);
    assert_eq!(encoded(Request::Renew { session: 5, model: 300 }), [1, 5, 0xac, 2]);
    assert_eq!(encoded(Request::Leave { session: 5 }), [2, 5]);
    assert_eq!(encoded(Request::Learn { from: b"ab".to_vec() }), [3, 2, b'a', b'b']);
    let encoded = |reply: Reply| {
        let mut out = Vec::new();
        reply.encode(&mut out);
        out
    };
    assert_eq!(encoded(Reply::Joined { session: 5, lease_ms: 1, model: 2 }), [0, 5, 1, 2]);
    assert_eq!(encoded(Reply::Unknown), [2]);
    let array = |low: &[u8], high: Option<&[u8]>| Descriptor {
        span: Span { low: low.into(), high: high.map(Arc::from) },
        prefix: (*b"p").into(),
        epoch: 9,
        base: 3,
        records: 2,
        line: Line { x0: 1, y0: -1, mantissa: 2, shift: 3 },
        below: 4,
        above: 5,
    };
    let lesson = Lesson { model: 7, arrays: vec![array(b"", Some(b"m")), array(b"m", None)] };
    let mut line = Vec::new();
    rhumb_model::codec::put_line(&Line { x0: 1, y0: -1, mantissa: 2, shift: 3 }, &mut line);
    let one = [&[9, 3, 2, 4, 5][..], &line, &[1, b'p']].concat();
    // Low bound of the first, high bound of the last; the bound between them after the first.
    let bytes = [&[3, 7, 2, 0, 0][..], &one, &[1, b'm'], &one].concat();
    assert_eq!(encoded(Reply::Learned(lesson.clone())), bytes);
    let renewed = encoded(Reply::Renewed { model: 7, lessons: vec![lesson] });
    assert_eq!(renewed, [&[1, 7, 1][..], &bytes[1..]].concat());
    let array = array(b"", Some(b"m"));
    assert_eq!(array.tag(), DESCRIPTOR_TAG);
}

/// What a descriptor hashes to: it must not change while regions and clients may be of two builds.
const DESCRIPTOR_TAG: u64 = 12_432_646_267_432_143_532;

/// The words of a region of two keys, one of them in a bin.
#[test]
fn golden_region() {
    let map = Map::from([(b"abcdefgh".to_vec(), b"xyz".to_vec())]);
    let local = Local::new(&map, Options::default());
    let mut host = local.host.borrow_mut();
    host.set(b"longer than eight", b"w", Address::default()).unwrap();
    host.publish(1);
    let (epoch, array) = host.arrays.iter().next().unwrap();
    let (block, header) = (array.descriptor.base * BLOCK_LINES, array.header);
    let words = |line: u32, count: usize| -> Vec<u64> {
        (0..count).map(|word| host.records.slab.load(line, word)).collect()
    };
    let tag = array.descriptor.tag();
    let found = words(block, 8);
    // Guard with the epoch as its incarnation, tag, the sentinel, the record with its link.
    assert_eq!((found[0] >> 40, found[0] & 1, found[1]), (*epoch, 0, tag));
    let Link::Bin(root) = array.record(&host.records, 1).link() else { panic!("no bin") };
    let link = u64::from(root.incarnation) << 40 | u64::from(root.line) << 11 | 1 << 8;
    assert_eq!(found[2..8], [0, 0, 0, 0x6162_6364_6566_6768, 0x007a_7978, link | 0x31]);
    // Tag, epoch, place and number of records, reach, line.
    let found = words(header.line, 8);
    let place = u64::from(array.descriptor.base) | 1 << 32;
    assert_eq!((found[0] & 1, &found[1..4]), (0, &[tag, *epoch, place][..]));
    // One record, of a key that lies elsewhere with its value: lengths, key, value.
    let found = words(root.line, 5);
    assert_eq!(
        (found[0] & 1, found[1], found[2]),
        (0, 1 | 1 << 8, u64::from_be_bytes(*b"longer t"))
    );
    let wide = Record::of_words(&found[2..]).wide_extent().unwrap();
    let found = words(wide.slot.line, 6);
    assert_eq!(found[1..3], [17 | 1 << 32, u64::from_le_bytes(*b"longer t")]);
    assert_eq!(found[3..], [u64::from_le_bytes(*b"han eigh"), u64::from(b't'), u64::from(b'w')]);
}
