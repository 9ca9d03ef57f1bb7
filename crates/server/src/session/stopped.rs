//! A client that does not go on with its pipeline: it has sent a blocking command that finds
//! nothing, or clients are paused.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Instant,
};

use tokio::time::Sleep;

use super::Session;
use crate::{
    command::{COMMANDS, Command, Flags},
    db::now_ms,
    fault::Wait,
    resp::{Args, OwnedArgs, Reply},
    server::Server,
    txn::Txn,
    waiters::{Waiter, Wake},
};

/// Why a client does not go on.
pub(super) enum Stopped {
    /// Clients are paused; the command has not run.
    Paused(Pin<Box<Sleep>>),
    /// A blocking command waits.
    Blocked(Box<Blocked>),
}

/// A blocking command that waits.
pub(super) struct Blocked {
    command: &'static Command,
    args: OwnedArgs,
    wait: Wait,
    waiter: Arc<Waiter>,
    database: usize,
    /// Ends when the time is over; none if the client waits without end.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Why it is to stop waiting, once there is a reason.
    reason: Option<Reason>,
}

#[derive(Clone, Copy)]
enum Reason {
    Woken(Wake),
    TimeIsOver,
}

impl Blocked {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(wake) = self.waiter.poll(cx) {
            self.reason = Some(Reason::Woken(wake));
            return Poll::Ready(());
        }
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        sleep.as_mut().poll(cx).map(|()| self.reason = Some(Reason::TimeIsOver))
    }
}

/// The reply to a client that another one has asked to wait no longer.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// The error that a client does not see whose key has become something else while it waits.
const WRONG_TYPE: &[u8] = b"-WRONGTYPE ";

