//! Replies as values of scripts, and values as replies.

use rilua::{LuaApiMut, LuaResult, Table, Val, vm::state::LuaState};

use super::{memory, running};
use crate::resp::{Reply, number};

/// How deep tables may lie in each other in a reply.
const DEPTH_MAX: usize = 100;

/// The bytes of a string.
pub(super) fn bytes(state: &LuaState, value: Val) -> Option<Vec<u8>> {
    let Val::Str(string) = value else { return None };
    state.gc.string_arena.get(string).map(|string| string.data().to_vec())
}

/// A field of a table, whatever its metatable says.
pub(super) fn field(state: &mut LuaState, table: Table, name: &str) -> Val {
    let key = state.create_string(name.as_bytes());
    table.raw_get(state, key).unwrap_or(Val::Nil)
}

/// A table with one field.
pub(super) fn table_of(state: &mut LuaState, name: &str, value: Val) -> LuaResult<Val> {
    let (table, key) = (state.create_table(), state.create_string(name.as_bytes()));
    table.raw_set(state, key, value)?;
    Ok(Val::Table(table.gc_ref()))
}

/// The field of an error's table that says that the error was counted when its command failed.
pub(super) const COUNTED: &str = "ignore_error_stats_update";

/// The table of an error, which was counted or not.
pub(super) fn error_table(state: &mut LuaState, text: &[u8], counted: bool) -> LuaResult<Val> {
    let text = state.create_string(text);
    let error = table_of(state, "err", text)?;
    if counted {
        mark_counted(state, error)?;
    }
    Ok(error)
}

/// Says of the table of an error that the error was counted.
pub(super) fn mark_counted(state: &mut LuaState, error: Val) -> LuaResult<()> {
    let Val::Table(table) = error else { return Ok(()) };
    let key = state.create_string(COUNTED.as_bytes());
    Table::from_gc_ref(table).raw_set(state, key, Val::Bool(true))
}

/// Returns true if the error of a table was counted.
pub(super) fn is_counted(state: &mut LuaState, table: Table) -> bool {
    !matches!(field(state, table, COUNTED), Val::Nil | Val::Bool(false))
}

/// Writes an error, which is counted unless it was.
fn error_line(out: &mut Reply, is_counted: bool, text: &[u8], place: &str) {
    if !is_counted {
        out.note_error(&String::from_utf8_lossy(text));
    }
    line(out, b'-', text, place);
}

/// A table for elements that take this number of bytes each, which the interpreter does not count
/// when they are set from here.
fn sized_table(state: &mut LuaState, elements: usize, bytes: usize) -> LuaResult<Table> {
    let bytes = elements.saturating_mul(bytes);
    memory::check(state, bytes)?;
    state.gc.gc_state.total_bytes += bytes;
    Ok(state.create_table())
}

/// The next reply of `from` as a value.
#[expect(clippy::cast_precision_loss, reason = "numbers of scripts are floats")]
pub(super) fn value(state: &mut LuaState, from: &mut &[u8]) -> LuaResult<Val> {
    // No line has a carriage return but at its end.
    let end = from.iter().position(|byte| *byte == b'\r').unwrap_or(from.len());
    let kind = from.first().copied().unwrap_or(b'_');
    let line = from.get(1..end).unwrap_or_default();
    *from = from.get(end + 2..).unwrap_or_default();
    let len = || number::parse_i64(line).unwrap_or(0);
    match kind {
        b':' => Ok(Val::Num(len() as f64)),
        b'+' => {
            let text = state.create_string(line);
            table_of(state, "ok", text)
        }
        b'-' => error_table(state, line, true),
        b'#' => Ok(Val::Bool(line == b"t")),
        b',' => {
            let number = Val::Num(number::parse_f64(line).unwrap_or(f64::NAN));
            table_of(state, "double", number)
        }
        b'(' => {
            let text = state.create_string(line);
            table_of(state, "big_number", text)
        }
        b'$' | b'=' => {
            let Ok(len) = usize::try_from(len()) else { return Ok(Val::Bool(false)) };
            let text = from.get(..len).unwrap_or_default();
            memory::check(state, text.len())?;
            *from = from.get(len + 2..).unwrap_or_default();
            if kind == b'$' {
                return Ok(state.create_string(text));
            }
            let verbatim = state.create_table();
            let parts = [("format", text.get(..3)), ("string", text.get(4..))];
            for (name, part) in parts {
                let key = state.create_string(name.as_bytes());
                let part = state.create_string(part.unwrap_or_default());
                verbatim.raw_set(state, key, part)?;
            }
            table_of(state, "verbatim_string", Val::Table(verbatim.gc_ref()))
        }
        b'*' | b'>' => {
            let Ok(len) = usize::try_from(len()) else { return Ok(Val::Bool(false)) };
            let table = sized_table(state, len, size_of::<Val>())?;
            for at in 1..=len {
                let element = value(state, from)?;
                table.raw_set(state, Val::Num(at as f64), element)?;
            }
            Ok(Val::Table(table.gc_ref()))
        }
        b'|' => {
            // Scripts are not told of attributes.
            for _ in 0..len().saturating_mul(2) {
                value(state, from)?;
            }
            value(state, from)
        }
        b'%' | b'~' => {
            let len = usize::try_from(len()).unwrap_or(0);
            let table = sized_table(state, len, 2 * size_of::<Val>())?;
            for _ in 0..len {
                let key = value(state, from)?;
                let held = if kind == b'%' { value(state, from)? } else { Val::Bool(true) };
                table.raw_set(state, key, held)?;
            }
            let name = if kind == b'%' { "map" } else { "set" };
            table_of(state, name, Val::Table(table.gc_ref()))
        }
        _ => Ok(Val::Nil),
    }
}

