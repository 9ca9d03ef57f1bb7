//! `CONFIG`: the settings that clients ask for, under the names that Redis gives them.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    COMMANDS, Context, Done, SYNTAX, connection::wrong_part_arity, help, is_word, output_limit,
};
use crate::{
    config::Fsync,
    fault::Fault,
    glob,
    key_event::EventClass,
    log::{Event, Value},
    outbox::ClassLimit,
    remembered::{self, Remembered},
    resp::{
        Args,
        number::{parse_f64, parse_i64},
    },
    server::Server,
};

/// The settings, each with how it is read.
fn settings(server: &Server) -> Vec<(&'static str, String)> {
    let (config, limits) = (&server.config, server.limits.read());
    let password = server.password().unwrap_or_default();
    let channels = if server.acl.has_channels() { CHANNELS.0 } else { CHANNELS.1 };
    let file = server.acl.file().map(|path| path.display().to_string());
    let mut all = vec![
        ("acl-pubsub-default", channels.to_owned()),
        ("aclfile", file.unwrap_or_default()),
        ("acllog-max-len", server.acl.log.len_max().to_string()),
        ("appendfsync", server.databases.fsync().name().to_owned()),
        ("bind", config.listen.ip().to_string()),
        (
            "client-output-buffer-limit",
            output_limit::format(&config.limits, &server.databases.listeners.limits),
        ),
        ("enable-debug-command", config.enable_debug_command.name().to_owned()),
        ("latency-monitor-threshold", server.slow.monitor_ms().to_string()),
        ("latency-tracking", yes_or_no(server.metrics.by_command.tracks_latency.load(Relaxed))),
        ("latency-tracking-info-percentiles", percentiles(server)),
        ("slowlog-log-slower-than", server.slow.log_us().to_string()),
        ("slowlog-max-len", server.slow.log.len_max().to_string()),
        ("always-show-logo", "no".to_owned()),
        ("cluster-enabled", "no".to_owned()),
        ("daemonize", "no".to_owned()),
        ("databases", crate::encode::format::DATABASES.to_string()),
        ("dir", config.data.display().to_string()),
        ("maxclients", limits.clients.to_string()),
        ("notify-keyspace-events", server.databases.events().letters()),
        ("port", config.listen.port().to_string()),
        ("proto-max-bulk-len", config.limits.bulk_bytes.to_string()),
        ("replicaof", String::new()),
        ("slaveof", String::new()),
        ("requirepass", String::from_utf8_lossy(&password).into_owned()),
        ("tracking-table-max-keys", server.databases.listeners.tracking.keys_max().to_string()),
        ("timeout", limits.idle_seconds.to_string()),
        (
            "unixsocket",
            config.unix.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ),
    ];
    all.extend(server.remembered.all());
    all
}

fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn percentiles(server: &Server) -> String {
    let all: Vec<String> = server.percentiles.read().iter().map(ToString::to_string).collect();
    all.join(" ")
}

/// `CONFIG` and its parts.
pub(super) fn config(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    if is_word(part, "help") && args.len() == 2 {
        help::write("CONFIG", help::CONFIG, context.out);
    } else if is_word(part, "get") && args.len() > 2 {
        get(context, args);
    } else if is_word(part, "set") && args.len() > 3 {
        set(context, args)?;
        context.out.ok();
    } else if is_word(part, "rewrite") && args.len() == 2 {
        return Err("ERR The server is running without a config file".into());
    } else if is_word(part, "resetstat") && args.len() == 2 {
        context.server.metrics.reset();
        context.server.acl.reset_counts();
        context.server.databases.ended_keys.store(0, Relaxed);
        context.out.ok();
    } else {
        return Err(wrong_part_arity(args));
    }
    Ok(())
}

fn get(context: &mut Context<'_, '_>, args: Args<'_>) {
    let mut found = settings(context.server);
    found.retain(|(name, _)| {
        args.iter_from(2).map(<[u8]>::to_ascii_lowercase).any(
            |pattern| match remembered::is_hidden(name) {
                true => pattern == name.as_bytes(),
                false => glob::matches(&pattern, name.as_bytes()),
            },
        )
    });
    context.out.map(found.len());
    for (name, value) in found {
        context.out.bulk(name.as_bytes());
        context.out.bulk(value.as_bytes());
    }
}

