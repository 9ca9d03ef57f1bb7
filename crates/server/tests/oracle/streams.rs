//! Random commands on streams: few identifiers, groups and consumers, so that they meet.

use rhumb_testkit::random::Random;

type Command = Vec<Vec<u8>>;

const KEYS: [&str; 4] = ["s0", "s1", "s2", "list"];
const GROUPS: [&str; 3] = ["g0", "g1", "streams"];
const CONSUMERS: [&str; 3] = ["c0", "c1", "c2"];
const ADDED: [&str; 8] = ["1-*", "2-*", "3-*", "3-1", "4-*", "5", "8-*", "0-*"];
const IDS: [&str; 15] = [
    "0",
    "1",
    "1-0",
    "1-1",
    "2-1",
    "2-2",
    "3",
    "3-2",
    "4-1",
    "5-0",
    "x",
    "1-",
    "007-1",
    "18446744073709551615-18446744073709551615",
    "6-1",
];
const ENDS: [&str; 12] = [
    "-",
    "+",
    "1",
    "(1",
    "2-1",
    "(2-1",
    "3-2",
    "(0-0",
    "5",
    "(5-0",
    "(-",
    "(18446744073709551615-18446744073709551615",
];
const COUNTS: [&str; 7] = ["0", "1", "2", "3", "10", "-1", "x"];

/// Makes commands from a seed.
pub(crate) struct Streams {
    random: Random,
}