/// A text whose line ends are spaces.
fn one_line(text: &[u8]) -> Vec<u8> {
    let clean = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
    text.iter().map(clean).collect()
}

fn line(out: &mut Reply, kind: u8, text: &[u8], more: &str) {
    let mut line = vec![kind];
    line.extend(one_line(text));
    line.extend_from_slice(more.as_bytes());
    line.extend_from_slice(b"\r\n");
    out.raw(&line);
}

/// Writes the error that has ended a script.
pub(super) fn error(state: &mut LuaState, value: Val, out: &mut Reply) {
    let Val::Table(table) = value else {
        let text = bytes(state, value).unwrap_or_else(|| b"unknown error".to_vec());
        return error_line(out, false, &[b"ERR ", &text[..]].concat(), "");
    };
    let table = Table::from_gc_ref(table);
    let text = field(state, table, "err");
    let text = bytes(state, text).unwrap_or_else(|| b"ERR unknown error".to_vec());
    let place = field(state, table, "place");
    let place = bytes(state, place)
        .map_or(String::new(), |place| format!(" script: {}", String::from_utf8_lossy(&place)));
    error_line(out, is_counted(state, table), &text, &place);
}

/// Writes a value that a script returns.
pub(super) fn reply(state: &mut LuaState, value: Val, out: &mut Reply) {
    reply_at(state, value, out, DEPTH_MAX);
}

#[expect(clippy::cast_possible_truncation, reason = "as Redis does it")]
fn reply_at(state: &mut LuaState, value: Val, out: &mut Reply, depth: usize) {
    match value {
        Val::Num(number) => {
            // What is no integer of 64 bits is the least one, as x86 converts it.
            let fits = (-9.3e18..9.223_372_036_854_775e18).contains(&number);
            out.int(if fits { number as i64 } else { i64::MIN });
        }
        Val::Bool(true) => {
            let resp3 = running(|running| running.out.resp3).unwrap_or(false) && out.resp3;
            out.raw(if resp3 { b"#t\r\n" } else { b":1\r\n" });
        }
        Val::Bool(false) => {
            let told = running(|running| running.out.resp3).unwrap_or(false);
            match (told, out.resp3) {
                (false, _) => out.null(),
                (true, false) => out.int(0),
                (true, true) => out.raw(b"#f\r\n"),
            }
        }
        Val::Str(_) => out.bulk(&bytes(state, value).unwrap_or_default()),
        Val::Table(_) if depth == 0 || out.overflowed() => {
            out.error("ERR reached lua stack limit");
        }
        Val::Table(table) => table_reply(state, Table::from_gc_ref(table), out, depth - 1),
        _ => out.null(),
    }
}

fn table_reply(state: &mut LuaState, table: Table, out: &mut Reply, depth: usize) {
    for (name, kind) in [("err", b'-'), ("ok", b'+')] {
        let text = field(state, table, name);
        match bytes(state, text) {
            Some(text) if kind == b'-' => {
                return error_line(out, is_counted(state, table), &text, "");
            }
            Some(text) => return line(out, kind, &text, ""),
            None => {}
        }
    }
    if let Val::Num(number) = field(state, table, "double") {
        return out.double(number);
    }
    for (name, is_map) in [("map", true), ("set", false)] {
        let Val::Table(inner) = field(state, table, name) else { continue };
        let mut pairs = Vec::new();
        let mut key = Val::Nil;
        while let Some(Ok(Some(pair))) =
            state.gc.tables.get(inner).map(|table| table.next(key, &state.gc.string_arena))
        {
            key = pair.0;
            pairs.push(pair);
        }
        if is_map {
            out.map(pairs.len())
        } else {
            out.set(pairs.len())
        }
        for (key, held) in pairs {
            reply_at(state, key, out, depth);
            if is_map {
                reply_at(state, held, out, depth);
            }
        }
        return;
    }
    let big = field(state, table, "big_number");
    if let Some(big) = bytes(state, big) {
        return if out.resp3 { line(out, b'(', &big, "") } else { out.bulk(&one_line(&big)) };
    }
    if let Val::Table(inner) = field(state, table, "verbatim_string") {
        let text = field(state, Table::from_gc_ref(inner), "string");
        let text = bytes(state, text).unwrap_or_default();
        return out.verbatim(&String::from_utf8_lossy(&text));
    }
    let mut elements = Vec::new();
    loop {
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let at = Val::Num((elements.len() + 1) as f64);
        match table.raw_get(state, at) {
            Ok(element) if !element.is_nil() => elements.push(element),
            _ => break,
        }
    }
    out.array(elements.len());
    for element in elements {
        reply_at(state, element, out, depth);
    }
}
