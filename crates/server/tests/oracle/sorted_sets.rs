//! Random commands on several sorted sets and sets at once.

use super::{Generator, INDEXES, LEX, SCORE_ENDS, words};

/// Without negative ones and 0: they make -0 of 0, which is 0 here.
const WEIGHTS: [&str; 9] = ["1", "2", "0.5", "1.5", "inf", "abc", "nan", "1e400", "3"];
const COUNTS: [&str; 9] = ["0", "1", "2", "3", "100", "-1", "x", "", "9223372036854775807"];

impl Generator {
    /// A key that mostly has a sorted set, and else often a set.
    fn input(&mut self) -> String {
        let kind = if self.one_in(4) { 4 } else { 2 };
        self.key_of(kind)
    }

    /// The number of some keys, which is wrong at times, and the keys.
    fn counted(&mut self, command: &mut Vec<String>) -> usize {
        let keys = self.some(3, Self::input);
        let count = keys.len();
        let wrong = self.pick(&COUNTS).to_owned();
        command.push(if self.one_in(15) { wrong } else { count.to_string() });
        command.extend(keys);
        count
    }

    pub(super) fn sorted_sets(&mut self) -> Vec<String> {
        match self.below(8) {
            0..=3 => self.combined(),
            4 => self.popped(),
            5 => self.stored_range(),
            6 => self.by_name(),
            _ => {
                // Those that take no choice: none, all of one, or nonsense.
                let count = self.pick(&["0", "x", "-9223372036854775808", "9223372036854775807 W"]);
                let mut random = words(&["ZRANDMEMBER", "nokey", count]);
                if self.one_in(2) {
                    random.push(self.pick(&["WITHSCORES", "withscore"]).to_owned());
                }
                random
            }
        }
    }

    fn combined(&mut self) -> Vec<String> {
        let name = self.pick(&[
            "ZUNION",
            "ZINTER",
            "ZDIFF",
            "ZUNIONSTORE",
            "ZINTERSTORE",
            "ZDIFFSTORE",
            "ZINTERCARD",
        ]);
        let mut command = words(&[name]);
        if name.ends_with("STORE") {
            command.push(self.input());
        }
        let count = self.counted(&mut command);
        for _ in 0..self.below(3) {
            match self.below(5) {
                0..=1 => {
                    command.push("WEIGHTS".into());
                    let weights = if self.one_in(10) { self.below(4) } else { count };
                    (0..weights).for_each(|_| command.push(self.pick(&WEIGHTS).to_owned()));
                }
                2 => {
                    let how = self.pick(&["SUM", "min", "Max", "avg"]);
                    command.extend(words(&["AGGREGATE", how]));
                }
                3 => command.push("WITHSCORES".into()),
                _ => command.extend(words(&["LIMIT", self.pick(&COUNTS)])),
            }
        }
        command
    }

    fn popped(&mut self) -> Vec<String> {
        let end = self.pick(&["MIN", "max", "MIN", "mid"]).to_owned();
        let mut command = match self.below(4) {
            0 => {
                let mut pop = words(&[self.pick(&["BZPOPMIN", "BZPOPMAX"])]);
                pop.extend(self.some(3, Self::input));
                pop.push(self.pick(&["0.01", "-1", "x", "nan"]).to_owned());
                return pop;
            }
            1 => words(&["BZMPOP", self.pick(&["0.01", "-1", "x"])]),
            _ => words(&["ZMPOP"]),
        };
        self.counted(&mut command);
        command.push(end);
        for _ in 0..self.below(3) {
            command.extend(words(&["COUNT", self.pick(&COUNTS)]));
        }
        command
    }

    fn stored_range(&mut self) -> Vec<String> {
        let (to, from) = (self.input(), self.input());
        let by_score = self.one_in(2);
        let ends = if by_score { &SCORE_ENDS[..] } else { &INDEXES[..] };
        let mut command = words(&["ZRANGESTORE", &to, &from, self.pick(ends), self.pick(ends)]);
        if by_score {
            command.push("BYSCORE".into());
        }
        for _ in 0..self.below(3) {
            match self.below(5) {
                0 => command.push("WITHSCORES".into()),
                1..=2 => {
                    let (offset, count) = (self.pick(&INDEXES), self.pick(&INDEXES));
                    command.extend(words(&["LIMIT", offset, count]));
                }
                _ => command.push("REV".into()),
            }
        }
        command
    }

    /// Ranges by name, of keys whose members have the same score.
    fn by_name(&mut self) -> Vec<String> {
        let (key, member) = (format!("lex{}", self.below(2)), self.member());
        let (min, max) = (self.pick(&LEX), self.pick(&LEX));
        match self.below(9) {
            0..=2 => words(&["ZADD", &key, "0", &member, "0", &self.member()]),
            3 => words(&["ZLEXCOUNT", &key, min, max]),
            4 => words(&["ZREMRANGEBYLEX", &key, min, max]),
            5 => words(&["ZRANGESTORE", "lex2", &key, min, max, "BYLEX"]),
            6 => {
                let rev = self.pick(&["ZREVRANGEBYLEX", "ZRANGEBYLEX"]);
                let (offset, count) = (self.pick(&INDEXES), self.pick(&INDEXES));
                words(&[rev, &key, min, max, "LIMIT", offset, count])
            }
            7 => words(&["ZRANGE", &key, min, max, "BYLEX", self.pick(&["REV", "WITHSCORES"])]),
            _ => words(&["ZREM", &key, &member]),
        }
    }
}
