//! The figures of the status page, as JSON.

use std::{fmt::Write, path::Path, sync::atomic::Ordering};

use crate::{
    command::{self, COMMANDS},
    disk,
    history::{Recent, STEP_SECONDS},
    json::json_text,
    server::Server,
    share,
};

/// Commands that the page lists, at most: those that were called most.
const COMMANDS_MAX: usize = 12;

/// The parts of an object.
fn object<const N: usize>(fields: [(&str, String); N]) -> String {
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.join(","))
}

fn array(values: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", values.into_iter().collect::<Vec<_>>().join(","))
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

/// The absolute path of the data.
fn directory(data: &Path) -> String {
    std::path::absolute(data).unwrap_or_else(|_| data.to_owned()).display().to_string()
}

/// Where clients can come to.
fn addresses(server: &Server) -> String {
    let config = &server.config;
    let port = server.port.load(Ordering::Relaxed);
    let tcp = format!("{}:{port}", config.listen.ip());
    let unix = config.unix.as_ref().map(|path| path.display().to_string());
    array([tcp].into_iter().chain(unix).map(|address| json_text(&address)))
}

/// The figures of the status page.
pub(crate) fn status_json(server: &Server) -> String {
    let stats = server.databases.engine.stats();
    let data = &server.config.data;
    let reasons = server.databases.health.reasons(&stats);
    object([
        ("version", json_text(env!("CARGO_PKG_VERSION"))),
        ("directory", json_text(&directory(data))),
        ("addresses", addresses(server)),
        ("process", std::process::id().to_string()),
        ("uptime_seconds", server.started.elapsed().as_secs().to_string()),
        ("fsync", json_text(server.databases.fsync().name())),
        ("reasons", array(reasons.iter().map(|reason| json_text(reason)))),
        ("clients", server.clients.count().to_string()),
        ("clients_max", server.limits.read().clients.to_string()),
        ("commands_total", server.metrics.commands_total().to_string()),
        ("disk_used_bytes", or_null(disk::used_bytes(data))),
        ("disk_free_bytes", or_null(disk::free_bytes(data))),
        ("minute", or_null(server.history.minute().map(|minute| minute_json(&minute)))),
        ("memory", memory_json(server, &stats)),
        ("work", work_json(&stats)),
        ("errors", errors_json(server)),
        ("keyspaces", keyspaces_json(&stats)),
        ("shares", shares_json(server)),
        ("share_calls", share_calls_json(server)),
    ])
}

fn minute_json(minute: &Recent) -> String {
    let rate = |count: u64| format!("{:.2}", minute.rate(count));
    let mut commands: Vec<(&str, u64)> =
        (0..).map(|slot| COMMANDS.name(slot)).zip(minute.calls.iter().copied()).collect();
    commands.retain(|(_, calls)| *calls > 0);
    commands.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    commands.truncate(COMMANDS_MAX);
    let gets = command::find(b"get").and_then(|(at, _)| minute.calls.get(at).copied()).unwrap_or(0);
    let found = (gets > 0)
        .then(|| format!("{:.4}", gets.saturating_sub(minute.absent) as f64 / gets as f64));
    let commands =
        commands.into_iter().map(|(name, calls)| format!("[{},{}]", json_text(name), rate(calls)));
    object([
        ("seconds", format!("{:.1}", minute.time.as_secs_f64())),
        ("commands", rate(minute.commands())),
        ("p50_ns", minute.latencies.percentile_ns(0.5).to_string()),
        ("p99_ns", minute.latencies.percentile_ns(0.99).to_string()),
        ("max_ns", minute.latency_ns_max.to_string()),
        ("by_command", array(commands)),
        ("gets_found", or_null(found)),
        ("block_reads", rate(minute.block_reads)),
        ("written_entries", rate(minute.written_entries)),
        ("input_bytes", rate(minute.input_bytes)),
        ("output_bytes", rate(minute.output_bytes)),
    ])
}

fn memory_json(server: &Server, stats: &rhumb::Stats) -> String {
    let buffers = server.clients.buffers_bytes.load(Ordering::Relaxed);
    object([
        ("budget_bytes", stats.memory_budget_bytes.to_string()),
        ("used_bytes", server.memory_bytes(stats).to_string()),
        ("memtable_bytes", stats.memtable_bytes.to_string()),
        ("pinned_bytes", stats.pinned_bytes.to_string()),
        ("cache_bytes", stats.cache_bytes.to_string()),
        ("buffers_bytes", buffers.to_string()),
        ("resident_bytes", or_null(disk::resident_bytes())),
    ])
}

fn work_json(stats: &rhumb::Stats) -> String {
    object([
        ("sealed_memtables", stats.sealed_memtables.to_string()),
        ("flushes", stats.flushes.to_string()),
        ("flushed_bytes", stats.flushed_bytes.to_string()),
        ("compactions", stats.compactions.to_string()),
        ("compacted_read_bytes", stats.compacted_read_bytes.to_string()),
        ("compacted_written_bytes", stats.compacted_written_bytes.to_string()),
        ("log_syncs", stats.log_syncs.to_string()),
        ("stall_ns_max", stats.stall_ns_max.to_string()),
    ])
}

fn errors_json(server: &Server) -> String {
    let (health, metrics, clients) = (&server.databases.health, &server.metrics, &server.clients);
    let stats = server.databases.engine.stats();
    object([
        ("failed writes", health.failed_writes().to_string()),
        ("failed syncs", health.failed_syncs().to_string()),
        ("failed reads", health.failed_reads().to_string()),
        ("reads that met damage", health.damage_met().to_string()),
        ("failed flushes and compactions", stats.failed_jobs.to_string()),
        ("slow commands", metrics.slow_commands().to_string()),
        ("wrong passwords", metrics.refused_passwords().to_string()),
        ("clients past the limit", clients.refused.load(Ordering::Relaxed).to_string()),
        ("clients closed as too slow", clients.overdue.load(Ordering::Relaxed).to_string()),
        ("protocol errors", metrics.protocol_errors().to_string()),
        ("lines of the log dropped", server.log.dropped().to_string()),
    ])
}

fn keyspaces_json(stats: &rhumb::Stats) -> String {
    array(stats.keyspaces.iter().map(|keyspace| {
        let levels = keyspace.levels.iter().enumerate().map(|(number, level)| {
            object([
                ("level", number.to_string()),
                ("tables", level.tables.to_string()),
                ("entries", level.entries.to_string()),
                ("bytes", level.file_bytes.to_string()),
            ])
        });
        object([("name", json_text(&keyspace.name)), ("levels", array(levels))])
    }))
}

/// What other processes read without asking.
fn shares_json(server: &Server) -> String {
    let (shares, host) = share::stats(server);
    array(shares.iter().map(|(name, stats)| {
        let gets = &stats.gets;
        let by_more = gets.hop + gets.speculative + gets.retry + gets.call;
        object([
            ("name", json_text(name)),
            ("live", stats.is_live.to_string()),
            ("sessions", host.sessions.to_string()),
            ("entries", stats.entries.to_string()),
            ("leaf_bytes", (stats.leaves * stats.leaf_bytes).to_string()),
            ("mapped_bytes", stats.mapped_bytes.to_string()),
            ("large_page_bytes", stats.huge_bytes.to_string()),
            ("waiting_bytes", stats.waiting_bytes.to_string()),
            ("resets", stats.resets.to_string()),
            ("gets", (gets.one_read + by_more).to_string()),
            ("gets_by_more", by_more.to_string()),
        ])
    }))
}

/// What other processes called the server for, and the mean time of a call.
fn share_calls_json(server: &Server) -> String {
    let (_, host) = share::stats(server);
    let all: u64 = host.calls.iter().map(|(_, calls)| calls).sum();
    let by_kind = host.calls.iter().filter(|(_, calls)| *calls > 0);
    let by_kind = by_kind.map(|(kind, calls)| format!("[{},{calls}]", json_text(kind)));
    object([
        ("by_kind", array(by_kind)),
        ("mean_ns", (host.calls_ns / all.max(1)).to_string()),
        ("refused", host.sessions_refused.to_string()),
        ("overdue", host.sessions_overdue.to_string()),
        ("leases_lost", host.leases_lost.to_string()),
    ])
}

/// The last hour: the seconds of a step, and for each step its figures in the order in which the
/// page takes them.
pub(crate) fn history_json(server: &Server) -> String {
    let mut steps = String::new();
    for step in server.history.steps() {
        let comma = if steps.is_empty() { "" } else { "," };
        let _ = write!(
            steps,
            "{comma}[{:.2},{},{},{},{:.2},{},{},{}]",
            step.commands_per_second,
            step.p50_ns,
            step.p99_ns,
            step.latency_ns_max,
            step.block_reads_per_second,
            step.memory_bytes,
            step.disk_bytes,
            step.clients,
        );
    }
    format!("{{\"step_seconds\":{STEP_SECONDS},\"steps\":[{steps}]}}")
}
