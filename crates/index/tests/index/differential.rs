//! The index against `BTreeMap`: long random histories of every operation by one thread, over all
//! shapes of keys, growing and shrinking.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use rhumb_index::Index;

use crate::common::{Random, Setting, Shape, TestKey, TestValue, for_each_kind, number};

/// Operations of one history.
const STEPS: usize = 6_000;

/// Operations between two changes of the tide.
const TIDE: usize = 1_000;

fn agrees<K: TestKey, V: TestValue>() {
    for setting in Setting::all() {
        for (i, shape) in Shape::ALL.into_iter().enumerate() {
            let seed = number("RHUMB_INDEX_SEED").unwrap_or(i as u64 + 1);
            let mut world = World::<K, V>::new(setting, shape, seed);
            let run = AssertUnwindSafe(|| world.run());
            if let Err(panic) = catch_unwind(run) {
                eprintln!("{setting:?}, {shape:?}, seed {seed}, step {}", world.step);
                resume_unwind(panic);
            }
        }
    }
}

for_each_kind!(agrees);

struct World<K: TestKey, V: TestValue> {
    index: Index<K, V>,
    map: BTreeMap<K, V>,
    random: Random,
    shape: Shape,
    step: usize,
}

impl<K: TestKey, V: TestValue> World<K, V> {
    fn new(setting: Setting, shape: Shape, seed: u64) -> Self {
        let (index, map) = (setting.build(), BTreeMap::new());
        Self { index, map, random: Random::new(seed), shape, step: 0 }
    }

    fn run(&mut self) {
        for step in 0..STEPS {
            self.step = step;
            // The tide: inserts outnumber removals, then the other way round.
            let grows = (step / TIDE).is_multiple_of(2);
            match self.random.below(100) {
                0..=39 if grows => self.insert(),
                0..=39 => self.remove(),
                40..=49 => self.insert(),
                50..=59 => self.remove(),
                60..=74 => self.get(),
                75..=79 => self.update(),
                80..=84 => self.get_or_insert(),
                85..=89 => self.compare_exchange(),
                90..=95 => self.range(),
                96 => self.get_many(),
                97 => self.ends(),
                98 => self.bulk_load(),
                _ => self.sizes(),
            }
            if step % 1_500 == 1_499 {
                self.compare_all();
            }
        }
        self.compare_all();
        for key in std::mem::take(&mut self.map).into_keys() {
            assert!(self.index.remove(key.query()).is_some(), "{key:?}");
        }
        assert!(self.index.is_empty() && self.index.iter().next().is_none());
    }

    /// A random key; half of the time one that is present.
    fn key(&mut self) -> K {
        let key = K::draw(&mut self.random, self.shape);
        match self.random.below(2) {
            0 => {
                let from = (Bound::Included(key.query()), Bound::Unbounded);
                let near = self.map.range::<K::Query, _>(from).next();
                near.map_or_else(|| key.clone(), |(near, _)| near.clone())
            }
            _ => key,
        }
    }

    fn value(&mut self) -> V {
        V::make(self.random.next())
    }

    fn insert(&mut self) {
        let (key, value) = (K::draw(&mut self.random, self.shape), self.value());
        let old = self.map.insert(key.clone(), value.clone());
        assert_eq!(self.index.insert(key.clone(), value), old, "insert {key:?}");
    }

    fn remove(&mut self) {
        let key = self.key();
        assert_eq!(self.index.remove(key.query()), self.map.remove(key.query()), "remove {key:?}");
    }

    fn get(&mut self) {
        let key = self.key();
        let expected = self.map.get(key.query()).cloned();
        assert_eq!(self.index.contains_key(key.query()), expected.is_some(), "contains {key:?}");
        assert_eq!(self.index.get(key.query()), expected, "get {key:?}");
    }

    fn update(&mut self) {
        let (key, value) = (self.key(), self.value());
        let is_there = self.map.get_mut(key.query()).map(|slot| *slot = value.clone()).is_some();
        assert_eq!(self.index.update(key.query(), value), is_there, "update {key:?}");
    }

    fn get_or_insert(&mut self) {
        let (key, value) = (self.key(), self.value());
        let was_there = self.map.contains_key(key.query());
        let expected = self.map.entry(key.clone()).or_insert(value.clone()).clone();
        let mut made = false;
        let found = self.index.get_or_insert_with(key.clone(), || {
            made = true;
            value
        });
        assert_eq!((found, made), (expected, !was_there), "get_or_insert_with {key:?}");
    }

    fn compare_exchange(&mut self) {
        let (key, new) = (self.key(), self.value());
        let current = match self.map.get(key.query()) {
            Some(value) if self.random.below(3) > 0 => value.clone(),
            _ => self.value(),
        };
        let (query, given) = (key.query(), current.clone());
        let Some(answer) = V::compare_exchange(&self.index, query, given, new.clone()) else {
            return;
        };
        let expected = match self.map.get_mut(key.query()) {
            Some(slot) if *slot == current => {
                *slot = new;
                Ok(current)
            }
            other => Err(other.cloned()),
        };
        assert_eq!(answer, expected, "compare_exchange {key:?}");
    }

