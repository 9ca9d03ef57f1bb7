//! Joins the sound versions of a keyspace's keys, from tables and the log: of each key the newest
//! that is not removed.

use std::{
    cell::RefCell,
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, HashMap, btree_map},
};

use super::{
    log::{LogEntries, LogKey},
    report::SalvageReport,
    stream::TableStream,
};
use crate::{
    error::{Error, Result},
    expiry::{Millis, Stamp},
    types::{Kind, SeqNo},
};

/// Stands for an LSM tree: a range tombstone removes the entries of its own tree alone. It may
/// reach beyond the keys of its partition, and a compaction of another tree that has none gives
/// newer entries the number 0.
pub(super) type Scope = u64;

/// A version of a key.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) key: Vec<u8>,
    pub(super) seq: SeqNo,
    pub(super) kind: Kind,
    /// The value, or the place of a large one.
    pub(super) value: Vec<u8>,
}

/// All keys from `from` on and before `to` were removed by the write `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) from: Box<[u8]>,
    /// Absent if there is no end.
    pub(super) to: Option<Box<[u8]>>,
    pub(super) seq: SeqNo,
}

/// Where versions come from.
enum Input {
    Table(Box<TableStream>),
    Log(btree_map::IntoIter<LogKey, (Kind, Vec<u8>)>),
}

/// Where versions of one LSM tree come from.
struct Source {
    scope: Scope,
    input: Input,
}

/// The next version of a source, in the order in which versions are looked at.
struct Next {
    version: Version,
    source: usize,
}

impl Next {
    fn order(&self) -> (&[u8], Reverse<SeqNo>, usize) {
        (&self.version.key, Reverse(self.version.seq), self.source)
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        // A heap has its greatest first.
        other.order().cmp(&self.order())
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

/// Finds the newest range tombstone over keys that ascend.
struct RangeSweep {
    /// Those that begin later, the last one first.
    later: Vec<Fragment>,
    /// Those that have begun, the newest first, some of which may have ended.
    begun: BinaryHeap<(SeqNo, Option<Box<[u8]>>)>,
}

impl RangeSweep {
    fn new(mut ranges: Vec<Fragment>) -> Self {
        ranges.sort_by(|a, b| b.from.cmp(&a.from));
        Self { later: ranges, begun: BinaryHeap::new() }
    }

    /// The number of the newest over `key`; 0 if there is none.
    fn newest(&mut self, key: &[u8]) -> SeqNo {
        while let Some(fragment) = self.later.pop_if(|fragment| *fragment.from <= *key) {
            self.begun.push((fragment.seq, fragment.to));
        }
        while let Some((seq, to)) = self.begun.peek() {
            if to.as_ref().is_none_or(|to| *key < **to) {
                return *seq;
            }
            self.begun.pop();
        }
        0
    }
}

/// A live entry: key, value, and the time at which it expires if it does.
pub(super) type Entry = (Vec<u8>, Vec<u8>, Option<Millis>);

/// A value, and the time at which it expires if it does.
type Value = (Vec<u8>, Option<Millis>);

/// What the versions of a key say.
enum Step {
    Live(Entry),
    Removed,
    /// There are no more keys.
    End,
}

/// The live entries of a keyspace in the order of their keys. Ends early after an error.
pub(super) struct Merge<'a> {
    sources: Vec<Source>,
    heap: BinaryHeap<Next>,
    /// Tables of which nothing is read before their first key is reached, the last one first.
    waiting: Vec<(Vec<u8>, usize)>,
    ranges: HashMap<Scope, RangeSweep>,
    report: &'a RefCell<SalvageReport>,
    error: Option<Error>,
    last: Option<Vec<u8>>,
    /// The number of entries that came after a larger key and were left out.
    disordered: u64,
}

impl<'a> Merge<'a> {
    pub(super) fn new(
        mut tables: Vec<(Scope, TableStream)>,
        logs: Vec<(Scope, LogEntries)>,
        ranges: HashMap<Scope, Vec<Fragment>>,
        report: &'a RefCell<SalvageReport>,
    ) -> Self {
        // Of two versions with one number the newer table's counts.
        tables.sort_by_key(|(_, table)| Reverse(table.id()));
        let logs = logs.into_iter().map(|(scope, entries)| {
            let input = Input::Log(entries.into_iter());
            Source { scope, input }
        });
        let mut merge = Self {
            sources: logs.collect(),
            heap: BinaryHeap::new(),
            waiting: Vec::new(),
            ranges: ranges.into_iter().map(|(of, list)| (of, RangeSweep::new(list))).collect(),
            report,
            error: None,
            last: None,
            disordered: 0,
        };
        let begun = (0..merge.sources.len()).try_for_each(|log| merge.advance(log));
        merge.error = begun.err();
        for (scope, table) in tables {
            let smallest = table.smallest().unwrap_or_default().to_vec();
            merge.waiting.push((smallest, merge.sources.len()));
            merge.sources.push(Source { scope, input: Input::Table(Box::new(table)) });
        }
        merge.waiting.sort_by(|a, b| b.cmp(a));
        merge
    }

