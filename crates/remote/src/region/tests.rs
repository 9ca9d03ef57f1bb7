//! Regions of one process, hosts and readers: what they share, refuse and give back.

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
    process::Command,
    sync::atomic::AtomicBool,
    thread,
    time::Instant,
};

use rustix::{
    fs::{
        CWD, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod,
        fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, ftruncate, memfd_create, openat,
    },
    io::Errno,
};

use super::*;

const MIB: u64 = 1 << 20;

/// The shortest segment, and the longest.
const MIN: u64 = SEGMENT_BYTES_MIN;
const MAX: u64 = SEGMENT_BYTES_MAX;

/// What a segment's file must be sealed with.
fn all_seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL
}

/// A file as a host makes it, but for its length, whether it has holes, and its seals.
fn file(bytes: u64, has_holes: bool, seals: SealFlags) -> OwnedFd {
    let file =
        memfd_create("rhumb-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    if !has_holes {
        fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    }
    fcntl_add_seals(&file, seals).unwrap();
    file
}

fn copy(fd: BorrowedFd<'_>) -> OwnedFd {
    fd.try_clone_to_owned().unwrap()
}

/// Attaches what the reader lacks.
fn catch_up(reader: &ReaderRegion, host: &HostRegion) {
    let mut end = 0;
    for segment in host.segments() {
        end += segment.bytes();
        if end > reader.len_bytes() {
            reader.attach(copy(segment.fd()), segment.bytes()).unwrap();
        }
    }
}

#[track_caller]
fn assert_invalid(outcome: Result<()>, what: &str) {
    match outcome {
        Err(Error::Invalid(text)) => assert!(text.contains(what), "{what:?} not in {text:?}"),
        other => panic!("{other:?} where {what:?} should be refused"),
    }
}

/// One mapping of this process, as `/proc/self/smaps` has it.
#[derive(Debug, Default)]
struct Mapping {
    start: usize,
    end: usize,
    access: String,
    name: String,
    large_page_bytes: u64,
    flags: Vec<String>,
}

fn mappings() -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let range = words[0].split_once('-').and_then(|(start, end)| {
            let parse = |text| usize::from_str_radix(text, 16).ok();
            parse(start).zip(parse(end))
        });
        if let Some((start, end)) = range {
            let name = words.get(5).copied().unwrap_or_default().into();
            let access = words[1].into();
            mappings.push(Mapping { start, end, access, name, ..Mapping::default() });
            continue;
        }
        let mapping = mappings.last_mut().unwrap();
        match words[0] {
            "ShmemPmdMapped:" => {
                mapping.large_page_bytes = words[1].parse::<u64>().unwrap() << 10;
            }
            "VmFlags:" => mapping.flags = words[1..].iter().map(ToString::to_string).collect(),
            _ => {}
        }
    }
    mappings
}

fn mapping_at(address: usize) -> Mapping {
    mappings().into_iter().find(|m| (m.start..m.end).contains(&address)).unwrap()
}

/// How much of a region of this process is mapped by large pages.
fn large_page_bytes(words: &[AtomicU64]) -> u64 {
    let range = words.as_ptr_range();
    let within = |m: &Mapping| m.start >= range.start.addr() && m.end <= range.end.addr();
    mappings().iter().filter(|m| within(m)).map(|m| m.large_page_bytes).sum()
}

#[test]
fn regions_go_between_threads() {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<HostRegion>();
    assert_shared::<ReaderRegion>();
}

