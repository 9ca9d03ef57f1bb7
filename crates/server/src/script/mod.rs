//! Scripts: the interpreter, its limits, and what scripts call.
//!
//! Knows of no command: what a script calls goes to a [`Host`]. The interpreter takes plain
//! functions, so that what belongs to the running script is a thread's own variable.

mod api;
mod cache;
mod convert;
mod engine;
mod functions;
mod joins;
mod lib_bit;
mod lib_coroutine;
mod lib_lua;
mod lib_msgpack;
mod lib_pattern;
mod lib_string;
mod lib_struct;
mod lib_values;
mod library;
mod memory;
mod pattern;
mod running;
mod sandbox;

use std::{
    borrow::Cow,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::{Duration, Instant},
};

pub(crate) use cache::{Scripts, sha_of};
pub(crate) use functions::{FLAGS, Functions, Head, Libraries, Library, NO_WRITES, words};
pub(crate) use running::{Kill, RunningScript};

use engine::Engine;
use library::LibraryEngine;

use crate::{
    log::LogLevel,
    resp::{Args, OwnedArgs, Reply},
};

/// How long a script may hold its worker's other clients up.
const BRIEF: Duration = Duration::from_millis(1);

/// How long a script may run.
const TIME_MAX: Duration = Duration::from_secs(60);

/// How long the code of a library may take to register its functions.
const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

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

    /// Returns true if the client that runs the script may make this call; `None` if there is no
    /// such command.
    fn may_call(&self, args: Args<'_>) -> Option<bool>;

    /// Returns true if the script is asked to end.
    fn is_killed(&self) -> bool;

    /// Writes a line to the server's log.
    fn log(&mut self, level: LogLevel, text: &str);
}

/// What is run: a script, or a function of a library.
#[derive(Clone, Copy)]
pub(crate) enum Program<'p> {
    /// A script with its SHA-1.
    Script { sha: &'p str, source: &'p [u8] },
    /// The function of this name.
    Function { libraries: &'p Libraries, library: &'p Library, name: &'p str },
}

/// What belongs to the script that runs on this thread.
struct Running {
    /// None while a library is loaded that nobody waits for.
    host: Option<Rc<RefCell<dyn Host>>>,
    /// The words and the reply of a call; the call has them while it is made.
    words: OwnedArgs,
    out: Reply,
    ended: Option<End>,
    began: Instant,
    may_take_long: bool,
    /// How long the code of a library may take that registers its functions.
    load_time: Option<Duration>,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
    static LIBRARIES: RefCell<Option<LibraryEngine>> = const { RefCell::new(None) };
}

impl Running {
    /// Returns true if the script is to end now.
    fn is_over(&mut self) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let took = self.began.elapsed();
        let is_killed = || self.host.as_ref().is_some_and(|host| host.borrow().is_killed());
        self.ended = if let Some(most) = self.load_time {
            (took > most).then(|| End::Text("ERR FUNCTION LOAD timeout".into()))
        } else if took > BRIEF && !self.may_take_long {
            Some(End::TakesLong)
        } else if is_killed() {
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

/// Runs the code of a library, which registers its functions. `host` takes what it logs; without
/// one the library was loaded before, and may take longer.
///
/// # Errors
///
/// The text of Redis, without its code.
pub(crate) fn load(code: &[u8], host: Option<Rc<RefCell<dyn Host>>>) -> Result<Library, String> {
    let failed = |error: rilua::LuaError| error.to_string();
    memory::begin();
    let time = if host.is_some() { LOAD_TIME_MAX } else { TIME_MAX };
    // A state of its own: what is refused leaves nothing.
    let mut engine = LibraryEngine::for_loading().map_err(failed)?;
    RUNNING.set(Some(Running::new(host, true, Some(time))));
    let loaded = catch_unwind(AssertUnwindSafe(|| engine.load(code)));
    let ended = RUNNING.take().and_then(|running| running.ended);
    match (ended, loaded) {
        (Some(End::Text(text)), _) => Err(format!("Error registering functions: {text}")),
        (_, Ok(loaded)) => loaded,
        (_, Err(_)) => Err("the interpreter failed".to_owned()),
    }
}

impl Running {
    fn new(
        host: Option<Rc<RefCell<dyn Host>>>,
        may_take_long: bool,
        load_time: Option<Duration>,
    ) -> Self {
        Self {
            host,
            words: OwnedArgs::default(),
            out: Reply::new(REPLY_BYTES_MAX),
            ended: None,
            began: Instant::now(),
            may_take_long,
            load_time,
        }
    }
}

/// The state with libraries of this thread, if none of its libraries is gone.
fn take_libraries(libraries: &Libraries) -> Result<LibraryEngine, End> {
    if let Some(mut engine) = LIBRARIES.take()
        && engine.is_fit_for(libraries)
    {
        return Ok(engine);
    }
    LibraryEngine::new().map_err(|error| End::Text(format!("ERR {error}").into()))
}

/// Runs a program and writes its reply.
///
/// # Errors
///
/// If the program was ended. Nothing of it has happened.
pub(crate) fn run(
    program: Program<'_>,
    (keys, arguments): (&[&[u8]], &[&[u8]]),
    host: Rc<RefCell<dyn Host>>,
    may_take_long: bool,
    out: &mut Reply,
) -> Result<(), End> {
    memory::begin();
    let (ran, ended) = match program {
        Program::Script { sha, source } => {
            let mut engine = take_engine()?;
            api::SHA.set(sha.to_owned());
            RUNNING.set(Some(Running::new(Some(host), may_take_long, None)));
            let ran = catch_unwind(AssertUnwindSafe(|| {
                let done = engine.run((sha, source), (keys, arguments), out);
                (done, engine)
            }));
            let ended = RUNNING.take().and_then(|running| running.ended);
            let ran = ran.map(|(done, mut engine)| {
                if ended.is_none() && engine.is_small() {
                    ENGINE.set(Some(engine));
                }
                done
            });
            (ran, ended)
        }
        Program::Function { libraries, library, name } => {
            let mut engine = take_libraries(libraries)?;
            RUNNING.set(Some(Running::new(None, true, Some(TIME_MAX))));
            let loaded = catch_unwind(AssertUnwindSafe(|| engine.ensure(library)));
            RUNNING.take();
            loaded.unwrap_or_else(|_| Err(interpreter_failed()))?;
            api::SHA.set(name.to_owned());
            RUNNING.set(Some(Running::new(Some(host), may_take_long, None)));
            let ran = catch_unwind(AssertUnwindSafe(|| {
                let done = engine.call(library, name, (keys, arguments), out);
                (done, engine)
            }));
            let ended = RUNNING.take().and_then(|running| running.ended);
            let ran = ran.map(|(done, mut engine)| {
                if ended.is_none() && engine.is_fit_for(libraries) {
                    LIBRARIES.set(Some(engine));
                }
                done
            });
            (ran, ended)
        }
    };
    match (ended, ran) {
        (Some(end), _) => Err(end),
        (None, Ok(done)) => done,
        (None, Err(_)) => Err(interpreter_failed()),
    }
}

fn interpreter_failed() -> End {
    End::Text("ERR the interpreter failed".into())
}
