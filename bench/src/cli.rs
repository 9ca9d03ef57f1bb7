//! `rhumb bench`: Rhumb measured by itself.

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{
    dropping::{DropEngine, RHUMB, RHUMB_RANGES, RHUMB_RANGES_5000},
    options::Options,
    queueing::QueueEngine,
    rhumb_engine::{ADAPTIVE, BINARY_SEARCH, LEARNED, SKIP_LIST, UNTRAINED},
    rhumb_index,
    subject::Engine,
    suite::{
        self,
        beside::{self, BesideOptions},
        engine,
        idle::Process,
        index::{self, IndexOptions},
        memory::{self, MemoryOptions},
        models, queue, readafterdelete, series, transact, ycsb,
    },
    transacting::TransactEngine,
    usage::usage,
};

#[cfg(unix)]
use crate::suite::{papers, remote};

/// How many writers `rhumb bench training` has, one number after another.
const WRITERS: [usize; 5] = [1, 2, 4, 8, 16];

/// A suite to run.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Load, read, scan and overwrite, with everything and with little in the cache
    ///
    /// Workloads: fillseq fillrandom readrandom readmissing seek100 scan multiget readrandom_cold
    /// multiget_cold mixed90 mixed50 overwrite. A store is loaded first where a workload needs it.
    /// And queue, which runs by itself: cycles of a push and a pop, in tenths, as a queue (with 100
    /// and 10,000 entries in between), stack, double-ended and priority queue; --keys are the
    /// cycles of each [default: 2000000]. And transact, which runs by itself: optimistic
    /// transactions of 8 threads (or --threads) that read and write two of a million keys, with
    /// conflicts in 0, 1 and 10% of the attempts. And series, which runs by itself: values that
    /// live for an hour of simulated time, of which 200,000 (or --keys) live at once, and three
    /// ways to be rid of them: expiry, removed ranges and dropped partitions.
    Engine(EngineCommand),
    /// Read many keys at once, asynchronously and in scans, with little in the cache
    ///
    /// Workloads: multiget_cold get_async_cold range_cold scan_cold. Beside them stands what the
    /// disk itself gives on the same files.
    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ))]
    Async(AsyncCommand),
    /// Run the core workloads of YCSB
    ///
    /// a: half updates. b: 5% updates. c: reads. d: reads of the latest, 5% inserts. e: scans, 5%
    /// inserts. f: half read-modify-writes.
    Ycsb(YcsbCommand),
    /// Drop every second of ten partitions, and read before and after
    ///
    /// Subjects: a partition for each, and one range or a thousand that are deleted for each.
    /// Workloads: drop seek_dead scan_dead scan_live get_live space, and with 1, 10, 1000 and 10000
    /// partitions of one entry create, flush (of all), written and idle (bytes by which a process
    /// grows that writes them, or opens them), files and scan10. --keys are those of one partition
    /// [default: 300000].
    #[command(name = "readafterdelete")]
    ReadAfterDelete(ReadAfterDeleteCommand),
    /// Compare index blocks: codes trained from keys, eight plain bytes, binary search
    ///
    /// Workloads: compact, index (bytes in the file), index_memory, index_per_block,
    /// keys_per_segment, coded_segments, codes, get (all in the cache), blocks_read (with nothing
    /// in it); and for the codes by themselves distinct, coding and parameters.
    Models(ModelsCommand),
    /// Hold each technique of `TridentKV` by itself against none of them, and all
    ///
    /// Subjects: none, models, coding (with models), adaptive (models trained while writers are
    /// few), partitions (by the first byte), async (32 reads at a time), tridentkv (all).
    /// Workloads: fill, settle, index, `get_large_cache`, `get_small_cache`.
    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
    ))]
    Ablation(AblationCommand),
    /// Fill stores with many writers whose flushes train always, adaptively and never; then read
    ///
    /// Workloads: fillrandom with each number of writers, and `read_after` by one reader.
    Training(TrainingCommand),
    /// Hold the memory that is resident against the budget, in a mix of many threads
    ///
    /// Point reads, inserts and removals of small values and large ones, scans both ways,
    /// snapshots. Says what was resident, at most and usually, and what of it the engine counts.
    Memory(MemoryCommand),
    /// Write at full speed, alone and beside processes that read the store and follow it
    ///
    /// Each reader catches up with the writer, again and again, and verifies what it reads: values,
    /// batches that are there as a whole, versions that never fall.
    Beside(BesideCommand),
    /// Read a keyspace that another process shares, from its memory and by calls
    ///
    /// Workloads: get multi_get scan100 insert, and a to f of YCSB; by name only nutanix (57%
    /// updates, 41% reads, 2% scans) and updates25, updates75, updates100 (beside reads). The host
    /// is a process of its own, and so is each of --clients; --keys are 1,000,000 unless they are
    /// named. Each line says beside its rate what an operation costs: time, one-sided reads (of
    /// leaves), calls, round trips, CPU time of client and host. An operation is a key in multi_get
    /// and an entry in scan100. With --servers several hosts divide the keys, and each line has the
    /// share of the operations that each of them got.
    #[cfg(unix)]
    Remote(RemoteCommand),
    /// Measure the figures of the papers that the presets of shared keyspaces are of
    ///
    /// Each figure says what its paper claims, and counts on this machine what decides that: reads,
    /// bytes and round trips of an operation, CPU time of client and host. Hosts and clients are
    /// threads of one process; --keys are 1,000,000 unless they are named, of 8 bytes.
    #[cfg(unix)]
    Papers(PapersCommand),
    /// Measure what a share costs: its writers, memory, and the time until it is read
    ///
    /// Figures: writers, which are timed beside those of a database that shares nothing, and
    /// region, with the bytes that are mapped after a load, after inserts in random order, and
    /// after ten updates of each key. --keys are 1,000,000 unless they are named, of 8 bytes.
    #[cfg(unix)]
    Share(PapersCommand),
    /// Look up, scan and insert 64-bit keys in the in-memory index
    ///
    /// Workloads: lookup lookup_zipf batch64 scan100 mixed95 mixed50 insert dynamic, and by name
    /// only: outside append poison_random poison_error poison_gaps poison_retrain. Ends with the
    /// number of answers that were missing, wrong, or there and never inserted.
    Index(IndexCommand),
}

