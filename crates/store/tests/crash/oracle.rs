//! The states that a database may have, by the promises that it made. After a power cut, the state
//! is that of a prefix of the history. The prefix has every operation that was acknowledged as
//! durable, and it has each operation wholly or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::history::KEYSPACES;

/// The entries of every keyspace. One that does not exist is empty.
pub(crate) type Model = [BTreeMap<Vec<u8>, Vec<u8>>; KEYSPACES];

/// A part of an operation.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Put {
        keyspace: usize,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Remove {
        keyspace: usize,
        key: Vec<u8>,
    },
    /// Removes all keys from `from` on; only those before `to`, if that is given.
    RemoveRange {
        keyspace: usize,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    },
    /// A dropped or cleared keyspace.
    Empty {
        keyspace: usize,
    },
}

impl Effect {
    pub(crate) fn apply(&self, model: &mut Model) {
        match self {
            Self::Put { keyspace, key, value } => {
                model[*keyspace].insert(key.clone(), value.clone());
            }
            Self::Remove { keyspace, key } => {
                model[*keyspace].remove(key);
            }
            Self::RemoveRange { keyspace, from, to } => {
                model[*keyspace].retain(|key, _| !is_inside(key, from, to));
            }
            Self::Empty { keyspace } => model[*keyspace].clear(),
        }
    }
}

pub(crate) fn is_inside(key: &Vec<u8>, from: &Vec<u8>, to: &Option<Vec<u8>>) -> bool {
    from <= key && to.as_ref().is_none_or(|to| key < to)
}

/// An operation, which happens wholly or not at all.
#[derive(Clone, Debug)]
struct Operation {
    effects: Vec<Effect>,
    /// True if the caller was told that it happened; otherwise it may or may not have happened.
    is_acknowledged: bool,
}

/// The event between the history and the look at the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The power was cut: what was acknowledged as durable survives. What is found is durable.
    PowerCut,
    /// The power was cut, but the disk got everything that the operating system had: what was
    /// acknowledged as handed over survives. What is found is durable.
    GentlePowerCut,
    /// The process was killed: what was acknowledged as handed over survives.
    Kill,
    /// A sync failed, and the database was closed or killed: what was acknowledged as durable
    /// survives.
    FailedSync,
    /// The database was closed, or is still open: everything that was acknowledged survives.
    Nothing,
}

impl Event {
    /// This event followed by another, without a look at the state between them.
    pub(crate) fn then(self, next: Self) -> Self {
        match self {
            // The state that it leaves is durable, so a later event loses nothing.
            Self::PowerCut | Self::GentlePowerCut => self,
            Self::FailedSync if matches!(next, Self::Kill | Self::Nothing) => self,
            Self::FailedSync => Self::PowerCut,
            Self::Kill if next == Self::Nothing => self,
            Self::Kill | Self::Nothing => next,
        }
    }
}

/// The history so far, and the states that it allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    base: Model,
    /// The operations since `base`, in order.
    operations: Vec<Operation>,
    /// The number of `operations` that are certainly durable.
    durable: usize,
    /// The number of `operations` that were certainly handed to the operating system.
    buffered: usize,
    /// The newest checkpoint that was acknowledged: its name and its contents.
    pub(crate) checkpoint: Option<(usize, Model)>,
    pub(crate) backups: Points,
}

/// The points of the backup.
#[derive(Clone, Debug, Default)]
pub(crate) struct Points {
    /// Those that are there, with what the database held.
    pub(crate) kept: BTreeMap<u64, Model>,
    /// What a point holds that may be there, because its backup failed.
    pub(crate) undecided: Option<Model>,
    /// Points that may still be there, because their removal failed.
    pub(crate) leaving: BTreeSet<u64>,
    /// True if nothing has happened since they were looked at.
    pub(crate) are_checked: bool,
}

impl Oracle {
    /// Adds an operation that was acknowledged.
    pub(crate) fn acknowledge(&mut self, effects: Vec<Effect>) {
        self.operations.push(Operation { effects, is_acknowledged: true });
    }

