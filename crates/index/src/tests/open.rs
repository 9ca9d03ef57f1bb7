//! Keys that come in order where no line predicts the next ones.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use super::{super::Index, Random, SCALE, assert_same};

/// Ascending keys of very different kinds.
fn runs(len: u64) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut random = Random::new(7);
    let mut text = |f: &dyn Fn(u64) -> String| {
        let mut keys: Vec<Vec<u8>> = (0..len).map(|_| f(random.next()).into_bytes()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    vec![
        ("digits", text(&|r| format!("{r:020}"))),
        ("hex", text(&|r| format!("{r:016x}"))),
        ("shared", text(&|r| format!("{}{:x}", "/a-long-way/".repeat((r % 9) as usize), r >> 7))),
        ("short", text(&|r| format!("{:b}", r >> (r % 64)))),
        ("ties", text(&|r| format!("{:04}eight more and {:09}", r % 20, r >> 30))),
    ]
}

#[test]
fn appended_keys_are_copied_seldom() {
    for (name, keys) in runs(40_000 / SCALE as u64) {
        let index = Index::new();
        for (i, key) in (0..).zip(&keys) {
            assert_eq!(index.insert(key.clone(), i), None);
            assert_eq!(index.get(&keys[i as usize / 2]), Some(i / 2));
        }
        assert_same(&index, &keys.iter().cloned().zip(0_u64..).collect());
        let stats = index.stats();
        println!("{name}: {stats:?}");
        if SCALE == 1 && name != "ties" {
            // Eight bytes tell only a few of the binary numbers apart.
            let once_in = if name == "short" { 64 } else { 250 };
            assert!(stats.retrains < keys.len() as u64 / once_in, "{name}: {stats:?}");
            assert!(stats.fill > 0.6, "{name}: {stats:?}");
        }
        // Leaves that appends have passed take more keys, and are emptied, as any other.
        for (i, key) in (0..).zip(&keys) {
            let more = [key, &b"+"[..]].concat();
            assert_eq!(index.insert(more.clone(), i), None);
            assert_eq!(index.remove(key), Some(i));
            assert_eq!(index.get(&more), Some(i));
        }
        assert_eq!(index.iter().count(), keys.len());
    }
}

/// A key that comes after its successor sometimes finds the last bucket full, and belongs into it.
#[test]
fn keys_that_come_late_are_where_they_belong() {
    for (name, mut keys) in runs(40_000 / SCALE as u64) {
        keys.chunks_exact_mut(3).for_each(|three| three.swap(1, 2));
        let index = Index::new();
        for (i, key) in (0..).zip(&keys) {
            assert_eq!(index.insert(key.clone(), i), None, "{name}");
        }
        for (i, key) in (0_u64..).zip(&keys) {
            assert_eq!(index.get(key), Some(i), "{name}");
        }
        assert_same(&index, &keys.iter().cloned().zip(0_u64..).collect());
    }
}

#[test]
fn appended_integers_are_copied_seldom() {
    let mut random = Random::new(11);
    let mut keys: Vec<u64> = (0..40_000 / SCALE).map(|_| random.next() >> 1).collect();
    keys.extend([0, u64::MAX / 2 + 1, u64::MAX - 2, u64::MAX - 1, u64::MAX]);
    keys.sort_unstable();
    let index = Index::new();
    for (i, key) in (0..).zip(&keys) {
        assert_eq!(index.insert(*key, i), None);
    }
    assert_same(&index, &keys.iter().copied().zip(0_u64..).collect());
    let stats = index.stats();
    println!("{stats:?}");
    if SCALE == 1 {
        assert!(stats.retrains < keys.len() as u64 / 250, "{stats:?}");
        assert!(stats.fill > 0.6, "{stats:?}");
    }
}

#[test]
fn threads_that_append_by_turns_lose_nothing() {
    for (name, keys) in runs(60_000 / SCALE as u64) {
        let (index, next) = (Index::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(key) = keys.get(at as usize) else { return };
                        assert_eq!(index.insert(key.clone(), at), None);
                        assert_eq!(index.get(key), Some(at), "{name}");
                    }
                });
            }
            scope.spawn(|| {
                while next.load(Ordering::Relaxed) < keys.len() as u64 {
                    let seen: Vec<_> = index.iter().rev().take(300).collect();
                    assert!(seen.is_sorted_by(|a, b| a.0 > b.0), "{name}");
                }
            });
        });
        assert_same(&index, &keys.iter().cloned().zip(0_u64..).collect());
    }
}
