//! Commands on the server: what it can do, what time it is there, and its end.

use super::{
    COMMANDS, Command, Context, Done, SYNTAX, categories, connection::wrong_part_arity, help,
    is_word, keys_of,
};
use crate::{
    acl,
    fault::Fault,
    glob,
    log::Event,
    resp::{Args, Reply},
};

/// The version of Redis whose commands and texts these are.
pub(super) const VERSION: &str = "7.0.15";

/// `TIME`.
pub(super) fn time(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    context.out.array(2);
    context.out.bulk(since.as_secs().to_string().as_bytes());
    context.out.bulk(since.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// `ROLE`: always a master without replicas.
pub(super) fn role(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    context.out.array(3);
    context.out.bulk(b"master");
    context.out.int(0);
    context.out.array(0);
    Ok(())
}

/// `SHUTDOWN`: drains, syncs and ends, whatever its options.
pub(super) fn shutdown(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let known = ["save", "nosave", "now", "force"];
    if !args.iter_from(1).all(|option| known.iter().any(|word| is_word(option, word))) {
        return Err(SYNTAX.into());
    }
    let client = ("client", context.client.info.address.as_str().into());
    context.server.log.write(Event::Stopping, "a client said SHUTDOWN", &[client]);
    context.server.stop();
    context.client.closing = true;
    Ok(())
}

/// `COMMAND` and its parts.
pub(super) fn command(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Some(part) = args.get(1) else {
        context.out.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| write_info(command, context.out));
        return Ok(());
    };
    if is_word(part, "count") && args.len() == 2 {
        context.out.count(COMMANDS.len());
    } else if is_word(part, "info") {
        return command_info(context, args);
    } else if is_word(part, "docs") {
        return command_docs(context, args);
    } else if is_word(part, "help") && args.len() == 2 {
        help::write("COMMAND", help::COMMAND, context.out);
    } else if is_word(part, "list") {
        return command_list(context, args);
    } else if is_word(part, "getkeys") && args.len() > 2 {
        return command_getkeys(context, args);
    } else {
        return Err(wrong_part_arity(args));
    }
    Ok(())
}

/// The names of the commands and of their parts, all of them or those that a filter lets through.
fn command_list(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (filter, value) = match (args.get(2), args.get(3), args.get(4)) {
        (None, ..) => (None, &b""[..]),
        (Some(word), Some(filter), Some(value)) if is_word(word, "filterby") && args.len() == 5 => {
            (Some(filter), value)
        }
        _ => return Err(SYNTAX.into()),
    };
    let is = |word| filter.is_some_and(|filter| is_word(filter, word));
    let (by_category, by_pattern) = (is("aclcat"), is("pattern"));
    if filter.is_some() && !by_category && !by_pattern && !is("module") {
        return Err(SYNTAX.into());
    }
    let pattern = value.to_ascii_lowercase();
    let mut names = Vec::new();
    if by_category && let Some(category) = acl::category(value) {
        let slots = context.server.acl.catalog().iter();
        names.extend(slots.filter(|slot| slot.is_in(category)).map(|slot| slot.name.clone()));
    }
    for command in COMMANDS.iter().filter(|_| !by_category) {
        let parts = command.parts.iter().map(|(part, _)| format!("{}|{part}", command.name));
        let all = std::iter::once(command.name.to_owned()).chain(parts);
        // There are no modules.
        let belongs = |name: &String| match filter {
            None => true,
            Some(_) => by_pattern && glob::matches(&pattern, name.as_bytes()),
        };
        names.extend(all.filter(belongs));
    }
    context.out.array(names.len());
    names.iter().for_each(|name| context.out.bulk(name.as_bytes()));
    Ok(())
}

fn command_info(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() == 2 {
        context.out.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| write_info(command, context.out));
        return Ok(());
    }
    context.out.array(args.len() - 2);
    for name in args.iter_from(2) {
        match super::find(name) {
            Some((_, command)) => write_info(command, context.out),
            None => context.out.null_array(),
        }
    }
    Ok(())
}

fn write_info(command: &Command, out: &mut Reply) {
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.int(command.arity.into());
    let flags = command.flags.names();
    out.set(flags.len());
    flags.iter().for_each(|name| out.simple(name));
    let (first, last, step) = (command.keys.first as i64, command.keys.last, command.keys.step);
    out.int(first);
    out.int(last as i64);
    out.int(if first == 0 { 0 } else { step as i64 });
    let categories = categories::of(command);
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(&format!("@{category}")));
    // Tips, key specifications and parts: none are given.
    (0..3).for_each(|_| out.array(0));
}

fn command_docs(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let wanted: Vec<&Command> = if args.len() == 2 {
        COMMANDS.iter().collect()
    } else {
        args.iter_from(2).filter_map(|name| Some(super::find(name)?.1)).collect()
    };
    context.out.map(wanted.len());
    for command in wanted {
        context.out.bulk(command.name.as_bytes());
        let fields = [
            ("summary", command.summary),
            ("since", "1.0.0"),
            ("group", command.group.name()),
            ("complexity", command.complexity),
        ];
        context.out.map(fields.len());
        for (field, text) in fields {
            context.out.bulk(field.as_bytes());
            context.out.bulk(text.as_bytes());
        }
    }
    Ok(())
}

fn command_getkeys(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (_, command) = super::find(args.at(2)).ok_or("ERR Invalid command specified")?;
    let inner = args.from(2);
    if !command.takes(inner.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys: Vec<&[u8]> = keys_of(command, inner).collect();
    if keys.is_empty() {
        return Err(Fault::from("ERR The command has no key arguments"));
    }
    context.out.array(keys.len());
    keys.iter().for_each(|key| context.out.bulk(key));
    Ok(())
}
