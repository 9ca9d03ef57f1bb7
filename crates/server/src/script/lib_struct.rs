//! The library `struct` of scripts: values to and from the bytes of C's structures.

use rilua::{Lua, LuaResult, Val, runtime_error, vm::state::LuaState};

use super::{
    lib_values::{self, MAX_VALUES, Maker, Output},
    memory,
};

/// The largest size of an integer in bytes, as in Redis.
const MAX_INTEGER: usize = 32;

/// What `!` alone aligns to: the alignment of C's `double`, as on the machines of Redis.
const LARGEST_ALIGNMENT: usize = 8;

/// How many zeros are written at once.
const ZEROS: [u8; MAX_INTEGER] = [0; MAX_INTEGER];

/// Opens the library.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    let functions: [(&str, rilua::RustFn); 3] =
        [("pack", pack), ("unpack", unpack), ("size", size)];
    lib_values::register(lua, "struct", &functions)?;
    Ok(())
}

/// A format as it is read: what is left of it, and what its options have set.
struct Format {
    text: Vec<u8>,
    at: usize,
    big: bool,
    alignment: usize,
}

impl Format {
    /// The first argument. C's strings end at a zero byte, and so does a format.
    fn read(state: &LuaState) -> LuaResult<Self> {
        let mut text = state.check_string(1)?;
        if let Some(end) = text.iter().position(|&byte| byte == 0) {
            text.truncate(end);
        }
        Ok(Self { text, at: 0, big: cfg!(target_endian = "big"), alignment: 1 })
    }

    fn next(&mut self) -> Option<u8> {
        let option = self.text.get(self.at).copied()?;
        self.at += 1;
        Some(option)
    }

    /// The number that follows an option, at most C's largest `int`.
    fn number(&mut self, default: usize) -> LuaResult<usize> {
        let mut number: Option<i32> = None;
        while let Some(digit) = self.text.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            let digit = i32::from(digit - b'0');
            let larger = number.unwrap_or(0).checked_mul(10).and_then(|ten| ten.checked_add(digit));
            number = Some(larger.ok_or_else(|| runtime_error("integral size overflow"))?);
            self.at += 1;
        }
        Ok(number.map_or(default, |number| number as usize))
    }

    /// How large a value of this option is; 0 if the value says it, or there is none.
    fn size(&mut self, option: u8) -> LuaResult<usize> {
        Ok(match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > MAX_INTEGER {
                    return Err(runtime_error(format!(
                        "integral size {size} is larger than limit of {MAX_INTEGER}"
                    )));
                }
                size
            }
            _ => 0,
        })
    }

    /// How many bytes lie before a value of this option at `position`.
    fn padding(&self, position: usize, option: u8, size: usize) -> usize {
        let size = size.min(self.alignment);
        if option == b'c' || size <= 1 {
            return 0;
        }
        // As in Redis, whose sizes are no powers of two in some formats.
        size.wrapping_sub(position & (size - 1)) & (size - 1)
    }

    /// An option that sets something, or none.
    fn control(&mut self, state: &LuaState, option: u8) -> LuaResult<()> {
        match option {
            b' ' => {}
            b'>' => self.big = true,
            b'<' => self.big = false,
            b'!' => {
                let alignment = self.number(LARGEST_ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    return Err(runtime_error(format!(
                        "alignment {alignment} is not a power of 2"
                    )));
                }
                self.alignment = alignment;
            }
            other => {
                let text = format!("invalid format option '{}'", char::from(other));
                return Err(state.arg_error(1, &text));
            }
        }
        Ok(())
    }
}

/// A number as C converts it to 64 bits on x86-64, where what is out of range has one fixed value.
fn to_bits(number: f64) -> u64 {
    if number >= 0.0 {
        // 2^64, the first that is too large.
        if number >= 18_446_744_073_709_551_616.0 { 0 } else { number as u64 }
    } else if number >= i64::MIN as f64 {
        (number as i64) as u64
    } else {
        1 << 63
    }
}

