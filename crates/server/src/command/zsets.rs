//! Sorted sets: each member twice among the members, by itself with its score, and by its score.

use std::cmp::Ordering;

use super::{Context, Done, NOT_A_FLOAT, SYNTAX, check_member, float, is_word};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    places::Places,
    resp::{Args, Reply},
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

/// A member of a result.
pub(super) struct Scored {
    pub(super) score: f64,
    pub(super) name: Vec<u8>,
}

impl Scored {
    /// By score, and by name where scores are the same.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let by_score = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| self.name.cmp(&other.name))
    }
}

/// Replies with members: in RESP3 those with scores are pairs.
pub(super) fn write_scored(out: &mut Reply, all: &[Scored], with_scores: bool) {
    let nested = out.resp3 && with_scores;
    out.array(if with_scores && !nested { all.len() * 2 } else { all.len() });
    for Scored { score, name } in all {
        if nested {
            out.array(2);
        }
        out.bulk(name);
        if with_scores {
            out.double(*score);
        }
        if out.overflowed() {
            break;
        }
    }
}

/// Makes a key a sorted set of these members, whatever it was, and replies with their number. A
/// key without members goes away.
pub(super) fn put_all(
    context: &mut Context<'_, '_>,
    key: &[u8],
    all: &[Scored],
    event: &'static str,
) -> Done {
    let meta = if all.is_empty() { None } else { Some(context.txn.new_meta()?) };
    let before = context.txn.edit(key)?;
    if let Some(before) = &before {
        context.txn.delete(key, before)?;
    }
    if let Some(mut meta) = meta {
        for Scored { score, name } in all {
            put_score(context, &mut meta, name, None, *score + 0.0);
        }
        context.txn.put_meta(key, Kind::Zset, &meta, 0);
        context.txn.notify(KeyEvent::zset(event), key);
    } else if before.is_some() {
        context.txn.notify(KeyEvent::generic("del"), key);
    }
    context.out.count(all.len());
    Ok(())
}

/// Writes what is now to be known of a sorted set from which members were taken.
pub(super) fn put_fewer(
    context: &mut Context<'_, '_>,
    key: &[u8],
    (meta, expires): (&Meta, u64),
    event: &'static str,
) {
    context.txn.put_meta(key, Kind::Zset, meta, expires);
    context.txn.notify(KeyEvent::zset(event), key);
    if meta.count == 0 {
        context.txn.notify(KeyEvent::generic("del"), key);
    }
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
    context.check_length((args.len() / 2) as u64)?;
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
    if added + changed > 0 {
        let event = if options.add { "zincr" } else { "zadd" };
        context.txn.notify(KeyEvent::zset(event), args.at(1));
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
    if before != Some(score) {
        context.txn.notify(KeyEvent::zset("zincr"), args.at(1));
    }
    context.out.double(score);
    Ok(())
}

/// `ZREM`.
pub(super) fn zrem(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.check_length(args.len() as u64)?;
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
        put_fewer(context, args.at(1), (&meta, expires), "zrem");
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
    context.check_length(args.len() as u64)?;
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
    let with_score = match args.get(3) {
        None => false,
        Some(_) if args.len() > 4 => {
            let name = if reverse { "zrevrank" } else { "zrank" };
            return Err(format!("ERR wrong number of arguments for '{name}' command").into());
        }
        Some(word) if is_word(word, "withscore") => true,
        Some(_) => return Err(SYNTAX.into()),
    };
    let meta = context.collection(args.at(1), Kind::Zset)?;
    let found = match &meta {
        Some(meta) => score_of(context, meta, args.at(2))?.map(|score| (meta, score)),
        None => None,
    };
    let Some((meta, score)) = found else {
        if with_score {
            context.out.null_array();
        } else {
            context.out.null();
        }
        return Ok(());
    };
    let key = member::zset_scored(meta.id, score, args.at(2));
    let before = Places::new(meta, true, context.learns).before(&context.txn, &key)?;
    let rank = if reverse { meta.count.saturating_sub(before + 1) } else { before };
    if with_score {
        context.out.array(2);
    }
    context.out.int(rank as i64);
    if with_score {
        context.out.double(score);
    }
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
