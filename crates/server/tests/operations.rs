//! The server as its operators see it: its log, its health, its metrics.

mod common;

use std::{
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex},
};

use common::{Client, Value, config, http, wait_until};
use rhumb_server::{Config, Limits, LogFormat, LogLevel, Running};

/// A log that is kept.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines of an event.
    fn of(&self, event: &str) -> Vec<String> {
        let text = self.text();
        let is_of = |line: &&str| line.contains(&format!(" {event}: "));
        text.lines().filter(is_of).map(str::to_owned).collect()
    }

    /// Waits for the first line of an event.
    #[track_caller]
    fn first(&self, event: &str) -> String {
        wait_until(|| !self.of(event).is_empty());
        self.of(event).remove(0)
    }
}

fn settings(dir: &tempfile::TempDir) -> Config {
    Config { metrics: Some(([127, 0, 0, 1], 0).into()), ..config(dir) }
}

fn start(settings: Config) -> (Lines, Running, Client) {
    let lines = Lines::default();
    let server = Running::start_with_log(settings, Box::new(lines.clone())).unwrap();
    let client = Client::connect(server.address());
    (lines, server, client)
}

/// A counter or gauge of `/metrics`.
#[track_caller]
fn metric(server: &Running, name: &str) -> u64 {
    let text = http(server, "/metrics").1;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn the_log_tells_the_life_of_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let (_, server, mut client) = start(settings(&dir));
    client.run("SET a 1");
    client.run("SET b 2");
    server.stop().unwrap();
    let (lines, server, mut client) = start(settings(&dir));
    let address = server.address().to_string();
    client.run("CONFIG SET timeout 77 appendfsync always");
    client.send_raw(b"SHUTDOWN\r\n").unwrap();
    assert_eq!(client.reply(), None);
    server.stop().unwrap();
    let text = lines.text();
    let events: Vec<&str> = text
        .lines()
        .map(|line| line.split(' ').filter(|w| !w.is_empty()).nth(2).unwrap())
        .collect();
    assert_eq!(
        events,
        [
            "start:",
            "recovery-began:",
            "recovery-ended:",
            "listening:",
            "listening:",
            "config-changed:",
            "config-changed:",
            "stopping:",
            "stopped:",
            "stopped:",
            "stopped:"
        ],
        "{text}"
    );
    let data = format!("directory={}", dir.path().join("data").display());
    let version = format!("version={}", env!("CARGO_PKG_VERSION"));
    for part in [&data, &version, "clients_max=10000", "memory_bytes=33554432"] {
        assert!(lines.first("start").contains(part), "{part} {text}");
    }
    // The end has written everything to tables.
    assert!(lines.first("recovery-ended").contains(" replayed_records=0 table_bytes="), "{text}");
    assert!(lines.first("listening").contains(&address), "{text}");
    let changed = lines.of("config-changed");
    assert!(changed[0].contains("setting=timeout value=77 client=127.0.0.1:"), "{text}");
    assert!(lines.first("stopping").contains("SHUTDOWN client=127.0.0.1:"), "{text}");
}

#[test]
fn lines_may_be_json() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        Config { log_format: LogFormat::Json, log_level: LogLevel::Debug, ..settings(&dir) };
    let (lines, server, mut client) = start(settings);
    client.run("PING");
    server.stop().unwrap();
    let text = lines.text();
    assert!(text.contains("\"event\":\"connected\""), "{text}");
    for line in text.lines() {
        assert!(line.starts_with("{\"time\":\"2") && line.ends_with('}'), "{line}");
    }
}

