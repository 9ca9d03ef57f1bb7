//! The promises of the simulated file system, against a plain model of what POSIX promises.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::io::{read_exact_at, retry, write_all};

fn at(path: &str) -> &Path {
    Path::new(path)
}

/// A file system with the durable directory `/d`.
fn with_dir(seed: u64) -> SimFs {
    let fs = SimFs::new(seed);
    fs.create_dir_all(at("/d")).unwrap();
    fs.sync_dir(at("/")).unwrap();
    fs
}

fn put(fs: &SimFs, path: &str, bytes: &[u8]) -> Box<dyn WritableFile> {
    let mut file = fs.create(at(path)).unwrap();
    write_all(file.as_mut(), at(path), bytes).unwrap();
    file
}

fn put_synced(fs: &SimFs, path: &str, bytes: &[u8]) {
    put(fs, path, bytes).sync_data().unwrap();
    fs.sync_dir(at(path).parent().unwrap()).unwrap();
}

fn names(fs: &SimFs, dir: &str) -> Vec<String> {
    let mut names = fs.list(at(dir)).unwrap();
    names.sort();
    names
}

/// The outcomes of many cuts of the same moment.
fn outcomes<T: Ord>(fs: &SimFs, loss: Loss, look: impl Fn(&SimFs) -> T) -> BTreeSet<T> {
    (0..400).map(|seed| look(&fs.power_cut(loss, seed))).collect()
}

#[test]
fn a_name_is_durable_only_after_its_directory_was_synced() {
    let fs = with_dir(1);
    let mut file = put(&fs, "/d/a", b"x");
    file.sync_all().unwrap();
    assert!(names(&fs.power_cut(Loss::DropUnsynced, 0), "/d").is_empty());

    let fs = with_dir(1);
    put_synced(&fs, "/d/a", b"x");
    fs.rename(at("/d/a"), at("/d/b")).unwrap();
    assert_eq!(names(&fs.power_cut(Loss::DropUnsynced, 0), "/d"), ["a"]);
    assert_eq!(names(&fs.power_cut(Loss::KeepAll, 0), "/d"), ["b"]);

    let fs = with_dir(1);
    put_synced(&fs, "/d/a", b"x");
    fs.remove_file(at("/d/a")).unwrap();
    fs.create_dir_all(at("/d/e/f")).unwrap();
    assert_eq!(names(&fs.power_cut(Loss::DropUnsynced, 0), "/d"), ["a"]);
    assert_eq!(names(&fs.power_cut(Loss::KeepAll, 0), "/d"), ["e"]);
}

#[test]
fn a_directory_that_was_lost_takes_its_synced_files_with_it() {
    let fs = SimFs::new(1);
    fs.create_dir_all(at("/d/e")).unwrap();
    put_synced(&fs, "/d/e/a", b"x");
    fs.sync_dir(at("/d")).unwrap();
    assert!(names(&fs.power_cut(Loss::DropUnsynced, 0), "/").is_empty());
    fs.clone().power_cut(Loss::KeepAll, 0).content(at("/d/e/a")).unwrap();

    let fs = SimFs::new(1);
    fs.create_dir_all(at("/d/e")).unwrap();
    put_synced(&fs, "/d/e/a", b"x");
    fs.sync_dir(at("/d")).unwrap();
    fs.sync_dir(at("/")).unwrap();
    assert_eq!(fs.power_cut(Loss::DropUnsynced, 0).content(at("/d/e/a")).unwrap(), b"x");
}

#[test]
fn a_rename_over_a_durable_file_leaves_the_old_or_the_new_one() {
    let fs = with_dir(1);
    put_synced(&fs, "/d/CURRENT", b"old");
    put(&fs, "/d/tmp", b"new").sync_data().unwrap();
    fs.rename(at("/d/tmp"), at("/d/CURRENT")).unwrap();
    for loss in Loss::ALL {
        let seen = outcomes(&fs, loss, |fs| fs.content(at("/d/CURRENT")).unwrap());
        assert!(seen.iter().all(|content| content == b"old" || content == b"new"), "{loss:?}");
        let chance = matches!(loss, Loss::Random | Loss::Adversarial);
        assert_eq!(seen.len(), if chance { 2 } else { 1 }, "{loss:?}");
    }
}

