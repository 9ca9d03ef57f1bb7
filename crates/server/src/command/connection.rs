//! Commands on the connection itself: its name and password, its protocol, its database.

use std::sync::{Arc, atomic::Ordering};

use super::{
    COMMANDS, Context, Done, NOT_AN_INTEGER, SYNTAX, help, integer, is_word, keys::database_index,
    listening, permission, server::VERSION, tracking, transactions, waiting,
};
use crate::{
    acl::{Denial, Place, Reason},
    clients::{ClientInfo, describe},
    fault::Fault,
    log::Event,
    resp::Args,
};

/// `PING`.
pub(super) fn ping(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    match args.get(1) {
        _ if args.len() > 2 => {
            return Err("ERR wrong number of arguments for 'ping' command".into());
        }
        // What is not a message has the form of one for a subscriber that cannot tell otherwise.
        text if !context.out.resp3 && context.client.info.is_subscriber() => {
            context.out.array(2);
            context.out.bulk(b"pong");
            context.out.bulk(text.unwrap_or_default());
        }
        None => context.out.simple("PONG"),
        Some(text) => context.out.bulk(text),
    }
    Ok(())
}

/// `ECHO`.
pub(super) fn echo(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.out.bulk(args.at(1));
    Ok(())
}

/// `QUIT`.
pub(super) fn quit(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    context.out.ok();
    context.client.closing = true;
    Ok(())
}

/// `RESET`.
pub(super) fn reset(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    transactions::reset(context.server, context.client);
    listening::end(context.server, context.client);
    context.take_messages();
    select_index(context, 0);
    context.out.resp3 = false;
    let info = &context.client.info;
    info.resp.store(2, Ordering::Relaxed);
    info.name.lock().clear();
    info.no_evict.store(false, Ordering::Relaxed);
    let default = context.server.acl.default_account();
    context.client.become_user(default);
    set_authenticated(context, context.server.acl.is_open());
    context.out.simple("RESET");
    Ok(())
}

fn set_authenticated(context: &mut Context<'_, '_>, authenticated: bool) {
    context.client.authenticated = authenticated;
    context.client.info.authenticated.store(authenticated, Ordering::Relaxed);
}

fn select_index(context: &mut Context<'_, '_>, index: usize) {
    context.client.database = index;
    context.client.info.database.store(index as u8, Ordering::Relaxed);
    context.txn.number = context.server.databases.number(index);
}

/// `SELECT`.
pub(super) fn select(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let index = database_index(args.at(1))?;
    context.server.databases.numbered(context.server.databases.number(index))?;
    select_index(context, index);
    context.out.ok();
    Ok(())
}

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Has the client be a user; `how` is the word of the command that says the password.
fn authenticate(
    context: &mut Context<'_, '_>,
    (user, password): (&[u8], &[u8]),
    how: &[u8],
) -> Done {
    let Some(account) = context.server.acl.authenticate(user, password) else {
        context.server.metrics.count_refused_password();
        let client = ("client", context.client.info.address.as_str().into());
        context.server.log.write(Event::WrongPassword, "a client gave a wrong password", &[client]);
        let place = if context.in_exec { Place::Transaction } else { Place::TopLevel };
        let (object, user) = (how.to_vec(), user.to_vec());
        let denial = Denial { reason: Reason::Auth, place, object, user };
        permission::note(context.server, context.client, denial);
        return Err(WRONG_PASSWORD.into());
    };
    context.client.become_user(&account);
    set_authenticated(context, true);
    Ok(())
}

/// `AUTH`.
pub(super) fn auth(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (user, password) = match args.len() {
        2 if context.server.acl.default_account().user().needs_no_password => {
            return Err("ERR AUTH <password> called without any password configured for the \
                        default user. Are you sure your configuration is correct?"
                .into());
        }
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return Err(SYNTAX.into()),
    };
    authenticate(context, (user, password), args.at(0))?;
    context.out.ok();
    Ok(())
}

