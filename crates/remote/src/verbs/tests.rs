//! Two queues of one process, over a device of this machine.
//!
//! `cargo xtask rdma` runs them in a guest whose kernel has a software device; `RHUMB_RDMA_ADDRESS`
//! is its address.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{ByteStream, Device, Domain, MESSAGE_BYTES, Queue, Read, RegisteredMemory};
use crate::{
    error::Error,
    primitive::{AtomicU64, Ordering},
};

const TIMEOUT: Duration = Duration::from_secs(10);

fn device() -> Arc<Device> {
    let address = std::env::var("RHUMB_RDMA_ADDRESS").expect("the address of a device");
    Device::with_address(address.parse().unwrap()).unwrap()
}

fn words(count: u64) -> Arc<[AtomicU64]> {
    (0..count).map(AtomicU64::new).collect()
}

/// Two ends that are connected: the first reads what is shared in the second's domain.
fn pair(device: &Arc<Device>) -> (Queue, Queue, Arc<Domain>) {
    let (near, far) = (Domain::new(device).unwrap(), Domain::new(device).unwrap());
    let (mut reader, mut host) = (Queue::new(&near).unwrap(), Queue::new(&far).unwrap());
    host.connect(&reader.endpoint()).unwrap();
    reader.connect(&host.endpoint()).unwrap();
    (reader, host, far)
}

fn shared(domain: &Arc<Domain>, words: &Arc<[AtomicU64]>) -> RegisteredMemory {
    RegisteredMemory::shared(domain, Arc::clone(words), |words| &words[..]).unwrap()
}

