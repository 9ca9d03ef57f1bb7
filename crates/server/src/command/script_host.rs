//! Runs the commands that a script calls, over the writes that are pending.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{Client, Context, Flags, Locking, find, is_word, keys_of, listening};
use crate::{
    clients::ClientInfo,
    fault::Fault,
    log::LogLevel,
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
    /// The keys that are locked; `None` if all are.
    locked: Option<HashSet<Vec<u8>>>,
    is_read_only: bool,
    running: Option<Arc<RunningScript>>,
    /// True if the client that runs the script is told of changes of what it reads.
    remembers: bool,
}

impl Drop for ScriptHost {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            self.server.scripts.end(running);
        }
    }
}

impl ScriptHost {
    /// A host of one script. `None` if the server is not shared.
    pub(super) fn new(
        context: &Context<'_, '_>,
        locked: Option<HashSet<Vec<u8>>>,
        is_read_only: bool,
        running: Option<Arc<RunningScript>>,
    ) -> Option<Self> {
        let server = context.server.this()?;
        let info = &context.client.info;
        let own = ClientInfo::new(info.id, info.address.clone(), info.local_address.clone());
        let mut client = Client::new(Arc::new(own), true);
        client.database = context.client.database;
        if let Some(running) = &running {
            server.scripts.begin(Arc::clone(running));
        }
        Some(Self {
            server,
            client,
            now_ms: context.txn.now_ms,
            pending: Pending::default(),
            locked,
            is_read_only,
            running,
            remembers: listening::remembers(context.client),
        })
    }
}

fn refuse(text: &'static str) -> Refused {
    Refused::Text(text.into())
}

/// Returns true if a call of `XREAD` or `XREADGROUP` has the option `BLOCK`.
fn waits_for_streams(name: &str, args: Args<'_>) -> bool {
    matches!(name, "xread" | "xreadgroup")
        && args
            .iter_from(1)
            .take_while(|word| !is_word(word, "streams"))
            .any(|word| is_word(word, "block"))
}

impl Host for ScriptHost {
    fn call(&mut self, args: Args<'_>, out: &mut Reply) -> Result<(), Refused> {
        let Some((_, command)) = find(args.at(0)) else {
            return Err(refuse("ERR Unknown Redis command called from script"));
        };
        let part = args.get(1).filter(|_| !command.parts.is_empty());
        let part = part.and_then(|word| command.part(word));
        if !command.takes(args.len())
            || part.is_some_and(|(_, arity)| !super::takes(*arity, args.len()))
        {
            return Err(refuse("ERR Wrong number of args calling Redis command from script"));
        }
        if command.flags.has(Flags::NO_SCRIPT) {
            return Err(refuse("ERR This Redis command is not allowed from script"));
        }
        if waits_for_streams(command.name, args) {
            let text = "command is not allowed with BLOCK option from scripts";
            return Err(Refused::Text(format!("ERR {} {text}", command.name).into()));
        }
        if self.is_read_only && command.flags.has(Flags::WRITE) {
            return Err(refuse("ERR Write commands are not allowed from read-only scripts."));
        }
        if let Some(locked) = &self.locked {
            let takes_all =
                matches!(command.locking_of(args), Locking::Everything | Locking::Snapshot);
            if takes_all || keys_of(command, args).any(|key| !locked.contains(key)) {
                return Err(Refused::End(End::NeedsEverything));
            }
        }
        let server = Arc::clone(&self.server);
        let databases = &server.databases;
        if self.remembers {
            listening::remember_for(&server, self.client.info.id, command, args);
        }
        let mut txn = Txn::new(databases, databases.number(self.client.database), self.now_ms);
        txn.client = self.client.info.id;
        txn.is_read = command.flags.has(Flags::READ);
        std::mem::swap(&mut txn.pending, &mut self.pending);
        let place = txn.pending.place();
        let mut context = Context {
            server: &server,
            client: &mut self.client,
            txn,
            out,
            in_exec: true,
            must_wait: false,
            may_take_long: true,
            absent: 0,
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
            Err(fault) => {
                out.truncate(0);
                fault.write(out);
                Ok(())
            }
        }
    }

    fn knows(&self, name: &[u8]) -> bool {
        find(name).is_some()
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

    fn knows(&self, _: &[u8]) -> bool {
        false
    }

    fn is_killed(&self) -> bool {
        self.0.is_stopping()
    }

    fn log(&mut self, level: LogLevel, text: &str) {
        self.0.log_of_script(level, text);
    }
}
