//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`: commands that happen together.
//!
//! `EXEC` locks the keys of all its commands, runs them over one set of pending writes, and commits
//! those as one batch: others see all of it or nothing, and so does a crash.

use std::{sync::atomic::Ordering, time::Instant};

use super::{
    COMMANDS, Client, Command, Context, Done, Flags, Group, Locking, keys_of, listening,
    permission, slowness::note_slow,
};
use crate::{
    acl::{Place, Reason},
    clients::ClientInfo,
    fault::Fault,
    locks::Held,
    places::LearnWhere,
    resp::{Args, OwnedArgs},
    server::Server,
    txn::Txn,
};

/// The most commands, and bytes of them, that an `EXEC` runs while its worker's other clients wait:
/// a command takes some microseconds.
const FEW_COMMANDS: usize = 128;
const FEW_BYTES: usize = 256 << 10;

/// The commands between `MULTI` and `EXEC`.
#[derive(Default)]
pub(crate) struct Queue {
    commands: Vec<(&'static Command, OwnedArgs)>,
    bytes: usize,
    spoiled: bool,
}

impl Queue {
    /// Adds a command.
    pub(crate) fn push(&mut self, command: &'static Command, args: Args<'_>) {
        let args = OwnedArgs::new(args.iter_from(0));
        self.bytes += args.memory();
        self.commands.push((command, args));
    }

    /// How many commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// How many bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has what `CLIENT LIST` says of the client tell of it.
    pub(crate) fn show(&self, info: &ClientInfo) {
        info.queued.store(self.len(), Ordering::Relaxed);
        info.queued_bytes.store(self.bytes, Ordering::Relaxed);
    }

    /// Returns true if a command is among them that may write.
    pub(crate) fn writes(&self) -> bool {
        self.has(|command| command.flags.has(Flags::WRITE))
    }

    /// Returns true if `is` holds for one of the commands.
    pub(crate) fn has(&self, is: impl Fn(&Command) -> bool) -> bool {
        self.commands.iter().any(|(command, _)| is(command))
    }

    /// Says that a command could not be queued.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// Returns true if the commands may be tried while other clients wait, and run again if they
    /// take long after all: they are few, and what they do is in the pending writes alone.
    fn is_brief(&self, context: &Context<'_, '_>) -> bool {
        let is_undone = |command: &Command, args: Args<'_>| {
            (command.flags.has(Flags::READ) || command.flags.has(Flags::WRITE))
                && !command.flags.has(Flags::SLOW)
                && !matches!(command.locking_of(args), Locking::Everything | Locking::Own)
        };
        self.len() <= FEW_COMMANDS
            && self.bytes <= FEW_BYTES
            && context.client.listening.is_none()
            && !context.server.databases.listeners.monitors.any()
            && self.commands().all(|(command, args)| is_undone(command, args))
    }

    fn commands(&self) -> impl Iterator<Item = (&'static Command, Args<'_>)> {
        self.commands.iter().map(|(command, args)| (*command, args.args()))
    }
}

fn set_queue(client: &mut Client, queue: Option<Queue>) -> Option<Queue> {
    match &queue {
        Some(queue) => queue.show(&client.info),
        None => {
            client.info.queued.store(usize::MAX, Ordering::Relaxed);
            client.info.queued_bytes.store(0, Ordering::Relaxed);
        }
    }
    std::mem::replace(&mut client.queue, queue)
}

/// `MULTI`.
pub(super) fn multi(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    if context.client.queue.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    set_queue(context.client, Some(Queue::default()));
    context.out.ok();
    Ok(())
}

/// `DISCARD`.
pub(super) fn discard(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    if set_queue(context.client, None).is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    unwatch_all(context.server, context.client);
    context.out.ok();
    Ok(())
}

/// `WATCH`.
pub(super) fn watch(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if context.client.queue.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    for key in args.iter_from(1) {
        let watched = (context.client.database, key.to_vec());
        if context.client.watched.contains_key(&watched) {
            continue;
        }
        let was_there = context.txn.exists(key)?;
        context.server.databases.watches.add(watched.clone(), &context.client.mark);
        context.client.watched.insert(watched, was_there);
    }
    context.out.ok();
    Ok(())
}

/// `UNWATCH`.
pub(super) fn unwatch(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    unwatch_all(context.server, context.client);
    context.out.ok();
    Ok(())
}

/// Takes back all that the client watches.
pub(crate) fn unwatch_all(server: &Server, client: &mut Client) {
    for (key, _) in client.watched.drain() {
        server.databases.watches.remove(&key, &client.mark);
    }
    client.mark.store(false, Ordering::Release);
}

/// Forgets the queue and the watched keys.
pub(crate) fn reset(server: &Server, client: &mut Client) {
    set_queue(client, None);
    unwatch_all(server, client);
}

