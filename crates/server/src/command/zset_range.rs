//! Ranges of sorted sets: by rank, by score, by name.

use std::ops::Bound;

use super::{
    Context, Done, SYNTAX, integer, is_word,
    lists::places,
    ordered::{End, between, bound},
    zsets::{remove, score_of},
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    resp::{Args, number::parse_f64_end},
    txn::{KeyBound, Scan, Space, prefix_range},
};

const BAD_SCORE: &str = "ERR min or max is not a float";

/// What the ends of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// The members that are meant.
enum Chosen {
    Nothing,
    /// A range of member keys, by score or by name.
    Keys(KeyBound, KeyBound),
    /// Ranks in the direction of the range, both included.
    Ranks(i64, i64),
}

/// A range that was asked for, before the sorted set is known.
struct Wanted<'a> {
    by: By,
    /// The ends, the smaller one first except for ranks.
    ends: (&'a [u8], &'a [u8]),
    reverse: bool,
    offset: i64,
    /// Negative for all.
    count: i64,
    with_scores: bool,
}

/// A score, and whether it is left out.
fn score_end(text: &[u8]) -> Result<(f64, bool), Fault> {
    let (digits, excluded) = match text {
        [b'(', rest @ ..] => (rest, true),
        _ => (text, false),
    };
    Ok((parse_f64_end(digits).ok_or(BAD_SCORE)?, excluded))
}

/// The keys from one score to another.
fn score_range(meta: &Meta, (min, max): ((f64, bool), (f64, bool))) -> Chosen {
    let at = |score: f64| member::zset_scored(meta.id, score, &[]);
    // The place after all members of a score: that of the next one.
    let after = |score: f64| at(score.next_up());
    let all = prefix_range(&member::zset_prefix(meta.id, true));
    let from = match min {
        (f64::INFINITY, true) => return Chosen::Nothing,
        (score, true) => after(score),
        (score, false) => at(score),
    };
    let to = match max {
        (score, true) => Bound::Excluded(at(score)),
        (f64::INFINITY, false) => all.1,
        (score, false) => Bound::Excluded(after(score)),
    };
    Chosen::Keys(Bound::Included(from), to)
}

/// The keys from one name to another.
fn lex_range(meta: &Meta, min: End, max: End) -> Chosen {
    let Some((from, to)) = between(min, max) else { return Chosen::Nothing };
    let all = prefix_range(&member::zset_prefix(meta.id, false));
    let key = |bound: KeyBound| bound.map(|name| member::zset_member(meta.id, &name));
    let from = if from == Bound::Unbounded { all.0 } else { key(from) };
    let to = if to == Bound::Unbounded { all.1 } else { key(to) };
    Chosen::Keys(from, to)
}

/// The ends as they will be looked for: whatever is wrong with them is said before the key is read.
enum Ends {
    Ranks(i64, i64),
    Scores((f64, bool), (f64, bool)),
    Names(End, End),
}

impl Wanted<'_> {
    fn ends(&self) -> Result<Ends, Fault> {
        let (a, b) = self.ends;
        Ok(match self.by {
            By::Rank => Ends::Ranks(integer(a)?, integer(b)?),
            By::Score => Ends::Scores(score_end(a)?, score_end(b)?),
            By::Lex => Ends::Names(bound(a)?, bound(b)?),
        })
    }
}

impl Ends {
    fn of(self, meta: &Meta) -> Chosen {
        match self {
            Self::Ranks(start, end) => Chosen::Ranks(start, end),
            Self::Scores(min, max) => score_range(meta, (min, max)),
            Self::Names(min, max) => lex_range(meta, min, max),
        }
    }
}

fn nothing() -> Part {
    Scan::Nothing.skip(usize::MAX).take(0)
}

/// Some of the members of a scan.
type Part = std::iter::Take<std::iter::Skip<Scan>>;

/// The member keys that are meant, in order, and how many of the first to skip and then to take.
fn scan(
    context: &Context<'_, '_>,
    meta: &Meta,
    chosen: Chosen,
    reverse: bool,
    (offset, count): (i64, i64),
) -> Result<Part, Fault> {
    let (from, to, skip, take) = match chosen {
        Chosen::Nothing => return Ok(nothing()),
        Chosen::Keys(from, to) => {
            // A negative offset gives nothing, as in Redis.
            let Ok(skip) = usize::try_from(offset) else {
                return Ok(nothing());
            };
            (from, to, skip, usize::try_from(count).unwrap_or(usize::MAX))
        }
        Chosen::Ranks(start, end) => {
            let Some((start, end)) = places(start, end, meta.count) else {
                return Ok(nothing());
            };
            let (from, to) = prefix_range(&member::zset_prefix(meta.id, true));
            (from, to, start as usize, (end - start + 1) as usize)
        }
    };
    let expected = (skip as u64).saturating_add(take as u64).min(meta.count);
    let scan = context.txn.scan(Space::Members, from, to, reverse)?.expecting(expected);
    Ok(scan.skip(skip).take(take))
}

/// The name in a member key of either order, with its score where the key has it.
fn name_of(key: &[u8], by: By) -> (&[u8], Option<f64>) {
    if by == By::Lex {
        return (member::zset_member_of(key), None);
    }
    match member::zset_scored_of(key) {
        Some((score, name)) => (name, Some(score)),
        None => (&[], None),
    }
}

