//! The barrier against a model of it, and the memory of arrays that sessions may know.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rhumb_testkit::random::Random;

use super::*;
use crate::binned::{
    Address, Operation, Verb,
    barrier::Barrier,
    descriptor::Lesson,
    layout::{incarnation_of, incarnation_of_epoch},
};

#[derive(Clone, Debug)]
enum Step {
    Join,
    /// Renews a lease, and acknowledges an epoch so far before the last one.
    Renew(prop::sample::Index, u64),
    /// Acknowledges an epoch that is yet to come.
    Boast(prop::sample::Index),
    Leave(prop::sample::Index),
    Pass(u64),
    Retire,
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>();
    prop_oneof![
        3 => Just(Step::Join),
        6 => (index.clone(), 0..3u64).prop_map(|(at, lag)| Step::Renew(at, lag)),
        1 => index.clone().prop_map(Step::Boast),
        1 => index.prop_map(Step::Leave),
        4 => (1..60u64).prop_map(Step::Pass),
        4 => Just(Step::Retire),
        4 => Just(Step::Poll),
    ]
}

/// A session as the model has it: the epoch it knows, and until when it lives.
#[derive(Clone, Copy, Debug)]
struct Known {
    model: u64,
    until_ms: u64,
    /// Since when it knows no more, and renews all the same.
    same_since_ms: u64,
}

const LEASE_MS: u64 = 100;

/// Polls, and checks that nothing is freed that a live session may know, and all that none may.
fn check_poll(
    barrier: &mut Barrier<u64>,
    sessions: &BTreeMap<u64, Known>,
    waiting: &mut Vec<u64>,
    now_ms: u64,
) {
    let freed = barrier.poll(now_ms);
    let lives = |known: &&Known| {
        let lagged = now_ms - known.same_since_ms >= LEASE_MS * 10;
        known.until_ms > now_ms && !lagged
    };
    let oldest = sessions.values().filter(lives).map(|known| known.model).min();
    for what in &freed {
        assert!(oldest.is_none_or(|oldest| *what <= oldest), "freed early");
    }
    waiting.retain(|what| !freed.contains(what));
    let live = sessions.values().filter(|known| known.until_ms > now_ms);
    let oldest = live.map(|known| known.model).min();
    let due = waiting.iter().find(|what| oldest.is_none_or(|oldest| **what <= oldest));
    assert!(due.is_none(), "{due:?} waits for nobody");
    assert_eq!(barrier.waiting().count(), waiting.len());
}

proptest! {
    #[test]
    fn what_a_live_session_may_know_waits_and_nothing_else_does(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut barrier = Barrier::new(LEASE_MS);
        let mut sessions = BTreeMap::<u64, Known>::new();
        let (mut model, mut now_ms) = (1, 0);
        let mut waiting = Vec::new();
        for step in steps {
            let ids: Vec<u64> = sessions.keys().copied().collect();
            let pick = |at: prop::sample::Index| ids.get(at.index(ids.len().max(1))).copied();
            match step {
                Step::Join => {
                    let session = barrier.join(now_ms, model);
                    let until_ms = now_ms + LEASE_MS;
                    let known = Known { model, until_ms, same_since_ms: now_ms };
                    prop_assert!(sessions.insert(session, known).is_none());
                }
                Step::Renew(at, lag) => {
                    let Some(session) = pick(at) else { continue };
                    let known = sessions.get_mut(&session).unwrap();
                    let acknowledged = model.saturating_sub(lag);
                    let is_live = barrier.renew(session, now_ms, acknowledged, model);
                    if known.until_ms <= now_ms {
                        prop_assert!(!is_live, "a lease that has ended was renewed");
                    }
                    if !is_live {
                        let lagged = now_ms - known.same_since_ms >= LEASE_MS * 10;
                        prop_assert!(known.until_ms <= now_ms || lagged);
                        sessions.remove(&session);
                        continue;
                    }
                    known.until_ms = now_ms + LEASE_MS;
                    if acknowledged > known.model {
                        (known.model, known.same_since_ms) = (acknowledged, now_ms);
                    }
                }
                Step::Boast(at) => {
                    let Some(session) = pick(at) else { continue };
                    if barrier.renew(session, now_ms, u64::MAX, model) {
                        let until_ms = now_ms + LEASE_MS;
                        let known = Known { model, until_ms, same_since_ms: now_ms };
                        sessions.insert(session, known);
                    } else {
                        sessions.remove(&session);
                    }
                }
                Step::Leave(at) => {
                    let Some(session) = pick(at) else { continue };
                    barrier.leave(session);
                    sessions.remove(&session);
                }
                Step::Pass(ms) => now_ms += ms,
                Step::Retire => {
                    model += 1;
                    barrier.retire(model, model);
                    waiting.push(model);
                }
                Step::Poll => check_poll(&mut barrier, &sessions, &mut waiting, now_ms),
            }
        }
        prop_assert_eq!(barrier.poll(now_ms + LEASE_MS).len(), waiting.len());
        prop_assert_eq!(barrier.session_count(), 0);
    }
}

