//! Runs the smoke programs of `clients/`, one for each Redis client, against one `rhumb serve`.
//!
//! A client whose package manager is not on the machine, or cannot fetch it, is named and left out;
//! a program that ends with anything but success fails the task. Packages are fetched by their
//! ordinary clients into a directory of the target directory.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use crate::repository_root;

const USAGE: &str = "\
usage: cargo xtask clients [--server PATH] [NAME…]

Starts `rhumb serve` and runs the smoke programs in clients/, all of them if none is named.

  redis-cli redis-benchmark redis-py valkey-py node-redis ioredis go-redis redis-rs jedis";

/// A smoke program: what it needs, how its packages are fetched, how it is run, and the command
/// whose last word says which version of the client that was.
struct Program {
    name: &'static str,
    tool: &'static str,
    prepare: fn(&Path) -> Result<Vec<Command>>,
    run: fn(&Path, u16) -> Result<()>,
    version: &'static [&'static str],
}

const PROGRAMS: [Program; 9] = [
    Program {
        name: "redis-cli",
        tool: "redis-cli",
        prepare: nothing,
        run: redis_cli,
        version: &["redis-cli", "--version"],
    },
    Program {
        name: "redis-benchmark",
        tool: "redis-benchmark",
        prepare: nothing,
        run: redis_benchmark,
        version: &["redis-benchmark", "--version"],
    },
    Program {
        name: "redis-py",
        tool: "python3",
        prepare: |dir| python(dir, "redis"),
        run: |dir, port| python_run(dir, "redis", port),
        version: &["environment/bin/python", "-c", "import redis; print(redis.__version__)"],
    },
    Program {
        name: "valkey-py",
        tool: "python3",
        prepare: |dir| python(dir, "valkey"),
        run: |dir, port| python_run(dir, "valkey", port),
        version: &["environment/bin/python", "-c", "import valkey; print(valkey.__version__)"],
    },
    Program {
        name: "node-redis",
        tool: "npm",
        prepare: npm,
        run: |dir, port| expect(program("node", dir).arg("node-redis.js").arg(port.to_string())),
        version: &["node", "-p", "require('./node_modules/redis/package.json').version"],
    },
    Program {
        name: "ioredis",
        tool: "npm",
        prepare: npm,
        run: |dir, port| expect(program("node", dir).arg("ioredis.js").arg(port.to_string())),
        version: &["node", "-p", "require('./node_modules/ioredis/package.json').version"],
    },
    Program {
        name: "go-redis",
        tool: "go",
        prepare: |dir| {
            copy("go", dir)?;
            let mut tidy = program("go", dir);
            tidy.args(["get", "github.com/redis/go-redis/v9@latest"]);
            let mut build = program("go", dir);
            build.args(["build", "-o", "smoke", "."]);
            Ok(vec![tidy, build])
        },
        run: |dir, port| expect(program("./smoke", dir).arg(port.to_string())),
        version: &["go", "list", "-m", "github.com/redis/go-redis/v9"],
    },
    Program {
        name: "redis-rs",
        tool: "cargo",
        prepare: |dir| {
            copy("rust", dir)?;
            let mut build = program("cargo", dir);
            build.args(["build", "--quiet", "--target-dir", "target"]);
            Ok(vec![build])
        },
        run: |dir, port| expect(program("target/debug/smoke", dir).arg(port.to_string())),
        version: &["cargo", "pkgid", "redis"],
    },
    Program {
        name: "jedis",
        tool: "mvn",
        prepare: |dir| {
            copy("java", dir)?;
            let mut build = program("mvn", dir);
            build.args(["--batch-mode", "--quiet", "compile", "dependency:copy-dependencies"]);
            Ok(vec![build])
        },
        run: |dir, port| {
            let path = "target/classes:target/dependency/*";
            expect(program("java", dir).args(["-cp", path, "Smoke", &port.to_string()]))
        },
        version: &["sh", "-c", "ls target/dependency | grep jedis"],
    },
];

/// Runs the smoke programs that `arguments` name; see the usage text.
///
/// # Errors
/// If an argument is unknown, the server does not start, or a program fails.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut binary = crate::redis_bench::release_binary()?;
    let mut names = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--server" => binary = rest.next().context("--server needs a path")?.into(),
            name if PROGRAMS.iter().any(|program| program.name == name) => names.push(name),
            _ => bail!("{USAGE}"),
        }
    }
    let server = Server::start(&binary)?;
    let mut failed = Vec::new();
    for program in PROGRAMS.iter().filter(|p| names.is_empty() || names.contains(&p.name)) {
        let dir = binary.with_file_name("clients").join(program.name);
        fs::create_dir_all(&dir)?;
        let outcome = match why_not(program, &dir)? {
            Some(why) => format!("skipped: {why}"),
            None => match (program.run)(&dir, server.port) {
                Ok(()) => format!("ok, {}", version(program, &dir)?),
                Err(error) => {
                    failed.push(program.name);
                    format!("FAILED: {error:#}")
                }
            },
        };
        println!("{:16} {outcome}", program.name);
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Fetches what a program needs; says why that cannot be had.
fn why_not(program: &Program, dir: &Path) -> Result<Option<String>> {
    let probe = Command::new("sh")
        .args(["-c", &format!("command -v {}", program.tool)])
        .stdout(Stdio::null())
        .status()?;
    if !probe.success() {
        return Ok(Some(format!("no {}", program.tool)));
    }
    for mut command in (program.prepare)(dir)? {
        let output = command.output();
        let output = output.with_context(|| format!("{}", command.get_program().display()))?;
        if !output.status.success() {
            return Ok(Some(format!("cannot be fetched: {}", last_line(&output))));
        }
    }
    Ok(None)
}

/// The version of a client that was fetched.
fn version(of: &Program, dir: &Path) -> Result<String> {
    let mut command = program(of.version[0], dir);
    let output = command.args(&of.version[1..]).output();
    let output = output.with_context(|| format!("cannot run {}", of.version[0]))?;
    let line = last_line(&output);
    Ok(line.rsplit([' ', '@', '#']).next().unwrap_or_default().to_owned())
}

fn last_line(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned()
}

/// The server that is tried.
struct Server {
    process: Child,
    port: u16,
    _data: tempfile::TempDir,
}

impl Server {
    fn start(binary: &Path) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let mut process = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stdout = process.stdout.take().context("the server's output")?;
        let mut banner = String::new();
        BufReader::new(stdout).read_line(&mut banner)?;
        let port = banner.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let Some(port) = port else {
            let _ = process.kill();
            bail!("the server said {banner:?}");
        };
        Ok(Self { process, port, _data: data })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(name);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

fn nothing(_dir: &Path) -> Result<Vec<Command>> {
    Ok(Vec::new())
}

/// Copies a client's directory of the repository, so that nothing is written there.
fn copy(name: &str, to: &Path) -> Result<()> {
    fn copy_dir(from: &Path, to: &Path) -> Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                copy_dir(&entry.path(), &target)?;
            } else {
                fs::copy(entry.path(), target)?;
            }
        }
        Ok(())
    }
    copy_dir(&source(name), to)
}

