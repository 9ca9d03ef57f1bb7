//! Where commands write: the standard output behind one buffer, and progress on the terminal.
//!
//! Nothing is printed by macros: they panic when the reader of a pipe has gone.

use std::{
    fmt,
    io::{self, BufWriter, IsTerminal, Stdout, Write},
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value as Json;

use crate::failure::{Failure, Outcome};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// How long a command runs before it shows progress.
const PROGRESS_DELAY: Duration = Duration::from_millis(800);

/// The output of a command.
pub(crate) struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    /// The standard output, which is not locked: suites of `bench` write to it themselves.
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()) }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Outcome {
        self.with(|out| writeln!(out, "{text}"))
    }

    /// Writes a JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &Json) -> Outcome {
        self.line(value)
    }

    /// Writes by `write`.
    pub(crate) fn with(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
        write(&mut self.out).map_err(|error| Failure::from_output(&error))
    }

    /// Hands everything to the operating system.
    pub(crate) fn flush(&mut self) -> Outcome {
        self.out.flush().map_err(|error| Failure::from_output(&error))
    }
}

/// What is done so far, on the standard error if that is a terminal, once a command takes long.
pub(crate) struct Progress {
    started: Instant,
    /// Bytes in all, if known: the length of the bar.
    bytes_total: Option<u64>,
    label: &'static str,
    /// None until it is worth showing.
    bar: Option<ProgressBar>,
    pace: Pace,
    is_shown: bool,
}

impl Progress {
    /// Progress under the name `label`, of `bytes_total` bytes if that is known.
    pub(crate) fn new(label: &'static str, bytes_total: Option<u64>, is_quiet: bool) -> Self {
        let is_shown = !is_quiet && io::stderr().is_terminal();
        Self {
            started: Instant::now(),
            bytes_total,
            label,
            bar: None,
            pace: Pace::default(),
            is_shown,
        }
    }

    /// Progress of reading bytes whose number is not known yet.
    pub(crate) fn in_bytes(label: &'static str) -> Self {
        Self::new(label, Some(0), false)
    }

