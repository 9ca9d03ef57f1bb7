//! `CONFIG`: the settings that clients ask for, under the names that Redis gives them.

use super::{Context, Done, SYNTAX, connection::wrong_part_arity, help, is_word};
use crate::{
    config::{Fsync, Limits},
    fault::Fault,
    glob,
    log::{Event, Value},
    remembered::{self, Remembered},
    resp::{Args, number::parse_i64},
    server::Server,
};

/// The settings, each with how it is read.
fn settings(server: &Server) -> Vec<(&'static str, String)> {
    let (config, limits) = (&server.config, server.limits.read());
    let password = server.password().unwrap_or_default();
    let mut all = vec![
        ("appendfsync", server.databases.fsync().name().to_owned()),
        ("bind", config.listen.ip().to_string()),
        ("client-output-buffer-limit", output_limit(&config.limits)),
        ("databases", crate::encode::format::DATABASES.to_string()),
        ("dir", config.data.display().to_string()),
        ("maxclients", limits.clients.to_string()),
        ("port", config.listen.port().to_string()),
        ("proto-max-bulk-len", config.limits.bulk_bytes.to_string()),
        ("requirepass", String::from_utf8_lossy(&password).into_owned()),
        ("timeout", limits.idle_seconds.to_string()),
        (
            "unixsocket",
            config.unix.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ),
    ];
    all.extend(server.remembered.all());
    all
}

/// The limits of replies that are not taken, in the form of Redis: hard, soft, and the seconds
/// above the soft one.
fn output_limit(limits: &Limits) -> String {
    let (hard, soft) = (limits.output_bytes, limits.output_soft_bytes());
    format!("normal {hard} {soft} {}", limits.stall().as_secs())
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
        context.out.ok();
    } else {
        return Err(wrong_part_arity(args));
    }
    Ok(())
}

fn get(context: &mut Context<'_, '_>, args: Args<'_>) {
    let mut found = settings(context.server);
    found.retain(|(name, _)| {
        args.iter_from(2)
            .any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
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
}

/// The settings that can be changed, and the one that can be changed by number: its bounds.
const CHANGEABLE: [&str; 4] = ["appendfsync", "maxclients", "requirepass", "timeout"];
const CLIENTS_BOUNDS: (i64, i64) = (1, u32::MAX as i64);
const TIMEOUT_BOUNDS: (i64, i64) = (0, i32::MAX as i64);

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
        if remembered.is_none() && !CHANGEABLE.iter().any(|known| is_word(name, known)) {
            return Err(refused(name, "can't set immutable config"));
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
    } else {
        Change::Password(value.to_vec())
    })
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
    let changes = names.iter().zip(values).map(|(name, value)| change(name, value));
    for change in changes.collect::<Result<Vec<Change>, Fault>>()? {
        match change {
            Change::Fsync(fsync) => server.databases.set_fsync(fsync),
            Change::Clients(clients) => server.limits.write().clients = clients,
            Change::IdleSeconds(seconds) => server.limits.write().idle_seconds = seconds,
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
