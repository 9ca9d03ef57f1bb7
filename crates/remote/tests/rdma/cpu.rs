//! The CPU time that a process has used, as its kernel tells it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Sub;

/// CPU time of a process until a moment, or between two.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    /// Ticks of 10 ms in the process itself, as sampled by the kernel's clock.
    user: u64,
    /// Ticks of 10 ms in the kernel for it. Software RoCE answers reads in interrupts, whose time
    /// the kernel adds to whatever they interrupt.
    system: u64,
    /// Nanoseconds that each thread ran, by its name and number, as the scheduler measured them.
    threads: BTreeMap<(String, u32), u64>,
}

impl Cpu {
    /// What the process `id` has used so far.
    pub(crate) fn of(id: u32) -> Cpu {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{id}/task")).unwrap() {
            let entry = entry.unwrap();
            let read = |file: &str| fs::read_to_string(entry.path().join(file));
            // A thread that has ended since it was listed has no files any more, and a kernel
            // without statistics of its scheduler has no `schedstat`.
            let (Ok(name), Ok(runs)) = (read("comm"), read("schedstat")) else { continue };
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            let ran = runs.split_whitespace().next().unwrap().parse().unwrap();
            threads.insert((name.trim().to_owned(), number), ran);
        }
        Cpu { user: fields[11].parse().unwrap(), system: fields[12].parse().unwrap(), threads }
    }

    /// All ticks of 10 ms.
    pub(crate) fn ticks(&self) -> u64 {
        self.user + self.system
    }
}

impl Sub for Cpu {
    type Output = Cpu;

    fn sub(self, earlier: Cpu) -> Cpu {
        let before = |thread| earlier.threads.get(thread).copied().unwrap_or(0);
        let threads =
            self.threads.iter().map(|(thread, ran)| (thread.clone(), ran - before(thread)));
        Cpu {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            threads: threads.collect(),
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} ticks of 10 ms ({} user, {} system)",
            self.ticks(),
            self.user,
            self.system
        )?;
        let mut threads: Vec<_> = self.threads.iter().filter(|(_, ran)| **ran > 0).collect();
        threads.sort_by_key(|(_, ran)| std::cmp::Reverse(**ran));
        for ((name, _), ran) in threads {
            write!(out, "; {name} {:.1} ms", *ran as f64 / 1e6)?;
        }
        Ok(())
    }
}
