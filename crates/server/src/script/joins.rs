//! Holds the joining of strings (`..`) to the memory of a script.
//!
//! One instruction of the interpreter joins as many as 250 strings, and takes the memory of the
//! result before it looks at any limit. So a function is called before each such instruction, which
//! looks at the operands. The calls are added to the code of a script once it is compiled: nothing
//! in its text can leave them out, and binary chunks are refused.

use rilua::{
    Function, Lua, LuaApiMut, LuaResult, Table, Val,
    error::chunkid,
    runtime_error,
    vm::{
        closure::{Closure, RustClosure},
        instructions::{Instruction, OpCode},
        proto::{Proto, ProtoRef},
        state::LuaState,
    },
};

use super::memory;

/// Where the registry has the function that looks at the operands.
const KEY: &[u8] = b"before strings are joined";

/// The most bytes of a number as text.
const NUMBER_BYTES: usize = 32;

/// The farthest that an instruction can jump (`MAXARG_sBx` of Lua 5.1).
const JUMP_MAX: i64 = 131_071;

/// The greatest number of a constant that an instruction can name (`MAXARG_Bx` of Lua 5.1).
const CONSTANT_MAX: usize = 262_143;

/// Instructions that are added before one that joins: the function is loaded and called.
const ADDED: usize = 2;

/// Why a script cannot be held to its memory.
const TOO_LARGE: &str = "function or expression too complex";

/// The longest text of a script, in bytes: the compiler takes some 120 times as much memory
/// (`loadstring` of 40 MB of `a=1` took 4.9 GB).
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Makes the function that looks at the operands.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    let state = lua.state_mut();
    let name = "join".to_owned();
    let check = RustClosure { func: check, upvalues: Vec::new(), name, env: None };
    let check = state.gc.alloc_closure(Closure::Rust(check));
    let key = state.create_string(KEY);
    let registry = Table::from_gc_ref(state.registry);
    registry.raw_set(state, key, Val::Function(check))?;
    state.gc.barrier_back(registry.gc_ref());
    Ok(())
}

/// Runs a part of the libraries that is written in Lua.
pub(super) fn exec(lua: &mut Lua, source: &str) -> LuaResult<()> {
    let function = load(lua, source.as_bytes(), "=(string)")?;
    lua.call_function(&function, &[]).map(drop)
}

/// Compiles a script, whose joins ask for memory.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn load(lua: &mut impl LuaApiMut, source: &[u8], name: &str) -> LuaResult<Function> {
    if source.len() > TEXT_BYTES_MAX {
        let why = format!("{}: a script has at most {TEXT_BYTES_MAX} bytes", chunkid(name));
        return Err(runtime_error(why));
    }
    let function = lua.load_bytes(source, name)?;
    let state = lua.state_mut();
    let key = state.create_string(KEY);
    let check = Table::from_gc_ref(state.registry).raw_get(state, key)?;
    let Some(Closure::Lua(closure)) = state.gc.closures.get_mut(function.gc_ref()) else {
        return Ok(function);
    };
    hold_all(&mut closure.proto, check).ok_or_else(|| runtime_error(TOO_LARGE))?;
    memory::add_code(&closure.proto);
    Ok(function)
}

/// Changes a function and those within it; none if that cannot be done.
fn hold_all(proto: &mut ProtoRef, check: Val) -> Option<()> {
    // Nobody else has what was just compiled.
    let proto = ProtoRef::get_mut(proto)?;
    for inner in &mut proto.protos {
        hold_all(inner, check)?;
    }
    hold_one(proto, check)
}

/// For each instruction of a function and for its end, where it lies once calls were added before
/// those that join. A jump to one that joins leads to the call.
fn places(code: &[u32]) -> Vec<usize> {
    let (mut places, mut at) = (Vec::with_capacity(code.len() + 1), 0);
    let mut is_number = false;
    for word in code {
        places.push(at);
        let instruction = Instruction::from_raw(*word);
        at += 1 + if joins(instruction, is_number) { ADDED } else { 0 };
        is_number = !is_number && has_number(instruction);
    }
    places.push(at);
    places
}

/// Returns true if this is an instruction that joins, and not the number that follows another one.
fn joins(instruction: Instruction, is_number: bool) -> bool {
    !is_number && instruction.opcode() == OpCode::Concat
}

/// Returns true if the word after this instruction is a number that belongs to it.
fn has_number(instruction: Instruction) -> bool {
    instruction.opcode() == OpCode::SetList && instruction.c() == 0
}

fn hold_one(proto: &mut Proto, check: Val) -> Option<()> {
    let places = places(&proto.code);
    let len = places.last().copied()?;
    if len == proto.code.len() {
        return Some(());
    }
    let constant = u32::try_from(proto.constants.len()).ok()?;
    if proto.constants.len() > CONSTANT_MAX {
        return None;
    }
    proto.constants.push(check);
    let (mut code, mut lines) = (Vec::with_capacity(len), Vec::with_capacity(len));
    let mut is_number = false;
    for (at, word) in proto.code.iter().enumerate() {
        let mut instruction = Instruction::from_raw(*word);
        let line = proto.line_info.get(at).copied().unwrap_or(0);
        if joins(instruction, is_number) {
            // The register after the operands is free.
            let free = instruction.c() + 1;
            code.push(Instruction::a_bx(OpCode::LoadK, free, constant).raw());
            code.push(Instruction::abc(OpCode::Call, free, 1, 1).raw());
            lines.extend([line; ADDED]);
            proto.max_stack_size = proto.max_stack_size.max(u8::try_from(free + 1).ok()?);
        }
        let is_jump =
            matches!(instruction.opcode(), OpCode::Jmp | OpCode::ForLoop | OpCode::ForPrep);
        if is_jump && !is_number {
            let target = at as i64 + 1 + i64::from(instruction.sbx());
            let target = places.get(usize::try_from(target).ok()?)?;
            let jump = *target as i64 - (code.len() as i64 + 1);
            if jump.abs() > JUMP_MAX {
                return None;
            }
            instruction.set_sbx(i32::try_from(jump).ok()?);
        }
        is_number = !is_number && has_number(instruction);
        code.push(instruction.raw());
        lines.push(line);
    }
    for local in &mut proto.local_vars {
        for end in [&mut local.start_pc, &mut local.end_pc] {
            let place = places.get(*end as usize).copied().unwrap_or(len);
            *end = u32::try_from(place).ok()?;
        }
    }
    (proto.code, proto.line_info) = (code, lines);
    Some(())
}

