//! Runs the commands that a script calls, over the writes that are pending.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    COMMANDS, Client, Command, Context, Flags, Locking, Takes, find, is_word, keys_of, listening,
    permission,
    script_counts::{Ended, ScriptCounts},
};
use crate::{
    acl::Place,
    fault::{Fault, NO_REPLICAS},
    log::LogLevel,
    places::LearnWhere,
    resp::{Args, Reply},
    script::{End, Host, Refused, RunningScript},
    server::Server,
    txn::{Pending, Txn},
};

/// What a script's commands are run with.
pub(super) struct ScriptHost {
    server: Arc<Server>,
    client: Client,
    now_ms: u64,
    pub(super) pending: Pending,
    /// The keys that are locked, sorted; `None` if all are.
    locked: Option<Vec<Vec<u8>>>,
    /// The database that the client has selected: what a script selects ends with it.
    database: usize,
    is_read_only: bool,
    running: Option<Arc<RunningScript>>,
    /// True if the client that runs the script is told of changes of what it reads.
    remembers: bool,
    /// True if the script may take long, and so is not begun again after a while.
    may_take_long: bool,
    /// True if the script has joined a commit group: what takes locks of its own, or may wait, is
    /// not called from there.
    joins: bool,
    /// True if monitors are shown what the script calls: it is not begun again then.
    shows: bool,
    pub(super) counts: ScriptCounts,
}

impl Drop for ScriptHost {
    fn drop(&mut self) {
        self.client.info.database.store(self.database as u8, Ordering::Relaxed);
        if let Some(running) = &self.running {
            self.server.scripts.end(running);
        }
    }
}

impl ScriptHost {
    /// A host of one script. `None` if the server is not shared.
    pub(super) fn new(
        context: &Context<'_, '_>,
        mut locked: Option<Vec<Vec<u8>>>,
        is_read_only: bool,
        running: Option<Arc<RunningScript>>,
        shows: bool,
    ) -> Option<Self> {
        let server = context.server.this()?;
        let database = context.client.database;
        let user = Arc::clone(&context.client.user);
        let mut client = Client::new(Arc::clone(&context.client.info), true, user);
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (client.database, client.script_began) = (database, Some(began));
        if let Some(keys) = &mut locked {
            keys.sort_unstable();
        }
        if let Some(running) = &running {
            server.scripts.begin(Arc::clone(running));
        }
        Some(Self {
            server,
            client,
            now_ms: context.txn.now_ms,
            pending: Pending::default(),
            locked,
            database,
            is_read_only,
            running,
            remembers: listening::remembers(context.client),
            may_take_long: context.txn.may_take_long,
            joins: context.joins,
            shows,
            counts: ScriptCounts::default(),
        })
    }
}

impl ScriptHost {
    /// The error for a call that the client's user may not make.
    fn denial(&self, (command, args): (&'static Command, Args<'_>)) -> Option<String> {
        let call = (command, COMMANDS.slot_of(command, args), args);
        let refusal = permission::refusal(&self.server, &self.client, call, Place::Script)?;
        Some(format!("ERR ACL failure in script: {}", refusal.text))
    }
}

fn refuse(text: &'static str) -> Refused {
    Refused::Text(text.into())
}

/// Returns true for a command that a script that only reads may not call: in Redis those, too, that
/// may be replicated.
fn counts_as_write(command: &Command) -> bool {
    command.flags.has(Flags::WRITE) || ["pfcount", "publish", "spublish"].contains(&command.name)
}

/// Returns true for a call that is not for scripts: in Redis that is a matter of a command's part.
fn is_denied(command: &Command, args: Args<'_>) -> bool {
    command.flags.has(Flags::NO_SCRIPT)
        || (command.name == "cluster" && args.get(1).is_some_and(|part| is_word(part, "reset")))
}

/// Returns true if a call of `XREAD` or `XREADGROUP` has the option `BLOCK`.
fn waits_for_streams(name: &str, args: Args<'_>) -> bool {
    matches!(name, "xread" | "xreadgroup")
        && args
            .iter_from(1)
            .take_while(|word| !is_word(word, "streams"))
            .any(|word| is_word(word, "block"))
}

/// Returns true for a call that is not made within a commit group: one that takes locks of its own,
/// and one that looks at more than its keys, where what the group has pending is not seen.
fn is_apart((command, locking): (&Command, Locking), args: Args<'_>) -> bool {
    let uses_keys = command.flags.has(Flags::READ) || command.flags.has(Flags::WRITE);
    locking == Locking::Own
        || command.flags.has(Flags::SLOW)
        || is_denied(command, args)
        || (uses_keys && keys_of(command, args).next().is_none())
}

