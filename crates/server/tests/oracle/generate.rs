//! Random commands: few keys, fields and members, so that they meet; some wrong ones.

#[path = "sorted_sets.rs"]
mod sorted_sets;

use rhumb_testkit::random::Random;

use super::{bits_and_places, scripts, shares::Shares};

/// Makes commands from a seed.
pub(crate) struct Generator {
    random: Random,
    in_multi: bool,
    shares: Shares,
}

type Command = Vec<Vec<u8>>;

const SCORES: [&str; 18] = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1.5",
    "2.25",
    "-3.5",
    "inf",
    "-inf",
    "100",
    "1e3",
    "abc",
    "0.1",
    "1e400",
    "-1e-400",
    "1e-320",
    "+Infinity",
];
const INTEGERS: [&str; 12] =
    ["0", "1", "2", "5", "-1", "-3", "10", "9223372036854775807", "abc", "3.0", "", "007"];
const INDEXES: [&str; 9] = ["0", "1", "2", "-1", "-2", "5", "-5", "100", "x"];
/// Small ones: where 64 bits are not enough, Redis rounds and this server does not.
const DECIMALS: [&str; 20] = [
    "0", "1", "0.1", "-0.25", "10.5", "3.125", "abc", "-7", "2.50", "1e-05", "2e-1", "-5E-3",
    "25e-1", ".5", "5.", "1e", "1e-400", "inf", "nan", " 1",
];
const VALUES: [&str; 9] = ["", "a", "hello", "10", "-5", "3.5", "hello world", "x\r\ny", "99"];
const LEX: [&str; 10] = ["-", "+", "[m1", "(m1", "[m3", "(m5", "[m", "[z", "m1", "(m0"];
const SCORE_ENDS: [&str; 16] = [
    "-inf", "+inf", "0", "1", "(1", "(2", "3", "-3.5", "(inf", "100", "x", "1e400", "(-1e400", "",
    "(", " 1e-400",
];
const PATTERNS: [&str; 8] = ["*", "k*", "k?", "k1*", "[kl]1", "nothing", "k[^1]", "?1"];
/// Far ahead, and the moment is told, so that both servers give the same.
const AHEAD: [&str; 3] = ["99999999999", "88888888888", "abc"];
const AHEAD_MS: [&str; 3] = ["99999999999999", "88888888888888", "0"];
const MOMENTS: [&str; 5] = ["99999999999", "88888888888", "1", "-5", "abc"];
const MOMENTS_MS: [&str; 4] = ["99999999999999", "88888888888888", "1", "abc"];

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), in_multi: false, shares: Shares::from_environment() }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.index(end)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn key(&mut self) -> String {
        // Mostly a key of one type, at times any.
        format!("k{}", self.below(14))
    }

    /// A key that mostly has this type.
    fn key_of(&mut self, kind: usize) -> String {
        if self.one_in(12) { self.key() } else { format!("t{kind}{}", self.below(4)) }
    }

    fn some(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> String) -> Vec<String> {
        let len = 1 + self.below(most);
        (0..len).map(|_| one(self)).collect()
    }

    fn member(&mut self) -> String {
        format!("m{}", self.below(8))
    }

    /// Commands that are sent together.
    pub(crate) fn batch(&mut self) -> Vec<Command> {
        let len = if self.one_in(3) { 1 + self.below(30) } else { 1 };
        let one_kind = self.one_in(4).then(|| self.below(2));
        (0..len).map(|_| self.command(one_kind)).collect()
    }

    /// One command.
    pub(crate) fn one(&mut self) -> Command {
        self.command(None)
    }

    fn command(&mut self, one_kind: Option<usize>) -> Command {
        if one_kind.is_none() && self.shares.is_script(&mut self.random) {
            let mut others = Self::new(self.random.next());
            return scripts::command(&mut self.random, || others.unscripted());
        }
        self.unscripted_of(one_kind)
    }

    /// A command that is no script.
    fn unscripted(&mut self) -> Command {
        self.unscripted_of(None)
    }

    fn unscripted_of(&mut self, one_kind: Option<usize>) -> Command {
        if one_kind.is_none() && self.one_in(30) {
            return crate::dumps::command(&mut self.random);
        }
        let words = match one_kind {
            Some(0) if !self.one_in(10) => words(&["GET", &self.key_of(0)]),
            Some(_) if !self.one_in(10) => words(&["SET", &self.key_of(0), self.pick(&VALUES)]),
            _ => self.any(),
        };
        let mut words: Command = words.into_iter().map(String::into_bytes).collect();
        if self.one_in(4) {
            words[0].make_ascii_lowercase();
        }
        // Too few arguments, or one too many. HELLO alone tells the connection's number, and one
        // member is chosen at random.
        let is_other = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        let is_whole = ["hello", "srandmember", "spop", "hrandfield"].into_iter().any(is_other);
        // BITCOUNT and BITPOS look at their arguments before the key, as in Redis 7.2.
        let is_checked_first = ["bitcount", "bitpos"].into_iter().any(is_other);
        let is_whole = is_whole || is_checked_first;
        // An argument more that Redis 7.0 does not know.
        let takes_more = ["zrank", "zrevrank"].into_iter().any(is_other) || is_checked_first;
        if self.one_in(60) && words.len() > 1 && !is_whole {
            words.pop();
        } else if self.one_in(200) && !takes_more {
            words.push(b"extra".to_vec());
        }
        words
    }

    /// A command of a family that is drawn by the families' shares.
    fn any(&mut self) -> Vec<String> {
        match self.shares.draw(&mut self.random) {
            "moves" => crate::collections::command(&mut self.random),
            "bits" => bits_and_places::command(&mut self.random),
            "strings" => self.string(),
            "numbers" => self.number(),
            "keys" => self.generic(),
            "expiry" => self.expiry(),
            "hashes" => self.hash(),
            "zsets" => self.sorted_set(),
            "unions" => self.sorted_sets(),
            "lists" => self.list(),
            "sets" => self.set(),
            "multi" => self.transaction(),
            "rare" => self.rare(),
            other => panic!("no family: {other}"),
        }
    }

    fn string(&mut self) -> Vec<String> {
        let (key, value) = (self.key_of(0), self.pick(&VALUES));
        match self.below(17) {
            0..=1 => words(&["GET", &key]),
            2..=4 => {
                let mut set = words(&["SET", &key, value]);
                for _ in 0..self.below(4) {
                    match self.below(6) {
                        0 => set.push("NX".into()),
                        1 => set.push("xx".into()),
                        2 => set.push("GET".into()),
                        3 => set.push("KEEPTTL".into()),
                        // A time that is past leaves a key that Redis counts for a while.
                        4 => set.extend(words(&["EXAT", self.pick(&AHEAD)])),
                        _ => set.extend(words(&["PXAT", self.pick(&AHEAD_MS)])),
                    }
                }
                set
            }
            5 => words(&["SETNX", &key, value]),
            6 => words(&["GETSET", &key, value]),
            7 => words(&["GETDEL", &key]),
            8 => words(&["APPEND", &key, value]),
            9 => words(&["STRLEN", &key]),
            10 => words(&["GETRANGE", &key, self.pick(&INDEXES), self.pick(&INDEXES)]),
            11 => words(&["SETRANGE", &key, self.pick(&["0", "1", "5", "-1", "x"]), value]),
            12 => ["MGET".into()].into_iter().chain(self.some(4, |g| g.key_of(0))).collect(),
            13..=14 => {
                let name = self.pick(&["MSET", "MSET", "MSETNX"]);
                let mut set = words(&[name]);
                for _ in 0..=self.below(3) {
                    set.extend([self.key_of(0), self.pick(&VALUES).to_owned()]);
                }
                set
            }
            15 => match self.below(3) {
                0 => words(&["GETEX", &key, "PERSIST"]),
                1 => words(&["GETEX", &key, "EXAT", self.pick(&MOMENTS)]),
                _ => words(&["GETEX", &key]),
            },
            _ => words(&[self.pick(&["SETEX", "PSETEX"]), &key, self.pick(&["0", "-1", "x"]), "v"]),
        }
    }

    fn number(&mut self) -> Vec<String> {
        let key = if self.one_in(4) { self.key_of(0) } else { format!("n{}", self.below(3)) };
        match self.below(6) {
            0 => words(&["INCR", &key]),
            1 => words(&["DECR", &key]),
            2 => words(&["INCRBY", &key, self.pick(&INTEGERS)]),
            3 => words(&["DECRBY", &key, self.pick(&INTEGERS)]),
            // Keys of their own: with large integers Redis rounds, and this server does not.
            4 => {
                let key = format!("d{}", self.below(3));
                let name = self.pick(&["INCRBYFLOAT", "INCRBYFLOAT", "SET"]);
                words(&[name, &key, self.pick(&DECIMALS)])
            }
            _ => words(&["SET", &key, self.pick(&INTEGERS)]),
        }
    }

    fn any_key(&mut self) -> String {
        let kind = self.below(5);
        self.key_of(kind)
    }

    fn generic(&mut self) -> Vec<String> {
        let (key, other) = (self.any_key(), self.any_key());
        match self.below(11) {
            0 => {
                let name = self.pick(&["DEL", "UNLINK"]);
                words(&[name]).into_iter().chain(self.some(2, Self::any_key)).collect()
            }
            1..=2 => {
                let name = self.pick(&["EXISTS", "TOUCH"]);
                words(&[name]).into_iter().chain(self.some(3, Self::any_key)).collect()
            }
            3..=4 => words(&["TYPE", &key]),
            5 => words(&["RENAME", &key, &other]),
            6 => words(&["RENAMENX", &key, &other]),
            7 => words(&["COPY", &key, &other]),
            8 => words(&["COPY", &key, &other, "REPLACE"]),
            9 => words(&["COPY", &key, &other, "DB", self.pick(&["0", "1", "2", "77", "x"])]),
            _ => words(&["KEYS", self.pick(&PATTERNS)]),
        }
    }

    fn expiry(&mut self) -> Vec<String> {
        let key = self.any_key();
        match self.below(8) {
            0..=1 => {
                let mut expire = words(&["EXPIREAT", &key, self.pick(&MOMENTS)]);
                if self.one_in(2) {
                    expire.push(self.pick(&["NX", "XX", "GT", "LT", "ZZ"]).to_owned());
                }
                expire
            }
            2 => words(&["PEXPIREAT", &key, self.pick(&MOMENTS_MS)]),
            3 => words(&["EXPIRE", &key, self.pick(&["-1", "0", "x", "9223372036854775807"])]),
            4 => words(&["PERSIST", &key]),
            5..=6 => words(&["EXPIRETIME", &key]),
            _ => words(&["PEXPIRETIME", &key]),
        }
    }

    fn field(&mut self) -> String {
        format!("f{}", self.below(8))
    }

    fn hash(&mut self) -> Vec<String> {
        let (key, field) = (self.key_of(1), self.field());
        match self.below(14) {
            0..=3 => {
                let name = self.pick(&["HSET", "HSET", "HMSET"]);
                let mut set = words(&[name, &key]);
                for _ in 0..=self.below(3) {
                    set.extend([self.field(), self.pick(&VALUES).to_owned()]);
                }
                set
            }
            4 => words(&["HGET", &key, &field]),
            5 => words(&["HMGET", &key]).into_iter().chain(self.some(4, Self::field)).collect(),
            6 => words(&["HGETALL", &key]),
            7 => words(&["HDEL", &key]).into_iter().chain(self.some(4, Self::field)).collect(),
            8 => words(&[self.pick(&["HLEN", "HKEYS", "HVALS"]), &key]),
            9 => words(&[self.pick(&["HEXISTS", "HSTRLEN"]), &key, &field]),
            10 => words(&["HINCRBY", &key, &field, self.pick(&INTEGERS)]),
            11 => {
                let field = format!("d{}", self.below(3));
                let name = self.pick(&["HINCRBYFLOAT", "HINCRBYFLOAT", "HSET"]);
                words(&[name, &key, &field, self.pick(&DECIMALS)])
            }
            12 => words(&["HSETNX", &key, &field, self.pick(&VALUES)]),
            _ => words(&["HSET", &key, &field, self.pick(&INTEGERS)]),
        }
    }

    fn sorted_set(&mut self) -> Vec<String> {
        let (key, member) = (self.key_of(2), self.member());
        match self.below(20) {
            0..=5 => {
                let mut add = words(&["ZADD", &key]);
                if self.one_in(2) {
                    let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
                    add.extend(self.some(2, |g| g.pick(&options).to_owned()));
                }
                for _ in 0..=self.below(3) {
                    add.extend([self.pick(&SCORES).to_owned(), self.member()]);
                }
                add
            }
            6 => words(&["ZINCRBY", &key, self.pick(&SCORES), &member]),
            7 => words(&["ZREM", &key]).into_iter().chain(self.some(3, Self::member)).collect(),
            8 => words(&[self.pick(&["ZSCORE", "ZRANK", "ZREVRANK"]), &key, &member]),
            9 => words(&["ZMSCORE", &key]).into_iter().chain(self.some(3, Self::member)).collect(),
            10 => words(&["ZCARD", &key]),
            11 => words(&["ZCOUNT", &key, self.pick(&SCORE_ENDS), self.pick(&SCORE_ENDS)]),
            12 => {
                let name = self.pick(&["ZPOPMIN", "ZPOPMAX"]);
                let mut pop = words(&[name, &key]);
                if self.one_in(2) {
                    pop.push(self.pick(&["0", "1", "2", "-1", "x"]).to_owned());
                }
                pop
            }
            13 => {
                let name = self.pick(&["ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"]);
                let ends = if name == "ZREMRANGEBYRANK" { &INDEXES[..] } else { &SCORE_ENDS };
                words(&[name, &key, self.pick(ends), self.pick(ends)])
            }
            _ => self.sorted_range(&key),
        }
    }

    fn sorted_range(&mut self, key: &str) -> Vec<String> {
        let (name, ends): (&str, &[&str]) = match self.below(7) {
            0 => ("ZRANGEBYSCORE", &SCORE_ENDS),
            1 => ("ZREVRANGEBYSCORE", &SCORE_ENDS),
            2 => ("ZREVRANGE", &INDEXES),
            3 => ("ZRANGE", &SCORE_ENDS),
            _ => ("ZRANGE", &INDEXES),
        };
        let mut range = words(&[name, key, self.pick(ends), self.pick(ends)]);
        if name == "ZRANGE" && ends.len() == SCORE_ENDS.len() {
            range.push("BYSCORE".into());
        }
        for _ in 0..self.below(3) {
            match self.below(4) {
                0 => range.push("WITHSCORES".into()),
                1 => {
                    let (offset, count) = (self.pick(&INDEXES), self.pick(&INDEXES));
                    range.extend(words(&["LIMIT", offset, count]));
                }
                2 => range.push("REV".into()),
                _ => {}
            }
        }
        range
    }

    fn list(&mut self) -> Vec<String> {
        let key = self.key_of(3);
        match self.below(15) {
            0..=4 => {
                let name = self.pick(&["LPUSH", "RPUSH", "RPUSH", "LPUSHX", "RPUSHX"]);
                let values = self.some(4, |g| g.pick(&VALUES).to_owned());
                words(&[name, &key]).into_iter().chain(values).collect()
            }
            5..=6 => {
                let name = self.pick(&["LPOP", "RPOP"]);
                let mut pop = words(&[name, &key]);
                if self.one_in(3) {
                    pop.push(self.pick(&["0", "1", "2", "-1", "x", "100"]).to_owned());
                }
                pop
            }
            7 => words(&["LLEN", &key]),
            8..=9 => words(&["LRANGE", &key, self.pick(&INDEXES), self.pick(&INDEXES)]),
            10 => words(&["LINDEX", &key, self.pick(&INDEXES)]),
            11 => words(&["LSET", &key, self.pick(&INDEXES), self.pick(&VALUES)]),
            12 => words(&["LREM", &key, self.pick(&INDEXES), self.pick(&VALUES)]),
            13 => {
                let side = self.pick(&["BEFORE", "after", "beside"]);
                words(&["LINSERT", &key, side, self.pick(&VALUES), self.pick(&VALUES)])
            }
            _ => words(&["LTRIM", &key, self.pick(&INDEXES), self.pick(&INDEXES)]),
        }
    }

    fn set(&mut self) -> Vec<String> {
        let (key, member) = (self.key_of(4), self.member());
        match self.below(9) {
            8 => {
                // Those that take no choice: none, all, or nonsense.
                let name = self.pick(&["SRANDMEMBER", "SRANDMEMBER", "SPOP"]);
                words(&[name, &key, self.pick(&["0", "100", "x", "9223372036854775807", "1.5"])])
            }
            0..=2 => words(&["SADD", &key]).into_iter().chain(self.some(4, Self::member)).collect(),
            3 => words(&["SREM", &key]).into_iter().chain(self.some(4, Self::member)).collect(),
            4 => words(&["SMEMBERS", &key]),
            5 => words(&["SISMEMBER", &key, &member]),
            6 => {
                words(&["SMISMEMBER", &key]).into_iter().chain(self.some(3, Self::member)).collect()
            }
            _ => words(&["SCARD", &key]),
        }
    }

    fn transaction(&mut self) -> Vec<String> {
        let word = match (self.in_multi, self.below(8)) {
            (_, 0) => "DISCARD",
            (_, 1) => "MULTI",
            (_, 2) => "UNWATCH",
            (_, 3) => return words(&["WATCH", &self.any_key(), &self.any_key()]),
            (false, _) => "MULTI",
            (true, _) => "EXEC",
        };
        self.in_multi = word == "MULTI" || self.in_multi && word == "UNWATCH";
        words(&[word])
    }

    fn rare(&mut self) -> Vec<String> {
        match self.below(28) {
            24 => {
                let scan = self.pick(&["HSCAN", "SSCAN", "ZSCAN"]);
                let option = self.pick(&["COUNT", "MATCH", "NOSUCH"]);
                let cursor =
                    self.pick(&["0", "1", "", "x", "-1", "+5", " 1", "99999999999999999999"]);
                words(&[scan, "nokey", cursor, option])
            }
            25 => {
                let setting = self.pick(&["maxclients", "timeout", "databases", "nosuch"]);
                let number = self.pick(&["x", "-1", "99999999999", "", "1.5"]);
                words(&["CONFIG", "SET", setting, number, "timeout", "-5"])
            }
            26 => {
                let kind = self.pick(&["foo", "master", "PubSub", "replica", ""]);
                words(&["CLIENT", self.pick(&["LIST", "KILL"]), "TYPE", kind])
            }
            27 => words(&["COMMAND", "LIST", self.pick(&["FILTERBY", "x"]), "PATTERN", "getd*"]),
            0..=2 => words(&["SELECT", self.pick(&["0", "1", "0", "x", "16"])]),
            3 => words(&["SWAPDB", "0", "1"]),
            4 => words(&["FLUSHDB"]),
            5 => words(&["SWAPDB", self.pick(&["0", "x", "99"]), "y"]),
            6..=8 => words(&["DBSIZE"]),
            9..=10 => words(&["ECHO", self.pick(&VALUES)]),
            11 => words(&["PING"]),
            12 => words(&["PING", self.pick(&VALUES)]),
            13 => words(&["NOSUCH", self.pick(&VALUES), "b"]),
            14 => words(&["CLIENT", "GETNAME"]),
            15 => words(&["CLIENT", "SETNAME", self.pick(&["me", "a b"])]),
            16 => words(&["CLIENT", "NOSUCH"]),
            17 => words(&["CONFIG", "GET", "save"]),
            18 => words(&["HELLO", self.pick(&["4", "x"])]),
            19 => words(&["AUTH", "x"]),
            20 => words(&["ZRANGEBYLEX", "nokey", self.pick(&LEX), self.pick(&LEX)]),
            21 => {
                // All scores of this key are the same, so that names have an order.
                words(&["ZADD", "lex", "0", &self.member(), "0", &self.member()])
            }
            22 => {
                let name = self.pick(&["ZRANGEBYLEX", "ZREVRANGEBYLEX", "ZLEXCOUNT"]);
                words(&[name, "lex", self.pick(&LEX), self.pick(&LEX)])
            }
            _ => words(&[
                "ZRANGE",
                "lex",
                self.pick(&LEX),
                self.pick(&LEX),
                "BYLEX",
                "LIMIT",
                "1",
                "2",
            ]),
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
