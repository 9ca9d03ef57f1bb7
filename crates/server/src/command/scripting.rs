//! Scripts: `EVAL` and its like, and `SCRIPT`.
//!
//! A script runs under the locks of the keys that it is given, over pending writes of its own. One
//! that uses another key is begun again under all locks.

use std::{cell::RefCell, rc::Rc};

use super::{Context, Done, NOT_AN_INTEGER, SYNTAX, is_word, script_host::ScriptHost};
use crate::{
    commit,
    fault::Fault,
    resp::{Args, number},
    script::{self, End, sha_of},
    txn::Txn,
};

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

const HELP: &[&str] = &[
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Flush the Lua scripts cache. Very dangerous on replicas.",
    "KILL",
    "    Kill the currently executing Lua script.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
];

/// `EVAL`.
pub(super) fn eval(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (false, false))
}

/// `EVALSHA`.
pub(super) fn evalsha(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (true, false))
}

/// `EVAL_RO`.
pub(super) fn eval_ro(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (false, true))
}

/// `EVALSHA_RO`.
pub(super) fn evalsha_ro(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (true, true))
}

/// The number of keys that a script is given.
fn count_of_keys(args: Args<'_>) -> Result<usize, Fault> {
    let count = number::parse_i64(args.at(2)).ok_or(NOT_AN_INTEGER)?;
    let Ok(count) = usize::try_from(count) else {
        return Err("ERR Number of keys can't be negative".into());
    };
    if count > args.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(count)
}

/// The script without its first line, if that names an engine, and true if it only reads; `None`
/// if it has no such line.
fn first_line(text: &[u8]) -> Result<(&[u8], Option<bool>), Fault> {
    if !text.starts_with(b"#!") {
        return Ok((text, None));
    }
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
        return Err("ERR Invalid script shebang".into());
    };
    let line = String::from_utf8_lossy(&text[..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}").into());
    }
    let mut only_reads = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}").into());
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => only_reads = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => {
                    return Err(format!("ERR Unexpected flag in script shebang: {flag}").into());
                }
            }
        }
    }
    Ok((&text[end..], Some(only_reads)))
}

fn run(context: &mut Context<'_, '_>, args: Args<'_>, (by_sha, only_reads): (bool, bool)) -> Done {
    let count = count_of_keys(args)?;
    let scripts = &context.server.scripts;
    let (sha, source) = if by_sha {
        let sha = String::from_utf8_lossy(args.at(1)).to_ascii_lowercase();
        let source = scripts.find(&sha).ok_or(NO_SCRIPT)?;
        (sha, source)
    } else {
        let sha = sha_of(args.at(1));
        let found = scripts.find(&sha);
        if found.is_none() {
            script::check(first_line(args.at(1))?.0).map_err(fault_of)?;
        }
        let source = found.unwrap_or_else(|| scripts.keep(&sha, args.at(1)));
        (sha, source)
    };
    let (text, told) = first_line(&source.text)?;
    if only_reads && told == Some(false) {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    let only_reads = only_reads || told == Some(true);
    let mut everything = source.needs_everything || context.in_exec;
    loop {
        let ran = attempt(context, args, (&sha, text, count), (only_reads, everything));
        match ran {
            Err(End::NeedsEverything) if !everything => {
                scripts.note_needs_everything(&sha);
                everything = true;
            }
            Ok(()) => return Ok(()),
            // Nothing of a transaction happens if its script was ended.
            Err(End::Text(text)) if context.in_exec && text.starts_with("ERR Script ") => {
                let what = text.trim_start_matches("ERR ").to_owned();
                return Err(Fault::Engine(rhumb::Error::InvalidArgument(what.into())));
            }
            Err(end) => return Err(fault_of(end)),
        }
    }
}

fn fault_of(end: End) -> Fault {
    match end {
        End::TakesLong => Fault::TakesLong,
        End::NeedsEverything => Fault::Text("ERR the script uses keys that are not locked".into()),
        End::Engine(error) => Fault::Engine(error),
        End::Text(text) => Fault::Text(text),
    }
}

/// Runs a script once, under its locks, and commits what it wrote.
fn attempt(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    (sha, text, count): (&str, &[u8], usize),
    (only_reads, everything): (bool, bool),
) -> Result<(), End> {
    let databases = &context.server.databases;
    let words: Vec<&[u8]> = args.iter_from(3).collect();
    let (keys, arguments) = words.split_at(count);
    let _locks = (!context.in_exec).then(|| {
        let locks = &databases.locks;
        let held = if everything {
            locks.everything()
        } else {
            locks.many_exclusive(keys.iter().copied())
        };
        databases.commit_submitted();
        held
    });
    if !context.in_exec {
        let number = databases.number(context.client.database);
        context.txn = Txn::new(databases, number, crate::db::now_ms());
        context.txn.client = context.client.info.id;
    }
    let locked = (!everything).then(|| keys.iter().map(|key| key.to_vec()).collect());
    let Some(mut host) = ScriptHost::new(context, locked, only_reads) else {
        return Err(End::Text("ERR scripts cannot be run here".into()));
    };
    std::mem::swap(&mut host.pending, &mut context.txn.pending);
    let host = Rc::new(RefCell::new(host));
    let from = context.out.len();
    let called = Rc::clone(&host);
    let ran = script::run(sha, text, (keys, arguments), called, context.may_take_long, context.out);
    std::mem::swap(&mut host.borrow_mut().pending, &mut context.txn.pending);
    // The script may have exchanged databases.
    context.txn.number = databases.number(context.client.database);
    if let Err(end) = ran {
        context.out.truncate(from);
        if !context.in_exec {
            context.txn.pending = crate::txn::Pending::default();
        }
        return Err(end);
    }
    if !context.in_exec {
        commit::transaction(&mut context.txn).map_err(End::Engine)?;
    }
    Ok(())
}

/// `SCRIPT`.
pub(super) fn script(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let scripts = &context.server.scripts;
    let part = args.at(1).to_ascii_lowercase();
    match &part[..] {
        b"load" => {
            script::check(first_line(args.at(2))?.0).map_err(fault_of)?;
            let sha = sha_of(args.at(2));
            scripts.keep(&sha, args.at(2));
            context.out.bulk(sha.as_bytes());
        }
        b"exists" => {
            context.out.array(args.len() - 2);
            for sha in args.iter_from(2) {
                let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
                context.out.int(scripts.find(&sha).is_some().into());
            }
        }
        b"flush" => {
            let is_mode = |word| is_word(word, "async") || is_word(word, "sync");
            if args.len() > 3 || args.get(2).is_some_and(|word| !is_mode(word)) {
                let text = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
                return Err(text.into());
            }
            scripts.flush();
            context.out.ok();
        }
        b"kill" => {
            if !scripts.kill() {
                return Err("NOTBUSY No scripts in execution right now.".into());
            }
            context.out.ok();
        }
        b"help" => super::help::write("SCRIPT", HELP, context.out),
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}
