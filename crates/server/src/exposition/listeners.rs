//! The figures of what clients wait for and listen to, of scripts and of copies, for Prometheus.

use std::sync::atomic::Ordering;

use super::{Metric, one};
use crate::{
    listeners::{Topic, TrackingSizes},
    server::Server,
};

fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
    one(name, "counter", help, value as f64)
}

fn gauge(name: &'static str, help: &'static str, value: usize) -> Metric {
    one(name, "gauge", help, value as f64)
}

/// Messages, clients that wait, tracking, monitors, scripts and copies.
pub(super) fn metrics(server: &Server) -> Vec<Metric> {
    let mut metrics = messages(server);
    let (clients, databases) = (&server.clients, &server.databases);
    let tracking = &databases.listeners.tracking;
    let TrackingSizes { keys, items, prefixes } = tracking.sizes();
    let (scripts, script_bytes) = server.scripts.sizes();
    metrics.extend([
        gauge(
            "rhumb_blocked_connections",
            "Clients that wait with a blocking command.",
            clients.blocked.load(Ordering::Relaxed),
        ),
        gauge(
            "rhumb_awaited_keys",
            "Keys that clients wait for, counted once for each client.",
            databases.waiters.len(),
        ),
        gauge("rhumb_tracking_connections", "Clients that track keys.", tracking.count()),
        gauge("rhumb_tracked_keys", "Keys that are remembered for them.", keys),
        gauge("rhumb_tracked_items", "These keys, counted once for each client.", items),
        gauge("rhumb_tracked_prefixes", "Prefixes that clients track.", prefixes),
        gauge(
            "rhumb_monitors",
            "Clients that are shown every command.",
            databases.listeners.monitors.len(),
        ),
        gauge("rhumb_scripts", "Scripts kept.", scripts),
        gauge("rhumb_scripts_bytes", "Bytes of the sources of scripts kept.", script_bytes),
        gauge(
            "rhumb_scripts_running",
            "Scripts that run and may take long.",
            server.scripts.running(),
        ),
        counter(
            "rhumb_script_kills_total",
            "Scripts that clients asked to end.",
            server.scripts.kills(),
        ),
        gauge(
            "rhumb_copies_sending",
            "Copies of the data that are being sent to clients.",
            server.copies.sending(),
        ),
        counter(
            "rhumb_copies_total",
            "Copies of the data that clients asked for.",
            server.copies.begun.load(Ordering::Relaxed),
        ),
    ]);
    metrics
}

fn messages(server: &Server) -> Vec<Metric> {
    let listeners = &server.databases.listeners;
    let topics =
        [("channel", Topic::Channel), ("pattern", Topic::Pattern), ("shard", Topic::ShardChannel)];
    let topics = topics.map(|(kind, topic)| {
        (format!("{{kind=\"{kind}\"}}"), listeners.topics.count(topic) as f64)
    });
    vec![
        gauge("rhumb_subscribers", "Clients that have subscribed.", listeners.topics.clients()),
        Metric {
            name: "rhumb_channels",
            kind: "gauge",
            help: "Channels and patterns with subscribers.",
            samples: topics.to_vec(),
        },
        counter(
            "rhumb_messages_published_total",
            "Messages published, events of keys included.",
            listeners.published.load(Ordering::Relaxed),
        ),
        counter(
            "rhumb_messages_delivered_total",
            "These messages, counted once for each client that one went to.",
            listeners.delivered.load(Ordering::Relaxed),
        ),
        gauge(
            "rhumb_messages_waiting_bytes",
            "Bytes of messages that clients have not taken.",
            listeners.limits.kept_bytes(),
        ),
        counter(
            "rhumb_connections_over_output_limit_total",
            "Clients closed because they did not take their messages.",
            server.clients.over_limit.load(Ordering::Relaxed),
        ),
    ]
}