fn put_integer(output: &mut Output, number: f64, size: usize, big: bool) -> LuaResult<()> {
    let mut bytes = [0; MAX_INTEGER];
    bytes[..8].copy_from_slice(&to_bits(number).to_le_bytes());
    let bytes = &mut bytes[..size];
    if big {
        bytes.reverse();
    }
    output.add(bytes)
}

/// The integer of these bytes; of more than eight, the lowest eight count.
fn get_integer(bytes: &[u8], signed: bool, big: bool) -> f64 {
    let add = |number: u64, byte: &u8| (number << 8) | u64::from(*byte);
    let number = if big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
    if !signed {
        return number as f64;
    }
    let unused = 64_usize.saturating_sub(bytes.len() * 8).min(63) as u32;
    (((number << unused) as i64) >> unused) as f64
}

/// The argument `number` as a number. The library of Redis keeps a nil after the arguments, which
/// is what a missing one is.
fn packed_number(state: &LuaState, number: usize) -> LuaResult<f64> {
    expect_argument(state, number, "number")?;
    state.check_number(number)
}

fn expect_argument(state: &LuaState, number: usize, what: &str) -> LuaResult<()> {
    if number > lib_values::arguments(state) {
        return Err(state.arg_error(number, &format!("{what} expected, got nil")));
    }
    Ok(())
}

fn pack(state: &mut LuaState) -> LuaResult<u32> {
    let mut format = Format::read(state)?;
    let mut output = Output::default();
    let mut number = 2;
    let mut total = 0_usize;
    while let Some(option) = format.next() {
        let mut size = format.size(option)?;
        let mut padding = format.padding(total, option, size);
        total += padding;
        while padding > 0 {
            let zeros = padding.min(ZEROS.len());
            output.add(&ZEROS[..zeros])?;
            padding -= zeros;
        }
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                put_integer(&mut output, packed_number(state, number)?, size, format.big)?;
                number += 1;
            }
            b'x' => output.add(&[0])?,
            b'f' | b'd' => {
                put_float(&mut output, packed_number(state, number)?, size, format.big)?;
                number += 1;
            }
            b'c' | b's' => {
                expect_argument(state, number, "string")?;
                let text = state.check_string(number)?;
                number += 1;
                size = if size == 0 { text.len() } else { size };
                let Some(part) = text.get(..size) else {
                    return Err(state.arg_error(number, "string too short"));
                };
                output.add(part)?;
                if option == b's' {
                    output.add(&[0])?;
                    size += 1;
                }
            }
            other => format.control(state, other)?,
        }
        total += size;
    }
    lib_values::return_bytes(state, output.bytes())
}

fn put_float(output: &mut Output, number: f64, size: usize, big: bool) -> LuaResult<()> {
    let (single, double) = ((number as f32).to_bits(), number.to_bits());
    match (size, big) {
        (4, true) => output.add(&single.to_be_bytes()),
        (4, false) => output.add(&single.to_le_bytes()),
        (_, true) => output.add(&double.to_be_bytes()),
        (_, false) => output.add(&double.to_le_bytes()),
    }
}

fn get_float(bytes: &[u8], big: bool) -> f64 {
    let number = bytes.iter();
    let add = |number: u64, byte: &u8| (number << 8) | u64::from(*byte);
    let bits = if big { number.fold(0, add) } else { number.rev().fold(0, add) };
    if bytes.len() == 4 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) }
}

/// The bytes of a value, if the data has as many.
fn part<'a>(state: &LuaState, data: &'a [u8], at: usize, size: usize) -> LuaResult<&'a [u8]> {
    at.checked_add(size)
        .and_then(|end| data.get(at..end))
        .ok_or_else(|| state.arg_error(2, "data string too short"))
}

