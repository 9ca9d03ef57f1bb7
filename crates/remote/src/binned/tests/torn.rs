//! Gets and ranges of a region that is read without order, while its host changes it.
//!
//! Clients know the arrays as they were at some step, and their sessions are long over: what is
//! proven is right all the same. What they would ask the host is left open.

use proptest::prelude::*;

use super::*;
use crate::{
    binned::{descriptor::Lesson, message::Address},
    error::Error,
    fabric::torn::{History, Torn},
};

/// What readers may see after a step.
struct Moment {
    now: Map,
    /// While all is loaded anew, what comes after `now`.
    next: Option<Map>,
    /// The arrays, where no change is under way.
    model: Option<Lesson>,
}

impl Moment {
    fn has(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        let of = |map: &Map| map.get(key).map(Vec::as_slice) == value;
        of(&self.now) || self.next.as_ref().is_some_and(of)
    }
}

#[derive(Clone, Debug)]
enum Change {
    /// Sets values of these lengths, or removes keys, all seen at once.
    Group(Vec<(u16, Option<u16>)>),
    /// Trains an array anew, with changes of a group between its two steps.
    Train(u16, Vec<(u16, Option<u16>)>),
    /// Frees what waits for sessions.
    Free,
    /// Loads all keys but the multiples of a number.
    Load(u16),
}

const KEYS: u16 = 300;
const VALUE_BYTES_MAX: usize = 600;
/// The length of values that differ in their last line alone: they take four lines.
const LATE: u16 = 200;

/// Keys of eight bytes, and longer ones between them.
fn key(number: u16) -> Vec<u8> {
    let mut key = (u64::from(number) << 20).to_be_bytes().to_vec();
    key.extend(number.is_multiple_of(3).then_some(b'w'));
    key
}

/// The version comes first. In a value of [`LATE`] it comes last, several lines after the guard.
fn value(key: &[u8], version: usize, len: u16) -> Vec<u8> {
    let mut value = (version as u32).to_le_bytes().to_vec();
    value.extend(key.iter().cycle().take(len.into()));
    if len == LATE {
        value.rotate_left(4);
    }
    value
}

/// Half of them fit into records, and most others take several lines.
fn length(number: u16) -> u16 {
    if number.is_multiple_of(2) { number % 5 } else { number }
}

fn group() -> impl Strategy<Value = Vec<(u16, Option<u16>)>> {
    let len = prop_oneof![4 => 0..5_u16, 4 => 5..300_u16, 1 => Just(LATE), 1 => Just(700)];
    let one = (0..KEYS, prop::option::weighted(0.7, len), any::<bool>());
    // Some keys go and come back at once.
    let twice = |(number, len, twice): (u16, Option<u16>, bool)| {
        let goes = (twice && len.is_some()).then_some((number, None));
        goes.into_iter().chain([(number, len)]).collect()
    };
    let some = prop::collection::vec(one.prop_map(twice), 1..6);
    some.prop_map(|changes: Vec<Vec<_>>| changes.concat())
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        14 => group().prop_map(Change::Group),
        3 => (any::<u16>(), group()).prop_map(|(array, group)| Change::Train(array, group)),
        2 => Just(Change::Free),
        1 => (2..9_u16).prop_map(Change::Load),
    ];
    prop::collection::vec(change, 1..40)
}

/// A host that changes, and what was seen of it.
struct Recorder {
    local: Local,
    map: Map,
    history: History,
    moments: Vec<Moment>,
}

impl Recorder {
    fn new() -> Self {
        let first = (0..KEYS).filter(|n| n % 4 != 1);
        let map: Map = first.map(|n| (key(n), value(&key(n), 0, length(n)))).collect();
        let options =
            Options { value_bytes_max: VALUE_BYTES_MAX, has_checksums: true, ..Options::default() };
        let local = Local::within(4 << 20, &map, options);
        let mut new = Self { local, map, history: History::default(), moments: Vec::new() };
        new.record(None, true);
        new
    }

