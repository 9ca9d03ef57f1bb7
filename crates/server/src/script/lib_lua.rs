//! The library `cjson`, which is written in Lua: so the limits of scripts hold in it as well.

use rilua::{Lua, LuaApiMut, LuaResult, Val};

use super::joins;

/// Makes the library global.
///
/// # Errors
///
/// If there is no memory for it.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    // As in Redis: light user data, a pointer to nothing.
    lua.set_global_val("cjson_null", Val::LightUserdata(0))?;
    joins::exec(lua, include_str!("cjson.lua"))
}
