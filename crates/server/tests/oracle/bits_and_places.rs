//! Random commands on bits, HyperLogLogs and places.

use rhumb_testkit::random::Random;

const OFFSETS: [&str; 12] =
    ["0", "1", "7", "8", "9", "30", "63", "64", "100", "-1", "x", "4294967296"];
const ENDS: [&str; 8] = ["0", "1", "-1", "-5", "3", "100", "-100", "9223372036854775807"];
const TYPES: [&str; 13] =
    ["i8", "u8", "i1", "u1", "i64", "u63", "i5", "u4", "u33", "i17", "u64", "i65", "x"];
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "5",
    "127",
    "128",
    "-128",
    "255",
    "256",
    "9223372036854775807",
    "-9223372036854775808",
    "x",
];
const LONGITUDES: [&str; 9] =
    ["13.361389", "15.087269", "-122.4", "179.99", "-179.99", "0", "180", "181", "x"];
const LATITUDES: [&str; 8] = ["38.115556", "37.502669", "0", "85", "-85", "85.05112878", "86", "x"];
const RADII: [&str; 9] = ["0", "1", "100", "250.5", "1000", "5000", "20000", "-1", "x"];
const UNITS: [&str; 6] = ["m", "km", "km", "ft", "MI", "foo"];

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

struct Maker<'r>(&'r mut Random);

/// Makes a command.
pub(crate) fn command(random: &mut Random) -> Vec<String> {
    let mut maker = Maker(random);
    match maker.below(3) {
        0 => maker.bits(),
        1 => maker.hyperloglog(),
        _ => maker.places(),
    }
}