    /// Keeps what the region is now; readers see what the map was before the change under way.
    fn record(&mut self, before: Option<&Map>, is_whole: bool) {
        self.history.record(&[], crate::host::Space::words(&*self.local.space));
        let model = is_whole.then(|| {
            let reply = self.local.host.borrow_mut().handle(0, &Request::Learn { from: vec![] });
            match reply.unwrap() {
                Reply::Learned(lesson) => lesson,
                other => panic!("{other:?}"),
            }
        });
        let now = before.unwrap_or(&self.map).clone();
        self.moments.push(Moment { now, next: None, model });
    }

    fn group(&mut self, version: usize, group: &[(u16, Option<u16>)]) {
        let before = self.map.clone();
        for (number, len) in group {
            let key = key(*number);
            match len {
                Some(len) => {
                    let value = value(&key, version, *len);
                    let address = Address::default();
                    self.local.host.borrow_mut().set(&key, &value, address).unwrap();
                    self.map.insert(key, value);
                }
                None => {
                    self.local.host.borrow_mut().remove(&key, Address::default()).unwrap();
                    self.map.remove(&key);
                }
            }
            self.record(Some(&before), false);
        }
        self.local.host.borrow_mut().publish(version as u64);
        self.record(None, true);
    }

    fn change(&mut self, version: usize, change: &Change) {
        match change {
            Change::Group(group) => self.group(version, group),
            Change::Train(which, group) => {
                let plan = {
                    let mut host = self.local.host.borrow_mut();
                    let tops: Vec<u64> = host.tops.values().copied().collect();
                    let top = tops[usize::from(*which) % tops.len()];
                    host.arrays.get_mut(&top).unwrap().is_asked = which.is_multiple_of(2);
                    host.due.insert(top);
                    host.begin_training().unwrap()
                };
                self.record(None, false);
                self.local.host.borrow_mut().publish(version as u64);
                self.group(version, group);
                self.local.host.borrow_mut().finish_training(plan.train()).unwrap();
                self.record(None, false);
                self.local.host.borrow_mut().publish(version as u64);
                self.record(None, true);
            }
            Change::Free => {
                self.local.host.borrow_mut().poll(0);
                self.record(None, false);
                self.local.host.borrow_mut().publish(version as u64);
                self.record(None, true);
            }
            Change::Load(step) => {
                let pairs = (0..KEYS).filter(|n| n % step != 0);
                let next: Map =
                    pairs.map(|n| (key(n), value(&key(n), version, length(n)))).collect();
                let (host, space) = (Rc::clone(&self.local.host), Arc::clone(&self.local.space));
                let pairs = next.clone().into_iter().inspect(|_| {
                    self.history.record(&[], crate::host::Space::words(&*space));
                    let (now, next) = (self.map.clone(), Some(next.clone()));
                    self.moments.push(Moment { now, next, model: None });
                });
                host.borrow_mut().load(pairs.map(Ok)).unwrap();
                host.borrow_mut().publish(version as u64);
                self.map = next;
                self.record(None, true);
            }
        }
    }
}

/// What a client would ask of its host.
struct Unanswered;

impl Caller for Unanswered {
    fn call(&mut self, _: &Request) -> Result<Reply> {
        Err(Error::Closed)
    }
}

/// What a client is told once, and nothing after it.
struct Told(Option<Lesson>);

impl Caller for Told {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        match (request, self.0.take()) {
            (Request::Join, lesson) => {
                self.0 = lesson;
                Ok(Reply::Joined { session: 1, lease_ms: 1_000, model: 0 })
            }
            (Request::Learn { .. }, Some(lesson)) => Ok(Reply::Learned(lesson)),
            _ => Err(Error::Closed),
        }
    }
}

