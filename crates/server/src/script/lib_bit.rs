//! The library `bit` of scripts: operations on numbers of 32 bits.

use rilua::{Lua, LuaResult, vm::state::LuaState};

use super::lib_values;

/// 2^52 + 2^51: a number added to it has its lowest 32 bits as the lowest of the mantissa, rounded
/// to the nearest even integer. So LuaBitOp converts numbers.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// How many digits a number of 32 bits has in base 16.
const HEX_DIGITS: i32 = 8;

/// Opens the library.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    lib_values::register(
        lua,
        "bit",
        &[
            ("tobit", tobit),
            ("tohex", tohex),
            ("bnot", bnot),
            ("band", band),
            ("bor", bor),
            ("bxor", bxor),
            ("lshift", lshift),
            ("rshift", rshift),
            ("arshift", arshift),
            ("rol", rol),
            ("ror", ror),
            ("bswap", bswap),
        ],
    )?;
    Ok(())
}

/// The argument `number` as 32 bits.
fn bits(state: &LuaState, number: usize) -> LuaResult<u32> {
    Ok((state.check_number(number)? + ROUNDING).to_bits() as u32)
}

fn returned(state: &mut LuaState, bits: u32) -> u32 {
    state.push_number(f64::from(bits as i32));
    1
}

fn tobit(state: &mut LuaState) -> LuaResult<u32> {
    let bits = bits(state, 1)?;
    Ok(returned(state, bits))
}

fn bnot(state: &mut LuaState) -> LuaResult<u32> {
    let bits = !bits(state, 1)?;
    Ok(returned(state, bits))
}

fn bswap(state: &mut LuaState) -> LuaResult<u32> {
    let bits = bits(state, 1)?.swap_bytes();
    Ok(returned(state, bits))
}

fn all(state: &mut LuaState, join: fn(u32, u32) -> u32) -> LuaResult<u32> {
    let mut joined = bits(state, 1)?;
    for number in 2..=lib_values::arguments(state) {
        joined = join(joined, bits(state, number)?);
    }
    Ok(returned(state, joined))
}

fn band(state: &mut LuaState) -> LuaResult<u32> {
    all(state, |left, right| left & right)
}

fn bor(state: &mut LuaState) -> LuaResult<u32> {
    all(state, |left, right| left | right)
}

fn bxor(state: &mut LuaState) -> LuaResult<u32> {
    all(state, |left, right| left ^ right)
}

/// Shifts the first argument by the lowest five bits of the second.
fn shifted(state: &mut LuaState, shift: fn(u32, u32) -> u32) -> LuaResult<u32> {
    let (bits, count) = (bits(state, 1)?, bits(state, 2)? & 31);
    Ok(returned(state, shift(bits, count)))
}

fn lshift(state: &mut LuaState) -> LuaResult<u32> {
    shifted(state, |bits, count| bits << count)
}

fn rshift(state: &mut LuaState) -> LuaResult<u32> {
    shifted(state, |bits, count| bits >> count)
}

fn arshift(state: &mut LuaState) -> LuaResult<u32> {
    shifted(state, |bits, count| (bits as i32 >> count) as u32)
}

fn rol(state: &mut LuaState) -> LuaResult<u32> {
    shifted(state, u32::rotate_left)
}

fn ror(state: &mut LuaState) -> LuaResult<u32> {
    shifted(state, u32::rotate_right)
}

fn tohex(state: &mut LuaState) -> LuaResult<u32> {
    let number = bits(state, 1)?;
    let wanted = match lib_values::arguments(state) {
        1 => HEX_DIGITS,
        _ => bits(state, 2)? as i32,
    };
    let text = if wanted < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    let digits = wanted.unsigned_abs().min(HEX_DIGITS as u32) as usize;
    lib_values::return_bytes(state, &text.as_bytes()[text.len() - digits..])
}

#[cfg(test)]
mod tests {
    use super::{super::lib_values::testing::check, open};

    #[test]
    fn numbers_become_32_bits_as_luabitop_rounds_them() {
        check(
            open,
            &[
                ("return bit.tobit(2^31)", "-2147483648"),
                ("return bit.tobit(4294967296+5)", "5"),
                ("return bit.tobit(-1.5)", "-2"),
                ("return bit.tobit(2.5)", "2"),
                ("return bit.tobit(0/0)", "0"),
                ("return bit.tobit(1/0)", "0"),
                ("return bit.tobit(1e300)", "-2013235812"),
                ("return bit.tobit(2^51+3)", "2"),
                ("return bit.tobit('0x10')", "16"),
                (
                    "return bit.tobit('x')",
                    "user_script:1: bad argument #1 to 'tobit' (number expected, got string)",
                ),
                (
                    "return bit.band()",
                    "user_script:1: bad argument #1 to 'band' (number expected, got no value)",
                ),
            ],
        );
    }

    #[test]
    fn operations_answer_as_in_redis() {
        check(
            open,
            &[
                (
                    "return bit.tohex(255), bit.tohex(255,4), bit.tohex(255,-4)",
                    "000000ff|00ff|00FF",
                ),
                ("return bit.tohex(-1,0)", ""),
                ("return bit.tohex(-1,100), bit.tohex(1,-2147483648)", "ffffffff|00000001"),
                ("return bit.bnot(0), bit.band(7), bit.band(7,3,2)", "-1|7|2"),
                ("return bit.bor(1,2), bit.bxor(1,2,4,7)", "3|0"),
                ("return bit.lshift(1,33), bit.lshift(1,-1)", "2|-2147483648"),
                ("return bit.rshift(-1,1), bit.arshift(-8,1)", "2147483647|-4"),
                ("return bit.rol(0x12345678,12), bit.ror(0x12345678,12)", "1164411171|1736516421"),
                ("return bit.bswap(0x12345678)", "2018915346"),
            ],
        );
    }
}