impl Maker<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn key(&mut self, family: &str) -> String {
        format!("{family}{}", self.below(3))
    }

    fn some(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> String) -> Vec<String> {
        (0..=self.below(most)).map(|_| make(self)).collect()
    }

    fn integer(&mut self) -> String {
        let number = self.pick(&NUMBERS);
        let (kind, at) = (self.pick(&TYPES), self.pick(&OFFSETS));
        let hash = self.pick(&["", "", "#"]);
        match self.below(4) {
            0 => format!("GET {kind} {hash}{at}"),
            1 => format!("SET {kind} {hash}{at} {number}"),
            2 => format!("incrby {kind} {hash}{at} {number}"),
            _ => format!("OVERFLOW {}", self.pick(&["WRAP", "sat", "FAIL", "foo"])),
        }
    }

    fn bits(&mut self) -> Vec<String> {
        let key = self.key("b");
        let (from, to) = (self.pick(&ENDS), self.pick(&ENDS));
        let unit = self.pick(&["", " BIT", " byte"]);
        match self.below(9) {
            0 => words(&format!(
                "SETBIT {key} {} {}",
                self.pick(&OFFSETS),
                self.pick(&["0", "1", "2"])
            )),
            1 => words(&format!("GETBIT {key} {}", self.pick(&OFFSETS))),
            2 => words(&format!("BITCOUNT {key}")),
            3 => words(&format!("BITCOUNT {key} {from} {to}{unit}")),
            4 => words(&format!("BITPOS {key} {} {from} {to}{unit}", self.pick(&["0", "1"]))),
            5 => words(&format!("BITPOS {key} {} {from}", self.pick(&["0", "1"]))),
            6 => {
                let name = self.pick(&["AND", "or", "XOR", "NOT"]);
                let mut line = words(&format!("BITOP {name} {key}"));
                line.extend(self.some(3, |m| m.key("b")));
                line
            }
            7 => {
                let steps = self.some(3, Self::integer).join(" ");
                words(&format!("BITFIELD {key} {steps}"))
            }
            _ => words(&format!("GET {key}")),
        }
    }

    fn hyperloglog(&mut self) -> Vec<String> {
        let key = self.key("p");
        match self.below(8) {
            0..=2 => {
                let most = [2, 30, 400][self.below(3)];
                let elements = self.some(most, |m| m.below(100_000).to_string()).join(" ");
                words(&format!("PFADD {key} {elements}"))
            }
            3 => words(&format!("PFCOUNT {key}")),
            4 => words(&format!("PFCOUNT {}", self.some(3, |m| m.key("p")).join(" "))),
            5 => words(&format!("PFMERGE {key} {}", self.some(2, |m| m.key("p")).join(" "))),
            6 => words(&format!("GET {key}")),
            _ if self.below(4) == 0 => words(&format!("DEL {key}")),
            _ => words(&format!("PFDEBUG {} {key}", self.pick(&["ENCODING", "decode"]))),
        }
    }

    fn place(&mut self) -> String {
        if self.below(3) == 0 {
            return format!("{} {}", self.pick(&LONGITUDES), self.pick(&LATITUDES));
        }
        let mut part = |from: usize, len: usize| {
            (from + self.below(len)) as f64 / 1000.0 + self.below(1000) as f64 / 1e6
        };
        format!("{} {}", part(10_000, 10_000), part(30_000, 10_000))
    }

    fn member(&mut self) -> String {
        format!("m{}", self.below(30))
    }

    fn around(&mut self, is_search: bool) -> String {
        let (radius, unit) = (self.pick(&RADII), self.pick(&UNITS));
        let (place, member) = (self.place(), self.member());
        match (is_search, self.below(4)) {
            (false, 0..=1) => format!("{place} {radius} {unit}"),
            (false, _) => format!("{member} {radius} {unit}"),
            (true, 0) => format!("FROMLONLAT {place} BYRADIUS {radius} {unit}"),
            (true, 1) => format!("FROMMEMBER {member} BYRADIUS {radius} {unit}"),
            (true, 2) => format!("BYBOX {radius} 300 {unit} fromlonlat {place}"),
            (true, _) => format!("bybox 700 {radius} {unit} FROMMEMBER {member}"),
        }
    }

    fn places(&mut self) -> Vec<String> {
        let (key, other) = (self.key("g"), self.key("g"));
        let options = [
            "WITHCOORD",
            "withdist",
            "WITHHASH",
            "COUNT 1",
            "COUNT 3",
            "count x",
            "COUNT 2 ANY",
            "ASC",
            "DESC",
            "ANY",
            "foo",
        ];
        let options =
            (0..self.below(4)).map(|_| format!(" {}", self.pick(&options))).collect::<String>();
        let line = match self.below(11) {
            0..=2 => {
                let option = self.pick(&["", "", " NX", " XX", " ch"]);
                let members = self.some(3, |m| format!("{} {}", m.place(), m.member())).join(" ");
                format!("GEOADD {key}{option} {members}")
            }
            3 => format!("GEOPOS {key} {}", self.some(2, Self::member).join(" ")),
            4 => {
                let unit = self.pick(&["", " m", " km", " foo"]);
                format!("GEODIST {key} {} {}{unit}", self.member(), self.member())
            }
            5 => format!("GEOHASH {key} {}", self.some(2, Self::member).join(" ")),
            6 => {
                let name = self.pick(&["GEORADIUS", "GEORADIUSBYMEMBER", "GEORADIUS_RO"]);
                format!("{name} {key} {}{options}", self.around(false))
            }
            7 => {
                let name = self.pick(&["GEORADIUS", "GEORADIUSBYMEMBER"]);
                let store = self.pick(&["STORE", "storedist"]);
                format!("{name} {key} {} {store} {other}", self.around(false))
            }
            8 => format!("GEOSEARCH {key} {}{options}", self.around(true)),
            9 => {
                let store = self.pick(&["", " STOREDIST", " COUNT 2"]);
                format!("GEOSEARCHSTORE {other} {key} {}{store}", self.around(true))
            }
            _ => format!("ZRANGE {key} 0 -1 WITHSCORES"),
        };
        words(&line)
    }
}