#[test]
fn a_name_that_is_used_again_does_not_push_its_old_file_off_the_disk() {
    let fs = with_dir(1);
    put_synced(&fs, "/d/a", b"old");
    fs.rename(at("/d/a"), at("/d/b")).unwrap();
    put(&fs, "/d/a", b"new").sync_data().unwrap();
    for loss in Loss::ALL {
        for names in outcomes(&fs, loss, |fs| {
            ["/d/a", "/d/b"].map(|path| fs.content(at(path)).unwrap_or_default())
        }) {
            assert!(names.contains(&b"old".to_vec()), "{loss:?} {names:?}");
        }
    }
}

#[test]
fn changes_of_an_unsynced_directory_survive_in_any_order_if_the_disk_is_adverse() {
    let fs = with_dir(1);
    put_synced(&fs, "/d/old", b"old");
    put(&fs, "/d/new", b"new").sync_data().unwrap();
    fs.remove_file(at("/d/old")).unwrap();
    let seen = outcomes(&fs, Loss::Adversarial, |fs| names(fs, "/d"));
    let expected: [&[&str]; 4] = [&[], &["new"], &["new", "old"], &["old"]];
    let seen: Vec<Vec<&str>> =
        seen.iter().map(|names| names.iter().map(String::as_str).collect()).collect();
    assert_eq!(seen, expected);
    fs.power_cut(Loss::KeepAll, 0).sync_dir(at("/d")).unwrap();
}

#[test]
fn a_move_is_one_thing_whichever_directory_is_synced() {
    for synced in ["/d", "/e"] {
        let fs = with_dir(1);
        fs.create_dir_all(at("/e")).unwrap();
        fs.sync_dir(at("/")).unwrap();
        put_synced(&fs, "/d/a", b"x");
        fs.rename(at("/d/a"), at("/e/b")).unwrap();
        let before = outcomes(&fs, Loss::Adversarial, |fs| fs.files(at("/")));
        assert_eq!(before.len(), 2);
        assert!(before.iter().all(|files| files.len() == 1), "{before:?}");

        let fs = fs.power_cut(Loss::DropUnsynced, 0);
        fs.rename(at("/d/a"), at("/e/b")).unwrap();
        fs.sync_dir(at(synced)).unwrap();
        assert_eq!(fs.power_cut(Loss::DropUnsynced, 0).files(at("/")), [at("/e/b")]);
    }
}

#[test]
fn two_names_of_a_file_stay_two_names_of_one_file() {
    let fs = with_dir(1);
    put_synced(&fs, "/d/a", &[1; 2000]);
    fs.hard_link(at("/d/a"), at("/d/b")).unwrap();
    fs.sync_dir(at("/d")).unwrap();
    let after = fs.power_cut(Loss::Random, 3);
    after.set_content(at("/d/a"), b"changed".to_vec()).unwrap();
    assert_eq!(after.content(at("/d/b")).unwrap(), b"changed");
    after.remove_file(at("/d/a")).unwrap();
    after.sync_dir(at("/d")).unwrap();
    assert_eq!(after.power_cut(Loss::Random, 3).content(at("/d/b")).unwrap(), b"changed");
}

#[test]
fn sectors_and_length_of_an_unsynced_write_survive_independently() {
    let fs = with_dir(1);
    put_synced(&fs, "/d/old", &[9; 4096]);
    fs.remove_file(at("/d/old")).unwrap();
    let mut file = put(&fs, "/d/a", &[1; 600]);
    file.sync_data().unwrap();
    fs.sync_dir(at("/d")).unwrap();
    write_all(file.as_mut(), at("/d/a"), &[2; 1500]).unwrap();
    for (loss, fill) in [(Loss::Random, vec![0, 2]), (Loss::Adversarial, vec![0, 2, 9])] {
        let seen = outcomes(&fs, loss, |fs| fs.content(at("/d/a")).unwrap());
        let lens: BTreeSet<usize> = seen.iter().map(Vec::len).collect();
        assert_eq!((lens.first(), lens.last()), (Some(&600), Some(&2100)));
        assert!(lens.len() > 2, "an append is written back in parts");
        // Sectors of the longer outcome: the synced one is kept, the others are whole.
        let mut patterns = BTreeSet::new();
        for content in seen.iter().filter(|content| content.len() == 2100) {
            assert!(content[..600].iter().all(|&byte| byte == 1), "{loss:?}");
            let parts = [600..1024, 1024..1536, 1536..2048, 2048..2100];
            let pattern = parts.map(|part| {
                let first = content[part.start];
                assert!(content[part].iter().all(|&byte| byte == first), "a torn sector");
                first
            });
            assert!(pattern.iter().all(|byte| fill.contains(byte)), "{pattern:?}");
            patterns.insert(pattern);
        }
        assert!(patterns.len() >= 10, "{loss:?}: {patterns:?}");
        assert_eq!(patterns.iter().any(|p| p.contains(&9)), loss == Loss::Adversarial);
    }
}