fn source(name: &str) -> PathBuf {
    repository_root().join("clients").join(name)
}

fn python(dir: &Path, library: &str) -> Result<Vec<Command>> {
    let mut environment = program("python3", dir);
    environment.args(["-m", "venv", "environment"]);
    let mut install = program("environment/bin/pip", dir);
    install.args(["install", "--quiet", library]);
    Ok(vec![environment, install])
}

fn python_run(dir: &Path, library: &str, port: u16) -> Result<()> {
    let mut command = program("environment/bin/python", dir);
    expect(command.arg(source("python").join("smoke.py")).args([library, &port.to_string()]))
}

fn npm(dir: &Path) -> Result<Vec<Command>> {
    copy("node", dir)?;
    let mut install = program("npm", dir);
    install.args(["install", "--silent", "--no-fund", "--no-audit"]);
    Ok(vec![install])
}

/// How long a person needs for the next line, at least: the terminal is set up anew for each.
const TYPING: Duration = Duration::from_millis(200);

/// Runs a program that must succeed, with lines for its input; returns what it wrote.
fn output_of(command: &mut Command, lines: &[&str], way: Way) -> Result<String> {
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let mut input = process.stdin.take().context("its input")?;
    for line in lines {
        match way {
            Way::Piped => input.write_all(format!("{line}\n").as_bytes())?,
            Way::Typed => {
                std::thread::sleep(TYPING);
                input.write_all(format!("{line}\r").as_bytes())?;
            }
        }
    }
    drop(input);
    let output = process.wait_with_output()?;
    ensure!(output.status.success(), "{}", last_line(&output));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn expect(command: &mut Command) -> Result<()> {
    output_of(command, &[], Way::Piped).map(drop)
}

/// What is typed, and what must come back, in order.
const TYPED: [(&str, &str); 10] = [
    ("flushall", "OK"),
    ("set greeting hello", "OK"),
    ("get greeting", "hello"),
    ("hset hash a 1 b 2", "2"),
    ("zadd board 3 ada 1.5 bob", "2"),
    ("rpush list x y z", "3"),
    ("next board", "greeting"),
    ("multi", "OK"),
    ("exec", ""),
    ("quit", ""),
];

/// How a program gets its lines.
#[derive(Clone, Copy)]
enum Way {
    Piped,
    Typed,
}

/// Piped, in RESP3, and in a terminal, which `script` makes.
fn redis_cli(dir: &Path, port: u16) -> Result<()> {
    let lines = TYPED.map(|(typed, _)| typed);
    let port = port.to_string();
    let mut piped = program("redis-cli", dir);
    piped.args(["-p", &port]);
    let mut piped3 = program("redis-cli", dir);
    piped3.args(["-3", "-p", &port]);
    // A terminal without a size would be asked for one.
    let shell = format!("stty cols 80 rows 24; redis-cli -p {port}");
    let mut terminal = program("script", dir);
    terminal.args(["--quiet", "--command", &shell, "/dev/null"]);
    for (mut command, way) in [(piped, Way::Piped), (piped3, Way::Piped), (terminal, Way::Typed)] {
        let text = output_of(&mut command, &lines, way)?;
        let mut rest = &text[..];
        for (typed, wanted) in TYPED {
            let at = rest.find(wanted);
            let at =
                at.with_context(|| format!("{typed:?} was not answered {wanted:?}: {text}"))?;
            rest = &rest[at + wanted.len()..];
        }
        ensure!(!text.contains("ERR"), "an error in: {text}");
    }
    Ok(())
}

/// The default tests, all of them.
fn redis_benchmark(dir: &Path, port: u16) -> Result<()> {
    let mut command = program("redis-benchmark", dir);
    command.args(["-p", &port.to_string(), "-n", "10000", "--csv"]);
    let text = output_of(&mut command, &[], Way::Piped)?;
    let tests = text.lines().filter(|line| line.starts_with('"')).count();
    ensure!(tests >= 20, "only {tests} tests: {text}");
    Ok(())
}
