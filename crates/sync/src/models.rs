//! Runs models: a few actors on what they share, once for each order in which they start.
//!
//! Loom runs each under the orders of its threads' steps, up to a number of preemptions, and the
//! values that a load may return under the memory model. It finds the orders that matter from the
//! last access to each atomic alone. If a thread loads what it then writes, as every lock does,
//! loom forgets which threads had read it before, and never tries the other order. The thread that
//! starts first is then all that is seen. So each model is run once for each order in which its
//! actors start, and writers come before readers in one of them.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use loom::{model::Builder, thread};

/// Runs `actors` on what `make` makes, and `end` on what they leave. A run has at most
/// `preemptions`, unless `LOOM_MAX_PREEMPTIONS` gives another limit.
///
/// # Panics
/// If an actor or `end` does, and if there was only one order of steps.
pub fn race<T: Send + Sync + 'static, const N: usize>(
    preemptions: usize,
    make: impl Fn() -> T + Send + Sync + 'static,
    actors: [fn(&T); N],
    end: fn(&T),
) {
    let (make, runs, start) = (Arc::new(make), Arc::new(AtomicU64::new(0)), Instant::now());
    for order in orders(N) {
        let mut builder = Builder::new();
        builder.preemption_bound.get_or_insert(preemptions);
        builder.max_branches = 100_000;
        let (make, runs) = (Arc::clone(&make), Arc::clone(&runs));
        builder.check(move || {
            runs.fetch_add(1, Ordering::Relaxed);
            let shared = Arc::new(make());
            let start = |actor: &usize| {
                let (act, shared) = (actors[*actor], Arc::clone(&shared));
                thread::spawn(move || act(&shared))
            };
            let threads: Vec<_> = order.iter().map(start).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("an actor does not panic"));
            end(&shared);
        });
    }
    let (runs, seconds) = (runs.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stdout(), "{runs:7} runs in {seconds:.1} s: {name}");
    assert!(runs > N as u64, "a model of one order shows nothing");
}

/// Every order of the numbers below `n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(n - 1);
    let insert = |at: usize| {
        shorter.iter().map(move |order| {
            let mut order = order.clone();
            order.insert(at, n - 1);
            order
        })
    };
    (0..n).flat_map(insert).collect()
}