#[test]
fn a_lost_truncation_brings_the_old_end_back() {
    let fs = with_dir(1);
    let mut file = put(&fs, "/d/a", &[1; 1000]);
    file.sync_data().unwrap();
    fs.sync_dir(at("/d")).unwrap();
    file.truncate(700).unwrap();
    assert_eq!(fs.content(at("/d/a")).unwrap().len(), 700);
    let lens = outcomes(&fs, Loss::Random, |fs| fs.content(at("/d/a")).unwrap().len());
    assert_eq!((lens.first(), lens.last()), (Some(&700), Some(&1000)));
    assert_eq!(fs.power_cut(Loss::DropUnsynced, 0).content(at("/d/a")).unwrap(), [1; 1000]);

    let fs = fs.power_cut(Loss::KeepAll, 0);
    assert_eq!(fs.content(at("/d/a")).unwrap(), [1; 700]);
}

/// One file of the model: every content since the last sync, the synced one first.
#[derive(Clone)]
struct ModelFile {
    versions: Vec<Vec<u8>>,
}

impl ModelFile {
    fn newest(&self) -> &Vec<u8> {
        self.versions.last().unwrap()
    }

    /// Returns true if `content` may be on the disk: its length is none that is shorter or longer
    /// than those that the file had, and each sector holds a version that it had.
    fn allows(&self, content: &[u8]) -> bool {
        let sector = |version: &[u8], number: usize| {
            let mut bytes = [0; SECTOR_BYTES];
            let there = version.get(number * SECTOR_BYTES..).unwrap_or_default();
            let n = there.len().min(SECTOR_BYTES);
            bytes[..n].copy_from_slice(&there[..n]);
            bytes
        };
        let lens = || self.versions.iter().map(Vec::len);
        (lens().min()..=lens().max()).contains(&Some(content.len()))
            && (0..content.len().div_ceil(SECTOR_BYTES)).all(|number| {
                let n = (content.len() - number * SECTOR_BYTES).min(SECTOR_BYTES);
                let found = sector(content, number);
                self.versions.iter().any(|version| sector(version, number)[..n] == found[..n])
            })
    }
}

/// The model: files by identity, and for every name all files that it stood for since the last sync
/// of the directory.
#[derive(Default)]
struct Model {
    files: Vec<ModelFile>,
    names: BTreeMap<String, Vec<Option<usize>>>,
}

impl Model {
    fn now(&self, name: &str) -> Option<usize> {
        self.names.get(name).and_then(|history| *history.last().unwrap())
    }

    fn set(&mut self, name: &str, file: Option<usize>) {
        self.names.entry(name.to_owned()).or_insert_with(|| vec![None]).push(file);
    }

    fn check(&self, fs: &SimFs, loss: Loss) {
        for (name, history) in &self.names {
            let content = fs.content(&at("/d").join(name)).ok();
            let allowed = |file: &Option<usize>| match (file, &content) {
                (None, None) => true,
                (Some(file), Some(content)) => match loss {
                    Loss::DropUnsynced => self.files[*file].versions[0] == *content,
                    Loss::KeepAll => self.files[*file].newest() == content,
                    _ => self.files[*file].allows(content),
                },
                _ => false,
            };
            let is_allowed = match loss {
                Loss::DropUnsynced => allowed(&history[0]),
                Loss::KeepAll => allowed(history.last().unwrap()),
                _ => history.iter().any(allowed),
            };
            assert!(is_allowed, "{loss:?} {name}: {history:?} {:?}", content.map(|c| c.len()));
        }
    }
}

