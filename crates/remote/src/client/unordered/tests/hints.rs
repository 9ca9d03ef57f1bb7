//! Hints of hot records, while the host changes these in every way that it has.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use proptest::{prelude::*, test_runner::TestRunner};

use super::{Group, Model, copy, geometries, groups, key, route, value};
use crate::{
    client::{
        Outcome,
        unordered::{Hints, Leaves, Unordered},
    },
    error::Result,
    fabric::torn::{History, Torn},
    host::{Renewal, Space, Table, heap::HeapSpace, scrub},
    layout::Geometry,
    message::Extent,
    points::look_at_each,
    primitive::AtomicU64,
};

type SharedTable = Table<Arc<HeapSpace>>;

/// Histories of the property. Each takes half a second in a build without optimizations.
const CASES: u32 = 48;

/// What is read of a region, with the hints of what was read before.
struct Bed<'h> {
    torn: Torn<'h>,
    hints: RefCell<Arc<Hints>>,
    /// True if another host takes this one's place amid the next trip.
    is_replaced: Cell<bool>,
    trips: Cell<usize>,
    bytes: Cell<usize>,
    /// Hints that were followed.
    hinted: Cell<usize>,
}

impl<'h> Bed<'h> {
    fn new(torn: Torn<'h>) -> Self {
        let (trips, bytes, hinted) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let (hints, is_replaced) = (RefCell::default(), Cell::new(false));
        Self { torn, hints, is_replaced, trips, bytes, hinted }
    }

    /// Gets keys; returns the values, `None` for those that the host would have to be asked for.
    fn get(&self, geometry: Geometry, wanted: &[(u32, Vec<u8>)]) -> Vec<Option<Option<Vec<u8>>>> {
        let mut found = vec![None; wanted.len()];
        let pairs = wanted.iter().map(|(slot, key)| (*slot, &key[..]));
        let is_read = Leaves::new(self, geometry).get_many(pairs, |index, outcome, value| {
            found[index] = match outcome {
                Outcome::Found => Some(Some(value.to_vec())),
                Outcome::Absent => Some(None),
                Outcome::Busy | Outcome::Ask(_) => None,
            };
        });
        assert!(is_read.unwrap());
        found
    }

    /// Trips, bytes and followed hints since the last call.
    fn cost(&self) -> (usize, usize, usize) {
        (self.trips.take(), self.bytes.take(), self.hinted.take())
    }
}

impl Unordered for Bed<'_> {
    fn bring(&self, extents: &[Extent], out: &mut Vec<AtomicU64>) -> Result<bool> {
        self.trips.set(self.trips.get() + 1);
        self.bytes.set(
            self.bytes.get() + extents.iter().map(|extent| extent.len as usize).sum::<usize>(),
        );
        self.hinted
            .set(self.hinted.get() + extents.iter().filter(|extent| extent.len == 8).count());
        if self.is_replaced.take() {
            self.hints.take();
        }
        Unordered::bring(&self.torn, extents, out)
    }

    fn hints(&self) -> Option<Arc<Hints>> {
        Some(Arc::clone(&self.hints.borrow()))
    }
}

/// What a region says after one step, and what readers may see then.
struct Step {
    control: Rc<Vec<AtomicU64>>,
    model: Rc<Model>,
}

/// Keeps a region as it is at each moment of its host's changes, those within a change too.
struct Recorder {
    leaves: Arc<HeapSpace>,
    control: Arc<HeapSpace>,
    history: History,
    steps: Vec<Step>,
    model: Rc<Model>,
    /// What readers may see once the group is published, and moments of that so far.
    next: Option<(Rc<Model>, usize)>,
}

impl Recorder {
    fn record(&mut self) {
        if let Some((next, moments)) = &mut self.next {
            *moments += 1;
            // Before and after the first leaf of a group is unlatched: from there on, all of the
            // group may be seen and nothing of before.
            if *moments == 2 {
                self.model = Rc::clone(next);
            }
        }
        self.history.record(&[], self.leaves.words());
        let words = self.control.words();
        let load = |word: &AtomicU64| word.load(crate::primitive::Ordering::Relaxed);
        let same = self.steps.last().filter(|last| {
            last.control.len() == words.len()
                && last.control.iter().zip(words).all(|(a, b)| load(a) == load(b))
        });
        let control = same.map_or_else(|| Rc::new(copy(words)), |last| Rc::clone(&last.control));
        self.steps.push(Step { control, model: Rc::clone(&self.model) });
    }
}

