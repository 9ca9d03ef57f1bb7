//! Libraries of functions on the disk: their code lies in the keyspace of the server, by name.

use std::sync::Arc;

use rhumb::Result;

use crate::{
    commit,
    db::Databases,
    encode::format::SYSTEM_FUNCTION,
    log::{Event, Log},
    script::{self, Functions, Libraries, Library},
    txn::Writes,
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

/// The writes that make one set of libraries another one.
pub(crate) fn changes(before: &Libraries, all: &Libraries) -> Writes {
    let gone = before.iter().filter(|library| !all.has(&library.name));
    let gone = gone.map(|library| (key(&library.name), None));
    let is_new = |library: &&Arc<Library>| !before.iter().any(|other| Arc::ptr_eq(other, library));
    let new = all.iter().filter(is_new);
    gone.chain(new.map(|library| (key(&library.name), Some(library.code.to_vec())))).collect()
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
    for (key, code) in changes(&before, &all) {
        match code {
            Some(code) => batch.insert(&databases.system, key, code),
            None => batch.remove(&databases.system, key),
        }
    }
    if !batch.is_empty() {
        commit::batch(databases, batch)?;
    }
    functions.set(all);
    Ok(())
}