fn read(memory: &RegisteredMemory, at: u64, bytes: u32) -> Read {
    Read { address: memory.address() + at * 8, key: memory.remote_key(), bytes }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn pieces_are_read_in_their_order() {
    let device = device();
    let (mut reader, _host, domain) = pair(&device);
    let words = words(1 << 16);
    let memory = shared(&domain, &words);
    for round in 0..3 {
        words[5].store(round, Ordering::Relaxed);
        // More than one doorbell takes, and pieces of several packets.
        let mut reads: Vec<Read> = (0..200).map(|n| read(&memory, n * 7, 8)).collect();
        reads.push(read(&memory, 0, 4_096));
        reads.push(read(&memory, 0, 64 << 10));
        let mut expected: Vec<u64> = (0..200).map(|n| n * 7).collect();
        let now = |n| if n == 5 { round } else { n };
        expected.extend((0..512).chain(0..8_192).map(now));
        reader
            .read(&reads, TIMEOUT, |found| {
                let found = found.iter().map(|word| word.load(Ordering::Relaxed));
                assert!(found.eq(expected.iter().copied()));
            })
            .unwrap();
    }
    reader.read(&[], TIMEOUT, |found| assert!(found.is_empty())).unwrap();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn another_domain_is_out_of_reach() {
    let device = device();
    let (mut reader, _host, domain) = pair(&device);
    let (mine, others) = (words(512), words(512));
    let memory = shared(&domain, &mine);
    reader.read(&[read(&memory, 0, 64)], TIMEOUT, |_| ()).unwrap();
    let other = shared(&Domain::new(&device).unwrap(), &others);
    let refused = reader.read(&[read(&other, 0, 64)], TIMEOUT, |_| ()).unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused:?}");
    assert!(!reader.is_usable());
    let closed = reader.read(&[read(&memory, 0, 64)], TIMEOUT, |_| ()).unwrap_err();
    assert!(matches!(closed, Error::Closed), "{closed:?}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn nothing_is_read_beyond_what_is_shared() {
    let device = device();
    let words = words(512);
    for (at, bytes) in [(448, 1_024), (512, 8), (u64::MAX / 8 - 1_024, 64)] {
        let (mut reader, _host, domain) = pair(&device);
        let memory = shared(&domain, &words);
        let address = memory.address().wrapping_add(at.wrapping_mul(8));
        let wanted = Read { address, key: memory.remote_key(), bytes };
        assert!(reader.read(&[wanted], TIMEOUT, |_| ()).is_err(), "{at}");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_peer_that_has_gone_is_noticed() {
    let device = device();
    let (mut reader, host, domain) = pair(&device);
    let words = words(512);
    let memory = shared(&domain, &words);
    let wanted = [read(&memory, 0, 4_096)];
    reader.read(&wanted, TIMEOUT, |_| ()).unwrap();
    drop(host);
    let begun = Instant::now();
    let error = reader.read(&wanted, TIMEOUT, |_| ()).unwrap_err();
    assert!(matches!(error, Error::Io { .. } | Error::TimedOut), "{error:?}");
    assert!(begun.elapsed() <= TIMEOUT + Duration::from_secs(1));
    // Memory that is not shared any more is not read either.
    let (mut reader, _host, domain) = pair(&device);
    let memory = shared(&domain, &words);
    let wanted = [read(&memory, 0, 64)];
    reader.read(&wanted, TIMEOUT, |_| ()).unwrap();
    drop(memory);
    assert!(reader.read(&wanted, TIMEOUT, |_| ()).is_err());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn an_address_without_a_device_is_named() {
    let nobody: IpAddr = "192.0.2.1".parse().unwrap();
    let error = Device::with_address(nobody).unwrap_err().to_string();
    assert!(error.contains("192.0.2.1") && error.contains("rxe0"), "{error}");
}

/// Two ends of a stream.
fn streams(device: &Arc<Device>) -> (ByteStream, ByteStream) {
    let (near, far) = (Domain::new(device).unwrap(), Domain::new(device).unwrap());
    let (one, two) = (ByteStream::new(&near, None).unwrap(), ByteStream::new(&far, None).unwrap());
    two.connect(&one.endpoint()).unwrap();
    one.connect(&two.endpoint()).unwrap();
    one.set_timeouts(Some(TIMEOUT), Some(TIMEOUT));
    two.set_timeouts(Some(TIMEOUT), Some(TIMEOUT));
    (one, two)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 31 + at / 251) as u8).collect()
}

fn receive_all(stream: &ByteStream, len: usize) -> Vec<u8> {
    let (mut found, mut at) = (vec![0; len], 0);
    while at < len {
        at += stream.receive(&mut found[at..]).unwrap();
    }
    found
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_stream_brings_its_bytes_in_their_order() {
    let (one, two) = streams(&device());
    // Inline and not, a message and many, more than the other side has room for.
    let lens = [1, 7, 8, 9, 100, 219, 220, 221, 222, 4_095, MESSAGE_BYTES, 4_097, 40_000, 300_000];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (seed, len) in lens.into_iter().enumerate() {
                let found = receive_all(&two, len);
                assert_eq!(found, bytes(len, seed), "{len}");
                two.send(&found).unwrap();
            }
        });
        for (seed, len) in lens.into_iter().enumerate() {
            one.send(&bytes(len, seed)).unwrap();
            assert_eq!(receive_all(&one, len), bytes(len, seed), "{len}");
        }
    });
    // Some hundred that nobody waits for at first.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|n| one.send(&bytes(n % 50 + 1, n)).unwrap()));
        std::thread::sleep(Duration::from_millis(200));
        for n in 0..300 {
            assert_eq!(receive_all(&two, n % 50 + 1), bytes(n % 50 + 1, n));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn the_end_of_a_stream_is_told() {
    let device = device();
    let (one, two) = streams(&device);
    one.send(b"last words").unwrap();
    one.finish();
    assert!(!one.is_sending());
    assert!(matches!(one.put(b"more"), Err(Error::Closed)));
    one.shutdown().unwrap();
    assert_eq!(receive_all(&two, 10), b"last words");
    assert!(matches!(two.receive(&mut [0; 8]), Err(Error::Closed)));
    assert!(matches!(one.put(b"more"), Err(Error::Closed)));
    assert!(matches!(one.receive(&mut [0; 8]), Err(Error::Closed)));
    // A thread that waits is woken, at the same side.
    let (one, _two) = streams(&device);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(matches!(one.receive(&mut [0; 8]), Err(Error::Closed))));
        std::thread::sleep(Duration::from_millis(200));
        one.shutdown().unwrap();
    });
    // As much as is under way at once, which the other side reads late.
    let (one, two) = streams(&device);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(receive_all(&two, 60_000), bytes(60_000, 3)));
        one.send(&bytes(60_000, 3)).unwrap();
        while one.is_sending() {
            std::thread::sleep(Duration::from_millis(1));
        }
        one.finish();
    });
    assert!(matches!(two.receive(&mut [0; 8]), Err(Error::Closed)));
    // One without a peer is not waited for without end.
    let (one, two) = streams(&device);
    drop(two);
    one.set_timeouts(Some(Duration::from_millis(300)), None);
    let begun = Instant::now();
    assert!(matches!(one.receive(&mut [0; 8]), Err(Error::Closed | Error::TimedOut)));
    assert!(begun.elapsed() < TIMEOUT);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_stream_ends_with_its_connection() {
    let device = device();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let domain = Domain::new(&device).unwrap();
    let (one, two) = (
        ByteStream::new(&domain, Some(near.into())).unwrap(),
        ByteStream::new(&domain, None).unwrap(),
    );
    two.connect(&one.endpoint()).unwrap();
    one.connect(&two.endpoint()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            two.send(b"x").unwrap();
            drop(far);
        });
        assert_eq!(one.receive(&mut [0; 8]).unwrap(), 1);
        assert!(matches!(one.receive(&mut [0; 8]), Err(Error::Closed)));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn what_comes_is_there_or_told_of() {
    let (one, two) = streams(&device());
    let is_told = |most: i64| {
        let fd = two.came();
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let most = rustix::time::Timespec { tv_sec: most, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&most)).unwrap() == 1
    };
    let until_there = || {
        let until = Instant::now() + TIMEOUT;
        while !two.has_some() {
            assert!(Instant::now() < until);
        }
    };
    for round in 0..20 {
        // Two messages, of which one is read.
        one.send(&[round; 3]).unwrap();
        one.send(&[round; 5]).unwrap();
        until_there();
        assert_eq!(two.take(&mut [0; 8]).unwrap(), Some(3));
        until_there();
        assert_eq!(two.take(&mut [0; 2]).unwrap(), Some(2));
        assert!(two.has_some(), "the rest of a message");
        assert_eq!(two.take(&mut [0; 8]).unwrap(), Some(3));
        assert!(!two.has_some() && !is_told(0));
        one.send(&[round]).unwrap();
        assert!(is_told(10));
        until_there();
        assert_eq!(two.take(&mut [0; 8]).unwrap(), Some(1));
        assert_eq!(two.take(&mut [0; 8]).unwrap(), None);
        one.send(&[round]).unwrap();
        assert!(is_told(10));
        until_there();
        assert_eq!(two.take(&mut [0; 8]).unwrap(), Some(1));
    }
}
