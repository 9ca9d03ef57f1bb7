//! Settings of Redis that programs give a server: they are checked as Redis checks them and
//! remembered until the server ends. Most change nothing here; the encodings that `OBJECT ENCODING`
//! names and the form of HyperLogLogs depend on some.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;

use crate::resp::number::parse_i64;

/// What a setting may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    YesNo,
    /// An integer between these, both included.
    Integer(i64, i64),
    /// Bytes, which may be written with a unit.
    Memory,
    /// Bytes, or a part of `maxmemory` in percent.
    MemoryOrPercent,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Seconds and changes, by pairs.
    Save,
    Text,
}

/// A setting that is remembered.
#[derive(Debug)]
struct Setting {
    name: &'static str,
    /// An older name of it.
    alias: Option<&'static str>,
    form: Form,
    default: &'static str,
}

const fn setting(name: &'static str, form: Form, default: &'static str) -> Setting {
    Setting { name, alias: None, form, default }
}

impl Setting {
    const fn or(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }
}

/// The greatest numbers of C, as Redis bounds its settings.
const INT_MAX: i64 = i32::MAX as i64;
const LONG_MAX: i64 = i64::MAX;

const COUNT: Form = Form::Integer(0, LONG_MAX);
const SMALL: Form = Form::Integer(0, INT_MAX);
const POLICIES: Form = Form::Word(&[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
]);
const LEVELS: Form = Form::Word(&["debug", "verbose", "notice", "warning", "nothing"]);
const SANITIZED: Form = Form::Word(&["no", "yes", "clients"]);

/// What `CONFIG GET` tells of only if it is asked for by its name: Redis slows copies and loads by
/// them, for its tests.
const HIDDEN: [&str; 2] = ["key-load-delay", "rdb-key-save-delay"];