fn write(context: &mut Context<'_, '_>, key: &[u8], wanted: &Wanted<'_>) -> Done {
    let ends = wanted.ends()?;
    let Some(meta) = context.collection(key, Kind::Zset)? else {
        context.out.array(0);
        return Ok(());
    };
    let limit = (wanted.offset, wanted.count);
    let found = scan(context, &meta, ends.of(&meta), wanted.reverse, limit)?;
    let start = context.out.len();
    let nested = context.out.resp3 && wanted.with_scores;
    let mut replies = 0;
    for pair in found {
        let (key, value) = pair?;
        let (name, score) = name_of(&key, wanted.by);
        if nested {
            context.out.array(2);
        }
        context.out.bulk(name);
        if wanted.with_scores {
            let score = score.unwrap_or_else(|| super::zsets::decode_score(&value));
            context.out.double(score);
        }
        replies += if wanted.with_scores && !nested { 2 } else { 1 };
        if context.out.overflowed() {
            break;
        }
    }
    context.out.array_before(start, replies);
    Ok(())
}

/// Reads the options after the ends. `any` says whether they may say what the ends are, and the
/// direction.
fn options<'a>(args: Args<'a>, mut wanted: Wanted<'a>, any: bool) -> Result<Wanted<'a>, Fault> {
    let (mut at, mut by, mut reverse) = (4, None, false);
    while let Some(option) = args.get(at) {
        let is = |word| is_word(option, word);
        match (args.get(at + 1), args.get(at + 2)) {
            (Some(offset), Some(count)) if is("limit") => {
                (wanted.offset, wanted.count) = (integer(offset)?, integer(count)?);
                at += 2;
            }
            _ if is("withscores") => wanted.with_scores = true,
            _ if any && by.is_none() && is("byscore") => by = Some(By::Score),
            _ if any && by.is_none() && is("bylex") => by = Some(By::Lex),
            _ if any && !reverse && is("rev") => reverse = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    wanted.by = by.unwrap_or(wanted.by);
    wanted.reverse |= reverse;
    if wanted.count != -1 && wanted.by == By::Rank {
        return Err("ERR syntax error, LIMIT is only supported in combination with either \
                    BYSCORE or BYLEX"
            .into());
    }
    if wanted.with_scores && wanted.by == By::Lex {
        return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX".into());
    }
    if wanted.reverse && wanted.by != By::Rank {
        wanted.ends = (wanted.ends.1, wanted.ends.0);
    }
    Ok(wanted)
}

fn run(context: &mut Context<'_, '_>, args: Args<'_>, by: By, reverse: bool, any: bool) -> Done {
    let ends = (args.at(2), args.at(3));
    let wanted = Wanted { by, ends, reverse, offset: 0, count: -1, with_scores: false };
    let wanted = options(args, wanted, any)?;
    write(context, args.at(1), &wanted)
}

/// `ZRANGE`.
pub(super) fn zrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, By::Rank, false, true)
}

/// `ZREVRANGE`.
pub(super) fn zrevrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, By::Rank, true, false)
}

/// `ZRANGEBYSCORE`.
pub(super) fn zrangebyscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, By::Score, false, false)
}

/// `ZREVRANGEBYSCORE`.
pub(super) fn zrevrangebyscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, By::Score, true, false)
}

/// `ZRANGEBYLEX`.
pub(super) fn zrangebylex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, By::Lex, false, false)
}

/// `ZREVRANGEBYLEX`.
pub(super) fn zrevrangebylex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, By::Lex, true, false)
}

fn plain<'a>(args: Args<'a>, by: By) -> Wanted<'a> {
    let ends = (args.at(2), args.at(3));
    Wanted { by, ends, reverse: false, offset: 0, count: -1, with_scores: false }
}

fn count(context: &mut Context<'_, '_>, args: Args<'_>, by: By) -> Done {
    let ends = plain(args, by).ends()?;
    let mut found = 0;
    if let Some(meta) = context.collection(args.at(1), Kind::Zset)? {
        for pair in scan(context, &meta, ends.of(&meta), false, (0, -1))? {
            pair?;
            found += 1;
        }
    }
    context.out.int(found);
    Ok(())
}

/// `ZCOUNT`.
pub(super) fn zcount(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    count(context, args, By::Score)
}

/// `ZLEXCOUNT`.
pub(super) fn zlexcount(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    count(context, args, By::Lex)
}

fn remove_range(context: &mut Context<'_, '_>, args: Args<'_>, by: By) -> Done {
    let ends = plain(args, by).ends()?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Zset)? else {
        context.out.int(0);
        return Ok(());
    };
    let before = meta.count;
    for pair in scan(context, &meta, ends.of(&meta), false, (0, -1))? {
        let (key, _) = pair?;
        let (name, score) = name_of(&key, by);
        let score = match score {
            Some(score) => Some(score),
            None => score_of(context, &meta, name)?,
        };
        if let Some(score) = score {
            remove(context, &mut meta, name, score);
        }
    }
    if meta.count < before {
        context.txn.put_meta(args.at(1), Kind::Zset, &meta, expires);
    }
    context.out.int((before - meta.count) as i64);
    Ok(())
}

/// `ZREMRANGEBYRANK`.
pub(super) fn zremrangebyrank(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    remove_range(context, args, By::Rank)
}

/// `ZREMRANGEBYSCORE`.
pub(super) fn zremrangebyscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    remove_range(context, args, By::Score)
}

/// `ZREMRANGEBYLEX`.
pub(super) fn zremrangebylex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    remove_range(context, args, By::Lex)
}
