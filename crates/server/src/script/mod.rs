//! Scripts: the interpreter, its limits, and what scripts call.
//!
//! Knows of no command: what a script calls goes to a [`Host`]. The interpreter takes plain
//! functions, so that what belongs to the running script is a thread's own variable.

mod api;
mod cache;
mod convert;
mod engine;
mod lib_bit;
mod lib_lua;
mod lib_struct;
mod lib_values;
mod sandbox;

use std::{
    borrow::Cow,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::{Duration, Instant},
};

pub(crate) use cache::{Scripts, sha_of};
use engine::Engine;

use crate::resp::{Args, OwnedArgs, Reply};

/// How long a script may hold its worker's other clients up.
const BRIEF: Duration = Duration::from_millis(1);

/// How long a script may run.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The most memory of a script's values, in bytes.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// The most bytes of the reply to one call.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Why a script was ended. Nothing of it has happened.
#[derive(Debug)]
pub(crate) enum End {
    /// It takes longer than other clients are to wait.
    TakesLong,
    /// It uses a key that it was not given.
    NeedsEverything,
    /// The engine failed.
    Engine(rhumb::Error),
    /// The error's text.
    Text(Cow<'static, str>),
}

/// Why a call was not made.
pub(crate) enum Refused {
    /// The script is told.
    Text(Cow<'static, str>),
    /// The script is ended.
    End(End),
}

/// What runs the commands that a script calls.
pub(crate) trait Host {
    /// Runs a command, whose reply goes to `out`.
    fn call(&mut self, args: Args<'_>, out: &mut Reply) -> Result<(), Refused>;

    /// Returns true if there is a command of this name.
    fn knows(&self, name: &[u8]) -> bool;

    /// Returns true if the script is asked to end.
    fn is_killed(&self) -> bool;
}

/// What belongs to the script that runs on this thread.
struct Running {
    host: Rc<RefCell<dyn Host>>,
    /// The words and the reply of a call; the call has them while it is made.
    words: OwnedArgs,
    out: Reply,
    ended: Option<End>,
    began: Instant,
    may_take_long: bool,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

impl Running {
    /// Returns true if the script is to end now.
    fn is_over(&mut self) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let took = self.began.elapsed();
        self.ended = if took > BRIEF && !self.may_take_long {
            Some(End::TakesLong)
        } else if self.host.borrow().is_killed() {
            Some(End::Text("ERR Script killed by user with SCRIPT KILL.".into()))
        } else if took > TIME_MAX {
            Some(End::Text("ERR Script took longer than 60 seconds and was ended.".into()))
        } else {
            None
        };
        self.ended.is_some()
    }
}

/// Works with what belongs to the running script.
fn running<T>(work: impl FnOnce(&mut Running) -> T) -> Option<T> {
    RUNNING.with_borrow_mut(|running| running.as_mut().map(work))
}

/// Returns true if the running script was ended.
fn is_ended() -> bool {
    running(|running| running.ended.is_some()).unwrap_or(true)
}

/// Checks that a script can be compiled.
pub(crate) fn check(source: &[u8]) -> Result<(), End> {
    let mut engine = take_engine()?;
    let checked = engine.compile(source).map(drop);
    ENGINE.set(Some(engine));
    checked
}

fn take_engine() -> Result<Engine, End> {
    match ENGINE.take() {
        Some(engine) => Ok(engine),
        None => Engine::new().map_err(|error| End::Text(format!("ERR {error}").into())),
    }
}

/// Runs a script and writes its reply.
pub(crate) fn run(
    sha: &str,
    source: &[u8],
    (keys, arguments): (&[&[u8]], &[&[u8]]),
    host: Rc<RefCell<dyn Host>>,
    may_take_long: bool,
    out: &mut Reply,
) -> Result<(), End> {
    let mut engine = take_engine()?;
    api::SHA.set(sha.to_owned());
    RUNNING.set(Some(Running {
        host,
        words: OwnedArgs::default(),
        out: Reply::new(REPLY_BYTES_MAX),
        ended: None,
        began: Instant::now(),
        may_take_long,
    }));
    let ran = catch_unwind(AssertUnwindSafe(|| engine.run((sha, source), (keys, arguments), out)));
    let running = RUNNING.take();
    if let Some(end) = running.and_then(|running| running.ended) {
        return Err(end);
    }
    match ran {
        Ok(done) => {
            if engine.is_small() {
                ENGINE.set(Some(engine));
            }
            done
        }
        Err(_) => Err(End::Text("ERR the interpreter failed".into())),
    }
}