/// One random history of a directory, with the model beside it.
fn random_history(seed: u64) -> (SimFs, Model) {
    let fs = with_dir(seed);
    let mut rng = SimRng::new(seed);
    let mut model = Model::default();
    let mut open: Vec<(usize, Box<dyn WritableFile>)> = Vec::new();
    for step in 0..rng.below(40) {
        let name = format!("{}", rng.below(4));
        let path = at("/d").join(&name);
        match rng.below(8) {
            0 | 1 if model.now(&name).is_none() => {
                open.push((model.files.len(), fs.create(&path).unwrap()));
                model.set(&name, Some(model.files.len()));
                model.files.push(ModelFile { versions: vec![Vec::new()] });
            }
            2 if model.now(&name).is_some() => {
                let to = format!("{}", rng.below(4));
                fs.rename(&path, &at("/d").join(&to)).unwrap();
                if model.now(&name) != model.now(&to) {
                    model.set(&to, model.now(&name));
                    model.set(&name, None);
                }
            }
            3 if model.now(&name).is_some() => {
                fs.remove_file(&path).unwrap();
                model.set(&name, None);
            }
            4 if rng.chance(1, 2) => {
                fs.sync_dir(at("/d")).unwrap();
                model.names.values_mut().for_each(|h| drop(h.drain(..h.len() - 1)));
            }
            5 | 6 if !open.is_empty() => {
                let place = rng.index(open.len());
                let (number, file) = &mut open[place];
                let mut content = model.files[*number].newest().clone();
                if rng.chance(1, 4) {
                    let len = rng.index(content.len() + 1);
                    file.truncate(len as u64).unwrap();
                    content.truncate(len);
                } else {
                    let bytes = vec![step as u8 + 1; 1 + rng.index(1200)];
                    let n = file.write(&bytes).unwrap();
                    content.extend_from_slice(&bytes[..n]);
                }
                model.files[*number].versions.push(content);
            }
            7 if !open.is_empty() => {
                let place = rng.index(open.len());
                let (number, file) = &mut open[place];
                file.sync_data().unwrap();
                let versions = &mut model.files[*number].versions;
                versions.drain(..versions.len() - 1);
            }
            _ => {}
        }
    }
    (fs, model)
}

#[test]
fn every_cut_leaves_what_the_model_allows() {
    for seed in 0..3000 {
        let (fs, model) = random_history(seed);
        for name in model.names.keys() {
            let content = fs.content(&at("/d").join(name)).ok();
            assert_eq!(content.as_ref(), model.now(name).map(|f| model.files[f].newest()));
        }
        // Without stale sectors, which the model does not know.
        for loss in [Loss::DropUnsynced, Loss::KeepAll, Loss::Random] {
            model.check(&fs.power_cut(loss, seed), loss);
        }
        let adverse = fs.power_cut(Loss::Adversarial, seed);
        assert_eq!(adverse.files(at("/")), fs.power_cut(Loss::Adversarial, seed).files(at("/")));
        // What came back is durable: a second cut changes nothing.
        let again = adverse.power_cut(Loss::DropUnsynced, 1);
        assert_eq!(adverse.files(at("/")), again.files(at("/")));
        for path in adverse.files(at("/")) {
            assert_eq!(adverse.content(&path).unwrap(), again.content(&path).unwrap());
        }
    }
}

#[test]
fn the_power_goes_during_the_chosen_change() {
    let run = |fs: &SimFs| -> io::Result<()> {
        fs.create_dir_all(at("/d"))?;
        fs.sync_dir(at("/"))?;
        let mut file = fs.create(at("/d/a"))?;
        file.write(b"hello")?;
        file.sync_data()?;
        fs.sync_dir(at("/d"))?;
        fs.rename(at("/d/a"), at("/d/b"))?;
        fs.list(at("/d"))?;
        fs.sync_dir(at("/d"))
    };
    let fs = SimFs::new(0);
    run(&fs).unwrap();
    let changes = fs.counts().changes;
    assert_eq!((changes, fs.counts().calls), (8, 9));
    for cut in 0..changes {
        let fs = SimFs::new(0);
        fs.cut_power_at(cut);
        run(&fs).unwrap_err();
        assert!(fs.is_dead());
        assert_eq!(fs.counts().changes, cut + 1);
        assert!(fs.list(at("/")).is_err() && fs.sync_dir(at("/")).is_err());
        assert_eq!(fs.counts().calls_after_cut, 2);
        // A sync under way has promised nothing, and a rename under way may have happened.
        let name = |fs: &SimFs| fs.files(at("/")).first().map(|p| p.display().to_string());
        let seen = outcomes(&fs, Loss::Adversarial, name);
        match cut {
            0..=2 => assert!(seen.contains(&None)),
            3..=5 => assert_eq!(seen, [None, Some("/d/a".to_owned())].into()),
            _ => assert_eq!(seen, ["/d/a", "/d/b"].map(|s| Some(s.to_owned())).into()),
        }
    }
    let fs = SimFs::new(0);
    fs.cut_power_at(changes);
    run(&fs).unwrap();
}

