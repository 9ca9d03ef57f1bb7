//! One client's session: from the commands in its buffer to the replies. Knows of no socket.
//!
//! Neighbours in a pipeline are run together if their rows in the table say so: reads share one
//! read, strings that are overwritten share one batch. Other writes join the commit group of the
//! worker. A client sees its own writes: what waits for a commit is finished before anything is run
//! that might look at it.

mod listening;
mod refusal;
mod run;
mod stopped;
mod waiting;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::{
    acl::{Place, User},
    clients::ClientInfo,
    command::{
        self, COMMANDS, Client, Command, Flags, Group, Pipelining, Takes, listening as listens,
        permission,
        transactions::{self, Queue},
    },
    config::Fsync,
    execute::{Call, Runner},
    fault::{Fault, NO_REPLICAS},
    http_request::is_http,
    log::Event,
    resp::{Args, Frames, ReadLimits, Reply},
    server::Server,
    worker_state::WorkerState,
};

use refusal::{are_keys_short, unknown_command, wrong_arguments};
use run::{Finder, Found, Pipeline, RUN_MAX, Run, is_overwrite, is_shared_read};
use stopped::Stopped;
use waiting::WaitingReplies;

/// How long the commands of one client are run before its worker looks at the others.
pub(crate) const SLICE: Duration = Duration::from_millis(1);

/// Counts the errors that were replied.
fn count_errors(server: &Server, out: &mut Reply) {
    if out.has_errors() {
        let codes = out.take_errors().into_iter().map(|code| (code, 1));
        server.metrics.by_command.count_errors(codes);
    }
}

/// One client: its state, and what it has under way.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// What the clients of this one's worker share.
    pub(crate) worker: Arc<WorkerState>,
    /// The client speaks HTTP: the connection ends, and nothing more is sent.
    pub(crate) is_http: bool,
    finder: Finder,
    /// How many commands are run together: fewer if their values are large, or after a failure.
    run_max: usize,
    /// Commits that replies wait for, in the order of the replies.
    waiting: WaitingReplies,
    /// Why the client does not go on with its pipeline.
    stopped: Option<Stopped>,
    /// When the last command ended, or the first one of those that came together began.
    pub(crate) clock: Instant,
    /// The slot of the command that is run by itself.
    running: Option<usize>,
}

impl Session {
    /// A client of this worker that has just come.
    pub(crate) fn new(
        server: &Server,
        info: Arc<ClientInfo>,
        authenticated: bool,
        worker: Arc<WorkerState>,
    ) -> Self {
        Self {
            client: Client::new(info, authenticated, Arc::clone(server.acl.default_account())),
            worker,
            is_http: false,
            finder: Finder::default(),
            run_max: RUN_MAX,
            waiting: WaitingReplies::default(),
            stopped: None,
            clock: Instant::now(),
            running: None,
        }
    }

    /// What the client may send now.
    pub(crate) fn read_limits(&self, server: &Server) -> ReadLimits {
        let limits = &server.config.limits;
        if self.client.authenticated {
            return ReadLimits {
                inline_bytes: 64 << 10,
                arguments: limits.arguments,
                bulk_bytes: limits.bulk_bytes,
                unauthenticated: false,
            };
        }
        ReadLimits {
            inline_bytes: 16 << 10,
            arguments: 10,
            bulk_bytes: 16 << 10,
            unauthenticated: true,
        }
    }

    /// Runs the complete commands of `frames` from `from` on, until the replies are `most` bytes or
    /// the client has stopped; returns how many were run.
    pub(crate) fn run(
        &mut self,
        server: &Server,
        buffer: &[u8],
        frames: &Frames,
        from: usize,
        most: usize,
        out: &mut Reply,
    ) -> usize {
        let pipeline = Pipeline::new(buffer, frames);
        let (mut at, began) = (from, self.clock);
        let passes = server.databases.waiters.begun();
        while at < pipeline.len()
            && self.clock.saturating_duration_since(began) < SLICE
            && out.len() < most
            && !self.client.closing
            && !self.has_stopped()
            && !out.overflowed()
        {
            at += self.run_next(server, pipeline, at, most, out);
            listens::take_messages(&self.client, out, most);
            if server.databases.waiters.begun() != passes {
                // Clients that were woken look before the next command is run.
                break;
            }
        }
        at - from
    }