impl Streams {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.index(end)
    }

    fn pick(&mut self, from: &[&str]) -> String {
        from[self.below(from.len())].to_owned()
    }

    fn key(&mut self) -> String {
        if self.below(30) == 0 { self.pick(&KEYS) } else { format!("s{}", self.below(2)) }
    }

    fn some(&mut self, words: &mut Vec<String>, from: &[&str]) {
        for _ in 0..=self.below(3) {
            words.push(self.pick(from));
        }
    }

    fn maybe(&mut self, words: &mut Vec<String>, option: &str, from: &[&str]) {
        if self.below(2) == 0 {
            words.push(option.to_owned());
            words.push(self.pick(from));
        }
    }

    fn trim(&mut self, words: &mut Vec<String>) {
        match self.below(8) {
            0..=3 => {
                words.push("MAXLEN".to_owned());
                words.extend((self.below(3) == 0).then(|| "=".to_owned()));
                words.push(self.pick(&["0", "1", "2", "5", "8", "-1", "x"]));
            }
            4..=6 => {
                words.push("minid".to_owned());
                words.push(self.pick(&IDS));
            }
            _ => words.extend(["MAXLEN", "~", "1000"].map(str::to_owned)),
        }
        self.below(12).eq(&0).then(|| words.extend(["LIMIT", "1"].map(str::to_owned)));
    }

    /// The next command, and one that is to come before it.
    pub(crate) fn commands(&mut self) -> Vec<Command> {
        let key = self.key();
        let (group, consumer) = (self.pick(&GROUPS), self.pick(&CONSUMERS));
        let mut all = Vec::new();
        let words: Vec<String> = match self.below(40) {
            0..=9 => {
                let mut words = vec!["XADD".to_owned(), key];
                words.extend((self.below(12) == 0).then(|| "NOMKSTREAM".to_owned()));
                if self.below(6) == 0 {
                    self.trim(&mut words);
                }
                words.push(self.pick(&ADDED));
                for _ in 0..=self.below(2) {
                    words.extend([self.pick(&["f", "g"]), self.pick(&["", "v", "long value"])]);
                }
                words
            }
            10..=18 => self.entries(key),
            19..=20 => self.group(key, group, consumer),
            21 => {
                // Redis 7.2 refuses one before what XDEL has removed, which 7.0 does not.
                let id = self.pick(&["6-1", "7-1", "x"]);
                let mut words = vec!["XSETID".to_owned(), key, id];
                self.maybe(&mut words, "ENTRIESADDED", &["0", "5", "100", "-1"]);
                let removed: Vec<&str> = IDS.into_iter().filter(|id| *id != "007-1").collect();
                self.maybe(&mut words, "MAXDELETEDID", &removed);
                words
            }
            22..=28 => {
                self.make_consumer(&mut all, &key, &group, &consumer);
                let mut words = vec!["XREADGROUP".to_owned(), "GROUP".to_owned(), group, consumer];
                self.maybe(&mut words, "COUNT", &COUNTS);
                words.extend((self.below(6) == 0).then(|| "NOACK".to_owned()));
                words.extend(["STREAMS".to_owned(), key]);
                if self.below(5) == 0 {
                    let other = self.key();
                    self.make_consumer(&mut all, &other, &words[2].clone(), &words[3].clone());
                    words.extend([other, ">".to_owned()]);
                }
                words.push(self.pick(&[">", ">", ">", "0", "1-1", "2", "$", "x"]));
                words
            }
            29..=30 => {
                let mut words = vec!["XACK".to_owned(), key, group];
                self.some(&mut words, &IDS);
                words
            }
            31 => vec!["XPENDING".to_owned(), key, group],
            32 => {
                let mut words = vec!["XPENDING".to_owned(), key, group];
                words.extend(
                    (self.below(4) == 0)
                        .then(|| ["IDLE", "0"].map(str::to_owned))
                        .into_iter()
                        .flatten(),
                );
                words.extend([self.pick(&ENDS), self.pick(&ENDS), self.pick(&COUNTS)]);
                words.extend((self.below(2) == 0).then_some(consumer));
                words
            }
            33..=35 => {
                self.make_consumer(&mut all, &key, &group, &consumer);
                self.claim(key, group, consumer)
            }
            36 => vec!["XINFO".to_owned(), self.pick(&["STREAM", "GROUPS"]), key],
            37 => {
                let mut words =
                    vec!["XINFO".to_owned(), "STREAM".to_owned(), key, "FULL".to_owned()];
                self.maybe(&mut words, "COUNT", &COUNTS);
                words
            }
            38 => vec!["XINFO".to_owned(), "CONSUMERS".to_owned(), key, group],
            _ => self.other(key),
        };
        all.push(words.into_iter().map(String::into_bytes).collect());
        all
    }

    fn entries(&mut self, key: String) -> Vec<String> {
        match self.below(9) {
            0..=1 => {
                let mut words = vec!["XDEL".to_owned(), key];
                self.some(&mut words, &IDS);
                words
            }
            2 => {
                let mut words = vec!["XTRIM".to_owned(), key];
                self.trim(&mut words);
                words
            }
            3 => vec!["XLEN".to_owned(), key],
            4..=6 => {
                let name = self.pick(&["XRANGE", "XREVRANGE"]);
                let mut words = vec![name, key, self.pick(&ENDS), self.pick(&ENDS)];
                self.maybe(&mut words, "COUNT", &COUNTS);
                words
            }
            _ => {
                let mut words = vec!["XREAD".to_owned()];
                self.maybe(&mut words, "COUNT", &COUNTS);
                let other = self.key();
                let (first, second) = (self.pick(&IDS), self.pick(&["0", "$", "2", ">"]));
                words.extend(["STREAMS".to_owned(), key, other, first, second]);
                words
            }
        }
    }

    /// Redis 7.2 makes the consumer in any case, and 7.0 if there is something for it.
    fn make_consumer(&self, all: &mut Vec<Command>, key: &str, group: &str, consumer: &str) {
        let words = ["XGROUP", "CREATECONSUMER", key, group, consumer];
        all.push(words.iter().map(|word| word.as_bytes().to_vec()).collect());
    }

    fn group(&mut self, key: String, group: String, consumer: String) -> Vec<String> {
        let mut words = vec!["XGROUP".to_owned()];
        match self.below(12) {
            0..=4 => {
                words.extend(["CREATE".to_owned(), key, group, self.pick(&["0", "$", "2-1", "x"])]);
                words.extend((self.below(3) > 0).then(|| "MKSTREAM".to_owned()));
                self.maybe(&mut words, "ENTRIESREAD", &["0", "1", "-1", "-2", "x"]);
            }
            5..=7 => {
                let id = self.pick(&["0", "$", "1-1", "3", "-", "9"]);
                words.extend(["SETID".to_owned(), key, group, id]);
                self.maybe(&mut words, "ENTRIESREAD", &["0", "3", "-1"]);
            }
            8 => words.extend(["DESTROY".to_owned(), key, group]),
            9..=10 => words.extend(["DELCONSUMER".to_owned(), key, group, consumer]),
            _ => words.extend(["CREATECONSUMER".to_owned(), key, group, consumer]),
        }
        words
    }

    fn claim(&mut self, key: String, group: String, consumer: String) -> Vec<String> {
        let idle = self.pick(&["0", "0", "0", "100000000", "-5", "x"]);
        if self.below(2) == 0 {
            let mut words = vec!["XAUTOCLAIM".to_owned(), key, group, consumer, idle];
            words.push(self.pick(&["0", "-", "1-1", "(1-1", "3"]));
            self.maybe(&mut words, "COUNT", &["1", "2", "100", "0", "x"]);
            words.extend((self.below(3) == 0).then(|| "JUSTID".to_owned()));
            return words;
        }
        let mut words = vec!["XCLAIM".to_owned(), key, group, consumer, idle];
        self.some(&mut words, &IDS[..10]);
        words.extend((self.below(3) == 0).then(|| "FORCE".to_owned()));
        words.extend((self.below(4) == 0).then(|| "JUSTID".to_owned()));
        if self.below(3) == 0 {
            self.maybe(&mut words, "RETRYCOUNT", &["0", "7", "-1", "x"]);
            self.maybe(&mut words, "TIME", &["1000", "-1", "x"]);
            self.maybe(&mut words, "LASTID", &IDS);
        }
        words
    }

    fn other(&mut self, key: String) -> Vec<String> {
        let to = self.key();
        let words: Vec<&str> = match self.below(12) {
            0..=3 => vec!["COPY", &key, &to, "REPLACE"],
            4 => vec!["RENAME", &key, &to],
            5 => vec!["DEL", &key],
            6 => vec!["TYPE", &key],
            7 => vec!["OBJECT", "ENCODING", &key],
            8 => vec!["MULTI"],
            9 => vec!["EXPIREAT", &key, "99999999999"],
            10 => vec!["PERSIST", &key],
            _ => vec!["EXEC"],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}