#[test]
fn a_failed_fsync_loses_what_a_later_one_does_not_bring_back() {
    let mut kept = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let fs = with_dir(seed);
        let mut file = put(&fs, "/d/a", b"first");
        file.sync_data().unwrap();
        fs.sync_dir(at("/d")).unwrap();
        write_all(file.as_mut(), at("/d/a"), b"second").unwrap();
        fs.inject(Matcher::any().kinds(&[CallKind::SyncData]), Fault::Eio, 1);
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
        seen.insert(fs.content(at("/d/a")).unwrap());
        write_all(file.as_mut(), at("/d/a"), b"third").unwrap();
        file.sync_data().unwrap();
        let content = fs.power_cut(Loss::KeepAll, 0).content(at("/d/a")).unwrap();
        assert!(content.starts_with(b"first") && content.ends_with(b"third"));
        kept.insert(content[5..content.len() - 5].to_vec());
    }
    // A beginning arrived, perhaps nothing or all.
    let beginning = |len: usize| [&b"second"[..len], &[0; 6][len..]].concat();
    assert!(kept.contains(&beginning(0)) && kept.contains(&beginning(6)));
    assert!(kept.iter().all(|bytes| (0..=6).any(|len| *bytes == beginning(len))), "{kept:?}");
    assert!(seen.contains(&b"firstsecond"[..]), "the page cache shows the new bytes");
    assert!(seen.contains(&b"first\0\0\0\0\0\0"[..]), "or has forgotten them");
}

