//! The library `cmsgpack` of scripts: values to and from MessagePack.

use std::ops::ControlFlow;

use rilua::{Lua, LuaApiMut, LuaResult, Table, Val, runtime_error, vm::state::LuaState};

use super::{
    MEMORY_BYTES_MAX, Running,
    api::{argument, end_script},
    lib_values::{self, MAX_VALUES, Maker, Output, arguments, bytes_of},
    memory, running,
};

/// Tables that are nested deeper are packed as nil, as in Redis.
const DEPTH_MAX: usize = 16;

/// Values and entries of tables between two looks at the time: some hundred microseconds' worth.
const LOOK_STEPS: usize = 1 << 12;

/// What a byte becomes at most, in bytes: a number in an array.
const VALUE_BYTES: usize = 16;

/// What Redis says if more values are unpacked than a function of Lua may have.
const TOO_MANY: &str = "too many return values at once; use unpack_one or unpack_limit instead.";

/// Opens the library.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    let functions: [(&str, rilua::RustFn); 4] = [
        ("pack", pack),
        ("unpack", unpack),
        ("unpack_one", unpack_one),
        ("unpack_limit", unpack_limit),
    ];
    let library = lib_values::register(lua, "cmsgpack", &functions)?;
    for (name, text) in [("_NAME", "cmsgpack"), ("_VERSION", "lua-cmsgpack 0.4.0")] {
        let (name, text) = (lua.create_string(name.as_bytes()), lua.create_string(text.as_bytes()));
        lua.table_raw_set(&library, name, text)?;
    }
    Ok(())
}

/// A number as C converts it to 64 bits on x86-64, where what is out of range is the least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "checked")]
fn to_integer(number: f64) -> i64 {
    if number >= i64::MIN as f64 && number < -(i64::MIN as f64) { number as i64 } else { i64::MIN }
}

/// How many values and entries were gone through since the last look at the time.
#[derive(Default)]
struct Steps(usize);

impl Steps {
    /// Counts one, and looks at the time once there were many.
    fn count(&mut self, state: &mut LuaState) -> LuaResult<()> {
        self.0 += 1;
        if self.0 >= LOOK_STEPS {
            self.0 = 0;
            if running(Running::is_over).unwrap_or(false) {
                return Err(end_script(state));
            }
        }
        Ok(())
    }
}

/// What a call packs.
#[derive(Default)]
struct Packer {
    output: Output,
    steps: Steps,
}

