//! A state of the interpreter, which scripts of one thread run in, one after the other.

use std::collections::HashMap;

use rilua::{
    Function, Lua, LuaApiMut, LuaResult, StdLib, Table, Val, runtime_error,
    stdlib::base,
    vm::state::{LuaState, MASK_COUNT},
};

use super::{
    End, MEMORY_BYTES_MAX, api, convert, joins, lib_bit, lib_coroutine, lib_lua, lib_msgpack,
    lib_struct, memory, running, sandbox,
};
use crate::{random::Random, resp::Reply};

/// Instructions between two looks at the limits: some ten microseconds' worth.
const LOOK_INSTRUCTIONS: i32 = 1000;

/// A state that holds more bytes than this after a script is not kept for the next one.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// The most bytes of the sources whose functions a state keeps: compiled they take some times as
/// many, which is less than [`KEPT_BYTES_MAX`].
const KEPT_SOURCE_BYTES_MAX: usize = 256 << 10;

/// The functions of scripts that were run, so that the next run does not compile them. A function
/// has nothing of its own that a run could change: its globals are those of the state.
struct Kept {
    /// Keeps the functions from being collected: by their SHA-1.
    anchor: Table,
    by_sha: HashMap<String, Function>,
    source_bytes: usize,
}

/// What makes the libraries that Lua has not, before the state is closed.
const LIBRARIES: &[fn(&mut Lua) -> LuaResult<()>] = &[
    api::open,
    lib_bit::open,
    lib_coroutine::open,
    lib_lua::open,
    lib_msgpack::open,
    lib_struct::open,
];

/// An interpreter with the functions that scripts may call.
pub(super) struct Engine {
    pub(super) lua: Lua,
    /// What scripts see as global variables.
    pub(super) globals: Table,
    protect: Function,
    on_error: Function,
    kept: Kept,
}

/// Looks at the limits.
fn look(state: &mut LuaState) -> LuaResult<u32> {
    if running(super::Running::is_over).unwrap_or(true) {
        return Err(api::end_script(state));
    }
    memory::look(state, LOOK_INSTRUCTIONS as usize)?;
    Ok(0)
}

/// Makes the table that keeps functions, where no script finds it; one before is forgotten.
fn anchor_kept(lua: &mut Lua) -> LuaResult<Table> {
    let table = lua.create_table();
    let key = lua.create_string(b"kept functions");
    let state = lua.state_mut();
    Table::from_gc_ref(state.registry).raw_set(state, key, Val::Table(table.gc_ref()))?;
    state.gc.barrier_back(state.registry);
    Ok(table)
}

impl Engine {
    pub(super) fn new() -> LuaResult<Self> {
        Self::with(LIBRARIES)
    }

    /// One for code that sees none of the libraries: compiling `cjson`, which is written in Lua,
    /// takes most of the time of making one.
    pub(super) fn for_loading() -> LuaResult<Self> {
        Self::with(&[api::open])
    }

    fn with(libraries: &[fn(&mut Lua) -> LuaResult<()>]) -> LuaResult<Self> {
        let own = StdLib::BASE | StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let mut lua = Lua::new_with(own)?;
        let globals = Table::from_gc_ref(lua.state_mut().global);
        let anchor = |lua: &mut Lua, name: &str, function| -> LuaResult<Function> {
            lua.register_function(name, function)?;
            let value = lua.get_global_val(name);
            let key = lua.create_string(name.as_bytes());
            let registry = Table::from_gc_ref(lua.state_mut().registry);
            registry.raw_set(lua.state_mut(), key, value)?;
            lua.set_global_val(name, Val::Nil)?;
            match value {
                Val::Function(function) => Ok(Function::from_gc_ref(function)),
                _ => Err(runtime_error("no function")),
            }
        };
        let protect = anchor(&mut lua, "protected run", base::lua_xpcall)?;
        let on_error = anchor(&mut lua, "on error", api::on_error)?;
        let hook = anchor(&mut lua, "look", look)?;
        joins::open(&mut lua)?;
        for open in libraries {
            open(&mut lua)?;
        }
        sandbox::close(&mut lua, globals)?;
        let anchor = anchor_kept(&mut lua)?;
        let kept = Kept { anchor, by_sha: HashMap::new(), source_bytes: 0 };
        let state = lua.state_mut();
        state.hook.hook_func = Val::Function(hook.gc_ref());
        state.gc.set_alloc_limit(MEMORY_BYTES_MAX);
        // Each collection is done as a whole: between its steps the interpreter would hand out
        // strings that the rest of the collection takes away.
        state.gc.gc_state.gc_stepmul = 0;
        state.rng_state = Random::new().next();
        Ok(Self { lua, globals, protect, on_error, kept })
    }

