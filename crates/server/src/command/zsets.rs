//! Sorted sets: each member twice among the members, by itself with its score, and by its score.

use rhumb::Slice;

use super::{
    Context, Done, NOT_A_FLOAT, NOT_POSITIVE, SYNTAX, check_member, connection::positive, float,
    is_word,
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    resp::{Args, Reply},
    txn::{Space, prefix_range},
};

const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

/// The score in a member's value; bytes that are none are 0, which `check` of the store finds.
pub(super) fn decode_score(value: &[u8]) -> f64 {
    f64::from_le_bytes(value.try_into().unwrap_or_default())
}

/// A member's score.
pub(super) fn score_of(
    context: &Context<'_, '_>,
    meta: &Meta,
    name: &[u8],
) -> Result<Option<f64>, Fault> {
    let value = context.txn.member(&member::zset_member(meta.id, name))?;
    Ok(value.map(|value| decode_score(&value)))
}

/// Gives a member a score in the place of the one it had.
pub(super) fn put_score(
    context: &mut Context<'_, '_>,
    meta: &mut Meta,
    name: &[u8],
    before: Option<f64>,
    score: f64,
) {
    match before {
        Some(before) => context.txn.remove_member(member::zset_scored(meta.id, before, name)),
        None => meta.count += 1,
    }
    context.txn.put_member(member::zset_scored(meta.id, score, name), Vec::new());
    let value = score.to_le_bytes().to_vec();
    context.txn.put_member(member::zset_member(meta.id, name), value);
}

/// Takes a member of this score away.
pub(super) fn remove(context: &mut Context<'_, '_>, meta: &mut Meta, name: &[u8], score: f64) {
    context.txn.remove_member(member::zset_scored(meta.id, score, name));
    context.txn.remove_member(member::zset_member(meta.id, name));
    meta.count -= 1;
}

/// What `ZADD` was asked for.
#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    count_changed: bool,
    add: bool,
    /// Where the scores begin.
    from: usize,
}

fn add_options(args: Args<'_>) -> Result<AddOptions, Fault> {
    let mut options = AddOptions { from: 2, ..AddOptions::default() };
    while let Some(option) = args.get(options.from) {
        let is = |word| is_word(option, word);
        let known = [
            ("nx", &mut options.only_new),
            ("xx", &mut options.only_old),
            ("gt", &mut options.only_greater),
            ("lt", &mut options.only_less),
            ("ch", &mut options.count_changed),
            ("incr", &mut options.add),
        ];
        let Some((_, flag)) = known.into_iter().find(|(word, _)| is(word)) else { break };
        *flag = true;
        options.from += 1;
    }
    let pairs = args.len() - options.from;
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if options.only_new && options.only_old {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if options.only_greater && (options.only_new || options.only_less)
        || options.only_less && options.only_new
    {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if options.add && pairs > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    Ok(options)
}

impl AddOptions {
    /// The score that a member of the score `before` gets; none if it stays as it is.
    fn score(&self, before: Option<f64>, given: f64) -> Result<Option<f64>, Fault> {
        let Some(before) = before else {
            return Ok((!self.only_old).then_some(given));
        };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.add { before + given } else { given };
        if score.is_nan() {
            return Err(NOT_A_NUMBER.into());
        }
        let refused = self.only_greater && score <= before || self.only_less && score >= before;
        Ok((!refused).then_some(score))
    }
}

/// `ZADD`.
pub(super) fn zadd(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = add_options(args)?;
    let mut pairs = Vec::with_capacity((args.len() - options.from) / 2);
    for at in (options.from..args.len()).step_by(2) {
        // -0 is 0.
        let score = float(args.at(at)).map_err(|_| NOT_A_FLOAT)? + 0.0;
        pairs.push((score, args.at(at + 1)));
    }
    for (_, name) in &pairs {
        check_member(name)?;
    }
    let found = context.edit_collection(args.at(1), Kind::Zset)?;
    let (mut meta, expires) = match found {
        Some(found) => found,
        None if options.only_old => {
            if options.add {
                context.out.null()
            } else {
                context.out.int(0)
            }
            return Ok(());
        }
        None => (context.txn.new_meta()?, 0),
    };
    let before_count = meta.count;
    let (mut changed, mut last) = (0, None);
    for (given, name) in pairs {
        let before = score_of(context, &meta, name)?;
        let score = options.score(before, given)?;
        last = score;
        if let Some(score) = score.filter(|score| before != Some(*score)) {
            changed += usize::from(before.is_some());
            put_score(context, &mut meta, name, before, score);
        }
    }
    let added = (meta.count - before_count) as usize;
    if added > 0 {
        context.txn.put_meta(args.at(1), Kind::Zset, &meta, expires);
    } else if changed > 0 {
        context.txn.touch(args.at(1));
    }
    match (options.add, last) {
        (true, Some(score)) => context.out.double(score),
        (true, None) => context.out.null(),
        (false, _) if options.count_changed => context.out.count(added + changed),
        (false, _) => context.out.count(added),
    }
    Ok(())
}

/// `ZINCRBY`.
pub(super) fn zincrby(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let by = float(args.at(2))?;
    check_member(args.at(3))?;
    let (mut meta, expires) = context.make_collection(args.at(1), Kind::Zset)?;
    let before = score_of(context, &meta, args.at(3))?;
    let score = before.unwrap_or(0.0) + by + 0.0;
    if score.is_nan() {
        return Err(NOT_A_NUMBER.into());
    }
    if before != Some(score) {
        put_score(context, &mut meta, args.at(3), before, score);
        context.txn.touch(args.at(1));
    }
    if before.is_none() {
        context.txn.put_meta(args.at(1), Kind::Zset, &meta, expires);
    }
    context.out.double(score);
    Ok(())
}

/// `ZREM`.
pub(super) fn zrem(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Zset)? else {
        context.out.int(0);
        return Ok(());
    };
    let before = meta.count;
    for name in args.iter_from(2) {
        if let Some(score) = score_of(context, &meta, name)? {
            remove(context, &mut meta, name, score);
        }
    }
    if meta.count < before {
        context.txn.put_meta(args.at(1), Kind::Zset, &meta, expires);
    }
    context.out.int((before - meta.count) as i64);
    Ok(())
}

/// `ZCARD`.
pub(super) fn zcard(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Zset)?;
    context.out.int(meta.map_or(0, |meta| meta.count as i64));
    Ok(())
}