/// What `rhumb bench engine` takes.
#[derive(Args, Debug)]
pub struct EngineCommand {
    /// Workloads [default: all but mixed50]
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Subjects: rhumb, rhumb-binary for index blocks that are searched, rhumb-skiplist for
    /// memtables that are skip lists, rhumb-adaptive where flushes train models only while writers
    /// are few, and rhumb-untrained where nothing does [default: rhumb]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// How to measure.
    #[command(flatten)]
    pub options: Options,
}

/// What `rhumb bench async` takes.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
#[derive(Args, Debug)]
pub struct AsyncCommand {
    /// Workloads [default: all]
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Subjects: rhumb, rhumb-threads where threads read instead of the kernel's queue, and
    /// rhumb-plain without read-ahead [default: rhumb]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// How to measure.
    #[command(flatten)]
    pub options: Options,
}

/// What `rhumb bench ycsb` takes.
#[derive(Args, Debug)]
pub struct YcsbCommand {
    /// Workloads, a to f [default: all]
    #[arg(long, value_name = "LETTER,…", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// How much is cached, and what is drawn.
    #[command(flatten)]
    pub own: ycsb::YcsbOptions,
    /// How to measure.
    #[command(flatten)]
    pub options: Options,
}

/// What `rhumb bench readafterdelete` takes.
#[derive(Args, Debug)]
pub struct ReadAfterDeleteCommand {
    /// How to measure.
    #[command(flatten)]
    pub options: Options,
}

/// What `rhumb bench models` takes.
#[derive(Args, Debug)]
pub struct ModelsCommand {
    /// How to measure.
    #[command(flatten)]
    pub options: Options,
}

/// What `rhumb bench ablation` takes.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
#[derive(Args, Debug)]
pub struct AblationCommand {
    /// Draw the reads of all subjects into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// How to measure.
    #[command(flatten)]
    pub options: Options,
}

/// What `rhumb bench training` takes.
#[derive(Args, Debug)]
pub struct TrainingCommand {
    /// How to measure; `--threads` are the writers, 1,2,4,8,16 unless they are named.
    #[command(flatten)]
    pub options: Options,
}