impl Session {
    /// Returns true if the client does not go on with its pipeline.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Waits for a reason to look whether the client can go on.
    pub(crate) fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.stopped {
            None => Poll::Ready(()),
            Some(Stopped::Paused(sleep)) => sleep.as_mut().poll(cx),
            Some(Stopped::Blocked(blocked)) => blocked.poll(cx),
        }
    }

    /// Stops before a command that may not run while clients are paused.
    pub(super) fn pause(&mut self, until: Instant) {
        let sleep = tokio::time::sleep_until(until.into());
        self.stopped = Some(Stopped::Paused(Box::pin(sleep)));
    }

    /// Has a blocking command wait that has found nothing, or whose turn it is not.
    pub(super) fn block(
        &mut self,
        server: &Server,
        (command, args): (&'static Command, Args<'_>),
        wait: Wait,
        out: &mut Reply,
    ) {
        let waiter = Arc::new(Waiter::new(wait.answers_wrong_type));
        let args = match &wait.again {
            Some(again) => OwnedArgs::new(again.iter().map(Vec::as_slice)),
            None => OwnedArgs::new(args.iter_from(0)),
        };
        let ends = wait.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let database = self.client.database;
        server.databases.waiters.enter(database, &wait.keys, &waiter);
        server.clients.blocked.fetch_add(1, Ordering::Relaxed);
        *self.client.info.waiter.lock() = Some(Arc::clone(&waiter));
        // What was written before the client was in the queues is found now.
        if command.flags.has(Flags::IN_TURN) {
            wait.keys.iter().for_each(|key| server.databases.waiters.touch(database, key));
        } else if !wait.keys.is_empty() {
            waiter.look_again();
        }
        let sleep = ends.map(|ends| Box::pin(tokio::time::sleep_until(ends.into())));
        let reason = None;
        self.stopped = Some(Stopped::Blocked(Box::new(Blocked {
            command,
            args,
            wait,
            waiter,
            database,
            sleep,
            reason,
        })));
        self.look_again(server, out);
    }

    /// Goes on if that is possible: a paused client if clients are no longer paused, a blocked one
    /// if there is something for it or its time is over.
    pub(crate) fn go_on(&mut self, server: &Server, out: &mut Reply) {
        let began = Instant::now();
        self.running = match &self.stopped {
            Some(Stopped::Blocked(one)) => Some(COMMANDS.slot_of(one.command, one.args.args())),
            _ => None,
        };
        self.look_again(server, out);
        // A command that has waited is counted once it has replied, unless it was rejected.
        let running = self.running.take().filter(|_| !self.has_stopped());
        if let Some(slot) = running {
            server.metrics.count(slot, 1, began.elapsed());
        }
    }

    fn look_again(&mut self, server: &Server, out: &mut Reply) {
        match self.stopped.take() {
            None | Some(Stopped::Paused(_)) => {}
            Some(Stopped::Blocked(mut blocked)) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                let reason = match blocked.reason.take() {
                    None => match blocked.waiter.poll(&mut cx) {
                        Poll::Ready(wake) => Some(Reason::Woken(wake)),
                        Poll::Pending => None,
                    },
                    reason => reason,
                };
                if self.ends(server, &blocked, reason, out) {
                    self.end_waiting(server, &blocked);
                } else {
                    self.stopped = Some(Stopped::Blocked(blocked));
                }
            }
        }
    }

    /// Returns true if a blocked command has replied.
    fn ends(
        &mut self,
        server: &Server,
        blocked: &Blocked,
        reason: Option<Reason>,
        out: &mut Reply,
    ) -> bool {
        match reason {
            None => return false,
            Some(Reason::TimeIsOver | Reason::Woken(Wake::GivenUp)) => {
                (blocked.wait.on_timeout)(out);
            }
            Some(Reason::Woken(Wake::Refused)) => out.error(UNBLOCKED),
            Some(Reason::Woken(Wake::Written)) => return self.run_again(server, blocked, out),
        }
        true
    }

    /// Runs a blocked command again; returns true if it has replied. If not, the next client is to
    /// look at what is there.
    fn run_again(&mut self, server: &Server, blocked: &Blocked, out: &mut Reply) -> bool {
        let from = out.len();
        let (call, began) = ((blocked.command, blocked.args.args()), Instant::now());
        let slot = COMMANDS.slot_of(call.0, call.1);
        if let Some(text) = self.denial(server, (call.0, slot, call.1)) {
            self.running = None;
            server.metrics.by_command.count_rejected(slot);
            out.error(&text);
            return true;
        }
        let waits = self.runner(server, out).alone(call).is_some();
        if !waits {
            self.note_if_slow(server, call, began.elapsed());
        }
        let is_other_type = !blocked.wait.answers_wrong_type
            && out.bytes()[from..].starts_with(WRONG_TYPE)
            && Self::is_in_the_way(server, blocked);
        if waits || is_other_type {
            out.truncate(from);
            self.pass_on(server, blocked);
            server.databases.waiters.looked(&blocked.waiter);
            return false;
        }
        true
    }

    /// Returns true if one of the keys is of another type than the command takes from. If none is,
    /// an error is of where the command puts what it takes, and the client is to see it.
    fn is_in_the_way(server: &Server, blocked: &Blocked) -> bool {
        let databases = &server.databases;
        let mut txn = Txn::new(databases, databases.number(blocked.database), now_ms());
        blocked.wait.keys.iter().any(|key| {
            let entry = txn.read(key).ok().flatten();
            entry.is_some_and(|entry| entry.kind != blocked.wait.kind)
        })
    }

    /// Wakes the client after this one for each key that is there.
    fn pass_on(&self, server: &Server, blocked: &Blocked) {
        let databases = &server.databases;
        let mut txn = Txn::new(databases, databases.number(blocked.database), now_ms());
        for key in &blocked.wait.keys {
            // A key that cannot be read is the next client's to report.
            // One that is told of an absent key may be followed by others that are.
            if blocked.wait.answers_wrong_type || txn.exists(key).unwrap_or(true) {
                databases.waiters.pass_on(blocked.database, key, &blocked.waiter);
            }
        }
    }

    fn end_waiting(&self, server: &Server, blocked: &Blocked) {
        let waiters = &server.databases.waiters;
        waiters.leave(blocked.database, &blocked.wait.keys, &blocked.waiter);
        server.clients.blocked.fetch_sub(1, Ordering::Relaxed);
        *self.client.info.waiter.lock() = None;
        self.pass_on(server, blocked);
        waiters.looked(&blocked.waiter);
    }

    /// Ends the waiting of a client that is gone.
    pub(super) fn end_stopped(&mut self, server: &Server) {
        if let Some(Stopped::Blocked(blocked)) = self.stopped.take() {
            self.end_waiting(server, &blocked);
        }
    }
}
