//! The parts of `CLIENT` by which a client is told which keys were changed.

use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::{Arc, atomic::Ordering},
};

use super::{
    Context, Done, SYNTAX, integer, is_word,
    listening::{Choice, OwnTracking, Replies},
};
use crate::{
    clients::{ClientInfo, Mode},
    db::Databases,
    fault::Fault,
    listeners::Tracker,
    resp::Args,
};

/// What `CLIENT TRACKING` was asked for.
#[derive(Default)]
struct Asked<'a> {
    redirect: Option<Arc<ClientInfo>>,
    is_broadcast: bool,
    opts_in: bool,
    opts_out: bool,
    skips_own: bool,
    prefixes: Vec<&'a [u8]>,
}

fn asked<'a>(context: &Context<'_, '_>, args: Args<'a>) -> Result<Asked<'a>, Fault> {
    let mut asked = Asked::default();
    let mut options = args.iter_from(3);
    while let Some(option) = options.next() {
        let is = |word| is_word(option, word);
        if is("redirect") {
            let id = integer(options.next().ok_or(SYNTAX)?)?;
            if asked.redirect.is_some() {
                return Err("ERR A client can only redirect to a single other client".into());
            }
            let target = u64::try_from(id).ok().and_then(|id| context.server.clients.get(id));
            let absent = "ERR The client ID you want redirect to does not exist";
            asked.redirect = Some(target.ok_or(absent)?);
        } else if is("bcast") {
            asked.is_broadcast = true;
        } else if is("optin") {
            asked.opts_in = true;
        } else if is("optout") {
            asked.opts_out = true;
        } else if is("noloop") {
            asked.skips_own = true;
        } else if is("prefix") {
            asked.prefixes.push(options.next().ok_or(SYNTAX)?);
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(asked)
}

fn check(asked: &Asked<'_>, own: Option<&OwnTracking>) -> Done {
    if !asked.is_broadcast && !asked.prefixes.is_empty() {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    let another = "before disabling tracking for this client, and then re-enabling it with a \
                   different mode.";
    if own.is_some_and(|own| own.is_broadcast != asked.is_broadcast) {
        return Err(format!("ERR You can't switch BCAST mode on/off {another}").into());
    }
    if asked.is_broadcast && (asked.opts_in || asked.opts_out) {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if asked.opts_in && asked.opts_out {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    let choice = own.map(|own| own.choice).unwrap_or_default();
    let switches =
        (asked.opts_in && choice == Choice::OptOut) || (asked.opts_out && choice == Choice::OptIn);
    if switches {
        return Err(format!("ERR You can't switch OPTIN/OPTOUT mode {another}").into());
    }
    check_prefixes(asked, own)
}

/// What a prefix of the same call is called.
const PROVIDED: &str = "another provided";

/// Prefixes of one client may not overlap: it would be told twice.
fn check_prefixes(asked: &Asked<'_>, own: Option<&OwnTracking>) -> Done {
    let overlap = |prefix: &[u8], kind: &str, other: &[u8]| {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Fault::from(format!(
            "ERR Prefix '{}' overlaps with {kind} prefix '{}'. Prefixes for a single client must \
             not overlap.",
            text(prefix),
            text(other)
        ))
    };
    let nothing = BTreeSet::new();
    let known = own.map_or(&nothing, |own| &own.prefixes);
    for prefix in &asked.prefixes {
        // One that begins with this one comes next in their order, and those that this one begins
        // with are its own beginnings.
        let from = (Bound::Included(*prefix), Bound::Unbounded);
        let longer = known.range::<[u8], _>(from).next().filter(|next| next.starts_with(prefix));
        let shorter = || (0..prefix.len()).find_map(|len| known.get(&prefix[..len]));
        if let Some(other) = longer.or_else(|| if known.is_empty() { None } else { shorter() }) {
            return Err(overlap(prefix, "an existing", other));
        }
    }
    let mut sorted: Vec<(&[u8], usize)> =
        asked.prefixes.iter().enumerate().map(|(at, prefix)| (*prefix, at)).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[1].0.starts_with(pair[0].0)) {
        None => Ok(()),
        Some([one, other]) if one.1 < other.1 => Err(overlap(one.0, PROVIDED, other.0)),
        Some(pair) => Err(overlap(pair[1].0, PROVIDED, pair[0].0)),
    }
}

/// `CLIENT TRACKING`.
pub(super) fn tracking(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let asked = asked(context, args)?;
    let databases = &context.server.databases;
    if is_word(args.at(2), "off") {
        if let Some(listening) = &mut context.client.listening
            && let Some(own) = listening.tracking.take()
        {
            end(databases, &context.client.info, &own);
        }
        // Nothing comes after it.
        context.take_messages();
        context.client.settle();
    } else if is_word(args.at(2), "on") {
        check(&asked, context.client.tracking())?;
        begin(context, asked);
    } else {
        return Err(SYNTAX.into());
    }
    context.out.ok();
    Ok(())
}

fn begin(context: &mut Context<'_, '_>, asked: Asked<'_>) {
    let (databases, info) = (&context.server.databases, Arc::clone(&context.client.info));
    let Asked { redirect, is_broadcast, opts_in, opts_out, skips_own, prefixes } = asked;
    info.redirect.store(redirect.as_ref().map_or(0, |target| target.id), Ordering::Relaxed);
    info.set_mode(Mode::TRACKING, true);
    info.set_mode(Mode::BROADCAST, is_broadcast);
    info.set_mode(Mode::BROKEN_REDIRECT, false);
    let tracking = &databases.listeners.tracking;
    let tracker = Tracker { info: Arc::clone(&info), redirect, is_broadcast, skips_own };
    if tracking.add(tracker) {
        databases.interest.add();
    }
    let own = context.client.listening_mut().tracking.get_or_insert_default();
    own.choice = match (opts_in, opts_out) {
        (true, _) => Choice::OptIn,
        (_, true) => Choice::OptOut,
        _ => Choice::All,
    };
    (own.is_broadcast, own.skips_own) = (is_broadcast, skips_own);
    let everything: &[u8] = b"";
    let all = prefixes.is_empty().then_some(everything).filter(|_| is_broadcast);
    for prefix in prefixes.into_iter().chain(all) {
        if own.prefixes.insert(prefix.to_vec()) {
            tracking.add_prefix(prefix, info.id);
        }
    }
    if !context.in_exec {
        // Writers that did not see this one are through: from now on none writes without a look.
        let _locks = databases.locks.everything();
        databases.commit_submitted();
    }
}

/// Takes a client's tracking back.
pub(super) fn end(databases: &Databases, info: &ClientInfo, own: &OwnTracking) {
    [Mode::TRACKING, Mode::BROADCAST, Mode::BROKEN_REDIRECT]
        .iter()
        .for_each(|mode| info.set_mode(*mode, false));
    databases.listeners.tracking.remove(info.id, own.prefixes.iter().map(Vec::as_slice));
    databases.interest.remove();
}

/// `CLIENT CACHING`.
pub(super) fn caching(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let listening = context.client.listening.as_mut();
    let Some(own) = listening.and_then(|listening| listening.tracking.as_mut()) else {
        return Err("ERR CLIENT CACHING can be called only when the client is in tracking mode \
                    with OPTIN or OPTOUT mode enabled"
            .into());
    };
    let (choice, text) = if is_word(args.at(2), "yes") {
        (
            Choice::OptIn,
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        )
    } else if is_word(args.at(2), "no") {
        (
            Choice::OptOut,
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        )
    } else {
        return Err(SYNTAX.into());
    };
    if own.choice != choice {
        return Err(text.into());
    }
    own.caching = true;
    context.out.ok();
    Ok(())
}

/// The client that is told in the place of this one: 0 if none is, -1 if it does not track.
fn redirect(context: &Context<'_, '_>) -> i64 {
    match context.client.tracking() {
        None => -1,
        Some(_) => context.client.info.redirect.load(Ordering::Relaxed) as i64,
    }
}

/// `CLIENT GETREDIR`.
pub(super) fn getredir(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    context.out.int(redirect(context));
    Ok(())
}

/// `CLIENT TRACKINGINFO`.
pub(super) fn trackinginfo(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let redirect = redirect(context);
    let own = context.client.tracking();
    let is = |choice| own.is_some_and(|own| own.choice == choice);
    let is_caching = own.is_some_and(|own| own.caching);
    let flags = [
        ("off", own.is_none()),
        ("on", own.is_some()),
        ("bcast", own.is_some_and(|own| own.is_broadcast)),
        ("optin", is(Choice::OptIn)),
        ("caching-yes", is(Choice::OptIn) && is_caching),
        ("optout", is(Choice::OptOut)),
        ("caching-no", is(Choice::OptOut) && is_caching),
        ("noloop", own.is_some_and(|own| own.skips_own)),
        ("broken_redirect", context.client.info.is_in(Mode::BROKEN_REDIRECT)),
    ];
    let out = &mut *context.out;
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.iter().filter(|(_, is)| *is).count());
    flags.iter().filter(|(_, is)| *is).for_each(|(name, _)| out.bulk(name.as_bytes()));
    out.bulk(b"redirect");
    out.int(redirect);
    out.bulk(b"prefixes");
    out.array(own.map_or(0, |own| own.prefixes.len()));
    own.iter().flat_map(|own| &own.prefixes).for_each(|prefix| out.bulk(prefix));
    Ok(())
}

/// `CLIENT REPLY`.
pub(super) fn reply(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let listening = context.client.listening_mut();
    if is_word(args.at(2), "on") {
        listening.replies = Replies::All;
        context.client.settle();
        context.out.ok();
    } else if is_word(args.at(2), "off") {
        listening.replies = Replies::None;
    } else if is_word(args.at(2), "skip") {
        if listening.replies != Replies::None {
            listening.replies = Replies::SkipNext;
        }
    } else {
        context.client.settle();
        return Err(SYNTAX.into());
    }
    Ok(())
}
