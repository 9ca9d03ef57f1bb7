//! Commands that took long, as clients ask for them: `SLOWLOG` and `LATENCY`. The server's own log
//! tells of slow commands by a limit of its own.

mod log;
mod monitor;

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

pub(crate) use log::SlowLog;
pub(crate) use monitor::{Monitor, Series};

/// What Redis logs by default: commands of 10 ms and more.
const LOG_US_DEFAULT: i64 = 10_000;

/// Commands that took long, and from when on they did.
#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) log: SlowLog,
    pub(crate) monitor: Monitor,
    /// Microseconds from which on a command is logged; none is if it is negative.
    log_us: AtomicI64,
    /// Milliseconds from which on the monitor is told; it is told nothing if it is 0.
    monitor_ms: AtomicU64,
    /// Nanoseconds from which on one of both is told: what every command is compared with.
    either_ns: AtomicU64,
}

impl Default for Slow {
    fn default() -> Self {
        let slow = Self {
            log: SlowLog::default(),
            monitor: Monitor::default(),
            log_us: AtomicI64::new(LOG_US_DEFAULT),
            monitor_ms: AtomicU64::new(0),
            either_ns: AtomicU64::new(0),
        };
        slow.set_either();
        slow
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Slow {
    /// Returns true if a command that took this long is to be told of.
    #[inline]
    pub(crate) fn is_noted(&self, took: Duration) -> bool {
        nanos(took) >= self.either_ns.load(Relaxed)
    }

    /// Returns true if a command that took this long is logged.
    pub(crate) fn is_logged(&self, took: Duration) -> bool {
        let least = self.log_us();
        least >= 0 && took.as_micros() >= u128::from(least.unsigned_abs())
    }

    /// Tells the monitor of an event, if it took long.
    pub(crate) fn monitor(&self, event: &'static str, took: Duration) {
        let least = self.monitor_ms();
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if least > 0 && ms >= least {
            self.monitor.add(event, ms);
        }
    }

    /// Microseconds from which on a command is logged; none is if it is negative.
    pub(crate) fn log_us(&self) -> i64 {
        self.log_us.load(Relaxed)
    }

    /// Milliseconds from which on the monitor is told; it is told nothing if it is 0.
    pub(crate) fn monitor_ms(&self) -> u64 {
        self.monitor_ms.load(Relaxed)
    }

    /// Changes from when on a command is logged.
    pub(crate) fn set_log_us(&self, least: i64) {
        self.log_us.store(least, Relaxed);
        self.set_either();
    }

    /// Changes from when on the monitor is told.
    pub(crate) fn set_monitor_ms(&self, least: u64) {
        self.monitor_ms.store(least, Relaxed);
        self.set_either();
    }

    fn set_either(&self) {
        let log = u64::try_from(self.log_us()).map_or(u64::MAX, |us| us.saturating_mul(1000));
        let monitor = match self.monitor_ms() {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.either_ns.store(log.min(monitor), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_compared_with_the_lower_limit() {
        let (slow, ms) = (Slow::default(), Duration::from_millis);
        assert!(!slow.is_noted(ms(9)) && slow.is_noted(ms(10)));
        slow.set_log_us(-1);
        assert!(!slow.is_noted(ms(1_000_000)) && !slow.is_logged(ms(1_000_000)));
        slow.set_monitor_ms(5);
        assert!(slow.is_noted(ms(5)) && !slow.is_noted(ms(4)));
        slow.set_log_us(0);
        assert!(slow.is_noted(ms(0)) && slow.is_logged(ms(0)));
        slow.monitor("command", ms(4));
        slow.monitor("command", ms(5));
        assert_eq!(slow.monitor.series("command").unwrap().samples().len(), 1);
    }
}