    /// Says how many of `total` bytes are read.
    pub(crate) fn update_bytes(&mut self, done: u64, total: u64) {
        let left = self.left(done, total);
        if let Some(bar) = self.bar() {
            bar.set_message(format!("{} of {}{left}", bytes(done), bytes(total)));
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// Says how many entries and bytes are done. Cheap, but not for every entry.
    pub(crate) fn update(&mut self, entries: u64, bytes: u64) {
        let rate = per_second(entries, self.started.elapsed());
        let has_length = self.bytes_total.is_some();
        let left = self.bytes_total.map_or(String::new(), |total| self.left(bytes, total));
        if let Some(bar) = self.bar() {
            bar.set_message(format!("{} entries, {}/s{left}", grouped(entries), grouped(rate)));
            bar.set_position(if has_length { bytes } else { entries });
        }
    }

    /// The time left for a message; empty until there is a basis for it.
    fn left(&mut self, done: u64, total: u64) -> String {
        if !self.is_shown {
            return String::new();
        }
        self.pace.see(self.started.elapsed(), done);
        let left = self.pace.left(total.saturating_sub(done));
        left.map_or(String::new(), |left| format!("  {} left", HumanDuration(left)))
    }

    /// The bar, once it is worth showing.
    fn bar(&mut self) -> Option<&ProgressBar> {
        if !self.is_shown || self.started.elapsed() < PROGRESS_DELAY {
            return None;
        }
        Some(self.bar.get_or_insert_with(|| new_bar(self.label, self.bytes_total)))
    }

    /// Removes the bar and says how long it was.
    pub(crate) fn finish(&mut self) -> Duration {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.started.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// How fast bytes are done, smoothed: what lies back longer than [`PACE_MEMORY`] hardly counts.
#[derive(Default)]
struct Pace {
    /// When something was seen last, since the start, and how many bytes were done.
    last: Option<(Duration, u64)>,
    /// Seconds and bytes, those of the past with less weight.
    seconds: f64,
    bytes: f64,
    /// Time that was seen in all.
    seen: Duration,
}

/// The time after which what was seen counts a third. A compaction that stalls an import for some
/// seconds shall not make hours of minutes.
const PACE_MEMORY: Duration = Duration::from_secs(10);

/// The time that must be seen before anything is said: two updates of the clock's seconds.
const PACE_BASIS: Duration = Duration::from_secs(2);

impl Pace {
    /// Takes note of `done` bytes at `now`, since the start.
    fn see(&mut self, now: Duration, done: u64) {
        if let Some((before, done_before)) = self.last {
            let passed = now.saturating_sub(before);
            let kept = (-passed.as_secs_f64() / PACE_MEMORY.as_secs_f64()).exp();
            self.seconds = self.seconds * kept + passed.as_secs_f64();
            self.bytes = self.bytes * kept + done.saturating_sub(done_before) as f64;
            self.seen += passed;
        }
        self.last = Some((now, done));
    }

    /// The time that `bytes` take, in whole seconds; none while there is no basis for it.
    fn left(&self, bytes: u64) -> Option<Duration> {
        if self.seen < PACE_BASIS || self.bytes < 1.0 {
            return None;
        }
        let seconds = bytes as f64 * self.seconds / self.bytes;
        // Beyond a year it is no estimate.
        (seconds < 365.0 * 86400.0).then(|| Duration::from_secs(seconds.round() as u64))
    }
}

fn new_bar(label: &'static str, bytes_total: Option<u64>) -> ProgressBar {
    let template = match bytes_total {
        Some(_) => "{prefix} {wide_bar} {percent}%  {msg}",
        None => "{prefix} {spinner}  {msg}  {elapsed}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is correct");
    let bar = ProgressBar::with_draw_target(bytes_total, ProgressDrawTarget::stderr_with_hz(10));
    bar.with_style(style).with_prefix(label)
}

/// `count` over `time`, in whole units per second.
pub(crate) fn per_second(count: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(count) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// A number with its digits in groups of three: `4,500,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things by their name: `1 entry`, `2,000 entries`.
pub(crate) fn counted(number: u64, name: &str) -> String {
    let stem = name.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (number, stem) {
        (1, _) => format!("1 {name}"),
        (_, Some(stem)) => format!("{} {stem}ies", grouped(number)),
        (_, None) => format!("{} {name}s", grouped(number)),
    }
}

/// A number of bytes in the unit that suits it.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut size = number as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(4_500_000), "4,500,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "entry"), "1 entry");
        assert_eq!(counted(2000, "entry"), "2,000 entries");
        assert_eq!(counted(0, "block"), "0 blocks");
        assert_eq!(counted(3, "key"), "3 keys");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 40), "5.0 TiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn the_time_left_is_that_of_the_rate() {
        let mut pace = Pace::default();
        let second = Duration::from_secs(1);
        assert_eq!(pace.left(100), None);
        // 100 bytes a second; nothing is said of the first two.
        for n in 0..=60_u32 {
            pace.see(second * n, u64::from(n) * 100);
            let left = pace.left(6000 - u64::from(n) * 100);
            assert_eq!(left, (n >= 2).then(|| second * (60 - n)), "after {n} seconds");
        }
    }

    #[test]
    fn the_time_left_follows_a_rate_that_changes_and_outlives_a_stall() {
        let mut pace = Pace::default();
        let second = Duration::from_secs(1);
        for n in 0..=60_u32 {
            pace.see(second * n, u64::from(n) * 1000);
        }
        for n in 1..=60_u32 {
            pace.see(second * (60 + n), 60_000 + u64::from(n) * 100);
        }
        let left = pace.left(1000).unwrap();
        assert!(left <= second * 10 && left >= second * 9, "{left:?}");
        // Three seconds without a byte.
        pace.see(second * 123, 66_000);
        let left = pace.left(1000).unwrap();
        assert!(left >= second * 10 && left <= second * 15, "{left:?}");
        let mut still = Pace::default();
        (0..=9).for_each(|n| still.see(second * n, 0));
        assert_eq!(still.left(1000), None);
    }

    #[test]
    fn a_rate_is_total() {
        assert_eq!(per_second(10, Duration::from_secs(2)), 5);
        assert_eq!(per_second(u64::MAX, Duration::ZERO), u64::MAX);
    }
}
