//! The libraries `cjson` and `cmsgpack`, which are written in Lua: so the limits of scripts hold in
//! them as well.

use rilua::{Lua, LuaApiMut, LuaResult, Val};

use super::joins;

/// Makes the libraries global.
///
/// # Errors
///
/// If there is no memory for them.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    // As in Redis: light user data, a pointer to nothing.
    lua.set_global_val("cjson_null", Val::LightUserdata(0))?;
    for source in [include_str!("cjson.lua"), include_str!("cmsgpack.lua")] {
        joins::exec(lua, source)?;
    }
    Ok(())
}
