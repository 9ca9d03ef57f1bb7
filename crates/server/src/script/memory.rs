//! The memory of a script: counting it, and asking for more before it is taken.
//!
//! What the interpreter counts is too little: it leaves out what functions add to tables, and at
//! each of its collections forgets what strings and tables hold. It looks at its limit where Lua
//! code makes tables, closures and strings, and not where functions of Rust do.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use rilua::{
    LuaError, LuaResult, Val,
    vm::{
        proto::{Proto, ProtoRef},
        state::LuaState,
    },
};

use super::MEMORY_BYTES_MAX;

/// What a string, a table and a function take beside their contents: their places in the
/// interpreter's arenas, with room to spare.
const OBJECT_BYTES: usize = 64;

/// All memory is counted before a function makes more bytes than this for each object that is
/// there: making them takes longer than counting.
const COUNTED_BYTES: usize = 16;

/// The code that a script has compiled.
#[derive(Default)]
struct Compiled {
    /// Each function, whether or not it is still used, and its bytes.
    functions: Vec<(Weak<Proto>, usize)>,
    bytes: usize,
}

thread_local! {
    /// Instructions since the memory was counted.
    static UNCOUNTED: Cell<usize> = const { Cell::new(0) };
    /// What the script that runs has compiled, which the interpreter does not count.
    static COMPILED: RefCell<Compiled> = RefCell::default();
}

/// Forgets what scripts before this one have compiled.
pub(super) fn begin() {
    COMPILED.take();
}

/// The bytes of the code of a function, without those within it.
fn code_bytes(proto: &Proto) -> usize {
    let names: usize =
        proto.local_vars.iter().map(|local| size_of_val(local) + local.name.len()).sum();
    let upvalues: usize =
        proto.upvalue_names.iter().map(|name| size_of_val(name) + name.len()).sum();
    size_of::<Proto>()
        + size_of::<(Weak<Proto>, usize)>()
        + size_of_val(&proto.code[..])
        + size_of_val(&proto.line_info[..])
        + size_of_val(&proto.constants[..])
        + size_of_val(&proto.protos[..])
        + proto.source.len()
        + names
        + upvalues
}

/// Counts a function that was compiled, and those within it.
pub(super) fn add_code(proto: &ProtoRef) {
    COMPILED.with_borrow_mut(|compiled| {
        let mut left = vec![proto];
        while let Some(proto) = left.pop() {
            let bytes = code_bytes(proto);
            compiled.functions.push((Rc::downgrade(proto), bytes));
            compiled.bytes += bytes;
            left.extend(&proto.protos);
        }
    });
}

/// Takes what was compiled and is used no more off the count.
fn forget_code() {
    COMPILED.with_borrow_mut(|compiled| {
        compiled.functions.retain(|(function, _)| function.strong_count() > 0);
        compiled.bytes = compiled.functions.iter().map(|(_, bytes)| bytes).sum();
    });
}

/// How many objects there are.
fn objects(state: &LuaState) -> usize {
    let gc = &state.gc;
    (gc.tables.len() + gc.string_arena.len() + gc.closures.len()) as usize
}

/// Counts all memory anew.
fn count(state: &mut LuaState) {
    UNCOUNTED.set(0);
    let objects = objects(state);
    let gc = &mut state.gc;
    let strings: usize = gc.string_arena.iter().map(|(_, string, _)| string.data().len()).sum();
    let tables: usize = gc.tables.iter().map(|(_, table, _)| table.estimated_memory()).sum();
    let counted = objects * OBJECT_BYTES + strings + tables;
    if counted > gc.gc_state.total_bytes {
        gc.gc_state.total_bytes = counted;
        // The next collection comes before the limit does.
        let room = MEMORY_BYTES_MAX.saturating_sub(counted) / 2;
        gc.gc_state.gc_threshold = counted + counted.min(room);
    }
}

/// Collects what nobody uses, and counts what is left.
fn collect(state: &mut LuaState) -> LuaResult<()> {
    state.full_gc()?;
    forget_code();
    count(state);
    Ok(())
}

/// Looks at the memory of a script that has run `instructions` since the last look. It is counted
/// once the script has run for long enough to be worth that.
///
/// # Errors
///
/// If the script has more than it may.
pub(super) fn look(state: &mut LuaState, instructions: usize) -> LuaResult<()> {
    let uncounted = UNCOUNTED.get() + instructions;
    UNCOUNTED.set(uncounted);
    if uncounted >= objects(state) * 4 {
        count(state);
    }
    reserve(state, 0)
}

/// Refuses bytes that the script's memory does not suffice for, without a collection.
///
/// # Errors
///
/// If the script had more than it may.
pub(super) fn check(state: &LuaState, bytes: usize) -> LuaResult<()> {
    let used = state.gc.gc_state.total_bytes + COMPILED.with_borrow(|compiled| compiled.bytes);
    if used.saturating_add(bytes) > MEMORY_BYTES_MAX { Err(LuaError::Memory) } else { Ok(()) }
}

/// Asks for memory before it is taken. What nobody uses is collected first if need be, so all that
/// the caller uses is to be on the stack.
///
/// # Errors
///
/// If the script had more than it may.
pub(super) fn reserve(state: &mut LuaState, bytes: usize) -> LuaResult<()> {
    // What can never be there needs no collection.
    if bytes > MEMORY_BYTES_MAX {
        return Err(LuaError::Memory);
    }
    if bytes / COUNTED_BYTES > objects(state) {
        count(state);
    }
    if check(state, bytes).is_ok() {
        return Ok(());
    }
    collect(state)?;
    check(state, bytes)
}

/// As [`reserve`], for memory that grows in many small steps: it is not counted at each of them.
///
/// # Errors
///
/// If the script had more than it may.
pub(super) fn grow(state: &mut LuaState, bytes: usize) -> LuaResult<()> {
    if check(state, bytes).is_ok() { Ok(()) } else { reserve(state, bytes) }
}

/// Makes room for bytes if there can be, and leaves it to [`check`] to refuse them.
///
/// # Errors
///
/// From the collection.
pub(super) fn make_room(state: &mut LuaState, bytes: usize) -> LuaResult<()> {
    match reserve(state, bytes) {
        Err(LuaError::Memory) => Ok(()),
        other => other,
    }
}

/// The bytes of a string; of other values none.
pub(super) fn len_of(state: &LuaState, value: Val) -> usize {
    let Val::Str(string) = value else { return 0 };
    state.gc.string_arena.get(string).map_or(0, |string| string.data().len())
}
