//! The functions of `string` that take patterns.

use rilua::{
    LuaApiMut, LuaResult, RustFn, Val,
    vm::{
        closure::{Closure, RustClosure},
        state::LuaState,
    },
};

use super::{
    Running,
    api::{argument, end_script, located},
    lib_values::{Output, bytes_of, return_bytes},
    memory,
    pattern::{Capture, Failure, Held, Matcher, find_plain},
    running,
};

/// What takes the place of the interpreter's own.
pub(super) const FUNCTIONS: [(&str, RustFn); 5] =
    [("find", find), ("gfind", gmatch), ("gmatch", gmatch), ("gsub", gsub), ("match", match_)];

/// Bytes that have a meaning in a pattern.
const SPECIAL: &[u8] = b"^$*+?.([%-";

/// A match: its ends and its captures.
struct Match {
    from: usize,
    to: usize,
    captures: Vec<Capture>,
}

fn go_on() -> bool {
    !running(Running::is_over).unwrap_or(false)
}

fn failed(state: &mut LuaState, failure: Failure) -> rilua::LuaError {
    match failure {
        Failure::Text(text) => located(state, text),
        Failure::Ended => end_script(state),
    }
}

/// Makes an argument a string, as functions on strings take numbers too.
pub(super) fn string(state: &mut LuaState, index: usize) -> LuaResult<Val> {
    let value = argument(state, index);
    if let Val::Str(_) = value {
        return Ok(value);
    }
    let text = state.check_string(index + 1)?;
    let value = state.create_string(&text);
    // It stays on the stack for as long as the call takes.
    state.stack_set(state.base + index, value);
    Ok(value)
}

/// The place of the third argument, from the end if it is negative.
fn start(state: &LuaState, len: usize) -> LuaResult<usize> {
    let place = state.opt_integer(3, 1)?;
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let place = if place < 0 { (len + place + 1).max(1) } else { place.max(1) };
    Ok(usize::try_from((place - 1).min(len)).unwrap_or(0))
}

/// The pattern without its anchor, and true if it has one.
fn anchor(pattern: &[u8]) -> (&[u8], bool) {
    match pattern {
        [b'^', rest @ ..] => (rest, true),
        _ => (pattern, false),
    }
}

fn search(
    state: &LuaState,
    (subject, pattern): (Val, Val),
    from: usize,
) -> Result<Option<Match>, Failure> {
    let (pattern, is_anchored) = anchor(bytes_of(state, pattern));
    let mut matcher = Matcher::new(bytes_of(state, subject), pattern, go_on);
    let found = matcher.search(from, is_anchored)?;
    Ok(found.map(|(from, to)| Match { from, to, captures: matcher.captures }))
}

/// A part of a string. What the caller uses is on the stack: there may be a collection.
fn part(state: &mut LuaState, subject: Val, from: usize, to: usize) -> LuaResult<Val> {
    memory::reserve(state, to.saturating_sub(from))?;
    let bytes = bytes_of(state, subject).get(from..to).unwrap_or_default().to_vec();
    Ok(state.create_string(&bytes))
}

fn captured(state: &mut LuaState, subject: Val, (at, held): Capture) -> LuaResult<Val> {
    match held {
        Held::Open => Err(located(state, "unfinished capture")),
        #[expect(clippy::cast_precision_loss, reason = "places are floats")]
        Held::Place => Ok(Val::Num((at + 1) as f64)),
        Held::Bytes(len) => part(state, subject, at, at + len),
    }
}

/// Pushes the captures of a match, or all of it if there are none and `or_all`.
fn push_captures(
    state: &mut LuaState,
    subject: Val,
    found: &Match,
    or_all: bool,
) -> LuaResult<u32> {
    if found.captures.is_empty() && or_all {
        let all = part(state, subject, found.from, found.to)?;
        state.push(all);
        return Ok(1);
    }
    state.ensure_stack(found.captures.len() + 1);
    for capture in &found.captures {
        let value = captured(state, subject, *capture)?;
        state.push(value);
    }
    Ok(found.captures.len() as u32)
}