/// What `rhumb bench memory` takes.
#[derive(Args, Debug)]
pub struct MemoryCommand {
    /// How to measure.
    #[command(flatten)]
    pub options: MemoryOptions,
}

/// What `rhumb bench beside` takes.
#[derive(Args, Debug)]
pub struct BesideCommand {
    /// How to measure.
    #[command(flatten)]
    pub options: BesideOptions,
}

/// What `rhumb bench remote` takes.
#[cfg(unix)]
#[derive(Args, Debug)]
pub struct RemoteCommand {
    /// Workloads: get, multi_get, scan100, a, b, c, f, d, e, insert [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Subjects: rhumb, whose reads look into the host's memory; call, whose reads ask the host;
    /// limit, which reads one dependent line of the same memory; index, an index in the client's
    /// own memory; and if they are named walk, walk-cached and walk-whole, which walk a tree in
    /// another host's memory and keep none of its inner nodes, those of the top four levels, or
    /// all (keys of up to 16 bytes) [default: rhumb, call, limit, index; the first two with several
    /// --servers]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// How to measure.
    #[command(flatten)]
    pub options: remote::RemoteOptions,
}

/// What `rhumb bench papers` and `rhumb bench share` take.
#[cfg(unix)]
#[derive(Args, Debug)]
pub struct PapersCommand {
    /// Figures; a name that there is not is answered with all of them
    /// [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub figure: Vec<String>,
    /// How to measure.
    #[command(flatten)]
    pub options: papers::PapersOptions,
}

/// What `rhumb bench index` takes.
#[derive(Args, Debug)]
pub struct IndexCommand {
    /// Presets: auto, loft, finestore, tone
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "auto")]
    pub preset: Vec<String>,
    /// Workloads: lookup, lookup_zipf, batch64, scan100, mixed95, mixed50, insert, dynamic; and, if
    /// named, outside, append, growth, remove [default: lookup to dynamic]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Crafted keys against learned indexes, held against as many random ones: error, gaps, retrain
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    pub poison: Vec<String>,
    /// How to measure.
    #[command(flatten)]
    pub options: IndexOptions,
}

/// Runs a suite on Rhumb and prints its report to standard output.
///
/// # Errors
/// [`Usage`](crate::usage::Usage) if an option is out of range or names what there is not; else if
/// the store fails, or it returns anything but what was written.
pub fn run(command: BenchCommand) -> Result<()> {
    let known: [&dyn Engine; 5] = [&LEARNED, &BINARY_SEARCH, &SKIP_LIST, &ADAPTIVE, &UNTRAINED];
    match command {
        BenchCommand::Engine(command) => run_engine(command, &known),
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
        ))]
        BenchCommand::Async(AsyncCommand { workloads, mut subjects, options }) => {
            if subjects.is_empty() {
                subjects.push(Engine::name(&LEARNED).to_owned());
            }
            let known: [&dyn Engine; 3] =
                [&LEARNED, &crate::rhumb_engine::THREADS, &crate::rhumb_engine::PLAIN];
            usage(options.validate())?;
            let engines = usage(suite::choose(&subjects, &known))?;
            let workloads = usage(suite::async_reads::choose_workloads(&workloads))?;
            suite::async_reads::run(&engines, &workloads, &options)?.print(options.run.json)
        }
        BenchCommand::Ycsb(YcsbCommand { workload, own, options }) => {
            usage(options.validate().and_then(|()| own.validate()))?;
            let workloads = usage(ycsb::choose_workloads(&workload))?;
            ycsb::run(&[&LEARNED], &workloads, &options, &own)?.print(options.run.json)
        }
        BenchCommand::ReadAfterDelete(ReadAfterDeleteCommand { options }) => {
            usage(options.validate())?;
            let engines: [&dyn DropEngine; 3] = [&RHUMB, &RHUMB_RANGES, &RHUMB_RANGES_5000];
            readafterdelete::run(&engines, &options, Process::Own)?.print(options.run.json)
        }
        BenchCommand::Models(ModelsCommand { options }) => {
            usage(options.validate())?;
            models::run(&options)?.print(options.run.json)
        }
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
        ))]
        BenchCommand::Ablation(AblationCommand { plot, options }) => {
            usage(options.validate())?;
            suite::ablation::run(&options, plot.as_deref())?.print(options.run.json)
        }
        BenchCommand::Training(TrainingCommand { mut options }) => {
            if options.run.threads == [1] {
                options.run.threads = WRITERS.to_vec();
            }
            usage(options.validate())?;
            suite::training::run(&options)?.print(options.run.json)
        }
        BenchCommand::Memory(MemoryCommand { options }) => {
            usage(options.validate())?;
            memory::run(&options)
        }
        BenchCommand::Beside(BesideCommand { options }) => {
            usage(options.validate())?;
            beside::run(&options)
        }
        #[cfg(unix)]
        BenchCommand::Remote(command) => run_remote(command),
        #[cfg(unix)]
        BenchCommand::Papers(PapersCommand { figure, options }) => {
            usage(options.validate())?;
            papers::run(&usage(papers::choose(&figure, papers::FIGURES))?, &options)
        }
        #[cfg(unix)]
        BenchCommand::Share(PapersCommand { figure, options }) => {
            usage(options.validate())?;
            papers::run(&usage(papers::choose(&figure, papers::PRICES))?, &options)
        }
        BenchCommand::Index(IndexCommand { preset, workload, poison, options }) => {
            usage(options.validate())?;
            let names: Vec<_> = preset.iter().map(|name| rhumb_index::subject_name(name)).collect();
            let subjects = usage(rhumb_index::subjects(&names, options.trainers))?;
            let known: Vec<_> = subjects.iter().map(Box::as_ref).collect();
            let workloads = usage(index::choose_workloads(&workload, &poison))?;
            let chosen = usage(index::choose(&names, &known))?;
            index::run(&chosen, &workloads, &options)
        }
    }
}

