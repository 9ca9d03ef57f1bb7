//! Calls without a runtime: a `block_on` of a few lines, and executors that drop futures.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::Wake,
    thread::{self, Thread},
    time::{Duration, Instant},
};

use super::*;
use crate::{Address, Client, Host, ShareOptions, client::target::Credentials};

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// All of some futures at once.
struct All<T>(Vec<Result<Result<T>, Call<T>>>);

impl<T: Unpin> Future for All<T> {
    type Output = Vec<Result<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for one in &mut self.0 {
            if let Err(call) = one
                && let Poll::Ready(done) = Pin::new(call).poll(context)
            {
                *one = Ok(done);
            }
        }
        if self.0.iter().any(Result::is_err) {
            return Poll::Pending;
        }
        Poll::Ready(self.0.drain(..).filter_map(Result::ok).collect())
    }
}

fn all<T: Unpin>(calls: impl IntoIterator<Item = Call<T>>) -> All<T> {
    All(calls.into_iter().map(Err).collect())
}

/// A host, and a client of it by each way.
fn start() -> (tempfile::TempDir, Host, [Client; 2], [Keyspace; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40);
    let host = Host::listen(dir.path().join("s")).share("k", options);
    let host = host.share("other", options).listen_tcp("127.0.0.1:0".parse().unwrap());
    let host = host.start().unwrap();
    let tcp = format!("tcp:{}", host.tcp_addresses()[0]);
    let path = host.path().to_str().unwrap();
    let clients = [path, &tcp].map(|address| Client::connect(address).unwrap());
    let keyspaces = [0, 1].map(|way: usize| clients[way].keyspace("k").unwrap());
    (dir, host, clients, keyspaces)
}

#[test]
fn every_call_is_a_future() {
    let (_dir, _host, clients, keyspaces) = start();
    for (client, keyspace) in clients.iter().zip(&keyspaces) {
        let calls = (0..3_000).map(|n: u32| keyspace.insert_async(n.to_be_bytes(), n.to_string()));
        assert!(block_on(all(calls)).into_iter().all(|done| done.is_ok()));
        let by_calls = keyspace.by_calls();
        for keyspace in [keyspace, &by_calls] {
            let gets = (0..3_001).map(|n: u32| keyspace.get_async(n.to_be_bytes()));
            let found = block_on(all(gets));
            for (n, value) in (0..3_000).zip(&found) {
                assert_eq!(value.as_ref().unwrap().as_deref(), Some(n.to_string().as_bytes()));
            }
            assert_eq!(found[3_000].as_ref().unwrap(), &None);
        }
        let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        block_on(async {
            let swap = |expected, new| keyspace.compare_and_swap_async("a", expected, new);
            assert!(swap(None, Some(b"1")).await.unwrap());
            assert!(!swap(Some(b"2"), None).await.unwrap());
            keyspace.remove_async("a").await.unwrap();
            let mut batch = client.batch();
            batch.insert(keyspace, "b", "2");
            batch.insert(keyspace, "c", vec![7; 100_000]);
            batch.remove(keyspace, 1u32.to_be_bytes());
            batch.commit_async().await.unwrap();
            client.batch().commit_async().await.unwrap();
        });
        assert_eq!(keyspace.get("a").unwrap(), None);
        assert_eq!(block_on(keyspace.get_async("c")).unwrap().unwrap(), vec![7; 100_000]);
        for pair in keyspace.range([0; 4]..) {
            let (key, value) = pair.unwrap();
            map.insert(key, value);
        }
        assert_eq!(map.len(), 3_000 - 1 + 2);
        // What the host refuses is an error of that call alone.
        let mut strange = client.batch();
        strange.insert(&keyspaces[0], "x", "1");
        strange.insert(&keyspaces[1], "x", "1");
        assert!(matches!(block_on(strange.commit_async()), Err(Error::InvalidArgument(_))));
        let long = keyspace.insert_async(vec![0; 70_000], "1");
        let done = block_on(all([long, keyspace.insert_async("d", "1")]));
        assert!(matches!(done[0], Err(Error::InvalidArgument(_))), "{:?}", done[0]);
        assert!(done[1].is_ok());
        block_on(keyspace.remove_async("d")).unwrap();
        assert_eq!(format!("{:?}", keyspace.remove_async("d")), "Call { state: \"new\", .. }");
    }
}

