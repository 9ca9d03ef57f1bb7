//! One client's session: from the commands in its buffer to the replies. Knows of no socket.

use std::{
    borrow::Cow,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use rhumb::Submitted;

use crate::{
    clients::ClientInfo,
    command::{self, COMMANDS, Client, Command, Flags, transactions},
    commit,
    config::Fsync,
    fault::Fault,
    log::Event,
    resp::{Args, Frames, ReadLimits, Reply},
    server::Server,
    turn::{Ticket, Turn},
};

/// The longest key, in bytes: the engine's.
const KEY_BYTES_MAX: usize = 64 << 10;

/// How many commands of one kind are run together, at most.
const RUN_MAX: usize = 256;

/// One client: its state, and what it has under way.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// How many commands are run together: fewer if their values are large, or after a failure.
    run_max: usize,
    /// Writes that wait for their commit, and how many commands they are of: their replies are
    /// written by [`Session::finish_submitted`], before anything else is.
    submitted: Option<(Submitted, usize)>,
    /// The turns that commands have joined, and the places of their replies.
    joined: Vec<Joined>,
}

/// Neighbouring commands that have joined the same turn.
struct Joined {
    ticket: Ticket,
    replies: Range<usize>,
    commands: usize,
}

impl Session {
    /// A client that has just come, of the worker that has these turns.
    pub(crate) fn new(info: Arc<ClientInfo>, authenticated: bool, turn: Arc<Turn>) -> Self {
        let client = Client::new(info, authenticated, turn);
        Self { client, run_max: RUN_MAX, submitted: None, joined: Vec::new() }
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

    /// Runs the complete commands of `frames` from `from` on, until the replies are `most` bytes;
    /// returns how many were run.
    pub(crate) fn run(
        &mut self,
        server: &Server,
        buffer: &[u8],
        frames: &Frames,
        from: usize,
        most: usize,
        out: &mut Reply,
    ) -> usize {
        let mut at = from;
        while at < frames.len() && out.len() < most && !self.client.closing && !out.overflowed() {
            at += match self.run_together(server, (buffer, frames), at, most, out) {
                0 => {
                    self.run_one(server, frames.command(buffer, at), out);
                    1
                }
                together => together,
            };
        }
        at - from
    }

    /// Runs the plain `GET`s, or the plain `SET`s and `MSET`s, that come next; returns how many.
    fn run_together(
        &mut self,
        server: &Server,
        (buffer, frames): (&[u8], &Frames),
        from: usize,
        most: usize,
        out: &mut Reply,
    ) -> usize {
        if !self.client.authenticated || self.client.queue.is_some() {
            return 0;
        }
        let commands =
            (from..frames.len().min(from + self.run_max)).map(|at| frames.command(buffer, at));
        let first = frames.command(buffer, from);
        if is_set(first) || is_mset(first) {
            self.finish_joined(server, out);
            self.client.turn.close(&server.databases);
            return self.run_sets(server, commands, from..frames.len(), out);
        }
        if !is_get(first) {
            return 0;
        }
        self.finish_joined(server, out);
        let (databases, database) = (&server.databases, self.client.database);
        self.note_command(COMMANDS.get);
        if from + 1 == frames.len() {
            // The usual one: nothing is collected for it.
            let (_, absent) = command::get_run(databases, database, &[first.at(1)], most, out);
            server.metrics.count(COMMANDS.get, 1);
            server.metrics.count_absent(absent);
            return 1;
        }
        let keys: Vec<&[u8]> =
            commands.take_while(|args| is_get(*args)).map(|args| args.at(1)).collect();
        let (answered, absent) = command::get_run(databases, database, &keys, most, out);
        server.metrics.count_absent(absent);
        self.run_max =
            if answered < keys.len() { answered } else { (self.run_max * 2).min(RUN_MAX) };
        server.metrics.count(COMMANDS.get, answered);
        answered
    }

    /// Sets the pairs of the `SET`s and `MSET`s at the front of `commands`, which are the first of
    /// those at `places`; returns how many. The last ones of a client are only submitted if there
    /// are others whose commits they can share.
    fn run_sets<'a>(
        &mut self,
        server: &Server,
        commands: impl Iterator<Item = Args<'a>>,
        places: std::ops::Range<usize>,
        out: &mut Reply,
    ) -> usize {
        let (mut pairs, mut sets, mut msets) = (Vec::new(), 0, 0);
        for args in commands {
            if is_set(args) {
                sets += 1;
            } else if is_mset(args) {
                msets += 1;
            } else {
                break;
            }
            pairs.extend((1..args.len()).step_by(2).map(|at| (args.at(at), args.at(at + 1))));
        }
        let (databases, together) = (&server.databases, sets + msets);
        let may_share = together == places.len()
            && server.clients.count() > 1
            && databases.fsync() != Fsync::Always;
        let done = if may_share {
            command::submit_run(databases, self.client.database, &pairs)
                .map(|submitted| self.submitted = Some((submitted, together)))
        } else {
            command::set_run(databases, self.client.database, &pairs)
                .map(|()| (0..together).for_each(|_| out.ok()))
        };
        if let Err(error) = done {
            if together > 1 {
                // Nothing was written: each by itself says why, and the others are.
                self.run_max = 1;
                return 0;
            }
            Fault::from(error).tell(&server.databases, out);
        }
        self.run_max = (self.run_max * 2).min(RUN_MAX);
        server.metrics.count(COMMANDS.set, sets);
        server.metrics.count(COMMANDS.mset, msets);
        self.note_command(if sets > 0 { COMMANDS.set } else { COMMANDS.mset });
        together
    }