fn unpack(state: &mut LuaState) -> LuaResult<u32> {
    let mut format = Format::read(state)?;
    let data = state.check_string(2)?;
    let offset = state.opt_integer(3, 1)?;
    if offset == 0 {
        return Err(state.arg_error(3, "offset must be 1 or greater"));
    }
    // A negative offset is a large one in C, and past every string.
    let mut at = usize::try_from(offset).unwrap_or(usize::MAX) - 1;
    memory::make_room(state, data.len())?;
    let room = MAX_VALUES.saturating_sub(lib_values::arguments(state) + 2);
    let mut maker = Maker::default();
    let mut values: Vec<Val> = Vec::new();
    while let Some(option) = format.next() {
        let size = format.size(option)?;
        at = at.saturating_add(format.padding(at, option, size));
        let bytes = part(state, &data, at, size)?;
        if values.len() > room {
            return Err(runtime_error("stack overflow (too many results)"));
        }
        let mut read = size;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let signed = option.is_ascii_lowercase();
                values.push(Val::Num(get_integer(bytes, signed, format.big)));
            }
            b'x' => {}
            b'f' | b'd' => values.push(Val::Num(get_float(bytes, format.big))),
            b'c' => {
                let mut bytes = bytes;
                if size == 0 {
                    read = previous_size(state, values.pop())?;
                    bytes = part(state, &data, at, read)?;
                }
                values.push(maker.string(state, bytes)?);
            }
            b's' => {
                let rest = data.get(at..).unwrap_or_default();
                let Some(end) = rest.iter().position(|&byte| byte == 0) else {
                    return Err(runtime_error("unfinished string in data"));
                };
                values.push(maker.string(state, &rest[..end])?);
                read = end + 1;
            }
            other => format.control(state, other)?,
        }
        at = at.saturating_add(read);
    }
    values.push(Val::Num((at + 1) as f64));
    for value in &values {
        state.push(*value);
    }
    Ok(values.len() as u32)
}

/// The size that the value before a `c0` tells.
fn previous_size(state: &LuaState, value: Option<Val>) -> LuaResult<usize> {
    let number = match value {
        Some(Val::Num(number)) => Some(number),
        Some(string @ Val::Str(_)) => {
            let text = std::str::from_utf8(lib_values::bytes_of(state, string)).ok();
            text.and_then(|text| text.trim().parse().ok())
        }
        _ => None,
    };
    match number {
        // A negative one is a large one in C, and past every string.
        Some(number) if number <= -1.0 => Ok(usize::MAX),
        Some(number) => Ok(number as usize),
        None => Err(runtime_error("format 'c0' needs a previous size")),
    }
}

