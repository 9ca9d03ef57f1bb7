//! Runs programs that are written for Redis, each on Redis and on `rhumb serve`, and compares what
//! they print.
//!
//! A program is a file of `apps/`, whose first line names its packages: `packages: celery[redis]`.
//! Packages are fetched by their ordinary clients into a directory of the target directory. A
//! program whose packages cannot be had, or that fails on Redis itself, is named and left out.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::repository_root;

const USAGE: &str = "\
usage: cargo xtask apps [--server PATH] [--show] [NAME…]

Runs the programs of apps/, all of them if none is named, on redis-server and on `rhumb serve`: both
must print the same. With --show what differs is printed whole.";

/// How long a program may run. The slowest takes some seconds.
const PROGRAM_TIME: Duration = Duration::from_secs(90);

/// How long the packages of a program may take.
const FETCH_TIME: Duration = Duration::from_secs(400);

/// How a language's programs are prepared and run, in a directory of their own.
struct Language {
    name: &'static str,
    extension: &'static str,
    tool: &'static str,
    prepare: fn(&App, &Path) -> Result<Vec<Command>>,
    run: fn(&App, &Path) -> Command,
}

const LANGUAGES: [Language; 4] = [
    Language {
        name: "python",
        extension: "py",
        tool: "python3",
        prepare: |app, dir| {
            let mut install = command("environment/bin/pip", dir);
            install.args(["install", "--quiet", "--disable-pip-version-check"]).args(&app.packages);
            let mut environment = command("python3", dir);
            environment.args(["-m", "venv", "environment"]);
            Ok(vec![environment, install])
        },
        run: |app, dir| {
            // Without the program's own directory in the path: programs have the packages' names.
            let mut run = command("environment/bin/python", dir);
            run.args(["-P", "-W", "ignore"]).arg(&app.source);
            run
        },
    },
    Language {
        name: "node",
        extension: "mjs",
        tool: "npm",
        prepare: |app, dir| {
            fs::write(dir.join("package.json"), "{\"private\": true}\n")?;
            let mut install = command("npm", dir);
            install.args(["install", "--silent", "--no-fund", "--no-audit"]).args(&app.packages);
            Ok(vec![install])
        },
        run: |app, dir| {
            let mut run = command("node", dir);
            let copied = fs::copy(&app.source, dir.join("main.mjs"));
            run.arg("--no-warnings").arg(if copied.is_ok() { "main.mjs" } else { "none.mjs" });
            run
        },
    },
    Language {
        name: "go",
        extension: "go",
        tool: "go",
        prepare: |app, dir| {
            fs::copy(&app.source, dir.join("main.go"))?;
            fs::write(dir.join("go.mod"), "module app\n\ngo 1.23\n")?;
            let mut get = command("go", dir);
            get.arg("get").args(&app.packages);
            let (mut tidy, mut build) = (command("go", dir), command("go", dir));
            tidy.args(["mod", "tidy"]);
            build.args(["build", "-o", "app", "."]);
            Ok(vec![get, tidy, build])
        },
        run: |_, dir| command("./app", dir),
    },
    Language {
        name: "java",
        extension: "java",
        tool: "mvn",
        prepare: |app, dir| {
            let sources = dir.join("src/main/java");
            fs::create_dir_all(&sources)?;
            fs::copy(&app.source, sources.join("Main.java"))?;
            fs::write(dir.join("pom.xml"), pom(&app.packages)?)?;
            let mut build = command("mvn", dir);
            build.args(["--batch-mode", "--quiet", "compile", "dependency:copy-dependencies"]);
            Ok(vec![build])
        },
        run: |_, dir| {
            let mut run = command("java", dir);
            run.args(["-cp", "target/classes:target/dependency/*", "Main"]);
            run
        },
    },
];

/// One program.
struct App {
    name: String,
    language: &'static Language,
    source: PathBuf,
    packages: Vec<String>,
}

