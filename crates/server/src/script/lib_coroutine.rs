//! Coroutines: those of the interpreter, held to the limits of the script that resumes them.

use rilua::{
    Lua, LuaResult, Val,
    stdlib::coroutine::{co_create, co_resume, co_running, co_status, co_yield},
    vm::state::LuaState,
};

use super::{
    api::{argument, end_script, located},
    is_ended,
    lib_values::register,
};

/// What one coroutine within another takes of the depth that calls may have: the interpreter
/// allows some two hundred levels, and a level here takes about as much stack as two of them.
const LEVELS: u16 = 2;

/// An error that a coroutine ends with is passed on with the place of the call.
const WRAP: &str = "local create, resume, error, type = coroutine.create, coroutine.resume, error, type \
    local function pass(ok, ...) \
        if ok then return ... end \
        local why = ... \
        error(why, type(why) == 'string' and 3 or 0) \
    end \
    function coroutine.wrap(f) \
        local made = create(f) \
        return function(...) return (pass)(resume(made, ...)) end \
    end";

/// Makes the library global.
///
/// # Errors
///
/// If there is no memory for it.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    let functions: [(&str, rilua::RustFn); 5] = [
        ("create", co_create),
        ("resume", resume),
        ("running", co_running),
        ("status", co_status),
        ("yield", co_yield),
    ];
    register(lua, "coroutine", &functions)?;
    lua.exec(WRAP)
}

/// As Lua's; what the coroutine does counts as the script's.
fn resume(state: &mut LuaState) -> LuaResult<u32> {
    let Val::Thread(thread) = argument(state, 0) else {
        return Err(located(state, "bad argument #1 to 'resume' (coroutine expected)"));
    };
    let (hook, depth) = (state.hook.clone(), state.call_depth.saturating_add(LEVELS));
    if let Some(thread) = state.gc.threads.get_mut(thread) {
        thread.hook = hook;
        thread.call_depth = depth;
    }
    let count = co_resume(state)?;
    if is_ended() { Err(end_script(state)) } else { Ok(count) }
}