    /// Whether writes wait for their commit, and their replies with them.
    pub(crate) fn has_submitted(&self) -> bool {
        self.submitted.is_some() || !self.joined.is_empty()
    }

    /// Says that a command has joined a turn, and where its reply is.
    fn note_joined(&mut self, ticket: Ticket, reply: Range<usize>) {
        match self.joined.last_mut() {
            Some(last) if last.ticket.is_with(&ticket) && last.replies.end == reply.start => {
                last.replies.end = reply.end;
                last.commands += 1;
            }
            _ => self.joined.push(Joined { ticket, replies: reply, commands: 1 }),
        }
    }

    /// Closes the turns that commands have joined; if one failed, their replies are errors.
    fn finish_joined(&mut self, server: &Server, out: &mut Reply) {
        if self.joined.is_empty() {
            return;
        }
        let joined = std::mem::take(&mut self.joined);
        let finish = |of: &Joined| self.client.turn.finish(&server.databases, &of.ticket);
        let results: Vec<_> = joined.iter().map(finish).collect();
        if results.iter().all(Result::is_ok) {
            return;
        }
        let first = joined[0].replies.start;
        let written = out.split_off(first);
        let mut at = first;
        for (Joined { replies, commands, .. }, result) in joined.into_iter().zip(results) {
            let end = if result.is_ok() { replies.end } else { replies.start };
            out.raw(&written[at - first..end - first]);
            at = replies.end;
            if let Err(error) = result {
                server.databases.health.met(&error);
                let fault = Fault::from(error);
                (0..commands).for_each(|_| fault.write(out));
            }
        }
        out.raw(&written[at - first..]);
    }

    /// Commits the writes that wait, if nobody has meanwhile, and replies.
    pub(crate) fn finish_submitted(&mut self, server: &Server, out: &mut Reply) {
        self.finish_joined(server, out);
        let Some((submitted, commands)) = self.submitted.take() else { return };
        match server.databases.finish(submitted) {
            Ok(()) => (0..commands).for_each(|_| out.ok()),
            Err(error) => {
                server.databases.health.met(&error);
                let fault = Fault::from(error);
                (0..commands).for_each(|_| fault.write(out));
            }
        }
    }

    fn note_command(&self, index: usize) {
        self.client.info.last_command.store(index, Ordering::Relaxed);
    }

    /// Runs or queues one command.
    fn run_one(&mut self, server: &Server, args: Args<'_>, out: &mut Reply) {
        let found = command::find(args.at(0));
        if is_http(args, found.is_some()) {
            return self.end_http(server);
        }
        let Some((index, command)) = found else {
            return self.refuse(&unknown_command(args), out);
        };
        if let Some(fault) = wrong_arguments(command, args) {
            if command.name == "exec" {
                // An EXEC that cannot be run ends the transaction all the same.
                transactions::reset(server, &mut self.client);
                let why = fault.trim_start_matches("ERR ");
                out.error(&format!("EXECABORT Transaction discarded because of: {why}"));
                return;
            }
            return self.refuse(&fault, out);
        }
        if !self.client.authenticated && !command.flags.has(Flags::NO_AUTH) {
            return self.refuse("NOAUTH Authentication required.", out);
        }
        if command::keys_of(command, args).any(|key| key.len() > KEY_BYTES_MAX) {
            return self.refuse("ERR a key has at most 65536 bytes", out);
        }
        server.metrics.count(index, 1);
        self.note_command(index);
        match &mut self.client.queue {
            Some(queue) if !command.flags.has(Flags::NOT_QUEUED) => {
                if command.flags.has(Flags::NO_MULTI) {
                    return self.refuse("ERR Command not allowed inside a transaction", out);
                }
                if queue.bytes() + args.bytes() > server.config.limits.query_bytes {
                    return self.refuse("ERR too many bytes are queued by MULTI", out);
                }
                queue.push(command, args);
                self.client.info.queued.store(queue.len(), Ordering::Relaxed);
                out.simple("QUEUED");
            }
            None if commit::may_join(server, command) => {
                let from = out.len();
                if let Some(ticket) = commit::join(server, &mut self.client, out, command, args) {
                    self.note_joined(ticket, from..out.len());
                }
            }
            _ => {
                // What this client has written before is to be seen.
                self.finish_joined(server, out);
                if command.flags.has(Flags::SLOW) {
                    let run = || commit::execute(server, &mut self.client, out, command, args);
                    return tokio::task::block_in_place(run);
                }
                commit::execute(server, &mut self.client, out, command, args);
            }
        }
    }