/// Asks for the memory of what the next instruction of the caller joins.
fn check(state: &mut LuaState) -> LuaResult<u32> {
    let bytes = operands(state).unwrap_or(0);
    memory::reserve(state, bytes)?;
    Ok(0)
}

/// The bytes of what the next instruction of the caller joins.
fn operands(state: &LuaState) -> Option<usize> {
    let caller = state.call_stack.get(state.ci.checked_sub(1)?)?;
    let Val::Function(function) = state.stack_get(caller.func) else { return None };
    let Some(Closure::Lua(closure)) = state.gc.closures.get(function) else { return None };
    let next = Instruction::from_raw(*closure.proto.code.get(caller.saved_pc)?);
    let registers = next.b() as usize..=next.c() as usize;
    Some(registers.fold(0, |bytes: usize, register| {
        let value = state.stack_get(caller.base + register);
        let len = if let Val::Num(_) = value { NUMBER_BYTES } else { memory::len_of(state, value) };
        bytes.saturating_add(len)
    }))
}

#[cfg(test)]
mod tests {
    use rilua::StdLib;

    use super::*;

    /// What a script returns or fails with, held to its memory or as it was compiled.
    fn outcome(source: &str, held: bool) -> String {
        let libraries = StdLib::BASE | StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let mut lua = Lua::new_with(libraries).unwrap();
        open(&mut lua).unwrap();
        memory::begin();
        let function = if held {
            load(&mut lua, source.as_bytes(), "@user_script").unwrap()
        } else {
            lua.load_bytes(source.as_bytes(), "@user_script").unwrap()
        };
        match lua.call_function(&function, &[]) {
            Ok(values) => match values.first() {
                Some(Val::Str(_)) => {
                    String::from_utf8_lossy(lua.val_as_bytes(values[0]).unwrap_or_default()).into()
                }
                other => format!("{other:?}"),
            },
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn scripts_do_the_same_with_calls_before_their_joins() {
        // The last elements of so long a constructor have their number in a word of its own.
        let long =
            format!("local x = 7 local t = {{{}}} return #t .. t[30000]", "x..1,".repeat(30_000));
        for source in [
            "local s = '' for i = 1, 5 do s = s .. i if i % 2 == 0 then s = s .. '-' end end return s",
            "local s, n = '', 0 while true do n = n + 1 if n > 9 then break end s = n .. s end return s",
            "local s = '' repeat s = s .. 'x' .. #s until #s > 20 return s",
            "local s = '' for k, v in pairs({a = 1}) do s = s .. k .. v end return s",
            "local a, b = nil, 'b' return (a or b) .. (b and 'c' .. 'd' or a) .. 1 .. 2.5",
            "local function f(...) local s = '' for i = 1, select('#', ...) do \
             s = s .. (select(i, ...)) end return function() return s .. '!' end end \
             return f(1, 'b', 3)()",
            "local t = setmetatable({}, {__concat = function(a, b) return 'm' end}) \
             return 'a' .. 'b' .. t .. 'c' .. 'd'",
            "local x = nil return 'a' .. x",
            "local x = nil return 'a' .. x .. 'b'",
            "local t = {} return 'a' .. 'b' .. t.field",
            "return 'a' .. absent",
            "local a = 'a' do local b = 'b' a = a .. b end local c = {} return a .. c",
            "return (('a' .. 1) < ('a' .. 2)) and 'less' .. 1 or 'more' .. 2",
            "return string.format('%s', 'a' .. 1) .. table.concat({'a' .. 1, 'b' .. 2}, ',' .. ' ')",
            &long,
        ] {
            let (plain, held) = (outcome(source, false), outcome(source, true));
            assert_eq!(plain, held, "{}", &source[..source.len().min(80)]);
        }
        assert_eq!(outcome(&long, true), "3000071");
        assert!(outcome("local x return 'a' .. x", true).contains("local 'x' (a nil value)"));
    }

    #[test]
    fn a_join_is_refused_before_its_memory_is_taken() {
        let all = vec!["s"; 100].join("..");
        let source = format!("local s = string.rep('x', 1e6) return {all}");
        assert_eq!(outcome(&source, true), "not enough memory");
        let source = format!("local s = string.rep('x', 1e5) return #({all})");
        assert_eq!(outcome(&source, true), outcome(&source, false));
        let inner = format!(
            "local s = string.rep('x', 1e6) local function f() return function() \
             return {all} end end return f()()"
        );
        assert_eq!(outcome(&inner, true), "not enough memory");
    }

    #[test]
    fn longer_texts_than_may_be_compiled_are_refused() {
        let mut lua = Lua::new_with(StdLib::BASE).unwrap();
        open(&mut lua).unwrap();
        let mut text = vec![b' '; TEXT_BYTES_MAX];
        assert!(load(&mut lua, &text, "=x").is_ok());
        text.push(b' ');
        let error = load(&mut lua, &text, "=x").unwrap_err().to_string();
        assert_eq!(error, "x: a script has at most 1048576 bytes");
    }
}
