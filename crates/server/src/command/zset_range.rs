//! Ranges of sorted sets: by rank, by score, by name.

use std::ops::Bound;

use super::{
    Context, Done, SYNTAX, integer, is_word,
    lists::places,
    ordered::{End, between, bound},
    zsets::{Scored, put_all, put_fewer, remove, score_of},
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    places::Places,
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

/// The most members that are stepped over to come to a place: more are counted instead.
const STEPPED_MAX: u64 = 256;

/// The members that a command goes through: a range of keys, from an end of which to skip some.
struct Part {
    from: KeyBound,
    to: KeyBound,
    skip: u64,
    take: u64,
}

impl Part {
    /// The part that is meant; none if nothing is.
    fn of(meta: &Meta, chosen: Chosen, by: By, (offset, count): (i64, i64)) -> Option<Self> {
        match chosen {
            Chosen::Nothing => None,
            Chosen::Keys(from, to) => {
                // A negative offset gives nothing, as in Redis.
                let skip = u64::try_from(offset).ok().filter(|skip| *skip < meta.count)?;
                Some(Self { from, to, skip, take: u64::try_from(count).unwrap_or(u64::MAX) })
            }
            Chosen::Ranks(start, end) => {
                let (start, end) = places(start, end, meta.count)?;
                let (from, to) = prefix_range(&member::zset_prefix(meta.id, by != By::Lex));
                Some(Self { from, to, skip: start, take: end - start + 1 })
            }
        }
    }

    /// Moves the end from which it is gone through past the members to skip, if they are many: by
    /// their places, in O(log n). Returns false if nothing is left.
    fn skip_many(
        &mut self,
        context: &Context<'_, '_>,
        order: Places<'_>,
        reverse: bool,
    ) -> Result<bool, Fault> {
        if self.skip <= STEPPED_MAX {
            return Ok(true);
        }
        let place = if reverse {
            order.before_end(&context.txn, &self.to)?.checked_sub(self.skip + 1)
        } else {
            Some(order.before_start(&context.txn, &self.from)? + self.skip)
        };
        let key = match place {
            Some(place) => order.key_at(&context.txn, place)?,
            None => None,
        };
        let Some(key) = key.map(|key| Bound::Included(key.to_vec())) else { return Ok(false) };
        self.skip = 0;
        *(if reverse { &mut self.to } else { &mut self.from }) = key;
        Ok(true)
    }
}

/// The member keys that are meant, in order.
fn scan(
    context: &Context<'_, '_>,
    meta: &Meta,
    chosen: Chosen,
    (by, reverse): (By, bool),
    limit: (i64, i64),
) -> Result<std::iter::Take<std::iter::Skip<Scan>>, Fault> {
    let nothing = || Scan::Nothing.skip(usize::MAX).take(0);
    let Some(mut part) = Part::of(meta, chosen, by, limit) else { return Ok(nothing()) };
    if by == By::Rank {
        context.check_length(part.take)?;
    }
    let order = Places::new(meta, by != By::Lex, context.learns);
    if !part.skip_many(context, order, reverse)? {
        return Ok(nothing());
    }
    let expected = part.skip.saturating_add(part.take).min(meta.count);
    let scan = context.txn.scan(Space::Members, part.from, part.to, reverse)?.expecting(expected);
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Ok(scan.skip(size(part.skip)).take(size(part.take)))
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
    let (limit, direction) = ((wanted.offset, wanted.count), (wanted.by, wanted.reverse));
    let found = scan(context, &meta, ends.of(&meta), direction, limit)?;
    let start = context.out.len();
    let nested = context.out.resp3 && wanted.with_scores;
    let mut members = 0;
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
        members += 1;
        context.check_length(members)?;
        if context.out.overflowed() {
            break;
        }
    }
    let replies = if wanted.with_scores && !nested { 2 * members } else { members };
    context.out.array_before(start, replies as usize);
    Ok(())
}

/// Makes another key a sorted set of the members.
fn store(context: &mut Context<'_, '_>, to: &[u8], key: &[u8], wanted: &Wanted<'_>) -> Done {
    let ends = wanted.ends()?;
    let mut all = Vec::new();
    if let Some(meta) = context.collection(key, Kind::Zset)? {
        let (limit, direction) = ((wanted.offset, wanted.count), (wanted.by, wanted.reverse));
        for pair in scan(context, &meta, ends.of(&meta), direction, limit)? {
            let (key, value) = pair?;
            let (name, score) = name_of(&key, wanted.by);
            let score = score.unwrap_or_else(|| super::zsets::decode_score(&value));
            all.push(Scored { score, name: name.to_vec() });
            context.check_length(all.len() as u64)?;
        }
    }
    put_all(context, to, &all, "zrangestore")
}

