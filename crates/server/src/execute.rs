//! How commands are run: alone, in a commit group, or as a run of neighbours that share one read or
//! one commit. Takes the locks that a command's row in the table asks for.
//!
//! A command's handler is the same in all cases; what differs is where its reads come from and
//! where its writes go.

use std::cell::Cell;

use crate::{
    command::{COMMANDS, Client, Command, Context, Done, Flags, Locking, Takes, keys_of},
    commit::{self, CommitGroups, CommitHandle},
    db::{Databases, now_ms},
    effort,
    fault::{Fault, Wait},
    locks::Held,
    places::LearnWhere,
    ranks::Learning,
    resp::{Args, Reply},
    server::Server,
    txn::Txn,
};

/// Takes the locks that a command asks for when it is run alone. The worker's commit group is
/// closed first, unless the command needs none of its locks and waits for no others.
fn lock<'s>(
    databases: &'s Databases,
    groups: &CommitGroups,
    command: &Command,
    args: Args<'_>,
) -> Held<'s> {
    let (locks, is_one) = (&databases.locks, command.keys.is_one());
    let locking = command.locking_of(args);
    let is_slow = command.flags.has(Flags::SLOW);
    match locking {
        Locking::Nothing | Locking::Snapshot if !is_slow => return Held::Nothing,
        Locking::Shared if is_one => {
            if let Some(held) = locks.try_shared(args.at(1)) {
                databases.commit_submitted();
                return held;
            }
        }
        _ => {}
    }
    groups.close(databases);
    let held = match locking {
        Locking::Nothing | Locking::Snapshot | Locking::Own => return Held::Nothing,
        Locking::Everything => locks.everything(),
        Locking::Shared if is_one => locks.shared(args.at(1)),
        Locking::Shared => locks.many_shared(keys_of(command, args)),
        Locking::Exclusive if is_one => locks.exclusive(args.at(1)),
        Locking::Exclusive => locks.many_exclusive(keys_of(command, args)),
    };
    databases.commit_submitted();
    held
}

/// A command and its arguments, which are right for it.
pub(crate) type Call<'a> = (&'static Command, Args<'a>);

/// Runs a read that takes long, one of several that are run together.
#[cold]
fn read_long(context: &mut Context<'_, '_>, (command, args): Call<'_>) -> Done {
    // Its entries may have been taken of those that were read ahead.
    context.txn.go_on_at(usize::MAX);
    context.txn.may_take_long = true;
    let done = effort::beside_others(|| (command.run)(context, args));
    context.txn.may_take_long = false;
    done
}

/// Counts a call that replies with an error.
#[cold]
fn count_failed(server: &Server, (command, args): Call<'_>) {
    server.metrics.by_command.count_failed(COMMANDS.slot_of(command, args), 1);
}

/// Arguments, and bytes of all arguments, past which commands are not run while the worker's other
/// clients wait: a look at each argument takes some hundred nanoseconds, and copies of the bytes
/// some hundred microseconds.
const FEW_ARGUMENTS: usize = 1024;
const FEW_BYTES: usize = 512 << 10;

/// How often the order of a sorted set is learned while its key is not locked, for one command. It
/// is learned again if it was forgotten meanwhile; after that it is learned under the lock.
const LEARNED_BESIDE_MAX: usize = 3;

/// Returns true if a call has arguments that take long.
fn has_many_arguments(args: Args<'_>) -> bool {
    args.len() > FEW_ARGUMENTS || args.bytes() > FEW_BYTES
}

/// Returns true if calls that are run together have arguments that take long.
fn have_many_arguments<'a>(calls: impl Iterator<Item = Call<'a>>) -> bool {
    let add = |(all, bytes), (_, args): Call<'a>| (all + args.len(), bytes + args.bytes());
    let (all, bytes) = calls.fold((0, 0), add);
    all > FEW_ARGUMENTS || bytes > FEW_BYTES
}

/// What the commands of one client are run with.
pub(crate) struct Runner<'r, 's> {
    pub(crate) server: &'s Server,
    /// The commit groups of the client's worker.
    pub(crate) groups: &'r CommitGroups,
    pub(crate) client: &'r mut Client,
    pub(crate) out: &'r mut Reply,
    /// What a command that waits may take now.
    pub(crate) takes: Takes,
    /// True if a command that is run alone has just come, and does not look again.
    pub(crate) enters: bool,
}