    /// Returns true if the state is worth keeping.
    pub(super) fn is_small(&mut self) -> bool {
        let state = self.lua.state_mut();
        let stack = state.stack.capacity() * size_of::<Val>();
        state.gc.gc_state.total_bytes.saturating_add(stack) < KEPT_BYTES_MAX
    }

    /// Compiles a script.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn compile(&mut self, source: &[u8]) -> Result<Function, End> {
        self.compile_named(source, "@user_script").map_err(|why| {
            End::Text(format!("ERR Error compiling script (new function): {why}").into())
        })
    }

    /// Compiles what has a name.
    pub(super) fn compile_named(&mut self, source: &[u8], name: &str) -> Result<Function, String> {
        if source.first() == Some(&0x1b) {
            let name = name.trim_start_matches('@');
            return Err(format!("{name}: bad header in precompiled chunk"));
        }
        joins::load(&mut self.lua, source, name).map_err(|error| error.to_string())
    }

    /// A table of strings. No collection takes place before a function of Lua runs.
    pub(super) fn list(&mut self, words: &[&[u8]]) -> LuaResult<Val> {
        let state = self.lua.state_mut();
        memory::check(state, words.iter().map(|word| word.len()).sum())?;
        let table = state.create_table();
        for (at, word) in words.iter().enumerate() {
            let word = state.create_string(word);
            #[expect(clippy::cast_precision_loss, reason = "few")]
            table.raw_set(state, Val::Num((at + 1) as f64), word)?;
        }
        Ok(Val::Table(table.gc_ref()))
    }

    /// Has what runs next looked at, from its first instructions on.
    pub(super) fn limit(&mut self) {
        let state = self.lua.state_mut();
        state.hook.hook_mask = MASK_COUNT;
        state.hook.allow_hook = true;
        (state.hook.base_hook_count, state.hook.hook_count) =
            (LOOK_INSTRUCTIONS, LOOK_INSTRUCTIONS);
    }

    /// The function of a script with this SHA-1, which is compiled if none is kept.
    fn function(&mut self, sha: &str, source: &[u8]) -> Result<Function, End> {
        if let Some(function) = self.kept.by_sha.get(sha) {
            return Ok(*function);
        }
        let function = self.compile(source)?;
        if source.len() > KEPT_SOURCE_BYTES_MAX {
            return Ok(function);
        }
        let failed = |error: rilua::LuaError| End::Text(format!("ERR {error}").into());
        if self.kept.source_bytes + source.len() > KEPT_SOURCE_BYTES_MAX {
            self.kept.anchor = anchor_kept(&mut self.lua).map_err(failed)?;
            self.kept.by_sha.clear();
            self.kept.source_bytes = 0;
        }
        let state = self.lua.state_mut();
        let key = state.create_string(sha.as_bytes());
        let anchor = self.kept.anchor;
        anchor.raw_set(state, key, Val::Function(function.gc_ref())).map_err(failed)?;
        state.gc.barrier_back(anchor.gc_ref());
        self.kept.by_sha.insert(sha.to_owned(), function);
        self.kept.source_bytes += source.len();
        Ok(function)
    }

    /// Runs a script and writes its reply.
    pub(super) fn run(
        &mut self,
        (sha, source): (&str, &[u8]),
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        out: &mut Reply,
    ) -> Result<(), End> {
        let failed = |error: rilua::LuaError| End::Text(format!("ERR {error}").into());
        let function = self.function(sha, source)?;
        for (name, words) in [("KEYS", keys), ("ARGV", arguments)] {
            let table = self.list(words).map_err(failed)?;
            let state = self.lua.state_mut();
            let name = state.create_string(name.as_bytes());
            self.globals.raw_set(state, name, table).map_err(failed)?;
            state.gc.barrier_back(self.globals.gc_ref());
        }
        self.run_function(function, out)
    }

    /// Runs a function without arguments, within the limits, and writes its reply.
    pub(super) fn run_function(&mut self, function: Function, out: &mut Reply) -> Result<(), End> {
        let failed = |error: rilua::LuaError| End::Text(format!("ERR {error}").into());
        self.limit();
        let function = Val::Function(function.gc_ref());
        let on_error = Val::Function(self.on_error.gc_ref());
        let values = self.lua.call_function(&self.protect, &[function, on_error]);
        let values = values.map_err(failed)?;
        let value = values.get(1).copied().unwrap_or(Val::Nil);
        let state = self.lua.state_mut();
        if values.first() == Some(&Val::Bool(true)) {
            convert::reply(state, value, out);
        } else {
            convert::error(state, value, out);
        }
        Ok(())
    }
}