/// A setting that may be changed while the server runs.
enum Change {
    Fsync(Fsync),
    Clients(usize),
    IdleSeconds(u64),
    Password(Vec<u8>),
    Remembered(&'static str, String),
    Events(EventClass),
    TrackedKeys(usize),
    /// None if it stays as it is.
    Subscribers(Option<ClassLimit>),
    MonitorMs(u64),
    TracksLatency(bool),
    Percentiles(Vec<f64>),
    SlowUs(i64),
    SlowEntries(usize),
    NewUsersChannels(bool),
    Denials(usize),
    /// It is to be as it is.
    Nothing,
}

/// Settings of the start, which may be set to what they are.
const FIXED: [(&str, &str); 4] = [
    ("bind", IMMUTABLE),
    ("dir", IMMUTABLE),
    ("port", "Unable to listen on this port: it is chosen when the server starts"),
    ("proto-max-bulk-len", IMMUTABLE),
];
const IMMUTABLE: &str = "can't set immutable config";

/// What is asked for by the name of one of [`FIXED`].
fn fixed(server: &Server, name: &[u8], value: &[u8]) -> Option<Result<Change, Fault>> {
    let (known, why) = FIXED.iter().find(|(known, _)| is_word(name, known))?;
    let is_present =
        |(name, present): &(&str, String)| name == known && present.as_bytes() == value;
    let is_same = settings(server).iter().any(is_present);
    Some(if is_same { Ok(Change::Nothing) } else { Err(refused(name, why)) })
}

/// What channels new users may use.
const CHANNELS: (&str, &str) = ("allchannels", "resetchannels");

/// The settings that can be changed, and the one that can be changed by number: its bounds.
const CHANGEABLE: [&str; 14] = [
    "acl-pubsub-default",
    "acllog-max-len",
    "appendfsync",
    "client-output-buffer-limit",
    "latency-monitor-threshold",
    "latency-tracking",
    "latency-tracking-info-percentiles",
    "maxclients",
    "notify-keyspace-events",
    "requirepass",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "timeout",
    "tracking-table-max-keys",
];
const TRACKED_KEYS_BOUNDS: (i64, i64) = (0, i64::MAX);
const CLIENTS_BOUNDS: (i64, i64) = (1, u32::MAX as i64);
const TIMEOUT_BOUNDS: (i64, i64) = (0, i32::MAX as i64);
const SLOW_US_BOUNDS: (i64, i64) = (-1, i64::MAX);
const COUNT_BOUNDS: (i64, i64) = (0, i64::MAX);

fn refused(name: &[u8], why: &str) -> Fault {
    let name = String::from_utf8_lossy(name);
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}").into()
}

/// Refuses names that are none, that cannot be changed, or that come twice.
fn check_names(server: &Server, names: &[&[u8]]) -> Done {
    let known = settings(server);
    let is_known = |name: &&&[u8]| known.iter().any(|(known, _)| is_word(name, known));
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let text = "Unknown option or number of arguments for CONFIG SET";
        return Err(format!("ERR {text} - '{}'", String::from_utf8_lossy(unknown)).into());
    }
    for (at, name) in names.iter().enumerate() {
        let remembered = remembered::name_of(name);
        let is_fixed = FIXED.iter().any(|(known, _)| is_word(name, known));
        let may_change = is_fixed || CHANGEABLE.iter().any(|known| is_word(name, known));
        if remembered.is_none() && !may_change {
            return Err(refused(name, IMMUTABLE));
        }
        let is_same = |other: &&[u8]| {
            other.eq_ignore_ascii_case(name)
                || remembered.is_some() && remembered == remembered::name_of(other)
        };
        if names[..at].iter().any(is_same) {
            return Err(refused(name, "duplicate parameter"));
        }
    }
    Ok(())
}

fn within(name: &[u8], value: &[u8], (least, most): (i64, i64)) -> Result<i64, Fault> {
    let number = parse_i64(value)
        .ok_or_else(|| refused(name, "argument couldn't be parsed into an integer"))?;
    if !(least..=most).contains(&number) {
        let why = format!("argument must be between {least} and {most} inclusive");
        return Err(refused(name, &why));
    }
    Ok(number)
}

