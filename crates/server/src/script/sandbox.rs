//! Takes away what a script may not do, and sees to it that nothing of a script is left for the
//! next one: what scripts see are empty tables before those that hold the functions.

use rilua::{
    Lua, LuaApiMut, LuaError, LuaResult, RustFn, Table, Val, runtime_error, stdlib::base,
    vm::state::LuaState,
};

use super::{
    api::{argument, catch, catch_with, located},
    convert, joins, lib_pattern, lib_string,
    lib_values::MAX_VALUES,
    memory,
};

/// Global functions that scripts have not.
const GONE: [&str; 9] =
    ["dofile", "getfenv", "loadfile", "newproxy", "print", "setfenv", "module", "require", "arg"];

/// The most bytes of a name of code that are kept: more than the 60 that errors show (`LUA_IDSIZE`
/// of Lua 5.1).
const NAME_BYTES_MAX: usize = 100;

/// The libraries that scripts cannot change.
const LIBRARIES: [&str; 9] =
    ["bit", "cjson", "cmsgpack", "coroutine", "math", "redis", "string", "struct", "table"];

/// What compiled code begins with, which is never loaded.
const BINARY: &[u8] = b"\x1bLua";

/// The table that lies after an empty one that a script sees.
fn real(state: &LuaState, value: Val) -> Option<Val> {
    let Val::Table(_) = value else { return None };
    let registry = Table::from_gc_ref(state.registry);
    registry.raw_get(state, value).ok().filter(|found| !found.is_nil())
}

fn read_only(state: &mut LuaState) -> LuaResult<u32> {
    Err(located(state, "Attempt to modify a readonly table"))
}

fn absent(state: &mut LuaState) -> LuaResult<u32> {
    let name = convert::bytes(state, argument(state, 1)).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let text = format!("Script attempted to access nonexistent global variable '{name}'");
    Err(located(state, &text))
}

/// Refuses a change of a table that scripts cannot change.
fn check_writable(state: &LuaState) -> LuaResult<()> {
    match real(state, argument(state, 0)) {
        Some(_) => Err(runtime_error("Attempt to modify a readonly table")),
        None => Ok(()),
    }
}

/// Has a function that reads a table read the one that holds what the script sees.
fn look_through(state: &mut LuaState) {
    if let Some(found) = real(state, argument(state, 0)) {
        state.stack_set(state.base, found);
    }
}

fn setmetatable(state: &mut LuaState) -> LuaResult<u32> {
    check_writable(state)?;
    base::lua_setmetatable(state)
}

fn rawset(state: &mut LuaState) -> LuaResult<u32> {
    check_writable(state)?;
    base::lua_rawset(state)
}

fn rawget(state: &mut LuaState) -> LuaResult<u32> {
    look_through(state);
    base::lua_rawget(state)
}

fn next(state: &mut LuaState) -> LuaResult<u32> {
    look_through(state);
    base::lua_next(state)
}

fn pairs(state: &mut LuaState) -> LuaResult<u32> {
    look_through(state);
    let of = argument(state, 0);
    if !matches!(of, Val::Table(_)) {
        return Err(state.type_error(1, "table"));
    }
    let key = state.create_string(b"next");
    let function = Table::from_gc_ref(state.registry).raw_get(state, key)?;
    state.push(function);
    state.push(of);
    state.push(Val::Nil);
    Ok(3)
}

fn gcinfo(state: &mut LuaState) -> LuaResult<u32> {
    #[expect(clippy::cast_precision_loss, reason = "far fewer")]
    let kib = state.gc.gc_state.total_bytes as f64 / 1024.0;
    state.push_number(kib);
    Ok(1)
}

fn collectgarbage(state: &mut LuaState) -> LuaResult<u32> {
    if convert::bytes(state, argument(state, 0)).is_some_and(|word| word == b"count") {
        return gcinfo(state);
    }
    state.push_number(0.0);
    Ok(1)
}

/// As Lua's, within the stack that functions of Lua 5.1 have.
fn unpack(state: &mut LuaState) -> LuaResult<u32> {
    if let Val::Table(of) = argument(state, 0) {
        let first = state.opt_integer(2, 1)?;
        let last = match argument(state, 2) {
            Val::Nil => Table::from_gc_ref(of).raw_len(state),
            _ => state.opt_integer(3, 0)?,
        };
        if last.saturating_sub(first) >= MAX_VALUES as i64 {
            return Err(located(state, "too many results to unpack"));
        }
    }
    base::lua_unpack(state)
}

/// The name of what `loadstring` compiles, which each function in it keeps a copy of: as much of it
/// as errors show.
fn chunk_name(name: &[u8]) -> String {
    let shown = match name {
        // Of a file's name the end is shown.
        [b'@', rest @ ..] if rest.len() > NAME_BYTES_MAX => {
            [b"@", &rest[rest.len() - NAME_BYTES_MAX..]].concat()
        }
        _ => name[..name.len().min(NAME_BYTES_MAX)].to_vec(),
    };
    String::from_utf8_lossy(&shown).into_owned()
}

/// A function as bytes, which can only be refused: there is nothing in them.
fn dump(state: &mut LuaState) -> LuaResult<u32> {
    let Val::Function(_) = argument(state, 0) else {
        return Err(state.type_error(1, "function"));
    };
    let bytes = state.create_string(BINARY);
    state.push(bytes);
    Ok(1)
}