#[test]
fn a_reader_sees_what_its_host_writes() {
    let host = HostRegion::new(16 * MIB).unwrap();
    let reader = ReaderRegion::new(16 * MIB).unwrap();
    assert_eq!((host.len_bytes(), host.words().len(), reader.words().len()), (0, 0, 0));
    for bytes in [MIN, 4 * MIB, 2 * MIN, MIN] {
        host.grow(bytes).unwrap();
    }
    assert_eq!(host.len_bytes(), 12 * MIB);
    let lengths: Vec<u64> = host.segments().iter().map(Segment::bytes).collect();
    assert_eq!(lengths, [MIN, 4 * MIB, 2 * MIN, MIN]);
    catch_up(&reader, &host);
    assert_eq!(reader.len_bytes(), 12 * MIB);
    assert_eq!(reader.words().len(), host.words().len());
    assert!(reader.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    // Written after the files were sealed and mapped.
    for (index, word) in (0_u64..).zip(host.words()) {
        word.store(!index, Ordering::Relaxed);
    }
    for (index, word) in (0_u64..).zip(reader.words()) {
        assert_eq!(word.load(Ordering::Relaxed), !index);
    }
    let bases = [host.words().as_ptr().addr(), reader.words().as_ptr().addr()];
    assert!(bases.iter().all(|base| base.is_multiple_of(2 << 20)));
}

#[test]
fn a_region_grows_while_it_is_read() {
    let host = HostRegion::new(64 * MIB).unwrap();
    let reader = ReaderRegion::new(64 * MIB).unwrap();
    let is_done = AtomicBool::new(false);
    let segment_words = (MIN / 8) as usize;
    // The first word of each segment counts it, once it is written; the words never get fewer.
    let watch = |words: &dyn Fn() -> usize, load: &dyn Fn(usize) -> u64| {
        let mut len = 0;
        while !is_done.load(Ordering::Relaxed) || len < 32 * segment_words {
            let now = words();
            assert!(now >= len && now.is_multiple_of(segment_words));
            len = now;
            for segment in 0..len / segment_words {
                let word = load(segment * segment_words);
                assert!(word == 0 || word == segment as u64 + 1);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let load = |at: usize| host.words()[at].load(Ordering::Relaxed);
                watch(&|| host.words().len(), &load);
            });
            scope.spawn(|| {
                let load = |at: usize| reader.words()[at].load(Ordering::Relaxed);
                watch(&|| reader.words().len(), &load);
            });
        }
        for segment in 0..32 {
            host.grow(MIN).unwrap();
            host.words()[segment * segment_words].store(segment as u64 + 1, Ordering::Relaxed);
            catch_up(&reader, &host);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!((host.len_bytes(), reader.len_bytes()), (64 * MIB, 64 * MIB));
}

#[test]
fn threads_that_grow_a_region_take_turns() {
    let host = HostRegion::new(16 * MIB).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| host.grow(MIN).unwrap());
            scope.spawn(|| host.grow(MIN).unwrap());
        }
    });
    let stats = host.stats();
    assert_eq!((host.len_bytes(), stats.segments, stats.bytes), (16 * MIB, 8, 16 * MIB));
    for word in host.words() {
        word.store(1, Ordering::Relaxed);
    }
}

#[test]
fn a_full_region_refuses_to_grow() {
    let host = HostRegion::new(4 * MIB).unwrap();
    let assert_full = |outcome| {
        assert!(
            matches!(outcome, Err(Error::Full { capacity_bytes }) if capacity_bytes == 4 * MIB)
        );
    };
    assert_full(host.grow(8 * MIB));
    host.grow(MIN).unwrap();
    assert_full(host.grow(4 * MIB));
    assert_eq!((host.len_bytes(), host.stats().segments), (MIN, 1));
    host.grow(MIN).unwrap();
    assert_full(host.grow(MIN));
    assert_eq!((host.len_bytes(), host.segments().len()), (4 * MIB, 2));
    host.words()[(4 * MIB / 8 - 1) as usize].store(1, Ordering::Relaxed);
}

#[test]
fn arguments_are_checked() {
    let is_argument = |e| matches!(e, Error::InvalidArgument(_));
    let too_much = CAPACITY_BYTES_MAX + MIN;
    for capacity_bytes in [0, 1, MIB, MIN + 1, 3 * MIB, too_much, u64::MAX, u64::MAX - MIN + 1] {
        assert!(HostRegion::new(capacity_bytes).err().is_some_and(is_argument), "{capacity_bytes}");
        assert!(ReaderRegion::new(capacity_bytes).err().is_some_and(is_argument));
    }
    HostRegion::new(CAPACITY_BYTES_MAX).unwrap();
    ReaderRegion::new(CAPACITY_BYTES_MAX).unwrap();
    let host = HostRegion::new(1 << 30).unwrap();
    for bytes in [0, 8, MIB, 3 * MIB, 6 * MIB, MIN + 1, 2 * MAX, u64::MAX] {
        assert!(host.grow(bytes).is_err_and(is_argument), "{bytes}");
    }
    assert_eq!(host.stats(), RegionStats::default());
    for bytes in [MIN, MAX] {
        host.grow(bytes).unwrap();
    }
}

