//! Trimming: the options of `XADD` and `XTRIM`, and removing a stream's first entries.

use std::ops::Bound;

use super::{Range, edge, find, ids, is_word, visit_entries};
use crate::{
    command::{Context, Done, FEW_ELEMENTS, SYNTAX, integer},
    encode::{StreamId, StreamMeta, stream_member},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
};

/// What is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// This number of the last entries.
    Last(u64),
    /// The entries from this one on.
    From(StreamId),
}

/// Entries that approximate trimming removes together, if `stream-node-max-entries` does not say:
/// those of a node of Redis with its default settings.
const NODE_ENTRIES: u64 = 100;

/// The most nodes, and the most entries, that approximate trimming removes at once unless `LIMIT`
/// says otherwise: those of Redis.
const NODES_MAX: u64 = 100;
const LIMIT_MAX: u64 = 1_000_000;

/// From this number of entries on they are removed as one range: a tombstone of a range costs
/// reads more than some of single keys do, and less than many.
const RANGE_MIN: u64 = 64;

/// What `XADD` and `XTRIM` are told to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    keep: Keep,
    is_exact: bool,
    /// The most entries to remove; none if the size of nodes decides.
    limit: Option<u64>,
}

/// The options before the identifier of `XADD`, or those of `XTRIM`.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) trim: Option<Trim>,
    /// `NOMKSTREAM`: the stream is not made.
    pub(super) only_if_present: bool,
    /// Where the identifier is.
    pub(super) at: usize,
}