/// A renewal of runs, as the thread that stands by makes it.
enum Care {
    Idle,
    Read(Renewal),
    Stored(Renewal),
    Ended(Vec<u32>),
}

impl Care {
    /// Makes the next step. Leaves are read between groups alone, where none stays latched.
    fn go_on(self, table: &mut SharedTable, is_between: bool, seq: u64) -> Self {
        match self {
            Self::Idle => {
                let begun = if is_between { table.begin_renewal() } else { None };
                let Some(mut renewal) = begun else { return Self::Idle };
                if renewal.read(table.leaf_space().words()) {
                    return Self::Read(renewal);
                }
                table.give_up_renewal(&renewal);
                Self::Idle
            }
            Self::Read(mut renewal) => match table.reserve_for(&mut renewal) {
                Ok(()) => {
                    renewal.store(table.leaf_space().words());
                    Self::Stored(renewal)
                }
                Err(_) => Self::Idle,
            },
            Self::Stored(renewal) => Self::Ended(table.finish_renewal(&renewal, seq)),
            Self::Ended(slots) => {
                scrub(table.leaf_space().words(), table.geometry(), &slots);
                table.give_back(&slots);
                Self::Idle
            }
        }
    }
}

/// Makes changes, and keeps the region at each moment of them. With `has_care` runs are built anew
/// beside the writer, one step each time that `steps` says so.
fn record(
    geometry: Geometry,
    groups: &[Group],
    has_care: bool,
    care_steps: &[bool],
) -> (History, Vec<Step>) {
    let leaves = Arc::new(HeapSpace::new(geometry.leaf_bytes() * 4, geometry.leaf_bytes() * 512));
    let control = Arc::new(HeapSpace::new(64 << 10, 1 << 20));
    let mut table = Table::build(geometry, Arc::clone(&leaves), Arc::clone(&control), []).unwrap();
    if has_care {
        table.set_cared_for();
    }
    let (history, steps, next) = (History::default(), Vec::new(), None);
    let recorder = Recorder { leaves, control, history, steps, model: Rc::default(), next };
    let recorder = Rc::new(RefCell::new(recorder));
    let watch = Rc::clone(&recorder);
    let record = || recorder.borrow_mut().record();
    look_at_each(Some(Box::new(move || watch.borrow_mut().record())));
    let mut care = Some(Care::Idle);
    let mut care_steps = care_steps.iter().cycle();
    let mut go_on = |table: &mut SharedTable, is_between, seq| {
        if has_care && *care_steps.next().unwrap() {
            care = care.take().map(|care| care.go_on(table, is_between, seq));
        }
    };
    for (version, group) in groups.iter().enumerate() {
        let seq = version as u64 + 1;
        let mut after = Model::clone(&recorder.borrow().model);
        for (number, len) in group {
            let key = key(*number);
            if let Some(len) = len {
                let value = value(&key, version, *len);
                table.set(&key, &value, seq).unwrap();
                after.insert(key, value);
            } else {
                table.remove(&key, seq);
                after.remove(&key);
            }
            record();
            go_on(&mut table, false, seq);
        }
        recorder.borrow_mut().next = Some((Rc::new(after), 0));
        table.publish(seq);
        {
            let mut recorder = recorder.borrow_mut();
            if let Some((after, _)) = recorder.next.take() {
                recorder.model = after;
            }
        }
        record();
        go_on(&mut table, true, seq);
    }
    look_at_each(None);
    drop(table);
    let recorder = Rc::into_inner(recorder).unwrap().into_inner();
    (recorder.history, recorder.steps)
}

/// Reads hot keys again and again during a history. Returns how many hints were followed.
fn read_hot_keys(
    geometry: Geometry,
    (history, steps): &(History, Vec<Step>),
    (seed, most): (u64, usize),
) -> std::result::Result<usize, TestCaseError> {
    let bed = Bed::new(Torn::new(history, most, seed));
    let keys: Vec<Vec<u8>> = (0..90).filter(|number| number % 3 == 1).map(key).collect();
    for begin in (0..steps.len()).step_by(1 + most) {
        let slot = |key: &[u8]| route(&steps[begin].control, geometry, key).unwrap_or(0);
        let wanted: Vec<_> = keys.iter().map(|key| (slot(key), key.clone())).collect();
        bed.torn.begin_at(begin);
        let found = bed.get(geometry, &wanted);
        for (key, found) in keys.iter().zip(found) {
            let Some(value) = found else { continue };
            let mut moments = steps[begin..=bed.torn.now()].iter();
            prop_assert!(
                moments.any(|step| step.model.get(key) == value.as_ref()),
                "{} is {:?} from {begin} to {}",
                key.escape_ascii(),
                value.map(|value| value.escape_ascii().to_string()),
                bed.torn.now(),
            );
        }
    }
    Ok(bed.cost().2)
}