    /// Runs the command at `at`, and those that come after it and may be run together with it.
    /// Returns how many were run.
    fn run_next(
        &mut self,
        server: &Server,
        pipeline: Pipeline<'_>,
        at: usize,
        most: usize,
        out: &mut Reply,
    ) -> usize {
        let args = pipeline.at(at);
        let found = self.finder.find(args.at(0));
        if server.pause.is_on()
            && let Some(until) = self.paused_until(server, found)
        {
            self.pause(until);
            return 0;
        }
        if self.client.listening.is_some() || server.databases.listeners.monitors.any() {
            self.run_listening(server, found, (pipeline, at), out);
            return 1;
        }
        let may_share = self.client.authenticated && self.client.queue.is_none();
        if let Some((index, command)) = found.filter(|_| may_share) {
            let limited = self.client.limited_user();
            let limited = limited.as_deref();
            let reads = is_shared_read(command, args);
            let overwrites = !reads
                && is_overwrite(command, args)
                && !server.databases.tells_of_writes()
                && !server.remembered.lacks_replicas();
            if (reads || overwrites) && permission::permits(limited, index, args) {
                return if reads {
                    self.run_reads(server, (pipeline, at), limited, most, out)
                } else {
                    self.run_overwrites(server, (pipeline, at), limited, out)
                };
            }
        }
        self.run_one(server, found, (pipeline, at), out);
        self.end_one(server, found, args, out);
        1
    }

    /// Counts the command that was run by itself, or refused.
    fn end_one(&mut self, server: &Server, found: Option<Found>, args: Args<'_>, out: &mut Reply) {
        if let Some(slot) = self.running.take() {
            let took = self.lap();
            let command = COMMANDS.of_slot(slot).0;
            server.metrics.count(slot, 1, took);
            self.note_if_slow(server, (command, args), took);
            command::note_slow(server, &self.client.info, took, (command, args));
        } else if let Some((index, _)) = found.filter(|_| out.has_errors()) {
            server.metrics.by_command.count_rejected(COMMANDS.slot(index, args), 1);
        }
        count_errors(server, out);
    }

    /// Tells of a command that was run by itself, if it took long.
    #[inline]
    fn note_if_slow(&self, server: &Server, (command, args): Call<'_>, took: Duration) {
        if server.is_slow(took) {
            let keys = command::keys_of(command, args).count();
            server.note_slow(&self.client.info, command.name, (1, keys), took);
        }
    }

