//! Coroutines: those of the interpreter, held to the limits of the script that resumes them.

use std::cell::Cell;

use rilua::{
    Lua, LuaResult, Val,
    stdlib::coroutine::{co_create, co_resume, co_running, co_status, co_yield},
    vm::{
        callinfo::CallInfo,
        state::{LuaState, LuaThread},
    },
};

use super::{
    MEMORY_BYTES_MAX,
    api::{argument, end_script, located},
    is_ended, joins,
    lib_values::register,
    memory,
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
    joins::exec(lua, WRAP)
}

thread_local! {
    /// Bytes that the stacks of coroutines grew by since they were counted.
    static GREW: Cell<usize> = const { Cell::new(0) };
}

/// What the stacks of a coroutine take, which the interpreter does not count.
fn stack_bytes(thread: &LuaThread) -> usize {
    thread.stack.capacity() * size_of::<Val>()
        + thread.call_stack.capacity() * size_of::<CallInfo>()
}

/// What the stacks of all coroutines take.
fn all_stacks(state: &LuaState) -> usize {
    state.gc.threads.iter().map(|(_, thread, _)| stack_bytes(thread)).sum()
}

/// Counts the growth of a stack. Once there was enough of it, all stacks are counted with the
/// other memory of the script, and what nobody uses is collected before it is refused.
fn note_growth(state: &mut LuaState, bytes: usize) -> LuaResult<()> {
    let grew = GREW.get().saturating_add(bytes);
    GREW.set(grew);
    if grew < MEMORY_BYTES_MAX / 8 {
        return Ok(());
    }
    GREW.set(0);
    if memory::check(state, all_stacks(state)).is_err() {
        state.full_gc()?;
    }
    memory::check(state, all_stacks(state))
}

/// As Lua's; what the coroutine does counts as the script's.
fn resume(state: &mut LuaState) -> LuaResult<u32> {
    let Val::Thread(thread) = argument(state, 0) else {
        return Err(located(state, "bad argument #1 to 'resume' (coroutine expected)"));
    };
    let (hook, depth) = (state.hook.clone(), state.call_depth.saturating_add(LEVELS));
    let mut before = 0;
    if let Some(thread) = state.gc.threads.get_mut(thread) {
        thread.hook = hook;
        thread.call_depth = depth;
        before = stack_bytes(thread);
    }
    let count = co_resume(state)?;
    if is_ended() {
        return Err(end_script(state));
    }
    let after = state.gc.threads.get(thread).map_or(0, stack_bytes);
    note_growth(state, after.saturating_sub(before))?;
    Ok(count)
}