fn run_engine(command: EngineCommand, known: &[&dyn Engine]) -> Result<()> {
    let EngineCommand { workloads, mut subjects, options } = command;
    if subjects.is_empty() {
        subjects.push(Engine::name(&LEARNED).to_owned());
    }
    usage(options.validate())?;
    if usage(series::is_chosen(&workloads))? {
        return series::run(&options)?.print(options.run.json);
    }
    if usage(queue::is_chosen(&workloads))? {
        let known: [&dyn QueueEngine; 2] = [&LEARNED, &SKIP_LIST];
        let engines = usage(queue::choose(&subjects, &known))?;
        return queue::run(&engines, &options)?.print(options.run.json);
    }
    if usage(transact::is_chosen(&workloads))? {
        let known: [&dyn TransactEngine; 2] = [&LEARNED, &SKIP_LIST];
        let engines = usage(transact::choose(&subjects, &known))?;
        return transact::run(&engines, &options)?.print(options.run.json);
    }
    let engines = usage(suite::choose(&subjects, known))?;
    let workloads = usage(engine::choose_workloads(&workloads))?;
    engine::run(&engines, &workloads, &options)?.print(options.run.json)
}

#[cfg(unix)]
fn run_remote(command: RemoteCommand) -> Result<()> {
    let RemoteCommand { workload, mut subjects, options } = command;
    usage(options.validate())?;
    if options.servers > 1 && subjects.is_empty() {
        // The limit is of one host's memory, and an index in the client's has no host.
        subjects = vec!["rhumb".to_owned(), "call".to_owned()];
    }
    let workloads = usage(remote::choose_workloads(&workload))?;
    let known: [&dyn remote::subject::Subject; 7] = [
        &remote::rhumb::RHUMB,
        &remote::rhumb::CALL,
        &remote::rhumb::LIMIT,
        &remote::rhumb::InProcess,
        &remote::walk::WALK,
        &remote::walk::WALK_CACHED,
        &remote::walk::WALK_WHOLE,
    ];
    // Trees have keys of up to 16 bytes, and their subjects run if they are named.
    let usual = known.len() - remote::walk::COUNT;
    let known = &known[..if subjects.is_empty() { usual } else { known.len() }];
    remote::run(&usage(remote::choose(&subjects, known))?, &workloads, &options)
}
