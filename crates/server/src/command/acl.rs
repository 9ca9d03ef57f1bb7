//! `ACL`: users, what each may do, and what was denied to them.

use std::sync::Arc;

use super::{
    COMMANDS, Context, Done, connection::wrong_part_arity, help, integer, is_word, permission,
    table,
};
use crate::{
    acl::{self, Account, CATEGORIES, Selector},
    clients::ClientInfo,
    db::now_ms,
    fault::Fault,
    listeners::Topic,
    log::Event,
    resp::{Args, Reply},
};

/// Bits of a password that `ACL GENPASS` makes by default, and at most.
const PASSWORD_BITS_DEFAULT: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// How many entries `ACL LOG` gives by default.
const ENTRIES_DEFAULT: usize = 10;

/// `ACL` and its parts.
pub(super) fn acl(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1).to_ascii_lowercase();
    match &part[..] {
        b"help" => help::write("ACL", help::ACL, context.out),
        b"whoami" => {
            let user = context.client.user.user();
            context.out.bulk(&user.name);
        }
        b"users" => {
            let users = context.server.acl.users();
            context.out.array(users.len());
            users.iter().for_each(|user| context.out.bulk(&user.name));
        }
        b"list" => {
            let users = context.server.acl.users();
            context.out.array(users.len());
            users.iter().for_each(|user| context.out.bulk(&user.describe()));
        }
        b"genpass" => return genpass(context, args),
        b"getuser" => getuser(context, args),
        b"setuser" => return setuser(context, args),
        b"deluser" => return deluser(context, args),
        b"cat" => return cat(context, args),
        b"dryrun" => return dryrun(context, args),
        b"log" => return log(context, args),
        b"load" | b"save" => return load_or_save(context, part == b"load"),
        _ => return Err(wrong_part_arity(args)),
    }
    Ok(())
}

