//! Frames and descriptors between threads, peers that misbehave, and the socket's file.

use std::{
    fs::{self, File},
    io::Write,
    net::Shutdown,
    os::{
        fd::AsFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::PathBuf,
    thread,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::message::format::{FRAME_BYTES_MAX, HEAD_BYTES};

/// After this a wait that never ends is a failure, and not a test that hangs.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// A stream, and a peer that sends whatever a test wants.
fn stream_and_peer() -> (Stream, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    let stream = Stream::new(Socket::Unix(one)).unwrap();
    stream.set_timeouts(PATIENCE, PATIENCE).unwrap();
    (stream, other)
}

fn pair() -> (Stream, Stream) {
    let (one, other) = stream_and_peer();
    let other = Stream::new(Socket::Unix(other)).unwrap();
    other.set_timeouts(PATIENCE, PATIENCE).unwrap();
    (one, other)
}

/// A frame of `len` bytes in all, whose other bytes tell it from frames with another `seed`.
fn frame(len: usize, seed: usize) -> Vec<u8> {
    let mut frame = ((len - LENGTH_BYTES) as u32).to_le_bytes().to_vec();
    frame.extend((LENGTH_BYTES..len).map(|at| (at + at / 251 + seed) as u8));
    frame
}

/// Sends bytes and descriptors as a peer that knows no rules.
fn send_raw(peer: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let sent = sendmsg(peer, &[IoSlice::new(bytes)], &mut control, SendFlags::empty());
    assert_eq!(sent.unwrap(), bytes.len());
}

fn inode(file: &File) -> (u64, u64) {
    let found = file.metadata().unwrap();
    (found.dev(), found.ino())
}

/// How often this process has the file at `path` open. Other tests open and close other files.
#[cfg(target_os = "linux")]
fn times_open(path: &Path) -> usize {
    let names = fs::read_dir("/proc/self/fd").unwrap().flatten();
    names.filter(|name| fs::read_link(name.path()).is_ok_and(|found| found == path)).count()
}

#[test]
fn frames_of_all_sizes_go_both_ways() {
    let mut sizes = vec![HEAD_BYTES, HEAD_BYTES + 1, 100, FRAME_BYTES_MAX + LENGTH_BYTES];
    for edge in [STEP_BYTES, 2 * STEP_BYTES, 1 << 20] {
        sizes.extend(edge - 5..edge + 6);
    }
    let (one, other) = pair();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = Vec::new();
            for _ in &sizes {
                assert!(other.receive(&mut buffer).unwrap().fds.is_empty());
                other.send(&buffer, &[]).unwrap();
            }
        });
        let mut buffer = Vec::new();
        for (seed, len) in sizes.iter().enumerate() {
            let sent = frame(*len, seed);
            one.send(&sent, &[]).unwrap();
            one.receive(&mut buffer).unwrap();
            assert!(buffer == sent, "a frame of {len} bytes");
        }
    });
}