#[test]
fn a_session_that_renews_and_never_acknowledges_is_closed() {
    let mut barrier = Barrier::new(LEASE_MS);
    let session = barrier.join(0, 1);
    barrier.retire(2, "old");
    for now_ms in (0..LEASE_MS * 10).step_by(50) {
        assert!(barrier.renew(session, now_ms, 1, 2));
        assert!(barrier.poll(now_ms).is_empty());
    }
    assert_eq!(barrier.poll(LEASE_MS * 10), ["old"]);
    assert!(!barrier.renew(session, LEASE_MS * 10, 2, 2));
}

/// Every array that a live session was told of is where it was, or ended, for as long as the
/// session has not acknowledged another.
#[test]
fn memory_that_a_session_may_read_is_not_used_again() {
    let map: Map = (0..6000u64).map(|n| ((n << 16).to_be_bytes().to_vec(), vec![1])).collect();
    let local = Local::new(&map, Options::default());
    let mut host = local.host.borrow_mut();
    let mut told: BTreeMap<u64, (u64, Lesson, u64)> = BTreeMap::new();
    let mut random = Random::new(1);
    let mut now_ms = 0;
    let (mut most, mut freed) = (0, 0);
    for round in 0..2500_u64 {
        let chance = random.next() >> 33;
        if chance.is_multiple_of(40) {
            let Reply::Joined { session, model, lease_ms } =
                host.handle(now_ms, &Request::Join).unwrap()
            else {
                panic!("no session")
            };
            let Reply::Learned(lesson) =
                host.handle(now_ms, &Request::Learn { from: vec![] }).unwrap()
            else {
                panic!("no lesson")
            };
            told.insert(session, (model, lesson, now_ms + lease_ms));
        }
        if chance.is_multiple_of(7)
            && let Some(session) = told.keys().nth(chance as usize % told.len().max(1)).copied()
        {
            let renewal = Request::Renew { session, model: told[&session].0 };
            let renews = host.handle(now_ms, &renewal).unwrap();
            match (renews, chance % 3) {
                (Reply::Renewed { model, .. }, 0) => {
                    let Reply::Learned(lesson) =
                        host.handle(now_ms, &Request::Learn { from: vec![] }).unwrap()
                    else {
                        panic!("no lesson")
                    };
                    told.insert(session, (model, lesson, now_ms + 1000));
                }
                (Reply::Renewed { .. }, _) => told.get_mut(&session).unwrap().2 = now_ms + 1000,
                _ => drop(told.remove(&session)),
            }
        }
        now_ms += chance % 30;
        let key = (chance % 60 * 100) << 16;
        for n in 1..60 {
            let key = (key + chance % 997 + n * (1 + round % 5)).to_be_bytes();
            let operation = Operation::new(Verb::Put, Address::default(), &key, b"new");
            host.operate(&operation).unwrap();
        }
        let plan = host.begin_training();
        if let Some(plan) = plan {
            host.finish_training(plan.train()).unwrap();
        }
        host.publish(round);
        host.poll(now_ms);
        most = most.max(host.waiting().0);
        freed = host.counts().arrays_freed;
        // A lease that has ended binds nobody.
        told.retain(|_, (_, _, until_ms)| *until_ms > now_ms);
        for (_, lesson, _) in told.values() {
            for array in &lesson.arrays {
                for block in
                    array.base..array.base + Sizes::default().blocks_of(array.records as usize)
                {
                    let line = block * BLOCK_LINES;
                    let found = incarnation_of(host.records.slab.load(line, 0));
                    assert!(found == incarnation_of_epoch(array.epoch) || found == 0);
                    assert_eq!(host.records.slab.load(line, 1), array.tag(), "used again");
                }
            }
        }
    }
    assert!(most > 10 && freed > 50, "{most} waited at once, {freed} were freed");
    host.poll(now_ms + 2000);
    assert_eq!((host.waiting(), host.session_count()), ((0, 0), 0));
}
