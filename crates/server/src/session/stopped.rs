//! A client that does not go on with its pipeline: it has sent a blocking command that finds
//! nothing, or clients are paused.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Instant,
};

use tokio::time::Sleep;

use super::{Session, count_errors};
use crate::{
    command::{self, COMMANDS, Command, Flags, Takes},
    db::now_ms,
    encode::entry::Kind,
    fault::Wait,
    resp::{Args, OwnedArgs, Reply},
    server::Server,
    txn::Txn,
    waiters::{Waiter, Wake, Wants},
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
    /// How often it had been asked to look when it looked last; none if it has not.
    seen: Option<u64>,
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

fn wants_of(wait: &Wait) -> Wants {
    match &wait.group {
        Some(group) => Wants::EntriesOf(group.clone()),
        None if wait.kind == Kind::Stream => Wants::Entries,
        None => Wants::Elements,
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
        let waiter = Arc::new(Waiter::new(&wait.keys, wants_of(&wait)));
        let args = match &wait.again {
            Some(again) => OwnedArgs::new(again.iter().map(Vec::as_slice)),
            None => OwnedArgs::new(args.iter_from(0)),
        };
        let ends = wait.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let database = self.client.database;
        server.databases.waiters.enter(database, &wait.keys, &waiter);
        *self.client.info.waiter.lock() = Some(Arc::clone(&waiter));
        // What was written before the client was in the queues is found now.
        let mut reason = None;
        if command.flags.has(Flags::IN_TURN) {
            let waiters = &server.databases.waiters;
            let is_to_look =
                |key: &[u8]| wait.group.is_some() || Self::is_there(server, database, key);
            let keys = wait.keys.iter().filter(|key| is_to_look(key));
            keys.for_each(|key| waiters.touch(database, key, true));
        } else if !wait.keys.is_empty() {
            reason = Some(Reason::Woken(Wake::Written));
        }
        let sleep = ends.map(|ends| Box::pin(tokio::time::sleep_until(ends.into())));
        self.stopped = Some(Stopped::Blocked(Box::new(Blocked {
            command,
            args,
            wait,
            waiter,
            database,
            sleep,
            reason,
            seen: None,
        })));
        // Last: a client that is seen to wait has looked at what was there before.
        server.clients.blocked.fetch_add(1, Ordering::Relaxed);
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
        let ended = self.look_again(server, out);
        // A command that has waited is counted once it has replied, unless it was rejected.
        let running = self.running.take().filter(|_| !self.has_stopped());
        if let (Some(slot), Some(blocked)) = (running, ended) {
            let took = began.elapsed();
            server.metrics.count(slot, 1, took);
            let call = (blocked.command, blocked.args.args());
            command::note_slow(server, &self.client.info, took, call);
        }
        count_errors(server, out);
    }

    /// As [`Session::go_on`]; returns the blocked command if it has replied.
    fn look_again(&mut self, server: &Server, out: &mut Reply) -> Option<Box<Blocked>> {
        match self.stopped.take() {
            None | Some(Stopped::Paused(_)) => None,
            Some(Stopped::Blocked(mut blocked)) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                let reason = match blocked.reason.take() {
                    None => match blocked.waiter.poll(&mut cx) {
                        Poll::Ready(wake) => Some(Reason::Woken(wake)),
                        Poll::Pending => None,
                    },
                    reason => reason,
                };
                if self.ends(server, &mut blocked, reason, out) {
                    self.end_waiting(server, &blocked);
                    return Some(blocked);
                }
                self.stopped = Some(Stopped::Blocked(blocked));
                None
            }
        }
    }

    /// Returns true if a blocked command has replied.
    fn ends(
        &mut self,
        server: &Server,
        blocked: &mut Blocked,
        reason: Option<Reason>,
        out: &mut Reply,
    ) -> bool {
        match reason {
            None => return false,
            Some(Reason::TimeIsOver | Reason::Woken(Wake::GivenUp)) => {
                (blocked.wait.on_timeout)(out);
            }
            Some(Reason::Woken(Wake::Refused)) => {
                let slot = COMMANDS.slot_of(blocked.command, blocked.args.args());
                server.metrics.by_command.count_failed(slot, 1);
                out.error(UNBLOCKED);
            }
            Some(Reason::Woken(Wake::Written)) => return self.run_again(server, blocked, out),
        }
        true
    }

    /// Runs a blocked command again; returns true if it has replied. If not, the next client is to
    /// look at what is there.
    fn run_again(&mut self, server: &Server, blocked: &mut Blocked, out: &mut Reply) -> bool {
        let (from, errors, asked) = (out.len(), out.errors(), blocked.waiter.asked());
        if blocked.seen.replace(asked) == Some(asked) {
            // Its last look was after it was asked.
            return false;
        }
        let takes = if asked > 0 {
            let keys = Self::offers(server, blocked, asked);
            if keys.is_empty() {
                Self::looked(server, blocked, asked);
                return false;
            }
            Takes::From(keys)
        } else {
            Takes::Anything
        };
        let (call, began) = ((blocked.command, blocked.args.args()), Instant::now());
        let slot = COMMANDS.slot_of(call.0, call.1);
        if let Some(text) = self.denial(server, (call.0, slot, call.1)) {
            self.running = None;
            server.metrics.by_command.count_rejected(slot, 1);
            out.error(&text);
            return true;
        }
        let mut runner = self.runner(server, out);
        runner.takes = takes;
        let waits = runner.alone(call).is_some();
        if !waits {
            self.note_if_slow(server, call, began.elapsed());
        }
        let is_other_type = blocked.wait.group.is_none()
            && out.bytes()[from..].starts_with(WRONG_TYPE)
            && Self::is_in_the_way(server, blocked);
        if waits || is_other_type {
            out.truncate(from);
            // The client does not see it.
            out.truncate_errors(errors);
            Self::looked(server, blocked, asked);
            return false;
        }
        true
    }

    /// Says that a client has looked and waits on, which had been asked so often before.
    fn looked(server: &Server, blocked: &Blocked, asked: u64) {
        let Blocked { waiter, wait, database, .. } = blocked;
        let is_there = |key: &[u8]| Self::is_there(server, *database, key);
        server.databases.waiters.looked(*database, &wait.keys, (waiter, asked), is_there);
    }

    /// Those keys that a client is asked to look at where there is something for it.
    fn offers(server: &Server, blocked: &Blocked, asked: u64) -> Vec<Vec<u8>> {
        let Blocked { waiter, wait, database, .. } = blocked;
        let keys = server.databases.waiters.asked_for(*database, &wait.keys, (waiter, asked));
        let has = |found: Option<Kind>| found == Some(wait.kind) || wait.group.is_some();
        // What cannot be read is the command's to report.
        let offers = |key: &&[u8]| Self::kind_of(server, *database, key).map_or(true, has);
        keys.into_iter().filter(offers).map(<[u8]>::to_vec).collect()
    }

    /// Returns true if one of the keys is of another type than the command takes from. If none is,
    /// an error is of where the command puts what it takes, and the client is to see it.
    fn is_in_the_way(server: &Server, blocked: &Blocked) -> bool {
        blocked.wait.keys.iter().any(|key| {
            let kind = Self::kind_of(server, blocked.database, key).ok().flatten();
            kind.is_some_and(|kind| kind != blocked.wait.kind)
        })
    }

    fn kind_of(server: &Server, database: usize, key: &[u8]) -> rhumb::Result<Option<Kind>> {
        let databases = &server.databases;
        let mut txn = Txn::new(databases, databases.number(database), now_ms());
        // A long string is not read for that; it is something else than what is waited for.
        txn.may_take_long = false;
        Ok(txn.read(key)?.map(|entry| entry.kind))
    }

    /// Returns true if a key is there, or cannot be read: that is the next client's to report.
    fn is_there(server: &Server, database: usize, key: &[u8]) -> bool {
        Self::kind_of(server, database, key).map_or(true, |kind| kind.is_some())
    }

    fn end_waiting(&self, server: &Server, blocked: &Blocked) {
        server.clients.blocked.fetch_sub(1, Ordering::Relaxed);
        *self.client.info.waiter.lock() = None;
        let Blocked { waiter, wait, database, .. } = blocked;
        let is_there = |key: &[u8]| Self::is_there(server, *database, key);
        server.databases.waiters.leave(*database, &wait.keys, waiter, is_there);
    }

    /// Ends the waiting of a client that is gone.
    pub(super) fn end_stopped(&mut self, server: &Server) {
        if let Some(Stopped::Blocked(blocked)) = self.stopped.take() {
            self.end_waiting(server, &blocked);
        }
    }
}