#[test]
fn descriptors_come_in_order_with_their_own_frame() {
    let files: Vec<File> = (0..FDS_MAX).map(|_| tempfile::tempfile().unwrap()).collect();
    let (one, other) = pair();
    // Which files come with which of many frames that are in flight at once, most with none.
    let beside = |index: usize| {
        let count = if index.is_multiple_of(3) { index % (FDS_MAX + 1) } else { 0 };
        files.iter().cycle().skip(index).take(count)
    };
    let len = |index: usize| HEAD_BYTES + index % 40;
    for index in 0..100 {
        let fds: Vec<BorrowedFd<'_>> = beside(index).map(File::as_fd).collect();
        one.send(&frame(len(index), index), &fds).unwrap();
    }
    let mut buffer = Vec::new();
    for index in 0..100 {
        let received = other.receive(&mut buffer).unwrap();
        assert_eq!(buffer, frame(len(index), index));
        let found: Vec<File> = received.fds.into_iter().map(File::from).collect();
        assert!(found.iter().map(inode).eq(beside(index).map(inode)), "frame {index}");
        for file in &found {
            assert!(rustix::io::fcntl_getfd(file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
    // The sender's own are open still.
    files.iter().for_each(|mut file| file.write_all(b"x").unwrap());
}

#[test]
fn a_long_frame_brings_its_descriptors() {
    let file = tempfile::tempfile().unwrap();
    let (one, other) = pair();
    thread::scope(|scope| {
        // Far more than the system's buffer: sent in many pieces.
        scope.spawn(|| one.send(&frame(4 << 20, 1), &[file.as_fd(), file.as_fd()]).unwrap());
        let received = other.receive(&mut Vec::new()).unwrap();
        assert_eq!(received.fds.len(), 2, "each is sent once");
    });
}

#[test]
fn descriptors_are_sent_once_with_a_frame_that_goes_in_pieces() {
    let file = tempfile::tempfile().unwrap();
    let sent = frame(1 << 20, 1);
    let wait = Duration::from_millis(20);
    for _ in 0..100 {
        let (one, other) = pair();
        // The first call fills the system's buffer and returns what it sent when its time is up,
        // because nobody reads. If the next one finds no room either, the test begins anew.
        one.set_timeouts(PATIENCE, Some(wait)).unwrap();
        let (send, receive) = thread::scope(|scope| {
            let send = scope.spawn(|| one.send(&sent, &[file.as_fd(), file.as_fd()]));
            thread::sleep(wait + wait / 2);
            let receive = other.receive(&mut Vec::new());
            (send.join().unwrap(), receive)
        });
        if !matches!(send, Err(Error::TimedOut)) {
            assert_eq!(receive.unwrap().fds.len(), 2);
            return;
        }
    }
    panic!("the frame was never sent in time");
}

#[test]
fn frames_of_several_senders_do_not_mix() {
    let (one, other) = pair();
    thread::scope(|scope| {
        for seed in 0..3 {
            let one = &one;
            scope.spawn(move || {
                for _ in 0..20 {
                    one.send(&frame(500_000 + seed, seed), &[]).unwrap();
                }
            });
        }
        let mut buffer = Vec::new();
        for _ in 0..60 {
            other.receive(&mut buffer).unwrap();
            let seed = buffer.len() - 500_000;
            assert!(buffer == frame(buffer.len(), seed));
        }
    });
}

#[test]
fn the_end_between_frames_is_not_the_end_within_one() {
    let whole = frame(1000, 0);
    for kept in [0, 1, 3, 4, 8, 500, 999, 1000] {
        let (stream, mut peer) = stream_and_peer();
        peer.write_all(&whole[..kept]).unwrap();
        drop(peer);
        let mut buffer = Vec::new();
        let result = stream.receive(&mut buffer);
        match (kept, result) {
            (0, Err(Error::Closed)) => {}
            (1000, Ok(_)) => assert!(matches!(stream.receive(&mut buffer), Err(Error::Closed))),
            (_, Err(Error::Io { source, .. })) => {
                assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof);
                assert_eq!(buffer, whole[..kept]);
            }
            (_, other) => panic!("{kept} bytes: {other:?}"),
        }
        assert!(matches!(stream.receive(&mut buffer), Err(Error::Closed)));
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_before_anything_is_allocated() {
    for rest in [u32::MAX, FRAME_BYTES_MAX as u32 + 1, 4, 0] {
        let (stream, mut peer) = stream_and_peer();
        peer.write_all(&rest.to_le_bytes()).unwrap();
        peer.write_all(&[1; 100]).unwrap();
        let mut buffer = Vec::new();
        assert!(matches!(stream.receive(&mut buffer), Err(Error::Invalid(_))), "{rest}");
        assert!(buffer.capacity() <= 64, "{} bytes for {rest}", buffer.capacity());
        // What follows is never taken for a frame.
        peer.write_all(&frame(20, 0)).unwrap_err();
        assert!(matches!(stream.receive(&mut buffer), Err(Error::Closed)));
    }
}

#[test]
fn a_buffer_grows_with_the_bytes_that_come() {
    let (stream, mut peer) = stream_and_peer();
    let long = frame(FRAME_BYTES_MAX, 0);
    for (sent, most) in [(10, STEP_BYTES + 100), (100_000, 2 * STEP_BYTES + 100)] {
        let (stream, mut peer) = stream_and_peer();
        peer.write_all(&long[..sent]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut buffer = Vec::new();
        stream.receive(&mut buffer).unwrap_err();
        assert!(buffer.len() == sent && buffer.capacity() <= most, "{}", buffer.capacity());
    }
    thread::scope(|scope| {
        scope.spawn(|| peer.write_all(&long).unwrap());
        let mut buffer = Vec::new();
        stream.receive(&mut buffer).unwrap();
        assert!(buffer == long);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn descriptors_that_nobody_asked_for_are_closed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().canonicalize().unwrap().join("descriptor");
    let file = File::create(&path).unwrap();
    let many = [file.as_fd(); 40];
    let receive = |send: &dyn Fn(&UnixStream)| {
        let (stream, peer) = stream_and_peer();
        send(&peer);
        drop(peer);
        stream.receive(&mut Vec::new())
    };
    let whole = frame(100, 0);
    let received = receive(&|peer| send_raw(peer, &whole, &many[..3])).unwrap();
    assert_eq!((received.fds.len(), times_open(&path)), (3, 4));
    drop(received);
    assert_eq!(times_open(&path), 1);
    // With a frame that is never whole, and with a length that no frame has.
    receive(&|peer| send_raw(peer, &whole[..50], &many[..3])).unwrap_err();
    receive(&|peer| send_raw(peer, &[0xff; 50], &many[..3])).unwrap_err();
    assert_eq!(times_open(&path), 1);
    // Sixteen in two pieces are taken; one more is refused, in one piece, two or with any byte.
    let pieces = |counts: &[usize]| {
        receive(&|peer| {
            let end = whole.len() - counts.len() + 1;
            send_raw(peer, &whole[..end], &many[..counts[0]]);
            for (count, at) in counts[1..].iter().zip(end..) {
                send_raw(peer, &whole[at..=at], &many[..*count]);
            }
        })
    };
    assert_eq!(pieces(&[7, 9]).unwrap().fds.len(), 16);
    for counts in [&[17][..], &[18], &[19], &[40], &[8, 9], &[16, 1], &[1, 40], &[6, 6, 6]] {
        let refused = pieces(counts).map(|received| received.fds.len());
        assert!(matches!(refused, Err(Error::Invalid(_))), "{counts:?}: {refused:?}");
        assert_eq!(times_open(&path), 1, "{counts:?}");
    }
}

#[test]
fn descriptors_that_this_process_may_not_open_are_its_own_trouble() {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let Err(Error::Io { source, .. }) = take_fds(&mut control, true, &mut Vec::new()) else {
        panic!("what was cut off is an error")
    };
    assert_eq!(source.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
}

#[test]
fn only_one_whole_frame_is_sent() {
    let file = tempfile::tempfile().unwrap();
    let (one, other) = pair();
    let whole = frame(20, 0);
    let two = [&whole[..], &whole].concat();
    for wrong in [&whole[..0], &whole[..3], &whole[..19], &two, &[0; 9], &[0xff; 9]] {
        assert!(matches!(one.send(wrong, &[]), Err(Error::InvalidArgument(_))));
    }
    let fds = vec![file.as_fd(); FDS_MAX + 1];
    assert!(matches!(one.send(&whole, &fds), Err(Error::InvalidArgument(_))));
    // Nothing of it was sent.
    one.send(&whole, &fds[1..]).unwrap();
    let mut buffer = Vec::new();
    assert_eq!(other.receive(&mut buffer).unwrap().fds.len(), FDS_MAX);
    assert_eq!(buffer, whole);
}

#[test]
fn a_wait_may_end_between_frames_but_not_within_one() {
    let (stream, mut peer) = stream_and_peer();
    let short = Some(Duration::from_millis(5));
    stream.set_timeouts(short, short).unwrap();
    let mut buffer = Vec::new();
    assert!(matches!(stream.receive(&mut buffer), Err(Error::TimedOut)));
    peer.write_all(&frame(20, 0)).unwrap();
    stream.receive(&mut buffer).unwrap();
    assert_eq!(buffer, frame(20, 0));
    peer.write_all(&frame(20, 0)[..2]).unwrap();
    assert!(matches!(stream.receive(&mut buffer), Err(Error::TimedOut)));
    assert!(matches!(stream.receive(&mut buffer), Err(Error::Closed)));
    assert!(stream.set_timeouts(Some(Duration::ZERO), None).is_err());
}

#[test]
fn a_peer_that_does_not_read_holds_nobody_up() {
    let (one, other) = pair();
    one.set_timeouts(None, Some(Duration::from_millis(5))).unwrap();
    // A frame that fits no buffer is cut off, and then nothing more is sent.
    assert!(matches!(one.send(&frame(8 << 20, 0), &[]), Err(Error::TimedOut)));
    assert!(matches!(one.send(&frame(20, 0), &[]), Err(Error::Closed)));
    let error = other.receive(&mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
}

#[test]
fn what_is_sent_to_a_peer_that_has_gone_is_an_error() {
    let (one, other) = pair();
    drop(other);
    assert!(matches!(one.send(&frame(20, 0), &[]), Err(Error::Closed)));
    // A peer that goes without having read.
    let (one, other) = pair();
    one.send(&frame(20, 0), &[]).unwrap();
    drop(other);
    assert!(matches!(one.receive(&mut Vec::new()), Err(Error::Closed)));
}

#[test]
fn shutdown_wakes_a_thread_that_waits() {
    let (one, other) = pair();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| one.receive(&mut Vec::new()));
        one.shutdown().unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    });
    assert!(matches!(other.receive(&mut Vec::new()), Err(Error::Closed)));
    drop(other);
    one.shutdown().unwrap();
}

/// A directory, and the path of a socket in it.
fn socket_path() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("socket");
    (dir, path)
}

/// How `bind` fails at `path`.
fn bind_error(path: &Path) -> (io::ErrorKind, String) {
    match Listener::bind(path) {
        Err(Error::Io { source, operation }) => (source.kind(), format!("{operation}: {source}")),
        other => panic!("{other:?}"),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn clients_are_accepted_with_their_user() {
    let (_dir, path) = socket_path();
    let listener = Listener::bind(&path).unwrap();
    let client = Stream::connect(&path).unwrap();
    let (host, peer) = listener.accept().unwrap();
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!((peer.uid, peer.gid), user);
    assert_eq!(client.peer().unwrap(), peer);
    client.send(&frame(20, 0), &[]).unwrap();
    let mut buffer = Vec::new();
    host.receive(&mut buffer).unwrap();
    assert_eq!(buffer, frame(20, 0));
}

#[test]
#[cfg(target_os = "linux")]
fn a_listener_that_is_shut_down_accepts_no_more() {
    let (_dir, path) = socket_path();
    let listener = Listener::bind(&path).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| listener.accept().map(|_| ()));
        listener.shutdown().unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    });
    assert!(Stream::connect(&path).is_err());
}

#[test]
fn only_this_user_may_connect() {
    let (_dir, path) = socket_path();
    let listener = Listener::bind(&path).unwrap();
    for path in [&path, &path.with_extension("lock")] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    drop(listener);
    assert!(!path.exists() && !path.with_extension("lock").exists(), "both files go with the host");
    assert!(matches!(Stream::connect(&path), Err(Error::Io { .. })));
}

#[test]
fn a_second_listener_is_refused_while_the_first_lives() {
    let (_dir, path) = socket_path();
    let listener = Listener::bind(&path).unwrap();
    for _ in 0..2 {
        let (kind, text) = bind_error(&path);
        assert_eq!(kind, io::ErrorKind::AddrInUse);
        assert!(text.contains("another host listens there"), "{text}");
    }
    // The attempts did it no harm.
    Stream::connect(&path).unwrap();
    drop(listener);
    drop(Listener::bind(&path).unwrap());
}

#[test]
fn hosts_that_start_at_once_are_one() {
    let (_dir, path) = socket_path();
    for round in 0..200 {
        if round % 2 == 0 {
            drop(UnixListener::bind(&path).unwrap());
        }
        let start = std::sync::Barrier::new(4);
        let started: Vec<Result<Listener>> = thread::scope(|scope| {
            let begin = || {
                start.wait();
                Listener::bind(&path)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut living = started.into_iter().filter_map(Result::ok);
        let _listener = living.next().expect("one of them listens");
        assert!(living.next().is_none(), "round {round}: two believe that they listen");
        Stream::connect(&path).unwrap();
    }
}

#[test]
fn hosts_that_come_and_go_take_turns() {
    let (_dir, path) = socket_path();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    match Listener::bind(&path) {
                        Ok(_listener) => drop(Stream::connect(&path).unwrap()),
                        // Each sees the lock of another, and never its socket.
                        Err(Error::Io { source, .. }) => {
                            let text = source.to_string();
                            assert!(text.contains("host"), "{text}");
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
    });
}

#[test]
fn only_the_socket_of_a_dead_host_is_replaced() {
    let (dir, path) = socket_path();
    // As after a kill: the files stay.
    drop(UnixListener::bind(&path).unwrap());
    fs::write(path.with_extension("lock"), "").unwrap();
    assert!(Stream::connect(&path).is_err() && path.exists());
    let listener = Listener::bind(&path).unwrap();
    Stream::connect(&path).unwrap();
    drop(listener);

    let other = UnixListener::bind(&path).unwrap();
    let (kind, text) = bind_error(&path);
    assert!(kind == io::ErrorKind::AddrInUse && text.contains("another program"), "{text}");
    UnixStream::connect(&path).unwrap();
    // A program that is alive and has its queue full answers too.
    rustix::net::listen(&other, 0).unwrap();
    assert_eq!(bind_error(&path).0, io::ErrorKind::AddrInUse);
    drop(other);

    let precious = dir.path().join("precious");
    fs::write(&precious, "words").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&precious, &link).unwrap();
    for path in [&precious, &link, &dir.path().to_owned()] {
        assert!(bind_error(path).1.contains("not a socket"));
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "words");
}

#[test]
fn only_its_own_file_is_removed() {
    let (dir, path) = socket_path();
    for replace in [
        |path: &Path| fs::write(path, "words").unwrap(),
        |path: &Path| drop(UnixListener::bind(path).unwrap()),
    ] {
        let listener = Listener::bind(&path).unwrap();
        let lock = path.with_extension("lock");
        fs::rename(&path, dir.path().join("moved")).unwrap();
        fs::rename(&lock, dir.path().join("moved lock")).unwrap();
        replace(&path);
        fs::write(&lock, "words").unwrap();
        drop(listener);
        assert!(path.symlink_metadata().is_ok() && lock.exists());
        fs::remove_file(&path).unwrap();
    }
    let listener = Listener::bind(&path).unwrap();
    assert!(path.metadata().unwrap().file_type().is_socket());
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_path_that_no_socket_can_have_is_named() {
    let (dir, _) = socket_path();
    let path = dir.path().join("x".repeat(120));
    assert!(bind_error(&path).1.contains("xxx"));
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing is left behind");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..200),
    ) {
        let (stream, mut peer) = stream_and_peer();
        peer.write_all(&bytes).unwrap();
        drop(peer);
        let mut buffer = Vec::new();
        let mut taken = 0;
        while stream.receive(&mut buffer).is_ok() {
            prop_assert_eq!(&buffer, &bytes[taken..taken + buffer.len()]);
            taken += buffer.len();
        }
        prop_assert!(buffer.capacity() <= STEP_BYTES + 300);
    }
}