impl<'s> Runner<'_, 's> {
    /// Returns true if clients that came before wait for a key of a command that takes something.
    pub(crate) fn is_behind_others(&self, command: &Command, args: Args<'_>) -> bool {
        command.flags.has(Flags::IN_TURN)
            && self.server.databases.waiters.any_of(self.client.database, keys_of(command, args))
    }

    /// The context of a command that runs now.
    fn context(&mut self) -> Context<'_, 's> {
        let databases = &self.server.databases;
        let mut txn = Txn::new(databases, databases.number(self.client.database), now_ms());
        (txn.client, txn.may_take_long) = (self.client.info.id, false);
        let takes = self.takes.clone();
        let (server, client, out) = (self.server, &mut *self.client, &mut *self.out);
        Context {
            server,
            client,
            txn,
            out,
            in_exec: false,
            joins: false,
            takes,
            enters: false,
            learns: LearnWhere::Nowhere,
            spent: Cell::default(),
            absent: 0,
            libraries: None,
        }
    }

    /// Takes back the replies from `from` on and writes the error of a command that failed.
    fn reply_error(&mut self, call: Call<'_>, from: usize, done: Done) {
        if let Err(fault) = done {
            count_failed(self.server, call);
            self.out.truncate(from);
            fault.report(&self.server.databases, self.out);
        }
    }

    /// Runs one command by itself: locks, handler, commit, reply. Returns what it waits for, if
    /// it has not replied.
    pub(crate) fn alone(&mut self, call: Call<'_>) -> Option<Box<Wait>> {
        let from = self.out.len();
        let mut done = Err(Fault::TakesLong);
        if !call.0.flags.has(Flags::SLOW) && !has_many_arguments(call.1) {
            let _counting = self.server.most_steps.begin();
            done = self.attempt(call, LearnWhere::Nowhere);
            effort::reply(self.out.len().saturating_sub(from));
        }
        if let Err(Fault::TakesLong) = done {
            self.out.truncate(from);
            done = effort::beside_others(|| self.attempt_long(call));
        }
        if let Err(Fault::Wait(wait)) = done {
            self.out.truncate(from);
            return Some(wait);
        }
        self.reply_error(call, from, done);
        None
    }

    /// Runs a command while another thread serves the worker's other clients.
    fn attempt_long(&mut self, call: Call<'_>) -> Done {
        let from = self.out.len();
        for _ in 0..LEARNED_BESIDE_MAX {
            let done = self.attempt(call, LearnWhere::Beside);
            let Err(Fault::Learn(learning)) = done else { return done };
            self.out.truncate(from);
            self.learn(call, *learning)?;
        }
        self.attempt(call, LearnWhere::Here)
    }

    /// Learns an order that a command asks for. The command's keys are locked only at the end.
    fn learn(&self, (command, args): Call<'_>, mut learning: Learning) -> Done {
        if let Some(blocks) = learning.walk()? {
            let _locks = lock(&self.server.databases, self.groups, command, args);
            learning.finish(&self.server.databases.ranks, blocks)?;
        }
        Ok(())
    }

    fn attempt(&mut self, (command, args): Call<'_>, learns: LearnWhere) -> Done {
        let locks = lock(&self.server.databases, self.groups, command, args);
        let enters = self.enters;
        let mut context = self.context();
        (context.txn.may_take_long, context.learns) = (learns != LearnWhere::Nowhere, learns);
        context.enters = enters;
        context.txn.is_read = command.flags.has(Flags::READ);
        let done = match (command.run)(&mut context, args) {
            Ok(()) => commit::transaction(&mut context.txn).map_err(Fault::from),
            Err(Fault::Wait(wait)) => match commit::before_waiting(&mut context.txn) {
                Ok(()) => Err(Fault::Wait(wait)),
                Err(error) => Err(error.into()),
            },
            Err(fault) => Err(fault),
        };
        context.count_absent();
        drop(locks);
        done
    }

    /// Runs one command in the commit group of its worker. Its reply holds if the group's commit
    /// does, whose handle is returned. `None` if the command has failed, and has replied so.
    ///
    /// # Errors
    ///
    /// [`Fault::TakesLong`] if it is to be run alone, or is to wait. It has not replied.
    pub(crate) fn join(
        &mut self,
        (command, args): Call<'_>,
    ) -> Result<Option<CommitHandle>, Fault> {
        let (databases, groups, from) = (&self.server.databases, self.groups, self.out.len());
        if has_many_arguments(args) {
            return Err(Fault::TakesLong);
        }
        let _counting = self.server.most_steps.begin();
        let joined = groups.join(databases, keys_of(command, args), |pending| {
            let mut context = self.context();
            context.joins = true;
            std::mem::swap(&mut context.txn.pending, pending);
            let place = context.txn.pending.place();
            let done = (command.run)(&mut context, args);
            std::mem::swap(&mut context.txn.pending, pending);
            pending.end(place);
            done
        });
        match joined {
            Ok(handle) => Ok(Some(CommitHandle::Group(handle))),
            // One that waits has written nothing: it is run again, and waits outside of the group.
            Err(Fault::TakesLong | Fault::Wait(_)) => {
                self.out.truncate(from);
                Err(Fault::TakesLong)
            }
            Err(fault) => {
                self.reply_error((command, args), from, Err(fault));
                Ok(None)
            }
        }
    }

    /// Runs `len` neighbours that only read the entries of their keys, of which there are `keys`:
    /// one read finds all entries. Stops once the replies are `most` bytes; returns how many were
    /// run.
    pub(crate) fn read_together<'a>(
        &mut self,
        calls: impl Iterator<Item = Call<'a>> + Clone,
        (len, keys): (usize, usize),
        most: usize,
    ) -> usize {
        if keys > FEW_ARGUMENTS {
            return effort::beside_others(|| self.read_run(calls, (len, keys), most));
        }
        let _counting = self.server.most_steps.begin();
        self.read_run(calls, (len, keys), most)
    }

    fn read_run<'a>(
        &mut self,
        calls: impl Iterator<Item = Call<'a>> + Clone,
        (len, keys): (usize, usize),
        most: usize,
    ) -> usize {
        // Each names a key, at least.
        let is_one_each = keys == len;
        let _locks = if is_one_each { Held::Nothing } else { self.lock_reads(calls.clone()) };
        let mut context = self.context();
        context.txn.is_read = true;
        if keys > 1 {
            let all: Vec<&[u8]> = calls.clone().flat_map(|(c, args)| keys_of(c, args)).collect();
            // After an error each command reads by itself: one says what is damaged, the others
            // are answered.
            let _ = context.txn.read_ahead(&all);
        }
        let (mut ran, mut at) = (0, 0);
        for (command, args) in calls {
            let from = context.out.len();
            context.txn.go_on_at(at);
            let mut done = (command.run)(&mut context, args);
            if let Err(Fault::TakesLong) = done {
                context.out.truncate(from);
                done = read_long(&mut context, (command, args));
            }
            if let Err(fault) = done {
                count_failed(context.server, (command, args));
                context.out.truncate(from);
                fault.report(&context.server.databases, context.out);
            }
            at += if is_one_each { 1 } else { keys_of(command, args).count() };
            ran += 1;
            if context.out.len() >= most {
                break;
            }
        }
        context.count_absent();
        commit::tell(&context.server.databases, context.txn.pending.told);
        ran
    }

    /// Locks the keys of reads that are of more than one key: they are read at one moment. A read
    /// of one entry needs no lock.
    fn lock_reads<'a>(&self, calls: impl Iterator<Item = Call<'a>> + Clone) -> Held<'s> {
        let many = calls.filter(|(command, args)| {
            command.locking == Locking::Shared && keys_of(command, *args).nth(1).is_some()
        });
        let databases = &self.server.databases;
        self.groups.close(databases);
        let keys = many.flat_map(|(command, args)| keys_of(command, args));
        let held = databases.locks.many_shared(keys);
        databases.commit_submitted();
        held
    }

    /// Runs neighbours that only overwrite strings, as one commit. If `may_wait` it is only
    /// submitted, so that those of other clients share it, and its handle is returned.
    ///
    /// # Errors
    ///
    /// From the engine; nothing is written then, replies neither.
    pub(crate) fn overwrite_together<'a>(
        &mut self,
        calls: impl Iterator<Item = Call<'a>> + Clone,
        may_wait: bool,
    ) -> rhumb::Result<Option<CommitHandle>> {
        if have_many_arguments(calls.clone()) {
            return effort::beside_others(|| self.overwrite_run(calls, false));
        }
        let _counting = self.server.most_steps.begin();
        self.overwrite_run(calls, may_wait)
    }

    fn overwrite_run<'a>(
        &mut self,
        calls: impl Iterator<Item = Call<'a>> + Clone,
        may_wait: bool,
    ) -> rhumb::Result<Option<CommitHandle>> {
        let databases = &self.server.databases;
        self.groups.close(databases);
        let keys = || calls.clone().flat_map(|(command, args)| keys_of(command, args));
        let mut some = keys();
        let _locks = match (some.next(), some.next()) {
            (None, _) => Held::Nothing,
            (Some(key), None) => databases.locks.exclusive(key),
            (Some(_), Some(_)) => databases.locks.many_exclusive(keys()),
        };
        let may_wait = may_wait && !databases.tells_of_writes();
        let from = self.out.len();
        let mut context = self.context();
        context.txn.overwrites = Some(databases.engine.batch());
        // Calls that were refused, such as `MSET` of a key without its value: they replace nothing.
        let mut refused: Vec<usize> = Vec::new();
        for (at, (command, args)) in calls.clone().enumerate() {
            let from = context.out.len();
            if let Err(fault) = (command.run)(&mut context, args) {
                refused.push(at);
                count_failed(context.server, (command, args));
                context.out.truncate(from);
                fault.report(databases, context.out);
            }
        }
        let calls = calls.enumerate().filter(|(at, _)| refused.binary_search(at).is_err());
        let replaced = calls.flat_map(|(_, (command, args))| keys_of(command, args));
        let done = if may_wait {
            commit::submit_overwritten(&mut context.txn, replaced)
        } else {
            commit::overwritten(&mut context.txn, replaced).map(|()| None)
        };
        done.inspect_err(|_| self.out.truncate(from))
    }
}
