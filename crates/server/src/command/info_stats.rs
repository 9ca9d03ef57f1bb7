//! The sections of `INFO` that count what was done.

use std::{fmt::Write, sync::atomic::Ordering};

use super::{COMMANDS, info::lines};
use crate::{
    acl::Reason,
    listeners::{Topic, TrackingSizes},
    server::Server,
};

/// Nanoseconds as microseconds.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// The section `Stats`.
pub(super) fn stats(server: &Server) -> String {
    let (metrics, clients) = (&server.metrics, &server.clients);
    let count =
        |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed).to_string();
    let [input, output] = metrics.bytes_per_second();
    let kib = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    let listeners = &server.databases.listeners;
    let topics = |topic| listeners.topics.count(topic).to_string();
    let TrackingSizes { keys, items, prefixes } = listeners.tracking.sizes();
    let errors: u64 = metrics.by_command.errors().values().sum();
    lines([
        ("total_connections_received", count(&clients.accepted)),
        ("total_commands_processed", metrics.commands_total().to_string()),
        ("instantaneous_ops_per_sec", metrics.commands_per_second().to_string()),
        ("total_net_input_bytes", metrics.input_bytes().to_string()),
        ("total_net_output_bytes", metrics.output_bytes().to_string()),
        ("total_net_repl_input_bytes", "0".to_owned()),
        ("total_net_repl_output_bytes", "0".to_owned()),
        ("instantaneous_input_kbps", kib(input)),
        ("instantaneous_output_kbps", kib(output)),
        ("rejected_connections", count(&clients.refused)),
        ("rejected_http_connections", count(&clients.http)),
        ("sync_full", count(&server.copies.begun)),
        ("sync_partial_ok", "0".to_owned()),
        ("sync_partial_err", "0".to_owned()),
        ("expired_keys", count(&server.databases.ended_keys)),
        ("expired_stale_perc", "0.00".to_owned()),
        ("expired_time_cap_reached_count", "0".to_owned()),
        ("evicted_keys", "0".to_owned()),
        ("evicted_clients", "0".to_owned()),
        ("total_eviction_exceeded_time", "0".to_owned()),
        ("current_eviction_exceeded_time", "0".to_owned()),
        ("keyspace_hits", metrics.keyspace_hits().to_string()),
        ("keyspace_misses", metrics.keyspace_misses().to_string()),
        ("pubsub_channels", topics(Topic::Channel)),
        ("pubsub_patterns", topics(Topic::Pattern)),
        ("pubsubshard_channels", topics(Topic::ShardChannel)),
        ("latest_fork_usec", "0".to_owned()),
        ("total_forks", "0".to_owned()),
        ("migrate_cached_sockets", "0".to_owned()),
        ("slave_expires_tracked_keys", "0".to_owned()),
        ("active_defrag_hits", "0".to_owned()),
        ("active_defrag_misses", "0".to_owned()),
        ("active_defrag_key_hits", "0".to_owned()),
        ("active_defrag_key_misses", "0".to_owned()),
        ("tracking_total_keys", keys.to_string()),
        ("tracking_total_items", items.to_string()),
        ("tracking_total_prefixes", prefixes.to_string()),
        ("unexpected_error_replies", "0".to_owned()),
        ("client_output_buffer_limit_disconnections", count(&clients.over_limit)),
        ("total_error_replies", errors.to_string()),
        ("acl_access_denied_auth", server.acl.denied(Reason::Auth).to_string()),
        ("acl_access_denied_cmd", server.acl.denied(Reason::Command).to_string()),
        ("acl_access_denied_key", server.acl.denied(Reason::Key).to_string()),
        ("acl_access_denied_channel", server.acl.denied(Reason::Channel).to_string()),
    ])
}

/// The section `Commandstats`.
pub(super) fn commands(server: &Server) -> String {
    let mut text = String::new();
    for slot in 0..COMMANDS.slots() {
        let Some(found) = server.metrics.by_command.of(slot) else { continue };
        let micros = micros(found.nanos);
        let each = micros / found.calls.max(1) as f64;
        let _ = write!(
            text,
            "cmdstat_{}:calls={},usec={},usec_per_call={each:.2},rejected_calls={},\
             failed_calls={}\r\n",
            COMMANDS.name(slot),
            found.calls,
            micros as u64,
            found.rejected,
            found.failed,
        );
    }
    text
}

/// The section `Errorstats`.
pub(super) fn errors(server: &Server) -> String {
    let mut text = String::new();
    for (code, count) in server.metrics.by_command.errors() {
        let _ = write!(text, "errorstat_{code}:count={count}\r\n");
    }
    text
}

/// The section `Latencystats`.
pub(super) fn latencies(server: &Server) -> String {
    let shares = server.percentiles.read().clone();
    let mut text = String::new();
    for slot in 0..COMMANDS.slots() {
        let Some(latencies) = server.metrics.by_command.latencies(slot) else { continue };
        let percentile = |share: &f64| {
            format!("p{share}={:.3}", micros(latencies.percentile_ns(*share / 100.0)))
        };
        let all: Vec<String> = shares.iter().map(percentile).collect();
        let _ =
            write!(text, "latency_percentiles_usec_{}:{}\r\n", COMMANDS.name(slot), all.join(","));
    }
    text
}
