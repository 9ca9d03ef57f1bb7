//! Divides the descriptors of the process between the sockets of clients, and of processes that
//! read what is shared, and the engine's files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for what is neither a client nor a table: listeners, logs, rings of the kernel,
/// standard streams. A server that has just started holds 22 to 40 on machines of 2 to 16 cores.
const OTHERS: u64 = 64;
/// Descriptors that the engine can use: tables of 64 MiB in 65,536 files are 4 TiB.
const ENGINE_FILES: u64 = 1 << 16;

/// Raises the limit of descriptors, as far as the system allows, to what the engine and `clients`
/// connections of either kind can use. Returns what the engine may have: what the clients leave,
/// but at least half.
pub(crate) fn divide(clients: usize) -> u64 {
    let clients = clients as u64;
    let now = getrlimit(Resource::Nofile);
    let wanted = clients.saturating_add(ENGINE_FILES + OTHERS);
    let Some(mut current) = now.current else { return ENGINE_FILES };
    if current < wanted {
        let raised = now.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        // A refusal leaves the limit as it was: fewer clients can come then, and accepting them
        // says so.
        if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..now }).is_ok() {
            current = raised;
        }
    }
    engine_share(current, clients)
}

/// What the engine may have of `limit` descriptors beside `clients`.
fn engine_share(limit: u64, clients: u64) -> u64 {
    let left = limit.saturating_sub(OTHERS);
    left.saturating_sub(clients).max(left / 2).min(ENGINE_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_tables_share_what_there_is() {
        assert_eq!(engine_share(1 << 20, 10_000), ENGINE_FILES);
        assert_eq!(engine_share(65_536, 10_000), 65_536 - 64 - 10_000);
        assert_eq!(engine_share(1024, 10_000), (1024 - 64) / 2);
        assert_eq!(engine_share(1024, 100), 1024 - 64 - 100);
        assert_eq!(engine_share(16, 10), 0);
    }
}
