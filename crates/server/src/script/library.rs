//! A state of the interpreter with libraries of functions in it.
//!
//! While a library is loaded its code sees nothing but what registers functions; afterwards its
//! functions see what scripts see.

use std::{cell::RefCell, collections::HashSet, sync::atomic::AtomicBool};

use rilua::{LuaApiMut, LuaResult, Table, Val, runtime_error, vm::state::LuaState};

use super::{
    End, api,
    api::{argument, raise},
    convert,
    engine::Engine,
    functions::{Function, Head, Libraries, Library, check_name, flag_bit},
    joins, sandbox,
};
use crate::resp::Reply;

/// Calls a function with two arguments, as something that is called without any.
const BIND: &str = "local f, k, a = ... return function() return f(k, a) end";

const READ_ONLY_LOAD: &str = "redis.register_function can only be called on FUNCTION LOAD command";

thread_local! {
    /// What the library that is loaded has registered, and the table of its callbacks.
    static LOADING: RefCell<Option<(Vec<Function>, Table)>> = const { RefCell::new(None) };
}

/// A state with libraries.
pub(super) struct LibraryEngine {
    engine: Engine,
    loaded: HashSet<u64>,
    /// What code sees while it is loaded, and afterwards.
    views: (Val, Val),
    bind: rilua::Function,
}

/// The key of the registry under which a library's callbacks lie.
fn callbacks_key(state: &mut LuaState, id: u64) -> Val {
    state.create_string(format!("library {id}").as_bytes())
}

impl LibraryEngine {
    pub(super) fn new() -> LuaResult<Self> {
        Self::with(Engine::new()?)
    }

    /// One that a library is loaded in, and none of its functions run.
    pub(super) fn for_loading() -> LuaResult<Self> {
        Self::with(Engine::for_loading()?)
    }

    fn with(mut engine: Engine) -> LuaResult<Self> {
        let lua = &mut engine.lua;
        let redis = lua.create_table();
        let api = lua.create_table();
        let anchor = lua.create_string(b"library api");
        let registry = Table::from_gc_ref(lua.state_mut().registry);
        registry.raw_set(lua.state_mut(), anchor, Val::Table(api.gc_ref()))?;
        lua.table_set_function(&redis, "register_function", register_function)?;
        api::add_log_and_version(lua, &redis)?;
        let shown = sandbox::protect_strict(lua, redis)?;
        let key = lua.create_string(b"redis");
        lua.table_raw_set(&api, key, Val::Table(shown.gc_ref()))?;
        sandbox::refuse_absent(lua, api)?;
        let bind = joins::load(lua, BIND.as_bytes(), "=bind")?;
        let anchor = lua.create_string(b"library bind");
        registry.raw_set(lua.state_mut(), anchor, Val::Function(bind.gc_ref()))?;
        let views = (Val::Table(api.gc_ref()), Val::Table(engine.globals.gc_ref()));
        Ok(Self { engine, loaded: HashSet::new(), views, bind })
    }

    /// Returns true if no library is in it that is gone, and it is worth keeping.
    pub(super) fn is_fit_for(&mut self, libraries: &Libraries) -> bool {
        self.engine.is_small() && self.loaded.iter().all(|id| libraries.has_id(*id))
    }

    fn show(&mut self, view: Val) -> LuaResult<()> {
        let state = self.engine.lua.state_mut();
        let meta = state.gc.tables.get(state.global).and_then(|global| global.metatable());
        let Some(meta) = meta else { return Err(runtime_error("no globals")) };
        let key = state.create_string(b"__index");
        Table::from_gc_ref(meta).raw_set(state, key, view)?;
        state.gc.barrier_back(meta);
        Ok(())
    }