    /// The number of entries that were left out as they were out of order; or the error that ended
    /// the merge.
    pub(super) fn finish(self) -> Result<u64> {
        self.error.map_or(Ok(self.disordered), Err)
    }

    /// Takes the next version of a source.
    fn advance(&mut self, source: usize) -> Result<()> {
        let version = match &mut self.sources[source].input {
            Input::Table(table) => table.next(&mut self.report.borrow_mut())?,
            Input::Log(entries) => entries
                .next()
                .map(|((key, Reverse(seq)), (kind, value))| Version { key, seq, kind, value }),
        };
        self.heap.extend(version.map(|version| Next { version, source }));
        Ok(())
    }

    /// Begins with the tables that may have the next key.
    fn begin_tables(&mut self) -> Result<()> {
        while let Some((smallest, _)) = self.waiting.last() {
            if self.heap.peek().is_some_and(|next| next.version.key < *smallest) {
                break;
            }
            if let Some((_, source)) = self.waiting.pop() {
                self.advance(source)?;
            }
        }
        Ok(())
    }

    /// Looks at the next key.
    fn step(&mut self) -> Result<Step> {
        self.begin_tables()?;
        let Some(first) = self.heap.peek() else { return Ok(Step::End) };
        let key = first.version.key.clone();
        let (mut live, mut is_decided) = (None, false);
        while let Some(next) = self.heap.peek() {
            if next.version.key != key {
                break;
            }
            let Some(Next { version, source }) = self.heap.pop() else { break };
            if !is_decided {
                (live, is_decided) = self.decide(version, source)?;
            }
            self.advance(source)?;
            self.begin_tables()?;
        }
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            self.disordered += u64::from(live.is_some());
            return Ok(Step::Removed);
        }
        self.last = Some(key.clone());
        Ok(live.map_or(Step::Removed, |(value, ends)| Step::Live((key, value, ends))))
    }

    /// What a version says of its key, and whether it decides; a large value that is lost does not.
    fn decide(&mut self, version: Version, source: usize) -> Result<(Option<Value>, bool)> {
        let Source { scope, input } = &self.sources[source];
        let ranges = self.ranges.get_mut(scope);
        if ranges.is_some_and(|ranges| version.seq < ranges.newest(&version.key)) {
            return Ok((None, true));
        }
        match (version.kind, input) {
            (Kind::Value, _) => Ok((Some((version.value, None)), true)),
            (Kind::LargeValue, Input::Table(table)) => {
                let value = table.large_value(&version, &mut self.report.borrow_mut())?;
                let is_decided = value.is_some();
                Ok((value.map(|value| (value, None)), is_decided))
            }
            (Kind::Expiring, input) => {
                let Some((stamp, rest)) = Stamp::split(&version.value) else {
                    return Ok((None, true));
                };
                let (at_ms, rest) = (stamp.at_ms, rest.to_vec());
                let Input::Table(table) = input else {
                    return Ok((Some((rest, Some(at_ms))), true));
                };
                if !stamp.is_large {
                    return Ok((Some((rest, Some(at_ms))), true));
                }
                let version = Version { value: rest, kind: Kind::LargeValue, ..version };
                let value = table.large_value(&version, &mut self.report.borrow_mut())?;
                let is_decided = value.is_some();
                Ok((value.map(|value| (value, Some(at_ms))), is_decided))
            }
            _ => Ok((None, true)),
        }
    }
}

impl Iterator for &mut Merge<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.error.is_none() {
            match self.step() {
                Ok(Step::Live(entry)) => return Some(Ok(entry)),
                Ok(Step::Removed) => {}
                Ok(Step::End) => return None,
                Err(error) => self.error = Some(error),
            }
        }
        None
    }
}
