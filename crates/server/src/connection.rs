//! One connection: bytes in, commands run, replies out, in order.
//!
//! A client may send all its commands before it reads a reply: replies that it does not take wait
//! for it, up to a limit, past which it is not read from. While a client is idle it has no buffers.

mod copying;

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    clients::ClientInfo,
    command::COMMANDS,
    config::Fsync,
    effort,
    log::Event,
    resp::{Frames, Parser, Reply},
    server::Server,
    session::{SLICE, Session},
    spare_buffers, sweep,
    unsent::Unsent,
    worker_state::WorkerState,
};

/// Bytes that are read at a time; before a password was said.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_FIRST: usize = 8 << 10;

/// Bytes that a client may send for one command before it has said the password.
const QUERY_BYTES_FIRST: usize = 32 << 10;

/// How many commands are parsed before they are run.
const COMMANDS_MAX: usize = 1024;

/// Bytes that a client sends, or is sent, before its worker's other clients have their turn: some
/// hundred microseconds' worth.
const TURN_BYTES: usize = 512 << 10;

/// Replies are sent once they are this large, in bytes, even if there are commands left to run.
const SEND_BYTES: usize = 64 << 10;

/// Messages that others left for a client stay with them until it has fewer unsent bytes.
const MESSAGE_BYTES: usize = 16 << 10;

/// A buffer of an idle client that is larger is given back.
const IDLE_BYTES: usize = 512;

/// Bytes that are read of a client that waits for a key, so that its end is noticed. Chosen, not
/// measured: some thousand commands.
const STOPPED_INPUT_BYTES: usize = 256 << 10;

/// A client with fewer bytes of buffers is not the one that is closed, or waits, when there are too
/// many.
const SMALL_BYTES: usize = 256 << 10;