impl ScriptHost {
    /// Checks that a call may be made.
    fn check(&self, command: &'static Command, args: Args<'_>) -> Result<(), Refused> {
        let part = args.get(1).filter(|_| !command.parts.is_empty());
        let part = part.and_then(|word| command.part(word));
        if !command.takes(args.len())
            || part.is_some_and(|(_, arity)| !super::takes(*arity, args.len()))
        {
            return Err(refuse("ERR Wrong number of args calling Redis command from script"));
        }
        if args.len() > 1 && !command.parts.is_empty() && part.is_none() {
            return Err(refuse("ERR Unknown Redis command called from script"));
        }
        if is_denied(command, args) && !self.server.scripts_may_all.load(Ordering::Relaxed) {
            return Err(refuse("ERR This Redis command is not allowed from script"));
        }
        if let Some(text) = self.denial((command, args)) {
            return Err(Refused::Text(text.into()));
        }
        if waits_for_streams(command.name, args) {
            let text = "command is not allowed with BLOCK option from scripts";
            return Err(Refused::Text(format!("ERR {} {text}", command.name).into()));
        }
        if self.is_read_only && counts_as_write(command) {
            return Err(refuse("ERR Write commands are not allowed from read-only scripts."));
        }
        if self.server.remembered.lacks_replicas() && command.flags.has(Flags::WRITE) {
            return Err(refuse(NO_REPLICAS));
        }
        let locking = command.locking_of(args);
        let takes_all = matches!(locking, Locking::Everything | Locking::Snapshot);
        if locking == Locking::Everything && !self.may_take_long {
            // FLUSHDB and SWAPDB cannot be taken back: the script must not be begun again.
            return Err(Refused::End(End::TakesLong));
        }
        if let Some(locked) = &self.locked {
            let is_locked =
                |key: &[u8]| locked.binary_search_by(|other| other.as_slice().cmp(key)).is_ok();
            if takes_all || keys_of(command, args).any(|key| !is_locked(key)) {
                return Err(Refused::End(End::NeedsEverything));
            }
        }
        if self.joins && is_apart((command, locking), args) {
            return Err(Refused::End(End::TakesLong));
        }
        Ok(())
    }

    /// Makes a call that was checked.
    fn run(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        out: &mut Reply,
    ) -> Result<(), Refused> {
        let server = Arc::clone(&self.server);
        let databases = &server.databases;
        if self.remembers {
            listening::remember_for(&server, self.client.info.id, command, args);
            let number = databases.number(self.client.database);
            listening::note_reads(&mut self.pending, number, command, args);
        }
        let mut txn = Txn::new(databases, databases.number(self.client.database), self.now_ms);
        txn.client = self.client.info.id;
        txn.is_read = command.flags.has(Flags::READ);
        txn.may_take_long = self.may_take_long;
        std::mem::swap(&mut txn.pending, &mut self.pending);
        let place = txn.pending.place();
        let mut context = Context {
            server: &server,
            client: &mut self.client,
            txn,
            out,
            in_exec: true,
            joins: false,
            takes: Takes::Anything,
            enters: false,
            learns: if self.may_take_long { LearnWhere::Here } else { LearnWhere::Nowhere },
            spent: Cell::default(),
            absent: 0,
            libraries: None,
        };
        // A defect of a command ends the script, and loses nothing of the transaction.
        let done = catch_unwind(AssertUnwindSafe(|| (command.run)(&mut context, args)));
        context.count_absent();
        context.txn.pending.end(place);
        std::mem::swap(&mut context.txn.pending, &mut self.pending);
        let Ok(done) = done else {
            return Err(Refused::End(End::Text("ERR a command of the script failed".into())));
        };
        match done {
            Ok(()) => Ok(()),
            Err(Fault::Engine(error)) => Err(Refused::End(End::Engine(error))),
            Err(Fault::TakesLong) => Err(Refused::End(End::TakesLong)),
            Err(fault) => {
                out.truncate(0);
                fault.write(out);
                Ok(())
            }
        }
    }

    /// Counts a call, unless the script ends with it.
    fn count(&mut self, slot: usize, took: Duration, done: &Result<(), Refused>, out: &mut Reply) {
        let ended = match done {
            Err(Refused::End(_)) => return,
            Err(Refused::Text(text)) => {
                self.counts.count_error(text.split(' ').next().unwrap_or_default());
                Ended::Rejected
            }
            Ok(()) if out.bytes().first() == Some(&b'-') => Ended::Failed,
            Ok(()) => Ended::Well,
        };
        if out.has_errors() {
            out.take_errors().iter().for_each(|code| self.counts.count_error(code));
        }
        self.counts.count(slot, took, ended);
    }
}

impl Host for ScriptHost {
    fn call(&mut self, args: Args<'_>, out: &mut Reply) -> Result<(), Refused> {
        let Some((index, command)) = find(args.at(0)) else {
            self.counts.count_error("ERR");
            return Err(refuse("ERR Unknown Redis command called from script"));
        };
        let (slot, began) = (COMMANDS.slot(index, args), Instant::now());
        let done = self.check(command, args).and_then(|()| {
            if self.shows {
                listening::show_from(&self.server, (self.client.database, "lua"), command, args);
            }
            self.run(command, args, out)
        });
        self.count(slot, began.elapsed(), &done, out);
        done
    }

    fn may_call(&self, args: Args<'_>) -> Option<bool> {
        let (index, command) = find(args.at(0))?;
        let slot = COMMANDS.slot(index, args);
        let is_part = slot != index || command.parts.is_empty() || args.len() < 2;
        let user = self.client.user.user();
        is_part.then(|| permission::check(&user, (command, slot, args)).is_ok())
    }

    fn is_killed(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.is_killed())
            || self.server.is_stopping()
    }

    fn log(&mut self, level: LogLevel, text: &str) {
        self.server.log_of_script(level, text);
    }
}

/// What a library is loaded with: it may only write to the log.
pub(super) struct LoadHost(pub(super) Arc<Server>);

impl Host for LoadHost {
    fn call(&mut self, _: Args<'_>, _: &mut Reply) -> Result<(), Refused> {
        Err(refuse("ERR a library calls no command while it is loaded"))
    }

    fn may_call(&self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn is_killed(&self) -> bool {
        self.0.is_stopping()
    }

    fn log(&mut self, level: LogLevel, text: &str) {
        self.0.log_of_script(level, text);
    }
}
