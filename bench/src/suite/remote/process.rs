//! The processes of a run: this program once more, with the same arguments, and in its environment
//! what it is to do instead. Lines of JSON go to its standard input and come from its output.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// In the environment of a process of a run: what it is, and where.
const TASK: &str = "RHUMB_BENCH_REMOTE";

/// What a process of a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It runs and loads what some subjects read.
    Keeper {
        /// The keeper's name.
        name: String,
        /// Which of several it is that divide the keys.
        server: usize,
    },
    /// It reads and writes.
    Client {
        /// Its number.
        number: usize,
        /// How many there are.
        clients: usize,
    },
}

/// Returns true in a process that another one has started for a run.
#[must_use]
pub fn is_part_of_a_run() -> bool {
    env::var_os(TASK).is_some()
}

impl Role {
    /// What the environment says that this process is, and the directory of the run; `None` for
    /// the one that was started by a user.
    pub(super) fn of_this_process() -> Result<Option<(Self, PathBuf)>> {
        let Some(task) = env::var_os(TASK) else { return Ok(None) };
        let task = task.into_string().ok().context(TASK)?;
        let mut parts = task.splitn(4, ' ');
        let mut part = || parts.next().with_context(|| format!("{TASK} is {task:?}"));
        let (kind, first, second, directory) = (part()?, part()?, part()?, part()?);
        let role = match kind {
            "keeper" => Self::Keeper { name: first.to_owned(), server: second.parse()? },
            "client" => Self::Client { number: first.parse()?, clients: second.parse()? },
            _ => bail!("{TASK} is {task:?}"),
        };
        Ok(Some((role, directory.into())))
    }

    fn task(&self, directory: &Path) -> String {
        let directory = directory.display();
        match self {
            Self::Keeper { name, server } => format!("keeper {name} {server} {directory}"),
            Self::Client { number, clients } => format!("client {number} {clients} {directory}"),
        }
    }
}

/// A process that this one has started. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    role: Role,
}

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// If the system does not.
    pub(super) fn start(role: Role, directory: &Path) -> Result<Self> {
        let program = env::current_exe().context("where is this program?")?;
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).env(TASK, role.task(directory));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Signals of the terminal are for the process that was started there. The others end with
        // it, because their input does.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().context("cannot start a process of the run")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no output of a process of the run")?;
        Ok(Self { child, input, output: BufReader::new(output), role })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the process has ended.
    pub(super) fn send(&mut self, request: &Value) -> Result<()> {
        let input = self.input.as_mut().context("no input of a process of the run")?;
        writeln!(input, "{request}").with_context(|| format!("{:?} has ended", self.role))
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// If the process has ended: it has said why on the standard error.
    pub(super) fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            bail!("{:?} ended early, and says why above", self.role);
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Sends a request and waits for its answer.
    pub(super) fn ask(&mut self, request: &Value) -> Result<Value> {
        self.send(request)?;
        self.receive()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        // It has nothing more to say.
        let _ = self.child.wait();
    }
}

/// What a process does when the one that has started it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It cleans up: what takes long asks [`check_abandoned`].
    InOrder,
    /// It ends, whatever it does.
    AtOnce,
}

/// Set when the process that has started this one has ended.
static IS_ABANDONED: AtomicBool = AtomicBool::new(false);

/// Fails once nobody waits for this process any more: for work that takes long.
///
/// # Errors
/// If the process that has started this one has ended.
pub(super) fn check_abandoned() -> io::Result<()> {
    if IS_ABANDONED.load(Relaxed) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// Requests of the process that has started this one.
pub(super) struct Requests(mpsc::Receiver<String>);

/// Listens to the process that has started this one.
pub(super) fn listen(end: End) -> Requests {
    let (requests, next) = mpsc::channel::<String>();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(io::Result::ok) {
            if requests.send(line).is_err() {
                return;
            }
        }
        IS_ABANDONED.store(true, Relaxed);
        if end == End::AtOnce {
            exit(0);
        }
    });
    Requests(next)
}

impl Requests {
    /// Says `first` and answers requests until there are no more.
    ///
    /// # Errors
    /// As `answer`, or if nobody takes an answer.
    pub(super) fn serve(
        self,
        first: &Value,
        mut answer: impl FnMut(&Value) -> Result<Value>,
    ) -> Result<()> {
        let say = |value: &Value| {
            let mut out = io::stdout().lock();
            writeln!(out, "{value}").and_then(|()| out.flush())
        };
        say(first)?;
        for line in self.0 {
            say(&answer(&serde_json::from_str(&line)?)?)?;
        }
        Ok(())
    }
}