    /// Ends the connection of a browser: what follows is the body of a request, which a page chose.
    fn end_http(&mut self, server: &Server) {
        (self.client.is_http, self.client.closing) = (true, true);
        server.clients.note_http();
        let client = ("client", self.client.info.address.as_str().into());
        let message = "a client spoke HTTP, and its connection is ended";
        server.log.write(Event::HttpClient, message, &[client]);
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
        if let Some((submitted, _)) = self.submitted.take() {
            // Nobody is left to be told.
            let _ = server.databases.finish(submitted);
        }
        if !self.joined.is_empty() {
            self.client.turn.close(&server.databases);
        }
        transactions::unwatch_all(server, &mut self.client);
        server.clients.leave(self.client.info.id);
    }
}

/// Returns true for a line of an HTTP request, which a web page can make a browser send: a name
/// that Redis ends the connection at as well, or a request line, which is no command that succeeds.
fn is_http(args: Args<'_>, is_known: bool) -> bool {
    let name = args.at(0);
    if !is_known {
        let is_named = ["post", "host:"].iter().any(|word| command::is_word(name, word));
        return is_named || is_request_line(args);
    }
    command::is_word(name, "get") && is_request_line(args)
}

/// Returns true for a method, a target and a version, as in `GET / HTTP/1.1`.
fn is_request_line(args: Args<'_>) -> bool {
    args.len() == 3 && args.at(2).starts_with(b"HTTP/")
}

/// Whether a command is `GET`.
fn is_get(args: Args<'_>) -> bool {
    args.len() == 2 && args.at(0).eq_ignore_ascii_case(b"get")
}

/// Whether a command is `SET` without options.
fn is_set(args: Args<'_>) -> bool {
    args.len() == 3 && args.at(0).eq_ignore_ascii_case(b"set")
}

/// Whether a command is `MSET` of whole pairs.
fn is_mset(args: Args<'_>) -> bool {
    args.len() >= 3 && !args.len().is_multiple_of(2) && args.at(0).eq_ignore_ascii_case(b"mset")
}

/// The error for arguments that are too few or too many, or a part that there is not.
fn wrong_arguments(command: &Command, args: Args<'_>) -> Option<String> {
    let mut name = Cow::Borrowed(command.name);
    let mut fits = command.takes(args.len());
    if let Some(word) = args.get(1).filter(|_| !command.parts.is_empty()) {
        let Some((part, arity)) = command.part(word) else {
            let word = String::from_utf8_lossy(word);
            let name = command.name.to_uppercase();
            return Some(format!("ERR unknown subcommand '{word}'. Try {name} HELP."));
        };
        name = format!("{name}|{part}").into();
        fits = command::takes(*arity, args.len());
    }
    (!fits).then(|| format!("ERR wrong number of arguments for '{name}' command"))
}

/// The longest part of an unknown command that is repeated to the client, in bytes.
const REPEATED_BYTES_MAX: usize = 128;

fn unknown_command(args: Args<'_>) -> String {
    let text = |bytes: &[u8], most: usize| {
        String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
    };
    let mut repeated = String::new();
    for argument in args.iter_from(1) {
        if repeated.len() >= REPEATED_BYTES_MAX {
            break;
        }
        repeated += &format!("'{}' ", text(argument, REPEATED_BYTES_MAX - repeated.len()));
    }
    let name = text(args.at(0), REPEATED_BYTES_MAX);
    format!("ERR unknown command '{name}', with args beginning with: {repeated}")
}