fn size(state: &mut LuaState) -> LuaResult<u32> {
    let mut format = Format::read(state)?;
    let mut at = 0_usize;
    while let Some(option) = format.next() {
        let size = format.size(option)?;
        at = at.saturating_add(format.padding(at, option, size));
        match option {
            b's' => return Err(state.arg_error(1, "option 's' has no fixed size")),
            b'c' if size == 0 => {
                return Err(state.arg_error(1, "option 'c0' has no fixed size"));
            }
            other if other.is_ascii_alphanumeric() => {}
            other => format.control(state, other)?,
        }
        at = at.saturating_add(size);
    }
    state.push_number(at as f64);
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::{
        super::lib_values::testing::{check, run},
        open,
    };

    /// What a script packs, in base 16.
    fn packed(arguments: &str) -> String {
        let script = format!(
            "return (struct.pack({arguments}):gsub('.', function(c) return ('%02x'):format(c:byte()) end))"
        );
        String::from_utf8(run(open, script.as_bytes())).unwrap()
    }

    #[test]
    fn values_are_packed_as_in_redis() {
        assert_eq!(
            packed("'bBhHlLTiIfd',1,2,3,4,5,6,7,8,9,1.5,2.5"),
            "01020300040005000000000000000600000000000000070000000000000008000000090000000000c03f\
             0000000000000440"
        );
        assert_eq!(packed("'>hid',1,2,1.5"), "0001000000023ff8000000000000");
        assert_eq!(packed("'!4bi',1,2"), "0100000002000000");
        assert_eq!(packed("'!4bi3',1,2"), "010000020000");
        assert_eq!(packed("'i32',-1"), format!("{}{}", "ff".repeat(8), "00".repeat(24)));
        assert_eq!(packed("'b',300"), "2c");
        assert_eq!(packed("'L',2^64"), "0000000000000000");
        assert_eq!(packed("'s','abc'"), "61626300");
        assert_eq!(packed("'Bc0','3','abc'"), "03616263");
    }

    #[test]
    fn errors_of_packing_have_redis_words() {
        check(
            open,
            &[
                (
                    "return struct.pack()",
                    "user_script:1: bad argument #1 to 'pack' (string expected, got no value)",
                ),
                (
                    "return struct.pack('b')",
                    "user_script:1: bad argument #2 to 'pack' (number expected, got nil)",
                ),
                ("return struct.pack('!3b',1)", "user_script:1: alignment 3 is not a power of 2"),
                (
                    "return struct.pack('c4','abc')",
                    "user_script:1: bad argument #3 to 'pack' (string too short)",
                ),
                (
                    "return struct.pack('i33',1)",
                    "user_script:1: integral size 33 is larger than limit of 32",
                ),
                (
                    "return struct.pack('z',1)",
                    "user_script:1: bad argument #1 to 'pack' (invalid format option 'z')",
                ),
            ],
        );
    }

    #[test]
    fn values_are_unpacked_as_in_redis() {
        check(
            open,
            &[
                ("return struct.unpack('b','abc',2)", "98|3"),
                ("return struct.unpack('Bc0','\\3abcd')", "abc|5"),
                ("return struct.unpack('ss','a\\0b\\0c')", "a|b|5"),
                ("return struct.unpack('i32',('\\255'):rep(40))", "-1|33"),
                ("return (struct.unpack('>i16',('\\1'):rep(40)))", "7.2340172838077e+16"),
                ("return (struct.unpack('i3','\\255\\255\\255'))", "-1"),
                ("return (struct.unpack('I3','\\255\\255\\255'))", "16777215"),
                ("return struct.unpack('!4bi','abbbcccc')", "97|1667457891|9"),
                ("return struct.unpack('i0', '')", "0|1"),
                (
                    "return struct.unpack('c0','abc')",
                    "user_script:1: format 'c0' needs a previous size",
                ),
                ("return struct.unpack('s','abc')", "user_script:1: unfinished string in data"),
                (
                    "return struct.unpack('b','abc',0)",
                    "user_script:1: bad argument #3 to 'unpack' (offset must be 1 or greater)",
                ),
                (
                    "return struct.unpack('b','abc',-1)",
                    "user_script:1: bad argument #2 to 'unpack' (data string too short)",
                ),
                (
                    "return struct.unpack('Bc0','\\5abcd')",
                    "user_script:1: bad argument #2 to 'unpack' (data string too short)",
                ),
                (
                    "return struct.unpack(('b'):rep(9000),('a'):rep(9000))",
                    "user_script:1: stack overflow (too many results)",
                ),
            ],
        );
    }

    #[test]
    fn sizes_are_those_of_redis() {
        check(
            open,
            &[
                ("return struct.size('bhild')", "23"),
                ("return struct.size('!bhild')", "24"),
                ("return struct.size('!16bi16')", "32"),
                ("return struct.size('!8i3i')", "12"),
                ("return struct.size('z')", "0"),
                ("return struct.size('c2147483647c2147483647')", "4294967294"),
                ("return struct.size('c2147483648')", "user_script:1: integral size overflow"),
                (
                    "return struct.size('s')",
                    "user_script:1: bad argument #1 to 'size' (option 's' has no fixed size)",
                ),
            ],
        );
    }
}
