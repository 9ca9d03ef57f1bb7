//! Commands for operators: copies of the data, debugging, and what a server without replicas,
//! modules and a cluster says to those who ask for them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Context, Done, NO_SUCH_KEY, SYNTAX, debug_protocol, digest, float, help, is_word, object,
};
use crate::{config::DebugCommand, encode::Kind, fault::Fault, glob, resp::Args};

/// `LASTSAVE`.
pub(super) fn lastsave(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    context.out.int(context.server.saves.last.load(Ordering::Relaxed) as i64);
    Ok(())
}

const BUSY_SAVING: &str = "ERR Background save already in progress";

/// `SAVE`.
pub(super) fn save(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let server = context.server;
    if server.saves.running.load(Ordering::Relaxed) {
        return Err(BUSY_SAVING.into());
    }
    if !server.saves.save(&server.databases.engine, &server.log) {
        return Err("ERR the copy failed: the log says why".into());
    }
    context.out.ok();
    Ok(())
}

/// Begins a copy, as a rewrite of the log or not; returns false if one is being written.
fn begin_save(context: &Context<'_, '_>, rewrites: bool) -> bool {
    let server = context.server;
    crate::saves::Saves::begin(
        &server.saves,
        server.databases.engine.clone(),
        Arc::clone(&server.log),
        rewrites,
    )
}

/// `BGSAVE`.
pub(super) fn bgsave(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 2 || args.get(1).is_some_and(|option| !is_word(option, "schedule")) {
        return Err(SYNTAX.into());
    }
    if !begin_save(context, false) {
        return Err(BUSY_SAVING.into());
    }
    context.out.simple("Background saving started");
    Ok(())
}

/// `BGREWRITEAOF`: the log of the engine is rewritten by its flushes; a copy is written, so that
/// there is one of this moment.
pub(super) fn bgrewriteaof(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    if !begin_save(context, true) {
        return Err("ERR Background append only file rewriting already in progress".into());
    }
    context.out.simple("Background append only file rewriting started");
    Ok(())
}

/// `MODULE` and its parts.
pub(super) fn module(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if is_word(args.at(1), "help") {
        help::write("MODULE", help::MODULE, context.out);
    } else if is_word(args.at(1), "list") {
        context.out.array(0);
    } else if is_word(args.at(1), "unload") {
        return Err("ERR Error unloading module: no such module with that name".into());
    } else {
        return Err("ERR Error loading the extension. Please check the server logs.".into());
    }
    Ok(())
}

/// `CLUSTER` and its parts, `ASKING`, `READONLY`, `READWRITE`: there is no cluster.
pub(super) fn no_cluster(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if is_word(args.at(0), "cluster") && is_word(args.at(1), "help") {
        help::write("CLUSTER", help::CLUSTER, context.out);
        return Ok(());
    }
    Err("ERR This instance has cluster support disabled".into())
}

/// `REPLICAOF` and `SLAVEOF`: this server is a master, and stays one.
pub(super) fn replicaof(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if is_word(args.at(1), "no") && is_word(args.at(2), "one") {
        context.out.ok();
        return Ok(());
    }
    Err("ERR replication is not supported".into())
}

/// `FAILOVER`: there is no replica.
pub(super) fn failover(_context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() == 2 && is_word(args.at(1), "abort") {
        return Err("ERR No failover in progress.".into());
    }
    Err("ERR FAILOVER requires connected replicas.".into())
}

const NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is \
                           set to \"local\", you can run it from a local connection, otherwise you \
                           need to set this option in the configuration file, and then restart the \
                           server.";

/// The longest time that `DEBUG SLEEP` sleeps, in seconds.
const SLEEP_MAX: f64 = 3600.0;

/// `DEBUG`, as far as tests of programs need it.
pub(super) fn debug(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (part, server) = (args.at(1), context.server);
    let address = &context.client.info.address;
    let is_local =
        address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with('/');
    match server.config.enable_debug_command {
        DebugCommand::Yes => {}
        DebugCommand::Local if is_local => {}
        DebugCommand::Local | DebugCommand::No => return Err(NOT_ALLOWED.into()),
    }
    let is = |word: &str, len: usize| is_word(part, word) && args.len() == len;
    if is("help", 2) {
        help::write("DEBUG", help::DEBUG, context.out);
    } else if is("sleep", 3) {
        let seconds = float(args.at(2))?.clamp(0.0, SLEEP_MAX);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        context.out.ok();
    } else if is("set-active-expire", 3) {
        server.databases.met.set_rest(args.at(2) == b"0");
        context.out.ok();
    } else if is("set-disable-deny-scripts", 3) {
        server.scripts_may_all.store(args.at(2) != b"0", Ordering::Relaxed);
        context.out.ok();
    } else if is("object", 3) {
        return debug_object(context, args.at(2));
    } else if is("protocol", 3) {
        return debug_protocol::reply(context, args.at(2));
    } else if is("digest", 2) {
        return digest::all(context);
    } else if is_word(part, "digest-value") && args.len() > 2 {
        return digest::values(context, args);
    } else if is("stringmatch-len", 4) {
        return stringmatch(context, args);
    } else if is_word(part, "reload") {
        check_reload(context, args)?;
        server.databases.sync()?;
        context.out.ok();
    } else if is("loadaof", 2) {
        server.databases.sync()?;
        context.out.ok();
    } else if is("change-repl-id", 2)
        || is("jmap", 2)
        || is("quicklist-packed-threshold", 3)
        || is("replybuffer", 4)
        || is("pause-cron", 3)
    {
        context.out.ok();
    } else {
        let part = String::from_utf8_lossy(part);
        let text = format!("ERR unknown subcommand or wrong number of arguments for '{part}'.");
        return Err(Fault::from(text + " Try DEBUG HELP."));
    }
    Ok(())
}

/// Checks the options of `DEBUG RELOAD`. All that was written is kept by a restart: only what Redis
/// would load into itself is there twice.
fn check_reload(context: &Context<'_, '_>, args: Args<'_>) -> Done {
    let has = |word| args.iter_from(2).any(|option| is_word(option, word));
    let is_known =
        |option: &[u8]| ["merge", "noflush", "nosave"].iter().any(|known| is_word(option, known));
    if !args.iter_from(2).all(is_known) {
        return Err("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.".into());
    }
    if has("noflush") && !has("merge") && context.server.functions.present().iter().next().is_some()
    {
        return Err("ERR Error trying to load the RDB dump, check server logs.".into());
    }
    Ok(())
}

fn debug_object(context: &mut Context<'_, '_>, key: &[u8]) -> Done {
    // One that has ended is there for as long as nobody takes it away.
    let rests = context.server.databases.met.sweeper_rests();
    let entry = if rests { context.txn.raw(key)? } else { context.txn.read(key)? };
    let entry = entry.ok_or(NO_SUCH_KEY)?;
    let encoding = object::encoding(context, &entry)?;
    let len = entry.bytes().len();
    let nodes = if entry.kind == Kind::List { " ql_nodes:1" } else { "" };
    context.out.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{len} lru:0 \
         lru_seconds_idle:0{nodes}"
    ));
    Ok(())
}

/// The longest string that `DEBUG STRINGMATCH-LEN` makes, in bytes: matching it takes milliseconds.
const STRING_BYTES_MAX: i64 = 1 << 20;

fn stringmatch(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let len = super::integer(args.at(2))?.clamp(0, STRING_BYTES_MAX);
    let matches = glob::matches(args.at(3), &vec![b'a'; len.unsigned_abs() as usize]);
    context.out.int(matches.into());
    Ok(())
}