    /// The time since the last command ended.
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.clock, now)
    }

    /// Runs the reads that come next as one read; returns how many were run.
    fn run_reads(
        &mut self,
        server: &Server,
        (pipeline, from): (Pipeline<'_>, usize),
        limited: Option<&User>,
        most: usize,
        out: &mut Reply,
    ) -> usize {
        self.finish_waiting(server, out);
        let run = Run::gather(pipeline, from, self.run_max, &mut self.finder, |found, args| {
            is_shared_read(found.1, args) && permission::permits(limited, found.0, args)
        });
        let calls = run.calls(pipeline);
        let ran = self.runner(server, out).read_together(calls, (run.len(), run.keys()), most);
        if run.len() > 1 {
            // Values that were read and not asked for were read in vain.
            self.run_max = if ran < run.len() { ran } else { (self.run_max * 2).min(RUN_MAX) };
        }
        self.count_run(server, pipeline, &run, ran);
        count_errors(server, out);
        ran
    }

    /// Runs the commands that come next and only overwrite strings as one commit; returns how many.
    /// The last ones of a client are only submitted if there are others whose commits they can
    /// share.
    fn run_overwrites(
        &mut self,
        server: &Server,
        (pipeline, from): (Pipeline<'_>, usize),
        limited: Option<&User>,
        out: &mut Reply,
    ) -> usize {
        self.finish_waiting(server, out);
        let run = Run::gather(pipeline, from, self.run_max, &mut self.finder, |found, args| {
            is_overwrite(found.1, args) && permission::permits(limited, found.0, args)
        });
        let (first, len) = (out.len(), run.len());
        let may_wait = run.is_last(pipeline) && self.shares_commits(server);
        let done = self.runner(server, out).overwrite_together(run.calls(pipeline), may_wait);
        match done {
            Ok(None) => {}
            Ok(Some(handle)) => self.waiting.push(handle, first..out.len(), len),
            Err(_) if len > 1 => {
                // Nothing was written: each by itself says why, and the others are.
                self.run_max = 1;
                return self.run_overwrites(server, (pipeline, from), limited, out);
            }
            Err(error) => Fault::from(error).report(&server.databases, out),
        }
        self.run_max = (self.run_max * 2).min(RUN_MAX);
        self.count_run(server, pipeline, &run, len);
        count_errors(server, out);
        len
    }

    fn runner<'r, 's>(&'r mut self, server: &'s Server, out: &'r mut Reply) -> Runner<'r, 's> {
        let (groups, client) = (&self.worker.groups, &mut self.client);
        Runner { server, groups, client, out, takes: Takes::Anything, enters: false }
    }

    /// Returns true if there are other clients that can share commits. Where each commit waits for
    /// the disk the engine has them share it.
    fn shares_commits(&self, server: &Server) -> bool {
        server.clients.count() > 1 && server.databases.fsync() != Fsync::Always
    }

    /// Counts the calls of a run of which `ran` commands were run: each took its share of the time.
    fn count_run(&mut self, server: &Server, pipeline: Pipeline<'_>, run: &Run, ran: usize) {
        let each = self.lap() / ran.max(1) as u32;
        for (index, calls) in run.counts(ran) {
            server.metrics.count(index, calls, each);
            self.note_command(index);
        }
        for call in run.calls(pipeline).take(ran) {
            if !command::note_slow(server, &self.client.info, each, call) {
                break;
            }
        }
    }

    /// Returns true if replies wait for a commit.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Finishes the commits that replies wait for. Replies to what failed become errors.
    pub(crate) fn finish_waiting(&mut self, server: &Server, out: &mut Reply) {
        if !self.waiting.is_empty() {
            self.waiting.finish(&server.databases, &self.worker.groups, out);
            // The time of a shared commit is no command's.
            self.clock = Instant::now();
        }
    }

    fn note_command(&self, index: usize) {
        self.client.info.last_command.store(index, Ordering::Relaxed);
    }

    /// Returns true if a command is to join the commit group of the worker: others may share its
    /// commit, or those that come next in its own pipeline.
    fn may_join(
        &mut self,
        server: &Server,
        command: &Command,
        pipeline: Pipeline<'_>,
        at: usize,
    ) -> bool {
        if !command.shares_commits() || server.databases.fsync() == Fsync::Always {
            return false;
        }
        let keys = command::keys_of(command, pipeline.at(at));
        if server.databases.waiters.any_of(self.client.database, keys) {
            // A client that waits for a key is to have it at once.
            return false;
        }
        server.clients.count() > 1
            || !self.waiting.is_empty()
            || (at + 1 < pipeline.len() && {
                let next = pipeline.at(at + 1);
                let found = self.finder.find(next.at(0));
                found.is_some_and(|(_, next)| next.pipelining == Pipelining::SharedCommit)
            })
    }

    /// Runs or queues one command.
    fn run_one(
        &mut self,
        server: &Server,
        found: Option<Found>,
        (pipeline, at): (Pipeline<'_>, usize),
        out: &mut Reply,
    ) {
        let args = pipeline.at(at);
        if is_http(args, found.is_some()) {
            return self.end_http(server);
        }
        let Some((index, command)) = found else {
            return self.refuse(&unknown_command(args), out);
        };
        if let Some(fault) = wrong_arguments(command, args) {
            return self.refuse_call(server, command, &fault, out);
        }
        if self.needs_password(server) && !command.flags.has(Flags::NO_AUTH) {
            return self.refuse_call(server, command, "NOAUTH Authentication required.", out);
        }
        let slot = COMMANDS.slot(index, args);
        self.note_command(slot);
        if let Some(text) = self.denial(server, (command, slot, args)) {
            return self.refuse_call(server, command, &text, out);
        }
        if server.remembered.lacks_replicas() && self.writes(command) {
            return self.refuse_call(server, command, NO_REPLICAS, out);
        }
        if !are_keys_short(command, args) {
            return self.refuse("ERR a key has at most 65536 bytes", out);
        }
        if let Some(queue) =
            self.client.queue.as_mut().filter(|_| !command.flags.has(Flags::NOT_QUEUED))
        {
            if command.flags.has(Flags::NO_MULTI) {
                return self.refuse("ERR Command not allowed inside a transaction", out);
            }
            if queue.bytes() + args.bytes() > server.config.limits.query_bytes {
                return self.refuse("ERR too many bytes are queued by MULTI", out);
            }
            queue.push(command, args);
            queue.show(&self.client.info);
            return out.simple("QUEUED");
        }
        self.running = Some(slot);
        if self.client.queue.is_none() && self.may_join(server, command, pipeline, at) {
            let from = out.len();
            let joined = self.runner(server, out).join((command, args));
            // If it has failed in another way it is to be run alone.
            if let Ok(handle) = joined {
                if let Some(handle) = handle {
                    self.waiting.push(handle, from..out.len(), 1);
                }
                return listens::show(server, &self.client, command, args);
            }
        }
        // What this client has written before is to be seen, and told of.
        self.finish_waiting(server, out);
        if self.client.listening.is_some() {
            listens::before(server, &self.client, command, args, out);
        }
        let mut runner = self.runner(server, out);
        runner.enters = true;
        if runner.is_behind_others(command, args) {
            runner.takes = Takes::Nothing;
        }
        if let Some(wait) = runner.alone((command, args)) {
            self.block(server, (command, args), *wait, out);
            self.running = self.running.filter(|_| !self.has_stopped());
        }
        listens::show(server, &self.client, command, args);
    }

    /// Returns true if the client has to say a password first.
    fn needs_password(&self, server: &Server) -> bool {
        !self.client.authenticated && !server.acl.is_open()
    }

    /// The error for a call that the client's user may not make.
    #[inline]
    fn denial(&self, server: &Server, call: permission::Slotted<'_>) -> Option<String> {
        let queues = self.client.queue.is_some();
        let place = if queues { Place::Transaction } else { Place::TopLevel };
        let refusal = permission::refusal(server, &self.client, call, place)?;
        Some(format!("NOPERM {}", refusal.text))
    }

    /// Returns true if a command writes, or one that it runs of a transaction. Scripts are asked
    /// when they write.
    fn writes(&self, command: &Command) -> bool {
        let writes = |command: &Command| {
            command.flags.has(Flags::WRITE) && command.group != Group::Scripting
        };
        if command.flags.has(Flags::RUNS_QUEUE) {
            return self.client.queue.as_ref().is_some_and(|queue| queue.has(writes));
        }
        writes(command)
    }

    /// When to look again whether a command may run that is to wait because clients are paused.
    fn paused_until(&self, server: &Server, found: Option<Found>) -> Option<Instant> {
        let (_, command) = found?;
        let queued = self.client.queue.as_ref();
        let writes = if command.flags.has(Flags::RUNS_QUEUE) {
            queued.is_some_and(Queue::writes)
        } else {
            command.flags.has(Flags::WRITE) && queued.is_none()
        };
        server.pause.next_look(writes)
    }

    /// Ends the connection of a browser: what follows is the body of a request, which a page chose.
    fn end_http(&mut self, server: &Server) {
        (self.is_http, self.client.closing) = (true, true);
        server.clients.note_http();
        let client = ("client", self.client.info.address.as_str().into());
        let message = "a client spoke HTTP, and its connection is ended";
        server.log.write(Event::HttpClient, message, &[client]);
    }

    /// Replies that a call cannot be run; a transaction that it was to run is discarded.
    fn refuse_call(&mut self, server: &Server, command: &Command, text: &str, out: &mut Reply) {
        if !command.flags.has(Flags::RUNS_QUEUE) {
            return self.refuse(text, out);
        }
        transactions::reset(server, &mut self.client);
        let why = text.trim_start_matches("ERR ");
        out.error(&format!("EXECABORT Transaction discarded because of: {why}"));
    }

    /// Replies that a command cannot be run; a transaction that it belongs to cannot be either.
    fn refuse(&mut self, text: &str, out: &mut Reply) {
        if let Some(queue) = &mut self.client.queue {
            queue.spoil();
        }
        out.error(text);
    }

    /// Ends the session: nothing that it registered stays.
    pub(crate) fn end(&mut self, server: &Server) {
        self.waiting.finish_untold(&server.databases, &self.worker.groups);
        self.end_stopped(server);
        transactions::unwatch_all(server, &mut self.client);
        listens::end(server, &mut self.client);
        server.clients.leave(self.client.info.id);
    }
}
