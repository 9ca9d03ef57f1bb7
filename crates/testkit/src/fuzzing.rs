//! A short form of fuzzing, which needs no fuzzer: a target runs over its seeds and over what is
//! near them.

use std::{
    panic::catch_unwind,
    time::{Duration, Instant, SystemTime},
};

use crate::random::Random;

/// The most bytes that a mutant has replaced.
const CHANGES_MAX: u64 = 7;
/// A mutant is longer than its seed by less than this, in bytes.
const TAIL_BYTES_END: u64 = 200;
/// Values that lengths, counts and tags have at their limits.
const LIMITS: [u8; 4] = [0, 1, 0x80, 0xff];

/// Runs `target` over `seeds`, over no bytes, and over `mutants` mutants of the seeds, or for as
/// many seconds as `RHUMB_FUZZ_SECONDS` says. The mutants are others in every run.
///
/// # Panics
/// If the target panics: the message has the bytes. Also if there are no seeds, or the variable is
/// no number.
pub fn run(name: &str, seeds: &[Vec<u8>], mutants: u64, target: fn(&[u8])) {
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let attempt = |bytes: &[u8]| {
        let outcome = catch_unwind(|| target(bytes));
        assert!(outcome.is_ok(), "{name} fails for {bytes:?}");
    };
    seeds.iter().for_each(|seed| attempt(seed));
    attempt(&[]);
    let seconds = std::env::var("RHUMB_FUZZ_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().expect("RHUMB_FUZZ_SECONDS is a number"));
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let mut random = Random::new(now);
    let mut tried = 0;
    while until.map_or(tried < mutants, |until| Instant::now() < until) {
        attempt(&mutant(&mut random, seeds));
        tried += 1;
    }
    println!("{name}: {tried} changed seeds");
}

/// One of the seeds, with some of its bytes replaced, perhaps cut, and perhaps with bytes after it.
///
/// # Panics
/// If there are no seeds.
#[must_use]
pub fn mutant(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.index(seeds.len())].clone();
    if !bytes.is_empty() {
        for _ in 0..random.below(CHANGES_MAX + 1) {
            let at = random.index(bytes.len());
            let limit = LIMITS[random.index(LIMITS.len())];
            bytes[at] = if random.one_in(2) { random.next() as u8 } else { limit };
        }
        if random.one_in(10) {
            bytes.truncate(random.index(bytes.len()));
        }
    }
    if random.one_in(5) {
        bytes.extend((0..random.below(TAIL_BYTES_END)).map(|_| random.next() as u8));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u8; 40] = [7; 40];

    #[test]
    fn mutants_are_changed_cut_and_longer() {
        let (mut random, seeds) = (Random::new(1), [SEED.to_vec()]);
        let mutants: Vec<_> = (0..1000).map(|_| mutant(&mut random, &seeds)).collect();
        let changes = |bytes: &[u8]| bytes.iter().zip(SEED).filter(|(a, b)| **a != *b).count();
        assert!(mutants.iter().any(|bytes| bytes.len() < 40));
        assert!(mutants.iter().any(|bytes| bytes.len() > 40));
        assert!(mutants.iter().any(|bytes| bytes[..] == SEED));
        let whole = mutants.iter().filter(|bytes| bytes.len() == SEED.len());
        assert_eq!(whole.map(|bytes| changes(bytes)).max(), Some(CHANGES_MAX as usize));
        assert!(mutant(&mut random, &[vec![]]).len() < TAIL_BYTES_END as usize);
    }

    #[test]
    #[should_panic(expected = "fails for [9, 9]")]
    fn a_target_that_panics_is_told_of_with_its_bytes() {
        run("target", &[vec![7], vec![9, 9]], 0, |bytes| assert_ne!(bytes, [9, 9]));
    }

    #[test]
    #[should_panic(expected = "fails for ")]
    fn a_target_that_panics_for_what_is_near_a_seed_is_found() {
        run("target", &[SEED.to_vec()], 1000, |bytes| assert!(!bytes.contains(&0x80)));
    }
}
