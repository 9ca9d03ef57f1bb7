//! Proofs with several processes: histories of calls that are checked for linearizability, reads
//! beside writers that never rest, and processes that are stopped or killed at any moment.
//!
//! Each has a long form, which CONTRIBUTING.md lists. A child is a test of this binary that is
//! ignored unless another test starts it.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod deaths;
mod histories;
mod history;
mod reads;
mod store;
mod values;

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rhumb_remote::{Host, HostBuilder, Preset, ShareOptions};

/// How keyspaces may be made.
const PRESETS: [Preset; 3] = [Preset::Rhumb, Preset::XStore, Preset::FineStore];

/// Says to a child at which address its host is.
const ADDRESS: &str = "RHUMB_PROOF_ADDRESS";

fn options(preset: Preset) -> ShareOptions {
    ShareOptions::default().capacity_bytes(256 << 20).entry_bytes(64).preset(preset)
}

/// A host of a volatile keyspace `k`, to be started.
fn volatile(dir: &Path, preset: Preset) -> HostBuilder {
    let port = "127.0.0.1:0".parse().unwrap();
    Host::listen(dir.join("socket")).listen_tcp(port).share("k", options(preset))
}

/// The ways to a host: by the Unix socket, and over TCP.
fn ways(host: &Host) -> [PathBuf; 2] {
    [host.path().to_owned(), format!("tcp:{}", host.tcp_addresses()[0]).into()]
}

/// A test of this binary as a process of its own, with pipes.
fn child(test: &str, address: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(ADDRESS, address);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Where a child's host is; nothing in the run of all tests.
fn address_of_child() -> Option<PathBuf> {
    env::var_os(ADDRESS).map(PathBuf::from)
}
