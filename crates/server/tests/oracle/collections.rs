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
    match random.index(3) {
        0 => list(random),
        1 => set(random),
        _ => other(random),
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

const NUMBERS: [&str; 7] = ["1", "2", "3", "4", "-5", "3.5", "10"];
const WEIGHTS: [&str; 6] = ["1", "2", " 3", "-1", "", "x"];

/// A collection of numbers, which `SORT` sorts: a list, a set or a sorted set.
fn numbers(random: &mut Random) -> String {
    format!("{}{}", pick(random, &["nl", "nl", "ns", "nz"]), random.index(2))
}

/// A command that sorts, or writes what is sorted.
pub(crate) fn sort(random: &mut Random) -> Vec<String> {
    let number = pick(random, &NUMBERS);
    match random.index(9) {
        0 => words(&["RPUSH", &format!("nl{}", random.index(2)), number, pick(random, &NUMBERS)]),
        1 => words(&["SADD", &format!("ns{}", random.index(2)), number]),
        2 => words(&["ZADD", &format!("nz{}", random.index(2)), pick(random, &NUMBERS), number]),
        3 => words(&["SET", &format!("w{number}"), pick(random, &WEIGHTS)]),
        4 => words(&["HSET", &format!("h{number}"), "f", pick(random, &NUMBERS)]),
        _ => sorted(random),
    }
}

fn sorted(random: &mut Random) -> Vec<String> {
    let key = if random.index(12) == 0 { key(random, 3) } else { numbers(random) };
    let mut sort = words(&[pick(random, &["SORT", "SORT", "SORT_RO"]), &key]);
    for _ in 0..random.index(4) {
        let alpha = sort.iter().any(|word| word == "ALPHA");
        let by = sort.iter().any(|word| word == "BY");
        let option = match random.index(7) {
            0 => words(&["LIMIT", pick(random, &LIMITS), pick(random, &LIMITS)]),
            1 => words(&["GET", pick(random, &["#", "w*", "h*->f", "h*->", "nosuch", "w*->f"])]),
            2 => words(&[pick(random, &["ASC", "DESC"])]),
            // What is equal has no order in Redis there.
            3 if !by => words(&["ALPHA"]),
            // Members of a set have none either.
            4 if !alpha && !key.starts_with("ns") => words(&["BY", "nosort"]),
            4 | 5 if !alpha => words(&["BY", pick(random, &["w*", "h*->f", "w*x"])]),
            _ => words(&["STORE", &format!("nl{}", random.index(2))]),
        };
        sort.extend(option);
    }
    sort
}

fn other(random: &mut Random) -> Vec<String> {
    let kind = random.index(5);
    match random.index(5) {
        0 => words(&["MOVE", &key(random, kind), pick(random, &["0", "1", "2", "x", "99"])]),
        1 => {
            let name = pick(random, &["HRANDFIELD", "hrandfield"]);
            let count = pick(random, &["0", "100", "x", "9223372036854775807", "1.5"]);
            let more = [&[][..], &["WITHVALUES"], &["NOSUCH"]][random.index(3)];
            [words(&[name, &key(random, 1), count]), words(more)].concat()
        }
        2 => {
            let text = pick(random, &["ohmytext", "abcabc", "bcacb", ""]);
            words(&["SET", &format!("x{}", random.index(3)), text])
        }
        _ => {
            let (one, other) = (random.index(3), random.index(3));
            let mut lcs = words(&["LCS", &format!("x{one}"), &format!("x{other}")]);
            for _ in 0..random.index(4) {
                let option: &[&str] =
                    [&["IDX"][..], &["LEN"], &["WITHMATCHLEN"], &["MINMATCHLEN", "2"]]
                        [random.index(4)];
                lcs.extend(words(option));
            }
            lcs
        }
    }
}