/// What `HELLO` was asked for.
struct Hello<'a> {
    version: Option<u8>,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn hello_options(args: Args<'_>) -> Result<Hello<'_>, Fault> {
    let mut hello = Hello { version: None, login: None, name: None };
    let Some(version) = args.get(1) else { return Ok(hello) };
    let version =
        integer(version).map_err(|_| "ERR Protocol version is not an integer or out of range")?;
    if !(2..=3).contains(&version) {
        return Err("NOPROTO unsupported protocol version".into());
    }
    hello.version = Some(version as u8);
    let mut at = 2;
    while let Some(option) = args.get(at) {
        match (args.get(at + 1), args.get(at + 2)) {
            (Some(user), Some(password)) if is_word(option, "auth") => {
                hello.login = Some((user, password));
                at += 3;
            }
            (Some(name), _) if is_word(option, "setname") => {
                hello.name = Some(check_name(name)?);
                at += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
            }
        }
    }
    Ok(hello)
}

/// `HELLO`.
pub(super) fn hello(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let hello = hello_options(args)?;
    if let Some(login) = hello.login {
        authenticate(context, login, args.at(0))?;
    }
    if !context.client.authenticated && !context.server.acl.is_open() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                    the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                    client and select the RESP protocol version at the same time"
                .into(),
        );
    }
    if let Some(name) = hello.name {
        set_name(&context.client.info, name);
    }
    if let Some(version) = hello.version {
        // Those that were written in the version before.
        context.take_messages();
        context.out.resp3 = version == 3;
        context.client.info.resp.store(version, Ordering::Relaxed);
    }
    let (id, out) = (context.client.info.id, &mut *context.out);
    out.map(7);
    for (key, value) in [("server", "redis"), ("version", VERSION)] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"proto");
    out.int(if out.resp3 { 3 } else { 2 });
    out.bulk(b"id");
    out.int(id as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

fn check_name(name: &[u8]) -> Result<&[u8], Fault> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(name);
    }
    Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
}

fn set_name(info: &ClientInfo, name: &[u8]) {
    *info.name.lock() = String::from_utf8_lossy(name).into_owned();
}

/// `CLIENT`: one function for each of its parts.
pub(super) fn client(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    let is = |word, len: usize| is_word(part, word) && args.len() == len;
    if is("help", 2) {
        help::write("CLIENT", help::CLIENT, context.out);
    } else if is("id", 2) {
        context.out.int(context.client.info.id as i64);
    } else if is("getname", 2) {
        let name = context.client.info.name.lock().clone();
        context.out.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
    } else if is("setname", 3) {
        set_name(&context.client.info, check_name(args.at(2))?);
        context.out.ok();
    } else if is_word(part, "unblock") {
        return waiting::unblock(context, args);
    } else if is_word(part, "pause") {
        return waiting::pause(context, args);
    } else if is("unpause", 2) {
        return waiting::unpause(context, args);
    } else if is("info", 2) {
        let text = description(&context.client.info);
        context.out.verbatim(&text);
    } else if is("tracking", args.len()) && args.len() > 2 {
        return tracking::tracking(context, args);
    } else if is("trackinginfo", 2) {
        return tracking::trackinginfo(context, args);
    } else if is("caching", 3) {
        return tracking::caching(context, args);
    } else if is("getredir", 2) {
        return tracking::getredir(context, args);
    } else if is("reply", 3) {
        return tracking::reply(context, args);
    } else if is_word(part, "list") {
        return client_list(context, args);
    } else if is("setinfo", 4) {
        return client_setinfo(context, args);
    } else if is("no-evict", 3) || is("no-touch", 3) {
        let on = is_word(args.at(2), "on");
        if !on && !is_word(args.at(2), "off") {
            return Err(SYNTAX.into());
        }
        if is("no-evict", 3) {
            context.client.info.no_evict.store(on, Ordering::Relaxed);
        }
        context.out.ok();
    } else if is_word(part, "maint_notifications") && args.len() > 2 {
        // There is never any maintenance to tell of.
        context.out.ok();
    } else if is_word(part, "kill") && args.len() > 2 {
        return client_kill(context, args);
    } else {
        return Err(wrong_part_arity(args));
    }
    Ok(())
}

/// The error for a part of a command that takes other arguments.
pub(super) fn wrong_part_arity(args: Args<'_>) -> Fault {
    let text = |at: usize| String::from_utf8_lossy(args.at(at)).to_lowercase();
    format!("ERR wrong number of arguments for '{}|{}' command", text(0), text(1)).into()
}

/// What tells the clients of a type.
fn is_of_type(kind: &[u8]) -> Result<fn(&ClientInfo) -> bool, Fault> {
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(|info| !info.is_subscriber()),
        b"pubsub" => Ok(ClientInfo::is_subscriber),
        // There are none.
        b"master" | b"replica" | b"slave" => Ok(|_| false),
        _ => Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(kind)).into()),
    }
}