fn write_score(out: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => out.double(score),
        None => out.null(),
    }
}

/// `ZSCORE`.
pub(super) fn zscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let score = match context.collection(args.at(1), Kind::Zset)? {
        Some(meta) => score_of(context, &meta, args.at(2))?,
        None => None,
    };
    write_score(context.out, score);
    Ok(())
}

/// `ZMSCORE`.
pub(super) fn zmscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Zset)?;
    context.out.array(args.len() - 2);
    for name in args.iter_from(2) {
        let score = match &meta {
            Some(meta) => score_of(context, meta, name)?,
            None => None,
        };
        write_score(context.out, score);
    }
    Ok(())
}

fn rank(context: &mut Context<'_, '_>, args: Args<'_>, reverse: bool) -> Done {
    let meta = context.collection(args.at(1), Kind::Zset)?;
    let found = match &meta {
        Some(meta) => score_of(context, meta, args.at(2))?.map(|score| (meta, score)),
        None => None,
    };
    let Some((meta, score)) = found else {
        context.out.null();
        return Ok(());
    };
    let wanted = member::zset_scored(meta.id, score, args.at(2));
    let (from, to) = prefix_range(&member::zset_prefix(meta.id, true));
    let mut rank = 0;
    for pair in context.txn.scan(Space::Members, from, to, reverse)? {
        if pair?.0 == wanted {
            break;
        }
        rank += 1;
    }
    context.out.int(rank);
    Ok(())
}

/// `ZRANK`.
pub(super) fn zrank(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    rank(context, args, false)
}

/// `ZREVRANK`.
pub(super) fn zrevrank(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    rank(context, args, true)
}

fn pop(context: &mut Context<'_, '_>, args: Args<'_>, reverse: bool) -> Done {
    if args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let count = args.get(2).map(|text| positive(text).map_err(|_| NOT_POSITIVE)).transpose()?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Zset)? else {
        context.out.array(0);
        return Ok(());
    };
    let (from, to) = prefix_range(&member::zset_prefix(meta.id, true));
    let scan = context.txn.scan(Space::Members, from, to, reverse)?;
    let taken: Vec<Slice> =
        scan.take(count.unwrap_or(1)).map(|pair| Ok(pair?.0)).collect::<rhumb::Result<_>>()?;
    let nested = context.out.resp3 && count.is_some();
    context.out.array(if nested { taken.len() } else { taken.len() * 2 });
    for key in &taken {
        let Some((score, name)) = member::zset_scored_of(key) else { continue };
        if nested {
            context.out.array(2);
        }
        context.out.bulk(name);
        context.out.double(score);
        remove(context, &mut meta, name, score);
    }
    if !taken.is_empty() {
        context.txn.put_meta(args.at(1), Kind::Zset, &meta, expires);
    }
    Ok(())
}

/// `ZPOPMIN`.
pub(super) fn zpopmin(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop(context, args, false)
}

/// `ZPOPMAX`.
pub(super) fn zpopmax(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop(context, args, true)
}
