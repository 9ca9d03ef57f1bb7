//! The functions of `string` that take no patterns, and `table.concat`: they ask for the memory of
//! what they make before they make it.

use std::ops::Range;

use rilua::{
    LuaResult, RustFn, Table, Val,
    stdlib::{string, table},
    vm::state::LuaState,
};

use super::{
    api::{argument, located},
    convert,
    lib_pattern::string,
    lib_values::{MAX_VALUES, arguments, bytes_of, return_bytes},
    memory::{self, len_of},
};

/// What takes the place of the interpreter's own.
pub(super) const FUNCTIONS: [(&str, RustFn); 7] = [
    ("byte", byte),
    ("format", format),
    ("lower", lower),
    ("rep", rep),
    ("reverse", reverse),
    ("sub", sub),
    ("upper", upper),
];

/// The most bytes of a number as text, and of what a directive of `string.format` makes of one: 99
/// digits after the point of a number of 309 digits, its sign and the point.
const NUMBER_BYTES: usize = 411;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn rep(state: &mut LuaState) -> LuaResult<u32> {
    let times = state.check_number(2).map_or(0, |times| times.max(0.0) as usize);
    let subject = string(state, 0)?;
    let len = len_of(state, subject);
    memory::reserve(state, len.max(1).saturating_mul(times))?;
    string::str_rep(state)
}

/// As Lua's, within the stack that functions of Lua 5.1 have, and without a copy of all.
fn byte(state: &mut LuaState) -> LuaResult<u32> {
    let subject = string(state, 0)?;
    let len = len_of(state, subject);
    let first = state.opt_integer(2, 1)?;
    let part = part(len, first, state.opt_integer(3, first)?);
    if part.len() > MAX_VALUES {
        return Err(located(state, "string slice too long"));
    }
    let bytes = bytes_of(state, subject).get(part).unwrap_or_default().to_vec();
    bytes.iter().for_each(|byte| state.push(Val::Num(f64::from(*byte))));
    Ok(bytes.len() as u32)
}

/// The bytes between two places of a string of this length, as Lua counts them: from 1, and from
/// the end if they are negative.
fn part(len: usize, first: i64, last: i64) -> Range<usize> {
    let len = len as i64;
    let place = |place: i64| if place < 0 { (len + 1).saturating_add(place) } else { place };
    let (first, last) = (place(first).max(1), place(last).min(len));
    match (usize::try_from(first - 1), usize::try_from(last)) {
        (Ok(from), Ok(to)) if from < to => from..to,
        _ => 0..0,
    }
}

/// As Lua's, but not all of a long string is copied for a part of it.
fn sub(state: &mut LuaState) -> LuaResult<u32> {
    let subject = string(state, 0)?;
    let len = len_of(state, subject);
    let first = state.check_integer(2)?;
    let part = part(len, first, state.opt_integer(3, -1)?);
    memory::reserve(state, part.len())?;
    let bytes = bytes_of(state, subject).get(part).unwrap_or_default().to_vec();
    return_bytes(state, &bytes)
}

/// Asks for as much memory as the first argument has.
fn reserve_first(state: &mut LuaState) -> LuaResult<()> {
    let len = len_of(state, argument(state, 0));
    memory::reserve(state, len)
}

fn lower(state: &mut LuaState) -> LuaResult<u32> {
    reserve_first(state)?;
    string::str_lower(state)
}

fn upper(state: &mut LuaState) -> LuaResult<u32> {
    reserve_first(state)?;
    string::str_upper(state)
}

fn reverse(state: &mut LuaState) -> LuaResult<u32> {
    reserve_first(state)?;
    string::str_reverse(state)
}

/// Widths of more than two digits are refused, as Lua does.
fn format(state: &mut LuaState) -> LuaResult<u32> {
    let text = convert::bytes(state, argument(state, 0)).unwrap_or_default();
    let (mut at, mut quotes) = (0, false);
    while at < text.len() {
        let begins = text[at] == b'%';
        at += 1;
        if !begins {
            continue;
        }
        let mut digits = 0;
        while let Some(byte) = text.get(at).filter(|byte| b"-+ #.0123456789".contains(byte)) {
            digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
            if digits > 2 {
                return Err(located(state, "invalid format (width or precision too long)"));
            }
            at += 1;
        }
        quotes |= text.get(at) == Some(&b'q');
        at += 1;
    }
    let count = arguments(state);
    let strings: usize = (0..count).map(|at| len_of(state, argument(state, at))).sum();
    // `%q` may write four bytes for one.
    let strings = strings.saturating_mul(if quotes { 4 } else { 1 });
    memory::reserve(state, strings.saturating_add(count * NUMBER_BYTES))?;
    string::str_format(state)
}

/// `table.concat`.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
pub(super) fn concat(state: &mut LuaState) -> LuaResult<u32> {
    if let Val::Table(of) = argument(state, 0) {
        let of = Table::from_gc_ref(of);
        let between = len_of(state, argument(state, 1));
        let from = if let Val::Num(from) = argument(state, 2) { from as i64 } else { 1 };
        let to = match argument(state, 3) {
            Val::Num(to) => to as i64,
            _ => of.raw_len(state),
        };
        let mut bytes = 0_usize;
        for at in from..=to {
            #[expect(clippy::cast_precision_loss, reason = "places of a table are floats")]
            let element = of.raw_get(state, Val::Num(at as f64))?;
            let len = match element {
                Val::Str(_) => len_of(state, element),
                // As text most numbers are short ones.
                Val::Num(_) => 32,
                _ => break,
            };
            bytes = bytes.saturating_add(len + between);
        }
        memory::reserve(state, bytes)?;
    }
    table::tab_concat(state)
}

#[cfg(test)]
mod tests {
    use rilua::Lua;

    use super::{super::lib_values::testing::check, FUNCTIONS};

    fn open(lua: &mut Lua) -> rilua::LuaResult<()> {
        super::super::sandbox::replace(lua, "string", &FUNCTIONS)
    }

    #[test]
    fn parts_of_strings_are_those_of_lua() {
        check(
            open,
            &[
                ("return ('hello'):sub(2, 4)", "ell"),
                ("return ('hello'):sub(-3)", "llo"),
                ("return ('hello'):sub(-3, -2)", "ll"),
                ("return ('hello'):sub(-99, 99)", "hello"),
                ("return ('hello'):sub(0, 1)", "h"),
                ("return ('hello'):sub(4, 2)", ""),
                ("return ('hello'):sub(2, -99)", ""),
                ("return ('hello'):sub(6)", ""),
                ("return ('hello'):sub(-1e300, 1e300)", "hello"),
                ("return ('hello'):sub(1e300)", ""),
                ("return string.sub(12345, '2', 3)", "23"),
                ("return ('hello'):byte()", "104"),
                ("return ('hello'):byte(-2, -1)", "108|111"),
                ("return select('#', ('hello'):byte(9))", "0"),
                ("return string.byte(12, 2)", "50"),
                ("return (''):sub(1)", ""),
            ],
        );
    }
}
