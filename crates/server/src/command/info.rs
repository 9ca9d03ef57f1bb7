//! `INFO`: sections of lines for people and for monitors.

use std::{fmt::Write, sync::atomic::Ordering};

use super::{Context, Done, info_stats, is_word, server::VERSION};
use crate::{
    count::Tally,
    db::{Db, now_ms},
    disk,
    encode::{entry::decode_head, format::DATABASES},
    resp::Args,
    server::Server,
};

/// A section: its name, if it is given where none was asked for, and its lines.
type Section = (&'static str, bool, fn(&Server) -> String);

/// The sections in the order in which they are written.
const SECTIONS: [Section; 15] = [
    ("Server", true, server_section),
    ("Clients", true, clients_section),
    ("Memory", true, memory_section),
    ("Persistence", true, persistence_section),
    ("Threads", false, threads_section),
    ("Stats", true, info_stats::stats),
    ("Replication", true, replication_section),
    ("CPU", true, cpu_section),
    ("Modules", true, |_| String::new()),
    ("Commandstats", false, info_stats::commands),
    ("Errorstats", true, info_stats::errors),
    ("Latencystats", false, info_stats::latencies),
    ("Cluster", true, |_| "cluster_enabled:0\r\n".to_owned()),
    ("Keyspace", true, keyspace_section),
    ("Engine", true, engine_section),
];

/// `INFO`.
pub(super) fn info(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let any = |words: &[&str]| {
        args.iter_from(1).any(|argument| words.iter().any(|word| is_word(argument, word)))
    };
    let (all, default) = (any(&["all", "everything"]), args.len() == 1 || any(&["default"]));
    let mut text = String::new();
    for (name, is_default, section) in SECTIONS {
        if !(all || (default && is_default) || any(&[name])) {
            continue;
        }
        if !text.is_empty() {
            text += "\r\n";
        }
        let _ = write!(text, "# {name}\r\n{}", section(context.server));
    }
    context.out.verbatim(&text);
    Ok(())
}

/// Lines of a name and a value.
pub(super) fn lines<const N: usize>(fields: [(&str, String); N]) -> String {
    fields.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "{name}:{value}\r\n");
        text
    })
}