    /// Runs the code of a library, which registers its functions.
    pub(super) fn load(&mut self, code: &[u8]) -> Result<Library, String> {
        let head = Head::parse(code)?;
        let failed = |error: rilua::LuaError| error.to_string();
        let callbacks = self.engine.lua.create_table();
        let state = self.engine.lua.state_mut();
        let key = callbacks_key(state, 0);
        let registry = Table::from_gc_ref(state.registry);
        registry.raw_set(state, key, Val::Table(callbacks.gc_ref())).map_err(failed)?;
        state.gc.barrier_back(registry.gc_ref());
        let ran = self.run_code(head.body, callbacks);
        let functions = LOADING.take().map(|(functions, _)| functions).unwrap_or_default();
        ran?;
        if functions.is_empty() {
            return Err("No functions registered".to_owned());
        }
        let library = Library::new(head.name, code, functions);
        let state = self.engine.lua.state_mut();
        let key = callbacks_key(state, library.id);
        registry.raw_set(state, key, Val::Table(callbacks.gc_ref())).map_err(failed)?;
        state.gc.barrier_back(registry.gc_ref());
        self.loaded.insert(library.id);
        Ok(library)
    }

    fn run_code(&mut self, body: &[u8], callbacks: Table) -> Result<(), String> {
        let failed = |error: rilua::LuaError| error.to_string();
        self.show(self.views.0).map_err(failed)?;
        let ran = self
            .engine
            .compile_named(body, "@user_function")
            .map_err(|error| format!("Error compiling function: {error}"));
        let ran = ran.and_then(|function| {
            LOADING.set(Some((Vec::new(), callbacks)));
            self.engine.limit();
            self.engine.lua.call_function(&function, &[]).map(drop).map_err(|error| {
                let state = self.engine.lua.state_mut();
                let object = state.error_object.take();
                let text = match object {
                    Some(Val::Table(table)) => {
                        let text = convert::field(state, Table::from_gc_ref(table), "err");
                        convert::bytes(state, text)
                    }
                    Some(other) => {
                        convert::bytes(state, other).map(|text| [b"ERR ", &text[..]].concat())
                    }
                    None => None,
                };
                let text = text.map_or(format!("ERR {error}"), |text| {
                    String::from_utf8_lossy(&text).into_owned()
                });
                format!("Error registering functions: {text}")
            })
        });
        self.show(self.views.1).map_err(failed)?;
        ran
    }

    /// Loads a library again, as it was loaded before by another state.
    pub(super) fn ensure(&mut self, library: &Library) -> Result<(), End> {
        if self.loaded.contains(&library.id) {
            return Ok(());
        }
        let failed = |text: String| End::Text(format!("ERR {text}").into());
        let loaded = self.load(&library.code).map_err(failed)?;
        let state = self.engine.lua.state_mut();
        let (from, to) = (callbacks_key(state, loaded.id), callbacks_key(state, library.id));
        let registry = Table::from_gc_ref(state.registry);
        let moved = registry.raw_get(state, from).and_then(|callbacks| {
            registry.raw_set(state, to, callbacks)?;
            registry.raw_set(state, from, Val::Nil)
        });
        state.gc.barrier_back(registry.gc_ref());
        moved.map_err(|error| failed(error.to_string()))?;
        self.loaded.remove(&loaded.id);
        self.loaded.insert(library.id);
        Ok(())
    }

    /// Calls a function of a library that is loaded.
    pub(super) fn call(
        &mut self,
        library: &Library,
        name: &str,
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        out: &mut Reply,
    ) -> Result<(), End> {
        let failed = |error: rilua::LuaError| End::Text(format!("ERR {error}").into());
        let state = self.engine.lua.state_mut();
        let key = callbacks_key(state, library.id);
        let callbacks = Table::from_gc_ref(state.registry).raw_get(state, key).map_err(failed)?;
        let Val::Table(callbacks) = callbacks else {
            return Err(End::Text("ERR Function not found".into()));
        };
        let key = state.create_string(name.as_bytes());
        let callback = Table::from_gc_ref(callbacks).raw_get(state, key).map_err(failed)?;
        // The collector rests until both tables are on the stack of the call.
        let keys = self.engine.list(keys).map_err(failed)?;
        let arguments = self.engine.list(arguments).map_err(failed)?;
        let bound = self.engine.lua.call_function(&self.bind, &[callback, keys, arguments]);
        match bound.map_err(failed)?.first() {
            Some(Val::Function(bound)) => {
                self.engine.run_function(rilua::Function::from_gc_ref(*bound), out)
            }
            _ => Err(End::Text("ERR Function not found".into())),
        }
    }
}

/// What a call of `redis.register_function` names.
#[derive(Default)]
struct Named {
    name: Option<Vec<u8>>,
    description: Option<Vec<u8>>,
    callback: Option<Val>,
    flags: u8,
}

