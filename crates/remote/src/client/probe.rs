//! Handles for those that measure: reads by calls alone, counted reads, and the memory's own speed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::keyspace::{Keyspace, ReadSettings};
use crate::{binned::Mode, layout::format::HEAD_WORDS};

impl Keyspace {
    /// Another handle of the same keyspace, which reads otherwise.
    fn reading(&self, change: impl FnOnce(&mut ReadSettings)) -> Self {
        let mut other = self.clone();
        change(&mut other.reads);
        other
    }

    /// Another handle of the same keyspace, whose reads are all calls: what a client costs that
    /// cannot read its host's memory.
    #[must_use]
    pub fn by_calls(&self) -> Self {
        self.reading(|reads| reads.by_calls = true)
    }

    /// Another handle of the same keyspace, which searches level bins itself where there are some:
    /// each takes another read, which costs the host nothing.
    #[doc(hidden)]
    #[must_use]
    pub fn searching_bins(&self) -> Self {
        self.reading(|reads| reads.mode = Mode::AllAtClient)
    }

    /// Another handle of the same keyspace, of [`Preset::XStore`](crate::Preset::XStore), which
    /// asks the host where a leaf has changed since its model was trained, and does not look there
    /// or at the leaf's sibling first.
    #[doc(hidden)]
    #[must_use]
    pub fn without_speculation(&self) -> Self {
        self.reading(|reads| reads.is_timid = true)
    }

    /// Another handle of the same keyspace, of [`Preset::XStore`](crate::Preset::XStore), whose
    /// writes do not say in which leaf the key is expected: the host walks.
    #[doc(hidden)]
    #[must_use]
    pub fn without_hints(&self) -> Self {
        self.reading(|reads| reads.is_silent = true)
    }

    /// Another handle of the same keyspace, which counts the leaves that it looks at. The counter
    /// is its own and its clones'.
    #[doc(hidden)]
    #[must_use]
    pub fn counted(&self) -> Self {
        self.reading(|reads| reads.looks = Some(Arc::new(AtomicU64::new(0))))
    }

    /// The leaves that a [counted](Self::counted) handle has looked at; 0 for others.
    #[doc(hidden)]
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.reads.looks.as_ref().map_or(0, |looks| looks.load(Ordering::Relaxed))
    }

    /// Reads `steps` words of random cache lines among the mapped leaves. Which line is next
    /// depends on the word before, so that no two reads overlap: no read of a key that is not in
    /// the processor's cache can be faster. Returns what `seed` has become, which is `seed` itself
    /// over TCP.
    #[doc(hidden)]
    #[must_use]
    pub fn probe(&self, seed: u64, steps: u64) -> u64 {
        let Some(mapped) = self.mapped() else { return seed };
        let (_, leaves) = mapped.words();
        let lines = (leaves.len() / HEAD_WORDS) as u64;
        let mut state = seed;
        for _ in 0..steps {
            // The multiplier and the increment of Knuth's MMIX generator.
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x1405_7b7e_f767_814f);
            let line = ((u128::from(state) * u128::from(lines)) >> 64) as usize;
            if let Some(word) = leaves.get(line * HEAD_WORDS) {
                state ^= word.load(Ordering::Relaxed);
            }
        }
        state
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests {
    use crate::{Client, Host, Preset, ShareOptions};

    #[test]
    fn handles_count_by_themselves_what_they_read() {
        let dir = tempfile::tempdir().unwrap();
        let options = ShareOptions::default().capacity_bytes(4 << 20);
        let host = Host::listen(dir.path().join("s")).share("k", options).start().unwrap();
        let keyspace = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
        for n in 0..100_u8 {
            keyspace.insert([n], [n; 16]).unwrap();
        }
        assert_eq!((keyspace.calls(), keyspace.round_trips(), keyspace.looks()), (0, 100, 0));
        let counted = keyspace.counted();
        for n in 0..100_u8 {
            assert_eq!(counted.get([n]).unwrap().unwrap(), [n; 16]);
        }
        assert!((100..200).contains(&counted.looks()), "{}", counted.looks());
        assert_eq!((keyspace.calls(), keyspace.looks()), (0, 0));
        let called = keyspace.by_calls();
        let wanted: Vec<[u8; 1]> = (0..100).map(|n| [n]).collect();
        assert_eq!(called.multi_get(&wanted).unwrap(), keyspace.multi_get(&wanted).unwrap());
        assert!(
            called.range::<&str>(..).map(Result::unwrap).eq(keyspace.iter().map(Result::unwrap))
        );
        assert_eq!(called.get([7]).unwrap().unwrap(), [7; 16]);
        // All keys by one message, a scan by one, and a get.
        assert_eq!((called.calls(), called.round_trips()), (102, 103));
        assert_eq!(keyspace.get([7]).unwrap().unwrap(), [7; 16]);
        assert_eq!(keyspace.calls(), 102);
    }

    #[test]
    fn models_are_used_as_a_handle_says() {
        let dir = tempfile::tempdir().unwrap();
        let options = ShareOptions::default().preset(Preset::XStore).keys_per_model(50);
        let host = Host::listen(dir.path().join("s")).share("k", options).trainers(2);
        let host = host.start().unwrap();
        let keyspace = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let stats = || host.stats("k").unwrap().models;
        let write = |keyspace: &crate::Keyspace, range: std::ops::Range<u64>| {
            range.for_each(|n| keyspace.insert(key(n), n.to_be_bytes()).unwrap());
        };
        write(&keyspace, 0..2_000);
        while stats().waiting > 0 {
            std::thread::yield_now();
        }
        let trained = stats();
        assert!(trained.trained >= 32 && trained.training_ns > 0, "{trained:?}");
        let (silent, timid) = (keyspace.without_hints(), keyspace.without_speculation());
        // Which has the models read.
        assert_eq!(keyspace.get(key(1)).unwrap().unwrap(), 1_u64.to_be_bytes());
        write(&silent, 0..500);
        assert_eq!((stats().hints_right, stats().hints_wrong), (trained.hints_right, 0));
        write(&keyspace, 0..500);
        assert!(stats().hints_right > stats().hints_wrong, "{:?}", stats());
        // Models that are stale: one in four leaves was split since they were read.
        write(&silent, 2_000..2_500);
        let calls = |keyspace: &crate::Keyspace| {
            let before = keyspace.counts();
            for n in 0..2_500 {
                assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), n.to_be_bytes());
            }
            let counts = keyspace.counts();
            (counts.calls - before.calls, counts.speculative - before.speculative)
        };
        let (others, speculative) = calls(&timid);
        assert!(others > 0 && speculative == 0, "{others} calls, {speculative} speculative");
        assert!(keyspace.counts().leaves >= 2_500);
    }

    #[test]
    fn a_probe_depends_on_what_it_reads() {
        let dir = tempfile::tempdir().unwrap();
        let options = ShareOptions::default().capacity_bytes(4 << 20);
        let host = Host::listen(dir.path().join("s")).share("k", options).start().unwrap();
        let keyspace = Client::connect(host.path()).unwrap().keyspace("k").unwrap();
        let empty = keyspace.probe(1, 100_000);
        assert_eq!(keyspace.probe(1, 100_000), empty);
        for n in 0..5_000_u64 {
            keyspace.insert(n.to_be_bytes(), [1; 100]).unwrap();
        }
        assert_ne!(keyspace.probe(1, 100_000), empty);
    }
}