#[test]
fn a_reader_refuses_what_is_not_a_segment() {
    let reader = ReaderRegion::new(8 * MIB).unwrap();
    let sealed = |bytes| file(bytes, false, all_seals());

    for (seal, name) in [
        (SealFlags::SHRINK, "lacks the seals SHRINK"),
        (SealFlags::GROW, "lacks the seals GROW"),
        (SealFlags::FUTURE_WRITE, "lacks the seals FUTURE_WRITE"),
        (SealFlags::SEAL, "lacks the seals SEAL"),
        (all_seals(), "lacks the seals SHRINK, GROW, FUTURE_WRITE, SEAL"),
    ] {
        assert_invalid(reader.attach(file(MIN, false, all_seals() - seal), MIN), name);
    }
    assert_invalid(reader.attach(file(MIN, true, all_seals()), MIN), "has holes: it holds 0");

    let plain = |folder: &Path| {
        let name = folder.join(format!("rhumb-region-{}", std::process::id()));
        let mut plain = fs::File::create_new(&name).unwrap();
        fs::remove_file(&name).unwrap();
        plain.write_all(&vec![0; MIN as usize]).unwrap();
        OwnedFd::from(plain)
    };
    let refusal = reader.attach(plain(&env::temp_dir()), MIN);
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
    // A file of a tmpfs that has a name can have no seal but SEAL.
    assert_invalid(reader.attach(plain(Path::new("/dev/shm")), MIN), "lacks the seals SHRINK");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // Not every kernel has pages of this kind.
    if let Ok(huge) = memfd_create("rhumb-region", flags) {
        ftruncate(&huge, MIN).unwrap();
        fcntl_add_seals(&huge, all_seals()).unwrap();
        assert_invalid(reader.attach(huge, MIN), "not in a tmpfs");
    }
    let (end, _other_end) = io::pipe().unwrap();
    assert_invalid(reader.attach(end.into(), MIN), "not a regular file");
    assert_invalid(reader.attach(fs::File::open("/").unwrap().into(), MIN), "not a regular file");

    for (file_bytes, bytes) in [(2 * MIN, MIN), (MIN, 2 * MIN), (MIN - 4096, MIN), (0, MIN)] {
        let what = format!("has {file_bytes} bytes and should have {bytes}");
        assert_invalid(reader.attach(file(file_bytes, true, all_seals()), bytes), &what);
    }
    for bytes in [0, MIN - 4096, MIN + 4096, 3 * MIB, 6 * MIB, 2 * MAX] {
        let refusal = reader.attach(file(bytes, true, all_seals()), bytes);
        assert_invalid(refusal, &format!("not {bytes}"));
    }
    assert_invalid(reader.attach(sealed(16 * MIB), 16 * MIB), "does not fit");

    assert_eq!((reader.len_bytes(), reader.words().len()), (0, 0));
    reader.attach(sealed(4 * MIB), 4 * MIB).unwrap();
    assert_invalid(reader.attach(sealed(8 * MIB), 8 * MIB), "of which 4194304 are taken");
    reader.attach(sealed(4 * MIB), 4 * MIB).unwrap();
    assert_invalid(reader.attach(sealed(MIN), MIN), "does not fit");
    assert_eq!(reader.len_bytes(), 8 * MIB);
}

#[test]
fn a_segment_has_all_its_memory_before_readers_get_it() {
    let file = segment::create(4 * MIN).unwrap();
    segment::fill(file.as_fd(), 4 * MIN).unwrap();
    let host = HostRegion::new(4 * MIN).unwrap();
    host.grow(4 * MIN).unwrap();
    for file in [file.as_fd(), host.segments()[0].file.as_fd()] {
        let stat = fstat(file).unwrap();
        assert_eq!((stat.st_size as u64, stat.st_blocks as u64 * 512), (4 * MIN, 4 * MIN));
    }
}

