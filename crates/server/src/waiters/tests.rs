//! Clients that are asked to look take what one thread would give them, and none is forgotten.

use proptest::prelude::*;

use super::*;

fn waiters() -> Waiters {
    Waiters::new(Interest::default())
}

fn keys(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// A client that waits for a stream with this key.
fn follow(waiters: &Waiters, key: &str, group: Option<&str>) -> Arc<Waiter> {
    let of = |group: &str| Wants::EntriesOf(group.as_bytes().to_vec());
    let waiter = Arc::new(Waiter::new(&keys(&[key]), group.map_or(Wants::Entries, of)));
    waiters.enter(0, &keys(&[key]), &waiter);
    waiter
}

/// A client that waits for lists with these keys.
fn enter(waiters: &Waiters, names: &[&str]) -> Arc<Waiter> {
    let waiter = Arc::new(Waiter::new(&keys(names), Wants::Elements));
    waiters.enter(0, &keys(names), &waiter);
    waiter
}

fn is_woken(waiter: &Waiter) -> bool {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    waiter.poll(&mut cx) == Poll::Ready(Wake::Written)
}

fn are_woken<const N: usize>(all: [&Waiter; N]) -> [bool; N] {
    all.map(is_woken)
}

fn is_over(waiters: &Waiters) -> bool {
    waiters.finished.load(Ordering::Acquire) >= waiters.begun()
}

#[test]
fn a_key_asks_the_first_and_then_the_next_while_it_is_there() {
    let waiters = waiters();
    let [one, two, three] = [["a", "a"]; 3].map(|names| enter(&waiters, &names));
    waiters.touch(1, b"a", true);
    assert!(is_over(&waiters));
    assert_eq!(are_woken([&one, &two, &three]), [false; 3]);
    waiters.touch(0, b"a", true);
    assert_eq!(are_woken([&one, &two, &three]), [true, false, false]);
    waiters.looked(0, &keys(&["a"]), (&one, one.asked()), |_| true);
    assert_eq!(are_woken([&one, &two, &three]), [false, true, false]);
    assert!(!is_over(&waiters));
    waiters.leave(0, &keys(&["a"]), &two, |_| true);
    assert_eq!(are_woken([&one, &two, &three]), [false, false, true]);
    waiters.leave(0, &keys(&["a"]), &three, |_| false);
    assert!(is_over(&waiters) && !is_woken(&one));
    waiters.leave(0, &keys(&["a"]), &one, |_| panic!("it was not asked to look"));
    assert!(!waiters.any() && waiters.state.lock().queues.is_empty());
}

#[test]
fn a_key_that_is_written_while_clients_look_begins_at_the_front_again() {
    let waiters = waiters();
    let [one, two] = [["a"]; 2].map(|names| enter(&waiters, &names));
    waiters.touch(0, b"a", true);
    waiters.looked(0, &keys(&["a"]), (&one, one.asked()), |_| true);
    assert_eq!(are_woken([&one, &two]), [true, true]);
    waiters.touch(0, b"a", true);
    waiters.looked(0, &keys(&["a"]), (&two, two.asked()), |_| true);
    assert_eq!(are_woken([&one, &two]), [true, false]);
    // Written between the look at whether the key is there and its end.
    let touch = |_: &[u8]| {
        waiters.touch(0, b"a", true);
        false
    };
    waiters.looked(0, &keys(&["a"]), (&one, one.asked()), touch);
    assert_eq!(are_woken([&one, &two]), [true, false]);
    // Written before that look, and taken by now.
    waiters.touch(0, b"a", true);
    waiters.looked(0, &keys(&["a"]), (&one, one.asked()), |_| false);
    assert!(is_over(&waiters) && !is_woken(&one));
}

#[test]
fn a_pass_that_begins_anew_keeps_its_place_in_the_line() {
    let waiters = waiters();
    let (mover, taker) = (enter(&waiters, &["a"]), enter(&waiters, &["b", "a"]));
    waiters.touch(0, b"a", true);
    // Written while the pass is being made, or found by a client that has just come.
    waiters.touch(0, b"a", true);
    assert_eq!(are_woken([&mover, &taker]), [true, false]);
    // What the first one takes it puts into the other key.
    waiters.touch(0, b"b", true);
    waiters.leave(0, &keys(&["a"]), &mover, |_| true);
    assert_eq!(are_woken([&mover, &taker]), [false, true]);
    let both = keys(&["b", "a"]);
    assert_eq!(waiters.asked_for(0, &both, (&taker, taker.asked())), [b"a"]);
    waiters.leave(0, &both, &taker, |_| true);
    assert!(is_over(&waiters) && !waiters.any());
}

#[test]
fn a_look_that_began_before_a_client_was_asked_does_not_count() {
    let waiters = waiters();
    let [one, two] = [["a"]; 2].map(|names| enter(&waiters, &names));
    let seen = one.asked();
    waiters.touch(0, b"a", true);
    waiters.looked(0, &keys(&["a"]), (&one, seen), |_| true);
    assert_eq!(are_woken([&one, &two]), [true, false]);
}

#[test]
fn a_client_that_is_asked_while_it_leaves_holds_up_nobody() {
    let waiters = waiters();
    let one = enter(&waiters, &["a", "b"]);
    let two = enter(&waiters, &["b"]);
    waiters.touch(0, b"a", true);
    waiters.touch(0, b"b", true);
    // The pass over `b` begins when that over `a` ends.
    waiters.leave(0, &keys(&["a", "b"]), &one, |_| false);
    assert!(is_woken(&two));
    waiters.leave(0, &keys(&["b"]), &two, |_| false);
    assert!(is_over(&waiters));
}

#[test]
fn those_that_are_told_of_absence_are_asked_beyond_others() {
    let waiters = waiters();
    let one = follow(&waiters, "a", Some("g"));
    let two = enter(&waiters, &["a"]);
    let three = follow(&waiters, "a", Some("g"));
    waiters.touch_all(0);
    waiters.leave(0, &keys(&["a"]), &one, |_| false);
    assert_eq!(are_woken([&two, &three]), [false, true]);
    waiters.leave(0, &keys(&["a"]), &three, |_| false);
    assert!(is_over(&waiters));
}

#[test]
fn a_key_that_was_there_asks_only_those_that_follow_it() {
    let waiters = waiters();
    let one = enter(&waiters, &["a"]);
    waiters.touch(0, b"a", false);
    assert!(is_over(&waiters) && !is_woken(&one));
    let two = follow(&waiters, "a", None);
    waiters.touch(0, b"a", false);
    waiters.looked(0, &keys(&["a"]), (&one, one.asked()), |_| true);
    assert!(is_woken(&two));
}

/// However many consumers a group has, an entry asks the one that takes it and one more; and those
/// that read it all at once.
#[test]
fn an_entry_asks_few_consumers_and_all_readers_at_once() {
    let waiters = waiters();
    let group = |name| (0..100).map(|_| follow(&waiters, "a", Some(name))).collect::<Vec<_>>();
    let (ones, readers, others) =
        (group("g"), (0..100).map(|_| follow(&waiters, "a", None)).collect::<Vec<_>>(), group("h"));
    let woken = |all: &[Arc<Waiter>]| all.iter().filter(|one| is_woken(one)).count();
    let count = || [&ones, &readers, &others].map(|all| woken(all));
    let (a, mut times) = (keys(&["a"]), 0);
    let looked = |one: &Arc<Waiter>| waiters.looked(0, &a, (one, one.asked()), |_| true);
    for _ in 0..3 {
        waiters.touch(0, b"a", false);
        assert_eq!(count(), [1, 0, 0]);
        waiters.leave(0, &a, &ones[times], |_| true);
        times += 1;
        assert_eq!(count(), [1, 0, 0]);
        looked(&ones[times]);
        // None of the others of this group; it has nothing.
        assert_eq!(count(), [0, 100, 0]);
        readers[1..].iter().for_each(looked);
        assert_eq!(count(), [0, 0, 0]);
        looked(&readers[0]);
        assert_eq!(count(), [0, 0, 1]);
        looked(&others[0]);
        assert_eq!(count(), [0, 0, 0]);
        assert!(is_over(&waiters));
    }
}

#[test]
fn being_asked_to_end_is_not_overwritten_by_a_key() {
    let waiters = waiters();
    let waiter = enter(&waiters, &["a"]);
    waiter.unblock(true);
    waiters.touch(0, b"a", true);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(waiter.poll(&mut cx), Poll::Ready(Wake::Refused));
    assert_eq!(waiter.poll(&mut cx), Poll::Pending);
}

#[tokio::test]
async fn a_writer_waits_for_the_passes_that_have_begun_and_no_longer() {
    let waiters = Arc::new(waiters());
    let [one, two] = [enter(&waiters, &["a"]), enter(&waiters, &["b"])];
    waiters.touch(0, b"a", true);
    let (mine, other) = (waiters.begun(), Arc::clone(&waiters));
    let writer = tokio::spawn(async move { other.finish(mine).await });
    tokio::task::yield_now().await;
    waiters.touch(0, b"b", true);
    assert!(!writer.is_finished());
    waiters.leave(0, &keys(&["a"]), &one, |_| false);
    writer.await.unwrap();
    assert!(!is_over(&waiters));
    // One that joins a pass waits for it, too.
    let before = waiters.begun();
    waiters.touch(0, b"b", true);
    waiters.touch(0, b"b", true);
    assert_eq!(waiters.begun(), before + 2);
    waiters.leave(0, &keys(&["b"]), &two, |_| false);
    assert!(is_over(&waiters));
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Elements of each key, and the clients that wait, each with its keys.
#[derive(Clone, Debug, Default)]
struct Model {
    elements: [usize; 3],
    clients: Vec<(usize, Vec<usize>)>,
    /// What each client has taken from, in any order.
    taken: Vec<(usize, usize)>,
}

impl Model {
    /// Has a client look at some of its keys: it takes from the first one that has an element.
    fn look(&mut self, client: usize, at: &[usize]) -> bool {
        let place = self.clients.iter().position(|(id, _)| *id == client).unwrap();
        let mut of = self.clients[place].1.iter().copied();
        let Some(key) = of.find(|key| at.contains(key) && self.elements[*key] > 0) else {
            return false;
        };
        self.elements[key] -= 1;
        self.taken.push((client, key));
        self.clients.remove(place);
        true
    }

    /// Serves the clients of keys that were written, one key after another, as one thread does it.
    fn serve(&mut self, written: &[usize]) {
        for key in written {
            let waiting = self.clients.iter().filter(|(_, keys)| keys.contains(key));
            let waiting: Vec<usize> = waiting.map(|(id, _)| *id).collect();
            for client in waiting {
                if self.elements[*key] == 0 {
                    break;
                }
                self.look(client, &[*key]);
            }
        }
    }
}

proptest! {
    /// Whatever order the woken clients look in, each takes what it does when one thread serves
    /// them.
    #[test]
    fn the_order_in_which_woken_clients_look_does_not_matter(
        steps in prop::collection::vec(
            (
                prop::collection::vec(prop::sample::subsequence(vec![0, 1, 2], 1..=3).prop_shuffle(), 0..4),
                prop::collection::vec(0..3_usize, 1..5),
            ),
            1..12,
        ),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let (waiters, mut model) = (waiters(), Model::default());
        let (mut real, mut all) = (model.clone(), Vec::new());
        let mut choices = choices.iter().cycle();
        for (entering, written) in steps {
            for of in entering {
                if of.iter().any(|key| model.elements[*key] > 0) {
                    // It would not wait.
                    continue;
                }
                let names: Vec<&str> = of.iter().map(|key| NAMES[*key]).collect();
                for model in [&mut model, &mut real] {
                    model.clients.push((all.len(), of.clone()));
                }
                all.push((enter(&waiters, &names), keys(&names)));
            }
            // A key is ready once, however often it is written.
            let mut ready = Vec::new();
            for key in written {
                model.elements[key] += 1;
                real.elements[key] += 1;
                if !ready.contains(&key) {
                    ready.push(key);
                }
            }
            ready.iter().for_each(|key| waiters.touch(0, NAMES[*key].as_bytes(), true));
            model.serve(&ready);
            let mut woken = Vec::new();
            loop {
                for (id, (waiter, _)) in all.iter().enumerate() {
                    if is_woken(waiter) && !woken.contains(&id) {
                        woken.push(id);
                    }
                }
                if woken.is_empty() {
                    break;
                }
                let id = woken.swap_remove(choices.next().unwrap().index(woken.len()));
                let (waiter, keys) = &all[id];
                let asked = waiter.asked();
                let asked_for = waiters.asked_for(0, keys, (waiter, asked));
                let asked_for: Vec<usize> =
                    asked_for.iter().map(|key| usize::from(key[0] - b'a')).collect();
                let takes = real.look(id, &asked_for);
                let elements = real.elements;
                let is_there = |key: &[u8]| elements[usize::from(key[0] - b'a')] > 0;
                if takes {
                    waiters.leave(0, keys, waiter, is_there);
                } else {
                    waiters.looked(0, keys, (waiter, asked), is_there);
                }
            }
            prop_assert!(is_over(&waiters));
            model.taken.sort_unstable();
            real.taken.sort_unstable();
            prop_assert_eq!(&model.taken, &real.taken);
            prop_assert_eq!(&model.clients, &real.clients);
        }
    }
}
