//! Measures Rhumb beside its rivals: same process, same data, in turns, every value verified.
//!
//! The workloads are those of `rhumb bench`; this program only adds the rivals: stores on disk
//! (feature `engine`, which compiles C and C++, and `engine-rust`, which does not), ordered maps in
//! memory (feature `index`) and what other processes read (feature `remote`, which compiles C).

#[cfg(feature = "engine-rust")]
mod engine;
#[cfg(feature = "index")]
mod index;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "remote")]
mod remote;

use anyhow::Result;
use clap::{Parser, Subcommand};
#[cfg(feature = "index")]
use rhumb_bench::suite::index::IndexOptions;
#[cfg(feature = "remote")]
use rhumb_bench::suite::remote::RemoteOptions;
#[cfg(feature = "engine-rust")]
use rhumb_bench::{
    options::Options,
    suite::{
        async_reads, engine as engine_suite, idle::Process, queue, readafterdelete, transact, ycsb,
    },
};

/// What the rivals' own measurements use. Without it, their small nodes cost them a third to a
/// half.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(version, about = "Measure Rhumb beside its rivals, on disk and in memory")]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// Loads, reads with everything and with little in the cache, scans, overwrites
    #[cfg(feature = "engine-rust")]
    Engine {
        /// Workloads [default: all but mixed50]; or queue by itself, whose subjects are rhumb,
        /// fjall, redb and redb-single, where each step is a transaction; or transact by itself,
        /// whose subjects are rhumb, rocksdb and fjall
        #[arg(value_name = "WORKLOAD")]
        workloads: Vec<String>,
        /// Subjects [default: rhumb,rocksdb,fjall,redb,lmdb]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// The YCSB core workloads
    #[cfg(feature = "engine-rust")]
    Ycsb {
        /// Workloads, a to f [default: all]
        #[arg(long, value_name = "LETTER,…", value_delimiter = ',')]
        workload: Vec<String>,
        /// Subjects [default: rhumb,rocksdb,fjall,redb,lmdb]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        own: ycsb::YcsbOptions,
        #[command(flatten)]
        options: Options,
    },
    /// Many keys at once, asynchronous reads and scans, with little in the cache
    ///
    /// Beside them stands the disk itself, asked for as much by a loop that does nothing else.
    #[cfg(feature = "engine-rust")]
    Async {
        /// Workloads: multiget_cold get_async_cold range_cold scan_cold [default: all]
        #[arg(value_name = "WORKLOAD")]
        workloads: Vec<String>,
        /// Subjects [default: rhumb,rocksdb,fjall]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// Drop every second of ten parts of a store, and read before and after
    ///
    /// Workloads: drop seek_dead scan_dead scan_live get_live space. --keys are those of one part
    /// [default: 300000].
    #[cfg(feature = "engine-rust")]
    #[command(name = "readafterdelete")]
    ReadAfterDelete {
        /// Subjects [default: rhumb,rocksdb-deletes,rocksdb-deleterange,rocksdb-deletefiles,
        /// rocksdb-families,fjall-keyspaces]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// A store that other processes read; the workloads are those of `rhumb bench remote`
    ///
    /// Subjects: rhumb call limit index, as there; lmdb, with a read transaction for each get, and
    /// lmdb-kept, with one for 256; redis over a Unix socket, and redis-pipe with 16 commands in
    /// the pipe, if redis-server is found. Redis has no scans, and LMDB's part has no inserts.
    #[cfg(feature = "remote")]
    Remote {
        /// Workloads: get, multi_get, scan100, a, b, c, f, d, e, insert [default: all]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        workload: Vec<String>,
        /// Subjects [default: all]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        options: RemoteOptions,
    },
    /// Concurrent ordered maps in memory; the workloads are those of `rhumb bench index`
    #[cfg(feature = "index")]
    Index {
        /// Workloads: lookup, lookup_zipf, batch64, scan100, mixed95, mixed50, insert, dynamic;
        /// and, if named, outside, append, growth, remove [default: lookup to dynamic]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        workload: Vec<String>,
        /// Crafted keys: error, gaps, retrain
        #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
        poison: Vec<String>,
        /// Subjects [default: rhumb,congee,skiplist,concurrent-map,btreemap]; also scc, rhumb-loft,
        /// rhumb-finestore, rhumb-tone
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        options: IndexOptions,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().suite {
        #[cfg(feature = "engine-rust")]
        Suite::Engine { workloads, subjects, options } => {
            if queue::is_chosen(&workloads)? {
                let subjects = engine::chosen_queues(&subjects)?;
                return queue::run(&subjects, &options)?.print(options.run.json);
            }
            if transact::is_chosen(&workloads)? {
                let subjects = engine::chosen_transacting(&subjects)?;
                return transact::run(&subjects, &options)?.print(options.run.json);
            }
            let workloads = engine_suite::choose_workloads(&workloads)?;
            let subjects = engine::chosen(&subjects)?;
            engine_suite::run(&subjects, &workloads, &options)?.print(options.run.json)
        }
        #[cfg(feature = "engine-rust")]
        Suite::Ycsb { workload, subjects, own, options } => {
            let workloads = ycsb::choose_workloads(&workload)?;
            let subjects = engine::chosen(&subjects)?;
            ycsb::run(&subjects, &workloads, &options, &own)?.print(options.run.json)
        }
        #[cfg(feature = "engine-rust")]
        Suite::Async { workloads, subjects, options } => {
            let workloads = async_reads::choose_workloads(&workloads)?;
            let subjects = engine::chosen_overlapping(&subjects)?;
            async_reads::run(&subjects, &workloads, &options)?.print(options.run.json)
        }
        #[cfg(feature = "engine-rust")]
        Suite::ReadAfterDelete { subjects, options } => {
            let subjects = engine::chosen_dropping(&subjects)?;
            readafterdelete::run(&subjects, &options, Process::Own)?.print(options.run.json)
        }
        #[cfg(feature = "remote")]
        Suite::Remote { workload, subjects, options } => {
            remote::run(&workload, &subjects, &options)
        }
        #[cfg(feature = "index")]
        Suite::Index { workload, poison, subjects, options } => {
            index::run(&workload, &poison, &subjects, &options)
        }
    }
}
