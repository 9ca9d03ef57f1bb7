//! The bugs: what is replaced by what, and which test must fail then.

mod backups;
mod changes;
mod ends;
mod expiry;
mod processes;
mod remote;
mod transactions;
mod unordered;

use anyhow::bail;

use crate::verify::Suite::{self, Addresses, Index, Models, Schedules, Unit};

/// A bug.
pub(super) struct Bug {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    /// What is replaced: its first occurrence after the anchor, or, of a bug without an anchor, the
    /// only one in the file.
    sound: &'static str,
    broken: &'static str,
    pub(super) suite: Suite,
    /// A part of the name of the tests that catch it.
    pub(super) test: &'static str,
    /// What the comment `// planted: ANCHOR` above the statement says. With an anchor `sound` can
    /// be a few tokens, so that a renaming elsewhere in the statement leaves the bug as it is.
    anchor: Option<&'static str>,
}

/// How the comment begins that is an anchor.
pub(super) const ANCHOR: &str = "// planted: ";

/// The number of lines after an anchor in which what is replaced begins and ends. It is the length
/// of the longest statement that has an anchor.
const REACH_LINES: usize = 12;

impl Bug {
    /// The text of the file with the bug.
    ///
    /// # Errors
    /// If what it replaces is not there, or is there more than once and has no anchor.
    pub(super) fn plant(&self, text: &str) -> anyhow::Result<String> {
        let Some(anchor) = self.anchor else {
            return match text.matches(self.sound).count() {
                1 => Ok(text.replacen(self.sound, self.broken, 1)),
                count => bail!("{}: {} has {count} of\n{}", self.name, self.file, self.sound),
            };
        };
        let line = format!("{ANCHOR}{anchor}\n");
        let Some((before, after)) =
            text.split_once(&line).filter(|(_, rest)| !rest.contains(&line))
        else {
            bail!("{}: {} has not one `{}`", self.name, self.file, line.trim_end());
        };
        let reach: usize = after.split_inclusive('\n').take(REACH_LINES).map(str::len).sum();
        let (near, rest) = after.split_at(reach);
        if !near.contains(self.sound) {
            bail!("{}: no `{}` after `{}`", self.name, self.sound, line.trim_end());
        }
        let broken = near.replacen(self.sound, self.broken, 1);
        Ok([before, &line, &broken, rest].concat())
    }

    /// The file and the anchor, if the bug has one.
    #[cfg(test)]
    pub(super) fn anchor(&self) -> Option<(&'static str, &'static str)> {
        self.anchor.map(|anchor| (self.file, anchor))
    }
}

const ADDRESS: &str = "crates/index/src/address.rs";
const BRANCH: &str = "crates/index/src/raw/branch.rs";
const BUCKET: &str = "crates/index/src/raw/bucket.rs";
const BINS: &str = "crates/index/src/published/bins.rs";
const CLAIM: &str = "crates/index/src/published/claim.rs";
const CORE: &str = "crates/index/src/core/mod.rs";
const DEAD: &str = "crates/store/src/memtable/dead.rs";
const EPOCH: &str = "crates/sync/src/epoch.rs";
const GAPPED: &str = "crates/index/src/published/gapped.rs";
const GARBAGE: &str = "crates/sync/src/garbage.rs";
const KINDS: &str = "crates/index/src/kinds.rs";
const LEAF: &str = "crates/index/src/raw/leaf.rs";
const PLAN: &str = "crates/index/src/plan.rs";
const RETRAIN: &str = "crates/index/src/core/retrain.rs";
const SCAN: &str = "crates/index/src/scan.rs";
const SLOTS: &str = "crates/index/src/published/slots.rs";
const TREE: &str = "crates/index/src/raw/tree.rs";