/// The error for a part that has too many arguments.
fn too_many(args: Args<'_>) -> Fault {
    let part = String::from_utf8_lossy(args.at(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{part}'. Try ACL HELP.")
        .into()
}

fn error(text: String) -> Fault {
    format!("ERR {text}").into()
}

fn write_selector(selector: &Selector, out: &mut Reply) {
    let all = [
        ("commands", selector.command_rules()),
        ("keys", selector.key_rules()),
        ("channels", selector.channel_rules()),
    ];
    for (name, rules) in all {
        out.bulk(name.as_bytes());
        out.bulk(&rules);
    }
}

fn getuser(context: &mut Context<'_, '_>, args: Args<'_>) {
    let out = &mut *context.out;
    let Some(account) = context.server.acl.find(args.at(2)) else { return out.null() };
    let user = account.user();
    out.map(6);
    out.bulk(b"flags");
    let flags = user.flags();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    out.array(user.passwords().len());
    user.passwords().iter().for_each(|hash| out.bulk(hash.as_bytes()));
    let (own, others) = (&user.selectors()[0], &user.selectors()[1..]);
    write_selector(own, out);
    out.bulk(b"selectors");
    out.array(others.len());
    for selector in others {
        out.map(3);
        write_selector(selector, out);
    }
}

/// Ends a client; the one that asks for it once it has its reply.
fn end(context: &mut Context<'_, '_>, info: &ClientInfo) {
    if info.id == context.client.info.id {
        context.client.closing = true;
    } else {
        info.kill();
    }
}

/// Ends the clients of users that were removed.
fn end_clients(context: &mut Context<'_, '_>, gone: &[Arc<Account>]) {
    for info in context.server.clients.all() {
        if gone.iter().any(|account| info.is_of(account)) {
            end(context, &info);
        }
    }
}

/// Ends the clients of a user that listen to what it may not listen to any more.
fn end_listeners(context: &mut Context<'_, '_>, account: &Arc<Account>) {
    let user = account.user();
    if user.allows_channels() {
        return;
    }
    let topics = &context.server.databases.listeners.topics;
    for topic in Topic::ALL {
        let is_denied = |name: &[u8]| !user.allows_channel(name, topic == Topic::Pattern);
        for info in topics.listeners_of(topic, is_denied) {
            if info.is_of(account) {
                end(context, &info);
            }
        }
    }
}

fn tell(context: &Context<'_, '_>, what: &str) {
    let client = context.client.info.address.as_str();
    let fields = [("client", client.into())];
    context.server.log.write(Event::UsersChanged, what, &fields);
}

fn setuser(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let found = context.server.acl.set_user(args.at(2), args.iter_from(3)).map_err(error)?;
    if let Some(account) = found {
        end_listeners(context, &account);
    }
    tell(context, "a client changed a user");
    context.out.ok();
    Ok(())
}

fn deluser(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.iter_from(2).any(|name| name == acl::DEFAULT) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let gone = context.server.acl.remove(args.iter_from(2));
    end_clients(context, &gone);
    tell(context, "a client removed users");
    context.out.count(gone.len());
    Ok(())
}

fn cat(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Some(name) = args.get(2) else {
        context.out.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|name| context.out.bulk(name.as_bytes()));
        return Ok(());
    };
    if args.len() > 3 {
        return Err(too_many(args));
    }
    let Some(category) = acl::category(name) else {
        return Err(error(format!("Unknown category '{}'", String::from_utf8_lossy(name))));
    };
    let slots = context.server.acl.catalog().iter();
    let names: Vec<&str> = slots.filter(|s| s.is_in(category)).map(|s| &s.name[..]).collect();
    context.out.array(names.len());
    names.iter().for_each(|name| context.out.bulk(name.as_bytes()));
    Ok(())
}

fn dryrun(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let text = |at: usize| String::from_utf8_lossy(args.at(at)).into_owned();
    let Some(account) = context.server.acl.find(args.at(2)) else {
        return Err(error(format!("User '{}' not found", text(2))));
    };
    let inner = args.from(3);
    let unknown = || error(format!("Command '{}' not found", text(3)));
    let (index, command) = super::find(inner.at(0)).ok_or_else(unknown)?;
    let mut arity = command.arity;
    if let Some(word) = inner.get(1).filter(|_| !command.parts.is_empty()) {
        arity = command.part(word).ok_or_else(unknown)?.1;
    }
    let slot = COMMANDS.slot(index, inner);
    if !table::takes(arity, inner.len()) {
        let name = COMMANDS.name(slot);
        return Err(error(format!("wrong number of arguments for '{name}' command")));
    }
    let (user, call) = (account.user(), (command, slot, inner));
    match permission::check(&user, call) {
        Ok(()) => context.out.ok(),
        Err(denied) => context.out.bulk(permission::text(&user, denied, call, true).as_bytes()),
    }
    Ok(())
}

fn log(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let log = &context.server.acl.log;
    if args.len() > 3 {
        return Err(too_many(args));
    }
    let most = match args.get(2) {
        Some(word) if is_word(word, "reset") => {
            log.reset();
            context.out.ok();
            return Ok(());
        }
        Some(count) => usize::try_from(integer(count)?).unwrap_or(0),
        None => ENTRIES_DEFAULT,
    };
    let (entries, now, out) = (log.latest(most), now_ms(), &mut *context.out);
    out.array(entries.len());
    for entry in entries {
        let denial = &entry.denial;
        out.map(10);
        out.bulk(b"count");
        out.int(entry.count as i64);
        let texts = [
            ("reason", denial.reason.name().as_bytes()),
            ("context", denial.place.name().as_bytes()),
            ("object", &denial.object),
            ("username", &denial.user),
        ];
        for (name, text) in texts {
            out.bulk(name.as_bytes());
            out.bulk(text);
        }
        out.bulk(b"age-seconds");
        out.double(now.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        out.bulk(b"client-info");
        out.bulk(entry.client.as_bytes());
        let numbers = [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ];
        for (name, number) in numbers {
            out.bulk(name.as_bytes());
            out.int(number as i64);
        }
    }
    Ok(())
}

fn load_or_save(context: &mut Context<'_, '_>, is_load: bool) -> Done {
    let acl = &context.server.acl;
    if acl.file().is_none() {
        let text = "ERR This Redis instance is not configured to use an ACL file. You may want to \
                    specify users via the ACL SETUSER command and then issue a CONFIG REWRITE \
                    (assuming you have a Redis configuration file set) in order to store users in \
                    the Redis configuration.";
        return Err(text.into());
    }
    if is_load {
        let gone = acl.load().map_err(|wrong| {
            error(format!(
                "{wrong}WARNING: ACL errors detected, no change to the previously active ACL rules \
                 was performed"
            ))
        })?;
        end_clients(context, &gone);
        tell(context, "a client had the file of users read again");
    } else if let Err(why) = acl.save() {
        let fields = [("error", why.to_string().into())];
        context.server.log.write(
            Event::UsersNotSaved,
            "the file of users was not written",
            &fields,
        );
        let text = "ERR There was an error trying to save the ACLs. Please check the server logs \
                    for more information";
        return Err(text.into());
    }
    context.out.ok();
    Ok(())
}

fn genpass(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 3 {
        return Err(too_many(args));
    }
    let bits = match args.get(2) {
        None => PASSWORD_BITS_DEFAULT,
        Some(bits) => integer(bits)?,
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        let text = "ERR ACL GENPASS argument must be the number of bits for the output password, a \
                    positive number up to 4096";
        return Err(Fault::from(text));
    }
    // Not from the generator of random choices, which a setting makes the same at each start.
    let mut bytes = vec![0; (PASSWORD_BITS_MAX / 8) as usize];
    let mut source = std::fs::File::open("/dev/urandom").map_err(no_random)?;
    std::io::Read::read_exact(&mut source, &mut bytes).map_err(no_random)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let len = (bits as usize).div_ceil(4);
    context.out.bulk(&digits.as_bytes()[..len]);
    Ok(())
}

fn no_random(_error: std::io::Error) -> Fault {
    "ERR the system gives no random bytes".into()
}