/// All of them, with the bounds and the defaults of Redis 7.2.
static SETTINGS: [Setting; 82] = [
    setting("active-defrag-cycle-max", Form::Integer(1, 99), "25"),
    setting("active-defrag-cycle-min", Form::Integer(1, 99), "1"),
    setting("active-defrag-ignore-bytes", Form::Memory, "104857600"),
    setting("active-defrag-max-scan-fields", Form::Integer(1, LONG_MAX), "1000"),
    setting("active-defrag-threshold-lower", Form::Integer(0, 1000), "10"),
    setting("active-defrag-threshold-upper", Form::Integer(0, 1000), "100"),
    setting("active-expire-effort", Form::Integer(1, 10), "1"),
    setting("activedefrag", Form::YesNo, "no"),
    setting("activerehashing", Form::YesNo, "yes"),
    setting("aof-load-truncated", Form::YesNo, "yes"),
    setting("aof-rewrite-incremental-fsync", Form::YesNo, "yes"),
    setting("aof-timestamp-enabled", Form::YesNo, "no"),
    setting("aof-use-rdb-preamble", Form::YesNo, "yes"),
    // The log is always written.
    setting("appendonly", Form::Word(&["yes"]), "yes"),
    setting("auto-aof-rewrite-min-size", Form::Memory, "67108864"),
    setting("auto-aof-rewrite-percentage", SMALL, "100"),
    setting("busy-reply-threshold", COUNT, "5000").or("lua-time-limit"),
    setting("client-query-buffer-limit", Form::Memory, "1073741824"),
    setting("crash-log-enabled", Form::YesNo, "yes"),
    setting("crash-memcheck-enabled", Form::YesNo, "yes"),
    setting("dbfilename", Form::Text, "dump.rdb"),
    setting("dynamic-hz", Form::YesNo, "yes"),
    setting("hash-max-listpack-entries", COUNT, "512").or("hash-max-ziplist-entries"),
    setting("hash-max-listpack-value", Form::Memory, "64").or("hash-max-ziplist-value"),
    setting("hll-sparse-max-bytes", Form::Memory, "3000"),
    setting("hz", SMALL, "10"),
    setting("jemalloc-bg-thread", Form::YesNo, "yes"),
    setting("key-load-delay", Form::Integer(-INT_MAX - 1, INT_MAX), "0"),
    setting("lazyfree-lazy-eviction", Form::YesNo, "no"),
    setting("lazyfree-lazy-expire", Form::YesNo, "no"),
    setting("lazyfree-lazy-server-del", Form::YesNo, "no"),
    setting("lazyfree-lazy-user-del", Form::YesNo, "no"),
    setting("lazyfree-lazy-user-flush", Form::YesNo, "no"),
    setting("lfu-decay-time", SMALL, "1"),
    setting("lfu-log-factor", SMALL, "10"),
    setting("list-compress-depth", SMALL, "0"),
    setting("list-max-listpack-size", Form::Integer(-INT_MAX - 1, INT_MAX), "-2")
        .or("list-max-ziplist-size"),
    setting("loglevel", LEVELS, "notice"),
    setting("maxmemory", Form::Memory, "0"),
    setting("maxmemory-clients", Form::MemoryOrPercent, "0"),
    setting("maxmemory-eviction-tenacity", Form::Integer(0, 100), "10"),
    setting("maxmemory-policy", POLICIES, "noeviction"),
    setting("maxmemory-samples", Form::Integer(1, INT_MAX), "5"),
    setting("masterauth", Form::Text, ""),
    setting("masteruser", Form::Text, ""),
    setting("min-replicas-max-lag", SMALL, "10").or("min-slaves-max-lag"),
    setting("min-replicas-to-write", SMALL, "0").or("min-slaves-to-write"),
    setting("no-appendfsync-on-rewrite", Form::YesNo, "no"),
    setting("proc-title-template", Form::Text, "{title} {listen-addr} {server-mode}"),
    setting("protected-mode", Form::YesNo, "no"),
    setting("rdb-del-sync-files", Form::YesNo, "no"),
    setting("rdb-key-save-delay", Form::Integer(-INT_MAX - 1, INT_MAX), "0"),
    setting("rdb-save-incremental-fsync", Form::YesNo, "yes"),
    setting("rdbcompression", Form::YesNo, "yes"),
    setting("repl-backlog-size", Form::Memory, "1048576"),
    setting("repl-backlog-ttl", COUNT, "3600"),
    setting("repl-disable-tcp-nodelay", Form::YesNo, "no"),
    setting("repl-diskless-sync", Form::YesNo, "yes"),
    setting("repl-diskless-sync-delay", SMALL, "5"),
    setting("repl-diskless-sync-max-replicas", SMALL, "0"),
    setting("repl-ping-replica-period", Form::Integer(1, INT_MAX), "10")
        .or("repl-ping-slave-period"),
    setting("repl-timeout", Form::Integer(1, INT_MAX), "60"),
    setting("replica-announce-ip", Form::Text, "").or("slave-announce-ip"),
    setting("replica-announce-port", SMALL, "0").or("slave-announce-port"),
    setting("replica-announced", Form::YesNo, "yes"),
    setting("replica-ignore-maxmemory", Form::YesNo, "yes").or("slave-ignore-maxmemory"),
    setting("replica-lazy-flush", Form::YesNo, "no").or("slave-lazy-flush"),
    setting("replica-priority", SMALL, "100").or("slave-priority"),
    setting("replica-read-only", Form::YesNo, "yes").or("slave-read-only"),
    setting("replica-serve-stale-data", Form::YesNo, "yes").or("slave-serve-stale-data"),
    setting("sanitize-dump-payload", SANITIZED, "no"),
    setting("save", Form::Save, ""),
    setting("set-max-intset-entries", COUNT, "512"),
    setting("set-max-listpack-entries", COUNT, "128"),
    setting("set-max-listpack-value", Form::Memory, "64"),
    setting("shutdown-timeout", SMALL, "10"),
    setting("stop-writes-on-bgsave-error", Form::YesNo, "yes"),
    setting("stream-node-max-bytes", Form::Memory, "4096"),
    setting("stream-node-max-entries", COUNT, "100"),
    setting("tcp-keepalive", SMALL, "300"),
    setting("zset-max-listpack-entries", COUNT, "128").or("zset-max-ziplist-entries"),
    setting("zset-max-listpack-value", Form::Memory, "64").or("zset-max-ziplist-value"),
];