fn text_of(state: &LuaState, value: Val) -> Option<Vec<u8>> {
    convert::bytes(state, value)
}

/// Reads a list of flags.
fn flags_of(state: &LuaState, table: Table) -> Option<u8> {
    let mut flags = 0;
    let mut at = 1.0;
    loop {
        let value = table.raw_get(state, Val::Num(at)).ok()?;
        if value.is_nil() {
            return Some(flags);
        }
        flags |= flag_bit(&text_of(state, value)?)?;
        at += 1.0;
    }
}

/// Reads the table of a call of `redis.register_function` that has one.
fn named(state: &LuaState) -> Result<Named, &'static str> {
    let Val::Table(table) = argument(state, 0) else {
        return Err("calling redis.register_function with a single argument is only applicable \
                    to Lua table (representing named arguments).");
    };
    let mut named = Named::default();
    let mut key = Val::Nil;
    let next = |key| {
        let table = state.gc.tables.get(table)?;
        table.next(key, &state.gc.string_arena).ok()?
    };
    while let Some((name, value)) = next(key) {
        key = name;
        let Some(name) = text_of(state, name) else {
            return Err("named argument key given to redis.register_function is not a string");
        };
        match &name.to_ascii_lowercase()[..] {
            b"function_name" => {
                named.name = Some(text_of(state, value).ok_or(
                    "function_name argument given to redis.register_function must be a string",
                )?)
            }
            b"description" => {
                named.description = Some(text_of(state, value).ok_or(
                    "description argument given to redis.register_function must be a string",
                )?)
            }
            b"callback" => {
                let Val::Function(_) = value else {
                    return Err("callback argument given to redis.register_function must be a \
                                function");
                };
                named.callback = Some(value);
            }
            b"flags" => {
                let Val::Table(flags) = value else {
                    return Err("flags argument to redis.register_function must be a table \
                                representing function flags");
                };
                let flags = flags_of(state, Table::from_gc_ref(flags));
                named.flags = flags.ok_or("unknown flag given")?;
            }
            _ => return Err("unknown argument given to redis.register_function"),
        }
    }
    Ok(named)
}

/// Reads the two arguments of a call of `redis.register_function` that has them.
fn positional(state: &LuaState) -> Result<Named, &'static str> {
    let Some(name) = text_of(state, argument(state, 0)) else {
        return Err("first argument to redis.register_function must be a string");
    };
    let Val::Function(_) = argument(state, 1) else {
        return Err("second argument to redis.register_function must be a function");
    };
    Ok(Named { name: Some(name), callback: Some(argument(state, 1)), ..Named::default() })
}

/// `redis.register_function`.
fn register_function(state: &mut LuaState) -> LuaResult<u32> {
    let count = state.top.saturating_sub(state.base);
    if LOADING.with_borrow(Option::is_none) {
        return raise(state, &format!("ERR {READ_ONLY_LOAD}"));
    }
    let named = match count {
        1 => named(state),
        2 => positional(state),
        _ => Err("wrong number of arguments to redis.register_function"),
    };
    let checked = named.map_err(str::to_owned).and_then(|named| {
        let name = named.name.ok_or("redis.register_function must get a function name argument")?;
        let callback =
            named.callback.ok_or("redis.register_function must get a callback argument")?;
        let name = check_name(&name)?;
        let function = Function {
            name,
            description: named.description,
            flags: named.flags,
            needs_everything: AtomicBool::new(false),
        };
        Ok((function, callback))
    });
    let (function, callback) = match checked {
        Ok(checked) => checked,
        Err(text) => return raise(state, &format!("ERR {text}")),
    };
    let key = state.create_string(function.name.as_bytes());
    let table = LOADING.with_borrow_mut(|loading| {
        let (functions, table) = loading.as_mut()?;
        if functions.iter().any(|other| other.name == function.name) {
            return None;
        }
        functions.push(function);
        Some(*table)
    });
    let Some(table) = table else {
        return raise(state, "ERR Function already exists in the library");
    };
    table.raw_set(state, key, callback)?;
    state.gc.barrier_back(table.gc_ref());
    Ok(0)
}