#[expect(clippy::cast_precision_loss, reason = "places are floats")]
fn find(state: &mut LuaState) -> LuaResult<u32> {
    let (subject, pattern) = (string(state, 0)?, string(state, 1)?);
    let from = start(state, bytes_of(state, subject).len())?;
    let needle = bytes_of(state, pattern);
    let is_plain = argument(state, 3).is_truthy();
    if is_plain || !needle.iter().any(|byte| SPECIAL.contains(byte)) {
        let len = needle.len();
        let found = find_plain(bytes_of(state, subject), needle, from, go_on);
        let found = found.map_err(|failure| failed(state, failure))?;
        let Some(at) = found else {
            state.push(Val::Nil);
            return Ok(1);
        };
        state.push(Val::Num((at + 1) as f64));
        state.push(Val::Num((at + len) as f64));
        return Ok(2);
    }
    let found = search(state, (subject, pattern), from);
    match found.map_err(|failure| failed(state, failure))? {
        None => {
            state.push(Val::Nil);
            Ok(1)
        }
        Some(found) => {
            state.push(Val::Num((found.from + 1) as f64));
            state.push(Val::Num(found.to as f64));
            Ok(2 + push_captures(state, subject, &found, false)?)
        }
    }
}

fn match_(state: &mut LuaState) -> LuaResult<u32> {
    let (subject, pattern) = (string(state, 0)?, string(state, 1)?);
    let from = start(state, bytes_of(state, subject).len())?;
    let found = search(state, (subject, pattern), from);
    match found.map_err(|failure| failed(state, failure))? {
        None => {
            state.push(Val::Nil);
            Ok(1)
        }
        Some(found) => push_captures(state, subject, &found, true),
    }
}

fn gmatch(state: &mut LuaState) -> LuaResult<u32> {
    let upvalues = vec![string(state, 0)?, string(state, 1)?, Val::Num(0.0)];
    let name = "for iterator".to_owned();
    let next = RustClosure { func: next_match, upvalues, name, env: None };
    let next = state.gc.alloc_closure(Closure::Rust(next));
    state.push(Val::Function(next));
    Ok(1)
}

/// The next match of `string.gmatch`: an anchor has no meaning to it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the place was a length"
)]
fn next_match(state: &mut LuaState) -> LuaResult<u32> {
    let function = state.call_stack.get(state.ci).map(|frame| state.stack_get(frame.func));
    let Some(Val::Function(function)) = function else { return Ok(0) };
    let Some(Closure::Rust(closure)) = state.gc.closures.get(function) else { return Ok(0) };
    let &[subject, pattern, Val::Num(from)] = &closure.upvalues[..] else { return Ok(0) };
    let from = from as usize;
    if from > bytes_of(state, subject).len() {
        return Ok(0);
    }
    let mut matcher = Matcher::new(bytes_of(state, subject), bytes_of(state, pattern), go_on);
    let found = matcher.search(from, false);
    let captures = matcher.captures;
    let Some((from, to)) = found.map_err(|failure| failed(state, failure))? else { return Ok(0) };
    if let Some(Closure::Rust(closure)) = state.gc.closures.get_mut(function) {
        let next = if to == from { to + 1 } else { to };
        closure.upvalues[2] = Val::Num(next as f64);
    }
    push_captures(state, subject, &Match { from, to, captures }, true)
}

/// Adds a text of `string.gsub` in which `%1` stands for a capture.
fn add_text(
    state: &LuaState,
    out: &mut Output,
    (subject, text): (Val, Val),
    found: &Match,
) -> LuaResult<()> {
    let subject = bytes_of(state, subject);
    let mut rest = bytes_of(state, text);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.add(&rest[..at])?;
        let after = rest.get(at + 1).copied();
        rest = rest.get(at + 2..).unwrap_or_default();
        let Some(digit) = after.filter(u8::is_ascii_digit) else {
            out.add(after.as_slice())?;
            continue;
        };
        let index = usize::from(digit - b'0');
        let is_all = index == 0 || (index == 1 && found.captures.is_empty());
        let held = if is_all {
            Some((found.from, Held::Bytes(found.to - found.from)))
        } else {
            found.captures.get(index - 1).copied()
        };
        match held {
            None => return Err(located(state, "invalid capture index")),
            Some((_, Held::Open)) => return Err(located(state, "unfinished capture")),
            Some((at, Held::Place)) => out.add((at + 1).to_string().as_bytes())?,
            Some((at, Held::Bytes(len))) => {
                out.add(subject.get(at..at + len).unwrap_or_default())?;
            }
        }
    }
    out.add(rest)
}

