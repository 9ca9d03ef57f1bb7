//! Functions: `FCALL` and its like, and `FUNCTION`.

use std::{cell::RefCell, rc::Rc, sync::Arc, sync::atomic::Ordering};

use parking_lot::MutexGuard;

use super::{
    Context, Done,
    help::FUNCTION as HELP,
    is_word,
    script_host::LoadHost,
    scripting::{ScriptCall, WRITE_FLAG, busy, kill},
};
use crate::{
    commit,
    fault::{Fault, NO_REPLICAS},
    glob::matches,
    libraries::{changes, put},
    rdb::{libraries_of, libraries_payload},
    resp::{Args, number},
    script::{self, FLAGS, Libraries, Library, NO_WRITES, Program},
};

/// `FCALL`.
pub(super) fn fcall(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    call(context, args, false)
}

/// `FCALL_RO`.
pub(super) fn fcall_ro(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    call(context, args, true)
}

/// Libraries that the commands of an `EXEC` have changed, which are committed with what else it
/// writes. Nobody else changes libraries until then.
pub(crate) struct Changed<'s> {
    one: MutexGuard<'s, ()>,
    all: Arc<Libraries>,
}

impl Context<'_, '_> {
    /// The libraries as the command sees them.
    fn libraries(&self) -> Arc<Libraries> {
        match &self.libraries {
            Some(changed) => Arc::clone(&changed.all),
            None => self.server.functions.present(),
        }
    }

    /// Commits what is pending, and shows all clients the libraries that are changed by it.
    ///
    /// # Errors
    ///
    /// From the engine; nothing of it is visible.
    pub(super) fn commit_so_far(&mut self) -> rhumb::Result<()> {
        commit::transaction(&mut self.txn)?;
        if let Some(changed) = &self.libraries {
            self.server.functions.set(Arc::clone(&changed.all));
        }
        Ok(())
    }
}

fn call(context: &mut Context<'_, '_>, args: Args<'_>, only_reads: bool) -> Done {
    let libraries = context.libraries();
    let (library, function) = libraries.function(args.at(1)).ok_or("ERR Function not found")?;
    let count = number::parse_i64(args.at(2)).ok_or("ERR Bad number of keys provided")?;
    if count > args.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let Ok(keys) = usize::try_from(count) else {
        return Err("ERR Number of keys can't be negative".into());
    };
    let writes = function.flags & NO_WRITES == 0;
    if only_reads && writes {
        return Err(WRITE_FLAG.into());
    }
    if writes && context.server.remembered.lacks_replicas() {
        return Err(NO_REPLICAS.into());
    }
    let program = Program::Function { libraries: &libraries, library, name: &function.name };
    let call = ScriptCall { program, keys, only_reads: !writes };
    let needs_everything = function.needs_everything.load(Ordering::Relaxed);
    call.run(context, args, needs_everything, || {
        function.needs_everything.store(true, Ordering::Relaxed);
    })
}

fn refused(text: String) -> Fault {
    Fault::Text(format!("ERR {text}").into())
}

fn wrong_arguments(args: Args<'_>) -> Fault {
    let part = String::from_utf8_lossy(args.at(1));
    let text = "unknown subcommand or wrong number of arguments for";
    refused(format!("{text} '{part}'. Try FUNCTION HELP."))
}

/// `FUNCTION`.
pub(super) fn function(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    match &args.at(1).to_ascii_lowercase()[..] {
        b"load" => load(context, args),
        b"list" => list(context, args),
        b"delete" => {
            let name = String::from_utf8_lossy(args.at(2));
            change(context, |libraries| {
                if libraries.remove(&name) { Ok(()) } else { Err("Library not found".to_owned()) }
            })?;
            context.out.ok();
            Ok(())
        }
        b"flush" => flush(context, args),
        b"dump" => {
            let libraries = context.libraries();
            let payload = libraries_payload(libraries.iter().map(|library| &library.code[..]));
            context.out.bulk(&payload);
            Ok(())
        }
        b"restore" => restore(context, args),
        b"stats" => stats(context),
        b"kill" => kill(context, true),
        _ => {
            super::help::write("FUNCTION", HELP, context.out);
            Ok(())
        }
    }
}

/// Changes the libraries: on the disk, and then for all clients. Within `EXEC` that happens when it
/// is committed.
fn change(
    context: &mut Context<'_, '_>,
    work: impl FnOnce(&mut Libraries) -> Result<(), String>,
) -> Done {
    let (databases, functions) = (&context.server.databases, &context.server.functions);
    if context.in_exec {
        let mut changed = context.libraries.take().unwrap_or_else(|| {
            let one = functions.change();
            Changed { one, all: functions.present() }
        });
        let mut all = (*changed.all).clone();
        let worked = work(&mut all).map_err(refused);
        if worked.is_ok() {
            context.txn.pending.system.extend(changes(&changed.all, &all));
            changed = Changed { one: changed.one, all: Arc::new(all) };
        }
        context.libraries = Some(changed);
        return worked;
    }
    let _one = functions.change();
    let mut libraries = (*functions.present()).clone();
    work(&mut libraries).map_err(refused)?;
    put(databases, functions, libraries)?;
    Ok(())
}

