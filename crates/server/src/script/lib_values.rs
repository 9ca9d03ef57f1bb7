//! What the libraries of scripts share: arguments, values and the bounds of what a call makes.

use rilua::{Lua, LuaApiMut, LuaResult, RustFn, Table, Val, runtime_error, vm::state::LuaState};

use super::memory;

/// The most bytes that one call of a library makes, as text or as values. Redis has no such bound:
/// its scripts take memory until the machine has none.
pub(super) const MAX_MADE: usize = 64 << 20;

/// How many values a function of Lua may have on its stack (`LUAI_MAXCSTACK` of Lua 5.1).
pub(super) const MAX_VALUES: usize = 8000;

/// The estimate of what an entry of a table takes: an entry of its hash part, as the collector of
/// the interpreter counts it.
const ENTRY_BYTES: usize = 32;

/// Makes a table of functions and sets it as a global.
pub(super) fn register(
    lua: &mut Lua,
    name: &str,
    functions: &[(&str, RustFn)],
) -> LuaResult<Table> {
    let library = lua.create_table();
    for (function, pointer) in functions {
        lua.table_set_function(&library, function, *pointer)?;
    }
    lua.set_global(name, library)?;
    Ok(library)
}

/// How many arguments the function was called with.
pub(super) fn arguments(state: &LuaState) -> usize {
    state.top.saturating_sub(state.base)
}

/// The bytes of a string; none if the value is another.
pub(super) fn bytes_of(state: &LuaState, value: Val) -> &[u8] {
    match value {
        Val::Str(string) => state.gc.string_arena.get(string).map_or(&[], |string| string.data()),
        _ => &[],
    }
}

/// Lets the function return one string.
///
/// # Errors
///
/// If the script's memory does not suffice for it.
pub(super) fn return_bytes(state: &mut LuaState, bytes: &[u8]) -> LuaResult<u32> {
    memory::reserve(state, bytes.len())?;
    let string = state.gc.intern_string(bytes);
    state.push(Val::Str(string));
    Ok(1)
}

/// Text that a call makes.
#[derive(Default)]
pub(super) struct Output(Vec<u8>);

impl Output {
    /// Adds bytes.
    ///
    /// # Errors
    ///
    /// If the text were larger than [`MAX_MADE`].
    pub(super) fn add(&mut self, bytes: &[u8]) -> LuaResult<()> {
        if bytes.len() > MAX_MADE - self.0.len() {
            return Err(runtime_error("not enough memory"));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Values that a call makes. The collector does not run within a call of a library, so what it
/// made needs no root until it is returned.
#[derive(Default)]
pub(super) struct Maker {
    made: usize,
}

impl Maker {
    fn count(&mut self, bytes: usize) -> LuaResult<()> {
        self.made = self.made.saturating_add(bytes);
        if self.made > MAX_MADE {
            return Err(runtime_error("not enough memory"));
        }
        Ok(())
    }

    /// A string of these bytes.
    pub(super) fn string(&mut self, state: &mut LuaState, bytes: &[u8]) -> LuaResult<Val> {
        self.count(bytes.len().saturating_add(ENTRY_BYTES))?;
        memory::check(state, bytes.len())?;
        Ok(Val::Str(state.gc.intern_string(bytes)))
    }

    /// An empty table.
    ///
    /// # Errors
    ///
    /// If the script's memory does not suffice for it.
    pub(super) fn table(&mut self, state: &mut LuaState) -> LuaResult<Table> {
        memory::check(state, ENTRY_BYTES)?;
        Ok(state.create_table())
    }

    /// Adds an entry to a table that was made by [`Maker::table`] and that `filled` entries were
    /// added to.
    ///
    /// # Errors
    ///
    /// If the script's memory does not suffice for it, or there can be no such key. That error does
    /// not say where the script is, as in Redis.
    pub(super) fn entry(
        &mut self,
        state: &mut LuaState,
        (table, filled): (Table, usize),
        key: Val,
        value: Val,
    ) -> LuaResult<()> {
        let size = |state: &LuaState| {
            let table = state.gc.tables.get(table.gc_ref())?;
            Some((table.estimated_memory(), table.array_len(), table.hash_size() as usize))
        };
        let (bytes, array, hash) = size(state).unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "places of a table are floats")]
        let has_place = match key {
            Val::Num(place) if place >= 1.0 && place <= array as f64 => true,
            _ => filled < hash,
        };
        // It grows to twice its size if there is no place.
        if !has_place {
            memory::check(state, bytes.max(ENTRY_BYTES))?;
        }
        if let Err(error) = table.raw_set(state, key, value) {
            state.error_object = Some(state.create_string(error.to_string().as_bytes()));
            return Err(error);
        }
        // The interpreter counts tables where it makes them.
        let grew = size(state).unwrap_or_default().0.saturating_sub(bytes);
        state.gc.gc_state.track_alloc(grew);
        Ok(())
    }
}

/// What the tests of the libraries run scripts with.
#[cfg(test)]
pub(super) mod testing {
    use rilua::{Lua, LuaApiMut, LuaResult, StdLib, Val};

    /// What a script returns or fails with, as text: strings as they are, other values as
    /// `tostring` has them, several with a bar between them.
    pub(in super::super) fn run(
        open: impl Fn(&mut Lua) -> LuaResult<()>,
        source: &[u8],
    ) -> Vec<u8> {
        let mut lua =
            Lua::new_with(StdLib::BASE | StdLib::STRING | StdLib::TABLE | StdLib::MATH).unwrap();
        open(&mut lua).unwrap();
        let script = lua.load_bytes(source, "@user_script").unwrap();
        match lua.call_function(&script, &[]) {
            Ok(values) => {
                let texts = values.iter().map(|value| match value {
                    Val::Str(_) => lua.val_as_bytes(*value).unwrap_or_default().to_vec(),
                    other => other.to_string().into_bytes(),
                });
                texts.collect::<Vec<_>>().join(&b'|')
            }
            Err(error) => error.to_string().into_bytes(),
        }
    }

    /// Asserts what scripts return. Each case is a script and its answer.
    pub(in super::super) fn check(open: fn(&mut Lua) -> LuaResult<()>, cases: &[(&str, &str)]) {
        for (source, expected) in cases {
            let got = run(open, source.as_bytes());
            assert_eq!(String::from_utf8_lossy(&got), *expected, "{source}");
        }
    }
}
