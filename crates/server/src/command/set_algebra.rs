//! Intersections, unions and differences of sets.
//!
//! The members of every set lie in the order of their hashes: sets are walked side by side, and no
//! members are kept. A set that is much larger than the one that leads is looked into instead.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use rhumb::Slice;

use super::{
    Context, Done, SYNTAX,
    arguments::{at_least, keys_counted},
    is_word,
    sets::put_set,
};
use crate::{
    encode::{Kind, Meta, format::ID_BYTES, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::{Args, Reply},
    txn::Scan,
};

/// A look-up costs what some steps of a walk cost: a set that has more than this times the members
/// of the one that leads is looked into.
const LOOK_UP_STEPS: u64 = 8;

/// Sets that are walked side by side, at most: each walk holds some blocks in memory.
const WALKS_MAX: usize = 64;

/// How sets are put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

/// What of a member's key is the same in every set: its hash and itself.
fn place_of(key: &[u8]) -> &[u8] {
    key.get(ID_BYTES..).unwrap_or_default()
}

/// A member's key, in the order of its place.
struct Ahead {
    key: Slice,
    /// The walk that has met it.
    walk: usize,
}

impl Ord for Ahead {
    fn cmp(&self, other: &Self) -> Ordering {
        // The first comes out of a heap first.
        place_of(&other.key).cmp(place_of(&self.key))
    }
}

impl PartialOrd for Ahead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ahead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ahead {}

/// A walk over a set, at a member.
struct Walk {
    members: Scan,
    at: Option<Slice>,
}

impl Walk {
    fn begin(context: &Context<'_, '_>, meta: &Meta) -> Result<Self, Fault> {
        let members = context.txn.members(&member::prefix(meta.id))?.expecting(meta.count);
        let mut walk = Self { members, at: None };
        walk.go_on()?;
        Ok(walk)
    }

    fn go_on(&mut self) -> Done {
        self.at = self.members.next().transpose()?.map(|(key, _)| key);
        Ok(())
    }
}

/// A set that members of another are looked for in, in their order.
enum Other {
    Walked(Walk),
    LookedInto(u64),
}

impl Other {
    /// Returns true if a member with this place is there. Places ascend from call to call.
    fn has(&mut self, context: &Context<'_, '_>, place: &[u8]) -> Result<bool, Fault> {
        match self {
            Self::LookedInto(id) => {
                let key = [&member::prefix(*id), place].concat();
                Ok(context.txn.member(&key)?.is_some())
            }
            Self::Walked(walk) => {
                while walk.at.as_ref().is_some_and(|key| place_of(key) < place) {
                    walk.go_on()?;
                }
                Ok(walk.at.as_ref().is_some_and(|key| place_of(key) == place))
            }
        }
    }
}

/// The sets of some keys; none for those that are absent.
fn sets_of<'a>(
    context: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Option<Meta>>, Fault> {
    keys.map(|key| context.collection(key, Kind::Set)).collect()
}

/// Goes through the members that the first set has and of which `wanted` is what the others say:
/// that all have it, or that none has.
fn filter(
    context: &Context<'_, '_>,
    lead: &Meta,
    others: &[Meta],
    wanted: bool,
    mut found: impl FnMut(&[u8]) -> bool,
) -> Done {
    let few = lead.count.saturating_mul(LOOK_UP_STEPS);
    let mut opened = Vec::with_capacity(others.len());
    for (at, other) in others.iter().enumerate() {
        opened.push(if at >= WALKS_MAX || other.count > few {
            Other::LookedInto(other.id)
        } else {
            Other::Walked(Walk::begin(context, other)?)
        });
    }
    let members = context.txn.members(&member::prefix(lead.id))?.expecting(lead.count);
    for pair in members {
        let (key, _) = pair?;
        let mut fits = true;
        for other in &mut opened {
            if other.has(context, place_of(&key))? != wanted {
                fits = false;
                break;
            }
        }
        if fits && !found(&key) {
            break;
        }
    }
    Ok(())
}

/// Goes through the members that some set has, each once.
fn unite(context: &Context<'_, '_>, sets: &[Meta], mut found: impl FnMut(&[u8]) -> bool) -> Done {
    let mut before: Vec<Other> = Vec::new();
    for some in sets.chunks(WALKS_MAX) {
        let (mut walks, mut heap) = (Vec::with_capacity(some.len()), BinaryHeap::new());
        for (walk, meta) in some.iter().enumerate() {
            let mut members = context.txn.members(&member::prefix(meta.id))?.expecting(meta.count);
            heap.extend(members.next().transpose()?.map(|(key, _)| Ahead { key, walk }));
            walks.push(members);
        }
        let mut last: Option<Ahead> = None;
        while let Some(next) = heap.pop() {
            let walk = next.walk;
            heap.extend(walks[walk].next().transpose()?.map(|(key, _)| Ahead { key, walk }));
            if last.as_ref() == Some(&next) {
                continue;
            }
            let mut is_new = true;
            for other in &mut before {
                is_new = is_new && !other.has(context, place_of(&next.key))?;
            }
            if is_new && !found(&next.key) {
                return Ok(());
            }
            last = Some(next);
        }
        before.extend(some.iter().map(|meta| Other::LookedInto(meta.id)));
    }
    Ok(())
}

/// Goes through the members of the result, by keys of which only the place counts, until `found`
/// returns false.
fn walk_result(
    context: &Context<'_, '_>,
    operation: Operation,
    sets: &[Option<Meta>],
    found: impl FnMut(&[u8]) -> bool,
) -> Done {
    let mut there: Vec<Meta> = sets.iter().copied().flatten().collect();
    let total = there.iter().fold(0_u64, |total, meta| total.saturating_add(meta.count));
    match operation {
        Operation::Union => {
            context.check_length(total)?;
            unite(context, &there, found)
        }
        Operation::Intersection => {
            if there.len() < sets.len() {
                return Ok(());
            }
            there.sort_by_key(|meta| meta.count);
            there.dedup();
            let Some((lead, others)) = there.split_first() else { return Ok(()) };
            check_filter(context, lead, others)?;
            filter(context, lead, others, true, found)
        }
        Operation::Difference => {
            let Some(Some(lead)) = sets.first() else { return Ok(()) };
            // Those that are large are likely to have a member, and are asked first.
            let others = &mut there[1..];
            others.sort_by_key(|meta| Reverse(meta.count));
            if others.iter().any(|other| other.id == lead.id) {
                return Ok(());
            }
            check_filter(context, lead, others)?;
            filter(context, lead, others, false, found)
        }
    }
}

/// To be called before [`filter`].
fn check_filter(context: &Context<'_, '_>, lead: &Meta, others: &[Meta]) -> Done {
    let few = lead.count.saturating_mul(LOOK_UP_STEPS);
    let steps = others.iter().map(|other| other.count.min(few));
    context.check_length(steps.fold(lead.count, u64::saturating_add))
}

fn reply(context: &mut Context<'_, '_>, args: Args<'_>, operation: Operation) -> Done {
    let sets = sets_of(context, args.iter_from(1))?;
    // Written apart from the context, which the walk reads through.
    let mut out = std::mem::replace(&mut *context.out, Reply::new(0));
    let (start, mut len) = (out.len(), 0);
    let done = walk_result(context, operation, &sets, |key| {
        out.bulk(member::set_member_of(key));
        len += 1;
        !out.overflowed()
    });
    *context.out = out;
    done?;
    // Their number comes first, and is known afterwards.
    let written = context.out.split_off(start);
    context.out.set(len);
    context.out.raw(&written);
    Ok(())
}

/// Makes the first key a set of the result of the others.
fn store(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    operation: Operation,
    event: &'static str,
) -> Done {
    let (to, sets) = (args.at(1), sets_of(context, args.iter_from(2))?);
    let mut members: Vec<Box<[u8]>> = Vec::new();
    walk_result(context, operation, &sets, |key| {
        members.push(place_of(key).into());
        true
    })?;
    let before = context.txn.edit(to)?;
    if let Some(before) = &before {
        context.txn.delete(to, before)?;
    }
    context.out.count(members.len());
    if members.is_empty() {
        if before.is_some() {
            context.txn.notify(KeyEvent::generic("del"), to);
        }
        return Ok(());
    }
    let mut meta = context.txn.new_meta()?;
    meta.count = members.len() as u64;
    for place in members {
        context.txn.put_member([&member::prefix(meta.id), &place[..]].concat(), Vec::new());
    }
    put_set(context, to, (&meta, 0), event);
    Ok(())
}

/// `SINTER`.
pub(super) fn sinter(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, Operation::Intersection)
}