#[test]
fn records_that_hints_name_are_right_at_some_moment_of_their_gets() {
    let care = prop::collection::vec(any::<bool>(), 1..32);
    let cases = (geometries(), groups(), any::<bool>(), care, any::<u64>(), 0..6_usize);
    let hinted = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(CASES));
    let result = runner.run(&cases, |(geometry, groups, has_care, care, seed, most)| {
        let recorded = record(geometry, &groups, has_care, &care);
        hinted.set(hinted.get() + read_hot_keys(geometry, &recorded, (seed, most))?);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}\n{runner}"));
    assert!(hinted.get() > 1_000, "{}", hinted.get());
}

/// A region of 2,000 keys that stands still, and its step.
fn still(geometry: Geometry) -> (History, Step) {
    let space = || Arc::new(HeapSpace::new(64 << 10, 2 << 20));
    let (leaves, control) = (space(), space());
    let mut table = Table::build(geometry, Arc::clone(&leaves), Arc::clone(&control), []).unwrap();
    for number in 0..2_000_u64 {
        table.set(&hot(number), b"12345678", number).unwrap();
        table.publish(number);
    }
    let (history, steps, next) = (History::default(), Vec::new(), None);
    let mut recorder = Recorder { leaves, control, history, steps, model: Rc::default(), next };
    recorder.record();
    (recorder.history, recorder.steps.pop().unwrap())
}

/// A key of 16 bytes.
fn hot(number: u64) -> Vec<u8> {
    format!("user{number:012}").into_bytes()
}

#[test]
fn the_third_get_of_a_key_that_stays_is_one_trip() {
    let geometry = Geometry::for_entries_of(40).with_checksums(true);
    let (history, step) = still(geometry);
    let bed = Bed::new(Torn::new(&history, 0, 1));
    let wanted = |numbers: &[u64]| -> Vec<(u32, Vec<u8>)> {
        let slot = |key: &[u8]| route(&step.control, geometry, key).unwrap();
        numbers.iter().map(|number| hot(*number)).map(|key| (slot(&key), key)).collect()
    };
    let is_there = Some(Some(b"12345678".to_vec()));
    let get = |numbers: &[u64]| {
        assert!(bed.get(geometry, &wanted(numbers)).iter().all(|found| *found == is_there));
        bed.cost()
    };
    for _ in 0..2 {
        let (trips, bytes, hinted) = get(&[700]);
        assert!(trips == 2 && bytes > 500 && hinted == 0, "{trips} trips, {bytes} bytes");
    }
    // The state; the record's head, the key's rest, the value and the sum.
    for _ in 0..2 {
        let (trips, bytes, hinted) = get(&[700]);
        assert!(trips == 1 && bytes <= 56 && hinted == 1, "{trips} trips, {bytes} bytes");
    }
    // The first trip is the same for those with hints and the others.
    for _ in 0..2 {
        let (trips, _, hinted) = get(&[700, 701, 1_300]);
        assert_eq!((trips, hinted), (2, 1));
    }
    let (trips, bytes, hinted) = get(&[700, 701, 1_300]);
    assert!(trips == 1 && bytes <= 3 * 56 && hinted == 3, "{trips} trips, {bytes} bytes");
    // Absent keys have no hints.
    for _ in 0..4 {
        assert_eq!(bed.get(geometry, &wanted(&[5_000])), [Some(None)]);
        assert_eq!(bed.cost().2, 0);
    }
}

#[test]
fn hints_of_a_host_say_nothing_of_the_next_one() {
    let geometry = Geometry::for_entries_of(40).with_checksums(true);
    let (history, step) = still(geometry);
    let bed = Bed::new(Torn::new(&history, 0, 1));
    let key = hot(700);
    let wanted = [(route(&step.control, geometry, &key).unwrap(), key)];
    let is_there = [Some(Some(b"12345678".to_vec()))];
    for (is_replaced, trips, hinted) in
        [(false, 2, 0), (false, 2, 0), (false, 1, 1), (true, 3, 1), (false, 2, 0), (false, 2, 0)]
    {
        bed.is_replaced.set(is_replaced);
        assert_eq!(bed.get(geometry, &wanted), is_there);
        let cost = bed.cost();
        assert_eq!((cost.0, cost.2), (trips, hinted));
    }
    assert_eq!(bed.get(geometry, &wanted), is_there);
    assert_eq!(bed.cost().0, 1);
}
