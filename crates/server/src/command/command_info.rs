//! `COMMAND`: what the commands are, where their keys stand, and what is done with those.

use super::{
    COMMANDS, Command, Context, Done, Group, KeyPlaces, MoreKeys, SYNTAX, categories,
    connection::wrong_part_arity,
    help, is_word, keys_of,
    table::{facts, takes},
};
use crate::{
    fault::Fault,
    glob,
    resp::{Args, Reply},
};

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
        return command_getkeys(context, args, false);
    } else if is_word(part, "getkeysandflags") && args.len() > 2 {
        return command_getkeys(context, args, true);
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
    for command in COMMANDS.iter() {
        if by_category && !categories::of(command).iter().any(|category| is_word(value, category)) {
            continue;
        }
        let parts = command.parts.iter().map(|(part, _)| format!("{}|{part}", command.name));
        let all = std::iter::once(command.name.to_owned()).chain(parts);
        // There are no modules.
        let belongs = |name: &String| match filter {
            None => true,
            Some(_) => by_category || by_pattern && glob::matches(&pattern, name.as_bytes()),
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
        match find(name) {
            Some((command, None)) => write_info(command, context.out),
            Some((command, Some((part, arity)))) => {
                write_part_info(command, part, arity, context.out);
            }
            None => context.out.null_array(),
        }
    }
    Ok(())
}

/// A part of a command: its name and its arity.
type NamedPart = (&'static str, i16);

/// The command of a name, and the part of it if the name is as `config|get`.
fn find(name: &[u8]) -> Option<(&'static Command, Option<NamedPart>)> {
    let mut words = name.splitn(2, |byte| *byte == b'|');
    let (_, command) = super::find(words.next()?)?;
    match words.next() {
        None => Some((command, None)),
        Some(part) => command.part(part).map(|part| (command, Some(*part))),
    }
}

/// What is told of a command or a part of one up to its places of keys.
fn write_head(name: &str, arity: i16, flags: &[&str], out: &mut Reply) {
    out.array(10);
    out.bulk(name.as_bytes());
    out.int(arity.into());
    out.set(flags.len());
    flags.iter().for_each(|name| out.simple(name));
}

fn write_categories(command: &Command, out: &mut Reply) {
    let categories = categories::of(command);
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(&format!("@{category}")));
}

fn write_info(command: &Command, out: &mut Reply) {
    let mut flags = command.flags.names();
    if command.keys.more != MoreKeys::None || command.flags.has(super::Flags::KEY_PATTERNS) {
        flags.push("movablekeys");
    }
    write_head(command.name, command.arity, &flags, out);
    let (first, last, step) = (command.keys.first as i64, command.keys.last, command.keys.step);
    out.int(first);
    out.int(last as i64);
    out.int(if first == 0 { 0 } else { step as i64 });
    write_categories(command, out);
    let tips = facts::tips(command.name);
    out.set(tips.len());
    tips.iter().for_each(|tip| out.bulk(tip.as_bytes()));
    write_key_specifications(command, out);
    out.array(command.parts.len());
    command.parts.iter().for_each(|(part, arity)| write_part_info(command, part, *arity, out));
}

fn write_part_info(command: &Command, part: &str, arity: i16, out: &mut Reply) {
    let name = format!("{}|{part}", command.name);
    write_head(&name, arity, &command.flags.names(), out);
    (0..3).for_each(|_| out.int(0));
    write_categories(command, out);
    // Tips, key specifications and parts of its own.
    (0..3).for_each(|_| out.array(0));
}

/// Where keys begin, and where they end from there.
struct Specification {
    begin: (&'static str, Vec<(&'static str, SpecValue)>),
    end: (&'static str, Vec<(&'static str, SpecValue)>),
}

#[derive(Clone)]
enum SpecValue {
    Number(i64),
    Word(String),
}

impl Specification {
    /// Keys from this argument on, up to the one that is `last` after it, or from the end.
    fn range(first: usize, last: isize, step: usize) -> Self {
        Self {
            begin: ("index", vec![("index", SpecValue::Number(first as i64))]),
            end: Self::range_end(last, step, 0),
        }
    }

