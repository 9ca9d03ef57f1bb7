//! The clock that hosts and clients of one machine share.

use rustix::time::{ClockId, clock_gettime};

/// The clock of leases: read in 5 ns, and never set back. It is a few milliseconds coarse, which a
/// lease of a second does not mind.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::MonotonicCoarse;
/// The clock of leases.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Milliseconds since some moment that all processes of the machine share.
#[inline]
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(CLOCK);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}