/// The setting that a word names, by either of its names, in any case.
fn find(name: &[u8]) -> Option<&'static Setting> {
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    SETTINGS.iter().find(|setting| is(setting.name) || setting.alias.is_some_and(is))
}

/// Returns true if patterns do not find a setting.
pub(crate) fn is_hidden(name: &str) -> bool {
    HIDDEN.contains(&name)
}

/// The one name of a remembered setting.
pub(crate) fn name_of(name: &[u8]) -> Option<&'static str> {
    find(name).map(|setting| setting.name)
}

/// Bytes, as Redis writes them in its settings: with a unit, of 1000 without a `b` at the end and
/// of 1024 with it.
fn memory(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok().and_then(|number: u64| number.checked_mul(factor)))?
}

/// A value as it is kept for a setting of this form.
fn check(form: Form, value: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(value).into_owned();
    let lower = text.to_ascii_lowercase();
    match form {
        Form::YesNo if ["yes", "no"].contains(&lower.as_str()) => Ok(lower),
        Form::YesNo => Err("argument must be 'yes' or 'no'".into()),
        Form::Integer(least, most) => {
            let number = parse_i64(value).ok_or("argument couldn't be parsed into an integer")?;
            if !(least..=most).contains(&number) {
                return Err(format!("argument must be between {least} and {most} inclusive"));
            }
            Ok(number.to_string())
        }
        Form::Memory => {
            let bytes = memory(&text).ok_or("argument must be a memory value")?;
            Ok(bytes.to_string())
        }
        Form::MemoryOrPercent => {
            let percent = text.strip_suffix('%').and_then(|number| parse_i64(number.as_bytes()));
            match percent {
                Some(0..=100) => return Ok(text),
                Some(101..) => {
                    return Err("percentage argument must be less or equal to 100".into());
                }
                Some(..0) | None => {}
            }
            let bytes = memory(&text).ok_or("argument must be a memory or percent value")?;
            Ok(bytes.to_string())
        }
        Form::Word(words) if words.contains(&lower.as_str()) => Ok(lower),
        Form::Word(words) => {
            let words = words.join(", ");
            Err(format!("argument(s) must be one of the following: {words}"))
        }
        Form::Save => {
            let numbers: Vec<&str> = text.split_ascii_whitespace().collect();
            let is_right = |(at, word): (usize, &&str)| {
                let least = if at % 2 == 0 { 1 } else { 0 };
                parse_i64(word.as_bytes()).is_some_and(|number| number >= least)
            };
            let are_right =
                numbers.len().is_multiple_of(2) && numbers.iter().enumerate().all(is_right);
            if are_right { Ok(numbers.join(" ")) } else { Err("Invalid save parameters".into()) }
        }
        Form::Text => Ok(text),
    }
}

/// The settings that are not at their defaults.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    changed: RwLock<BTreeMap<&'static str, String>>,
    /// Writes ask for replicas, of which there are none.
    lacks_replicas: AtomicBool,
}

impl Remembered {
    /// With this one that has another value from the start on.
    pub(crate) fn new(name: &'static str, value: String) -> Self {
        let changed = RwLock::new(BTreeMap::from([(name, value)]));
        Self { changed, ..Self::default() }
    }

    /// Checks a value for a setting of this name; `None` if it is none of these. The name and the
    /// value are what [`Remembered::set`] takes.
    pub(crate) fn check(
        name: &[u8],
        value: &[u8],
    ) -> Option<Result<(&'static str, String), String>> {
        let setting = find(name)?;
        Some(check(setting.form, value).map(|value| (setting.name, value)))
    }