    /// Adds an operation that failed in a way that leaves open whether it happened.
    pub(crate) fn leave_open(&mut self, effects: Vec<Effect>) {
        self.operations.push(Operation { effects, is_acknowledged: false });
    }

    /// Notes that everything so far was acknowledged as handed to the operating system.
    pub(crate) fn buffer(&mut self) {
        self.buffered = self.operations.len();
    }

    /// Notes that everything so far was acknowledged as durable.
    pub(crate) fn persist(&mut self) {
        // An open operation may still have happened, in its place.
        if self.is_certain() {
            self.base = self.now();
            self.operations.clear();
        }
        self.durable = self.operations.len();
        self.buffered = self.operations.len();
    }

    /// Returns true if every operation is known to have happened.
    pub(crate) fn is_certain(&self) -> bool {
        self.operations.iter().all(|operation| operation.is_acknowledged)
    }

    /// The state as the program sees it, if no open operation happened.
    pub(crate) fn now(&self) -> Model {
        let mut model = self.base.clone();
        for operation in self.operations.iter().filter(|operation| operation.is_acknowledged) {
            operation.effects.iter().for_each(|effect| effect.apply(&mut model));
        }
        model
    }

    /// The value of one key in [`Oracle::now`].
    pub(crate) fn get(&self, keyspace: usize, key: &[u8]) -> Option<&[u8]> {
        let acknowledged = self.operations.iter().rev().filter(|op| op.is_acknowledged);
        for effect in acknowledged.flat_map(|operation| operation.effects.iter().rev()) {
            match effect {
                Effect::Put { keyspace: k, key: same, value } if *k == keyspace && same == key => {
                    return Some(value);
                }
                Effect::Remove { keyspace: k, key: same } if *k == keyspace && same == key => {
                    return None;
                }
                Effect::RemoveRange { keyspace: k, from, to }
                    if *k == keyspace && is_inside(&key.to_vec(), from, to) =>
                {
                    return None;
                }
                Effect::Empty { keyspace: k } if *k == keyspace => return None,
                _ => {}
            }
        }
        self.base[keyspace].get(key).map(Vec::as_slice)
    }

    /// Accepts what was found after `event`, from which the history goes on, or says what is wrong
    /// with it.
    pub(crate) fn settle(&mut self, found: &Model, event: Event) -> Result<(), String> {
        let open = self.operations.iter().filter(|operation| !operation.is_acknowledged).count();
        assert!(open <= 10, "too many open operations to try every case");
        let least = match event {
            Event::PowerCut | Event::FailedSync => self.durable,
            Event::GentlePowerCut | Event::Kill => self.buffered,
            Event::Nothing => self.operations.len(),
        };
        let nearest = (0..1_u32 << open)
            .map(|choice| self.nearest(choice, least, found))
            .min_by_key(|beginning| beginning.differing)
            .expect("there is always a choice");
        if nearest.differing > 0 {
            let mut model = self.base.clone();
            let effects = self.effects(nearest.choice).take(nearest.len + 1).flatten();
            effects.for_each(|effect| effect.apply(&mut model));
            return Err(format!(
                "after {event:?} the state is that of no allowed beginning of the history (of {} \
                 undecided operations the first {least} must be there). Nearest, but for {} \
                 entries, is that of the first {}; from it differ\n{}",
                self.operations.len(),
                nearest.differing,
                nearest.len,
                differences(&model, found)
            ));
        }
        match event {
            Event::PowerCut | Event::GentlePowerCut => {
                self.base.clone_from(found);
                self.operations.clear();
                self.durable = 0;
            }
            Event::Kill | Event::FailedSync | Event::Nothing => self.decide(&nearest),
        }
        self.buffered = self.operations.len();
        Ok(())
    }