fn loadstring(state: &mut LuaState) -> LuaResult<u32> {
    let Some(source) = convert::bytes(state, argument(state, 0)) else {
        // Says what is wrong with the argument.
        return base::lua_loadstring(state);
    };
    let loaded = if source.first() == BINARY.first() {
        Err(b"attempt to load a binary chunk".to_vec())
    } else {
        let name = convert::bytes(state, argument(state, 1));
        let name = chunk_name(name.as_ref().unwrap_or(&source));
        joins::load(state, &source, &name).map_err(|error| match error {
            LuaError::Syntax(error) => error.to_lua_bytes(),
            other => other.to_string().into_bytes(),
        })
    };
    match loaded {
        Ok(function) => {
            state.push(Val::Function(function.gc_ref()));
            memory::reserve(state, 0)?;
            Ok(1)
        }
        Err(text) => {
            let text = state.create_string(&text);
            state.push(Val::Nil);
            state.push(text);
            Ok(2)
        }
    }
}

/// Puts an empty table before one, which scripts cannot change.
fn protect(lua: &mut Lua, real: Table) -> LuaResult<Table> {
    let (proxy, meta) = (lua.create_table(), lua.create_table());
    let fields = [("__index", Val::Table(real.gc_ref())), ("__metatable", Val::Bool(false))];
    for (name, value) in fields {
        let key = lua.create_string(name.as_bytes());
        lua.table_raw_set(&meta, key, value)?;
    }
    lua.table_set_function(&meta, "__newindex", read_only)?;
    let state = lua.state_mut();
    proxy.set_metatable(state, Some(meta))?;
    let registry = Table::from_gc_ref(state.registry);
    registry.raw_set(state, Val::Table(proxy.gc_ref()), Val::Table(real.gc_ref()))?;
    Ok(proxy)
}

/// Shows a table that stands for the metatable of a protected one, which scripts cannot change.
fn show_metatable(lua: &mut Lua, proxy: Table) -> LuaResult<()> {
    let empty = lua.create_table();
    let shown = protect(lua, empty)?;
    let state = lua.state_mut();
    let meta = state.gc.tables.get(proxy.gc_ref()).and_then(|proxy| proxy.metatable());
    let Some(meta) = meta else { return Ok(()) };
    let key = state.create_string(b"__metatable");
    Table::from_gc_ref(meta).raw_set(state, key, Val::Table(shown.gc_ref()))
}

/// As [`protect`], and what is not in the table is an error.
pub(super) fn protect_strict(lua: &mut Lua, real: Table) -> LuaResult<Table> {
    refuse_absent(lua, real)?;
    protect(lua, real)
}

/// Has a read of what a table has not be an error.
pub(super) fn refuse_absent(lua: &mut Lua, table: Table) -> LuaResult<()> {
    let meta = lua.create_table();
    lua.table_set_function(&meta, "__index", absent)?;
    table.set_metatable(lua.state_mut(), Some(meta))
}

/// Has functions of a library take the place of others.
pub(super) fn replace(lua: &mut Lua, library: &str, functions: &[(&str, RustFn)]) -> LuaResult<()> {
    let Val::Table(of) = lua.get_global_val(library) else { return Ok(()) };
    for (name, function) in functions {
        lua.table_set_function(&Table::from_gc_ref(of), name, *function)?;
    }
    Ok(())
}

/// Closes the state: from now on scripts see what they may see.
pub(super) fn close(lua: &mut Lua, globals: Table) -> LuaResult<()> {
    for name in GONE {
        lua.set_global_val(name, Val::Nil)?;
    }
    let functions: [(&str, RustFn); 12] = [
        ("collectgarbage", collectgarbage),
        ("gcinfo", gcinfo),
        ("load", loadstring),
        ("loadstring", loadstring),
        ("next", next),
        ("pairs", pairs),
        ("pcall", catch),
        ("rawget", rawget),
        ("rawset", rawset),
        ("setmetatable", setmetatable),
        ("unpack", unpack),
        ("xpcall", catch_with),
    ];
    for (name, function) in functions {
        lua.register_function(name, function)?;
    }
    let state = lua.state_mut();
    let (key, registry) = (state.create_string(b"next"), Table::from_gc_ref(state.registry));
    let function = globals.raw_get(state, key)?;
    registry.raw_set(state, key, function)?;
    replace(lua, "string", &lib_string::FUNCTIONS)?;
    replace(lua, "string", &[("dump", dump)])?;
    replace(lua, "string", &lib_pattern::FUNCTIONS)?;
    replace(lua, "table", &[("concat", lib_string::concat)])?;
    for name in LIBRARIES {
        let Val::Table(of) = lua.get_global_val(name) else { continue };
        let proxy = protect(lua, Table::from_gc_ref(of))?;
        lua.set_global_val(name, Val::Table(proxy.gc_ref()))?;
    }
    let strings = lua.get_global_val("string");
    let metas: Vec<_> = lua.state_mut().gc.type_metatables.iter().flatten().copied().collect();
    for meta in metas {
        let meta = Table::from_gc_ref(meta);
        let shown = protect(lua, meta)?;
        let fields = [("__index", strings), ("__metatable", Val::Table(shown.gc_ref()))];
        for (name, value) in fields {
            let key = lua.create_string(name.as_bytes());
            lua.table_raw_set(&meta, key, value)?;
        }
    }
    refuse_absent(lua, globals)?;
    let proxy = protect(lua, globals)?;
    show_metatable(lua, proxy)?;
    lua.set_global_val("_G", Val::Table(proxy.gc_ref()))?;
    lua.state_mut().global = proxy.gc_ref();
    Ok(())
}
