//! Unions, intersections and differences of sorted sets. A set is a sorted set whose scores are 1.

use std::collections::HashMap;

use super::{
    Context, Done, SYNTAX, WRONG_TYPE, float, integer, is_word,
    zsets::{Scored, decode_score, put_all, score_of, write_scored},
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    resp::Args,
    txn::Scan,
};

const WEIGHT_NOT_A_FLOAT: &str = "ERR weight value is not a float";
const LIMIT_NEGATIVE: &str = "ERR LIMIT can't be negative";

/// What becomes of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// The score of a member that several inputs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    /// One score more. A sum that is no number is 0.
    fn add(self, to: &mut f64, score: f64) {
        match self {
            Self::Sum => *to = number_or_zero(*to + score),
            Self::Min if score < *to => *to = score,
            Self::Max if score > *to => *to = score,
            Self::Min | Self::Max => {}
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A key that was named: nothing, a set or a sorted set.
struct Input {
    found: Option<(Kind, Meta)>,
    weight: f64,
}

impl Input {
    fn read(context: &mut Context<'_, '_>, key: &[u8]) -> Result<Self, Fault> {
        let found = match context.txn.read(key)? {
            None => None,
            Some(entry) if matches!(entry.kind, Kind::Set | Kind::Zset) => {
                Some((entry.kind, context.txn.meta(&entry)?))
            }
            Some(_) => return Err(WRONG_TYPE.into()),
        };
        Ok(Self { found, weight: 1.0 })
    }

    fn count(&self) -> u64 {
        self.found.map_or(0, |(_, meta)| meta.count)
    }

    /// Members with their scores, in no order that matters.
    fn members(&self, context: &Context<'_, '_>) -> Result<Members, Fault> {
        let Some((kind, meta)) = self.found else {
            return Ok(Members { scan: Scan::Nothing, kind: Kind::Set });
        };
        let prefix = match kind {
            Kind::Zset => member::zset_prefix(meta.id, false),
            _ => member::prefix(meta.id),
        };
        Ok(Members { scan: context.txn.members(&prefix)?.expecting(meta.count), kind })
    }

    /// The score of a member, if it is there.
    fn score(&self, context: &Context<'_, '_>, name: &[u8]) -> Result<Option<f64>, Fault> {
        match &self.found {
            None => Ok(None),
            Some((Kind::Zset, meta)) => score_of(context, meta, name),
            Some((_, meta)) => {
                let stored = context.txn.member(&member::set_member(meta.id, name))?;
                Ok(stored.map(|_| 1.0))
            }
        }
    }
}

/// The members of an input.
struct Members {
    scan: Scan,
    kind: Kind,
}

impl Members {
    /// Calls `each` with the next member and its score; `None` at the end.
    fn next<T>(&mut self, each: impl FnOnce(&[u8], f64) -> T) -> Option<rhumb::Result<T>> {
        let kind = self.kind;
        self.scan.next_with(|key, value| match kind {
            Kind::Zset => each(member::zset_member_of(key), decode_score(value)),
            _ => each(member::set_member_of(key), 1.0),
        })
    }
}

/// What was asked for.
struct Asked {
    inputs: Vec<Input>,
    aggregate: Aggregate,
    with_scores: bool,
    /// The number of members to count, at most; 0 for all.
    limit: u64,
}

/// How a command is written.
#[derive(Clone, Copy)]
struct Form {
    operation: Operation,
    /// Where the number of the keys stands; 2 after the key that gets the result.
    count_at: usize,
    /// Only the number of members is wanted.
    counts: bool,
    name: &'static str,
}

/// Reads the keys and the options. What is wrong is told in the order in which Redis tells it.
fn read(context: &mut Context<'_, '_>, args: Args<'_>, form: Form) -> Result<Asked, Fault> {
    let (operation, first) = (form.operation, form.count_at + 1);
    let count = integer(args.at(form.count_at))?;
    if count < 1 {
        return Err(
            format!("ERR at least 1 input key is needed for '{}' command", form.name).into()
        );
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= args.len() - first);
    let count = count.ok_or(SYNTAX)?;
    let mut inputs = Vec::with_capacity(count);
    for at in first..first + count {
        inputs.push(Input::read(context, args.at(at))?);
    }
    let mut asked = Asked { inputs, aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
    let mut at = first + count;
    let (is_stored, is_scored) = (form.count_at == 2, operation != Operation::Difference);
    while let Some(option) = args.get(at) {
        let left = args.len() - at - 1;
        if is_scored && !form.counts && left >= count && is_word(option, "weights") {
            for (nth, input) in asked.inputs.iter_mut().enumerate() {
                input.weight = float(args.at(at + 1 + nth)).map_err(|_| WEIGHT_NOT_A_FLOAT)?;
            }
            at += 1 + count;
        } else if is_scored && !form.counts && left >= 1 && is_word(option, "aggregate") {
            asked.aggregate = aggregate(args.at(at + 1))?;
            at += 2;
        } else if !is_stored && !form.counts && is_word(option, "withscores") {
            asked.with_scores = true;
            at += 1;
        } else if form.counts && left >= 1 && is_word(option, "limit") {
            let limit = integer(args.at(at + 1)).map_err(|_| LIMIT_NEGATIVE)?;
            asked.limit = u64::try_from(limit).map_err(|_| LIMIT_NEGATIVE)?;
            at += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(asked)
}

fn aggregate(word: &[u8]) -> Result<Aggregate, Fault> {
    let all = [("sum", Aggregate::Sum), ("min", Aggregate::Min), ("max", Aggregate::Max)];
    let found = all.into_iter().find(|(name, _)| is_word(word, name));
    found.map(|(_, aggregate)| aggregate).ok_or_else(|| SYNTAX.into())
}

/// The score that an input gives to a member.
fn weighted(input: &Input, score: f64) -> f64 {
    number_or_zero(input.weight * score)
}

/// The members of any of the inputs.
fn union(context: &Context<'_, '_>, asked: &Asked) -> Result<Vec<Scored>, Fault> {
    context.check_length(asked.inputs.iter().map(Input::count).sum())?;
    let mut all: HashMap<Vec<u8>, f64> = HashMap::new();
    for input in &asked.inputs {
        let mut members = input.members(context)?;
        let mut add = |name: &[u8], score: f64| {
            let score = weighted(input, score);
            match all.get_mut(name) {
                Some(to) => asked.aggregate.add(to, score),
                None => drop(all.insert(name.to_vec(), score)),
            }
        };
        while let Some(added) = members.next(&mut add) {
            added?;
        }
    }
    Ok(all.into_iter().map(|(name, score)| Scored { score, name }).collect())
}

/// Calls `each` with the members that all inputs have, the smallest of which is the first one,
/// until it says false.
fn each_common(
    context: &Context<'_, '_>,
    asked: &Asked,
    mut each: impl FnMut(Vec<u8>, f64) -> bool,
) -> Done {
    let [first, others @ ..] = &asked.inputs[..] else { return Ok(()) };
    if asked.inputs.iter().any(|input| input.count() == 0) {
        return Ok(());
    }
    context.check_length(first.count().saturating_mul(asked.inputs.len() as u64))?;
    let mut members = first.members(context)?;
    'members: while let Some(found) = members.next(|name, score| (name.to_vec(), score)) {
        let (name, score) = found?;
        let mut all = weighted(first, score);
        for input in others {
            let Some(score) = input.score(context, &name)? else { continue 'members };
            asked.aggregate.add(&mut all, input.weight * score);
        }
        if !each(name, all) {
            break;
        }
    }
    Ok(())
}

/// The members of the first input that no other has.
fn difference(context: &Context<'_, '_>, asked: &Asked) -> Result<Vec<Scored>, Fault> {
    let [first, others @ ..] = &asked.inputs[..] else { return Ok(Vec::new()) };
    context.check_length(first.count().saturating_mul(asked.inputs.len() as u64))?;
    let (mut members, mut left) = (first.members(context)?, Vec::new());
    'members: while let Some(found) = members.next(|name, score| (name.to_vec(), score)) {
        let (name, score) = found?;
        for input in others {
            if input.score(context, &name)?.is_some() {
                continue 'members;
            }
        }
        left.push(Scored { score, name });
    }
    Ok(left)
}

/// The result, in the order of scores.
fn result(
    context: &Context<'_, '_>,
    mut asked: Asked,
    operation: Operation,
) -> Result<Vec<Scored>, Fault> {
    if operation != Operation::Difference {
        // Scores are added in this order, in which Redis adds them: sums of floats depend on it.
        asked.inputs.sort_by_key(Input::count);
    }
    let mut all = match operation {
        Operation::Union => union(context, &asked)?,
        Operation::Difference => difference(context, &asked)?,
        Operation::Intersection => {
            let mut all = Vec::new();
            each_common(context, &asked, |name, score| {
                all.push(Scored { score, name });
                true
            })?;
            all
        }
    };
    all.sort_unstable_by(Scored::order);
    Ok(all)
}

fn reply(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    operation: Operation,
    name: &'static str,
) -> Done {
    let asked = read(context, args, Form { operation, count_at: 1, counts: false, name })?;
    let with_scores = asked.with_scores;
    let all = result(context, asked, operation)?;
    write_scored(context.out, &all, with_scores);
    Ok(())
}

fn store(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    operation: Operation,
    name: &'static str,
) -> Done {
    let asked = read(context, args, Form { operation, count_at: 2, counts: false, name })?;
    let all = result(context, asked, operation)?;
    put_all(context, args.at(1), &all, name)
}

/// `ZUNION`.
pub(super) fn zunion(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, Operation::Union, "zunion")
}

/// `ZINTER`.
pub(super) fn zinter(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, Operation::Intersection, "zinter")
}

/// `ZDIFF`.
pub(super) fn zdiff(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, Operation::Difference, "zdiff")
}

/// `ZUNIONSTORE`.
pub(super) fn zunionstore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(context, args, Operation::Union, "zunionstore")
}

/// `ZINTERSTORE`.
pub(super) fn zinterstore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(context, args, Operation::Intersection, "zinterstore")
}

/// `ZDIFFSTORE`.
pub(super) fn zdiffstore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    store(context, args, Operation::Difference, "zdiffstore")
}

/// `ZINTERCARD`.
pub(super) fn zintercard(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let operation = Operation::Intersection;
    let form = Form { operation, count_at: 1, counts: true, name: "zintercard" };
    let mut asked = read(context, args, form)?;
    asked.inputs.sort_by_key(Input::count);
    let mut found = 0;
    each_common(context, &asked, |_, _| {
        found += 1;
        found != asked.limit
    })?;
    context.out.int(found as i64);
    Ok(())
}