    fn range_end(
        last: isize,
        step: usize,
        limit: i64,
    ) -> (&'static str, Vec<(&'static str, SpecValue)>) {
        let numbers = [("lastkey", last as i64), ("keystep", step as i64), ("limit", limit)];
        ("range", numbers.map(|(name, number)| (name, SpecValue::Number(number))).to_vec())
    }

    fn keyword(word: &str, from: i64, limit: i64) -> Self {
        let begin = vec![
            ("keyword", SpecValue::Word(word.to_uppercase())),
            ("startfrom", SpecValue::Number(from)),
        ];
        Self { begin: ("keyword", begin), end: Self::range_end(-1, 1, limit) }
    }

    fn more(more: MoreKeys) -> Option<Self> {
        Some(match more {
            MoreKeys::None => return None,
            MoreKeys::Counted { at } => {
                let numbers = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
                let numbers = numbers.map(|(name, number)| (name, SpecValue::Number(number)));
                Self {
                    begin: ("index", vec![("index", SpecValue::Number(at as i64))]),
                    end: ("keynum", numbers.to_vec()),
                }
            }
            // The second half of what follows are identifiers.
            MoreKeys::Streams => Self::keyword("streams", 1, 2),
            // The word may stand anywhere.
            MoreKeys::After(_) => {
                Self { begin: ("unknown", Vec::new()), end: ("unknown", Vec::new()) }
            }
            MoreKeys::AllAfter(word) => Self::keyword(word, -2, 0),
        })
    }

    fn write(&self, flags: &[&str], out: &mut Reply) {
        out.map(3);
        out.bulk(b"flags");
        out.set(flags.len());
        flags.iter().for_each(|flag| out.simple(flag));
        for (name, (kind, values)) in [("begin_search", &self.begin), ("find_keys", &self.end)] {
            out.bulk(name.as_bytes());
            out.map(2);
            out.bulk(b"type");
            out.bulk(kind.as_bytes());
            out.bulk(b"spec");
            out.map(values.len());
            for (name, value) in values {
                out.bulk(name.as_bytes());
                match value {
                    SpecValue::Number(number) => out.int(*number),
                    SpecValue::Word(word) => out.bulk(word.as_bytes()),
                }
            }
        }
    }
}

fn write_key_specifications(command: &Command, out: &mut Reply) {
    let KeyPlaces { first, last, step, more } = command.keys;
    let after_first = if last < 0 { last } else { last - first as isize };
    let flags = key_flags(command);
    let mut all = Vec::new();
    if first > 0 && flags.len() > 1 && after_first != 0 {
        // The first key is another thing than the others.
        all.push(Specification::range(first, 0, step));
        let others = if last < 0 { last } else { after_first - step as isize };
        all.push(Specification::range(first + step, others, step));
    } else if first > 0 {
        all.push(Specification::range(first, after_first, step));
    }
    all.extend(Specification::more(more));
    out.set(all.len());
    for (at, specification) in all.iter().enumerate() {
        specification.write(flags[at.min(flags.len() - 1)], out);
    }
}

fn key_flags(command: &Command) -> &'static [&'static [&'static str]] {
    facts::key_flags(command.name, command.flags.has(super::Flags::WRITE))
}

/// The flags of the key `nth` of a call; those that depend on its options are decided.
fn flags_of_key(command: &Command, args: Args<'_>, nth: usize) -> &'static [&'static str] {
    let has = |word: &str| args.iter_from(2).any(|option| is_word(option, word));
    match command.name {
        "set" if !has("get") => &["OW", "update"],
        "bitfield" if !has("set") && !has("incrby") => &["RO", "access"],
        "set" | "bitfield" => &["RW", "access", "update"],
        _ => {
            let flags = key_flags(command);
            flags[nth.min(flags.len() - 1)]
        }
    }
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
            ("since", facts::since(command.name)),
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

/// `COMMAND GETKEYS`, and `COMMAND GETKEYSANDFLAGS`.
fn command_getkeys(context: &mut Context<'_, '_>, args: Args<'_>, with_flags: bool) -> Done {
    let (_, command) = super::find(args.at(2)).ok_or("ERR Invalid command specified")?;
    let inner = args.from(2);
    let keys: Vec<&[u8]> = keys_of(command, inner).collect();
    let part_arity = inner.get(1).and_then(|word| command.part(word)).map(|(_, arity)| *arity);
    let names_none = command.keys.first == 0 && command.keys.more == MoreKeys::None;
    if names_none {
        return Err("ERR The command has no key arguments".into());
    }
    if !takes(part_arity.unwrap_or(command.arity), inner.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    // Scripts need no keys.
    if keys.is_empty() && command.group != Group::Scripting {
        return Err(Fault::from("ERR Invalid arguments specified for command"));
    }
    context.out.array(keys.len());
    for (nth, key) in keys.iter().enumerate() {
        if !with_flags {
            context.out.bulk(key);
            continue;
        }
        context.out.array(2);
        context.out.bulk(key);
        let flags = flags_of_key(command, inner, nth);
        context.out.set(flags.len());
        flags.iter().for_each(|flag| context.out.simple(flag));
    }
    Ok(())
}
