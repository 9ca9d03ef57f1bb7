//! Failures of every single call, and a full disk: each call returns an error or succeeds and never
//! panics, nothing acknowledged is lost, and the database works again once the cause is gone.

use std::{
    collections::HashSet,
    mem::{Discriminant, discriminant},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rhumb::{
    Error, PersistMode,
    io::sim::{Call, CallKind, Fault, Loss, Matcher, SimFs, SimRng},
};

use super::{
    cuts::{from_env, on_all_processors},
    history::{Change, History, Step},
    oracle::Event,
    program::{Program, Settings, new_disk},
};

/// The number of steps of a history: enough for flushes and compactions, few enough for a run per
/// call and fault.
const STEPS: usize = 45;
/// The number of histories that each fault meets by default.
const HISTORIES_DEFAULT: u64 = 6;

/// A program some of whose calls fail, and the consequences.
struct Patient {
    program: Program,
    trouble: Trouble,
    /// True if calls may fail, because one did since the database was opened.
    is_hurt: bool,
    /// The number of times that the log had been acknowledged as durable when its sync failed.
    acknowledged_at_failed_sync: Option<u64>,
}

impl Patient {
    /// A program on a new disk that has not failed so far.
    fn new(seed: u64, trouble: Trouble) -> Self {
        let program = Program::new(new_disk(seed), Settings::new(seed));
        Self { program, trouble, is_hurt: false, acknowledged_at_failed_sync: None }
    }

    /// Checks the result of a call against what happened to the disk during it.
    fn check(&mut self, error: Option<&Error>) -> Result<(), String> {
        let faulted = self.program.fs.faulted_calls();
        self.is_hurt |= faulted.iter().any(|(kind, _)| !self.trouble.is_invisible(*kind));
        if let (Some(error), false) = (error, self.is_hurt) {
            return Err(format!("failed without a cause: {error}"));
        }
        let durable = self.program.durable_acknowledgements;
        if self.program.has_failed_log_sync() && error.is_some() {
            self.acknowledged_at_failed_sync.get_or_insert(durable);
        }
        match self.acknowledged_at_failed_sync {
            Some(before) if before < durable => {
                Err("acknowledged something as durable after a failed sync".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Opens the database; if a fault prevents that, opens it once more without faults.
    fn open(&mut self) -> Result<(), String> {
        let opened = self.program.open();
        self.check(opened.as_ref().err())?;
        if opened.is_err() {
            self.heal();
            self.program.open().map_err(|error| format!("opening without faults: {error}"))?;
        }
        Ok(())
    }

    /// Removes the cause of the failures.
    fn heal(&mut self) {
        self.program.note_failed_log_sync();
        self.program.fs.clear_faults();
        self.is_hurt = false;
        self.acknowledged_at_failed_sync = None;
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let result = self.program.step(step);
        if let Ok(Err(broken)) = result {
            return Err(broken);
        }
        self.check(result.as_ref().err())?;
        if !self.program.is_open() {
            self.open()?;
        } else if matches!(step, Step::Reopen) && result.is_ok() && self.is_hurt {
            // For the new process the failure is in the past.
            self.heal();
        }
        Ok(())
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            let result = self.step(step);
            let faulted = self.program.fs.faulted_calls();
            result.map_err(|broken| format!("{step:?} with {faulted:?}: {broken}"))?;
        }
        Ok(())
    }

    /// Ends the process, checks what is left without faults, and makes sure that the database works
    /// again.
    fn recover(&mut self, how: u64) -> Result<(), String> {
        self.heal();
        let program = &mut self.program;
        let (event, fs) = match how % 4 {
            0 => (Event::Nothing, program.fs.clone()),
            1 => (Event::Kill, program.fs.kill()),
            2 => (Event::PowerCut, program.fs.power_cut(Loss::DropUnsynced, how)),
            _ => (Event::PowerCut, program.fs.power_cut(Loss::Adversarial, how)),
        };
        let event = program.event_at_reopening.then(event);
        program.move_to(fs);
        self.look(event)?;
        let write = Change::Put { keyspace: 0, key: b"k".into(), value: b"v".into() };
        for step in [Step::Write(write), Step::Persist(PersistMode::SyncData), Step::Flush] {
            self.step(&step).map_err(|broken| format!("{step:?} after {event:?}: {broken}"))?;
        }
        self.program.move_to(self.program.fs.power_cut(Loss::DropUnsynced, 0));
        self.look(Event::PowerCut)
    }

    fn look(&mut self, event: Event) -> Result<(), String> {
        self.program.event_at_reopening = Event::Nothing;
        let opened = self.program.open();
        opened.map_err(|error| format!("opening after {event:?}: {error}"))?;
        let verified = self.program.verify(event);
        verified.map_err(|error| format!("reading after {event:?}: {error}"))?
    }
}

/// The failure of one call.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The call meets the fault.
    Once(Fault),
    /// The call is a write that gets some bytes to the disk, and its repetition fails.
    HalfWritten,
}

impl Trouble {
    /// What can go wrong at a call of this kind.
    fn of(kind: CallKind) -> Vec<Self> {
        let mut all = vec![Self::Once(Fault::Eio), Self::Once(Fault::Interrupted)];
        if kind.is_change() {
            all.push(Self::Once(Fault::NoSpace));
        }
        if kind.moves_bytes() {
            all.push(Self::Once(Fault::Short(1)));
        }
        if kind == CallKind::Write {
            all.push(Self::HalfWritten);
        }
        all
    }

    fn inject(self, fs: &SimFs, call: u64) {
        let this = Matcher::any().calls(call..call + 1);
        let next = Matcher::any().kinds(&[CallKind::Write]).calls(call + 1..call + 2);
        match self {
            Self::Once(fault) => fs.inject(this, fault, 1),
            Self::HalfWritten => {
                fs.inject(this, Fault::Short(7), 1);
                fs.inject(next, Fault::Eio, 1);
            }
        }
    }

    /// Returns true if the engine must not even fail when a call of this kind meets the trouble:
    /// the loops around reads, writes and syncs handle it.
    fn is_invisible(self, kind: CallKind) -> bool {
        match self {
            Self::Once(Fault::Short(_)) => true,
            Self::Once(Fault::Interrupted) => kind.is_sync() || kind.moves_bytes(),
            Self::Once(
                Fault::Eio | Fault::EioAfter(_) | Fault::NoSpace | Fault::Errno(_) | Fault::Panic,
            )
            | Self::HalfWritten => false,
        }
    }
}

/// Runs a history with trouble at call number `call`.
fn fail_call(seed: u64, steps: &[Step], call: u64, trouble: Trouble) -> Result<(), String> {
    let mut patient = Patient::new(seed, trouble);
    let fs = patient.program.fs.clone();
    trouble.inject(&fs, call);
    patient.open()?;
    patient.steps(steps)?;
    let faulted = fs.faulted_calls();
    patient.recover(call).map_err(|broken| format!("with {faulted:?}: {broken}"))
}

/// The calls that a history makes if none fails, each with the number of its step; those of the
/// opening have 0.
fn calls_of(seed: u64, steps: &[Step]) -> Result<Vec<(usize, Call)>, String> {
    let fs = new_disk(seed);
    fs.start_trace();
    let mut program = Program::new(fs.clone(), Settings::new(seed));
    program.open().map_err(|error| error.to_string())?;
    let mut ends = vec![fs.counts().calls];
    for step in steps {
        program.step(step).map_err(|error| format!("{step:?}: {error}"))??;
        ends.push(fs.counts().calls);
    }
    let step_of = |call: &Call| ends.partition_point(|end| *end <= call.index);
    Ok(fs.trace().into_iter().map(|call| (step_of(&call), call)).collect())
}

/// The kind of a call, and its file without numbers.
type Target = (CallKind, String);

/// What tells a call from others that fail in the same way: the kind of step that makes it, and the
/// call before it.
type Place = (Option<Discriminant<Step>>, Option<Target>, Target);

/// What the short form has failed already.
#[derive(Default)]
struct Places {
    all: HashSet<Place>,
    /// Where troubles that the engine must not notice were made: in loops that all calls share.
    unnoticed: HashSet<Target>,
}

/// The calls of a history and what happens to them, each in a run of its own: everything to all, or
/// to one of each place that no earlier history has had.
fn chosen(
    calls: Vec<(usize, Call)>,
    steps: &[Step],
    places: Option<&Mutex<Places>>,
) -> Vec<(Call, Trouble)> {
    let with_all =
        |call: Call| Trouble::of(call.kind).into_iter().map(move |it| (call.clone(), it));
    let Some(places) = places else {
        return calls.into_iter().flat_map(|(_, call)| with_all(call)).collect();
    };
    let mut places = places.lock().expect("no test has failed");
    let (mut kept, mut before) = (Vec::new(), None);
    for (step, call) in calls {
        let name = call.path.file_name().unwrap_or_default().to_string_lossy();
        let target = (call.kind, name.chars().filter(|letter| !letter.is_ascii_digit()).collect());
        let step = step.checked_sub(1).map(|at| discriminant(&steps[at]));
        let last = before.replace(target.clone());
        if places.all.insert((step, last, target.clone())) {
            let is_first = places.unnoticed.insert(target);
            let with_some = with_all(call);
            kept.extend(with_some.filter(|(call, it)| is_first || !it.is_invisible(call.kind)));
        }
    }
    kept
}

/// Every run of a history costs as much as the whole history, and there are some three for each of
/// its 150 to 1,000 calls. Most calls are like others, so the short form has one of each place;
/// with `RHUMB_FAULT_HISTORIES` all of them fail.
#[test]
fn no_call_of_a_history_fails_unnoticed_or_for_good() {
    let all = from_env("RHUMB_FAULT_HISTORIES");
    let places = all.is_none().then(Mutex::default);
    let runs = AtomicU64::new(0);
    on_all_processors(all.unwrap_or(HISTORIES_DEFAULT), 1, |seed| {
        let steps = History::new(seed).steps(STEPS);
        for (call, trouble) in chosen(calls_of(seed, &steps)?, &steps, places.as_ref()) {
            runs.fetch_add(1, Ordering::Relaxed);
            fail_call(seed, &steps, call.index, trouble)
                .map_err(|broken| format!("{trouble:?} at {call}: {broken}"))?;
        }
        Ok(())
    });
    println!("{} runs with a fault", runs.load(Ordering::Relaxed));
}

/// Fills the disk up in the middle of a history, and frees space later.
fn fill_disk(seed: u64) -> Result<(), String> {
    let mut rng = SimRng::new(seed ^ 0xf011);
    let mut patient = Patient::new(seed, Trouble::Once(Fault::NoSpace));
    let mut history = History::new(seed);
    patient.open()?;
    for round in 0..4 {
        for _ in 0..20 {
            patient.step(&history.step())?;
        }
        patient.program.fs.set_free_bytes(Some(rng.below(3_000)));
        for _ in 0..20 {
            let step = history.step();
            if !matches!(step, Step::Reopen) {
                patient
                    .step(&step)
                    .map_err(|broken| format!("round {round} {step:?}: {broken}"))?;
            }
        }
        let read = patient.program.verify_open_keyspaces();
        read.map_err(|error| format!("reading with a full disk: {error}"))??;
        // Only space was missing: the open database works again.
        patient.heal();
        let write = Change::Put { keyspace: 1, key: b"k".into(), value: b"v".into() };
        for step in [Step::Write(write), Step::Persist(PersistMode::SyncData)] {
            patient.step(&step).map_err(|broken| format!("{step:?} with room again: {broken}"))?;
        }
        if rng.chance(1, 2) {
            patient.recover(rng.next_u64())?;
        }
    }
    Ok(())
}

#[test]
fn a_full_disk_stops_writes_until_there_is_room() {
    on_all_processors(400, 1, |seed| {
        fill_disk(seed).map_err(|broken| format!("seed {seed}: {broken}"))
    });
}
