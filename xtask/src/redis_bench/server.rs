//! The servers that are measured: processes of their own, which end with their values.

use std::{
    io::{BufWriter, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::VALUE_BYTES;

/// A server process; it ends with this value.
pub(super) struct Server {
    process: Child,
    pub(super) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(command: &mut Command, port: u16) -> Result<Self> {
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let server = Self { process, port };
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(Instant::now() < until, "the server on port {port} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// A Redis whose files are in `dir`.
    pub(super) fn redis(dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--dir"]).arg(dir);
        Self::start(&mut command, port)
    }

    /// A Rhumb of this binary, whose files are in `dir`.
    pub(super) fn rhumb(binary: &Path, memory: &str, dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--fsync", "everysec"]);
        command.args(["--memory", memory, "--data"]).arg(dir);
        Self::start(&mut command, port)
    }

    /// Seconds of processor time that the server has taken; zero where the system does not say.
    pub(super) fn cpu_seconds(&self) -> f64 {
        // The kernel counts in ticks of a hundredth of a second, whatever its own clock is.
        const TICKS: f64 = 100.0;
        let path = format!("/proc/{}/stat", self.process.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // After the name, which may hold anything: the 12th and 13th fields are user and system.
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: f64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        ticks / TICKS
    }

    /// Sets the keys that redis-benchmark will ask for.
    pub(super) fn fill(&self, keys: u64) -> Result<()> {
        const CHUNK: u64 = 10_000;
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        let value = "x".repeat(VALUE_BYTES);
        for from in (0..keys).step_by(CHUNK as usize) {
            let to = (from + CHUNK).min(keys);
            let mut writer = BufWriter::new(&socket);
            for key in from..to {
                write!(writer, "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n")?;
                write!(writer, "${VALUE_BYTES}\r\n{value}\r\n")?;
            }
            writer.flush()?;
            drop(writer);
            let mut replies = vec![0; (to - from) as usize * b"+OK\r\n".len()];
            socket.read_exact(&mut replies).context("the server's replies to SET")?;
            ensure!(replies.chunks(5).all(|reply| reply == b"+OK\r\n"), "a SET was refused");
        }
        Ok(())
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
