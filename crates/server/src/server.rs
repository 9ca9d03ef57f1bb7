//! What all connections of a server share.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::RwLock;
use rhumb::Database;
use rhumb_share::Shared;
use tokio::sync::Notify;

use crate::{
    acl::{Acl, Catalog},
    clear,
    clients::{ClientInfo, Clients},
    config::Config,
    config_error::ConfigError,
    copies::Copies,
    cursors::Cursors,
    db::Databases,
    descriptors, disk,
    effort::MostSteps,
    error::ServeError,
    health::Health,
    history::{History, Now},
    libraries,
    log::{Event, Log, LogLevel},
    metrics::Metrics,
    models::Models,
    pause::Pause,
    random::Random,
    remembered::Remembered,
    saves::Saves,
    script::{Functions, Scripts},
    share_name::{database_of, names},
    slow::Slow,
    swept::SweptClock,
};

/// Ranks of sorted sets may take this part of `--memory`: they are some hundredths of the members,
/// which lie in it too.
const RANKS_PART: u64 = 64;

/// How far flushes and compactions yield to the workers. On two cores, while both compact, a `GET`
/// has a P99 of 2.4 ms without it, and of 0.5 with 4. With 10 it has 0.9, and a thread that holds a
/// lock of the allocator waits for its turn where other programs are busy.
const BACKGROUND_NICENESS: u8 = 4;

/// One of this number of the engine's reads is timed: looking at the clock then takes 1 ns of the
/// average read.
const TIMED_READS: u32 = 64;

/// The percentiles of latencies that Redis gives by default.
const PERCENTILES_DEFAULT: [f64; 3] = [50.0, 99.0, 99.9];

/// A server: its databases, its clients, its settings, its figures.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) databases: Databases,
    pub(crate) clients: Clients,
    pub(crate) cursors: Cursors,
    pub(crate) log: Arc<Log>,
    pub(crate) metrics: Metrics,
    pub(crate) history: History,
    pub(crate) models: Models,
    pub(crate) slow: Slow,
    pub(crate) saves: Arc<Saves>,
    /// Copies that clients ask for.
    pub(crate) copies: Arc<Copies>,
    /// True if scripts may call the commands that are not for them: a client may say so, for tests.
    pub(crate) scripts_may_all: AtomicBool,
    /// True if keys end faster than the sweeper removes them: workers help it then.
    pub(crate) is_sweep_behind: AtomicBool,
    /// True if other processes read databases: keys that have ended are removed by a write then,
    /// which those processes hear of.
    pub(crate) removes_ended: bool,
    /// The percentiles of latencies that `INFO` gives.
    pub(crate) percentiles: RwLock<Vec<f64>>,
    /// What other processes read without asking; taken when the server ends.
    pub(crate) shared: RwLock<Option<Shared>>,
    /// The users.
    pub(crate) acl: Acl,
    /// Until when commands wait.
    pub(crate) pause: Pause,
    pub(crate) limits: RwLock<crate::config::Limits>,
    /// Settings that are only remembered.
    pub(crate) remembered: Remembered,
    pub(crate) started: Instant,
    /// How many generators were given out, where they are to be the same at each start.
    randoms: AtomicU64,
    /// Forty hexadecimal digits that are this run's own.
    pub(crate) run_id: String,
    /// The port that clients come to; 0 if there is none.
    pub(crate) port: AtomicU64,
    stopping: AtomicBool,
    /// The most steps that a worker has made for one client while others waited.
    pub(crate) most_steps: MostSteps,
    stop: Notify,
    pub(crate) scripts: Scripts,
    pub(crate) functions: Functions,
    /// The server itself, for a script, which outlives no call but cannot borrow.
    this: OnceLock<Weak<Self>>,
}

/// The name of this run of the server: 40 random hexadecimal digits.
fn new_run_id() -> String {
    let mut random = Random::new();
    let digits = (0..3).map(|_| format!("{:016x}", random.next())).collect::<String>();
    digits[..40].to_owned()
}