fn server_section(server: &Server) -> String {
    let uptime = server.started.elapsed().as_secs();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let executable = std::env::current_exe().unwrap_or_default();
    lines([
        ("redis_version", VERSION.to_owned()),
        ("redis_git_sha1", "00000000".to_owned()),
        ("redis_git_dirty", "0".to_owned()),
        ("redis_build_id", "0".to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("rhumb_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("os", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
        ("arch_bits", usize::BITS.to_string()),
        ("monotonic_clock", "POSIX clock_gettime".to_owned()),
        ("multiplexing_api", "tokio".to_owned()),
        ("process_id", std::process::id().to_string()),
        ("process_supervised", "no".to_owned()),
        ("run_id", server.run_id.clone()),
        ("tcp_port", server.port.load(Ordering::Relaxed).to_string()),
        ("server_time_usec", now.unwrap_or_default().as_micros().to_string()),
        ("uptime_in_seconds", uptime.to_string()),
        ("uptime_in_days", (uptime / 86_400).to_string()),
        ("executable", executable.display().to_string()),
        ("config_file", String::new()),
        ("io_threads_active", "1".to_owned()),
    ])
}

fn clients_section(server: &Server) -> String {
    let (clients, limits) = (&server.clients, &server.config.limits);
    let (keys, keys_of_groups) = server.databases.waiters.keys();
    lines([
        ("connected_clients", clients.count().to_string()),
        ("cluster_connections", "0".to_owned()),
        ("maxclients", server.limits.read().clients.to_string()),
        ("pubsub_clients", server.databases.listeners.topics.clients().to_string()),
        ("tracking_clients", server.databases.listeners.tracking.count().to_string()),
        ("blocked_clients", server.clients.blocked.load(Ordering::Relaxed).to_string()),
        ("clients_in_timeout_table", "0".to_owned()),
        ("total_blocking_keys", keys.to_string()),
        ("total_blocking_keys_on_nokey", keys_of_groups.to_string()),
        ("client_unsent_bytes", clients.unsent_bytes.load(Ordering::Relaxed).to_string()),
        ("client_unsent_bytes_max", clients.unsent_bytes_max.load(Ordering::Relaxed).to_string()),
        ("client_output_limit_bytes", limits.output_bytes.to_string()),
        ("clients_output_limit_bytes", limits.all_output_bytes().to_string()),
    ])
}

/// Bytes of memory that the process has; where the system does not say, what the server counts.
pub(super) fn resident_bytes(used: u64) -> u64 {
    disk::resident_bytes().unwrap_or(used)
}

/// Bytes for people, in the form of Redis.
fn human(bytes: u64) -> String {
    let units = [(1_u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / unit as f64),
        None => format!("{bytes}B"),
    }
}

fn memory_section(server: &Server) -> String {
    let stats = server.databases.engine.stats();
    let buffers = server.clients.buffers_bytes.load(Ordering::Relaxed) as u64;
    let used = server.memory_bytes(&stats);
    let (peak, resident) = (server.metrics.memory_peak(used), resident_bytes(used));
    let dataset = stats.memtable_bytes + stats.cache_bytes;
    let (libraries, functions) = server.functions.present().counts();
    let machine = disk::machine_bytes().unwrap_or(0);
    let share = |part: u64, of: u64| format!("{:.2}%", 100.0 * part as f64 / of.max(1) as f64);
    let ratio = format!("{:.2}", resident as f64 / used.max(1) as f64);
    let maximum = stats.memory_budget_bytes;
    lines([
        ("used_memory", used.to_string()),
        ("used_memory_human", human(used)),
        ("used_memory_rss", resident.to_string()),
        ("used_memory_rss_human", human(resident)),
        ("used_memory_peak", peak.to_string()),
        ("used_memory_peak_human", human(peak)),
        ("used_memory_peak_perc", share(used, peak)),
        ("used_memory_overhead", used.saturating_sub(dataset).to_string()),
        ("used_memory_startup", "0".to_owned()),
        ("used_memory_dataset", dataset.to_string()),
        ("used_memory_dataset_perc", share(dataset, used)),
        ("used_memory_buffers", buffers.to_string()),
        ("used_memory_messages", server.databases.listeners.limits.kept_bytes().to_string()),
        ("used_memory_mapped", stats.mapped_bytes.to_string()),
        ("used_memory_records", stats.record_chunk_bytes.to_string()),
        ("used_memory_cache_chunks", stats.cache_chunk_bytes.to_string()),
        ("used_memory_read_buffers", stats.read_buffer_bytes.to_string()),
        ("used_memory_memtables", stats.memtable_bytes.to_string()),
        ("used_memory_pinned", stats.pinned_bytes.to_string()),
        ("used_memory_cache", stats.cache_bytes.to_string()),
        ("total_system_memory", machine.to_string()),
        ("total_system_memory_human", human(machine)),
        ("used_memory_lua", "0".to_owned()),
        ("used_memory_scripts", "0".to_owned()),
        ("number_of_cached_scripts", server.scripts.sizes().0.to_string()),
        ("number_of_functions", functions.to_string()),
        ("number_of_libraries", libraries.to_string()),
        ("maxmemory", maximum.to_string()),
        ("maxmemory_human", human(maximum)),
        ("maxmemory_policy", "noeviction".to_owned()),
        ("mem_fragmentation_ratio", ratio),
        ("mem_fragmentation_bytes", (resident as i64 - used as i64).to_string()),
        ("mem_clients_slaves", "0".to_owned()),
        ("mem_clients_normal", buffers.to_string()),
        ("mem_cluster_links", "0".to_owned()),
        ("mem_aof_buffer", "0".to_owned()),
        ("mem_replication_backlog", "0".to_owned()),
        ("mem_allocator", "system".to_owned()),
        ("active_defrag_running", "0".to_owned()),
        ("lazyfree_pending_objects", "0".to_owned()),
        ("lazyfreed_objects", server.metrics.reclaimed_collections().to_string()),
    ])
}

fn persistence_section(server: &Server) -> String {
    let (health, saves) = (&server.databases.health, &server.saves);
    let status = |is_failing: bool| if is_failing { "err" } else { "ok" }.to_owned();
    let writes = status(health.are_writes_failing() || health.are_syncs_failing());
    let is_rewriting = saves.is_rewriting();
    let is_saving = !is_rewriting && saves.running.load(Ordering::Relaxed);
    let changes = server.databases.changes.load(Ordering::Relaxed);
    lines([
        ("loading", "0".to_owned()),
        ("async_loading", "0".to_owned()),
        ("rdb_changes_since_last_save", changes.to_string()),
        ("rdb_bgsave_in_progress", u8::from(is_saving).to_string()),
        ("rdb_last_save_time", saves.last.load(Ordering::Relaxed).to_string()),
        ("rdb_last_bgsave_status", status(saves.failed.load(Ordering::Relaxed))),
        ("rdb_last_bgsave_time_sec", saves.seconds.load(Ordering::Relaxed).to_string()),
        ("rdb_current_bgsave_time_sec", saves.running_seconds().to_string()),
        ("rdb_saves", saves.count.load(Ordering::Relaxed).to_string()),
        ("rdb_last_cow_size", "0".to_owned()),
        ("rdb_last_load_keys_expired", "0".to_owned()),
        ("rdb_last_load_keys_loaded", "0".to_owned()),
        ("aof_enabled", "1".to_owned()),
        ("aof_rewrite_in_progress", u8::from(is_rewriting).to_string()),
        ("aof_rewrite_scheduled", "0".to_owned()),
        ("aof_last_rewrite_time_sec", "-1".to_owned()),
        ("aof_current_rewrite_time_sec", "-1".to_owned()),
        ("aof_last_bgrewrite_status", "ok".to_owned()),
        ("aof_last_write_status", writes),
        ("appendfsync", server.databases.fsync().name().to_owned()),
    ])
}

fn threads_section(_server: &Server) -> String {
    lines([("threads", disk::threads().unwrap_or(0).to_string())])
}

fn replication_section(server: &Server) -> String {
    lines([
        ("role", "master".to_owned()),
        ("connected_slaves", "0".to_owned()),
        ("master_failover_state", "no-failover".to_owned()),
        ("master_replid", server.run_id.clone()),
        ("master_replid2", "0".repeat(40)),
        ("master_repl_offset", "0".to_owned()),
        ("second_repl_offset", "-1".to_owned()),
        ("repl_backlog_active", "0".to_owned()),
        ("repl_backlog_size", "0".to_owned()),
        ("repl_backlog_first_byte_offset", "0".to_owned()),
        ("repl_backlog_histlen", "0".to_owned()),
    ])
}

fn cpu_section(_server: &Server) -> String {
    let used = disk::cpu_seconds();
    let seconds = |seconds: f64| format!("{seconds:.6}");
    lines([
        ("used_cpu_sys", seconds(used.process.0)),
        ("used_cpu_user", seconds(used.process.1)),
        ("used_cpu_sys_children", seconds(used.children.0)),
        ("used_cpu_user_children", seconds(used.children.1)),
        ("used_cpu_sys_main_thread", seconds(used.first_thread.0)),
        ("used_cpu_user_main_thread", seconds(used.first_thread.1)),
    ])
}

/// How many keys of a database `INFO` reads, at most: a millisecond's worth.
const KEYS_READ_MAX: u64 = 4096;

/// What is known of a database's keys: how many they are, how many of them have an end, and how
/// many milliseconds those have on average.
struct Keys {
    keys: u64,
    expires: u64,
    ttl_ms: u64,
}

/// The keys of a database. The first ones are read: all of a small database, where those that have
/// ended do not count. The number of a large one is kept once `DBSIZE` was asked. Else the others
/// are estimated, by its entries in tables and by the share of those that were read which have an
/// end.
fn keys_of(db: &Db, in_tables: u64) -> rhumb::Result<Keys> {
    let (now, mut read, mut alive, mut ending, mut ttl_ms) = (now_ms(), 0, 0, 0, 0);
    for pair in db.keys.iter().take(KEYS_READ_MAX as usize) {
        let (key, value) = pair?;
        read += 1;
        let Some((_, end, _)) = decode_head(&value).filter(|_| db.is_live(&key, &value, now))
        else {
            continue;
        };
        alive += 1;
        if end > 0 {
            ending += 1;
            ttl_ms += end - now;
        }
    }
    let ttl_ms = ttl_ms.checked_div(ending).unwrap_or(0);
    if read < KEYS_READ_MAX {
        return Ok(Keys { keys: alive, expires: ending, ttl_ms });
    }
    if let Some(Tally { keys, expires }) = db.count.known() {
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        return Ok(Keys { keys: number(keys), expires: number(expires), ttl_ms });
    }
    let of_all = |count: u64| (count as f64 / read as f64 * in_tables.max(read) as f64) as u64;
    Ok(Keys { keys: of_all(alive), expires: of_all(ending), ttl_ms })
}

fn keyspace_section(server: &Server) -> String {
    let stats = server.databases.engine.stats();
    let mut text = String::new();
    for database in 0..DATABASES {
        let number = server.databases.number(database);
        let Some((_, db)) = server.databases.opened().find(|(n, _)| *n == number) else { continue };
        let name = crate::db::keyspace_name(number.into(), "keys");
        let stored = stats.keyspaces.iter().find(|keyspace| keyspace.name == name);
        let in_tables = stored.map_or(0, |s| s.entries.saturating_sub(2 * s.tombstones));
        let Ok(Keys { keys, expires, ttl_ms }) = keys_of(db, in_tables) else { continue };
        if keys > 0 {
            let _ = write!(text, "db{database}:keys={keys},expires={expires},avg_ttl={ttl_ms}\r\n");
        }
    }
    text
}

fn engine_section(server: &Server) -> String {
    let stats = server.databases.engine.stats();
    let files: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.file_bytes).sum();
    let entries: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.entries).sum();
    let read_ns = |share| stats.read_latency.quantile_ns(share).to_string();
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
        ("timed_reads", stats.read_latency.count().to_string()),
        ("read_ns_p50", read_ns(0.5)),
        ("read_ns_p99", read_ns(0.99)),
        ("read_ns_p99.9", read_ns(0.999)),
        ("stall_ns_max", stats.stall_ns_max.to_string()),
        ("failed_writes", server.databases.health.failed_writes().to_string()),
        ("failed_syncs", server.databases.health.failed_syncs().to_string()),
        ("failed_reads", server.databases.health.failed_reads().to_string()),
        ("damage_met", server.databases.health.damage_met().to_string()),
        ("failure", stats.failure.unwrap_or_default()),
    ])
}
