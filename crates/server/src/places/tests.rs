//! Places beside a plain set, whatever is pending, split and forgotten, and what they cost.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;
use rhumb::Database;

use super::*;
use crate::{commit, config::Fsync, db::Databases, health::Health, log::Log};

/// The number of the sorted set.
const ID: u64 = 7;

struct Set {
    databases: Databases,
    _dir: tempfile::TempDir,
}

impl Set {
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Database::builder(dir.path().join("db")).open().unwrap();
        let health = Arc::new(Health::new(Arc::new(Log::silent())));
        let databases = Databases::open(engine, Arc::default(), Fsync::No, health).unwrap();
        Self { databases, _dir: dir }
    }

    fn txn(&self) -> Txn<'_> {
        Txn::new(&self.databases, 0, 0)
    }

    fn stepped(&self) -> u64 {
        self.databases.ranks.stepped.swap(0, std::sync::atomic::Ordering::Relaxed)
    }
}

/// Members by score and name.
type Model = BTreeSet<(u16, u16)>;

fn key((score, name): (u16, u16)) -> Vec<u8> {
    member::zset_scored(ID, f64::from(score), format!("m{name}").as_bytes())
}

fn set(txn: &mut Txn<'_>, model: &mut Model, member: (u16, u16), is_put: bool) {
    if is_put {
        model.insert(member);
        txn.put_member(key(member), Vec::new());
    } else {
        model.remove(&member);
        txn.remove_member(key(member));
    }
}

/// Compares the places of some members, and of keys that are none, with those of the model.
fn check(txn: &Txn<'_>, model: &Model, wanted: &[(u16, u16)]) {
    let meta = Meta { id: ID, count: model.len() as u64, first: 0, times: 0 };
    let places = Places::new(&meta, true, LearnWhere::Here);
    let mut keys: Vec<Vec<u8>> = model.iter().map(|member| key(*member)).collect();
    keys.sort();
    for member in wanted {
        let wanted = key(*member);
        let before = keys.partition_point(|key| *key < wanted);
        assert_eq!(places.before(txn, &wanted).unwrap(), before as u64);
        let found = places.key_at(txn, before as u64).unwrap();
        assert_eq!(found.as_deref(), keys.get(before).map(Vec::as_slice));
    }
    assert!(places.key_at(txn, keys.len() as u64).unwrap().is_none());
    let all = places.all();
    assert_eq!(places.before_start(txn, &all.0).unwrap(), 0);
    assert_eq!(places.before_end(txn, &all.1).unwrap(), keys.len() as u64);
}