/// Says what was started, and with which limits.
fn tell_start(config: &Config, log: &Log) {
    let limits = &config.limits;
    let fields = [
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("process", u64::from(std::process::id()).into()),
        ("directory", config.data.display().to_string().into()),
        ("listen", config.listen.to_string().into()),
        ("fsync", config.fsync.name().into()),
        ("memory_bytes", config.memory_bytes.into()),
        ("clients_max", limits.clients.into()),
        ("buffers_bytes_max", limits.buffers_bytes.into()),
        ("slow_command_ms", config.slow_command_ms.into()),
    ];
    log.write(Event::Start, "rhumb begins to serve", &fields);
}

impl Server {
    /// Opens the data, for users of these commands, whose calls it counts.
    pub(crate) fn open(
        config: Config,
        log: Arc<Log>,
        commands: Catalog,
    ) -> Result<Self, ServeError> {
        let (password, slots) = (config.password()?, commands.len());
        let may_be_open = config.check(false).is_ok();
        let acl = Acl::open(commands, config.acl_file.clone(), password.as_deref(), may_be_open)
            .map_err(|wrong| ConfigError(wrong.trim_end().to_owned()))?;
        // Processes that read shares have the password of the settings only.
        let has_shares = config.share_listen.or(config.share_tls_listen).is_some();
        config.check(!acl.is_open() && (password.is_some() || !has_shares))?;
        tell_start(&config, &log);
        let began = Instant::now();
        let directory = || ("directory", config.data.display().to_string().into());
        log.write(Event::RecoveryBegan, "opens the data", &[directory()]);
        let clock = Arc::new(SweptClock::default());
        let engine = Database::builder(&config.data)
            .clock(Arc::clone(&clock) as _)
            .memory_budget_bytes(config.memory_bytes)
            .memtable_bytes((config.memory_bytes / 8).clamp(1 << 20, 64 << 20))
            .open_files_max(descriptors::divide(config.connections()))
            .background_niceness(BACKGROUND_NICENESS)
            .timed_reads(TIMED_READS)
            .open()?;
        let health = Arc::new(Health::new(Arc::clone(&log)));
        let databases = Databases::open(engine, clock, config.fsync, health)?;
        databases.ranks.set_bytes_max(config.memory_bytes / RANKS_PART);
        databases.listeners.limits.configure(&config.limits);
        clear::finish(&databases)?;
        let functions = libraries::open(&databases, &log)?;
        let stats = databases.engine.stats();
        let fields = [
            directory(),
            ("replayed_records", stats.replayed_records.into()),
            ("table_bytes", stats.keyspaces.iter().map(|k| k.file_bytes).sum::<u64>().into()),
            ("took", began.elapsed().into()),
        ];
        log.write(Event::RecoveryEnded, "the data are open", &fields);
        let removes_ended = names(&config.share).any(|name| database_of(name).is_some());
        let saves = Arc::new(Saves::new(&config, Arc::clone(&databases.changes)));
        Ok(Self {
            limits: RwLock::new(config.limits.clone()),
            remembered: Remembered::new("maxmemory", config.memory_bytes.to_string()),
            config,
            databases,
            clients: Clients::default(),
            cursors: Cursors::default(),
            pause: Pause::default(),
            log,
            metrics: Metrics::new(slots),
            history: History::default(),
            models: Models::default(),
            slow: Slow::default(),
            saves,
            copies: Arc::default(),
            scripts_may_all: AtomicBool::new(false),
            is_sweep_behind: AtomicBool::new(false),
            removes_ended,
            percentiles: RwLock::new(PERCENTILES_DEFAULT.to_vec()),
            shared: RwLock::new(None),
            acl,
            started: Instant::now(),
            randoms: AtomicU64::new(0),
            run_id: new_run_id(),
            port: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            most_steps: MostSteps::default(),
            stop: Notify::new(),
            scripts: Scripts::default(),
            functions,
            this: OnceLock::new(),
        })
    }