#[test]
fn faults_befall_the_chosen_calls_and_no_others() {
    let fs = with_dir(0);
    let mut file = put(&fs, "/d/a.log", b"");
    fs.inject(Matcher::any().kinds(&[CallKind::Write]).name_suffix(".log"), Fault::Short(3), 1);
    fs.inject(Matcher::any().kinds(&[CallKind::Write]), Fault::Interrupted, 1);
    assert_eq!(file.write(b"hello").unwrap(), 3);
    assert_eq!(file.write(b"lo").unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(file.write(b"lo").unwrap(), 2);
    assert_eq!(fs.content(at("/d/a.log")).unwrap(), b"hello");

    fs.inject(Matcher::any().kinds(&[CallKind::Rename]), Fault::Eio, u64::MAX);
    for _ in 0..3 {
        assert!(fs.rename(at("/d/a.log"), at("/d/b")).is_err());
    }
    fs.clear_faults();
    let call = fs.counts().calls + 1;
    fs.inject(Matcher::any().calls(call..call + 1), Fault::NoSpace, u64::MAX);
    fs.rename(at("/d/a.log"), at("/d/b")).unwrap();
    assert_eq!(fs.remove_file(at("/d/b")).unwrap_err().kind(), ErrorKind::StorageFull);
    fs.remove_file(at("/d/b")).unwrap();
    assert_eq!(fs.counts().faults, 6);
    assert_eq!(fs.faulted_calls(), [(CallKind::Remove, PathBuf::from("/d/b"))]);
    assert_eq!(fs.counts().of(CallKind::Rename), 4);
}

#[test]
fn a_full_disk_writes_what_fits_until_space_is_freed() {
    let fs = with_dir(0);
    put(&fs, "/d/old", &[1; 100]);
    fs.set_free_bytes(Some(10));
    let mut file = fs.create(at("/d/a")).unwrap();
    assert_eq!(file.write(&[2; 8]).unwrap(), 8);
    assert_eq!(file.write(&[2; 8]).unwrap(), 2);
    assert_eq!(file.write(&[2; 8]).unwrap_err().kind(), ErrorKind::StorageFull);
    file.truncate(4).unwrap();
    assert_eq!(file.write(&[2; 8]).unwrap(), 6);
    fs.hard_link(at("/d/old"), at("/d/other")).unwrap();
    fs.remove_file(at("/d/old")).unwrap();
    assert!(file.write(&[2; 8]).is_err(), "the other name keeps the space");
    fs.remove_file(at("/d/other")).unwrap();
    assert_eq!(file.write(&[2; 8]).unwrap(), 8);
    fs.set_free_bytes(Some(0));
    assert!(file.write(&[2; 8]).is_err());
    fs.clear_faults();
    assert_eq!(file.write(&[2; 8]).unwrap(), 8);
}

#[test]
fn lies_about_syncs_are_kept_up_after_a_cut() {
    let mut fs = with_dir(0);
    fs.lie_about(Matcher::any().kinds(&[CallKind::SyncData]).name_suffix(".log"));
    for _ in 0..2 {
        put_synced(&fs, "/d/a.log", b"x");
        put_synced(&fs, "/d/a.sst", b"x");
        fs = fs.power_cut(Loss::DropUnsynced, 0);
        assert_eq!(fs.content(at("/d/a.log")).unwrap(), b"");
        assert_eq!(fs.content(at("/d/a.sst")).unwrap(), b"x");
        fs.remove_file(at("/d/a.log")).unwrap();
        fs.remove_file(at("/d/a.sst")).unwrap();
    }
}

#[test]
fn the_lock_is_exclusive_and_ends_with_its_holder_or_the_power() {
    let fs = with_dir(0);
    let held = fs.lock(at("/d/LOCK"), "me").unwrap();
    assert_eq!(fs.lock(at("/d/LOCK"), "you").err().unwrap().kind(), ErrorKind::WouldBlock);
    assert_eq!(fs.content(at("/d/LOCK")).unwrap(), b"me");
    drop(held);
    let _held = fs.lock(at("/d/LOCK"), "you").unwrap();
    assert_eq!(fs.content(at("/d/LOCK")).unwrap(), b"you");
    let after = fs.power_cut(Loss::KeepAll, 0);
    let _held_too = after.lock(at("/d/LOCK"), "they").unwrap();

    let fs = with_dir(0);
    fs.cut_power_at(fs.counts().changes);
    assert!(fs.lock(at("/d/LOCK"), "me").is_err());
}

#[test]
fn a_killed_process_leaves_what_it_wrote_and_nothing_more_durable() {
    let fs = with_dir(0);
    let held = fs.lock(at("/d/LOCK"), "me").unwrap();
    let mut file = put(&fs, "/d/a", b"x");
    let after = fs.kill();
    assert!(file.write(b"y").is_err() && fs.list(at("/")).is_err());
    assert_eq!(after.content(at("/d/a")).unwrap(), b"x");
    let _held = after.lock(at("/d/LOCK"), "you").unwrap();
    drop(held);
    assert!(after.lock(at("/d/LOCK"), "they").is_err(), "the dead one has no lock to give up");
    after.cut_power_at(after.counts().changes);
    assert!(after.rename(at("/d/a"), at("/d/b")).is_err());
    let after = after.kill();
    assert_eq!(after.content(at("/d/b")).unwrap(), b"x", "killed while renaming");
    after.sync_dir(at("/")).unwrap();
    assert!(after.power_cut(Loss::DropUnsynced, 0).files(at("/d")).is_empty());
}

#[test]
fn a_restless_disk_is_not_noticed_by_the_looping_helpers() {
    let fs = with_dir(5);
    fs.set_restless(300);
    let path = at("/d/a");
    let mut file = fs.create(path).unwrap();
    let bytes: Vec<u8> = (0..50_000_u32).map(|i| (i % 253) as u8).collect();
    for chunk in bytes.chunks(777) {
        write_all(file.as_mut(), path, chunk).unwrap();
        retry("fdatasync", path, || file.sync_data()).unwrap();
    }
    let counts = fs.counts();
    assert!(counts.of(CallKind::Write) > 70 && counts.of(CallKind::SyncData) > 70);
    for mode in [ReadMode::Buffered, ReadMode::Direct] {
        let reader = fs.open(path, mode).unwrap();
        let mut buf = crate::io::AlignedBuf::new(49_152);
        read_exact_at(reader.as_ref(), path, &mut buf, 0).unwrap();
        assert_eq!(buf[..], bytes[..49_152]);
    }
    let direct = fs.open(path, ReadMode::Direct).unwrap();
    assert!(direct.read_at(&mut [0; 100], 0).is_err(), "not aligned");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let (fs, _) = random_history(77);
    let (twin, _) = random_history(77);
    let cut = |fs: &SimFs| {
        let after = fs.power_cut(Loss::Adversarial, 9);
        let files = after.files(at("/"));
        files.iter().map(|path| (path.clone(), after.content(path).unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(cut(&fs), cut(&twin));
    assert_eq!(fs.counts(), twin.counts());
}

#[test]
fn threads_share_a_file_system() {
    let fs = with_dir(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                for i in 0..50 {
                    put_synced(fs, &format!("/d/{thread}-{i}"), &[thread; 100]);
                }
            });
        }
    });
    assert_eq!(fs.power_cut(Loss::DropUnsynced, 0).files(at("/d")).len(), 200);
}