/// What the options of a range may say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Neither what the ends are nor the direction.
    Plain,
    /// All there is to be said.
    Any,
    /// All but scores, which are stored.
    Stored,
}

/// Reads the options from `at` on, after the ends.
fn options<'a>(
    args: Args<'a>,
    mut at: usize,
    mut wanted: Wanted<'a>,
    form: Form,
) -> Result<Wanted<'a>, Fault> {
    let (mut by, mut reverse, any) = (None, false, form != Form::Plain);
    while let Some(option) = args.get(at) {
        let is = |word| is_word(option, word);
        match (args.get(at + 1), args.get(at + 2)) {
            (Some(offset), Some(count)) if is("limit") => {
                (wanted.offset, wanted.count) = (integer(offset)?, integer(count)?);
                at += 2;
            }
            _ if form != Form::Stored && is("withscores") => wanted.with_scores = true,
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

fn run(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    (by, reverse): (By, bool),
    form: Form,
) -> Done {
    let ends = (args.at(2), args.at(3));
    let wanted = Wanted { by, ends, reverse, offset: 0, count: -1, with_scores: false };
    let wanted = options(args, 4, wanted, form)?;
    write(context, args.at(1), &wanted)
}

/// `ZRANGE`.
pub(super) fn zrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (By::Rank, false), Form::Any)
}

/// `ZRANGESTORE`.
pub(super) fn zrangestore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (by, ends) = (By::Rank, (args.at(3), args.at(4)));
    let wanted = Wanted { by, ends, reverse: false, offset: 0, count: -1, with_scores: false };
    let wanted = options(args, 5, wanted, Form::Stored)?;
    store(context, args.at(1), args.at(2), &wanted)
}

/// `ZREVRANGE`.
pub(super) fn zrevrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (By::Rank, true), Form::Plain)
}

/// `ZRANGEBYSCORE`.
pub(super) fn zrangebyscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (By::Score, false), Form::Plain)
}

/// `ZREVRANGEBYSCORE`.
pub(super) fn zrevrangebyscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (By::Score, true), Form::Plain)
}

/// `ZRANGEBYLEX`.
pub(super) fn zrangebylex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (By::Lex, false), Form::Plain)
}

/// `ZREVRANGEBYLEX`.
pub(super) fn zrevrangebylex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, (By::Lex, true), Form::Plain)
}

fn plain<'a>(args: Args<'a>, by: By) -> Wanted<'a> {
    let ends = (args.at(2), args.at(3));
    Wanted { by, ends, reverse: false, offset: 0, count: -1, with_scores: false }
}

fn count(context: &mut Context<'_, '_>, args: Args<'_>, by: By) -> Done {
    let ends = plain(args, by).ends()?;
    let mut found = 0;
    if let Some(meta) = context.collection(args.at(1), Kind::Zset)?
        && let Chosen::Keys(from, to) = ends.of(&meta)
    {
        let order = Places::new(&meta, by != By::Lex, context.learns);
        let to = order.before_end(&context.txn, &to)?;
        found = to.saturating_sub(order.before_start(&context.txn, &from)?);
    }
    context.out.int(found as i64);
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

fn remove_range(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
    by: By,
    event: &'static str,
) -> Done {
    let ends = plain(args, by).ends()?;
    let Some((mut meta, expires)) = context.edit_collection(args.at(1), Kind::Zset)? else {
        context.out.int(0);
        return Ok(());
    };
    let mut gone = Vec::new();
    for pair in scan(context, &meta, ends.of(&meta), (by, false), (0, -1))? {
        gone.push(pair?.0);
        context.check_length(gone.len() as u64)?;
    }
    let mut scored = Vec::with_capacity(if by == By::Lex { gone.len() } else { 0 });
    for key in gone.iter().filter(|_| by == By::Lex) {
        scored.push(score_of(context, &meta, member::zset_member_of(key))?.unwrap_or_default());
    }
    for (nth, key) in gone.iter().enumerate() {
        let (name, score) = name_of(key, by);
        let score = score.or_else(|| scored.get(nth).copied());
        remove(context, &mut meta, name, score.unwrap_or_default());
    }
    if !gone.is_empty() {
        put_fewer(context, args.at(1), (&meta, expires), event);
    }
    context.out.count(gone.len());
    Ok(())
}

/// `ZREMRANGEBYRANK`.
pub(super) fn zremrangebyrank(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    remove_range(context, args, By::Rank, "zremrangebyrank")
}

/// `ZREMRANGEBYSCORE`.
pub(super) fn zremrangebyscore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    remove_range(context, args, By::Score, "zremrangebyscore")
}

/// `ZREMRANGEBYLEX`.
pub(super) fn zremrangebylex(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    remove_range(context, args, By::Lex, "zremrangebylex")
}
