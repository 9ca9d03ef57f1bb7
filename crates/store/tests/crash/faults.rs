//! Failures of every single call, and a disk that is full: an error or a success, never a panic,
//! nothing acknowledged lost, and a database that works again once the cause is gone.

use rhumb::{
    Error, PersistMode,
    io::sim::{CallKind, Fault, Loss, Matcher, SimFs, SimRng},
};

use super::{
    cuts::{from_env, on_all_processors},
    history::{Change, History, Step},
    oracle::Event,
    program::{Program, Settings, new_disk},
};

/// How long the histories are. Long enough for flushes and compactions, short enough for a run
/// per call and fault.
const STEPS: usize = 45;
/// How many histories each fault meets, unless told otherwise.
const HISTORIES_DEFAULT: u64 = 6;

/// Whether the engine must not even fail when a call of this kind meets the fault: the loops around
/// reads, writes and syncs take it up.
fn is_invisible(kind: CallKind, fault: Fault) -> bool {
    match fault {
        Fault::Short(_) => true,
        Fault::Interrupted => kind.is_sync() || matches!(kind, CallKind::Read | CallKind::Write),
        Fault::Eio | Fault::NoSpace => false,
    }
}

/// A program some of whose calls fail, and what follows from that.
struct Patient {
    program: Program,
    fault: Fault,
    /// Calls may fail, because one did since the database was opened.
    is_hurt: bool,
    /// How often the log had been acknowledged as durable when its sync failed.
    acknowledged_at_failed_sync: Option<u64>,
}

impl Patient {
    /// A program whose calls chosen by `matcher` meet `fault`.
    fn new(seed: u64, matcher: impl Fn(&SimFs) -> Matcher, fault: Fault) -> Self {
        let fs = new_disk(seed);
        fs.inject(matcher(&fs), fault, u64::MAX);
        let program = Program::new(fs, Settings::new(seed));
        Self { program, fault, is_hurt: false, acknowledged_at_failed_sync: None }
    }

    /// Holds the end of a call against what happened to the disk during it.
    fn check(&mut self, error: Option<&Error>) -> Result<(), String> {
        let faulted = self.program.fs.faulted_calls();
        self.is_hurt |= faulted.iter().any(|(kind, _)| !is_invisible(*kind, self.fault));
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

    /// Opens the database; if a fault prevents it, once more without faults.
    fn open(&mut self) -> Result<(), String> {
        let opened = self.program.open();
        self.check(opened.as_ref().err())?;
        if opened.is_err() {
            self.heal();
            self.program.open().map_err(|error| format!("opening without faults: {error}"))?;
        }
        Ok(())
    }

    /// Takes the cause away.
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

    /// Ends the process, looks at what is left without faults, and makes sure that the database
    /// works again.
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

/// Runs a history in which the call of number `call` meets `fault`.
fn fail_call(seed: u64, steps: &[Step], call: u64, fault: Fault) -> Result<(), String> {
    let matcher = |fs: &SimFs| {
        let call = fs.counts().calls + call;
        Matcher::any().calls(call..call + 1)
    };
    let mut patient = Patient::new(seed, matcher, fault);
    let run = |patient: &mut Patient| {
        patient.open()?;
        patient.steps(steps)?;
        let faulted = patient.program.fs.faulted_calls();
        patient.recover(call).map_err(|broken| format!("with {faulted:?}: {broken}"))
    };
    run(&mut patient).map_err(|broken| format!("seed {seed}, call {call}, {fault:?}: {broken}"))
}

/// How many calls a history makes when none fails.
fn count_calls(seed: u64, steps: &[Step]) -> Result<u64, String> {
    let fs = new_disk(seed);
    let before = fs.counts().calls;
    let mut program = Program::new(fs.clone(), Settings::new(seed));
    program.open().map_err(|error| error.to_string())?;
    for step in steps {
        program.step(step).map_err(|error| format!("{step:?}: {error}"))??;
    }
    Ok(fs.counts().calls - before)
}

#[test]
fn no_call_of_a_history_fails_unnoticed_or_for_good() {
    let histories = from_env("RHUMB_FAULT_HISTORIES").unwrap_or(HISTORIES_DEFAULT);
    on_all_processors(histories, 1, |seed| {
        let steps = History::new(seed).steps(STEPS);
        for call in 0..count_calls(seed, &steps)? {
            for fault in [Fault::Eio, Fault::NoSpace, Fault::Interrupted, Fault::Short(1)] {
                fail_call(seed, &steps, call, fault)?;
            }
        }
        Ok(())
    });
}

/// Fills the disk up in the middle of a history, and makes room later.
fn fill_disk(seed: u64) -> Result<(), String> {
    let mut rng = SimRng::new(seed ^ 0xf011);
    let mut patient = Patient::new(seed, |_| Matcher::any().kinds(&[]), Fault::NoSpace);
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
                patient.step(&step).map_err(|broken| format!("round {round} {step:?}: {broken}"))?;
            }
        }
        let read = patient.program.verify(Event::Nothing);
        read.map_err(|error| format!("reading with a full disk: {error}"))??;
        // Room is all that was missing: the open database works again.
        patient.heal();
        let write = Change::Put { keyspace: 1, key: b"k".into(), value: b"v".into() };
        for step in [Step::Write(write), Step::Persist(PersistMode::SyncData), Step::Flush] {
            patient.step(&step).map_err(|broken| format!("{step:?} with room again: {broken}"))?;
        }
    }
    patient.recover(seed)
}

#[test]
fn a_full_disk_stops_writes_until_there_is_room() {
    on_all_processors(400, 1, |seed| {
        fill_disk(seed).map_err(|broken| format!("seed {seed}: {broken}"))
    });
}
