//! What scripts call by the name `redis`.

use rilua::{
    Lua, LuaApiMut, LuaResult, Table, Val, runtime_error,
    vm::{closure::Closure, state::LuaState},
};

use super::{MEMORY_BYTES_MAX, Refused, convert, is_ended, memory, running, sha_of};
use crate::{
    log::LogLevel,
    resp::{OwnedArgs, Reply},
};

/// The version that scripts are told, as `INFO` tells it.
const VERSION: (&str, f64) = ("7.0.15", 458_767.0);

/// The most bytes of one line that a script writes to the log: `LOG_MAX_LEN` of Redis.
const LOG_BYTES_MAX: usize = 1024;
/// Room for the reply to one call that is kept for the next one, in bytes: more than most replies
/// take.
const CALL_BYTES_KEPT: usize = 64 << 10;

/// The argument at `index`.
pub(super) fn argument(state: &LuaState, index: usize) -> Val {
    let at = state.base + index;
    if at < state.top { state.stack_get(at) } else { Val::Nil }
}

/// Where the script is: the name of the chunk and the line.
pub(super) fn place(state: &LuaState) -> Option<(String, u32)> {
    state.call_stack.get(..state.ci)?.iter().rev().find_map(|frame| {
        let Val::Function(function) = state.stack_get(frame.func) else { return None };
        let Some(Closure::Lua(closure)) = state.gc.closures.get(function) else { return None };
        // A library that is written in Lua is no place in the script.
        if !closure.proto.source.starts_with("@user") {
            return None;
        }
        let lines = &closure.proto.line_info;
        let line = lines.get(frame.saved_pc.saturating_sub(1)).copied()?;
        Some((closure.proto.source.clone(), line))
    })
}

/// An error that says where the script is.
pub(super) fn located(state: &LuaState, text: &str) -> rilua::LuaError {
    let place = place(state).map_or(String::new(), |(source, line)| {
        format!("{}:{line}: ", rilua::error::chunkid(&source))
    });
    runtime_error(format!("{place}{text}"))
}

/// Makes a table of an error that nothing has caught, with its place.
pub(super) fn on_error(state: &mut LuaState) -> LuaResult<u32> {
    let error = argument(state, 0);
    let text = match error {
        Val::Table(table) => convert::field(state, Table::from_gc_ref(table), "err"),
        other => {
            let text = convert::bytes(state, other).unwrap_or_else(|| format!("{other}").into());
            state.create_string(&[b"ERR ", &text[..]].concat())
        }
    };
    let made = state.create_table();
    let key = state.create_string(b"err");
    made.raw_set(state, key, text)?;
    if let Val::Table(table) = error
        && convert::is_counted(state, Table::from_gc_ref(table))
    {
        convert::mark_counted(state, Val::Table(made.gc_ref()))?;
    }
    if let Some((source, line)) = place(state) {
        let sha = SHA.with_borrow(Clone::clone);
        let place = state.create_string(format!("{sha}, on {source}:{line}.").as_bytes());
        let key = state.create_string(b"place");
        made.raw_set(state, key, place)?;
    }
    state.push(Val::Table(made.gc_ref()));
    Ok(1)
}