/// Reads `MAXLEN` or `MINID` at `at`; returns what it keeps, whether exactly so, and where its last
/// argument is.
fn strategy(args: Args<'_>, at: usize, is_length: bool) -> Result<(Keep, bool, usize), Fault> {
    let (mut at, mut is_exact) = (at + 1, true);
    if args.get(at + 1).is_some() && matches!(args.at(at), b"~" | b"=") {
        is_exact = args.at(at) == b"=";
        at += 1;
    }
    let keep = if is_length {
        let length = integer(args.at(at))?;
        Keep::Last(u64::try_from(length).map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
    } else {
        Keep::From(ids::strict(args.at(at), 0)?)
    };
    Ok((keep, is_exact, at))
}

/// Reads the options. Those of `XADD` end at its identifier.
pub(super) fn options(args: Args<'_>, is_add: bool) -> Result<Options, Fault> {
    let (mut keep, mut limit, mut only_if_present) = (None, None, false);
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let more = at + 1 < args.len();
        let is_length = is_word(option, "maxlen");
        if is_add && option == b"*" {
            break;
        } else if (is_length || is_word(option, "minid")) && more {
            if keep.is_some() {
                return Err("ERR syntax error, MAXLEN and MINID options at the same time are not \
                            compatible"
                    .into());
            }
            let found = strategy(args, at, is_length)?;
            (keep, at) = (Some((found.0, found.1)), found.2);
        } else if is_word(option, "limit") && more {
            at += 1;
            let most = integer(args.at(at))?;
            limit = Some(u64::try_from(most).map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
        } else if is_add && is_word(option, "nomkstream") {
            only_if_present = true;
        } else if is_add {
            // The identifier, if it is one.
            ids::wanted(option)?;
            break;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    let trim = match (keep, limit) {
        (None, None | Some(0)) => None,
        (None, Some(_)) => {
            return Err("ERR syntax error, LIMIT cannot be used without specifying a trimming \
                        strategy"
                .into());
        }
        (Some((keep, is_exact)), limit) => Some(with_limit(keep, is_exact, limit)?),
    };
    if !is_add && trim.is_none() {
        return Err("ERR syntax error, XTRIM must be called with options".into());
    }
    if trim.is_none() && limit.is_some() {
        return Err(NO_LIMIT.into());
    }
    Ok(Options { trim, only_if_present, at })
}

const NO_LIMIT: &str = "ERR syntax error, LIMIT cannot be used without the special ~ option";

fn with_limit(keep: Keep, is_exact: bool, limit: Option<u64>) -> Result<Trim, Fault> {
    let limit = match limit {
        Some(_) if is_exact => return Err(NO_LIMIT.into()),
        Some(0) => Some(u64::MAX),
        None if is_exact => Some(u64::MAX),
        limit => limit,
    };
    Ok(Trim { keep, is_exact, limit })
}

impl Trim {
    /// How many of the stream's first entries go. Nothing is written.
    ///
    /// # Errors
    ///
    /// [`Fault::TakesLong`] if many are to be gone through and other clients would wait.
    pub(super) fn count(self, context: &Context<'_, '_>, meta: &StreamMeta) -> Result<u64, Fault> {
        let setting = context.server.remembered.number("stream-node-max-entries");
        let node = u64::try_from(setting).ok().filter(|node| *node > 0).unwrap_or(NODE_ENTRIES);
        let limit = self.limit.unwrap_or_else(|| node.saturating_mul(NODES_MAX).min(LIMIT_MAX));
        let surplus = match self.keep {
            Keep::Last(length) => meta.length.saturating_sub(length),
            Keep::From(id) => entries_before(context, meta, id, limit)?,
        };
        let most = surplus.min(limit);
        if self.is_exact || (surplus == meta.length && most == surplus) {
            return Ok(most);
        }
        Ok(whole_nodes(meta, most, node))
    }
}

/// How many entries the nodes have that lie within the first `most` ones: of all entries that ever
/// were added, each `node` ones have been one.
fn whole_nodes(meta: &StreamMeta, most: u64, node: u64) -> u64 {
    let gone = meta.added.saturating_sub(meta.length);
    let end = gone.saturating_add(most);
    (end - end % node).saturating_sub(gone)
}

/// Counts the entries before this one; those past `most` may be left out.
fn entries_before(
    context: &Context<'_, '_>,
    meta: &StreamMeta,
    id: StreamId,
    most: u64,
) -> Result<u64, Fault> {
    if id > meta.last {
        return Ok(meta.length);
    }
    let few = if context.txn.may_take_long { u64::MAX } else { FEW_ELEMENTS };
    let mut found = 0;
    if let Some(to) = id.previous() {
        visit_entries(&context.txn, meta, Range { to, ..Range::ALL }, |_, _| {
            found += 1;
            Ok(found <= most && found <= few)
        })?;
    }
    context.check_length(found)?;
    Ok(found)
}

/// How many entries are gone through to remove the first `count` ones.
fn passed(meta: &StreamMeta, count: u64) -> u64 {
    match meta.length - count {
        0 => 0,
        stays => count.min(stays) + 1,
    }
}

/// To be called before anything is written that [`carry_out`] follows.
///
/// # Errors
///
/// [`Fault::TakesLong`] if many entries are to be gone through and other clients would wait.
pub(super) fn check(context: &Context<'_, '_>, meta: &StreamMeta, count: u64) -> Done {
    if count == 0 { Ok(()) } else { context.check_length(passed(meta, count)) }
}

/// Removes the first `count` entries; what is known of the stream is left to the caller to write.
/// Returns true if there was something to do.
pub(super) fn carry_out(
    context: &mut Context<'_, '_>,
    meta: &mut StreamMeta,
    count: u64,
) -> Result<bool, Fault> {
    if count == 0 {
        return Ok(false);
    }
    let cut = Cut::find(context, meta, count)?;
    let key = |id| stream_member::entry(meta.id, id);
    if cut.ids.is_empty() {
        let (from, to) = (Bound::Included(key(meta.first)), Bound::Included(key(cut.last)));
        context.txn.remove_members(from, to);
    } else {
        cut.ids.iter().for_each(|id| context.txn.remove_member(key(*id)));
    }
    meta.length -= count;
    meta.first = cut.first;
    Ok(true)
}

/// Where the first entries of a stream are cut off.
struct Cut {
    /// The first entry that stays.
    first: StreamId,
    /// The last one that goes.
    last: StreamId,
    /// All that go, if they are removed one by one.
    ids: Vec<StreamId>,
}

impl Cut {
    fn find(context: &Context<'_, '_>, meta: &StreamMeta, count: u64) -> Result<Self, Fault> {
        let stays = meta.length - count;
        let mut cut = Self { first: StreamId::MIN, last: meta.last, ids: Vec::new() };
        if stays == 0 && count >= RANGE_MIN {
            return Ok(cut);
        }
        // From the nearer end.
        let (reverse, mut seen) = (stays < count && count >= RANGE_MIN, 0);
        visit_entries(&context.txn, meta, Range { reverse, ..Range::ALL }, |id, _| {
            seen += 1;
            let is_gone = if reverse { seen > stays } else { seen <= count };
            *(if is_gone { &mut cut.last } else { &mut cut.first }) = id;
            if is_gone && count < RANGE_MIN {
                cut.ids.push(id);
            }
            Ok(is_gone != reverse)
        })?;
        Ok(cut)
    }
}

/// The first entry that a stream has now: entries were removed one by one.
pub(super) fn first_entry(context: &Context<'_, '_>, meta: &StreamMeta) -> Result<StreamId, Fault> {
    Ok(edge(&context.txn, meta, Range::ALL)?.unwrap_or(StreamId::MIN))
}

/// `XTRIM`.
pub(in crate::command) fn xtrim(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let trim = options(args, false)?.trim.ok_or(SYNTAX)?;
    let Some((mut meta, expires_ms)) = find(context, args.at(1))? else {
        context.out.int(0);
        return Ok(());
    };
    let count = trim.count(context, &meta)?;
    check(context, &meta, count)?;
    if !carry_out(context, &mut meta, count)? {
        context.out.int(0);
        return Ok(());
    }
    context.txn.put_stream(args.at(1), &meta, expires_ms);
    context.txn.touch_without_news(args.at(1));
    context.txn.notify(KeyEvent::stream("xtrim"), args.at(1));
    context.out.int(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}
