//! How a command is committed: by itself, or in the turn of its worker. It takes the locks that the
//! command's row in the table asks for.

use std::{sync::Arc, time::Instant};

use crate::{
    command::{Client, Command, Context, Flags, Locking, keys_of},
    config::Fsync,
    db::{Databases, now_ms},
    locks::Held,
    resp::{Args, Reply},
    server::Server,
    turn::{Ticket, Turn},
    txn::Txn,
};

/// Takes the locks that a command asks for when it is run by itself. The worker's turn is closed
/// first, unless the command needs none of its locks and waits for no others.
fn lock<'s>(databases: &'s Databases, turn: &Turn, command: &Command, args: Args<'_>) -> Held<'s> {
    let (locks, is_one) = (&databases.locks, command.keys.last == 1);
    let is_slow = command.flags.has(Flags::SLOW);
    match command.locking {
        Locking::Nothing | Locking::Snapshot if !is_slow => return Held::Nothing,
        Locking::Shared if is_one => {
            if let Some(held) = locks.try_shared(args.at(1)) {
                databases.settle();
                return held;
            }
        }
        _ => {}
    }
    turn.close(databases);
    let held = match command.locking {
        Locking::Nothing | Locking::Snapshot => return Held::Nothing,
        Locking::Everything => locks.everything(),
        Locking::Shared if is_one => locks.shared(args.at(1)),
        Locking::Shared => locks.many_shared(keys_of(command, args)),
        Locking::Exclusive if is_one => locks.exclusive(args.at(1)),
        Locking::Exclusive => locks.many_exclusive(keys_of(command, args)),
    };
    databases.settle();
    held
}

/// Whether a command may join the turn of its worker: it writes keys that it names, takes little
/// time, and others may share its commit.
pub(crate) fn may_join(server: &Server, command: &Command) -> bool {
    command.locking == Locking::Exclusive
        && !command.flags.has(Flags::SLOW)
        && server.clients.count() > 1
        && server.databases.fsync() != Fsync::Always
}

/// Runs one command in the turn of its worker; what it replies holds if the turn does, of which it
/// returns the ticket. Without one it has failed, and has replied so.
pub(crate) fn join(
    server: &Server,
    client: &mut Client,
    out: &mut Reply,
    command: &Command,
    args: Args<'_>,
) -> Option<Ticket> {
    let (databases, from, turn) = (&server.databases, out.len(), Arc::clone(&client.turn));
    let joined = turn.join(databases, keys_of(command, args), |pending| {
        let number = databases.number(client.database);
        let mut txn = Txn::new(databases, number, now_ms());
        std::mem::swap(&mut txn.pending, pending);
        let place = txn.pending.place();
        let client = &mut *client;
        let mut context = Context { server, client, txn, out: &mut *out, in_exec: false };
        let done = (command.run)(&mut context, args);
        std::mem::swap(&mut context.txn.pending, pending);
        pending.end(place);
        done
    });
    match joined {
        Ok(ticket) => Some(ticket),
        Err(fault) => {
            out.truncate(from);
            fault.tell(databases, out);
            None
        }
    }
}

/// Runs one command by itself: locks, handler, commit, reply.
pub(crate) fn execute(
    server: &Server,
    client: &mut Client,
    out: &mut Reply,
    command: &Command,
    args: Args<'_>,
) {
    let (from, began) = (out.len(), Instant::now());
    let locks = lock(&server.databases, &client.turn, command, args);
    let txn = Txn::new(&server.databases, server.databases.number(client.database), now_ms());
    let mut context = Context { server, client, txn, out: &mut *out, in_exec: false };
    let done = (command.run)(&mut context, args);
    let done = done.and_then(|()| Ok(context.txn.commit()?));
    drop(locks);
    if let Err(fault) = done {
        out.truncate(from);
        fault.tell(&server.databases, out);
    }
    let took = began.elapsed();
    if server.is_slow(took) {
        let keys = keys_of(command, args).count();
        server.note_slow(&client.info, command.name, (1, keys), took);
    }
}