/// `SUNION`.
pub(super) fn sunion(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, Operation::Union)
}

/// `SDIFF`.
pub(super) fn sdiff(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, Operation::Difference)
}

/// `SINTERSTORE`.
pub(super) fn sinterstore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(context, args, Operation::Intersection, "sinterstore")
}

/// `SUNIONSTORE`.
pub(super) fn sunionstore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(context, args, Operation::Union, "sunionstore")
}

/// `SDIFFSTORE`.
pub(super) fn sdiffstore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(context, args, Operation::Difference, "sdiffstore")
}

/// `SINTERCARD`.
pub(super) fn sintercard(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let keys = keys_counted(args.at(1))?;
    if keys > args.len() - 2 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let (mut limit, mut at) = (0, keys + 2);
    while let Some(option) = args.get(at) {
        let value = args.get(at + 1).filter(|_| is_word(option, "limit")).ok_or(SYNTAX)?;
        limit = at_least(value, 0, "ERR LIMIT can't be negative")?;
        at += 2;
    }
    let sets = sets_of(context, args.iter_from(2).take(keys))?;
    let mut count = 0;
    walk_result(context, Operation::Intersection, &sets, |_| {
        count += 1;
        limit == 0 || count < limit
    })?;
    context.out.int(count);
    Ok(())
}
