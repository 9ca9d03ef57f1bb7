//! One line of the log, as text or JSON. A line never has a line break or another control character
//! within, whatever a client or a file name holds.

use std::{
    fmt::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Event, Field, LogFormat, Value};
use crate::json::json_text;

/// The longest line, in bytes: the longest path of Linux, which is the longest thing that a line
/// names, has 4,096 bytes. What is longer is cut.
pub(super) const BYTES_MAX: usize = 4 << 10;

/// A line with its line break.
pub(super) fn format(
    format: LogFormat,
    time: SystemTime,
    event: Event,
    message: &str,
    fields: &[Field<'_>],
) -> String {
    match format {
        LogFormat::Text => text(time, event, message, fields),
        LogFormat::Json => json(time, event, message, fields),
    }
}

fn text(time: SystemTime, event: Event, message: &str, fields: &[Field<'_>]) -> String {
    let level = event.level().name().to_uppercase();
    let mut line = format!("{} {level:5} {}: ", timestamp(time), event.name());
    line.extend(message.chars().map(|c| if c.is_control() { ' ' } else { c }));
    for (name, value) in fields {
        let _ = match value {
            Value::Text(text) if is_plain(text) => write!(line, " {name}={text}"),
            Value::Text(text) => write!(line, " {name}={text:?}"),
            Value::Count(count) => write!(line, " {name}={count}"),
            Value::Time(time) => write!(line, " {name}={time:.3?}"),
        };
    }
    cut(&mut line, BYTES_MAX);
    line.push('\n');
    line
}

/// Returns true if a value needs no quotes.
fn is_plain(text: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_graphic() && c != '"' && c != '\'' && c != '=';
    !text.is_empty() && text.chars().all(is_fit)
}

/// Fields of times are in seconds, and their names say so.
fn json(time: SystemTime, event: Event, message: &str, fields: &[Field<'_>]) -> String {
    let short = |text: &str| {
        let mut text = text.to_owned();
        // Escaped, a character takes six bytes at most.
        cut(&mut text, BYTES_MAX / 12);
        json_text(&text)
    };
    let mut line = format!(
        "{{\"time\":\"{}\",\"level\":\"{}\",\"event\":\"{}\",\"message\":{}",
        timestamp(time),
        event.level().name(),
        event.name(),
        short(message)
    );
    for (name, value) in fields {
        let before = line.len();
        let _ = match value {
            Value::Text(text) => write!(line, ",\"{name}\":{}", short(text)),
            Value::Count(count) => write!(line, ",\"{name}\":{count}"),
            Value::Time(time) => write!(line, ",\"{name}_seconds\":{}", time.as_secs_f64()),
        };
        // Whole fields only: the line stays JSON.
        if line.len() > BYTES_MAX - 2 {
            line.truncate(before);
        }
    }
    line += "}\n";
    line
}

/// Cuts a text to `most` bytes, between characters.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let at = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
    }
}

/// The time in UTC, as RFC 3339 has it, to the millisecond.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a number of days since 1970-01-01.
///
/// Years begin in March here, so that a leap day is the last of its year. The method is that of
/// Howard Hinnant's `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| timestamp(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        // As `date -u -d @SECONDS` has them.
        assert_eq!(at(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00.007Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59.007Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.007Z");
    }

    #[test]
    fn lines_are_lines() {
        let fields = [
            ("file", "a b\n\"c\"".into()),
            ("keys", 3_u64.into()),
            ("took", Duration::from_millis(1500).into()),
            ("client", "127.0.0.1:5".into()),
        ];
        let event = Event::SlowCommand;
        let text = format(LogFormat::Text, UNIX_EPOCH, event, "it\ntook long", &fields);
        assert_eq!(
            text,
            "1970-01-01T00:00:00.000Z WARN  slow-command: it took long file=\"a b\\n\\\"c\\\"\" \
             keys=3 took=1.500s client=127.0.0.1:5\n"
        );
        let json = format(LogFormat::Json, UNIX_EPOCH, event, "it\ntook long", &fields);
        assert_eq!(
            json,
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warn\",\"event\":\"slow-command\",\
             \"message\":\"it\\u000atook long\",\"file\":\"a b\\u000a\\\"c\\\"\",\"keys\":3,\
             \"took_seconds\":1.5,\"client\":\"127.0.0.1:5\"}\n"
        );
    }

    #[test]
    fn lines_are_short() {
        let long = "\u{1}é".repeat(10_000);
        let fields = [("a", long.as_str().into()), ("b", long.as_str().into())];
        for kind in [LogFormat::Text, LogFormat::Json] {
            let line = format(kind, UNIX_EPOCH, Event::Damage, &long, &fields);
            assert!(line.len() <= BYTES_MAX + 1, "{}", line.len());
            assert_eq!(line.lines().count(), 1);
            assert!(kind == LogFormat::Text || line.ends_with("\"}\n"), "{line}");
        }
    }
}
