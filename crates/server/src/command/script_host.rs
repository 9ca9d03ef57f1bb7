//! Runs the commands that a script calls, over the writes that are pending.

use std::{collections::HashSet, sync::Arc};

use super::{Client, Command, Context, Flags, Locking, find, keys_of};
use crate::{
    clients::ClientInfo,
    fault::Fault,
    resp::{Args, Reply},
    script::{End, Host, Refused},
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
    /// True if the script is not begun again after a while, since it may take its time.
    may_take_long: bool,
    kills: u64,
}

impl Drop for ScriptHost {
    fn drop(&mut self) {
        self.server.scripts.end();
    }
}

impl ScriptHost {
    /// A host of one script. `None` if the server is not shared.
    pub(super) fn new(
        context: &Context<'_, '_>,
        locked: Option<HashSet<Vec<u8>>>,
        is_read_only: bool,
    ) -> Option<Self> {
        let server = context.server.this()?;
        let info = &context.client.info;
        let own = ClientInfo::new(info.id, info.address.clone(), info.local_address.clone());
        let mut client = Client::new(Arc::new(own), true);
        client.database = context.client.database;
        let kills = server.scripts.begin();
        Some(Self {
            server,
            client,
            now_ms: context.txn.now_ms,
            pending: Pending::default(),
            locked,
            is_read_only,
            may_take_long: context.may_take_long,
            kills,
        })
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
        if args.len() > 1 && !command.parts.is_empty() && part.is_none() {
            return Err(refuse("ERR Unknown Redis command called from script"));
        }
        if command.flags.has(Flags::NO_SCRIPT) {
            return Err(refuse("ERR This Redis command is not allowed from script"));
        }
        if self.is_read_only && counts_as_write(command) {
            return Err(refuse("ERR Write commands are not allowed from read-only scripts."));
        }
        let locking = command.locking_of(args);
        let takes_all = matches!(locking, Locking::Everything | Locking::Snapshot);
        if locking == Locking::Everything && !self.may_take_long {
            // FLUSHDB and SWAPDB cannot be taken back: the script must not be begun again.
            return Err(Refused::End(End::TakesLong));
        }
        if let Some(locked) = &self.locked {
            if takes_all || keys_of(command, args).any(|key| !locked.contains(key)) {
                return Err(Refused::End(End::NeedsEverything));
            }
        }
        let server = Arc::clone(&self.server);
        let databases = &server.databases;
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
        let done = (command.run)(&mut context, args);
        context.count_absent();
        context.txn.pending.end(place);
        std::mem::swap(&mut context.txn.pending, &mut self.pending);
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
        self.server.scripts.kills() != self.kills || self.server.is_stopping()
    }
}
