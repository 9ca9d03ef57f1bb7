//! The libraries `cjson` and `cmsgpack`, which are written in Lua: so the limits of scripts hold in
//! them as well.

use rilua::{Lua, LuaResult};

/// Makes the libraries global.
///
/// # Errors
///
/// If there is no memory for them.
pub(super) fn open(lua: &mut Lua) -> LuaResult<()> {
    for source in [include_str!("cjson.lua"), include_str!("cmsgpack.lua")] {
        lua.exec(source)?;
    }
    Ok(())
}