/// A client that knows the arrays of one moment.
fn client(lesson: &Lesson) -> Client<Unanswered> {
    let told = Told(Some(lesson.clone()));
    let client = Client::new(told, Mode::AllAtClient, CacheBudget::Full);
    let mut client = client.with_sizes(Sizes::new(true));
    client.renew(0).unwrap();
    client.with_caller(Unanswered)
}

fn record(changes: &[Change]) -> Recorder {
    let mut recorder = Recorder::new();
    for (version, change) in (1..).zip(changes) {
        recorder.change(version, change);
    }
    recorder
}

/// Steps that pass while a read goes on, at most. Some loads are shorter than the longest.
fn duration() -> impl Strategy<Value = usize> {
    prop_oneof![0..4_usize, Just(60)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn gets_without_order_are_right_at_some_moment_of_their_time(
        changes in changes(), seed: u64, most in duration(), age in 0..12_usize,
    ) {
        let Recorder { history, moments, .. } = record(&changes);
        let torn = Torn::new(&history, most, seed);
        for known in (0..moments.len()).step_by(3) {
            let Some(model) = &moments[known].model else { continue };
            let mut client = client(model);
            let begin = (known + age).min(moments.len() - 1);
            for number in (known as u16 % 5..KEYS).step_by(5) {
                torn.begin_at(begin);
                let key = key(number);
                let Ok(answer) = client.get(&torn, 0, &key) else { continue };
                let mut seen = moments[begin..=torn.now()].iter();
                match answer {
                    Answer::Found(value) => {
                        prop_assert!(seen.any(|moment| moment.has(&key, Some(&value))));
                    }
                    Answer::Absent => prop_assert!(seen.any(|moment| moment.has(&key, None))),
                    Answer::Ask(len) => prop_assert!(len as usize > VALUE_BYTES_MAX),
                }
            }
        }
    }

    #[test]
    fn several_gets_without_order_are_right_at_some_moment_of_their_time(
        changes in changes(), seed: u64, most in duration(), age in 0..12_usize, count in 1..60_u16,
    ) {
        let Recorder { history, moments, .. } = record(&changes);
        let torn = Torn::new(&history, most, seed);
        for known in 0..moments.len() {
            let Some(model) = &moments[known].model else { continue };
            let mut client = client(model);
            let begin = (known + age).min(moments.len() - 1);
            let first = known as u16 * 7;
            let keys: Vec<Vec<u8>> = (first..first + count).map(|n| key(n % KEYS)).collect();
            let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            torn.begin_at(begin);
            let mut found = vec![None; keys.len()];
            let keep = |index: usize, value: Option<&[u8]>| {
                assert!(found[index].replace(value.map(<[u8]>::to_vec)).is_none());
            };
            let missed = client.multi_get(&torn, 0, &wanted, keep).unwrap();
            for (index, value) in found.iter().enumerate() {
                prop_assert_eq!(value.is_none(), missed.contains(&index));
                let Some(value) = value else { continue };
                let mut seen = moments[begin..=torn.now()].iter();
                prop_assert!(seen.any(|moment| moment.has(&keys[index], value.as_deref())));
            }
            if most == 0 && age == 0 {
                for (index, key) in keys.iter().enumerate() {
                    torn.begin_at(begin);
                    let one = client.get(&torn, 0, key);
                    let is_asked = matches!(one, Err(_) | Ok(Answer::Ask(_)));
                    prop_assert_eq!(is_asked, missed.contains(&index), "{:?}", key);
                }
            }
        }
    }

    /// What proves itself where there is an order does so where there is none.
    #[test]
    fn what_stands_still_is_found_as_in_mapped_memory(changes in changes(), age in 0..12_usize) {
        let Recorder { history, moments, .. } = record(&changes);
        let (torn, still) = (Torn::new(&history, 0, 0), Torn::still(&history));
        for known in 0..moments.len() {
            let Some(model) = &moments[known].model else { continue };
            let mut clients = [client(model), client(model)];
            clients[1].set_mode(Mode::Pipeline);
            let step = (known + age).min(moments.len() - 1);
            for number in (known as u16 % 7..KEYS).step_by(7) {
                let [one, other] = [(0, &torn), (1, &still)].map(|(which, fabric)| {
                    fabric.begin_at(step);
                    clients[which].get(fabric, 0, &key(number)).ok()
                });
                prop_assert_eq!(one, other);
            }
            let [one, other] = [(0, &torn), (1, &still)].map(|(which, fabric)| {
                fabric.begin_at(step);
                clients[which].range(fabric, 0, &key(known as u16 % KEYS), None, 90).ok()
            });
            prop_assert!(one == other);
        }
    }

    #[test]
    fn ranges_without_order_pass_over_nothing_that_stays(
        changes in changes(), seed: u64, most in duration(), age in 0..12_usize, limit in 1..200_usize,
    ) {
        let Recorder { history, moments, .. } = record(&changes);
        let torn = Torn::new(&history, most, seed);
        for known in (0..moments.len()).step_by(2) {
            let Some(model) = &moments[known].model else { continue };
            let mut client = client(model);
            let begin = (known + age).min(moments.len() - 1);
            torn.begin_at(begin);
            let from = key((known * 17 % usize::from(KEYS)) as u16);
            let Ok(page) = client.range(&torn, 0, &from, None, limit) else { continue };
            let moments = &moments[begin..=torn.now()];
            for (key, value) in &page.pairs {
                let is_right = |moment: &Moment| match value {
                    Value::Here(value) => moment.has(key, Some(value)),
                    Value::Ask(_) => true,
                };
                prop_assert!(*key >= from && moments.iter().any(is_right), "{key:?}");
            }
            let keys: Vec<&Vec<u8>> = page.pairs.iter().map(|(key, _)| key).collect();
            prop_assert!(keys.is_sorted() && keys.len() <= limit);
            let is_passed =
                |key: &Vec<u8>| *key >= from && page.next.as_ref().is_none_or(|next| key < next);
            for key in moments[0].now.keys().filter(|key| is_passed(key)) {
                let stays = |moment: &Moment| {
                    let next = moment.next.as_ref().unwrap_or(&moment.now);
                    moment.now.contains_key(key) && next.contains_key(key)
                };
                let is_missed = !keys.contains(&key) && moments.iter().all(stays);
                prop_assert!(!is_missed, "{key:?} is passed over");
            }
        }
    }
}

/// A key goes and comes back at once, in the piece that it had: only the guard tells the first line
/// of before from that of the change, which nobody may see yet.
#[test]
fn a_wide_record_is_not_put_together_of_two_changes() {
    let mut recorder = Recorder::new();
    let number = 6;
    for version in 1..4 {
        recorder.group(version, &[(number, None), (number, Some(LATE))]);
    }
    let Recorder { history, moments, .. } = recorder;
    let key = key(number);
    for (begin, moment) in moments.iter().enumerate() {
        let Some(model) = &moment.model else { continue };
        let mut client = client(model);
        // Few reads have their first line from before and the others from amid the change.
        for seed in 0..3_000 {
            let torn = Torn::new(&history, 2, seed);
            torn.begin_at(begin);
            let Ok(Answer::Found(found)) = client.get(&torn, 0, &key) else { continue };
            let mut seen = moments[begin..=torn.now()].iter();
            assert!(seen.any(|moment| moment.has(&key, Some(&found))), "{begin}, seed {seed}");
        }
    }
}

#[test]
fn nothing_is_proven_by_a_region_that_is_not_there() {
    let recorder = Recorder::new();
    let mut client = client(recorder.moments[0].model.as_ref().unwrap());
    let history = {
        let mut history = History::default();
        history.record(&[], &[]);
        history
    };
    let torn = Torn::new(&history, 0, 0);
    assert!(matches!(client.get(&torn, 0, &key(4)), Err(Error::Closed)));
    assert!(matches!(client.range(&torn, 0, &key(4), None, 9), Err(Error::Closed)));
}
