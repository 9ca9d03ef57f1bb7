//! The log of the server: one line for each event, as text or JSON.
//!
//! Rules: (1) a line never waits: it goes into a bounded queue that one thread empties, and is
//! counted as dropped if the queue is full or the sink refuses it, so that a slow, full or closed
//! standard error stops nothing; (2) of one event at most [`LINES_MAX`] lines are written in
//! [`WINDOW`], and then one that says how many more there were; (3) keys, values and passwords of
//! clients are never written.

mod event;
mod line;

use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use serde::Deserialize;

pub(crate) use event::Event;

/// How much the log says: everything that is at least as grave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What somebody has to see to: failed writes, damage.
    Error,
    /// What may need somebody: refused clients, wrong passwords, slow commands.
    Warn,
    /// The life of the server as well: its start, its end, changed settings.
    #[default]
    Info,
    /// Every connection as well.
    Debug,
}

impl LogLevel {
    /// The name of the setting.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people: the time, the level, the event, what happened, `name=value` pairs.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// The value of a field of a line.
#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Text(Cow<'v, str>),
    Count(u64),
    Time(Duration),
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Value<'_> {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<Duration> for Value<'_> {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

/// A field of a line: its name and its value.
pub(crate) type Field<'f> = (&'static str, Value<'f>);

/// Where the log is written to.
pub type LogSink = Box<dyn Write + Send>;

/// Lines that wait for the sink. With [`line::BYTES_MAX`] they take 4 MiB at most.
const QUEUE_LINES: usize = 1024;

/// Lines of one event that are written in a [`WINDOW`]: enough to see a pattern, and not enough to
/// fill a disk (100 lines a minute are 10 MB a day).
const LINES_MAX: u32 = 10;

/// The time after which an event may be written again.
const WINDOW: Duration = Duration::from_secs(10);

/// How long the end of the server waits until the sink has taken the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The lines of one event since the window began.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Option<Instant>,
    written: u32,
    suppressed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    dropped: AtomicU64,
    suppressed: AtomicU64,
}

/// A server's log.
#[derive(Debug)]
pub(crate) struct Log {
    level: LogLevel,
    format: LogFormat,
    queue: Option<SyncSender<Message>>,
    windows: Mutex<[Window; Event::COUNT]>,
    counters: Arc<Counters>,
}

impl Log {
    /// A log that writes to `sink`, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread.
    pub(crate) fn start(level: LogLevel, format: LogFormat, sink: LogSink) -> io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE_LINES);
        let counters = Arc::<Counters>::default();
        let writer = Writer { sink, format, counters: Arc::clone(&counters), reported: 0 };
        std::thread::Builder::new()
            .name("rhumb-log".to_owned())
            .spawn(move || writer.run(&messages))?;
        Ok(Self {
            level,
            format,
            queue: Some(queue),
            windows: Mutex::new(std::array::from_fn(|_| Window::default())),
            counters,
        })
    }

    /// A log that writes nothing.
    pub(crate) fn silent() -> Self {
        Self {
            level: LogLevel::Error,
            format: LogFormat::Text,
            queue: None,
            windows: Mutex::new(std::array::from_fn(|_| Window::default())),
            counters: Arc::default(),
        }
    }

    /// The standard error, without the lock that a panic's message needs.
    ///
    /// # Errors
    ///
    /// If the system refuses another descriptor.
    pub(crate) fn stderr() -> io::Result<LogSink> {
        use std::os::fd::AsFd;
        let descriptor = io::stderr().as_fd().try_clone_to_owned()?;
        Ok(Box::new(std::fs::File::from(descriptor)))
    }

    /// Returns true if lines of this level are written.
    pub(crate) fn is_on(&self, level: LogLevel) -> bool {
        self.queue.is_some() && level <= self.level
    }

    /// Writes a line, unless there were too many of the event lately.
    pub(crate) fn write(&self, event: Event, message: &str, fields: &[Field<'_>]) {
        if self.is_on(event.level()) && self.admit(event, Instant::now()) {
            self.queue(event, message, fields);
        }
    }

    /// Counts a line of the event; returns true if it is to be written. Writes what a window that
    /// has ended has suppressed.
    fn admit(&self, event: Event, now: Instant) -> bool {
        let mut windows = self.windows.lock();
        let window = &mut windows[event as usize];
        let ended = window.began.is_none_or(|began| now.duration_since(began) >= WINDOW);
        let suppressed = if ended {
            std::mem::replace(window, Window { began: Some(now), ..Window::default() }).suppressed
        } else {
            0
        };
        let admitted = window.written < LINES_MAX;
        if admitted {
            window.written += 1;
        } else {
            window.suppressed += 1;
            self.counters.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        drop(windows);
        self.write_suppressed(event, suppressed);
        admitted
    }

    /// Writes how many lines were suppressed in the windows that have ended. To be called every
    /// second.
    pub(crate) fn end_windows(&self) {
        self.end_windows_at(Instant::now());
    }

    fn end_windows_at(&self, now: Instant) {
        let mut ended = Vec::new();
        for (at, window) in self.windows.lock().iter_mut().enumerate() {
            let is_over = window.began.is_some_and(|began| now.duration_since(began) >= WINDOW);
            if is_over && window.suppressed > 0 {
                ended.push((Event::ALL[at], std::mem::take(window).suppressed));
            }
        }
        for (event, suppressed) in ended {
            self.write_suppressed(event, suppressed);
        }
    }

    fn write_suppressed(&self, event: Event, suppressed: u64) {
        if suppressed > 0 {
            let fields = [("suppressed", suppressed.into()), ("window", WINDOW.into())];
            self.queue(event, "more lines of this event were not written", &fields);
        }
    }

    fn queue(&self, event: Event, message: &str, fields: &[Field<'_>]) {
        let line = line::format(self.format, SystemTime::now(), event, message, fields);
        let queued =
            self.queue.as_ref().is_some_and(|queue| queue.try_send(Message::Line(line)).is_ok());
        if !queued {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the sink has taken the lines that were written before; not for long.
    pub(crate) fn flush(&self) {
        let Some(queue) = &self.queue else { return };
        let until = Instant::now() + LAST_LINES;
        let (written, done) = sync_channel(1);
        let mut message = Message::Flush(written);
        while let Err(TrySendError::Full(back)) = queue.try_send(message) {
            if Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
            message = back;
        }
        // A sink that takes nothing is left.
        let _ = done.recv_timeout(until.saturating_duration_since(Instant::now()));
    }

    /// Lines that were lost because the sink was slower than the server, or refused them.
    pub(crate) fn dropped(&self) -> u64 {
        self.counters.dropped.load(Ordering::Relaxed)
    }

    /// Lines that were not written because there were too many of their event.
    pub(crate) fn suppressed(&self) -> u64 {
        self.counters.suppressed.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end_windows_at(Instant::now() + WINDOW);
        self.flush();
    }
}

/// What the queue holds.
enum Message {
    Line(String),
    /// Asks to be told when everything before is written.
    Flush(SyncSender<()>),
}

/// The thread that empties the queue.
struct Writer {
    sink: LogSink,
    format: LogFormat,
    counters: Arc<Counters>,
    /// Dropped lines that a line has told of.
    reported: u64,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Line(line) => self.write(&line),
                Message::Flush(written) => {
                    let _ = self.sink.flush();
                    // The thread that asked may have given up.
                    let _ = written.send(());
                }
            }
            let dropped = self.counters.dropped.load(Ordering::Relaxed);
            if dropped > self.reported {
                let fields = [("dropped", (dropped - self.reported).into())];
                let message = "the log was read too slowly; lines were dropped";
                let event = Event::LinesDropped;
                let line = line::format(self.format, SystemTime::now(), event, message, &fields);
                self.reported = dropped;
                self.write(&line);
            }
        }
    }

    fn write(&mut self, line: &str) {
        if self.sink.write_all(line.as_bytes()).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            // A sink that refuses is not told that it did.
            self.reported += 1;
        }
    }
}

#[cfg(test)]
mod tests;
