//! Random commands on lists, sets, hashes and keys: those that move, compare, sort and wait.

use rhumb_testkit::random::Random;

const VALUES: [&str; 8] = ["", "a", "b", "10", "-5", "3.5", "x y", "99"];
const TIMEOUTS: [&str; 8] = ["0.001", "0.001", "0.001", "0.001", "0.001", "0.001", "-1", "x"];
const ENDS: [&str; 6] = ["LEFT", "RIGHT", "left", "Right", "LEFT", "up"];
const COUNTS: [&str; 7] = ["1", "2", "3", "0", "-1", "x", "9223372036854775808"];
const LIMITS: [&str; 6] = ["0", "1", "2", "-1", "x", "100"];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.index(from.len())]
}

/// A key that mostly has this type: those of the other generator.
fn key(random: &mut Random, kind: usize) -> String {
    if random.index(16) == 0 {
        return format!("k{}", random.index(14));
    }
    format!("t{kind}{}", random.index(4))
}

fn keys(random: &mut Random, kind: usize) -> Vec<String> {
    (0..=random.index(3)).map(|_| key(random, kind)).collect()
}

/// A number of keys, mostly the right one, and the keys.
fn counted(random: &mut Random, kind: usize) -> Vec<String> {
    let keys = keys(random, kind);
    let count = match random.index(12) {
        0 => pick(random, &COUNTS).to_owned(),
        _ => keys.len().to_string(),
    };
    std::iter::once(count).chain(keys).collect()
}

fn option(random: &mut Random, name: &str, from: &[&str]) -> Vec<String> {
    if random.index(3) == 0 { words(&[name, pick(random, from)]) } else { Vec::new() }
}

/// A command.
pub(crate) fn command(random: &mut Random) -> Vec<String> {
    match random.index(2) {
        0 => list(random),
        _ => set(random),
    }
}

fn list(random: &mut Random) -> Vec<String> {
    let (one, other) = (key(random, 3), key(random, 3));
    let (from, to) = (pick(random, &ENDS), pick(random, &ENDS));
    let timeout = pick(random, &TIMEOUTS);
    match random.index(9) {
        0 => words(&["LMOVE", &one, &other, from, to]),
        1 => words(&["RPOPLPUSH", &one, &other]),
        2 => words(&["BLMOVE", &one, &other, from, to, timeout]),
        3 => words(&["BRPOPLPUSH", &one, &other, timeout]),
        4 => {
            let name = pick(random, &["BLPOP", "BRPOP"]);
            [words(&[name]), keys(random, 3), words(&[timeout])].concat()
        }
        5 => [
            words(&["LMPOP"]),
            counted(random, 3),
            words(&[from]),
            option(random, "COUNT", &COUNTS),
        ]
        .concat(),
        6 => [
            words(&["BLMPOP", timeout]),
            counted(random, 3),
            words(&[from]),
            option(random, "COUNT", &COUNTS),
        ]
        .concat(),
        _ => [
            words(&["LPOS", &one, pick(random, &VALUES)]),
            option(random, "RANK", &["1", "2", "-1", "-2", "0", "x"]),
            option(random, "COUNT", &LIMITS),
            option(random, "MAXLEN", &LIMITS),
        ]
        .concat(),
    }
}

fn set(random: &mut Random) -> Vec<String> {
    match random.index(6) {
        0 => {
            let member = format!("m{}", random.index(8));
            words(&["SMOVE", &key(random, 4), &key(random, 4), &member])
        }
        1..=2 => {
            let name = pick(random, &["SINTER", "SUNION", "SDIFF"]);
            [words(&[name]), keys(random, 4)].concat()
        }
        3 => {
            [words(&["SINTERCARD"]), counted(random, 4), option(random, "LIMIT", &LIMITS)].concat()
        }
        _ => {
            let name = pick(random, &["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]);
            [words(&[name, &key(random, 4)]), keys(random, 4)].concat()
        }
    }
}