#[test]
fn strangers_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let limits = Limits { clients: 2, ..Limits::default() };
    let settings = Config { requirepass_file: Some(file), limits, ..settings(&dir) };
    let (lines, server, mut client) = start(settings);
    for _ in 0..25 {
        client.run("AUTH guessed");
    }
    let line = lines.first("wrong-password");
    assert!(line.contains("client=127.0.0.1:") && !line.contains("guessed"), "{line}");
    client.run("AUTH secret");
    client.run("CONFIG SET requirepass other");
    assert!(lines.first("config-changed").contains("value=\"(not shown)\""));
    let _second = Client::connect(server.address());
    wait_until(|| client.run("INFO clients").text().contains("connected_clients:2"));
    let mut third = Client::connect(server.address());
    assert!(matches!(third.reply(), Some(Value::Error(text)) if text.contains("max number")));
    assert!(lines.first("client-refused").contains("limit=2"));
    assert_eq!(metric(&server, "rhumb_refused_passwords_total"), 25);
    assert_eq!(metric(&server, "rhumb_connections_refused_total"), 1);
    // Ten lines are written and the others counted; the count is told at the end at the latest.
    assert_eq!(metric(&server, "rhumb_log_lines_suppressed_total"), 15);
    server.stop().unwrap();
    let told = lines.of("wrong-password");
    assert_eq!(told.len(), 11, "{told:?}");
    assert!(told[10].contains("suppressed=15"), "{told:?}");
    let text = lines.text();
    assert!(!text.contains("guessed") && !text.contains("secret"), "{text}");
}

/// Each kind of beginning of an HTTP request is one line, and what follows it is not run or told.
#[test]
fn a_browser_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, server, mut client) = start(settings(&dir));
    let requests =
        ["POST / HTTP/1.1\r\n", "GET /flushall HTTP/1.1\r\n", "Host: a\r\n", "PUT / HTTP/1.0\r\n"];
    for (at, request) in requests.iter().enumerate() {
        let mut browser = Client::connect(server.address());
        browser.send_raw(format!("{request}Host: secret\r\n\r\nSET a 1\r\n").as_bytes()).unwrap();
        assert_eq!(browser.reply(), None);
        wait_until(|| lines.of("http-client").len() == at + 1);
        let line = lines.of("http-client").remove(at);
        assert!(line.contains("WARN") && line.contains("client=127.0.0.1:"), "{line}");
    }
    assert_eq!(client.run("EXISTS a"), Value::Int(0));
    assert!(client.run("INFO stats").text().contains("rejected_http_connections:4"));
    server.stop().unwrap();
    assert!(!lines.text().contains("secret"));
}

#[test]
fn slow_commands_are_told_of_without_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, server, mut client) = start(Config { slow_command_ms: 1, ..settings(&dir) });
    for chunk in 0..20 {
        let fields: Vec<String> = (0..2000).map(|n| format!("precious{chunk}-{n} value")).collect();
        client.run(&format!("HSET hidden {}", fields.join(" ")));
    }
    wait_until(|| {
        client.run("HGETALL hidden");
        !lines.of("slow-command").is_empty()
    });
    let line = lines.first("slow-command");
    assert!(line.contains("command=h") && line.contains("keys=1 "), "{line}");
    assert!(!lines.text().contains("precious") && !lines.text().contains("hidden"));
    assert!(metric(&server, "rhumb_slow_commands_total") > 0);
}

/// Changes a byte in the middle of each table.
fn damage_tables(data: &Path) -> usize {
    let mut damaged = 0;
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        // Small tables share a file.
        if path.extension().is_some_and(|extension| extension == "sst" || extension == "set") {
            let mut bytes = std::fs::read(&path).unwrap();
            // Within the blocks, which come first.
            let at = bytes.len() / 8;
            bytes[at] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    damaged
}

#[test]
fn damage_is_a_line_a_counter_and_a_health() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let (_, server, mut client) = start(settings.clone());
    for n in 0..2000 {
        client.run(&format!("SET key:{n:06} {n}"));
    }
    server.stop().unwrap();
    assert!(damage_tables(&settings.data) > 0);
    let (lines, server, mut client) = start(settings.clone());
    assert_eq!(http(&server, "/healthz"), (200, "ok\n".to_owned()));
    let is_damaged = |n: &u32| matches!(client.run(&format!("GET key:{n:06}")), Value::Error(text) if text.contains("damaged"));
    let met = (0..2000).filter(is_damaged).count() as u64;
    assert!(met > 0, "no read met the damage");
    let line = lines.first("damage");
    let names_file = |text: &str| text.contains(".sst") || text.contains(".set");
    assert!(names_file(&line) && line.contains(" offset="), "{line}");
    assert_eq!(metric(&server, "rhumb_damage_met_total"), met);
    assert_eq!(metric(&server, "rhumb_healthy"), 0);
    for path in ["/healthz", "/readyz"] {
        let (status, body) = http(&server, path);
        assert!(status == 503 && body.starts_with("damage: ") && names_file(&body), "{body}");
    }
    assert_eq!(http(&server, "/livez"), (200, "ok\n".to_owned()));
    // Writes are not concerned.
    assert!(client.run("INFO persistence").text().contains("aof_last_write_status:ok"));
    // When nothing refers to the file any more, it and the damage are gone.
    assert_eq!(client.run("FLUSHALL"), Value::ok());
    wait_until(|| http(&server, "/healthz").0 == 200);
    lines.first("damage-gone");
    assert_eq!(metric(&server, "rhumb_healthy"), 1);
}