/// All of them, those of a suite together.
pub(super) fn all() -> impl Iterator<Item = &'static Bug> {
    let others = [
        &remote::BUGS[..],
        &processes::BUGS,
        &unordered::BUGS,
        &transactions::BUGS,
        &expiry::BUGS,
        &changes::BUGS,
        &backups::BUGS,
        &ends::BUGS,
    ];
    INDEX.iter().chain(others.into_iter().flatten())
}

/// Those of the index.
static INDEX: [Bug; 41] = [
    Bug {
        name: "a lookup takes no second look at the header",
        file: BUCKET,
        sound: "let again = self.header.load(Ordering::Acquire);",
        broken: "let again = header;",
        suite: Models,
        test: "a_value_is_not_seen_before_its_key_is_back",
        anchor: None,
    },
    Bug {
        name: "a scan takes no second look at the header",
        file: BUCKET,
        sound: "let mut bits = before & present(self.header.load(Ordering::Acquire));",
        broken: "let mut bits = before;",
        suite: Models,
        test: "a_scan_does_not_see_a_value_before_its_key_is_back",
        anchor: None,
    },
    Bug {
        name: "the header is published with a relaxed store",
        file: BUCKET,
        sound: "self.bucket.header.store(self.header, Ordering::Release);",
        broken: "self.bucket.header.store(self.header, Ordering::Relaxed);",
        suite: Models,
        test: "two_writers_claim_slots",
        anchor: None,
    },
    Bug {
        name: "the value of a slot is not stored",
        file: BUCKET,
        sound: "self.values[slot].store(value, Ordering::Release);\n    }",
        broken: "let _ = value;\n    }",
        suite: Models,
        test: "two_writers_claim_slots",
        anchor: None,
    },
    Bug {
        name: "the lock is taken by a load and a store",
        file: BUCKET,
        sound: "if self.header.compare_exchange_weak(header, header | LOCKED, ok, failed).is_ok() {",
        broken: "let _ = (ok, failed);\n                self.header.store(header | LOCKED, Ordering::Release);\n                {",
        suite: Models,
        test: "one_key_has_one_slot",
        anchor: None,
    },
    Bug {
        name: "a node is linked before it is filled",
        file: BUCKET,
        sound: "        node.put(0, word, value);\n        node.header.store(bits(0), Ordering::Relaxed);\n        link.store(std::ptr::from_ref(node).cast_mut(), Ordering::Release);\n",
        broken: "        link.store(std::ptr::from_ref(node).cast_mut(), Ordering::Release);\n        node.header.store(bits(0), Ordering::Relaxed);\n        node.put(0, word, value);\n",
        suite: Models,
        test: "an_overflow_node_is_whole",
        anchor: None,
    },
    Bug {
        name: "a node is linked with a relaxed store",
        file: BUCKET,
        sound: "link.store(std::ptr::from_ref(node).cast_mut(), Ordering::Release);",
        broken: "link.store(std::ptr::from_ref(node).cast_mut(), Ordering::Relaxed);",
        suite: Models,
        test: "an_overflow_node_is_whole",
        anchor: None,
    },
    Bug {
        name: "freezing does not wait for the lock",
        file: BUCKET,
        sound: "        if let Ok(mut locked) = self.lock() {\n            locked.header |= FROZEN;\n        }",
        broken: "        let header = self.header.load(Ordering::Acquire);\n        self.header.store(header | FROZEN, Ordering::Release);",
        suite: Models,
        test: "nothing_changes_after_the_freezing",
        anchor: None,
    },
    Bug {
        name: "a joined neighbour is not frozen",
        file: RETRAIN,
        sound: "collect::<S>(next, &mut entries, &mut dead);",
        broken: "(0..next.len()).for_each(|at| next.append_sorted::<S>(at, &mut entries));",
        suite: Models,
        test: "leaves_are_joined",
        anchor: None,
    },
    Bug {
        name: "a group is replaced without freezing it",
        file: BRANCH,
        sound: "            while now.addr() & FROZEN == 0 {",
        broken: "            while now.is_null() {",
        suite: Models,
        test: "a_group_is_replaced",
        anchor: None,
    },
    Bug {
        name: "the shortcut of a replaced leaf counts as its successor's",
        file: BRANCH,
        sound: "match child.compare_exchange(now, new, ok, failed) {",
        broken: "match child.compare_exchange(now, new.map_addr(|a| a | now.addr() & HAS_SHORTCUT), ok, failed) {",
        suite: Models,
        test: "a_read_is_right_while_its_leaf_is_replaced_and_freed",
        anchor: None,
    },
    Bug {
        name: "who lost the race for a leaf takes it for won",
        file: TREE,
        sound: "                ReplaceOutcome::Lost => return false,",
        broken: "                ReplaceOutcome::Lost => return true,",
        suite: Models,
        test: "two_helpers_replace_a_leaf",
        anchor: None,
    },
    Bug {
        name: "a replaced group is published over another's",
        file: TREE,
        sound: "            .is_some_and(|now| now.iter().zip(replaced).all(|((_, p), old)| *p == ptr_of(*old)));",
        broken: "            .is_some();",
        suite: Models,
        test: "a_group_is_replaced",
        anchor: None,
    },
    Bug {
        name: "a replaced leaf is freed at once",
        file: TREE,
        sound: "            unsafe { self.garbage.retire(guard, unlinked, bytes, &self.arena) };",
        broken: "            let _ = bytes;\n            let unlinked: Waste<_, S> = unlinked;\n            unsafe { unlinked.free(&self.arena) };",
        suite: Models,
        test: "a_read_is_right_while_its_leaf_is_replaced",
        anchor: None,
    },
    Bug {
        name: "a replaced value is freed at once",
        file: TREE,
        sound: "        unsafe { self.garbage.retire(guard, Waste::Value(word, PhantomData), bytes, &self.arena) };",
        broken: "        let _ = (guard, bytes);\n        unsafe { S::free_value(word) };",
        suite: Models,
        test: "a_boxed_value_is_not_freed",
        anchor: None,
    },
    Bug {
        name: "a wide key that comes back writes into its old record",
        file: CORE,
        sound: "        let record = S::HAS_RECORDS.then(|| slot.load(Ordering::Relaxed));\n",
        broken: "        if S::HAS_RECORDS {\n            cell::<S>(locked, spot).store(new, Ordering::Release);\n            locked.set_present(spot, true);\n            return None;\n        }\n        let record = S::HAS_RECORDS.then(|| slot.load(Ordering::Relaxed));\n",
        suite: Models,
        test: "a_wide_key_comes_back",
        anchor: None,
    },
    Bug {
        name: "pinning has no fence",
        file: EPOCH,
        sound: "        if self.is_fenced.get() {\n            fence(Ordering::SeqCst);",
        broken: "        if self.is_fenced.get() {\n            compiler_fence(Ordering::SeqCst);",
        suite: Models,
        test: "models::epoch",
        anchor: None,
    },
    Bug {
        name: "the epoch advances without a barrier",
        file: EPOCH,
        sound: "    if !barrier() {\n        return epoch;\n    }\n    if slots().any(|slot| ![UNPINNED, epoch].contains(&slot.pinned.load(Ordering::Acquire))) {\n        REFUSALS.fetch_add(1, Ordering::Relaxed);\n        return epoch;\n    }\n    REFUSALS.store(0, Ordering::Relaxed);\n    fence(Ordering::SeqCst);\n",
        broken: "    if slots().any(|slot| ![UNPINNED, epoch].contains(&slot.pinned.load(Ordering::Acquire))) {\n        return epoch;\n    }\n    if epoch == 0 && !barrier() {\n        return epoch;\n    }\n",
        suite: Models,
        test: "who_frees_need_not_be_who_unlinked",
        anchor: None,
    },
    Bug {
        name: "a writer stays in the bucket before the one that was opened for its key",
        file: CORE,
        sound: "                Ok(_) if leaf.is_open() && leaf.place::<S>(word, probe) != at => continue,\n",
        broken: "",
        suite: Models,
        test: "a_key_goes_where_a_bucket_was_opened",
        anchor: None,
    },
    Bug {
        name: "a bucket that is opened meanwhile is not copied",
        file: KINDS,
        sound: "    while at < leaf.len() {\n        Bucket::prefetch",
        broken: "    let len = leaf.len();\n    while at < len {\n        Bucket::prefetch",
        suite: Models,
        test: "a_bucket_is_opened_while_its_leaf_is_replaced",
        anchor: None,
    },
    Bug {
        name: "the epoch advances over pinned threads",
        file: EPOCH,
        sound: "    if slots().any(|slot| ![UNPINNED, epoch].contains(&slot.pinned.load(Ordering::Acquire))) {",
        broken: "    if slots().any(|slot| slot.pinned.load(Ordering::Acquire) > epoch) {",
        suite: Models,
        test: "models::epoch",
        anchor: None,
    },
    Bug {
        name: "garbage is freed an epoch too early",
        file: GARBAGE,
        sound: "*unlinked + GRACE > self.epoch",
        broken: "*unlinked + GRACE > self.epoch + 2",
        suite: Models,
        test: "models::epoch",
        anchor: None,
    },
    Bug {
        name: "the end of a pin is stored relaxed",
        file: EPOCH,
        sound: "Some(slot) => slot.pinned.store(UNPINNED, Ordering::Release)",
        broken: "Some(slot) => slot.pinned.store(UNPINNED, Ordering::Relaxed)",
        suite: Models,
        test: "models::epoch",
        anchor: None,
    },
    Bug {
        name: "a slot is claimed whatever has changed since",
        file: CLAIM,
        sound: "        header.compare_exchange(seen, seen | flip, ok, failed).ok()?;",
        broken: "        let _ = failed;\n        header.fetch_or(flip, ok);",
        suite: Models,
        test: "one_key_is_inserted_once",
        anchor: None,
    },
    Bug {
        name: "a slot is claimed that somebody is filling",
        file: SLOTS,
        sound: "                if busy(header) & 1 << slot == 0",
        broken: "                if busy(header) < u32::MAX",
        suite: Models,
        test: "one_key_is_inserted_once",
        anchor: None,
    },
    Bug {
        name: "a wider run is linked without a claim",
        file: SLOTS,
        sound: "        let _claim = SlotClaim::new(&home.header, 0)?;\n",
        broken: "",
        suite: Models,
        test: "no_run_is_linked_to_a_frozen_group",
        anchor: None,
    },
    Bug {
        name: "a bin is split without being frozen",
        file: BINS,
        sound: "            drop(locked);\n            bin.freeze();\n",
        broken: "            drop(locked);\n",
        suite: Models,
        test: "what_is_full_grows",
        anchor: None,
    },
    Bug {
        name: "a gap is trained while its bins are written",
        file: BINS,
        sound: "            root.child(at).freeze();\n            let (more",
        broken: "            let (more",
        suite: Models,
        test: "bins_are_trained",
        anchor: None,
    },
    Bug {
        name: "a secondary array is published by a store",
        file: GAPPED,
        sound: "        let linked = match self.secondary.compare_exchange(none, block.as_ptr(), ok, failed) {\n",
        broken: "        let _: (*mut GapArray, _, _) = (none, ok, failed);\n        self.secondary.store(block.as_ptr(), Ordering::Release);\n        let linked = match Ok::<(), *mut GapArray>(()) {\n",
        suite: Models,
        test: "a_secondary_array_is_made_once",
        anchor: None,
    },
    Bug {
        name: "a walk records a dead range without taking its turn with the writer",
        file: DEAD,
        sound: "        inserted.fetch_add(0, Ordering::AcqRel);\n",
        broken: "        let _ = inserted;\n",
        suite: Models,
        test: "a_value_that_comes_while_a_dead_range_is_recorded",
        anchor: None,
    },
    Bug {
        name: "a value voids no dead range that has only been announced",
        file: DEAD,
        sound: "            announced.is_void = true;",
        broken: "            let _ = announced;",
        suite: Models,
        test: "a_value_that_comes_while_a_dead_range_is_recorded",
        anchor: None,
    },
    Bug {
        name: "a scan finds its place again behind the next key",
        file: SCAN,
        sound: "                        self.low = Edge::new(Limit::Included(upper.probe()), 0);",
        broken: "                        self.low = Edge::new(Limit::Excluded(upper.probe()), 0);",
        suite: Schedules,
        test: "words",
        anchor: None,
    },
    Bug {
        name: "a writer does not see that a bucket is frozen",
        file: BUCKET,
        sound: "            if header & FROZEN != 0 {\n                return Err(Frozen);\n            }\n            if header & LOCKED",
        broken: "            if header & FROZEN != 0 && header == 0 {\n                return Err(Frozen);\n            }\n            if header & LOCKED",
        suite: Index,
        test: "histories::",
        anchor: None,
    },
    Bug {
        name: "a trainer takes its reason for one of the leaf's successor",
        file: RETRAIN,
        sound: " || at >= leaf.len()",
        broken: "",
        suite: Unit,
        test: "a_stale_reason_to_replace_a_leaf",
        anchor: None,
    },
    Bug {
        name: "a bucket is opened for words that the one before it has",
        file: LEAF,
        sound: "        let above = capped(locked.greatest_word()) + 1;\n        if capped(word) < above {",
        broken: "        let above = capped(word);\n        if locked.greatest_word() == word {",
        suite: Unit,
        test: "keys_that_come_late_are_where_they_belong",
        anchor: None,
    },
    Bug {
        name: "keys in overflow nodes are not copied",
        file: BUCKET,
        sound: "        for node in self.chain() {\n            node.for_each_here(&mut |word, value| {",
        broken: "        for node in self.chain().skip(1) {\n            node.for_each_here(&mut |word, value| {",
        suite: Unit,
        test: "integers_agree_with_a_plain_map",
        anchor: None,
    },
    Bug {
        name: "a leaf is filled by one line and addressed by another",
        file: PLAN,
        sound: "            let leaf = self.leaf(arena, BucketAddress::Line(line), buckets);\n            return",
        broken: "            let line = BucketLine::new(first, last, buckets);\n            let leaf = self.leaf(arena, BucketAddress::Line(line), buckets);\n            return",
        suite: Unit,
        test: "sorted_runs_grow_well_at_either_end",
        anchor: None,
    },
    Bug {
        name: "a word far above a pivot block's places wraps around",
        file: ADDRESS,
        sound: "step.min(u64::from(STEP_PAD - 1)) as u16",
        broken: "step as u16",
        suite: Unit,
        test: "pivots_find_the_place",
        anchor: None,
    },
    Bug {
        name: "entries that share a step with the next bucket stay in theirs",
        file: PLAN,
        sound: "                *end = self.end_by_pivot_block(pivot_block, i, start..*end);\n",
        broken: "                *end = (*end).max(start);\n",
        suite: Unit,
        test: "uneven_at_every_scale",
        anchor: None,
    },
    Bug {
        name: "groups whose leaves were replaced are never made anew",
        file: BRANCH,
        sound: "self.replaced.load(Ordering::Relaxed) as usize > self.len() / WORN",
        broken: "false && self.len() / WORN == 0",
        suite: Unit,
        test: "leaves_that_were_replaced_are_found_by_their_shortcuts_again",
        anchor: None,
    },
    Bug {
        name: "the record of a removed key is freed twice",
        file: TREE,
        sound: "        for record in dead {\n",
        broken: "        for record in dead.iter().chain(&dead).copied() {\n",
        suite: Addresses,
        test: "growth",
        anchor: None,
    },
];
