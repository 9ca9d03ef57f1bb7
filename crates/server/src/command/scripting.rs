//! Scripts: `EVAL` and its like, and `SCRIPT`.
//!
//! A script runs under the locks of the keys that it is given, over pending writes of its own. One
//! that uses another key is begun again under all locks. If other clients may share its commit it
//! joins their commit group, where what it wrote is taken back if it is ended.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use super::{
    COMMANDS, Context, Done, NOT_AN_INTEGER, SYNTAX, is_word, listening, script_host::ScriptHost,
};
use crate::{
    commit,
    fault::{Fault, NO_REPLICAS},
    resp::{Args, number},
    script::{self, End, Kill, Program, RunningScript, sha_of},
    txn::Txn,
};

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// The error for what may write and is called by a command that only reads.
pub(super) const WRITE_FLAG: &str =
    "ERR Can not execute a script with write flag using *_ro command.";

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
    let Some(words) = script::words(line.as_bytes()) else {
        return Err("ERR Invalid engine in script shebang".into());
    };
    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let engine = words.first().map_or("", |word| word);
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}").into());
    }
    let mut flags = 0;
    for word in &words[1..] {
        let Some(named) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}").into());
        };
        for flag in named.split(',').filter(|_| !named.is_empty()) {
            let bit = script::FLAGS.iter().position(|known| *known == flag);
            let bit =
                bit.ok_or_else(|| format!("ERR Unexpected flag in script shebang: {flag}"))?;
            flags |= 1 << bit;
        }
    }
    let only_reads = flags & script::NO_WRITES != 0;
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
        return Err(WRITE_FLAG.into());
    }
    if told == Some(false) && context.server.remembered.lacks_replicas() {
        return Err(NO_REPLICAS.into());
    }
    let call = ScriptCall {
        program: Program::Script { sha: &sha, source: text },
        keys: count,
        only_reads: only_reads || told == Some(true),
    };
    call.run(context, args, source.needs_everything, || scripts.note_needs_everything(&sha))
}

/// A script or a function that is called.
pub(super) struct ScriptCall<'p> {
    pub(super) program: Program<'p>,
    /// How many keys it is given, which are the first ones after three arguments.
    pub(super) keys: usize,
    pub(super) only_reads: bool,
}

