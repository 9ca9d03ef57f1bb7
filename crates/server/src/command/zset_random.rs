//! Random members of a sorted set, each as likely as any other: those at random places.

use std::collections::BTreeSet;

use rhumb::Slice;

use super::{Context, Done, SYNTAX, integer, is_word};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    places::Places,
    random::Random,
    resp::Args,
    txn::Space,
};

const BAD_COUNT: &str = "ERR value is out of range, value must between -9223372036854775807 and \
                         9223372036854775807";
const OUT_OF_RANGE: &str = "ERR value is out of range";

/// Members that `ZRANDMEMBER` gives at most when it may repeat them: as `SRANDMEMBER`.
const REPEATED_MAX: u64 = 1 << 20;

/// All members are walked over if at least one in eight of them is wanted: finding the places costs
/// more then.
const WALKED_PART: u64 = 8;

/// The largest sorted set, in members, that is walked over for members that may repeat.
const WALKED_MAX: u64 = 4096;

/// The keys of the members at places, which ascend and differ.
fn keys_at(
    context: &mut Context<'_, '_>,
    meta: &Meta,
    places: impl ExactSizeIterator<Item = u64>,
) -> Result<Vec<Slice>, Fault> {
    let order = Places::new(meta, true, context.learns);
    let mut found = Vec::with_capacity(places.len());
    if (places.len() as u64).saturating_mul(WALKED_PART) < meta.count {
        for place in places {
            found.extend(order.key_at(&context.txn, place)?);
        }
        return Ok(found);
    }
    context.check_length(meta.count)?;
    let (from, to) = order.all();
    let mut scan = context.txn.scan(Space::Members, from, to, false)?.expecting(meta.count);
    let mut at = 0;
    for place in places {
        let pair = scan.nth((place - at) as usize).transpose()?;
        found.extend(pair.map(|(key, _)| key));
        at = place + 1;
    }
    Ok(found)
}

/// `count` different places, ascending; every choice is as likely as any other.
fn different(random: &mut Random, count: u64, of: u64) -> BTreeSet<u64> {
    // Floyd's method: of the last places, each takes one up to itself, or itself if that is taken.
    let mut chosen = BTreeSet::new();
    for last in of - count..of {
        let place = random.below(last + 1);
        if !chosen.insert(place) {
            chosen.insert(last);
        }
    }
    chosen
}

/// The keys of `count` members, each drawn from all.
fn repeated(
    context: &mut Context<'_, '_>,
    meta: &Meta,
    count: u64,
    random: &mut Random,
) -> Result<Vec<Slice>, Fault> {
    let drawn: Vec<u64> = (0..count).map(|_| random.below(meta.count)).collect();
    let places = if meta.count <= WALKED_MAX && count.saturating_mul(WALKED_PART) >= meta.count {
        (0..meta.count).collect()
    } else {
        let mut places = drawn.clone();
        places.sort_unstable();
        places.dedup();
        places
    };
    let keys = keys_at(context, meta, places.iter().copied())?;
    let key_of = |place: &u64| keys.get(places.binary_search(place).ok()?).cloned();
    Ok(drawn.iter().filter_map(key_of).collect())
}

/// The number of members that are wanted, and with their scores or not; none if no number is said.
fn wanted(args: Args<'_>) -> Result<Option<(i64, bool)>, Fault> {
    let Some(count) = args.get(2) else { return Ok(None) };
    let count = integer(count)?;
    if count == i64::MIN {
        return Err(BAD_COUNT.into());
    }
    match args.get(3) {
        None => return Ok(Some((count, false))),
        Some(word) if args.len() == 4 && is_word(word, "withscores") => {}
        Some(_) => return Err(SYNTAX.into()),
    }
    if count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE.into());
    }
    Ok(Some((count, true)))
}

/// `ZRANDMEMBER`: different members if the count is positive, repeated ones if it is negative.
pub(super) fn zrandmember(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let wanted = wanted(args)?;
    let meta = context.collection(args.at(1), Kind::Zset)?.filter(|meta| meta.count > 0);
    let mut random = context.server.random();
    let Some((count, with_scores)) = wanted else {
        let key = match &meta {
            Some(meta) => Places::new(meta, true, context.learns)
                .key_at(&context.txn, random.below(meta.count))?,
            None => None,
        };
        let name = key.as_deref().and_then(member::zset_scored_of).map(|(_, name)| name);
        context.out.bulk_or_null(name);
        return Ok(());
    };
    let Some(meta) = meta else {
        context.out.array(0);
        return Ok(());
    };
    let keys = if let Ok(count) = u64::try_from(count) {
        let count = count.min(meta.count);
        context.check_length(count)?;
        let places = different(&mut random, count, meta.count);
        keys_at(context, &meta, places.into_iter())?
    } else {
        let count = count.unsigned_abs();
        if count > REPEATED_MAX {
            return Err(OUT_OF_RANGE.into());
        }
        context.check_length(count)?;
        repeated(context, &meta, count, &mut random)?
    };
    let nested = context.out.resp3 && with_scores;
    context.out.array(if with_scores && !nested { keys.len() * 2 } else { keys.len() });
    for (score, name) in keys.iter().filter_map(|key| member::zset_scored_of(key)) {
        if nested {
            context.out.array(2);
        }
        context.out.bulk(name);
        if with_scores {
            context.out.double(score);
        }
        if context.out.overflowed() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_places_is_as_likely_as_any_other() {
        let mut random = Random::seeded(7);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..10_000 {
            let chosen = different(&mut random, 2, 5);
            assert_eq!(chosen.len(), 2);
            *counts.entry(chosen).or_insert(0) += 1;
        }
        // Ten choices of two from five: 1,000 each, and 30 is one standard deviation.
        assert_eq!(counts.len(), 10);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(different(&mut random, 5, 5), (0..5).collect());
        assert!(different(&mut random, 0, 5).is_empty());
    }
}