/// Runs the code of a library.
fn run_code(context: &Context<'_, '_>, code: &[u8]) -> Result<Arc<Library>, String> {
    let host = context.server.this().ok_or("functions cannot be loaded here")?;
    script::load(code, Some(Rc::new(RefCell::new(LoadHost(host))))).map(Arc::new)
}

fn load(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let last = args.len() - 1;
    let mut replace = false;
    for at in 2..last {
        if !is_word(args.at(at), "replace") {
            let word = String::from_utf8_lossy(args.at(at));
            return Err(refused(format!("Unknown option given: {word}")));
        }
        replace = true;
    }
    let head = script::Head::parse(args.at(last)).map_err(refused)?;
    let exists = || format!("Library '{}' already exists", head.name);
    if !replace && context.libraries().has(&head.name) {
        return Err(refused(exists()));
    }
    let library = run_code(context, args.at(last)).map_err(refused)?;
    change(context, |libraries| {
        if !replace && libraries.has(&head.name) {
            return Err(exists());
        }
        libraries.add(vec![library], true)
    })?;
    context.out.bulk(head.name.as_bytes());
    Ok(())
}

fn flush(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 3 {
        return Err(wrong_arguments(args));
    }
    if args.get(2).is_some_and(|word| !is_word(word, "async") && !is_word(word, "sync")) {
        return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into());
    }
    change(context, |libraries| {
        *libraries = Libraries::default();
        Ok(())
    })?;
    context.out.ok();
    Ok(())
}

fn restore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 4 {
        return Err(wrong_arguments(args));
    }
    let policy = args.get(3).unwrap_or(b"append").to_ascii_lowercase();
    if !matches!(&policy[..], b"append" | b"replace" | b"flush") {
        let text = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or \
                    REPLACE.";
        return Err(text.into());
    }
    let codes = libraries_of(args.at(2)).map_err(|text| refused(text.to_owned()))?;
    let loaded: Result<Vec<_>, _> = codes.iter().map(|code| run_code(context, code)).collect();
    let loaded = loaded.map_err(refused)?;
    // Those of the payload must agree among themselves, whatever is there.
    Libraries::default().add(loaded.clone(), false).map_err(refused)?;
    change(context, |libraries| {
        if policy == b"flush" {
            *libraries = Libraries::default();
        }
        libraries.add(loaded, policy == b"replace")
    })?;
    context.out.ok();
    Ok(())
}

fn list(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut with_code, mut pattern) = (false, None);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        if !with_code && is_word(word, "withcode") {
            with_code = true;
        } else if pattern.is_none() && is_word(word, "libraryname") {
            at += 1;
            pattern = Some(args.get(at).ok_or("ERR library name argument was not given")?);
        } else {
            let word = String::from_utf8_lossy(word);
            return Err(refused(format!("Unknown argument {word}")));
        }
        at += 1;
    }
    let libraries = context.libraries();
    let is_asked = |library: &&Arc<Library>| {
        let name = library.name.to_ascii_lowercase();
        pattern.is_none_or(|pattern| matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    };
    let asked: Vec<_> = libraries.iter().filter(is_asked).collect();
    let out = &mut *context.out;
    out.array(asked.len());
    for library in asked {
        out.map(if with_code { 4 } else { 3 });
        out.bulk(b"library_name");
        out.bulk(library.name.as_bytes());
        out.bulk(b"engine");
        out.bulk(b"LUA");
        out.bulk(b"functions");
        out.array(library.functions.len());
        for function in &library.functions {
            out.map(3);
            out.bulk(b"name");
            out.bulk(function.name.as_bytes());
            out.bulk(b"description");
            match &function.description {
                Some(text) => out.bulk(text),
                None => out.null(),
            }
            out.bulk(b"flags");
            out.set(function.flags.count_ones() as usize);
            let flags = FLAGS.iter().enumerate();
            for (_, flag) in flags.filter(|(bit, _)| function.flags & (1 << bit) != 0) {
                out.simple(flag);
            }
        }
        if with_code {
            out.bulk(b"library_code");
            out.bulk(&library.code);
        }
    }
    Ok(())
}

fn stats(context: &mut Context<'_, '_>) -> Done {
    let running = context.server.scripts.first_running();
    if running.as_ref().is_some_and(|script| !script.is_function) {
        return Err(busy("SCRIPT KILL"));
    }
    let (libraries, functions) = context.libraries().counts();
    let out = &mut *context.out;
    out.map(2);
    out.bulk(b"running_script");
    match running {
        None => out.null(),
        Some(script) => {
            out.map(3);
            out.bulk(b"name");
            out.bulk(script.name.as_bytes());
            out.bulk(b"command");
            out.array(script.words.len());
            script.words.iter().for_each(|word| out.bulk(word));
            out.bulk(b"duration_ms");
            out.int(i64::try_from(script.began.elapsed().as_millis()).unwrap_or(i64::MAX));
        }
    }
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    out.bulk(b"libraries_count");
    out.int(libraries as i64);
    out.bulk(b"functions_count");
    out.int(functions as i64);
    Ok(())
}
