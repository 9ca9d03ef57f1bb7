//! The same promises, checked for every queue and for the engine above them.

use std::{
    path::{Path, PathBuf},
    task::{Context, Waker},
};

use proptest::prelude::*;

use super::*;
use crate::io::{
    FileSystem, ReadMode, StdFs,
    engine::{ReadEngine, ReadPart, block_on},
    pool::ReadPool,
    sim::{CallKind, Fault, Matcher, SimFs},
    write_all,
};

/// Bytes of the file that the tests read: no multiple of anything.
const FILE_BYTES: usize = 300_000;

fn byte_at(offset: usize) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9) >> 13) as u8
}

fn make_file(fs: &dyn FileSystem, path: &Path, len: usize) {
    let mut file = fs.create(path).unwrap();
    let bytes: Vec<u8> = (0..len).map(byte_at).collect();
    write_all(file.as_mut(), path, &bytes).unwrap();
    file.sync_data().unwrap();
}

/// Every queue that this machine has, by name, with files to read through it.
fn queues() -> Vec<(&'static str, Box<dyn ReadQueue>)> {
    let mut queues: Vec<(&'static str, Box<dyn ReadQueue>)> = vec![
        ("threads", Box::new(ReadPool::new(4).queue())),
        ("no thread", Box::new(ReadPool::new(0).queue())),
    ];
    for (name, used) in [("kernel", QueueUse::InTurns), ("one thread's", QueueUse::OneThread)] {
        match StdFs.read_queue(8, used) {
            Ok(queue) => queues.push((name, queue)),
            Err(error) => eprintln!("skipped the {name} queue: {error}"),
        }
    }
    queues
}

fn request(file: &Arc<dyn ReadableFile>, offset: usize, len: usize, token: u64) -> ReadRequest {
    let (file, buffer) = (Arc::clone(file), AlignedBuf::new(len));
    ReadRequest { file, offset: offset as u64, buffer, token }
}

/// Checks a result against what the file holds there.
fn check(done: &ReadDone, offset: usize, len: usize, file_bytes: usize) {
    let expected = file_bytes.saturating_sub(offset).min(len);
    assert_eq!(*done.result.as_ref().unwrap(), expected);
    assert_eq!(done.buffer.len(), len);
    for (at, byte) in done.buffer[..expected].iter().enumerate() {
        assert_eq!(*byte, byte_at(offset + at), "byte {at} of {len} from {offset}");
    }
}

fn check_many(queue: &mut dyn ReadQueue, file: &Arc<dyn ReadableFile>, places: &[(usize, usize)]) {
    for (token, (offset, len)) in places.iter().enumerate() {
        queue.push(request(file, *offset, *len, token as u64));
    }
    let mut seen = vec![false; places.len()];
    let mut done = Vec::new();
    while queue.pending() > 0 {
        queue.wait(&mut done);
        for done in done.drain(..) {
            let token = usize::try_from(done.token).unwrap();
            assert!(!std::mem::replace(&mut seen[token], true), "a read ended twice");
            check(&done, places[token].0, places[token].1, FILE_BYTES);
        }
    }
    assert!(seen.iter().all(|seen| *seen), "a read never ended");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_read_ends_once_with_its_own_bytes(
        places in prop::collection::vec((0..80_usize, 1..20_usize), 1..200),
        is_direct: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        make_file(&StdFs, &path, FILE_BYTES);
        let mode = if is_direct { ReadMode::Direct } else { ReadMode::Buffered };
        let file = StdFs.open(&path, mode).unwrap();
        // Some places are after the end. Those of buffered files need not be aligned.
        let places: Vec<(usize, usize)> = places
            .iter()
            .map(|(at, len)| if is_direct { (at * 4096, len * 4096) } else { (at * 3999, len * 777) })
            .collect();
        for (_, mut queue) in queues() {
            check_many(&mut *queue, &file, &places);
        }
    }
}