/// Runs the programs that `arguments` name; see the usage text.
///
/// # Errors
/// If an argument is unknown, a server does not start, or a program prints something else.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut binary = crate::redis_bench::release_binary()?;
    let (mut names, mut shows) = (Vec::new(), false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--server" => binary = rest.next().context("--server needs a path")?.into(),
            "--show" => shows = true,
            name if !name.starts_with('-') => names.push(name),
            _ => bail!("{USAGE}"),
        }
    }
    let place = binary.with_file_name("apps");
    let (mut same, mut failed) = (0, Vec::new());
    for app in apps()?.iter().filter(|app| names.is_empty() || names.contains(&&*app.name)) {
        let began = Instant::now();
        let outcome = compare(app, &place, &binary, shows)?;
        let line = match outcome {
            Outcome::Same => {
                same += 1;
                "the same".to_owned()
            }
            Outcome::Skipped(why) => format!("skipped: {why}"),
            Outcome::Differs(how) => {
                failed.push(app.name.clone());
                format!("DIFFERS: {how}")
            }
        };
        let seconds = began.elapsed().as_secs();
        println!("{:6} {:24} {seconds:4} s  {line}", app.language.name, app.name);
    }
    println!("{same} programs printed the same on both");
    ensure!(failed.is_empty(), "{} programs differ: {}", failed.len(), failed.join(", "));
    Ok(())
}

/// The programs of the repository, by language and name.
fn apps() -> Result<Vec<App>> {
    let mut apps = Vec::new();
    for language in &LANGUAGES {
        let dir = repository_root().join("apps").join(language.name);
        let mut paths: Vec<PathBuf> =
            fs::read_dir(&dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|e| e == language.extension));
        paths.sort();
        for source in paths {
            apps.push(app(language, source)?);
        }
    }
    Ok(apps)
}

/// The program of a file.
fn app(language: &'static Language, source: PathBuf) -> Result<App> {
    let text = fs::read_to_string(&source)?;
    let packages = text.lines().next().and_then(|line| line.split_once("packages: "));
    let (_, packages) =
        packages.with_context(|| format!("{} names no packages", source.display()))?;
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let packages = packages.split_whitespace().map(str::to_owned).collect();
    Ok(App { name, language, source, packages })
}

enum Outcome {
    Same,
    Skipped(String),
    Differs(String),
}

fn compare(app: &App, place: &Path, binary: &Path, shows: bool) -> Result<Outcome> {
    let dir = place.join(format!("{}-{}", app.language.name, app.name));
    fs::create_dir_all(&dir)?;
    if let Some(why) = why_not(app, &dir)? {
        return Ok(Outcome::Skipped(why));
    }
    let Some(redis) = Server::redis()? else {
        return Ok(Outcome::Skipped("no redis-server".to_owned()));
    };
    let (expected, is_right) = printed(app, &dir, redis.port)?;
    drop(redis);
    if !is_right {
        return Ok(Outcome::Skipped(format!("fails on Redis: {}", last_line(&expected))));
    }
    let rhumb = Server::rhumb(binary)?;
    let (found, is_right) = printed(app, &dir, rhumb.port)?;
    if is_right && found == expected {
        return Ok(Outcome::Same);
    }
    if shows {
        println!("---- on Redis:\n{expected}\n---- on Rhumb:\n{found}\n----");
    }
    let differs = found.lines().zip(expected.lines()).find(|(one, other)| one != other);
    let what = match differs {
        Some((found, expected)) => format!("{found:?} instead of {expected:?}"),
        None => last_line(&found).to_owned(),
    };
    Ok(Outcome::Differs(what.chars().take(300).collect()))
}