    /// Keeps the operations of the history that happened.
    fn decide(&mut self, beginning: &Beginning) {
        let mut kept = Vec::new();
        let mut durable = 0;
        let effects: Vec<_> = self.effects(beginning.choice).skip(1).map(<[_]>::to_vec).collect();
        for (number, effects) in effects.into_iter().enumerate().take(beginning.len) {
            kept.push(Operation { effects, is_acknowledged: true });
            durable += usize::from(number < self.durable);
        }
        self.operations = kept;
        self.durable = durable;
    }

    /// The prefix of at least `least` operations that is nearest to what was found, and of several
    /// the longest, if the open operations in the bits of `choice` happened.
    fn nearest(&self, choice: u32, least: usize, found: &Model) -> Beginning {
        let mut state = Comparison::new(self.base.clone(), found);
        let mut nearest = Beginning { choice, len: 0, differing: usize::MAX };
        for (len, effects) in self.effects(choice).enumerate() {
            effects.iter().for_each(|effect| state.apply(effect));
            if len >= least && state.differing <= nearest.differing {
                nearest = Beginning { choice, len, differing: state.differing };
            }
        }
        nearest
    }

    /// The effects that lead to each prefix from the one before it; none for the empty one.
    fn effects(&self, choice: u32) -> impl Iterator<Item = &[Effect]> {
        let mut open = 0;
        let later = self.operations.iter().map(move |operation| {
            open += u32::from(!operation.is_acknowledged);
            let happens = operation.is_acknowledged || choice >> (open - 1) & 1 == 1;
            if happens { &operation.effects[..] } else { &[] }
        });
        std::iter::once(&[][..]).chain(later)
    }
}

/// A prefix of the history, and the number of entries that differ between its state and another.
#[derive(Debug)]
struct Beginning {
    choice: u32,
    len: usize,
    differing: usize,
}

/// A changing state, and the number of entries in which it differs from a fixed one.
struct Comparison<'a> {
    model: Model,
    other: &'a Model,
    differing: usize,
}

impl<'a> Comparison<'a> {
    fn new(model: Model, other: &'a Model) -> Self {
        let differing = (0..KEYSPACES).map(|k| differing(&model[k], &other[k]).len()).sum();
        Self { model, other, differing }
    }

    fn differs(&self, keyspace: usize, key: &[u8]) -> usize {
        usize::from(self.model[keyspace].get(key) != self.other[keyspace].get(key))
    }

    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Put { keyspace, key, .. } | Effect::Remove { keyspace, key } => {
                self.differing -= self.differs(*keyspace, key);
                effect.apply(&mut self.model);
                self.differing += self.differs(*keyspace, key);
            }
            Effect::RemoveRange { keyspace, .. } => {
                let (model, other) = (&mut self.model, &self.other[*keyspace]);
                self.differing -= differing(&model[*keyspace], other).len();
                effect.apply(model);
                self.differing += differing(&model[*keyspace], other).len();
            }
            Effect::Empty { keyspace } => {
                self.differing -= differing(&self.model[*keyspace], &self.other[*keyspace]).len();
                effect.apply(&mut self.model);
                self.differing += self.other[*keyspace].len();
            }
        }
    }
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn differing<'a>(a: &'a Entries, b: &'a Entries) -> Vec<&'a Vec<u8>> {
    let mut keys: Vec<_> =
        a.keys().chain(b.keys()).filter(|key| a.get(*key) != b.get(*key)).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The first differing entries, for people.
pub(crate) fn differences(expected: &Model, found: &Model) -> String {
    let show = |value: Option<&Vec<u8>>| match value {
        None => "nothing".to_owned(),
        Some(value) => {
            format!("{} ({} B)", value[..value.len().min(16)].escape_ascii(), value.len())
        }
    };
    let mut text = String::new();
    for keyspace in 0..KEYSPACES {
        for key in differing(&expected[keyspace], &found[keyspace]).into_iter().take(6) {
            let (expected, found) = (expected[keyspace].get(key), found[keyspace].get(key));
            let key = key[..key.len().min(40)].escape_ascii();
            let (expected, found) = (show(expected), show(found));
            let _ =
                writeln!(text, "  keyspace {keyspace} {key}: expected {expected}, found {found}");
        }
    }
    text
}