/// Tries to map the file for writing, in a space of its own.
fn map_for_writing(file: BorrowedFd<'_>) -> Result<()> {
    let space = Space::reserve(MIN as usize)?;
    let mut growth = space.grow(MIN).unwrap();
    growth.map(file, Access::ReadWrite).map(|_| ())
}

fn errno(outcome: Result<()>) -> Option<i32> {
    let Err(Error::Io { source, .. }) = outcome else { return None };
    source.raw_os_error()
}

#[test]
fn nobody_writes_to_a_sealed_segment() {
    let host = HostRegion::new(4 * MIB).unwrap();
    host.grow(MIN).unwrap();
    host.words()[0].store(7, Ordering::Relaxed);
    let segment = &host.segments()[0];
    let given = segment.fd();
    assert_eq!(fcntl_getfl(given).unwrap() & OFlags::ACCMODE, OFlags::RDONLY);
    assert_eq!(fstat(given).unwrap().st_mode & 0o777, 0o400);
    assert!(fcntl_get_seals(given).unwrap().contains(all_seals()));

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::io::pwrite(given, &[1], 0), Err(Errno::BADF));
    assert_eq!(ftruncate(given, 0), Err(Errno::INVAL));
    assert_eq!(fallocate(given, punch, 0, MIN), Err(Errno::BADF));
    assert_eq!(fcntl_add_seals(given, SealFlags::WRITE), Err(Errno::PERM));
    assert_eq!(errno(map_for_writing(given)), Some(Errno::ACCESS.raw_os_error()));

    // A process of the host's own user may open the file again, and give itself the right to.
    fchmod(given, Mode::RUSR | Mode::WUSR).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&given));
    let reopened = openat(CWD, &*path, OFlags::RDWR, Mode::empty()).unwrap();
    assert_eq!(rustix::io::pwrite(&reopened, &[1], 0), Err(Errno::PERM));
    for bytes in [0, 2 * MIN] {
        assert_eq!(ftruncate(&reopened, bytes), Err(Errno::PERM));
    }
    assert_eq!(fallocate(&reopened, punch, 0, MIN), Err(Errno::PERM));
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE, SealFlags::SHRINK] {
        assert_eq!(fcntl_add_seals(&reopened, seal), Err(Errno::PERM));
    }
    assert_eq!(errno(map_for_writing(reopened.as_fd())), Some(Errno::PERM.raw_os_error()));

    // Neither can what is mapped by a reader become writable ("mw": may write).
    let reader = ReaderRegion::new(4 * MIB).unwrap();
    reader.attach(reopened, MIN).unwrap();
    let mapping = mapping_at(reader.words().as_ptr().addr());
    assert_eq!(mapping.access, "r--s");
    assert!(mapping.flags.iter().any(|flag| flag == "mr"), "{mapping:?}");
    assert!(!mapping.flags.iter().any(|flag| flag == "mw"), "{mapping:?}");
    assert_eq!(reader.words()[0].load(Ordering::Relaxed), 7);
    host.words()[0].store(8, Ordering::Relaxed);
    assert_eq!(reader.words()[0].load(Ordering::Relaxed), 8);
}