/// A command that runs a program, of this file, whose packages are fetched below `place`; or why
/// they cannot be had.
///
/// # Errors
/// If the file cannot be read or names no packages.
pub(crate) fn prepared(
    source: &Path,
    place: &Path,
) -> Result<std::result::Result<Command, String>> {
    let extension = source.extension().unwrap_or_default();
    let language = LANGUAGES.iter().find(|language| extension == language.extension);
    let app = app(language.context("an unknown language")?, source.to_owned())?;
    let dir = place.join(format!("{}-{}", app.language.name, app.name));
    fs::create_dir_all(&dir)?;
    let why = why_not(&app, &dir)?;
    Ok(why.map_or_else(|| Ok((app.language.run)(&app, &dir)), Err))
}

/// What a program prints, with its errors if it fails; and true if it does not.
fn printed(app: &App, dir: &Path, port: u16) -> Result<(String, bool)> {
    let mut run = (app.language.run)(app, dir);
    run.env("REDIS_URL", format!("redis://127.0.0.1:{port}/0"));
    let output = within(&mut run, PROGRAM_TIME)?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        text += &String::from_utf8_lossy(&output.stderr);
    }
    Ok((text, output.status.success()))
}

/// Fetches what a program needs, unless it is here; says why that cannot be had.
fn why_not(app: &App, dir: &Path) -> Result<Option<String>> {
    let mut probe = command("sh", dir);
    probe.args(["-c", &format!("command -v {}", app.language.tool)]).stdout(Stdio::null());
    if !probe.status()?.success() {
        return Ok(Some(format!("no {}", app.language.tool)));
    }
    let text = fs::read(&app.source)?;
    let done = dir.join("prepared");
    if fs::read(&done).is_ok_and(|before| before == text) {
        return Ok(None);
    }
    for mut command in (app.language.prepare)(app, dir)? {
        let output = within(&mut command, FETCH_TIME)?;
        if !output.status.success() {
            let text = [&output.stdout[..], &output.stderr[..]].concat();
            let text = String::from_utf8_lossy(&text);
            return Ok(Some(format!("cannot be fetched: {}", last_line(&text))));
        }
    }
    fs::write(done, text)?;
    Ok(None)
}

/// Runs a command for `time` at most; what it printed until then.
fn within(command: &mut Command, time: Duration) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let id = process.id();
    let (sender, ended) = std::sync::mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if ended.recv_timeout(time) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // The process is not waited for yet, so that its number is its own.
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        }
    });
    let output = process.wait_with_output()?;
    drop(sender);
    let _ = watch.join();
    Ok(output)
}

/// A server that programs are run on.
struct Server {
    process: Child,
    port: u16,
    _data: tempfile::TempDir,
}

impl Server {
    /// Redis, if it is on this machine.
    fn redis() -> Result<Option<Self>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let data = tempfile::tempdir()?;
        let mut start = Command::new("redis-server");
        start.args(["--port", &port.to_string(), "--save", "", "--dir"]).arg(data.path());
        let Ok(process) = start.stdout(Stdio::null()).spawn() else { return Ok(None) };
        Self { process, port, _data: data }.wait().map(Some)
    }

    fn rhumb(binary: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let data = tempfile::tempdir()?;
        let process = Command::new(binary)
            .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data"])
            .arg(data.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Self { process, port, _data: data }.wait()
    }

    /// Waits until clients can come.
    fn wait(self) -> Result<Self> {
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            ensure!(Instant::now() < until, "no server listens on port {}", self.port);
            thread::sleep(Duration::from_millis(20));
        }
        Ok(self)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(name);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output")
}

/// The build file of a Java program with these packages, each `group:artifact:version`.
fn pom(packages: &[String]) -> Result<String> {
    let mut dependencies = String::new();
    for package in packages {
        let mut parts = package.split(':');
        let (Some(group), Some(artifact), Some(version)) =
            (parts.next(), parts.next(), parts.next())
        else {
            bail!("{package} is no group:artifact:version");
        };
        dependencies += &format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        );
    }
    Ok(format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>app</groupId><artifactId>app</artifactId><version>1</version><properties>\
         <maven.compiler.source>17</maven.compiler.source>\
         <maven.compiler.target>17</maven.compiler.target></properties>\
         <dependencies>{dependencies}</dependencies></project>\n"
    ))
}
