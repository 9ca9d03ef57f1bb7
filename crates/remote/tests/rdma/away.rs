//! Clients and hosts whose device is removed, and comes back, while they go on.

use std::{
    fs,
    net::SocketAddr,
    process::{self, Child, Command},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rhumb_remote::{Keyspace, Preset};

use super::{
    HOT, Started, address, cpu_of, host_of, key, keyspace, name, signal, start, value, version_of,
    warm,
};

/// The guest's device, and the network card that it uses, as the guest's first process has them.
const DEVICE: &str = "rxe0";
const NETWORK: &str = "eth0";

/// How long anything may take that is waited for. On loaded cores most takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The guest's device, which is there again once this is dropped.
#[derive(Default)]
struct Removable {
    /// The program that removes it, while it is away.
    removal: Option<Child>,
}

impl Removable {
    /// Removes it, which lasts until no program has it open any more.
    fn remove(&mut self) {
        self.begin_removal();
        self.end_removal();
    }

    fn begin_removal(&mut self) {
        let child = Command::new("rdma").args(["link", "delete", DEVICE]).spawn().unwrap();
        self.removal = Some(child);
    }

    fn end_removal(&mut self) {
        let child = self.removal.as_mut().unwrap();
        let mut status = None;
        wait_until("the device is removed", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
    }

    fn bring_back(&mut self) {
        assert!(self.has_come_back(), "the device does not come back");
    }

    /// Adds it again; returns false if that is refused for a minute, because its removal has not
    /// ended.
    fn has_come_back(&mut self) -> bool {
        let Some(mut removal) = self.removal.take() else { return true };
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let _ = removal.try_wait();
            let mut add = Command::new("rdma");
            add.args(["link", "add", DEVICE, "type", "rxe", "netdev", NETWORK]);
            if add.status().is_ok_and(|status| status.success()) {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Removable {
    fn drop(&mut self) {
        // For the tests that follow, also if this one has failed.
        if !self.has_come_back() {
            println!("the device does not come back");
        }
    }
}

/// Ends what looks at it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it takes over a minute until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a client that reads all the while has met.
#[derive(Default)]
struct Met {
    reads: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<String>,
}

impl Met {
    /// Gets keys until it is over. No value is another key's, or older than one that was read.
    fn read(&self, keyspace: &Keyspace, is_over: &AtomicBool) {
        let mut last = vec![0; HOT as usize];
        for n in (0..HOT * 2).cycle() {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            match keyspace.get(key(n)) {
                Ok(found) => {
                    let found = found.expect("a key that is never removed");
                    let version = version_of(n, &found).expect("a value of the key");
                    if let Some(last) = last.get_mut(n as usize) {
                        assert!(version >= *last, "{version} after {last}");
                        *last = version;
                    }
                    self.reads.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    *self.last_error.lock().unwrap() = error.to_string();
                    self.errors.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// How often a process has a device open.
fn opened(process: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    files.filter(|file| file.to_string_lossy().contains("uverbs")).count()
}

fn threads(child: &Started) -> usize {
    fs::read_dir(format!("/proc/{}/task", child.0.id())).unwrap().count()
}

/// Reads keys that nobody writes, until nearly all of them cost no call.
fn reads_by_rdma(keyspace: &Keyspace) {
    wait_until("a client reads by RDMA", || {
        let before = keyspace.calls();
        for n in HOT..HOT + 500 {
            assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), value(n, 0));
        }
        // With FineStore a call is for what lies in level bins.
        keyspace.calls() - before < 50
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_goes_on_after_its_device_was_away() {
    for preset in [Preset::Rhumb, Preset::XStore, Preset::FineStore] {
        goes_on_after_its_device_was_away(preset);
    }
}

fn goes_on_after_its_device_was_away(preset: Preset) {
    let mut device = Removable::default();
    let address = address();
    let host = host_of(preset, address);
    let clients = ["rdma", "rdma+tcp"].map(|scheme| warm(scheme, address, preset));
    let writer = start("child_writer", address, &[]);
    clients_read_all_the_while(preset, &mut device, (&host, address), &clients);
    drop(writer);
    // The strict client is told of a device that is not ready yet.
    wait_until("the strict client reads", || clients[0].get(key(HOT)).is_ok());
    clients.iter().for_each(reads_by_rdma);
    assert!(opened(host.0.id()) > 0);
    clients_let_go_by_themselves(&mut device, &host, &clients);
    drop(clients);
    wait_until("a new client reads", || keyspace("rdma", address).get(key(HOT)).is_ok());
    reads_by_rdma(&warm("rdma", address, preset));
    a_host_lets_go_by_itself(&mut device, &host);
    wait_until("a new client reads", || keyspace("rdma", address).get(key(HOT)).is_ok());
    reads_by_rdma(&warm("rdma", address, preset));
}

/// Removes the device twice and brings it back, while a strict client and one that may fall back to
/// TCP read beside a writer.
fn clients_read_all_the_while(
    preset: Preset,
    device: &mut Removable,
    (host, address): (&Started, SocketAddr),
    clients: &[Keyspace; 2],
) {
    let (is_over, [strict, lenient]) = (AtomicBool::new(false), <[Met; 2]>::default());
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for (keyspace, met) in clients.iter().zip([&strict, &lenient]) {
            scope.spawn(|| met.read(keyspace, &is_over));
        }
        for _ in 0..2 {
            let before = [strict.reads(), lenient.reads()];
            wait_until("both clients read", || {
                strict.reads() >= before[0] + 200 && lenient.reads() >= before[1] + 200
            });
            device.remove();
            assert_eq!(opened(host.0.id()), 0);
            let before = [strict.errors(), lenient.reads()];
            wait_until("one client is told of it and the other goes on by TCP", || {
                strict.errors() >= before[0] + 20 && lenient.reads() >= before[1] + 200
            });
            let error = strict.last_error.lock().unwrap().clone();
            assert!(error.contains(&address.ip().to_string()), "{error}");
            device.bring_back();
        }
    });
    assert_eq!(lenient.errors(), 0, "{}", lenient.last_error.lock().unwrap());
    println!(
        "{}: {} reads and {} errors by RDMA alone, {} reads by either, 0 wrong",
        name(preset),
        strict.reads(),
        strict.errors(),
        lenient.reads(),
    );
}

/// Removes the device while the host stands still, so that no read fails because of the host.
fn clients_let_go_by_themselves(device: &mut Removable, host: &Started, clients: &[Keyspace; 2]) {
    let (is_over, met) = (AtomicBool::new(false), <[Met; 2]>::default());
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for (keyspace, met) in clients.iter().zip(&met) {
            scope.spawn(|| met.read(keyspace, &is_over));
        }
        wait_until("both clients read", || met.iter().all(|met| met.reads() >= 50));
        assert!(opened(process::id()) > 0);
        signal(host, "-STOP");
        device.begin_removal();
        wait_until("the clients let go of the device", || opened(process::id()) == 0);
        signal(host, "-CONT");
        device.end_removal();
    });
    device.bring_back();
}

/// Removes the device while the host has no client; it does nothing afterwards.
fn a_host_lets_go_by_itself(device: &mut Removable, host: &Started) {
    let before = threads(host);
    device.remove();
    let cpu = cpu_of(host);
    thread::sleep(Duration::from_secs(3));
    let cpu = cpu_of(host) - cpu;
    assert!(cpu.ticks() <= 20, "the host used in 3 s {cpu}");
    assert!(threads(host) <= before);
    device.bring_back();
}