fn client_list(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut wanted = context.server.clients.all();
    wanted.retain(|info| !info.is_killed());
    match args.get(2) {
        None => {}
        Some(option) if is_word(option, "type") && args.len() == 4 => {
            let is_wanted = is_of_type(args.at(3))?;
            wanted.retain(|info| is_wanted(info));
        }
        Some(option) if is_word(option, "id") && args.len() > 3 => {
            let ids: Result<Vec<i64>, Fault> = args.iter_from(3).map(integer).collect();
            let ids = ids.map_err(|_| "ERR Invalid client ID")?;
            wanted.retain(|info| ids.contains(&(info.id as i64)));
        }
        Some(_) => return Err(SYNTAX.into()),
    }
    let text: String = wanted.iter().map(|info| description(info)).collect();
    context.out.verbatim(&text);
    Ok(())
}

/// A client's line of `CLIENT LIST`.
fn description(info: &ClientInfo) -> String {
    describe_client(info) + "\n"
}

/// What is said of a client.
pub(super) fn describe_client(info: &ClientInfo) -> String {
    describe(info, COMMANDS.name(info.last_command.load(Ordering::Relaxed)))
}

fn client_setinfo(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let value = args.at(3);
    if !value.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        let option = String::from_utf8_lossy(args.at(2)).into_owned();
        return Err(
            format!("ERR {option} cannot contain spaces, newlines or special characters.").into()
        );
    }
    let value = String::from_utf8_lossy(value).into_owned();
    let mut library = context.client.info.library.lock();
    if is_word(args.at(2), "lib-name") {
        library.0 = value;
    } else if is_word(args.at(2), "lib-ver") {
        library.1 = value;
    } else {
        let option = String::from_utf8_lossy(args.at(2)).into_owned();
        return Err(format!("ERR Unrecognized option '{option}'").into());
    }
    drop(library);
    context.out.ok();
    Ok(())
}

/// Which clients `CLIENT KILL` is to end.
fn kill_filter(
    context: &Context<'_, '_>,
    args: Args<'_>,
) -> Result<(Vec<Arc<ClientInfo>>, bool), Fault> {
    let mut wanted = context.server.clients.all();
    let mut skip_me = true;
    let mut options = args.iter_from(2);
    while let Some(option) = options.next() {
        let value = options.next().ok_or(SYNTAX)?;
        let is = |word| is_word(option, word);
        if is("id") {
            let id = integer(value).ok().filter(|id| *id > 0);
            let id = id.ok_or("ERR client-id should be greater than 0")?;
            wanted.retain(|info| info.id as i64 == id);
        } else if is("addr") {
            wanted.retain(|info| info.address.as_bytes() == value);
        } else if is("laddr") {
            wanted.retain(|info| info.local_address.as_bytes() == value);
        } else if is("type") {
            let is_wanted = is_of_type(value)?;
            wanted.retain(|info| is_wanted(info));
        } else if is("user") {
            let Some(account) = context.server.acl.find(value) else {
                let user = String::from_utf8_lossy(value);
                return Err(format!("ERR No such user '{user}'").into());
            };
            wanted.retain(|info| info.is_of(&account));
        } else if is("maxage") {
            let seconds = integer(value).ok().and_then(|seconds| u64::try_from(seconds).ok());
            let seconds = seconds.filter(|seconds| *seconds > 0);
            let seconds = seconds.ok_or("ERR maxage is not an integer or out of range")?;
            wanted.retain(|info| info.age_seconds() >= seconds);
        } else if is("skipme") && (is_word(value, "yes") || is_word(value, "no")) {
            skip_me = is_word(value, "yes");
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok((wanted, skip_me))
}

fn client_kill(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let by_address = args.len() == 3;
    let (wanted, skip_me) = if by_address {
        let mut wanted = context.server.clients.all();
        wanted.retain(|info| info.address.as_bytes() == args.at(2));
        (wanted, false)
    } else {
        kill_filter(context, args)?
    };
    let mut ended = 0;
    for info in wanted {
        if info.id != context.client.info.id {
            info.kill();
        } else if skip_me {
            continue;
        } else {
            // After its reply.
            context.client.closing = true;
        }
        ended += 1;
    }
    match (by_address, ended) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => context.out.ok(),
        (false, ended) => context.out.int(ended),
    }
    Ok(())
}

/// Refuses a number that is none, with the text that clients know.
pub(super) fn positive(text: &[u8]) -> Result<usize, Fault> {
    let number = integer(text).map_err(|_| NOT_AN_INTEGER)?;
    usize::try_from(number).map_err(|_| super::NOT_POSITIVE.into())
}