/// Adds what takes the place of a match.
fn add_replacement(
    state: &mut LuaState,
    out: &mut Output,
    (subject, by): (Val, Val),
    found: &Match,
) -> LuaResult<()> {
    let value = match by {
        Val::Str(_) => return add_text(state, out, (subject, by), found),
        Val::Table(_) => {
            let key = match found.captures.first() {
                Some(capture) => captured(state, subject, *capture)?,
                None => part(state, subject, found.from, found.to)?,
            };
            state.gettable(by, key)?
        }
        _ => {
            let call = state.top;
            state.push(by);
            push_captures(state, subject, found, true)?;
            state.call_function(call, 1)?;
            let value = state.stack_get(call);
            state.top = call;
            value
        }
    };
    match value {
        Val::Nil | Val::Bool(false) => {
            out.add(bytes_of(state, subject).get(found.from..found.to).unwrap_or_default())
        }
        Val::Str(_) => out.add(bytes_of(state, value)),
        Val::Num(_) => out.add(value.to_string().as_bytes()),
        other => {
            let text = format!("invalid replacement value (a {})", other.type_name());
            Err(located(state, &text))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are floats")]
fn gsub(state: &mut LuaState) -> LuaResult<u32> {
    let (subject, pattern) = (string(state, 0)?, string(state, 1)?);
    let by = match argument(state, 2) {
        Val::Num(_) => string(state, 2)?,
        by @ (Val::Str(_) | Val::Table(_) | Val::Function(_)) => by,
        _ => {
            let text = "bad argument #3 to 'gsub' (string/function/table expected)";
            return Err(located(state, text));
        }
    };
    let most = state.opt_integer(4, i64::MAX)?;
    let most = usize::try_from(most).unwrap_or(0);
    let (mut out, mut at, mut count) = (Output::default(), 0, 0);
    let len = bytes_of(state, subject).len();
    while count < most {
        let (bare, is_anchored) = anchor(bytes_of(state, pattern));
        let mut matcher = Matcher::new(bytes_of(state, subject), bare, go_on);
        let found = matcher.search(at, is_anchored);
        let captures = matcher.captures;
        let Some((from, to)) = found.map_err(|failure| failed(state, failure))? else { break };
        count += 1;
        out.add(&bytes_of(state, subject)[at..from])?;
        add_replacement(state, &mut out, (subject, by), &Match { from, to, captures })?;
        memory::grow(state, out.bytes().len())?;
        if !go_on() {
            return Err(end_script(state));
        }
        at = to;
        if to == from {
            out.add(bytes_of(state, subject).get(at).copied().as_slice())?;
            at += 1;
        }
        if at > len || is_anchored {
            break;
        }
    }
    out.add(bytes_of(state, subject).get(at..).unwrap_or_default())?;
    return_bytes(state, out.bytes())?;
    state.push(Val::Num(count as f64));
    Ok(2)
}

#[cfg(test)]
mod tests {
    use rilua::Lua;

    use super::{super::lib_values::testing::check, FUNCTIONS};

    fn open(lua: &mut Lua) -> rilua::LuaResult<()> {
        super::super::sandbox::replace(lua, "string", &FUNCTIONS)
    }

    #[test]
    fn functions_with_patterns_answer_as_those_of_lua() {
        check(
            open,
            &[
                ("return ('hello'):find('l')", "3|3"),
                ("return ('hello'):find('(l)(l)')", "3|4|l|l"),
                ("return ('a.b'):find('.', 1, true)", "2|2"),
                ("return ('a+b'):find('+', -2, true)", "2|2"),
                ("return ('x'):find('')", "1|0"),
                ("return ('k=v'):match('(%w)=(%w)')", "k|v"),
                ("return ('k=v'):match('()=()')", "2|3"),
                ("return string.match(123, '%d%d')", "12"),
                ("return ('abc'):gsub('%w', '%0%0')", "aabbcc|3"),
                ("return ('abc'):gsub('', '-')", "-a-b-c-|4"),
                ("return ('abc'):gsub('^a', 'x')", "xbc|1"),
                ("return ('hello world'):gsub('o', {o = 0})", "hell0 w0rld|2"),
                ("return ('abc'):gsub('%w', function(c) return c == 'b' and 'X' end)", "aXc|3"),
                ("return ('abc'):gsub('(a)(b)', '%2%1')", "bac|1"),
                ("return ('abc'):gsub('b', '%%')", "a%c|1"),
                ("return ('aaa'):gsub('a', 'b', 2)", "bba|2"),
                (
                    "local r = '' for k, v in ('a=1,b=2'):gmatch('(%w)=(%w)') do r = r .. k .. v end return r",
                    "a1b2",
                ),
                ("local n = 0 for _ in ('abc'):gmatch('') do n = n + 1 end return n", "4"),
            ],
        );
    }
}
