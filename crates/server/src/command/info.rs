//! `INFO`: sections of lines for people and for monitors.

use std::{fmt::Write, sync::atomic::Ordering};

use super::{Context, Done, is_word, server::VERSION};
use crate::{count::Tally, encode::format::DATABASES, resp::Args, server::Server};

type Section = (&'static str, fn(&Server) -> String);

/// The sections in the order in which they are written.
const SECTIONS: [Section; 8] = [
    ("Server", server_section),
    ("Clients", clients_section),
    ("Memory", memory_section),
    ("Persistence", persistence_section),
    ("Stats", stats_section),
    ("Replication", replication_section),
    ("Keyspace", keyspace_section),
    ("Engine", engine_section),
];

/// `INFO`.
pub(super) fn info(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let wanted = |name: &str| {
        let is = |word: &[u8]| {
            is_word(word, name) || ["all", "everything", "default"].iter().any(|w| is_word(word, w))
        };
        args.len() == 1 || args.iter_from(1).any(is)
    };
    let mut text = String::new();
    for (name, section) in SECTIONS.iter().filter(|(name, _)| wanted(name)) {
        if !text.is_empty() {
            text += "\r\n";
        }
        let _ = write!(text, "# {name}\r\n{}", section(context.server));
    }
    context.out.verbatim(&text);
    Ok(())
}

/// Lines of a name and a value.
fn lines<const N: usize>(fields: [(&str, String); N]) -> String {
    fields.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "{name}:{value}\r\n");
        text
    })
}

fn server_section(server: &Server) -> String {
    let uptime = server.started.elapsed().as_secs();
    lines([
        ("redis_version", VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("rhumb_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("run_id", server.run_id.clone()),
        ("tcp_port", server.port.load(Ordering::Relaxed).to_string()),
        ("uptime_in_seconds", uptime.to_string()),
        ("uptime_in_days", (uptime / 86_400).to_string()),
    ])
}

fn clients_section(server: &Server) -> String {
    let (clients, limits) = (&server.clients, &server.config.limits);
    lines([
        ("connected_clients", clients.count().to_string()),
        ("maxclients", server.limits.read().clients.to_string()),
        ("blocked_clients", server.clients.blocked.load(Ordering::Relaxed).to_string()),
        ("client_unsent_bytes", clients.unsent_bytes.load(Ordering::Relaxed).to_string()),
        ("client_unsent_bytes_max", clients.unsent_bytes_max.load(Ordering::Relaxed).to_string()),
        ("client_output_limit_bytes", limits.output_bytes.to_string()),
        ("clients_output_limit_bytes", limits.all_output_bytes().to_string()),
    ])
}

fn memory_section(server: &Server) -> String {
    let stats = server.databases.engine.stats();
    let buffers = server.clients.buffers_bytes.load(Ordering::Relaxed) as u64;
    let used = server.memory_bytes(&stats);
    lines([
        ("used_memory", used.to_string()),
        ("used_memory_buffers", buffers.to_string()),
        ("used_memory_mapped", stats.mapped_bytes.to_string()),
        ("used_memory_records", stats.record_chunk_bytes.to_string()),
        ("used_memory_cache_chunks", stats.cache_chunk_bytes.to_string()),
        ("used_memory_read_buffers", stats.read_buffer_bytes.to_string()),
        ("used_memory_memtables", stats.memtable_bytes.to_string()),
        ("used_memory_pinned", stats.pinned_bytes.to_string()),
        ("used_memory_cache", stats.cache_bytes.to_string()),
        ("maxmemory", stats.memory_budget_bytes.to_string()),
        ("maxmemory_policy", "noeviction".to_owned()),
    ])
}

fn persistence_section(server: &Server) -> String {
    let stats = server.databases.engine.stats();
    let health = &server.databases.health;
    let status = |is_failing: bool| if is_failing { "err" } else { "ok" }.to_owned();
    let writes = status(health.are_writes_failing() || health.are_syncs_failing());
    lines([
        ("loading", "0".to_owned()),
        ("rdb_bgsave_in_progress", "0".to_owned()),
        ("rdb_last_bgsave_status", status(stats.failure.is_some())),
        ("aof_enabled", "1".to_owned()),
        ("aof_rewrite_in_progress", "0".to_owned()),
        ("aof_last_write_status", writes),
        ("appendfsync", server.databases.fsync().name().to_owned()),
    ])
}

fn stats_section(server: &Server) -> String {
    let (metrics, clients) = (&server.metrics, &server.clients);
    lines([
        ("total_connections_received", clients.accepted.load(Ordering::Relaxed).to_string()),
        ("total_commands_processed", metrics.commands_total().to_string()),
        ("instantaneous_ops_per_sec", metrics.commands_per_second().to_string()),
        ("total_net_input_bytes", metrics.input_bytes().to_string()),
        ("total_net_output_bytes", metrics.output_bytes().to_string()),
        ("rejected_connections", clients.refused.load(Ordering::Relaxed).to_string()),
        ("rejected_http_connections", clients.http.load(Ordering::Relaxed).to_string()),
        ("expired_keys", metrics.expired_keys().to_string()),
    ])
}

fn replication_section(_server: &Server) -> String {
    lines([("role", "master".to_owned()), ("connected_slaves", "0".to_owned())])
}

/// The databases whose keys are counted: counting reads every key, so `DBSIZE` has to ask for it.
fn keyspace_section(server: &Server) -> String {
    let mut text = String::new();
    for database in 0..DATABASES {
        let number = server.databases.number(database);
        let Some((_, db)) = server.databases.opened().find(|(n, _)| *n == number) else { continue };
        let Some(Tally { keys, expires }) = db.count.known() else { continue };
        if keys > 0 {
            let _ = write!(text, "db{database}:keys={keys},expires={expires},avg_ttl=0\r\n");
        }
    }
    text
}

fn engine_section(server: &Server) -> String {
    let stats = server.databases.engine.stats();
    let files: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.file_bytes).sum();
    let entries: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.entries).sum();
    lines([
        ("table_entries", entries.to_string()),
        ("table_bytes", files.to_string()),
        ("memtable_bytes", stats.memtable_bytes.to_string()),
        ("cache_bytes", stats.cache_bytes.to_string()),
        ("cache_capacity_bytes", stats.cache_capacity_bytes.to_string()),
        ("cache_inserts", stats.cache_inserts.to_string()),
        ("cache_evictions", stats.cache_evictions.to_string()),
        ("block_reads", stats.block_reads.to_string()),
        ("passed_entries", stats.passed_entries.to_string()),
        ("written_entries", stats.written_entries.to_string()),
        ("log_syncs", stats.log_syncs.to_string()),
        ("flushes", stats.flushes.to_string()),
        ("compactions", stats.compactions.to_string()),
        ("tables_trained", stats.tables_trained.to_string()),
        ("tables_untrained", stats.tables_untrained.to_string()),
        ("tables_trained_reading", stats.tables_trained_reading.to_string()),
        ("trainings_refused", stats.trainings_refused.to_string()),
        ("stall_ns_max", stats.stall_ns_max.to_string()),
        ("failed_writes", server.databases.health.failed_writes().to_string()),
        ("failed_syncs", server.databases.health.failed_syncs().to_string()),
        ("failed_reads", server.databases.health.failed_reads().to_string()),
        ("damage_met", server.databases.health.damage_met().to_string()),
        ("failure", stats.failure.unwrap_or_default()),
    ])
}