    /// The server as all share it, which scripts can be run with.
    pub(crate) fn share(self) -> Arc<Self> {
        let shared = Arc::new(self);
        let _ = shared.this.set(Arc::downgrade(&shared));
        shared
    }

    /// The server itself, if it is shared.
    pub(crate) fn this(&self) -> Option<Arc<Self>> {
        self.this.get()?.upgrade()
    }

    /// A generator for one command's random choices.
    pub(crate) fn random(&self) -> Random {
        match self.config.seed {
            None => Random::new(),
            Some(seed) => {
                let nth = self.randoms.fetch_add(1, Ordering::Relaxed);
                Random::seeded(seed.wrapping_add(nth))
            }
        }
    }

    /// The password that the settings have for the user `default`.
    pub(crate) fn password(&self) -> Option<Arc<[u8]>> {
        self.acl.password()
    }

    /// Changes the password; an empty one takes it away, which only a server that is allowed to be
    /// open may do.
    pub(crate) fn set_password(&self, password: &[u8]) -> Result<(), ConfigError> {
        let password = (!password.is_empty()).then_some(password);
        self.config.check(password.is_some())?;
        self.acl.set_password(password);
        Ok(())
    }

    /// Returns true if a command that took this long is to be told of.
    #[inline]
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        let slow = self.config.slow_command_ms;
        slow > 0 && took.as_millis() >= slow.into()
    }

    /// Tells of commands of a client that took long together: the name of the last one, how many
    /// they were, and how many keys they name.
    #[cold]
    pub(crate) fn note_slow(
        &self,
        client: &ClientInfo,
        name: &str,
        (commands, keys): (usize, usize),
        took: Duration,
    ) {
        client.was_slow.store(true, Ordering::Relaxed);
        self.metrics.count_slow();
        let fields = [
            ("command", name.into()),
            ("commands", commands.into()),
            ("keys", keys.into()),
            ("took", took.into()),
            ("client", client.address.as_str().into()),
        ];
        self.log.write(Event::SlowCommand, "a command took long", &fields);
    }

    /// Writes what a script says to the log.
    pub(crate) fn log_of_script(&self, level: LogLevel, text: &str) {
        let event = match level {
            LogLevel::Debug => Event::ScriptDebug,
            LogLevel::Info => Event::ScriptNotice,
            LogLevel::Warn | LogLevel::Error => Event::ScriptWarning,
        };
        self.log.write(event, text, &[]);
    }

    /// Memory that the server counts, in bytes: what the engine has mapped, buffers of reads, those
    /// of clients, and the ranks of sorted sets.
    pub(crate) fn memory_bytes(&self, stats: &rhumb::Stats) -> u64 {
        let buffers = self.clients.buffers_bytes.load(Ordering::Relaxed) as u64;
        stats.mapped_bytes + stats.read_buffer_bytes + buffers + self.databases.ranks.bytes()
    }

    /// Ends a second of the history.
    pub(crate) fn end_second(&self, stats: &rhumb::Stats) {
        self.metrics.memory_peak(self.memory_bytes(stats));
        self.history.end_second(&self.metrics, stats, || Now {
            memory_bytes: self.memory_bytes(stats),
            // The files are counted while nobody waits for the history's lock.
            disk_bytes: disk::used_bytes(&self.config.data).unwrap_or(0),
            clients: self.clients.count() as u64,
        });
    }

    /// What is wrong with the server at this moment, one text each; nothing if all is well.
    pub(crate) fn health_reasons(&self) -> Vec<String> {
        self.databases.health.reasons(&self.databases.engine.stats())
    }

    /// Asks the server to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
        self.stop.notify_one();
    }

    /// Returns true if the server was asked to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until the server is asked to end.
    pub(crate) async fn stopped(&self) {
        let notified = self.stop.notified();
        if !self.is_stopping() {
            notified.await;
        }
    }
}