#[test]
fn calls_wait_for_room_and_none_is_forgotten() {
    let (_dir, _host, _, [_, keyspace]) = start();
    // More than are under way at once, polled by threads that wait for one at a time, with some
    // that are dropped while they wait.
    let count = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let (keyspace, count) = (&keyspace, &count);
            scope.spawn(move || {
                for round in 0..3u32 {
                    let key = |n: u32| [thread.to_be_bytes(), n.to_be_bytes()].concat();
                    let mut calls: Vec<_> = (0..CALLS_MAX as u32)
                        .map(|n| Box::new(keyspace.insert_async(key(n), round.to_be_bytes())))
                        .collect();
                    let waker = std::task::Waker::noop();
                    for call in &mut calls {
                        let _ = Pin::new(&mut **call).poll(&mut Context::from_waker(waker));
                    }
                    // Every third is dropped, whether it is under way or waits.
                    let mut number = 0;
                    calls.retain(|_| {
                        number += 1;
                        number % 3 != 0
                    });
                    for call in calls {
                        if !matches!(call.state, CallState::Ended) {
                            block_on(call).unwrap();
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 4 * 3 * (CALLS_MAX - CALLS_MAX / 3));
    let (client, _) = keyspace.parts();
    let queue = client.calls().queue().unwrap();
    until("all room is free again", || queue.is_idle());
    // A request that is larger than the room goes when it is alone.
    let large = || vec![7; REQUEST_BYTES_MAX / 2 + 1];
    let calls = [1, 2, 3].map(|n: u32| keyspace.insert_async(n.to_be_bytes(), large()));
    assert!(block_on(all(calls)).into_iter().all(|done| done.is_ok()));
    assert_eq!(keyspace.get(3u32.to_be_bytes()).unwrap().unwrap(), large());
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: it did not come about");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A queue of which nothing is sent.
fn unsent() -> Queue {
    Queue::new(Target::new(Address::Unix("none".into()), &Credentials::default()).unwrap())
}

fn job(is_read: bool) -> Job {
    Job::new(Vec::new(), Ask::Remove(b"key".to_vec()), is_read)
}

#[test]
fn room_that_is_free_wakes_the_next_that_waits_for_it() {
    let (queue, noop) = (unsent(), std::task::Waker::noop());
    let slots: Vec<_> =
        (0..CALLS_MAX).map(|_| queue.submit(&mut job(false), None, noop).unwrap()).collect();
    let counted = [(); 3].map(|()| Arc::new(Counted::default()));
    let tickets = counted.each_ref().map(|counted| {
        let waker = Arc::clone(counted).into();
        queue.submit(&mut job(false), None, &waker).unwrap_err()
    });
    let woken = || counted.each_ref().map(|counted| counted.0.load(Ordering::SeqCst));
    assert_eq!(woken(), [0, 0, 0]);
    queue.finish(&slots[0], Err(Error::Closed));
    assert_eq!(woken(), [1, 0, 0], "the first that waits");
    // It does not come any more: the room is the next one's.
    queue.give_up(tickets[0]);
    assert_eq!(woken(), [1, 1, 0], "the room is passed on");
    // One that waits and is dropped has no room to pass on.
    let waker = Arc::clone(&counted[1]).into();
    queue.submit(&mut job(false), Some(tickets[1]), &waker).unwrap();
    queue.give_up(tickets[2]);
    queue.finish(&slots[1], Err(Error::Closed));
    assert_eq!(woken(), [1, 1, 0]);
}

#[test]
fn what_a_connection_took_along_is_sent_again_once_if_it_may_be() {
    let (queue, noop) = (unsent(), std::task::Waker::noop());
    for (is_read, was_sent, is_again) in
        [(true, true, true), (true, false, true), (false, false, true), (false, true, false)]
    {
        let slot = queue.submit(&mut job(is_read), None, noop).unwrap();
        assert_eq!(queue.next().unwrap().len(), 1);
        queue.end_all(vec![Arc::clone(&slot)], was_sent, &Error::Closed);
        if is_again {
            assert!(slot.answer(noop).is_none());
            assert_eq!(queue.next().unwrap().len(), 1, "it is queued again");
            queue.end_all(vec![Arc::clone(&slot)], was_sent, &Error::Closed);
        }
        assert!(matches!(slot.answer(noop), Some(Err(Error::Closed))));
        assert!(queue.is_idle());
    }
}

#[test]
fn futures_that_are_dropped_leave_nothing() {
    let (_dir, _host, clients, [unix, keyspace]) = start();
    let by_calls = keyspace.by_calls();
    let (client, _) = keyspace.parts();
    let queue = client.calls().queue().unwrap();
    let counted = Arc::new(Counted::default());
    let waker = Arc::clone(&counted).into();
    for n in 0..5_000u32 {
        let mut call = by_calls.get_async(n.to_be_bytes());
        if n % 4 != 0 {
            let _ = Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
        }
        if n % 3 == 0 {
            thread::yield_now();
        }
        drop(call);
    }
    until("all room is free again", || queue.is_idle());
    drop(waker);
    until("no waker stays", || Arc::strong_count(&counted) == 1);
    // The threads end with the client.
    let of_threads = Arc::downgrade(&queue);
    drop((queue, by_calls, keyspace, unix, clients));
    until("the threads end", || of_threads.strong_count() == 0);
}

#[test]
fn a_host_that_goes_ends_calls_or_comes_back() {
    let (dir, host, _, [unix, tcp]) = start();
    let port = host.tcp_addresses()[0];
    for keyspace in [&unix, &tcp] {
        block_on(keyspace.insert_async("a", "1")).unwrap();
    }
    drop(host);
    let restart = || {
        let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40);
        let host = Host::listen(dir.path().join("s")).share("k", options).listen_tcp(port);
        host.start().unwrap()
    };
    thread::scope(|scope| {
        let reads = [&unix, &tcp].map(|keyspace| {
            scope.spawn(move || block_on(all((0..50).map(|_| keyspace.by_calls().get_async("a")))))
        });
        thread::sleep(Duration::from_millis(50));
        let host = restart();
        // Reads go on with the host that took its place, which knows nothing.
        for read in reads {
            assert!(read.join().unwrap().into_iter().all(|found| found.unwrap().is_none()));
        }
        for keyspace in [&unix, &tcp] {
            block_on(keyspace.insert_async("a", "2")).unwrap();
            assert_eq!(block_on(keyspace.by_calls().get_async("a")).unwrap().unwrap(), b"2");
        }
        drop(host);
    });
}

#[test]
fn a_keyspace_that_is_not_shared_fails_its_calls_alone() {
    let (dir, host, _, [unix, _]) = start();
    block_on(unix.insert_async("a", "1")).unwrap();
    let other = {
        let client = Client::connect(host.path()).unwrap();
        client.keyspace("other").unwrap()
    };
    drop(host);
    let options = ShareOptions::default().capacity_bytes(64 << 20);
    let _host = Host::listen(dir.path().join("s")).share("k", options).start().unwrap();
    let error = block_on(other.insert_async("a", "1")).unwrap_err();
    assert!(matches!(error, Error::Refused { code: 2, .. }), "{error}");
    until("the other goes on", || block_on(unix.insert_async("a", "2")).is_ok());
}