    fn get_many(&mut self) {
        let count = self.random.below(100);
        let keys: Vec<K> = (0..count).map(|_| self.key()).collect();
        let queries: Vec<&K::Query> = keys.iter().map(TestKey::query).collect();
        let mut answers = Vec::new();
        self.index.multi_get(&queries, &mut answers);
        let expected: Vec<_> = keys.iter().map(|key| self.map.get(key.query()).cloned()).collect();
        assert_eq!(answers, expected, "get_many {keys:?}");
    }

    fn bound(&mut self) -> Bound<K> {
        match self.random.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    /// A range from both ends at once, up to a number of entries.
    fn range(&mut self) {
        let (mut low, mut high) = (self.bound(), self.bound());
        let is_point = |a: &Bound<K>, b: &Bound<K>| match (a, b) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a >= b
            }
            _ => false,
        };
        if is_point(&low, &high) {
            // `BTreeMap` panics on these: an index has nothing in them.
            let bounds = (as_query(&low), as_query(&high));
            assert_eq!(self.index.range::<(Bound<_>, Bound<_>)>(bounds).next(), None);
            std::mem::swap(&mut low, &mut high);
            if is_point(&low, &high) {
                return;
            }
        }
        let bounds = (as_query(&low), as_query(&high));
        let mut found = self.index.range::<(Bound<_>, Bound<_>)>(bounds);
        let mut expected = self.map.range::<K::Query, _>(bounds);
        let mode = self.random.below(5);
        for _ in 0..self.random.below(200) {
            if mode == 3 || (mode == 4 && self.random.below(4) == 0) {
                let limit = self.random.below(80) as usize;
                let mut page = Vec::new();
                let len = found.read_into(limit, &mut page);
                let wanted = expected.by_ref().take(limit).map(|(k, v)| (k.clone(), v.clone()));
                assert_eq!(page, wanted.collect::<Vec<_>>(), "page of {limit} in {low:?} {high:?}");
                assert_eq!(len, page.len());
            }
            let back = mode == 1 || (matches!(mode, 2 | 4) && self.random.below(2) == 0);
            let (next, wanted) = match back {
                true => (found.next_back(), expected.next_back()),
                false => (found.next(), expected.next()),
            };
            let wanted = wanted.map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(next, wanted, "range {low:?} {high:?}, back {back}");
            if next.is_none() {
                break;
            }
        }
    }

    fn ends(&mut self) {
        let owned = |entry: Option<(&K, &V)>| entry.map(|(k, v)| (k.clone(), v.clone()));
        assert_eq!(self.index.first(), owned(self.map.first_key_value()));
        assert_eq!(self.index.last(), owned(self.map.last_key_value()));
    }

    /// A short ascending run, sometimes with a fault in it.
    fn bulk_load(&mut self) {
        let count = self.random.below(60);
        let mut run = BTreeMap::new();
        for _ in 0..count {
            run.insert(K::draw(&mut self.random, self.shape), self.value());
        }
        let mut run: Vec<(K, V)> = run.into_iter().collect();
        let mut expected = Ok(run.len());
        if run.len() > 2 && self.random.below(4) == 0 {
            let at = 1 + self.random.below(run.len() as u64 - 1) as usize;
            let (low, value) = run[self.random.below(at as u64) as usize].clone();
            run.insert(at, (low, value));
            expected = Err(at);
        }
        let accepted = *expected.as_ref().unwrap_or_else(|at| at);
        self.map.extend(run[..accepted].iter().cloned());
        let answer = self.index.bulk_load(run.clone()).map_err(|error| error.position);
        assert_eq!(answer, expected, "bulk_load {run:?}");
    }

    fn sizes(&mut self) {
        self.index.tune();
        assert_eq!(self.index.len(), self.map.len());
        assert_eq!(self.index.is_empty(), self.map.is_empty());
        assert_eq!(self.index.stats().keys, self.map.len());
    }

    fn compare_all(&self) {
        let pairs = |map: &BTreeMap<K, V>| map.clone().into_iter().collect::<Vec<_>>();
        let expected = pairs(&self.map);
        same(&self.index.iter().collect::<Vec<_>>(), &expected);
        let mut reversed: Vec<_> = self.index.iter().rev().collect();
        reversed.reverse();
        same(&reversed, &expected);
        for (key, value) in &expected {
            assert_eq!(self.index.get(key.query()).as_ref(), Some(value), "{key:?}");
        }
    }
}

fn as_query<K: TestKey>(bound: &Bound<K>) -> Bound<&K::Query> {
    bound.as_ref().map(TestKey::query)
}

/// Equality that prints the first difference and not thousands of entries.
pub(crate) fn same<T: PartialEq + Debug>(found: &[T], expected: &[T]) {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!("entry {at} is {:?} and not {:?}", found[at], expected[at]);
    }
    assert_eq!(found.len(), expected.len());
}
