//! The server's figures as text: for Prometheus, and as JSON for the status page.

use std::{fmt::Write, sync::atomic::Ordering};

use crate::{command::COMMANDS, server::Server};

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

/// The shares of commands whose latency is told.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// All metrics in the text format of Prometheus, in base units.
pub(crate) fn prometheus(server: &Server) -> String {
    let mut text = String::new();
    for metric in server_metrics(server).into_iter().chain(engine_metrics(server)) {
        let Metric { name, kind, help, samples } = metric;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    text + &latency(server)
}

fn latency(server: &Server) -> String {
    let name = "rhumb_command_duration_seconds";
    let mut text = format!(
        "# HELP {name} Time of commands, each with its share of its batch.\n# TYPE {name} summary\n"
    );
    for share in QUANTILES {
        let seconds = server.metrics.latency_ns(share) as f64 / 1e9;
        let _ = writeln!(text, "{name}{{quantile=\"{share}\"}} {seconds}");
    }
    let (total_ns, count) = server.metrics.latency_total();
    let _ = writeln!(text, "{name}_sum {}\n{name}_count {count}", total_ns as f64 / 1e9);
    text
}

fn server_metrics(server: &Server) -> Vec<Metric> {
    let (metrics, clients) = (&server.metrics, &server.clients);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let calls = COMMANDS.iter().enumerate().map(|(at, command)| {
        (format!("{{command=\"{}\"}}", command.name), metrics.calls(at) as f64)
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
        counter(
            "rhumb_expired_keys_total",
            "Keys removed at their end.",
            metrics.expired_keys() as f64,
        ),
        counter(
            "rhumb_reclaimed_collections_total",
            "Removed collections whose members are gone.",
            metrics.reclaimed_collections() as f64,
        ),
    ]
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

/// A text as JSON.
fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The figures of the status page.
pub(crate) fn status_json(server: &Server) -> String {
    let (metrics, stats) = (&server.metrics, server.databases.engine.stats());
    let levels = |keyspace: &rhumb::KeyspaceStats| {
        let levels = keyspace.levels.iter().enumerate().map(|(number, level)| {
            format!(
                "{{\"level\":{number},\"tables\":{},\"entries\":{},\"bytes\":{}}}",
                level.tables, level.entries, level.file_bytes
            )
        });
        levels.collect::<Vec<_>>().join(",")
    };
    let keyspaces = stats.keyspaces.iter().map(|keyspace| {
        format!(
            "{{\"name\":{},\"entries\":{},\"bytes\":{},\"pinned_bytes\":{},\"levels\":[{}]}}",
            json_text(&keyspace.name),
            keyspace.entries,
            keyspace.file_bytes,
            keyspace.pinned_bytes,
            levels(keyspace)
        )
    });
    let keyspaces = keyspaces.collect::<Vec<_>>().join(",");
    let latency = QUANTILES.map(|share| format!("\"{share}\":{}", metrics.latency_ns(share)));
    format!(
        "{{\"uptime_seconds\":{},\"clients\":{},\"commands_total\":{},\"fsync\":{},\
         \"latency_ns\":{{{}}},\"memtable_bytes\":{},\"pinned_bytes\":{},\"cache_bytes\":{},\
         \"memory_budget_bytes\":{},\"buffers_bytes\":{},\"block_reads\":{},\"failure\":{},\
         \"keyspaces\":[{keyspaces}]}}",
        server.started.elapsed().as_secs(),
        server.clients.count(),
        metrics.commands_total(),
        json_text(server.databases.fsync().name()),
        latency.join(","),
        stats.memtable_bytes,
        stats.pinned_bytes,
        stats.cache_bytes,
        stats.memory_budget_bytes,
        server.clients.buffers_bytes.load(Ordering::Relaxed),
        stats.block_reads,
        stats.failure.as_deref().map_or("null".to_owned(), json_text),
    )
}

#[cfg(test)]
mod tests {
    use super::json_text;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(json_text("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
    }
}