#[test]
fn the_clock_moves_only_when_told() {
    use crate::io::Clock;
    let clock = SimClock::new();
    let start = clock.now();
    assert_eq!(clock.now(), start);
    clock.clone().sleep(std::time::Duration::from_secs(3600));
    assert_eq!(clock.now() - start, std::time::Duration::from_secs(3600));
}

#[test]
fn a_copy_shares_nothing_with_its_original() {
    let fs = with_dir(3);
    put_synced(&fs, "/d/a", b"synced");
    let mut file = put(&fs, "/d/b", b"written");
    fs.hard_link(at("/d/a"), at("/d/c")).unwrap();
    let copy = fs.copy();
    // What is not durable in one is not durable in the other.
    assert_eq!(names(&copy.copy().power_cut(Loss::DropUnsynced, 0), "/d"), ["a"]);
    assert_eq!(names(&copy.copy().power_cut(Loss::KeepAll, 0), "/d"), ["a", "b", "c"]);
    let killed = copy.copy().kill();
    assert_eq!(killed.content(at("/d/b")).unwrap(), b"written");
    // Two names of one file are that in the copy, too.
    copy.set_content(at("/d/c"), b"changed".to_vec()).unwrap();
    assert_eq!(copy.content(at("/d/a")).unwrap(), b"changed");
    assert_eq!(fs.content(at("/d/a")).unwrap(), b"synced");
    write_all(file.as_mut(), at("/d/b"), b" on").unwrap();
    fs.remove_file(at("/d/a")).unwrap();
    assert_eq!(names(&copy, "/d"), ["a", "b", "c"]);
    assert_eq!(copy.content(at("/d/b")).unwrap(), b"written");
}

#[test]
fn a_write_may_fail_after_some_of_it_or_all_has_arrived() {
    for (kept, found) in [(0, &b"ab"[..]), (2, b"abcd"), (usize::MAX, b"abcde")] {
        let fs = with_dir(0);
        let mut file = put(&fs, "/d/a", b"ab");
        fs.inject(Matcher::any(), Fault::EioAfter(kept), 1);
        assert_eq!(file.write(b"cde").unwrap_err().raw_os_error(), Some(5));
        assert_eq!(fs.content(at("/d/a")).unwrap(), found);
        fs.inject(Matcher::any(), Fault::EioAfter(kept), 1);
        assert_eq!(fs.remove_file(at("/d/a")).unwrap_err().raw_os_error(), Some(5));
        assert_eq!(names(&fs, "/d"), ["a"], "other calls do nothing");
    }
}

#[test]
fn faults_can_be_told_by_the_number_of_the_change() {
    let fs = with_dir(0);
    let next = fs.counts().changes + 1;
    fs.inject(Matcher::any().changes(next..next + 1), Fault::Eio, u64::MAX);
    let mut file = put(&fs, "/d/a", b"");
    assert_eq!(names(&fs, "/d"), ["a"], "reads and lists are not counted");
    assert!(file.write(b"x").is_err());
    assert_eq!(file.write(b"x").unwrap(), 1);
    assert_eq!(fs.faulted_calls().len(), 1);
}

#[test]
fn what_the_system_writes_back_is_durable_without_a_sync() {
    for (per_mille, found) in [(0, &b""[..]), (1000, b"first")] {
        let fs = with_dir(0);
        let mut file = put(&fs, "/d/a", b"");
        fs.sync_dir(at("/d")).unwrap();
        fs.set_write_back(per_mille);
        write_all(file.as_mut(), at("/d/a"), b"first").unwrap();
        assert_eq!(fs.power_cut(Loss::DropUnsynced, 0).content(at("/d/a")).unwrap(), found);
    }
}
