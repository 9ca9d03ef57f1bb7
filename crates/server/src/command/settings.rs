//! `CONFIG`: the settings that clients ask for, under the names that Redis gives them.

use super::{Context, Done, Fault, SYNTAX, connection::wrong_part_arity, is_word};
use crate::{
    config::Fsync,
    glob,
    resp::{Args, number::parse_u64},
    server::Server,
};

/// The settings, each with how it is read.
fn settings(server: &Server) -> Vec<(&'static str, String)> {
    let (config, limits) = (&server.config, server.limits.read());
    let password = server.password().unwrap_or_default();
    vec![
        ("appendfsync", server.databases.fsync().name().to_owned()),
        ("appendonly", "yes".to_owned()),
        ("bind", config.listen.ip().to_string()),
        ("databases", crate::db::DATABASES.to_string()),
        ("dir", config.data.display().to_string()),
        ("maxclients", limits.clients.to_string()),
        ("maxmemory", config.memory_bytes.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", config.listen.port().to_string()),
        ("proto-max-bulk-len", config.limits.bulk_bytes.to_string()),
        ("requirepass", String::from_utf8_lossy(&password).into_owned()),
        ("save", String::new()),
        ("timeout", limits.idle_seconds.to_string()),
        (
            "unixsocket",
            config.unix.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ),
    ]
}

/// `CONFIG` and its parts.
pub(super) fn config(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    if is_word(part, "get") && args.len() > 2 {
        get(context, args);
    } else if is_word(part, "set") && args.len() > 3 {
        set(context, args)?;
        context.out.ok();
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
}

fn change(server: &Server, name: &[u8], value: &[u8]) -> Result<Change, Fault> {
    let shown = String::from_utf8_lossy(name).into_owned();
    let refuse = |why: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{shown}') - {why}")
    };
    let number =
        || parse_u64(value).ok_or_else(|| refuse("argument couldn't be parsed into an integer"));
    let is = |word| is_word(name, word);
    Ok(if is("appendfsync") {
        let fsync = std::str::from_utf8(value).ok().and_then(Fsync::from_name);
        Change::Fsync(fsync.ok_or_else(|| {
            refuse("argument(s) must be one of the following: everysec, always, no")
        })?)
    } else if is("maxclients") {
        Change::Clients(usize::try_from(number()?.max(1)).unwrap_or(usize::MAX))
    } else if is("timeout") {
        Change::IdleSeconds(number()?)
    } else if is("requirepass") {
        Change::Password(value.to_vec())
    } else if settings(server).iter().any(|(known, _)| is(known)) {
        return Err(refuse("can't set immutable config").into());
    } else {
        let text = "Unknown option or number of arguments for CONFIG SET";
        return Err(format!("ERR {text} - '{shown}'").into());
    })
}

/// All of the changes, or none.
fn set(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let server = context.server;
    let changes: Result<Vec<Change>, Fault> =
        (2..args.len()).step_by(2).map(|at| change(server, args.at(at), args.at(at + 1))).collect();
    for change in changes? {
        match change {
            Change::Fsync(fsync) => server.databases.set_fsync(fsync),
            Change::Clients(clients) => server.limits.write().clients = clients,
            Change::IdleSeconds(seconds) => server.limits.write().idle_seconds = seconds,
            Change::Password(password) => server
                .set_password(&password)
                .map_err(|error| Fault::from(format!("ERR CONFIG SET failed - {error}")))?,
        }
    }
    Ok(())
}