thread_local! {
    /// The SHA-1 of the script that runs.
    pub(super) static SHA: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Pushes a table with an error.
fn push_error(state: &mut LuaState, text: &str) -> LuaResult<u32> {
    let text = state.create_string(text.as_bytes());
    let table = convert::table_of(state, "err", text)?;
    state.push(table);
    Ok(1)
}

/// Raises a table with an error.
pub(super) fn raise<T>(state: &mut LuaState, text: &str) -> LuaResult<T> {
    let string = state.create_string(text.as_bytes());
    state.error_object = Some(convert::table_of(state, "err", string)?);
    Err(runtime_error(text))
}

/// Up to here, and down to its negative, every integer is a float and has less than 17 digits.
const INTEGER_MAX: f64 = 1e15;

/// A number as Redis passes it on: 17 digits, without the zeros at the end.
fn number_text(number: f64) -> String {
    let is_negative_zero = number == 0.0 && number.is_sign_negative();
    if number.trunc() == number && number.abs() <= INTEGER_MAX && !is_negative_zero {
        #[expect(clippy::cast_possible_truncation, reason = "it fits")]
        return (number as i64).to_string();
    }
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf".into() } else { "inf".into() };
    }
    let trim = |text: &str| {
        let text = if text.contains('.') { text.trim_end_matches('0') } else { text };
        text.trim_end_matches('.').to_owned()
    };
    let exponential = format!("{number:.16e}");
    let (digits, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return trim(&format!("{number:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

/// The error of a script that is ended: whatever runs next of it ends at once.
pub(super) fn end_script(state: &mut LuaState) -> rilua::LuaError {
    (state.hook.base_hook_count, state.hook.hook_count) = (1, 1);
    runtime_error("the script was ended")
}

/// Gathers the words of a call; the error's text if one of them is none.
fn gather(state: &LuaState, words: &mut OwnedArgs) -> Result<(), &'static str> {
    words.clear();
    let count = state.top.saturating_sub(state.base);
    if count == 0 {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    for index in 0..count {
        match argument(state, index) {
            Val::Num(number) => words.push(number_text(number).as_bytes()),
            Val::Str(string) if let Some(string) = state.gc.string_arena.get(string) => {
                // The same string may be an argument many times.
                if string.data().len() > MEMORY_BYTES_MAX.saturating_sub(words.memory()) {
                    return Err("ERR not enough memory");
                }
                words.push(string.data());
            }
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        }
    }
    Ok(())
}

/// Calls a command; the error's text and its table if that fails.
fn call_command(state: &mut LuaState) -> LuaResult<Result<Val, (String, Val)>> {
    let taken = running(|running| {
        if running.is_over() {
            return None;
        }
        let host = running.host.clone()?;
        running.out.clear(CALL_BYTES_KEPT);
        let out = std::mem::replace(&mut running.out, Reply::new(0));
        Some((std::mem::take(&mut running.words), out, host))
    });
    let Some(Some((mut words, mut out, host))) = taken else {
        return Err(end_script(state));
    };
    // What is no call has no command that its error is counted with.
    let is_call = gather(state, &mut words);
    let called = match is_call {
        Ok(()) => host.borrow_mut().call(words.args(), &mut out),
        Err(text) => Err(Refused::Text(text.into())),
    };
    let result: LuaResult<Result<Val, String>> = match called {
        Ok(()) if out.overflowed() => Ok(Err("ERR the reply is too large".to_owned())),
        Ok(()) => match out.bytes() {
            [b'-', text @ ..] => {
                let text = text.strip_suffix(b"\r\n").unwrap_or(text);
                Ok(Err(String::from_utf8_lossy(text).into_owned()))
            }
            reply => memory::make_room(state, reply.len())
                .and_then(|()| convert::value(state, &mut &reply[..]))
                .map(Ok),
        },
        Err(Refused::Text(text)) => Ok(Err(text.into_owned())),
        Err(Refused::End(end)) => {
            running(|running| running.ended = Some(end));
            Err(end_script(state))
        }
    };
    running(|running| (running.words, running.out) = (words, out));
    let text = match result? {
        Ok(value) => return Ok(Ok(value)),
        Err(text) => text,
    };
    let error = convert::error_table(state, text.as_bytes(), is_call.is_ok())?;
    Ok(Err((text, error)))
}

fn call(state: &mut LuaState) -> LuaResult<u32> {
    match call_command(state)? {
        Ok(value) => state.push(value),
        Err((text, error)) => {
            state.error_object = Some(error);
            return Err(runtime_error(text));
        }
    }
    Ok(1)
}

fn pcall(state: &mut LuaState) -> LuaResult<u32> {
    match call_command(state)? {
        Ok(value) | Err((_, value)) => state.push(value),
    }
    Ok(1)
}

fn error_reply(state: &mut LuaState) -> LuaResult<u32> {
    let Some(text) = convert::bytes(state, argument(state, 0)) else {
        return push_error(state, "ERR wrong number or type of arguments");
    };
    memory::reserve(state, text.len())?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let text = text.strip_prefix('-').unwrap_or(&text).trim_end_matches(['\r', '\n']);
    let text = if text.contains(' ') { text.to_owned() } else { format!("ERR {text}") };
    push_error(state, &text)
}

fn status_reply(state: &mut LuaState) -> LuaResult<u32> {
    let text = argument(state, 0);
    if convert::bytes(state, text).is_none() {
        return push_error(state, "ERR wrong number or type of arguments");
    }
    let table = convert::table_of(state, "ok", text)?;
    state.push(table);
    Ok(1)
}

fn sha1hex(state: &mut LuaState) -> LuaResult<u32> {
    if state.top.saturating_sub(state.base) != 1 {
        return raise(state, "ERR wrong number of arguments");
    }
    let text = match argument(state, 0) {
        Val::Num(number) => format!("{}", Val::Num(number)).into_bytes(),
        other => convert::bytes(state, other).unwrap_or_default(),
    };
    let sha = state.create_string(sha_of(&text).as_bytes());
    state.push(sha);
    Ok(1)
}

fn log(state: &mut LuaState) -> LuaResult<u32> {
    let count = state.top.saturating_sub(state.base);
    if count < 2 {
        return raise(state, "ERR redis.log() requires two arguments or more.");
    }
    let Val::Num(level) = argument(state, 0) else {
        return raise(state, "ERR First argument must be a number (log level).");
    };
    let level = match level {
        0.0 | 1.0 => LogLevel::Debug,
        2.0 => LogLevel::Info,
        3.0 => LogLevel::Warn,
        _ => return raise(state, "ERR Invalid debug level."),
    };
    let mut text = Vec::new();
    for at in 1..count {
        if at > 1 {
            text.push(b' ');
        }
        match argument(state, at) {
            Val::Num(number) => text.extend_from_slice(number_text(number).as_bytes()),
            other => text.extend(convert::bytes(state, other).unwrap_or_default()),
        }
    }
    text.truncate(LOG_BYTES_MAX);
    running(|running| {
        if let Some(host) = &running.host {
            host.borrow_mut().log(level, &String::from_utf8_lossy(&text));
        }
    });
    Ok(0)
}

fn setresp(state: &mut LuaState) -> LuaResult<u32> {
    if state.top.saturating_sub(state.base) != 1 {
        return raise(state, "ERR redis.setresp() requires one argument.");
    }
    let resp3 = match argument(state, 0) {
        Val::Num(2.0) => false,
        Val::Num(3.0) => true,
        _ => return raise(state, "ERR RESP version must be 2 or 3."),
    };
    running(|running| running.out.resp3 = resp3);
    Ok(0)
}

fn set_repl(state: &mut LuaState) -> LuaResult<u32> {
    match argument(state, 0) {
        Val::Num(flags) if (0.0..=3.0).contains(&flags) => Ok(0),
        Val::Num(_) => raise(
            state,
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ),
        _ => raise(state, "ERR redis.set_repl() requires one argument."),
    }
}

fn yes(state: &mut LuaState) -> LuaResult<u32> {
    state.push(Val::Bool(true));
    Ok(1)
}

fn no(state: &mut LuaState) -> LuaResult<u32> {
    state.push(Val::Bool(false));
    Ok(1)
}

fn nothing(_state: &mut LuaState) -> LuaResult<u32> {
    Ok(0)
}

fn acl_check_cmd(state: &mut LuaState) -> LuaResult<u32> {
    let count = state.top.saturating_sub(state.base);
    if count == 0 {
        return raise(state, "ERR Please specify at least one argument for this redis lib call");
    }
    let word = |index| match argument(state, index) {
        Val::Num(number) => number_text(number).into_bytes(),
        other => convert::bytes(state, other).unwrap_or_default(),
    };
    let words: Vec<Vec<u8>> = (0..count).map(word).collect();
    let args = OwnedArgs::new(words.iter().map(Vec::as_slice));
    let may = running(|running| {
        running.host.as_ref().and_then(|host| host.borrow().may_call(args.args()))
    });
    match may.flatten() {
        None => raise(state, "ERR Invalid command passed to redis.acl_check_cmd()"),
        Some(may) => {
            state.push(Val::Bool(may));
            Ok(1)
        }
    }
}

/// As Lua's, but the end of a script goes through, and the error of a command is its text.
pub(super) fn catch(state: &mut LuaState) -> LuaResult<u32> {
    let count = rilua::stdlib::base::lua_pcall(state)?;
    if is_ended() {
        return Err(runtime_error("the script was ended"));
    }
    let caught = state.top.saturating_sub(2);
    if count == 2
        && state.stack_get(caught) == Val::Bool(false)
        && let Val::Table(table) = state.stack_get(caught + 1)
    {
        let text = convert::field(state, Table::from_gc_ref(table), "err");
        if let Val::Str(_) = text {
            state.stack_set(caught + 1, text);
        }
    }
    Ok(count)
}

/// As Lua's, but the end of a script goes through.
pub(super) fn catch_with(state: &mut LuaState) -> LuaResult<u32> {
    let count = rilua::stdlib::base::lua_xpcall(state)?;
    if is_ended() { Err(runtime_error("the script was ended")) } else { Ok(count) }
}

/// Makes the table `redis`.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    let redis = lua.create_table();
    lua.set_global_val("redis", Val::Table(redis.gc_ref()))?;
    let functions: [(&str, rilua::RustFn); 11] = [
        ("acl_check_cmd", acl_check_cmd),
        ("breakpoint", no),
        ("call", call),
        ("debug", nothing),
        ("error_reply", error_reply),
        ("pcall", pcall),
        ("replicate_commands", yes),
        ("set_repl", set_repl),
        ("setresp", setresp),
        ("sha1hex", sha1hex),
        ("status_reply", status_reply),
    ];
    for (name, function) in &functions {
        lua.table_set_function(&redis, name, *function)?;
    }
    add_log_and_version(lua, &redis)?;
    let constants = [
        ("REPL_NONE", Val::Num(0.0)),
        ("REPL_AOF", Val::Num(1.0)),
        ("REPL_SLAVE", Val::Num(2.0)),
        ("REPL_REPLICA", Val::Num(2.0)),
        ("REPL_ALL", Val::Num(3.0)),
    ];
    set_all(lua, &redis, &constants)
}

fn set_all(lua: &mut Lua, table: &Table, constants: &[(&str, Val)]) -> LuaResult<()> {
    for (name, value) in constants {
        let key = lua.create_string(name.as_bytes());
        lua.table_raw_set(table, key, *value)?;
    }
    Ok(())
}

/// Adds to a table what scripts and libraries that are loaded have both.
pub(super) fn add_log_and_version(lua: &mut Lua, redis: &Table) -> LuaResult<()> {
    lua.table_set_function(redis, "log", log)?;
    let version = lua.create_string(VERSION.0.as_bytes());
    let constants = [
        ("REDIS_VERSION", version),
        ("REDIS_VERSION_NUM", Val::Num(VERSION.1)),
        ("LOG_DEBUG", Val::Num(0.0)),
        ("LOG_VERBOSE", Val::Num(1.0)),
        ("LOG_NOTICE", Val::Num(2.0)),
        ("LOG_WARNING", Val::Num(3.0)),
    ];
    set_all(lua, redis, &constants)
}