/// What is asked for by a name that can be changed.
fn change(name: &[u8], value: &[u8]) -> Result<Change, Fault> {
    let is = |word| is_word(name, word);
    if let Some(checked) = Remembered::check(name, value) {
        let (name, value) = checked.map_err(|why| refused(name, &why))?;
        return Ok(Change::Remembered(name, value));
    }
    Ok(if is("appendfsync") {
        let fsync = std::str::from_utf8(value).ok().and_then(Fsync::from_name);
        let why = "argument(s) must be one of the following: everysec, always, no";
        Change::Fsync(fsync.ok_or_else(|| refused(name, why))?)
    } else if is("maxclients") {
        Change::Clients(usize::try_from(within(name, value, CLIENTS_BOUNDS)?).unwrap_or(usize::MAX))
    } else if is("timeout") {
        Change::IdleSeconds(within(name, value, TIMEOUT_BOUNDS)?.unsigned_abs())
    } else if is("notify-keyspace-events") {
        let why = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
        Change::Events(EventClass::parse(value).ok_or_else(|| refused(name, why))?)
    } else if is("tracking-table-max-keys") {
        let keys = within(name, value, TRACKED_KEYS_BOUNDS)?;
        Change::TrackedKeys(usize::try_from(keys).unwrap_or(usize::MAX))
    } else if is("client-output-buffer-limit") {
        Change::Subscribers(output_limit::parse(value).map_err(|why| refused(name, why))?)
    } else if is("latency-monitor-threshold") {
        Change::MonitorMs(within(name, value, COUNT_BOUNDS)?.unsigned_abs())
    } else if is("slowlog-log-slower-than") {
        Change::SlowUs(within(name, value, SLOW_US_BOUNDS)?)
    } else if is("slowlog-max-len") {
        let entries = within(name, value, COUNT_BOUNDS)?;
        Change::SlowEntries(usize::try_from(entries).unwrap_or(usize::MAX))
    } else if is("acllog-max-len") {
        let entries = within(name, value, COUNT_BOUNDS)?;
        Change::Denials(usize::try_from(entries).unwrap_or(usize::MAX))
    } else if is("acl-pubsub-default") {
        let all = is_word(value, CHANNELS.0);
        if !all && !is_word(value, CHANNELS.1) {
            let why = "argument(s) must be one of the following: allchannels, resetchannels";
            return Err(refused(name, why));
        }
        Change::NewUsersChannels(all)
    } else if is("latency-tracking") {
        let on = is_word(value, "yes");
        if !on && !is_word(value, "no") {
            return Err(refused(name, "argument must be 'yes' or 'no'"));
        }
        Change::TracksLatency(on)
    } else if is("latency-tracking-info-percentiles") {
        Change::Percentiles(percentile_list(name, value)?)
    } else {
        Change::Password(value.to_vec())
    })
}

/// How many percentiles are given, at most: `INFO` has all of them for each command.
const PERCENTILES_MAX: usize = 16;

fn percentile_list(name: &[u8], value: &[u8]) -> Result<Vec<f64>, Fault> {
    let words = value.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let wrong = "Invalid latency-tracking-info-percentiles list: each is from 0 to 100";
    let one = |word: &[u8]| parse_f64(word).filter(|share| (0.0..=100.0).contains(share));
    let all: Option<Vec<f64>> = words.take(PERCENTILES_MAX + 1).map(one).collect();
    all.filter(|all| all.len() <= PERCENTILES_MAX).ok_or_else(|| refused(name, wrong))
}

/// All of the changes, or none.
fn set(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let server = context.server;
    let names: Vec<&[u8]> = args.iter_from(2).step_by(2).collect();
    check_names(server, &names)?;
    let values = args.iter_from(3).step_by(2);
    let changes = names
        .iter()
        .zip(values)
        .map(|(name, value)| fixed(server, name, value).unwrap_or_else(|| change(name, value)));
    for change in changes.collect::<Result<Vec<Change>, Fault>>()? {
        match change {
            Change::Fsync(fsync) => server.databases.set_fsync(fsync),
            Change::Clients(clients) => server.limits.write().clients = clients,
            Change::IdleSeconds(seconds) => server.limits.write().idle_seconds = seconds,
            Change::Events(events) => server.databases.set_events(events),
            Change::TrackedKeys(keys) => {
                let listeners = &server.databases.listeners;
                listeners.tracking.set_keys_max(&listeners.limits, keys);
            }
            Change::Subscribers(None) | Change::Nothing => {}
            Change::Subscribers(Some(limit)) => {
                server.databases.listeners.limits.set_subscribers(limit);
            }
            Change::MonitorMs(ms) => server.slow.set_monitor_ms(ms),
            Change::TracksLatency(on) => {
                server.metrics.by_command.tracks_latency.store(on, Relaxed);
                if !on {
                    (0..COMMANDS.slots())
                        .for_each(|s| server.metrics.by_command.forget_latencies(s));
                }
            }
            Change::Percentiles(shares) => *server.percentiles.write() = shares,
            Change::SlowUs(us) => server.slow.set_log_us(us),
            Change::SlowEntries(most) => server.slow.log.set_len_max(most),
            Change::Denials(most) => server.acl.log.set_len_max(most),
            Change::NewUsersChannels(all) => server.acl.set_has_channels(all),
            Change::Password(password) => server
                .set_password(&password)
                .map_err(|error| Fault::from(format!("ERR CONFIG SET failed - {error}")))?,
            Change::Remembered(name, value) => server.remembered.set(name, value),
        }
    }
    let client = context.client.info.address.as_str();
    for at in (2..args.len()).step_by(2) {
        let name = String::from_utf8_lossy(args.at(at)).to_ascii_lowercase();
        let value = match name.as_str() {
            "requirepass" => "(not shown)".into(),
            _ => String::from_utf8_lossy(args.at(at + 1)),
        };
        let fields =
            [("setting", name.into()), ("value", Value::Text(value)), ("client", client.into())];
        server.log.write(Event::ConfigChanged, "a client changed a setting", &fields);
    }
    Ok(())
}
