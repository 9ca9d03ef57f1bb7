//! What all connections of a server share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::RwLock;
use rhumb::Database;
use tokio::sync::Notify;

use crate::{
    clients::Clients,
    command::{COMMANDS, Cursors},
    config::{Config, ConfigError},
    db::Databases,
    descriptors,
    metrics::Metrics,
    models::Models,
    random::Random,
};

/// A server: its databases, its clients, its settings, its figures.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) databases: Databases,
    pub(crate) clients: Clients,
    pub(crate) cursors: Cursors,
    pub(crate) metrics: Metrics,
    pub(crate) models: Models,
    /// The password, if clients have to say one.
    password: RwLock<Option<Arc<[u8]>>>,
    pub(crate) limits: RwLock<crate::config::Limits>,
    pub(crate) started: Instant,
    /// How many generators were given out, where they are to be the same at each start.
    randoms: AtomicU64,
    /// Forty hexadecimal digits that are this run's own.
    pub(crate) run_id: String,
    /// The port that clients come to; 0 if there is none.
    pub(crate) port: AtomicU64,
    stopping: AtomicBool,
    stop: Notify,
}

impl Server {
    /// Opens the data.
    pub(crate) fn open(config: Config) -> Result<Self, crate::ServeError> {
        let password = config.password()?;
        config.check(password.is_some())?;
        let engine = Database::builder(&config.data)
            .memory_budget_bytes(config.memory_bytes)
            .memtable_bytes((config.memory_bytes / 8).clamp(1 << 20, 64 << 20))
            .open_files_max(descriptors::divide(config.limits.clients))
            .open()?;
        let databases = Databases::open(engine, config.fsync)?;
        let mut random = Random::new();
        let run_id = (0..3).map(|_| format!("{:016x}", random.next())).collect::<String>();
        Ok(Self {
            limits: RwLock::new(config.limits.clone()),
            config,
            databases,
            clients: Clients::default(),
            cursors: Cursors::default(),
            metrics: Metrics::new(COMMANDS.len()),
            models: Models::default(),
            password: RwLock::new(password.map(Arc::from)),
            started: Instant::now(),
            randoms: AtomicU64::new(0),
            run_id: run_id[..40].to_owned(),
            port: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            stop: Notify::new(),
        })
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

    /// The password, if clients have to say one.
    pub(crate) fn password(&self) -> Option<Arc<[u8]>> {
        self.password.read().clone()
    }

    /// Changes the password; an empty one takes it away, which only a server that is allowed to be
    /// open may do.
    pub(crate) fn set_password(&self, password: &[u8]) -> Result<(), ConfigError> {
        let password = (!password.is_empty()).then(|| Arc::from(password));
        self.config.check(password.is_some())?;
        *self.password.write() = password;
        Ok(())
    }

    /// Asks the server to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
        self.stop.notify_one();
    }

    /// Whether the server was asked to end.
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