/// The buckets of a histogram of `/metrics`: each bound with its count.
#[track_caller]
fn buckets(server: &Running, name: &str) -> Vec<(f64, u64)> {
    let text = http(server, "/metrics").1;
    assert!(text.contains(&format!("# TYPE {name} histogram\n")) && !text.contains("quantile"));
    let prefix = format!("{name}_bucket{{le=\"");
    let buckets: Vec<(f64, u64)> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix)?.split_once("\"} "))
        .map(|(bound, count)| (bound.parse().unwrap(), count.parse().unwrap()))
        .collect();
    assert!(buckets.len() > 20 && buckets.is_sorted(), "{buckets:?}");
    buckets
}

#[test]
fn latencies_are_a_histogram() {
    let dir = tempfile::tempdir().unwrap();
    let (_, server, mut client) = start(settings(&dir));
    (0..7).for_each(|_| drop(client.run("PING")));
    let name = "rhumb_command_duration_seconds";
    wait_until(|| metric(&server, &format!("{name}_count")) == 7);
    assert_eq!(buckets(&server, name).last(), Some(&(f64::INFINITY, 7)));
}

#[test]
fn some_reads_of_the_engine_are_timed() {
    let dir = tempfile::tempdir().unwrap();
    let (_, server, mut client) = start(settings(&dir));
    let name = "rhumb_read_duration_seconds";
    let before = metric(&server, &format!("{name}_count"));
    // By one client, of which one thread of the server reads.
    (0..640).for_each(|n| drop(client.run(&format!("GET key{n}"))));
    let timed = metric(&server, &format!("{name}_count")) - before;
    assert!((5..100).contains(&timed), "{timed}");
    let buckets = buckets(&server, name);
    let last = buckets.len() - 1;
    assert!(buckets[last].1 >= before + timed, "{buckets:?}");
    // None takes 17 seconds.
    assert_eq!(buckets[last - 1].1, buckets[last].1, "{buckets:?}");
    assert!(buckets[0].0 < 2e-7, "{buckets:?}");
    let text = client.run("INFO engine").text();
    let figure = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("a line").parse().unwrap()
    };
    assert!(figure("timed_reads") >= before + timed);
    let quantiles = ["read_ns_p50", "read_ns_p99", "read_ns_p99.9"].map(figure);
    assert!(quantiles[0] > 0 && quantiles.is_sorted(), "{quantiles:?}");
}

#[test]
fn the_page_has_its_figures() {
    let dir = tempfile::tempdir().unwrap();
    let (_, server, mut client) = start(settings(&dir));
    client.run("SET here 1");
    wait_until(|| {
        // Two gets of which a step of the history has one would not be half found.
        client.run("GET here");
        client.run("GET elsewhere");
        http(&server, "/status.json").1.contains("\"gets_found\":0.5000")
    });
    let status = http(&server, "/status.json").1;
    let data = dir.path().join("data").display().to_string();
    for part in [
        format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION")),
        format!("\"directory\":\"{data}\""),
        format!("\"addresses\":[\"{}\"]", server.address()),
        "\"reasons\":[]".to_owned(),
        "\"by_command\":[[\"get\",".to_owned(),
        "\"disk_free_bytes\":".to_owned(),
        "\"failed writes\":0".to_owned(),
    ] {
        assert!(status.contains(&part), "{part} is not in {status}");
    }
    // The history is there before the page is opened.
    wait_until(|| http(&server, "/history.json").1.contains("\"steps\":[["));
    assert!(http(&server, "/").1.contains("/history.json"));
}