#[test]
fn a_growth_that_fails_changes_nothing() {
    let space = Space::reserve(4 * MIB as usize).unwrap();
    let is_reserved = |at: usize| {
        let mapping = mapping_at(at);
        mapping.access == "---p" && mapping.name.is_empty()
    };
    let whole = file(MIN, false, SealFlags::empty());
    let sealed = file(MIN, false, all_seals());
    space.grow(MIN).unwrap().publish();
    assert_eq!(space.len_bytes(), 0, "nothing was mapped");
    let (address, next) = {
        let mut growth = space.grow(MIN).unwrap();
        let words = growth.map(whole.as_fd(), Access::ReadWrite).unwrap();
        words[0].store(1, Ordering::Relaxed);
        let address = words.as_ptr().addr();
        assert_eq!(mapping_at(address).access, "rw-s");
        (address, address + MIN as usize)
    };
    assert!(is_reserved(address) && is_reserved(next), "given up before it was published");
    assert!(space.grow(MIN).unwrap().map(sealed.as_fd(), Access::ReadWrite).is_err());
    assert!(is_reserved(address) && is_reserved(next), "refused by the system");
    assert_eq!((space.len_bytes(), space.words().len()), (0, 0));
    for expected in [1, 0] {
        let file = if expected == 1 { &whole } else { &sealed };
        let mut growth = space.grow(MIN).unwrap();
        growth.map(file.as_fd(), Access::Read).unwrap();
        growth.publish();
        assert_eq!(space.words().last().unwrap().load(Ordering::Relaxed), 0);
    }
    assert_eq!(space.words()[0].load(Ordering::Relaxed), 1);
    assert_eq!(space.len_bytes(), 4 * MIB);
    assert!(space.grow(MIN).is_none());
}

#[test]
fn a_segment_is_made_of_large_pages() {
    let host = HostRegion::new(MAX).unwrap();
    let start = Instant::now();
    host.grow(MAX).unwrap();
    let elapsed = start.elapsed();
    let reader = ReaderRegion::new(MAX).unwrap();
    catch_up(&reader, &host);
    assert!(reader.words().iter().step_by(64).all(|word| word.load(Ordering::Relaxed) == 0));
    let stats = host.stats();
    let large = [large_page_bytes(host.words()), large_page_bytes(reader.words())];
    println!("{elapsed:?}; {stats:?}; by large pages in the host and a reader: {large:?}");
    // The system may have no large pages. They must not be counted then.
    assert_eq!(large, [stats.huge_bytes; 2]);
    assert_eq!(stats.huge_bytes + stats.collapses_failed * MIN, MAX);
}

/// The open files of this process, its mappings of segments, and the addresses it has reserved.
fn held() -> io::Result<(usize, usize, usize)> {
    let files = fs::read_dir("/proc/self/fd")?.count();
    let all = mappings();
    let segments = all.iter().filter(|m| m.name.contains("rhumb-region")).count();
    let reserved = all.iter().filter(|m| m.access == "---p").map(|m| m.end - m.start).sum();
    Ok((files, segments, reserved))
}

/// Makes regions that grow, fail in every way, and go.
fn make_and_drop_regions() {
    let host = HostRegion::new(6 * MIB).unwrap();
    let reader = ReaderRegion::new(6 * MIB).unwrap();
    HostRegion::new(3 * MIB).err().unwrap();
    host.grow(MIN).unwrap();
    host.grow(8 * MIB).unwrap_err();
    host.grow(3 * MIB).unwrap_err();
    host.grow(4 * MIB).unwrap();
    host.grow(MIN).unwrap_err();
    catch_up(&reader, &host);
    let segment = &host.segments()[0];
    reader.attach(copy(segment.fd()), MIN).unwrap_err();
    reader.attach(copy(segment.fd()), 4 * MIB).unwrap_err();
    reader.attach(file(MIN, false, SealFlags::SHRINK), MIN).unwrap_err();
    map_for_writing(segment.fd()).unwrap_err();
    map_for_writing(file(MIN, false, SealFlags::empty()).as_fd()).unwrap();
}

/// Runs itself in a process of its own, because others' files and mappings come and go.
#[test]
fn nothing_leaks() {
    const ALONE: &str = "RHUMB_REGION_TEST_ALONE";
    if env::var_os(ALONE).is_none() {
        let mut alone = Command::new(env::current_exe().unwrap());
        alone.args(["--exact", "region::tests::nothing_leaks", "--test-threads=1"]);
        let output = alone.env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    make_and_drop_regions();
    let (files, segments, reserved) = held().unwrap();
    assert_eq!(segments, 0);
    for _ in 0..20 {
        make_and_drop_regions();
    }
    let after = held().unwrap();
    assert_eq!((after.0, after.1), (files, 0));
    // The allocator may take of what it has reserved.
    assert!(after.2 <= reserved, "{} bytes of addresses were not given back", after.2 - reserved);
}
