//! `XRANGE` and `XREVRANGE`.

use super::{find, ids, is_word, write_entries};
use crate::{
    command::{Context, Done, SYNTAX, integer},
    resp::Args,
};

fn reply(context: &mut Context<'_, '_>, args: Args<'_>, reverse: bool) -> Done {
    let (from, to) = if reverse { (3, 2) } else { (2, 3) };
    let range = ids::range(args.at(from), args.at(to), reverse)?;
    let (mut most, mut at) = (u64::MAX, 4);
    while let Some(option) = args.get(at) {
        let Some(count) = args.get(at + 1).filter(|_| is_word(option, "count")) else {
            return Err(SYNTAX.into());
        };
        most = u64::try_from(integer(count)?).unwrap_or(0);
        at += 2;
    }
    match find(context, args.at(1))? {
        None => context.out.array(0),
        Some(_) if most == 0 => context.out.null_array(),
        Some((meta, _)) => drop(write_entries(context, &meta, range, most)?),
    }
    Ok(())
}

/// `XRANGE`.
pub(in crate::command) fn xrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, false)
}

/// `XREVRANGE`.
pub(in crate::command) fn xrevrange(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply(context, args, true)
}