fn members() -> impl Strategy<Value = (u16, u16)> {
    (0..40_u16, 0..60_u16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn places_are_those_of_a_plain_set(
        first in prop::collection::btree_set(members(), 200..1500),
        commits in prop::collection::vec(
            (prop::collection::vec((members(), any::<bool>()), 1..60), 0..10_u8),
            1..20,
        ),
        wanted in prop::collection::vec(members(), 8),
    ) {
        let (store, mut model) = (Set::open(), Model::new());
        let mut txn = store.txn();
        first.into_iter().for_each(|member| set(&mut txn, &mut model, member, true));
        check(&txn, &model, &wanted);
        commit::transaction(&mut txn).unwrap();
        check(&txn, &model, &wanted);
        for (changes, fate) in commits {
            let (before, mut txn) = (model.clone(), store.txn());
            for (nth, (member, is_put)) in changes.into_iter().enumerate() {
                set(&mut txn, &mut model, member, is_put);
                if nth % 16 == 0 {
                    check(&txn, &model, &wanted[..2]);
                }
            }
            check(&txn, &model, &wanted);
            match fate {
                // Given up.
                0 => model = before,
                1 => {
                    store.databases.ranks.forget_all();
                    commit::transaction(&mut txn).unwrap();
                }
                // Little memory: the blocks are few, or forgotten at once.
                2 => {
                    store.databases.ranks.set_bytes_max(500);
                    commit::transaction(&mut txn).unwrap();
                    store.databases.ranks.set_bytes_max(1 << 20);
                }
                _ => commit::transaction(&mut txn).unwrap(),
            }
            check(&store.txn(), &model, &wanted);
        }
    }
}

#[test]
fn a_place_costs_the_same_in_a_large_set() {
    let most_steps = |members: u16| {
        let (store, mut model) = (Set::open(), Model::new());
        let mut txn = store.txn();
        for n in 0..members {
            set(&mut txn, &mut model, (n % 500, n), true);
            if n % 997 == 0 {
                commit::transaction(&mut txn).unwrap();
            }
        }
        commit::transaction(&mut txn).unwrap();
        let meta = Meta { id: ID, count: model.len() as u64, first: 0, times: 0 };
        let places = Places::new(&meta, true, LearnWhere::Here);
        let at = |place: u64| places.key_at(&txn, place).unwrap().unwrap();
        let steps = (0..meta.count).step_by(usize::from(members) / 100).map(|place| {
            store.stepped();
            let key = at(place);
            assert_eq!(places.before(&txn, &key).unwrap(), place);
            store.stepped()
        });
        steps.max().unwrap()
    };
    // At most a block for either call.
    assert!((1..=2 * 128).contains(&most_steps(600)));
    assert!((1..=2 * 128).contains(&most_steps(60_000)));
}

#[test]
fn a_set_that_grew_in_one_commit_is_walked_over_in_parts() {
    let (store, mut model) = (Set::open(), Model::new());
    for part in 0..3 {
        let mut txn = store.txn();
        (0..2000).for_each(|n| set(&mut txn, &mut model, (part, n), true));
        commit::transaction(&mut txn).unwrap();
        check(&txn, &model, &[(part, 5), (part, 1999), (9, 0)]);
    }
    store.stepped();
    check(&store.txn(), &model, &[(1, 5)]);
    assert!(store.stepped() <= 2 * 128);
}

#[test]
fn a_long_walk_is_left_to_a_caller_that_may_take_long() {
    let (store, mut model) = (Set::open(), Model::new());
    let mut txn = store.txn();
    (0..300).for_each(|n| set(&mut txn, &mut model, (n, n), true));
    commit::transaction(&mut txn).unwrap();
    let meta = Meta { id: ID, count: 300, first: 0, times: 0 };
    let place = |learns| Places::new(&meta, true, learns).before(&txn, &key((9, 9)));
    assert!(matches!(place(LearnWhere::Nowhere), Err(Fault::TakesLong)));
    assert_eq!(place(LearnWhere::Here).unwrap(), 9);
    assert_eq!(place(LearnWhere::Nowhere).unwrap(), 9);
    store.databases.ranks.forget_collection(0, ID);
    assert!(matches!(place(LearnWhere::Nowhere), Err(Fault::TakesLong)));
}

#[test]
fn little_memory_is_that_of_the_orders_asked_for_last() {
    let store = Set::open();
    store.databases.ranks.set_bytes_max(20_000);
    for id in 0..40 {
        let mut txn = store.txn();
        for n in 0..2000_u32 {
            txn.put_member(member::zset_scored(id, f64::from(n), b"m"), Vec::new());
        }
        commit::transaction(&mut txn).unwrap();
        let meta = Meta { id, count: 2000, first: 0, times: 0 };
        let key = member::zset_scored(id, 1000.0, b"m");
        assert_eq!(Places::new(&meta, true, LearnWhere::Here).before(&txn, &key).unwrap(), 1000);
        assert!(store.databases.ranks.bytes() <= 20_000);
    }
    assert!(store.databases.ranks.bytes() > 10_000);
}

#[test]
fn ranks_between_the_writes_of_a_transaction_look_at_few_members() {
    let (store, mut model) = (Set::open(), Model::new());
    let mut txn = store.txn();
    for n in 0..3000 {
        set(&mut txn, &mut model, (n * 7 % 1000, n), true);
        if n > 300 {
            let meta = Meta { id: ID, count: u64::from(n) + 1, first: 0, times: 0 };
            let places = Places::new(&meta, true, LearnWhere::Here);
            let before = model.range(..(500, 0)).count() as u64;
            assert_eq!(places.before(&txn, &key((500, 0))).unwrap(), before);
        }
    }
    assert_eq!(store.stepped(), 0, "nothing is stored");
    check(&txn, &model, &[(0, 0), (500, 0), (999, 9999)]);
    // What was pending belongs to no later transaction.
    commit::transaction(&mut txn).unwrap();
    check(&txn, &model, &[(0, 0), (500, 0), (999, 9999)]);
    for n in 0..100 {
        set(&mut txn, &mut model, (n * 7 % 1000, n), false);
    }
    check(&txn, &model, &[(0, 0), (500, 0), (999, 9999)]);
}
