//! Searches: the members within a shape, by the cells that cover it.

use std::ops::Bound;

use super::{
    super::{Context, Done, MoreKeys, SYNTAX, zsets::put_score},
    cell::Place,
    place_of_score,
    shape::Shape,
    wanted::{Form, Wanted},
    write_distance, write_place,
};
use crate::{
    encode::{Kind, Meta, member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
    txn::Space,
};

/// Where the key is that `GEORADIUS` and its kin store to.
pub(in super::super) const STORE_KEY: MoreKeys = MoreKeys::After(&["store", "storedist"]);

/// A member that was found.
struct Found {
    name: Vec<u8>,
    score: f64,
    place: Place,
    /// In meters.
    distance: f64,
}

/// The members that were found, of which only some are kept if only some are wanted.
struct Gathered {
    found: Vec<Found>,
    /// True for the nearest first.
    ascending: Option<bool>,
    count: usize,
    /// Bytes of the names that are kept, and how many may be.
    bytes: usize,
    bytes_max: usize,
}

impl Gathered {
    fn push(&mut self, found: Found) -> Done {
        self.bytes += found.name.len() + size_of::<Found>();
        self.found.push(found);
        if self.ascending.is_some() && self.found.len() / 2 > self.count.max(64) {
            self.sort();
        }
        if self.bytes > self.bytes_max {
            return Err("ERR the result is too large".into());
        }
        Ok(())
    }

    /// Sorts, and forgets what comes after those that are wanted.
    fn sort(&mut self) {
        if let Some(ascending) = self.ascending {
            self.found.sort_by(|one, other| {
                let order = one.distance.total_cmp(&other.distance);
                if ascending { order } else { order.reverse() }
            });
        }
        self.found.truncate(self.count);
        self.bytes = self.found.iter().map(|found| found.name.len() + size_of::<Found>()).sum();
    }
}

/// The members within a shape, sorted as is wanted.
fn search(
    context: &Context<'_, '_>,
    meta: &Meta,
    shape: &Shape,
    wanted: &Wanted,
) -> Result<Vec<Found>, Fault> {
    let sorts = wanted.ascending.is_some() || wanted.count.is_some() && !wanted.any;
    let mut gathered = Gathered {
        found: Vec::new(),
        ascending: sorts.then_some(wanted.ascending.unwrap_or(true)),
        count: wanted.count.unwrap_or(usize::MAX),
        bytes: 0,
        bytes_max: context.server.config.limits.reply_bytes,
    };
    let enough = if wanted.any { gathered.count } else { usize::MAX };
    let mut seen = 0;
    for cell in shape.cells() {
        let (from, to) = cell.scores();
        let key = |score| member::zset_scored(meta.id, score, &[]);
        let (from, to) = (Bound::Included(key(from)), Bound::Excluded(key(to)));
        for pair in context.txn.scan(Space::Members, from, to, false)? {
            if gathered.found.len() >= enough {
                break;
            }
            let (key, _) = pair?;
            seen += 1;
            context.check_length(seen)?;
            let Some((score, name)) = member::zset_scored_of(&key) else { continue };
            let place = place_of_score(score);
            if let Some(distance) = shape.distance(place) {
                gathered.push(Found { name: name.to_vec(), score, place, distance })?;
            }
        }
    }
    gathered.sort();
    Ok(gathered.found)
}

fn reply(context: &mut Context<'_, '_>, found: &[Found], wanted: &Wanted) {
    let Wanted { with_distance, with_hash, with_place, unit, .. } = *wanted;
    let details = usize::from(with_distance) + usize::from(with_hash) + usize::from(with_place);
    let out = &mut *context.out;
    out.array(found.len());
    for Found { name, score, place, distance } in found {
        if details > 0 {
            out.array(1 + details);
        }
        out.bulk(name);
        if with_distance {
            write_distance(out, distance / unit);
        }
        if with_hash {
            out.int(*score as i64);
        }
        if with_place {
            write_place(out, *place);
        }
        if out.overflowed() {
            return;
        }
    }
}

/// Makes a key the sorted set of what was found; an empty one is no key.
fn store(
    context: &mut Context<'_, '_>,
    key: &[u8],
    found: &[Found],
    wanted: &Wanted,
    event: &'static str,
) -> Done {
    if let Some(before) = context.txn.edit(key)? {
        context.txn.delete(key, &before)?;
        if found.is_empty() {
            context.txn.notify(KeyEvent::generic("del"), key);
        }
    }
    if !found.is_empty() {
        let mut meta = context.txn.new_meta()?;
        for Found { name, score, distance, .. } in found {
            let score = if wanted.store_distances { distance / wanted.unit } else { *score };
            put_score(context, &mut meta, name, None, score);
        }
        context.txn.put_meta(key, Kind::Zset, &meta, 0);
        context.txn.notify(KeyEvent::zset(event), key);
    }
    context.out.count(found.len());
    Ok(())
}

fn run(context: &mut Context<'_, '_>, args: Args<'_>, form: Form) -> Done {
    let meta = context.collection(args.at(form.source()), Kind::Zset)?;
    let wanted = Wanted::parse(context, meta.as_ref(), args, form)?;
    let found = match &meta {
        Some(meta) => search(context, meta, &wanted.shape()?, &wanted)?,
        None => Vec::new(),
    };
    let Some(at) = wanted.store else {
        reply(context, &found, &wanted);
        return Ok(());
    };
    if form == Form::SearchStore {
        return store(context, args.at(at), &found, &wanted, "geosearchstore");
    }
    // Only the key that was locked: in `STORE store x` another argument looks like it.
    if STORE_KEY.places(args) != (at..at + 1) {
        return Err(SYNTAX.into());
    }
    store(context, args.at(at), &found, &wanted, "georadiusstore")
}

/// `GEOSEARCH`.
pub(in super::super) fn geosearch(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, Form::Search)
}

/// `GEOSEARCHSTORE`.
pub(in super::super) fn geosearchstore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, Form::SearchStore)
}

/// `GEORADIUS`.
pub(in super::super) fn georadius(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, Form::Radius { may_store: true })
}

/// `GEORADIUS_RO`.
pub(in super::super) fn georadius_ro(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, Form::Radius { may_store: false })
}

/// `GEORADIUSBYMEMBER`.
pub(in super::super) fn georadiusbymember(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    run(context, args, Form::RadiusByMember { may_store: true })
}

/// `GEORADIUSBYMEMBER_RO`.
pub(in super::super) fn georadiusbymember_ro(
    context: &mut Context<'_, '_>,
    args: Args<'_>,
) -> Done {
    run(context, args, Form::RadiusByMember { may_store: false })
}