/// Takes the locks of all commands together.
fn lock<'s>(server: &'s Server, queue: &Queue, client: &Client) -> Held<'s> {
    let locks = &server.databases.locks;
    let mut keys: Vec<&[u8]> = client.watched.iter().map(|((_, key), _)| &key[..]).collect();
    for (command, args) in queue.commands() {
        if command.group == Group::Scripting {
            return locks.everything();
        }
        match command.locking_of(args) {
            Locking::Everything | Locking::Snapshot => return locks.everything(),
            Locking::Nothing | Locking::Own | Locking::Shared | Locking::Exclusive => {}
        }
        keys.extend(keys_of(command, args));
    }
    locks.many_exclusive(keys.into_iter())
}

/// Returns true if a watched key was written, or has ended, since it was watched. One that had
/// ended before stays absent: that its bytes go is no change.
fn is_dirty(context: &mut Context<'_, '_>) -> Result<bool, Fault> {
    if context.client.mark.load(Ordering::Acquire) {
        return Ok(true);
    }
    let here = context.txn.number;
    let mut dirty = false;
    for ((database, key), was_there) in &context.client.watched {
        context.txn.number = context.server.databases.number(*database);
        dirty |= *was_there && !context.txn.exists(key)?;
    }
    context.txn.number = here;
    Ok(dirty)
}

/// The error for a command that could be queued, and that the user may not run any more.
fn no_longer_allowed(reason: Reason) -> String {
    let why = match reason {
        Reason::Command | Reason::Auth => "no permission to execute the command or subcommand",
        Reason::Key => "no permission to touch the specified keys",
        Reason::Channel => "no permission to access one of the channels used as arguments",
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
         call. This command is no longer allowed for the following reason: {why}"
    )
}

/// `EXEC`.
pub(super) fn exec(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let Some(queue) = set_queue(context.client, None) else {
        return Err("ERR EXEC without MULTI".into());
    };
    if queue.spoiled {
        unwatch_all(context.server, context.client);
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    let is_brief = !context.txn.may_take_long;
    if is_brief && !queue.is_brief(context) {
        set_queue(context.client, Some(queue));
        return Err(Fault::TakesLong);
    }
    let done = run_all(context, &queue);
    // What was not committed is forgotten.
    context.libraries = None;
    if is_brief && matches!(done, Err(Fault::TakesLong)) {
        // Nothing has happened: it is run again from its first command on.
        set_queue(context.client, Some(queue));
        return done;
    }
    unwatch_all(context.server, context.client);
    done
}

/// Runs the commands of a transaction and commits what they wrote.
///
/// # Errors
///
/// [`Fault::TakesLong`] if they do and may not; nothing of the transaction happens then.
fn run_all(context: &mut Context<'_, '_>, queue: &Queue) -> Done {
    let server = context.server;
    let locks = lock(server, queue, context.client);
    server.databases.commit_submitted();
    // The moment, and the database's keyspaces, are those under the locks.
    let number = server.databases.number(context.client.database);
    let may_take_long = context.txn.may_take_long;
    context.txn = Txn::new(&server.databases, number, crate::db::now_ms());
    (context.txn.client, context.txn.may_take_long) = (context.client.info.id, may_take_long);
    if is_dirty(context)? {
        context.out.null_array();
        return Ok(());
    }
    context.out.array(queue.len());
    context.in_exec = true;
    let learns = if context.txn.may_take_long { LearnWhere::Here } else { LearnWhere::Nowhere };
    let (learns, mut calls) = (std::mem::replace(&mut context.learns, learns), Vec::new());
    for (command, args) in queue.commands() {
        let (from, place) = (context.out.len(), context.txn.pending.place());
        listening::remember(server, context.client, command, args);
        if listening::remembers(context.client) {
            let number = context.txn.number;
            listening::note_reads(&mut context.txn.pending, number, command, args);
        }
        context.txn.is_read = command.flags.has(Flags::READ);
        let (slot, began) = (COMMANDS.slot_of(command, args), Instant::now());
        let call = (command, slot, args);
        let denied = permission::refusal(server, context.client, call, Place::Transaction);
        if let Some(refusal) = denied {
            server.metrics.by_command.count_rejected(slot, 1);
            context.out.error(&no_longer_allowed(refusal.reason));
            continue;
        }
        let done = (command.run)(context, args);
        listening::show(server, context.client, command, args);
        context.txn.pending.end(place);
        calls.push(((command, args), slot, began.elapsed(), done.is_err()));
        match done {
            Ok(()) => {}
            Err(fault @ Fault::TakesLong) if !context.txn.may_take_long => return Err(fault),
            // What it had written by then is unknown: nothing of the transaction happens.
            Err(fault @ Fault::Engine(_)) => return Err(fault),
            Err(fault) => {
                context.out.truncate(from);
                fault.write(context.out);
            }
        }
    }
    (context.in_exec, context.learns) = (false, learns);
    context.commit_so_far()?;
    drop(locks);
    for (call, slot, took, failed) in calls {
        server.metrics.count(slot, 1, took);
        note_slow(server, &context.client.info, took, call);
        if failed {
            server.metrics.by_command.count_failed(slot, 1);
        }
    }
    Ok(())
}