thread_local! {
    /// What bytes are read into before they are a client's; one for each thread.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Why a connection ends before the client says so.
enum End {
    /// The socket failed, or the other side is gone, or the server ends.
    Gone,
    /// After the replies.
    Closing,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// A connection's state.
struct Connection<S> {
    server: Arc<Server>,
    session: Session,
    socket: S,
    parser: Parser,
    frames: Frames,
    /// Bytes that were read and are not yet commands that were run.
    input: Vec<u8>,
    /// Bytes of it that were read since others had their turn.
    turn_bytes: usize,
    out: Reply,
    /// Earlier replies, which the client has not taken.
    unsent: Unsent,
    /// True if the socket may hold bytes that it was given and has not sent, as TLS does.
    is_unflushed: bool,
    /// What this connection has added to the bytes of all clients' buffers, and to those of them
    /// that are unsent replies.
    counted_bytes: usize,
    counted_unsent: usize,
    /// How many commands were run since the sweeper was helped.
    unhelped: usize,
}

/// Serves a connection until it ends.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    server: Arc<Server>,
    socket: S,
    info: Arc<ClientInfo>,
    worker: Arc<WorkerState>,
) {
    let is_open = server.acl.is_open();
    let out = Reply::new(server.config.limits.reply_bytes);
    let mut connection = Connection {
        session: Session::new(&server, Arc::clone(&info), is_open, worker),
        server,
        socket,
        parser: Parser::default(),
        frames: Frames::default(),
        input: Vec::new(),
        turn_bytes: 0,
        out,
        unsent: Unsent::default(),
        is_unflushed: false,
        counted_bytes: 0,
        counted_unsent: 0,
        unhelped: 0,
    };
    let mut killed = pin!(info.killed());
    tokio::select! {
        biased;
        () = &mut killed => {}
        _ = connection.run() => {}
    }
    connection.end();
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> Result<(), End> {
        loop {
            self.read().await?;
            let done = self.run_commands().await;
            if let Err(End::Gone) = done {
                return done;
            }
            self.help_sweeper();
            // After all clients whose commands are here were served. Replies to clients of one
            // machine that are sent in one go wake it once and not each time. (Also after writes,
            // which let the others go first before: that costs 15% otherwise.)
            if let Some(_waits) = self.session.worker.hold_replies(self.out.len()) {
                tokio::task::yield_now().await;
            }
            self.send().await?;
            if done.is_err() {
                self.send_rest().await?;
            }
            if let Some(wanted) = self.session.client.wanted_copy.take() {
                return self.send_copy(wanted).await;
            }
            done?;
            self.go_idle();
        }
    }

    /// Reads what there is, at least one byte, while earlier replies are sent.
    async fn read(&mut self) -> Result<(), End> {
        let wanted = self.parser.wanted();
        if wanted > self.input.capacity() && self.input.len() >= READ_BYTES {
            // At most as much again, and no more than the argument needs.
            let more = (wanted - self.input.len()).min(self.input.len());
            self.input.reserve_exact(more);
        }
        let len = poll_fn(|cx| self.poll_read(cx)).await?;
        self.turn_bytes += len;
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            tokio::task::yield_now().await;
        }
        if len == 0 {
            // A client that has sent everything may still take the replies.
            self.send_rest().await?;
            return Err(End::Gone);
        }
        Ok(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, End>> {
        while self.take_messages() | self.has_unsent() {
            let sent = self.poll_send(cx)?;
            self.count_bytes();
            if self.is_full() {
                // The socket wakes this task when it takes more.
                return Poll::Pending;
            }
            if sent.is_pending() {
                break;
            }
        }
        let most = if self.session.client.authenticated { READ_BYTES } else { READ_BYTES_FIRST };
        let mut scratch = SCRATCH.take();
        scratch.resize(READ_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut scratch[..most]);
        let polled = Pin::new(&mut self.socket).poll_read(cx, &mut buffer);
        self.input.extend_from_slice(buffer.filled());
        let len = buffer.filled().len();
        SCRATCH.set(scratch);
        ready!(polled)?;
        Poll::Ready(Ok(len))
    }

    /// Takes messages that were left for the client, as many as are sent next. Returns true if
    /// there were any. All replies that were written are whole.
    fn take_messages(&mut self) -> bool {
        let outbox = &self.session.client.info.outbox;
        let before = self.unsent.len();
        while self.unsent.len() < MESSAGE_BYTES
            && outbox.has()
            && let Some(message) = outbox.pop()
        {
            self.unsent.push_shared(message);
        }
        let taken = self.unsent.len() - before;
        if taken > 0 {
            self.server.metrics.count_batch(0, Duration::ZERO, 0, taken);
        }
        taken > 0
    }

    /// Runs the commands that are complete. Sends replies meanwhile if they become large.
    async fn run_commands(&mut self) -> Result<(), End> {
        let began = Instant::now();
        let mut mark = began;
        self.session.clock = began;
        let (mut commands, mut output, input) = (0, 0, self.input.len());
        // Commands may have come while the client had stopped.
        let mut may_have_more = false;
        let done = loop {
            let limits = self.session.read_limits(&self.server);
            // What a command may be depends on whether the one before it said the password.
            let most = if self.session.client.authenticated { COMMANDS_MAX } else { 1 };
            let parsed = self.parser.parse(&mut self.input, &mut self.frames, &limits, most);
            let complete = self.frames.len();
            let used = self.input.len();
            self.session.client.info.query_used.store(used, Ordering::Relaxed);
            let mut at = 0;
            while at < complete && !self.session.client.closing {
                let passes = self.server.databases.waiters.begun();
                let ran = self.run_some(at);
                at += ran;
                let is_over = self.session.clock.saturating_duration_since(mark) >= SLICE;
                mark = self.note_time(mark, ran);
                if self.session.is_waiting() {
                    // After all clients whose commands are here were served, so that one commit is
                    // of all of them.
                    tokio::task::yield_now().await;
                    mark = Instant::now();
                    self.session.clock = mark;
                    self.session.finish_waiting(&self.server, &mut self.out);
                    mark = self.note_time(mark, ran);
                }
                if self.session.has_stopped() {
                    self.wait_to_go_on().await?;
                    may_have_more = true;
                    mark = Instant::now();
                }
                let begun = self.server.databases.waiters.begun();
                if begun != passes {
                    // Those that wait for what was written take it before this client goes on.
                    self.server.databases.waiters.finish(begun).await;
                    mark = Instant::now();
                    self.session.clock = mark;
                }
                if is_over && at < complete {
                    // The others, too, have a slice.
                    tokio::task::yield_now().await;
                    mark = Instant::now();
                    self.session.clock = mark;
                }
                if self.out.overflowed() {
                    self.out.clear(0);
                    self.out.error("ERR the reply is larger than the server sends");
                    self.session.client.closing = true;
                }
                if self.out.len() >= SEND_BYTES {
                    output += self.out.len();
                    self.send().await?;
                    self.make_room().await?;
                    mark = Instant::now();
                    self.session.clock = mark;
                }
            }
            commands += complete;
            let taken = self.parser.consume(&mut self.frames);
            self.input.drain(..taken);
            if let Err(error) = parsed {
                self.server.metrics.count_protocol_error();
                let client = ("client", self.session.client.info.address.as_str().into());
                let log = &self.server.log;
                log.write(Event::ProtocolError, "a client sent what is not a command", &[client]);
                self.out.error(&format!("ERR {error}"));
                break Err(End::Closing);
            }
            if self.session.is_http {
                break Err(End::Gone);
            }
            if self.session.client.closing {
                break Err(End::Closing);
            }
            if complete < most && !std::mem::take(&mut may_have_more) {
                break self.check_query();
            }
        };
        output += self.out.len();
        self.unhelped = commands;
        self.server.metrics.count_batch(commands, began.elapsed(), input, output);
        if commands > 0 {
            self.session.client.info.note_active();
            if self.unsent.len() <= self.server.config.limits.output_soft_bytes() {
                // The command that has begun is a new one: a client that sends commands is busy.
                self.session.client.info.note_stalled(false);
            }
        }
        done
    }

    /// Removes keys that have ended, if the sweeper alone does not keep up with clients or rests.
    fn help_sweeper(&mut self) {
        let commands = std::mem::take(&mut self.unhelped);
        let is_behind = self.server.is_sweep_behind.load(Ordering::Relaxed);
        if !is_behind && !self.server.databases.met.any() {
            return;
        }
        let Self { server, session, .. } = self;
        let help = || {
            session.worker.groups.close(&server.databases);
            if is_behind {
                sweep::help(server, commands);
            }
            sweep::end_met(server);
        };
        if server.databases.fsync() == Fsync::Always {
            tokio::task::block_in_place(help);
        } else {
            help();
        }
    }

    /// Waits until a client that has stopped goes on, while earlier replies are sent and further
    /// commands come.
    async fn wait_to_go_on(&mut self) -> Result<(), End> {
        let server = Arc::clone(&self.server);
        while self.session.has_stopped() {
            self.send().await?;
            self.session.client.info.note_stalled(self.has_unsent());
            self.count_bytes();
            poll_fn(|cx| self.poll_stopped(cx)).await?;
            self.session.go_on(&server, &mut self.out);
        }
        // What it waited for is no command's time.
        self.session.clock = Instant::now();
        self.session.client.info.note_active();
        Ok(())
    }

    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            if self.session.poll_stopped(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if self.input.len() >= STOPPED_INPUT_BYTES {
                let _ = self.poll_send(cx)?;
                return Poll::Pending;
            }
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Err(End::Gone));
            }
        }
    }

    /// Runs complete commands from the one at `at`; returns how many.
    fn run_some(&mut self, at: usize) -> usize {
        let Self { server, session, input, frames, out, .. } = self;
        // Replies join earlier ones that are not sent.
        let own = out.is_empty().then(|| out.replace_buffer(spare_buffers::take()));
        let mut run = || session.run(server, input, frames, at, SEND_BYTES, out);
        let ran = if server.databases.fsync() == Fsync::Always {
            // The thread may wait for the disk: another one takes its other connections.
            tokio::task::block_in_place(run)
        } else {
            run()
        };
        if let Some(mut own) = own
            && out.len() < spare_buffers::SMALL_REPLY_BYTES
        {
            own.extend_from_slice(out.bytes());
            spare_buffers::keep(out.replace_buffer(own));
        }
        ran
    }

    /// Tells of commands that took long together since `since`, unless one of them was told of;
    /// returns the time.
    fn note_time(&self, since: Instant, commands: usize) -> Instant {
        // The session has just looked at the clock.
        let (now, info) = (self.session.clock, &self.session.client.info);
        if self.server.is_slow(now - since) && !info.was_slow.swap(false, Ordering::Relaxed) {
            let name = COMMANDS.name(info.last_command.load(Ordering::Relaxed));
            self.server.note_slow(info, name, (commands, commands), now - since);
            info.was_slow.store(false, Ordering::Relaxed);
        }
        now
    }

    /// Refuses a command that is too large to come in.
    fn check_query(&mut self) -> Result<(), End> {
        let limits = &self.server.config.limits;
        let most =
            if self.session.client.authenticated { limits.query_bytes } else { QUERY_BYTES_FIRST };
        let all = self.server.clients.buffers_bytes.load(Ordering::Relaxed);
        let mine = self.input.capacity() + self.queued_bytes();
        let is_over = all > limits.buffers_bytes && mine > SMALL_BYTES;
        if self.input.len() > most || is_over {
            self.out.error("ERR Protocol error: the query buffers are full");
            return Err(End::Closing);
        }
        Ok(())
    }

    /// Bytes of the commands that `MULTI` keeps.
    fn queued_bytes(&self) -> usize {
        self.session.client.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// Sends the replies that the client takes now; the others wait for it.
    async fn send(&mut self) -> Result<(), End> {
        poll_fn(|cx| {
            if !self.has_unsent() {
                // The usual one: nothing is copied.
                return self.poll_send_out(cx);
            }
            self.keep_out(0);
            let _ = self.poll_send(cx)?;
            self.count_bytes();
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Sends the replies that were written last, before which all were sent; keeps what is not
    /// taken.
    fn poll_send_out(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let mut sent = 0;
        while sent < self.out.len().min(TURN_BYTES) {
            let polled = Pin::new(&mut self.socket).poll_write(cx, &self.out.bytes()[sent..]);
            match polled? {
                Poll::Pending => break,
                Poll::Ready(0) => return Poll::Ready(Err(End::Gone)),
                Poll::Ready(written) => sent += written,
            }
        }
        self.is_unflushed = true;
        if sent < self.out.len() {
            self.keep_out(sent);
        }
        self.out.clear(SEND_BYTES);
        if sent < TURN_BYTES {
            let _ = self.poll_send(cx)?;
        }
        if !self.unsent.is_empty() {
            self.count_bytes();
        }
        Poll::Ready(Ok(()))
    }

    /// Keeps the replies that were written last, but for the first bytes, which were sent.
    fn keep_out(&mut self, sent: usize) {
        let buffer = self.out.replace_buffer(Vec::new());
        if sent > 0 {
            if let Some(buffer) = self.unsent.push_rest(buffer, sent) {
                spare_buffers::keep(buffer);
            }
        } else if let Some(buffer) = self.unsent.push_buffer(buffer) {
            spare_buffers::keep(buffer);
        }
    }

    /// Sends earlier replies, until there are none. Others have their turn between.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let (info, before) = (&self.session.client.info, self.unsent.len());
        while !self.unsent.is_empty() {
            if before - self.unsent.len() >= TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let polled = Pin::new(&mut self.socket).poll_write(cx, self.unsent.front());
            info.note_stalled(polled.is_pending());
            match ready!(polled)? {
                0 => return Poll::Ready(Err(End::Gone)),
                written => self.unsent.advance(written),
            }
        }
        if self.is_unflushed {
            // TLS takes bytes that it has not sent: nothing would send them while the client waits.
            let polled = Pin::new(&mut self.socket).poll_flush(cx);
            info.note_stalled(polled.is_pending());
            ready!(polled)?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until every reply is sent.
    async fn send_rest(&mut self) -> Result<(), End> {
        poll_fn(|cx| self.poll_send(cx)).await
    }

    /// Waits until no more replies wait than may.
    async fn make_room(&mut self) -> Result<(), End> {
        poll_fn(|cx| {
            if self.is_full() {
                let _ = self.poll_send(cx)?;
                self.count_bytes();
            }
            // If it is full still, the socket wakes this task when it takes more.
            if self.is_full() { Poll::Pending } else { Poll::Ready(Ok(())) }
        })
        .await
    }

    /// Returns true if bytes are left that the socket has not taken, or not sent.
    fn has_unsent(&self) -> bool {
        self.is_unflushed || !self.unsent.is_empty()
    }

    /// Returns true if more replies wait than may: the client's commands wait until it takes some.
    fn is_full(&self) -> bool {
        let limits = &self.server.config.limits;
        let all = self.server.clients.unsent_bytes.load(Ordering::Relaxed);
        let mine = self.unsent.len();
        mine > limits.output_bytes || (mine > SMALL_BYTES && all > limits.all_output_bytes())
    }

    /// Before waiting: says how many bytes are kept, and gives back what is not needed.
    fn go_idle(&mut self) {
        if self.input.is_empty() && self.input.capacity() > IDLE_BYTES {
            effort::free(std::mem::take(&mut self.input));
        }
        if self.out.capacity() > IDLE_BYTES {
            spare_buffers::keep(self.out.replace_buffer(Vec::new()));
        }
        self.session.client.info.note_stalled(self.parser.is_inside() || self.has_unsent());
        self.count_bytes();
    }

    /// Says how many bytes are kept.
    fn count_bytes(&mut self) {
        let unsent = self.unsent.len();
        self.session.client.info.query_used.store(self.input.len(), Ordering::Relaxed);
        let (query, reply) = (self.input.capacity(), self.out.capacity() + unsent);
        let all = query + self.queued_bytes() + reply;
        let (info, clients) = (&self.session.client.info, &self.server.clients);
        if all != self.counted_bytes {
            info.query_bytes.store(query, Ordering::Relaxed);
            info.reply_bytes.store(reply - unsent, Ordering::Relaxed);
            clients.buffers_bytes.fetch_add(all, Ordering::Relaxed);
            clients.buffers_bytes.fetch_sub(self.counted_bytes, Ordering::Relaxed);
            self.counted_bytes = all;
        }
        if unsent != self.counted_unsent {
            info.unsent_bytes.store(unsent, Ordering::Relaxed);
            info.unsent_chunks.store(self.unsent.chunks(), Ordering::Relaxed);
            clients.note_unsent(self.counted_unsent, unsent);
            self.counted_unsent = unsent;
        }
    }

    fn end(mut self) {
        self.server.clients.buffers_bytes.fetch_sub(self.counted_bytes, Ordering::Relaxed);
        self.server.clients.note_unsent(self.counted_unsent, 0);
        let (server, info) = (Arc::clone(&self.server), &self.session.client.info);
        if info.outbox.is_over() {
            server.clients.over_limit.fetch_add(1, Ordering::Relaxed);
            let client = ("client", info.address.as_str().into());
            let message = "a client is ended that does not take its messages";
            server.log.write(Event::OutputLimit, message, &[client]);
        }
        self.session.end(&server);
    }
}
