//! A Redis server to compare with, and values in all its encodings.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::common::Client;

/// A Redis server that ends with the test.
pub(crate) struct Oracle {
    process: Child,
    pub(crate) address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Oracle {
    /// Starts a Redis server; none if there is none on the machine.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(None, &[])
    }

    /// Starts one that loads this dump.
    pub(crate) fn start_with(dump: Option<&Path>, options: &[&str]) -> Option<Self> {
        let version = Command::new("redis-server").arg("--version").output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains("v=7.0.") {
            return None;
        }
        // The port is free now, and nothing else on the machine is after it.
        let address = TcpListener::bind(("127.0.0.1", 0)).ok()?.local_addr().ok()?;
        let dir = tempfile::tempdir().unwrap();
        if let Some(dump) = dump {
            std::fs::copy(dump, dir.path().join("dump.rdb")).unwrap();
        }
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--save", "", "--appendonly", "no"])
            .args(["--bind", "127.0.0.1", "--enable-debug-command", "yes"])
            .args(options)
            .arg("--dir")
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let oracle = Self { process, address, dir };
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(oracle)
    }

    /// Where it writes its dump.
    pub(crate) fn dump(&self) -> PathBuf {
        self.dir.path().join("dump.rdb")
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Gives a Redis server values of every type but streams in every encoding, small and large;
/// returns their keys.
pub(crate) fn fill(client: &mut Client) -> Vec<String> {
    let long = "long and the same, long and the same; ".repeat(200);
    let random: String = (0..3000_u32).map(|at| char::from(33 + (at * at % 89) as u8)).collect();
    let mut keys = Vec::new();
    let mut add = |key: &str, command: &str, words: &[String]| {
        for some in words.chunks(1000) {
            let mut all = vec![command, key];
            all.extend(some.iter().map(String::as_str));
            let reply = client.call(&all);
            assert!(!matches!(reply, super::common::Value::Error(_)), "{reply:?}");
        }
        keys.push(key.to_owned());
    };
    let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let many = |n: u32, text: &dyn Fn(u32) -> String| (0..n).map(text).collect::<Vec<_>>();
    for (at, text) in
        ["", "1", "-128", "40000", "2147483648", "text", &long, &random].iter().enumerate()
    {
        add(&format!("string:{at}"), "SET", &texts(&[text]));
    }
    add("list:small", "RPUSH", &texts(&["a", "1", "-4097", "9223372036854775807", ""]));
    add("list:nodes", "RPUSH", &many(5000, &|n| format!("element {n}")));
    add("list:plain", "RPUSH", &texts(&["x", &long, &random]));
    add("set:ints16", "SADD", &many(100, &|n| (n * 7).to_string()));
    add("set:ints64", "SADD", &texts(&["-9223372036854775808", "1", "9223372036854775807"]));
    add("set:small", "SADD", &texts(&["a", "b", "", "3"]));
    add("set:large", "SADD", &many(3000, &|n| format!("member {n}")));
    let pairs =
        |n: u32| many(2 * n, &|n| format!("{}{}", ["field", "value"][(n % 2) as usize], n / 2));
    add("hash:small", "HSET", &pairs(50));
    add("hash:large", "HSET", &pairs(2000));
    add("hash:long", "HSET", &texts(&["f", &long, &random, "v"]));
    let scored =
        |n: u32| many(2 * n, &|n| if n % 2 == 0 { format!("{}.5", n) } else { format!("m{n}") });
    add("zset:small", "ZADD", &scored(60));
    add("zset:large", "ZADD", &scored(2500));
    let scores = ["inf", "i", "-inf", "n", "-0.1", "d", "1e300", "e", "3", "t", "-70000", "s"];
    add("zset:scores", "ZADD", &texts(&scores));
    keys
}