impl Packer {
    fn value(&mut self, state: &mut LuaState, value: Val, depth: usize) -> LuaResult<()> {
        match value {
            Val::Str(_) => {
                let bytes = bytes_of(state, value);
                self.length(bytes.len(), (0xa0, 31), Some(0xd9), (0xda, 0xdb))?;
                self.output.add(bytes)
            }
            Val::Num(number) => self.number(number),
            Val::Bool(value) => self.output.add(&[if value { 0xc3 } else { 0xc2 }]),
            Val::Table(table) if depth < DEPTH_MAX => {
                self.table(state, Table::from_gc_ref(table), depth + 1)
            }
            _ => self.output.add(&[0xc0]),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a number that has no exact short form")]
    #[expect(clippy::float_cmp, reason = "the same number")]
    fn number(&mut self, number: f64) -> LuaResult<()> {
        let integer = to_integer(number);
        #[expect(clippy::cast_precision_loss, reason = "compared")]
        if integer as f64 == number {
            return self.integer(integer);
        }
        let short = number as f32;
        if f64::from(short) == number {
            self.headed(0xca, &short.to_be_bytes())
        } else {
            self.headed(0xcb, &number.to_be_bytes())
        }
    }

    /// A number in the fewest bytes. What is not negative has no sign.
    fn integer(&mut self, number: i64) -> LuaResult<()> {
        let bytes = number.to_be_bytes();
        match number {
            -32..=127 => self.output.add(&bytes[7..]),
            128..=0xff => self.headed(0xcc, &bytes[7..]),
            0x100..=0xffff => self.headed(0xcd, &bytes[6..]),
            0x1_0000..=0xffff_ffff => self.headed(0xce, &bytes[4..]),
            0x1_0000_0000.. => self.headed(0xcf, &bytes),
            -128..=-33 => self.headed(0xd0, &bytes[7..]),
            -0x8000..=-129 => self.headed(0xd1, &bytes[6..]),
            -0x8000_0000..=-0x8001 => self.headed(0xd2, &bytes[4..]),
            ..=-0x8000_0001 => self.headed(0xd3, &bytes),
        }
    }

    fn headed(&mut self, head: u8, bytes: &[u8]) -> LuaResult<()> {
        self.output.add(&[head])?;
        self.output.add(bytes)
    }

    /// A length: within the first byte if it is small enough, or in one, two or four bytes.
    #[expect(clippy::cast_possible_truncation, reason = "nothing of a script is as long")]
    fn length(
        &mut self,
        len: usize,
        (small, small_max): (u8, usize),
        short: Option<u8>,
        (middle, long): (u8, u8),
    ) -> LuaResult<()> {
        let bytes = (len as u32).to_be_bytes();
        match (len, short) {
            (..=31, _) if len <= small_max => self.output.add(&[small | bytes[3]]),
            (..=0xff, Some(short)) => self.headed(short, &bytes[3..]),
            (..=0xffff, _) => self.headed(middle, &bytes[2..]),
            _ => self.headed(long, &bytes),
        }
    }

    /// A table: an array if its keys are the numbers from 1 on, each of them, and a map otherwise.
    fn table(&mut self, state: &mut LuaState, table: Table, depth: usize) -> LuaResult<()> {
        let (mut count, mut most) = (0_usize, 0.0_f64);
        let is_list = self.each(state, table, |_, _, (key, _)| {
            let Val::Num(number) = key else { return Ok(ControlFlow::Break(())) };
            // Keys of arrays are C's `int`.
            if number <= 0.0 || number > f64::from(i32::MAX) || number.fract() != 0.0 {
                return Ok(ControlFlow::Break(()));
            }
            count += 1;
            most = most.max(number);
            Ok(ControlFlow::Continue(()))
        })?;
        #[expect(clippy::cast_precision_loss, reason = "fewer than memory has room for")]
        if is_list.is_continue() && most == count as f64 {
            self.length(count, (0x90, 15), None, (0xdc, 0xdd))?;
            for at in 1..=count {
                self.steps.count(state)?;
                let value = table.raw_get(state, Val::Num(at as f64))?;
                self.value(state, value, depth)?;
            }
            return Ok(());
        }
        let mut count = 0;
        let _ = self.each(state, table, |_, _, _| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        self.length(count, (0x80, 15), None, (0xde, 0xdf))?;
        let _ = self.each(state, table, |packer, state, (key, value)| {
            packer.value(state, key, depth)?;
            packer.value(state, value, depth)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    /// Goes through the entries of a table in their order, until `with` breaks off.
    fn each(
        &mut self,
        state: &mut LuaState,
        table: Table,
        mut with: impl FnMut(&mut Self, &mut LuaState, (Val, Val)) -> LuaResult<ControlFlow<()>>,
    ) -> LuaResult<ControlFlow<()>> {
        let mut at = 0;
        while let Some(table) = state.gc.tables.get(table.gc_ref()) {
            let array = table.array_len();
            let entry = if let Some(value) = table.array_slice().get(at) {
                #[expect(clippy::cast_precision_loss, reason = "places of a table are floats")]
                Some((Val::Num((at + 1) as f64), *value))
            } else {
                // Tables have at most as many nodes as a `u32` counts.
                let node = u32::try_from(at - array).unwrap_or(u32::MAX);
                if node >= table.hash_node_count() {
                    break;
                }
                table.hash_node_kv(node)
            };
            at += 1;
            self.steps.count(state)?;
            let Some((key, value)) = entry.filter(|(_, value)| !value.is_nil()) else { continue };
            if with(self, state, (key, value))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn pack(state: &mut LuaState) -> LuaResult<u32> {
    let count = arguments(state);
    if count == 0 {
        return Err(state.arg_error(0, "MessagePack pack needs input."));
    }
    // Redis keeps what each is packed as beside the arguments.
    if count * 2 > MAX_VALUES {
        return Err(state.arg_error(0, "Too many arguments for MessagePack pack."));
    }
    let mut packer = Packer::default();
    for at in 0..count {
        let value = argument(state, at);
        packer.value(state, value, 0)?;
    }
    lib_values::return_bytes(state, packer.output.bytes())
}

/// Why nothing is unpacked.
enum Failure {
    /// The bytes end too early.
    Missing,
    /// A byte that nothing begins with.
    Format,
    /// Lua says what.
    Lua(rilua::LuaError),
}

impl From<rilua::LuaError> for Failure {
    fn from(error: rilua::LuaError) -> Self {
        Self::Lua(error)
    }
}

/// What the bytes at one place begin with.
enum Item {
    /// A value as a whole.
    Value(Val),
    /// An array of as many values.
    Array(usize),
    /// A map of as many entries.
    Map(usize),
}

/// A table that is not filled yet.
struct Open {
    table: Table,
    is_map: bool,
    /// How many values or entries are still to come.
    left: usize,
    /// How many of them were put into it.
    filled: usize,
    /// The key of a map whose value comes next.
    key: Option<Val>,
}

impl Open {
    /// How many values Redis has on Lua's stack for it: the table and a key.
    fn places(&self) -> usize {
        if self.is_map && self.key.is_none() { 1 } else { 2 }
    }
}

/// What a call unpacks.
struct Unpacker<'a> {
    bytes: &'a [u8],
    at: usize,
    maker: Maker,
    steps: Steps,
}

impl<'a> Unpacker<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Failure> {
        let part = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        let part = part.ok_or(Failure::Missing)?;
        self.at += count;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let part = self.take(N)?;
        part.try_into().map_err(|_| Failure::Missing)
    }

    /// A length of as many bytes, at most 4.
    fn len(&mut self, bytes: usize) -> Result<usize, Failure> {
        let part = self.take(bytes)?;
        Ok(part.iter().fold(0, |len, byte| (len << 8) | usize::from(*byte)))
    }

    fn string(&mut self, state: &mut LuaState, len: usize) -> Result<Item, Failure> {
        let bytes = self.take(len)?;
        Ok(Item::Value(self.maker.string(state, bytes)?))
    }

    /// What the next bytes begin with.
    fn item(&mut self, state: &mut LuaState) -> Result<Item, Failure> {
        let [first] = self.array()?;
        let low = usize::from(first);
        #[expect(clippy::cast_precision_loss, reason = "numbers are floats")]
        let number = match first {
            0x00..=0x7f => f64::from(first),
            0xe0..=0xff => f64::from(first.cast_signed()),
            0x80..=0x8f => return Ok(Item::Map(low & 0xf)),
            0x90..=0x9f => return Ok(Item::Array(low & 0xf)),
            0xa0..=0xbf => return self.string(state, low & 0x1f),
            0xc0 => return Ok(Item::Value(Val::Nil)),
            0xc2 | 0xc3 => return Ok(Item::Value(Val::Bool(first == 0xc3))),
            0xca => f64::from(f32::from_be_bytes(self.array()?)),
            0xcb => f64::from_be_bytes(self.array()?),
            0xcc => f64::from(u8::from_be_bytes(self.array()?)),
            0xcd => f64::from(u16::from_be_bytes(self.array()?)),
            0xce => f64::from(u32::from_be_bytes(self.array()?)),
            // Both have a sign in Redis.
            0xcf | 0xd3 => i64::from_be_bytes(self.array()?) as f64,
            0xd0 => f64::from(i8::from_be_bytes(self.array()?)),
            0xd1 => f64::from(i16::from_be_bytes(self.array()?)),
            0xd2 => f64::from(i32::from_be_bytes(self.array()?)),
            0xd9..=0xdb => {
                let len = self.len(1 << (first - 0xd9))?;
                return self.string(state, len);
            }
            0xdc | 0xdd => return Ok(Item::Array(self.len(2 << (first - 0xdc))?)),
            0xde | 0xdf => return Ok(Item::Map(self.len(2 << (first - 0xde))?)),
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err(Failure::Format),
        };
        Ok(Item::Value(Val::Num(number)))
    }

    /// The next value. Tables within it are no deeper than Redis has them, with as many values of
    /// this call on Lua's stack.
    fn value(&mut self, state: &mut LuaState, on_stack: usize) -> Result<Val, Failure> {
        let mut open: Vec<Open> = Vec::new();
        let mut used = on_stack;
        loop {
            if used >= MAX_VALUES {
                return Err(runtime_error(format!("stack overflow ({TOO_MANY})")).into());
            }
            self.steps.count(state)?;
            let (is_map, left) = match self.item(state)? {
                Item::Value(value) => match close(self, state, &mut open, &mut used, value)? {
                    Some(value) => return Ok(value),
                    None => continue,
                },
                Item::Array(len) => (false, len),
                Item::Map(len) => (true, len),
            };
            if !is_map && used + 1 >= MAX_VALUES {
                let text = "stack overflow (in function mp_decode_to_lua_array)";
                return Err(runtime_error(text).into());
            }
            let table = self.maker.table(state)?;
            let made = Open { table, is_map, left, filled: 0, key: None };
            if left > 0 {
                used += made.places();
                open.push(made);
            } else if let Some(value) =
                close(self, state, &mut open, &mut used, Val::Table(table.gc_ref()))?
            {
                return Ok(value);
            }
        }
    }
}

/// Puts a value that is whole into the table that it belongs to, and the table into its own if it
/// is whole with it. Returns the value that belongs to none.
fn close(
    unpacker: &mut Unpacker<'_>,
    state: &mut LuaState,
    open: &mut Vec<Open>,
    used: &mut usize,
    mut value: Val,
) -> Result<Option<Val>, Failure> {
    while let Some(last) = open.last_mut() {
        let key = if last.is_map {
            let Some(key) = last.key.take() else {
                last.key = Some(value);
                *used += 1;
                return Ok(None);
            };
            *used -= 1;
            key
        } else {
            #[expect(clippy::cast_precision_loss, reason = "places of a table are floats")]
            Val::Num((last.filled + 1) as f64)
        };
        unpacker.maker.entry(state, (last.table, last.filled), key, value)?;
        last.filled += 1;
        last.left -= 1;
        if last.left > 0 {
            return Ok(None);
        }
        value = Val::Table(last.table.gc_ref());
        *used -= last.places();
        open.pop();
    }
    Ok(Some(value))
}

/// Unpacks at most `limit` values after `offset` bytes, and returns where it stopped before them;
/// if neither is set, all of them alone.
fn unpack_some(state: &mut LuaState, arguments: usize, limit: i64, offset: i64) -> LuaResult<u32> {
    let bytes = state.check_string(1)?;
    let len = bytes.len();
    let all = limit == 0 && offset == 0;
    if offset < 0 || limit < 0 {
        #[expect(clippy::cast_possible_truncation, reason = "as Redis shows it")]
        let offset = offset as i32;
        return Err(runtime_error(format!(
            "Invalid request to unpack with offset of {offset} and limit of {len}."
        )));
    }
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    if at > len {
        #[expect(clippy::cast_possible_truncation, reason = "as Redis shows it")]
        let offset = offset as i32;
        return Err(runtime_error(format!(
            "Start offset {offset} greater than input length {len}."
        )));
    }
    memory::make_room(state, len.saturating_mul(VALUE_BYTES).min(MEMORY_BYTES_MAX / 2))?;
    let limit = if all { i64::from(i32::MAX) } else { limit };
    let mut unpacker =
        Unpacker { bytes: &bytes, at, maker: Maker::default(), steps: Steps::default() };
    let mut values = Vec::new();
    while unpacker.at < len && (values.len() as i64) < limit {
        match unpacker.value(state, arguments + values.len()) {
            Ok(value) => values.push(value),
            Err(Failure::Missing) => return Err(runtime_error("Missing bytes in input.")),
            Err(Failure::Format) => return Err(runtime_error("Bad data format in input.")),
            Err(Failure::Lua(error)) => return Err(error),
        }
    }
    if !all {
        if arguments + values.len() >= MAX_VALUES {
            return Err(runtime_error("stack overflow (in function mp_unpack_full)"));
        }
        #[expect(clippy::cast_precision_loss, reason = "numbers are floats")]
        state.push(Val::Num(if unpacker.at == len { -1.0 } else { unpacker.at as f64 }));
    }
    for value in &values {
        state.push(*value);
    }
    Ok(values.len() as u32 + u32::from(!all))
}

/// The argument of this number as C's integer; `default` if there is none.
fn integer(state: &LuaState, number: usize, default: Option<i64>) -> LuaResult<i64> {
    match (argument(state, number - 1), default) {
        (Val::Nil, Some(default)) => Ok(default),
        _ => state.check_number(number).map(to_integer),
    }
}

fn unpack(state: &mut LuaState) -> LuaResult<u32> {
    let count = arguments(state);
    unpack_some(state, count, 0, 0)
}

fn unpack_one(state: &mut LuaState) -> LuaResult<u32> {
    let offset = integer(state, 2, Some(0))?;
    unpack_some(state, 1, 1, offset)
}

fn unpack_limit(state: &mut LuaState) -> LuaResult<u32> {
    let limit = integer(state, 2, None)?;
    let offset = integer(state, 3, Some(0))?;
    unpack_some(state, 1, limit, offset)
}

#[cfg(test)]
mod tests;
