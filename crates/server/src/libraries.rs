//! Libraries of functions on the disk: their code lies in the keyspace of the server, by name.

use std::sync::Arc;

use rhumb::Result;

use crate::{
    commit,
    db::Databases,
    encode::format::SYSTEM_FUNCTION,
    log::{Event, Log},
    script::{self, Functions, Libraries},
};

fn key(name: &str) -> Vec<u8> {
    [SYSTEM_FUNCTION, name.as_bytes()].concat()
}

/// The libraries that the data have. One that cannot be loaded any more is told of in the log, and
/// stays on the disk.
///
/// # Errors
///
/// From the engine.
pub(crate) fn open(databases: &Databases, log: &Log) -> Result<Functions> {
    let mut libraries = Libraries::default();
    for pair in databases.system.prefix(SYSTEM_FUNCTION) {
        let (name, code) = pair?;
        let loaded = script::load(&code, None).and_then(|library| {
            let mut with = libraries.clone();
            with.add(vec![Arc::new(library)], false)?;
            libraries = with;
            Ok(())
        });
        if let Err(why) = loaded {
            let name = String::from_utf8_lossy(&name[SYSTEM_FUNCTION.len()..]).into_owned();
            let fields = [("library", name.into()), ("why", why.into())];
            log.write(Event::LibraryFailed, "a library of functions cannot be loaded", &fields);
        }
    }
    let functions = Functions::default();
    functions.set(libraries);
    Ok(functions)
}

/// Puts these libraries in the place of all others: on the disk, and then for all clients. The
/// caller holds [`Functions::change`].
///
/// # Errors
///
/// From the engine; nothing is changed then.
pub(crate) fn put(databases: &Databases, functions: &Functions, all: Libraries) -> Result<()> {
    let before = functions.present();
    let mut batch = databases.engine.batch();
    for library in before.iter().filter(|library| !all.has(&library.name)) {
        batch.remove(&databases.system, key(&library.name));
    }
    for library in all.iter() {
        let is_new = !before.iter().any(|other| Arc::ptr_eq(other, library));
        if is_new {
            batch.insert(&databases.system, key(&library.name), &library.code[..]);
        }
    }
    if !batch.is_empty() {
        commit::batch(databases, batch)?;
    }
    functions.set(all);
    Ok(())
}
