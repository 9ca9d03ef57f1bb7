//! The server's figures as text for Prometheus.

mod listeners;

use std::{fmt::Write, sync::atomic::Ordering};

use rhumb_share::{HostStats, ShareStats};

use crate::{command::COMMANDS, json::json_text, server::Server, share};

/// One metric: its name, its type, what it is, and its samples with their labels.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<(String, f64)>,
}

fn one(name: &'static str, kind: &'static str, help: &'static str, value: f64) -> Metric {
    Metric { name, kind, help, samples: vec![(String::new(), value)] }
}

/// The bounds of the latency histogram's buckets, as powers of two of nanoseconds: from a
/// microsecond, which no command takes less than, to 17 seconds.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=34;

/// The same for reads of the engine, of which those from memory take less than a microsecond.
const READ_BOUNDS: std::ops::RangeInclusive<u32> = 7..=34;

/// All metrics in the text format of Prometheus, in base units.
pub(crate) fn prometheus(server: &Server) -> String {
    let mut text = String::new();
    let all = [
        server_metrics(server),
        listeners::metrics(server),
        health_metrics(server),
        engine_metrics(server),
        share_metrics(server),
    ];
    for metric in all.into_iter().flatten() {
        let Metric { name, kind, help, samples } = metric;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    text + &command_times(server) + &read_times(server)
}

/// What is known of keyspaces that other processes read; nothing where none is shared.
fn share_metrics(server: &Server) -> Vec<Metric> {
    let (shares, host) = share::stats(server);
    if shares.is_empty() {
        return Vec::new();
    }
    let each = |name, kind, help, value: fn(&ShareStats) -> u64| {
        let sample = |(share, stats): &(String, ShareStats)| {
            (format!("{{share={}}}", json_text(share)), value(stats) as f64)
        };
        Metric { name, kind, help, samples: shares.iter().map(sample).collect() }
    };
    let help = "1 if other processes read the keyspace without asking.";
    let mut metrics = session_metrics(&host);
    metrics.extend([
        Metric {
            name: "rhumb_share_gets_total",
            kind: "counter",
            help: "Gets of other processes, as they report them.",
            samples: shares.iter().flat_map(outcomes).collect(),
        },
        each("rhumb_share_reads_total", "counter", "Leaves read for these gets.", |stats| {
            stats.gets.reads
        }),
        each("rhumb_share_read_bytes_total", "counter", "Bytes that these brought.", |stats| {
            stats.gets.bytes
        }),
        each("rhumb_share_live", "gauge", help, |stats| stats.is_live.into()),
        each("rhumb_share_entries", "gauge", "Entries shared.", |stats| stats.entries),
        each("rhumb_share_leaves", "gauge", "Leaves in use.", |stats| stats.leaves),
        each("rhumb_share_runs", "gauge", "Runs of leaves.", |stats| stats.runs),
        each("rhumb_share_leaf_bytes", "gauge", "Bytes of leaves in use.", |stats| {
            stats.leaves * stats.leaf_bytes
        }),
        each("rhumb_share_mapped_bytes", "gauge", "Bytes that others may map.", |stats| {
            stats.mapped_bytes
        }),
        each("rhumb_share_large_page_bytes", "gauge", "Bytes of them in large pages.", |stats| {
            stats.huge_bytes
        }),
        each(
            "rhumb_share_waiting_bytes",
            "gauge",
            "Bytes replaced that wait until those that may read them know of it.",
            |stats| stats.waiting_bytes,
        ),
        each(
            "rhumb_share_resets_total",
            "counter",
            "Times that it had to be loaded anew.",
            |stats| stats.resets,
        ),
    ]);
    metrics
}

/// How gets of a share went.
fn outcomes((share, stats): &(String, ShareStats)) -> [(String, f64); 5] {
    let (share, gets) = (json_text(share), stats.gets);
    [
        ("one_read", gets.one_read),
        ("hop", gets.hop),
        ("speculative", gets.speculative),
        ("retry", gets.retry),
        ("call", gets.call),
    ]
    .map(|(outcome, count)| (format!("{{share={share},outcome=\"{outcome}\"}}"), count as f64))
}

/// What is counted of other processes.
fn session_metrics(host: &HostStats) -> Vec<Metric> {
    let calls = host.calls.iter().filter(|(_, calls)| *calls > 0);
    let calls = calls.map(|(kind, calls)| (format!("{{kind=\"{kind}\"}}"), *calls as f64));
    let counter = |name, help, value| one(name, "counter", help, value);
    let sessions = host.sessions as f64;
    vec![
        one("rhumb_share_sessions", "gauge", "Connections of other processes.", sessions),
        counter(
            "rhumb_share_sessions_total",
            "Connections of other processes that there were.",
            host.sessions_total as f64,
        ),
        counter(
            "rhumb_share_sessions_refused_total",
            "Connections past a limit, or of users that may not come.",
            host.sessions_refused as f64,
        ),
        counter(
            "rhumb_share_sessions_overdue_total",
            "Connections closed because the other process was too slow.",
            host.sessions_overdue as f64,
        ),
        counter(
            "rhumb_share_leases_lost_total",
            "Times that the server was late to say that it lives, so that others asked.",
            host.leases_lost as f64,
        ),
        Metric {
            name: "rhumb_share_calls_total",
            kind: "counter",
            help: "Calls of other processes.",
            samples: calls.collect(),
        },
        counter(
            "rhumb_share_call_seconds_total",
            "Time that answering calls took, waits of writes included.",
            host.calls_ns as f64 / 1e9,
        ),
    ]
}

/// A histogram: its bounds, each a power of two of nanoseconds with the number of times that were
/// shorter, the sum of all times in nanoseconds, and their number.
fn histogram(
    (name, help): (&str, &str),
    below: impl Iterator<Item = (u32, u64)>,
    (total_ns, count): (u64, u64),
) -> String {
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
    for (exponent, below) in below {
        let seconds = 2_f64.powi(exponent as i32) / 1e9;
        let _ = writeln!(text, "{name}_bucket{{le=\"{seconds}\"}} {below}");
    }
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_sum {}\n{name}_count {count}", total_ns as f64 / 1e9);
    text
}

fn command_times(server: &Server) -> String {
    let latencies = server.metrics.latencies();
    let below = BOUNDS.map(|exponent| (exponent, latencies.below(exponent)));
    let help = "Time of commands, each with its share of its batch.";
    let sums = (server.metrics.latency_ns_total(), latencies.count());
    histogram(("rhumb_command_duration_seconds", help), below, sums)
}

/// Times of the engine's reads of single keys. The buckets' ends stand for the times in the sum, so
/// that it is at most a quarter too high.
fn read_times(server: &Server) -> String {
    let latency = server.databases.engine.stats().read_latency;
    let below = READ_BOUNDS.map(|exponent| {
        let shorter = latency.buckets().take_while(|(end, _)| *end <= 1 << exponent);
        (exponent, shorter.map(|(_, count)| count).sum())
    });
    let total_ns = latency.buckets().map(|(end, count)| end.saturating_mul(count)).sum();
    let help = "Time of single reads of the engine, one of 64 of each thread.";
    histogram(("rhumb_read_duration_seconds", help), below, (total_ns, latency.count()))
}

fn server_metrics(server: &Server) -> Vec<Metric> {
    let (metrics, clients) = (&server.metrics, &server.clients);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let calls = (0..COMMANDS.slots()).map(|slot| {
        (format!("{{command=\"{}\"}}", COMMANDS.name(slot)), metrics.calls(slot) as f64)
    });
    let calls = Metric {
        name: "rhumb_commands_total",
        kind: "counter",
        help: "Commands run.",
        samples: calls.filter(|(_, calls)| *calls > 0.0).collect(),
    };
    let counter = |name, help, value| one(name, "counter", help, value);
    let gauge = |name, help, value| one(name, "gauge", help, value);
    vec![
        Metric {
            name: "rhumb_build_info",
            kind: "gauge",
            help: "Always 1; the label is the version.",
            samples: vec![(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0)],
        },
        calls,
        gauge(
            "rhumb_uptime_seconds",
            "Time since the start.",
            server.started.elapsed().as_secs_f64(),
        ),
        gauge("rhumb_connections", "Clients connected.", clients.count() as f64),
        counter("rhumb_connections_accepted_total", "Clients that came.", count(&clients.accepted)),
        counter(
            "rhumb_connections_refused_total",
            "Clients past the limit.",
            count(&clients.refused),
        ),
        counter(
            "rhumb_connections_overdue_total",
            "Clients closed for their slowness.",
            count(&clients.overdue),
        ),
        gauge(
            "rhumb_client_buffers_bytes",
            "Bytes of clients' buffers.",
            clients.buffers_bytes.load(Ordering::Relaxed) as f64,
        ),
        counter("rhumb_received_bytes_total", "Bytes from clients.", metrics.input_bytes() as f64),
        counter("rhumb_sent_bytes_total", "Bytes to clients.", metrics.output_bytes() as f64),
        counter(
            "rhumb_protocol_errors_total",
            "Clients that sent what is no command.",
            metrics.protocol_errors() as f64,
        ),
        counter(
            "rhumb_refused_passwords_total",
            "Wrong passwords.",
            metrics.refused_passwords() as f64,
        ),
        counter("rhumb_absent_gets_total", "GETs of absent keys.", metrics.absent() as f64),
        counter(
            "rhumb_expired_keys_total",
            "Keys removed at their end.",
            count(&server.databases.ended_keys),
        ),
        counter(
            "rhumb_reclaimed_collections_total",
            "Removed collections whose members are gone.",
            metrics.reclaimed_collections() as f64,
        ),
    ]
}

fn health_metrics(server: &Server) -> Vec<Metric> {
    let (health, data) = (&server.databases.health, &server.config.data);
    let counter = |name, help, value: u64| one(name, "counter", help, value as f64);
    let gauge = |name, help, value: u64| one(name, "gauge", help, value as f64);
    let is_well = server.health_reasons().is_empty();
    let mut metrics = vec![
        gauge("rhumb_healthy", "1 while /healthz says ok, else 0.", is_well.into()),
        gauge(
            "rhumb_writes_failing",
            "1 from a write that the disk refused until the next one that is done.",
            health.are_writes_failing().into(),
        ),
        counter(
            "rhumb_failed_writes_total",
            "Commits that the disk refused.",
            health.failed_writes(),
        ),
        counter("rhumb_failed_syncs_total", "Syncs that the disk refused.", health.failed_syncs()),
        counter("rhumb_failed_reads_total", "Reads that the disk refused.", health.failed_reads()),
        counter("rhumb_damage_met_total", "Reads that met damaged bytes.", health.damage_met()),
        counter(
            "rhumb_slow_commands_total",
            "Commands that took longer than --slow-command-ms.",
            server.metrics.slow_commands(),
        ),
        counter(
            "rhumb_log_lines_dropped_total",
            "Lines of the log that the standard error did not take.",
            server.log.dropped(),
        ),
        counter(
            "rhumb_log_lines_suppressed_total",
            "Lines of the log that were not written because of many like them.",
            server.log.suppressed(),
        ),
    ];
    if let Some(bytes) = crate::disk::free_bytes(data) {
        let help = "Bytes free on the file system of the data.";
        metrics.push(gauge("rhumb_disk_free_bytes", help, bytes));
    }
    if let Some(bytes) = crate::disk::used_bytes(data) {
        metrics.push(gauge("rhumb_disk_used_bytes", "Bytes of the files of the data.", bytes));
    }
    metrics
}

fn engine_metrics(server: &Server) -> Vec<Metric> {
    let stats = server.databases.engine.stats();
    let counter = |name, help, value: u64| one(name, "counter", help, value as f64);
    let gauge = |name, help, value: u64| one(name, "gauge", help, value as f64);
    let by_keyspace = |name, help, of: fn(&rhumb::KeyspaceStats) -> u64| {
        let samples = stats
            .keyspaces
            .iter()
            .map(|keyspace| (format!("{{keyspace=\"{}\"}}", keyspace.name), of(keyspace) as f64));
        Metric { name, kind: "gauge", help, samples: samples.collect() }
    };
    vec![
        by_keyspace("rhumb_table_entries", "Entries in tables.", |keyspace| keyspace.entries),
        by_keyspace("rhumb_table_bytes", "Bytes of tables.", |keyspace| keyspace.file_bytes),
        gauge("rhumb_memtable_bytes", "Bytes of memtables.", stats.memtable_bytes),
        gauge("rhumb_mapped_bytes", "Bytes that the engine has mapped.", stats.mapped_bytes),
        gauge("rhumb_pinned_bytes", "Bytes of pinned indexes and filters.", stats.pinned_bytes),
        gauge("rhumb_cache_bytes", "Bytes of cached blocks.", stats.cache_bytes),
        gauge(
            "rhumb_cache_capacity_bytes",
            "Bytes that cached blocks may take.",
            stats.cache_capacity_bytes,
        ),
        gauge(
            "rhumb_memory_budget_bytes",
            "Bytes that the engine may take.",
            stats.memory_budget_bytes,
        ),
        gauge(
            "rhumb_deferred_bytes",
            "Bytes that wait until no thread uses them.",
            stats.deferred_bytes,
        ),
        gauge(
            "rhumb_refused_frees",
            "Times in a row that a thread's use kept them from being freed.",
            stats.refused_frees,
        ),
        counter(
            "rhumb_passed_entries_total",
            "Tombstones and old versions that scans and pops stepped over.",
            stats.passed_entries,
        ),
        counter("rhumb_block_reads_total", "Blocks read from files.", stats.block_reads),
        counter(
            "rhumb_block_read_calls_total",
            "Reads of files for blocks.",
            stats.block_read_calls,
        ),
        counter(
            "rhumb_block_read_bytes_total",
            "Bytes of blocks read from files.",
            stats.block_read_bytes,
        ),
        counter("rhumb_written_entries_total", "Entries written.", stats.written_entries),
        counter("rhumb_log_syncs_total", "Syncs of the log.", stats.log_syncs),
        counter("rhumb_flushes_total", "Memtables flushed.", stats.flushes),
        counter("rhumb_compactions_total", "Compactions.", stats.compactions),
        counter(
            "rhumb_compacted_written_bytes_total",
            "Bytes that compactions wrote.",
            stats.compacted_written_bytes,
        ),
        counter(
            "rhumb_failed_jobs_total",
            "Flushes and compactions that failed.",
            stats.failed_jobs,
        ),
        one(
            "rhumb_stall_seconds_max",
            "gauge",
            "Longest wait of a write for the background.",
            stats.stall_ns_max as f64 / 1e9,
        ),
    ]
}