impl ScriptCall<'_> {
    /// Runs it: under the locks of its keys, or, once that was not enough, under all locks, which
    /// `note` hears of.
    pub(super) fn run(
        &self,
        context: &mut Context<'_, '_>,
        args: Args<'_>,
        needs_everything: bool,
        note: impl Fn(),
    ) -> Done {
        let shows = context.server.databases.listeners.monitors.any();
        if shows && !context.txn.may_take_long {
            // What monitors were shown cannot be taken back: the script must not be begun again.
            return Err(Fault::TakesLong);
        }
        if shows && let Some((_, command)) = super::find(args.at(0)) {
            listening::show(context.server, context.client, command, args);
            context.client.is_shown.set(true);
        }
        // A group has the locks of the keys that its commands are given, and no others. What took
        // long there does so again.
        let is_apart = context.joins && (needs_everything || shows);
        if is_apart || (context.client.script_took_long.take() && !context.txn.may_take_long) {
            return Err(Fault::TakesLong);
        }
        let mut everything = needs_everything || context.in_exec || shows;
        let from = context.out.len();
        loop {
            match self.attempt(context, args, (everything, shows)) {
                Err(End::NeedsEverything) if !everything => {
                    note();
                    if context.joins {
                        return Err(Fault::TakesLong);
                    }
                    everything = true;
                }
                Ok(()) => break,
                Err(end) => {
                    let took_long = matches!(end, End::TakesLong) && context.joins;
                    context.client.script_took_long.set(took_long);
                    return Err(fault_of(end));
                }
            }
        }
        if context.out.bytes().get(from) == Some(&b'-')
            && let Some((index, _)) = super::find(args.at(0))
        {
            let slot = COMMANDS.slot(index, args);
            context.server.metrics.by_command.count_failed(slot, 1);
        }
        Ok(())
    }

    /// Runs it once, under its locks, and commits what it wrote. In a transaction or a commit group
    /// that is done by others.
    fn attempt(
        &self,
        context: &mut Context<'_, '_>,
        args: Args<'_>,
        (everything, shows): (bool, bool),
    ) -> Result<(), End> {
        let databases = &context.server.databases;
        let words: Vec<&[u8]> = args.iter_from(3).collect();
        let (keys, arguments) = words.split_at(self.keys);
        let is_part = context.in_exec || context.joins;
        let _locks = (!is_part).then(|| {
            let locks = &databases.locks;
            let held = if everything {
                locks.everything()
            } else {
                locks.many_exclusive(keys.iter().copied())
            };
            databases.commit_submitted();
            held
        });
        if !is_part {
            let number = databases.number(context.client.database);
            let may_take_long = context.txn.may_take_long;
            context.txn = Txn::new(databases, number, crate::db::now_ms());
            context.txn.may_take_long = may_take_long;
            context.txn.client = context.client.info.id;
        }
        let running = context.txn.may_take_long.then(|| self.running(args));
        let locked = (!everything).then(|| keys.iter().map(|key| key.to_vec()).collect());
        let host = ScriptHost::new(context, locked, self.only_reads, running, shows);
        let Some(mut host) = host else {
            return Err(End::Text("ERR scripts cannot be run here".into()));
        };
        // What the commands before it have written stays if it is ended.
        if is_part {
            context.txn.pending.keep_undo();
        }
        std::mem::swap(&mut host.pending, &mut context.txn.pending);
        let host = Rc::new(RefCell::new(host));
        let (from, errors) = (context.out.len(), context.out.errors());
        let called = Rc::clone(&host);
        let (words, long) = ((keys, arguments), context.txn.may_take_long);
        let ran = script::run(self.program, words, called, long, context.out);
        std::mem::swap(&mut host.borrow_mut().pending, &mut context.txn.pending);
        if !matches!(ran, Err(End::TakesLong | End::NeedsEverything)) {
            host.borrow_mut().counts.add_to(&context.server.metrics.by_command);
        }
        // The script may have exchanged databases.
        context.txn.number = databases.number(context.client.database);
        if let Err(end) = ran {
            context.out.truncate(from);
            context.out.truncate_errors(errors);
            if is_part {
                context.txn.pending.take_back();
            } else {
                context.txn.pending = crate::txn::Pending::default();
            }
            return Err(end);
        }
        context.txn.pending.forget_undo();
        if !is_part {
            commit::transaction(&mut context.txn).map_err(End::Engine)?;
        }
        Ok(())
    }

    /// What is told of it while it runs.
    fn running(&self, args: Args<'_>) -> Arc<RunningScript> {
        match self.program {
            Program::Script { sha, .. } => RunningScript::new(sha, Vec::new(), false),
            Program::Function { name, .. } => {
                RunningScript::new(name, args.iter_from(0).map(<[u8]>::to_vec).collect(), true)
            }
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

/// Ends all functions that run, or all scripts.
pub(super) fn kill(context: &mut Context<'_, '_>, functions: bool) -> Done {
    match context.server.scripts.kill(functions) {
        Kill::Asked => {
            context.out.ok();
            Ok(())
        }
        Kill::None => Err("NOTBUSY No scripts in execution right now.".into()),
        Kill::Others => {
            let command = if functions { "SCRIPT KILL" } else { "FUNCTION KILL" };
            Err(busy(command))
        }
    }
}

/// The error while what runs is ended by another command.
pub(super) fn busy(command: &str) -> Fault {
    let text = "BUSY Redis is busy running a script. You can only call";
    format!("{text} {command} or SHUTDOWN NOSAVE.").into()
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
            kill(context, false)?;
        }
        b"help" => super::help::write("SCRIPT", HELP, context.out),
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}