#[test]
fn a_wake_ends_a_wait_and_is_not_lost() {
    // A read of a pipe with no bytes does not end by itself.
    for (name, mut queue) in queues() {
        if name == "no thread" {
            continue;
        }
        let (reader, writer) = std::io::pipe().unwrap();
        let file: Arc<dyn ReadableFile> = Arc::new(PipeFile(reader));
        let waker = queue.waker().unwrap();
        queue.push(request(&file, 0, 8, 1));
        let mut done = Vec::new();
        waker.wake();
        queue.wait(&mut done);
        assert!(done.is_empty(), "{name}");
        let woken = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            waker.wake();
        });
        queue.wait(&mut done);
        assert!(done.is_empty(), "{name}");
        woken.join().unwrap();
        std::io::Write::write_all(&mut &writer, &[7; 8]).unwrap();
        while queue.pending() > 0 {
            queue.wait(&mut done);
        }
        assert_eq!((done.len(), &done[0].buffer[..]), (1, &[7; 8][..]), "{name}");
    }
}

#[derive(Debug)]
struct PipeFile(std::io::PipeReader);

impl ReadableFile for PipeFile {
    fn read_at(&self, buf: &mut [u8], _: u64) -> io::Result<usize> {
        std::io::Read::read(&mut &self.0, buf)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.0))
    }
}

#[test]
fn a_queue_that_is_dropped_with_reads_in_flight_waits_for_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    make_file(&StdFs, &path, FILE_BYTES);
    let file = StdFs.open(&path, ReadMode::Direct).unwrap();
    for round in 0..50 {
        for (_, mut queue) in queues() {
            (0..30).for_each(|i| queue.push(request(&file, i * 8192, 16384, i as u64)));
            if round % 2 == 0 {
                queue.wait(&mut Vec::new());
            }
        }
    }
    // The threads of a pool drop the file when they are done.
    while Arc::strong_count(&file) > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn short_reads_are_gone_on_with_and_errors_are_told() {
    let path = PathBuf::from("/file");
    let sim = SimFs::new(4);
    make_file(&sim, &path, FILE_BYTES);
    sim.set_restless(500);
    let file = sim.open(&path, ReadMode::Buffered).unwrap();
    let places: Vec<_> = (0..100).map(|i| (i * 2999, 5000)).collect();
    check_many(&mut ReadPool::new(3).queue(), &file, &places);
    sim.set_restless(0);
    sim.inject(Matcher::any().kinds(&[CallKind::Read]), Fault::Eio, 1);
    let mut queue = ReadPool::new(3).queue();
    queue.push(request(&file, 0, 100, 0));
    let mut done = Vec::new();
    queue.wait(&mut done);
    assert!(done[0].result.is_err());
}

fn engines(fs: &Arc<dyn FileSystem>) -> Vec<ReadEngine> {
    vec![
        ReadEngine::new(fs, ReadEngineKind::Kernel, false),
        ReadEngine::new(fs, ReadEngineKind::Threads, false),
        ReadEngine::new(fs, ReadEngineKind::Threads, true),
    ]
}

#[test]
fn many_threads_share_an_engine_and_may_give_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    make_file(&StdFs, &path, FILE_BYTES);
    let file = StdFs.open(&path, ReadMode::Direct).unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(StdFs);
    for engine in engines(&fs) {
        std::thread::scope(|scope| {
            for seed in 0..4_usize {
                let (engine, file) = (&engine, &file);
                scope.spawn(move || read_and_give_up(engine, file, seed));
            }
        });
        while engine.buffers_in_use() > 0 {
            std::thread::yield_now();
        }
    }
}

/// Reads through the engine; keeps some results waiting and drops others at any time.
fn read_and_give_up(engine: &ReadEngine, file: &Arc<dyn ReadableFile>, seed: usize) {
    let mut state = seed as u64 + 1;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let mut waiting = Vec::new();
    for _ in 0..3_000 {
        let offset = random(70) * 4096;
        let len = (1 + random(4)) * 4096;
        let part = ReadPart { file: Arc::clone(file), offset: offset as u64, len };
        waiting.push((offset, len, engine.start(part)));
        while waiting.len() > random(40) {
            let (offset, len, pending) = waiting.swap_remove(random(waiting.len()));
            match random(3) {
                0 => drop(pending),
                1 => drop(pending.poll(&mut Context::from_waker(Waker::noop()))),
                _ => {
                    let (result, bytes) = block_on(|cx| pending.poll(cx));
                    let expected = FILE_BYTES.saturating_sub(offset).min(len);
                    assert_eq!(result.unwrap(), expected);
                    let right = |(at, byte): (usize, &u8)| *byte == byte_at(offset + at);
                    assert!(bytes[..expected].iter().enumerate().all(right), "foreign bytes");
                }
            }
        }
    }
}