    /// Remembers a value that was checked.
    pub(crate) fn set(&self, name: &'static str, value: String) {
        self.changed.write().insert(name, value);
        let asks = |name| self.number(name) > 0;
        let lacks = asks("min-replicas-to-write") && asks("min-replicas-max-lag");
        self.lacks_replicas.store(lacks, Ordering::Relaxed);
    }

    /// Returns true if no write is to be accepted, as settings ask for replicas.
    #[inline]
    pub(crate) fn lacks_replicas(&self) -> bool {
        self.lacks_replicas.load(Ordering::Relaxed)
    }

    /// All settings, by each of their names.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        let changed = self.changed.read();
        let mut all = Vec::with_capacity(2 * SETTINGS.len());
        for Setting { name, alias, default, .. } in &SETTINGS {
            let value = changed.get(name).map_or(*default, String::as_str);
            all.extend(
                [Some(*name), *alias].into_iter().flatten().map(|name| (name, value.into())),
            );
        }
        all
    }

    /// The value of a setting of this name.
    pub(crate) fn text(&self, name: &'static str) -> String {
        let default = || find(name.as_bytes()).map_or("", |setting| setting.default);
        self.changed.read().get(name).cloned().unwrap_or_else(|| default().to_owned())
    }

    /// The number that a setting of this name is.
    pub(crate) fn number(&self, name: &'static str) -> i64 {
        parse_i64(self.text(name).as_bytes()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_may_be_set() {
        for Setting { name, alias, form, default } in &SETTINGS {
            assert_eq!(check(*form, default.as_bytes()).as_deref(), Ok(*default), "{name}");
            assert!(alias.is_none_or(|alias| name_of(alias.as_bytes()) == Some(name)));
            assert!(SETTINGS.iter().filter(|other| other.name == *name).count() == 1, "{name}");
        }
    }

    #[test]
    fn values_are_checked_as_in_redis() {
        let value = |name: &str, value: &str| {
            Remembered::check(name.as_bytes(), value.as_bytes()).unwrap().map(|(_, value)| value)
        };
        assert_eq!(value("hll-sparse-max-bytes", "1kb").as_deref(), Ok("1024"));
        assert_eq!(value("HLL-sparse-max-bytes", "2K").as_deref(), Ok("2000"));
        assert_eq!(value("activedefrag", "YES").as_deref(), Ok("yes"));
        assert_eq!(value("save", "900 1  300 10").as_deref(), Ok("900 1 300 10"));
        assert_eq!(value("save", "").as_deref(), Ok(""));
        for (name, wrong) in [
            ("hll-sparse-max-bytes", "-1"),
            ("hll-sparse-max-bytes", "99999999999gb"),
            ("hll-sparse-max-bytes", "1é"),
            ("activedefrag", "1"),
            ("hz", "-1"),
            ("maxmemory-clients", "101%"),
            ("appendonly", "no"),
            ("hz", "x"),
            ("maxmemory-policy", "none"),
            ("save", "900"),
            ("save", "0 1"),
        ] {
            assert!(value(name, wrong).is_err(), "{name} {wrong}");
        }
        assert!(Remembered::check(b"no-such-setting", b"1").is_none());
    }

    #[test]
    fn a_setting_has_one_value_under_both_its_names() {
        let remembered = Remembered::default();
        assert_eq!(remembered.number("hash-max-listpack-entries"), 512);
        let (name, value) = Remembered::check(b"hash-max-ziplist-entries", b"7").unwrap().unwrap();
        remembered.set(name, value);
        assert_eq!(remembered.number("hash-max-listpack-entries"), 7);
        let all = remembered.all();
        let named = all
            .iter()
            .filter(|(name, _)| name.starts_with("hash-max") && name.ends_with("entries"));
        assert!(named.clone().count() == 2 && named.clone().all(|(_, value)| value == "7"));
    }
}
