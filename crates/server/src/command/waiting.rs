//! `WAIT`, `WAITAOF`, and the parts of `CLIENT` that have clients wait or go on.

use std::time::Duration;

use super::{Context, Done, SYNTAX, arguments::timeout_ms, integer, is_word};
use crate::{
    encode::Kind,
    fault::{Fault, Wait},
    resp::{Args, Reply},
};

/// A wait for replicas, of which there are none: only the time ends it.
fn wait_in_vain(timeout: Option<Duration>, on_timeout: fn(&mut Reply)) -> Fault {
    Wait::new((Vec::new(), Kind::String), timeout, on_timeout).into()
}

/// `WAIT`.
pub(super) fn wait(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let timeout = timeout_ms(args.at(2))?;
    let replicas = integer(args.at(1))?;
    if replicas > 0 && !context.in_exec {
        return Err(wait_in_vain(timeout, |out| out.int(0)));
    }
    context.out.int(0);
    Ok(())
}

/// `WAITAOF`: the log of this server is synced here; there are no replicas.
pub(super) fn waitaof(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let count = |at: usize, most: i64| match integer(args.at(at)) {
        Ok(count) if (0..=most).contains(&count) => Ok(count),
        _ => Err(Fault::from("ERR value is out of range, must be positive")),
    };
    let (local, replicas) = (count(1, 1)?, count(2, i64::MAX)?);
    let timeout = timeout_ms(args.at(3))?;
    if local > 0 {
        // A pending write of this transaction is not among what is synced.
        context.server.databases.sync()?;
    }
    let reply = |out: &mut Reply| {
        out.array(2);
        out.int(1);
        out.int(0);
    };
    if replicas > 0 && !context.in_exec {
        return Err(wait_in_vain(timeout, reply));
    }
    reply(context.out);
    Ok(())
}

/// `CLIENT UNBLOCK`.
pub(super) fn unblock(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let id = integer(args.at(2))?;
    let with_error = match args.get(3) {
        None => false,
        Some(how) if is_word(how, "timeout") => false,
        Some(how) if is_word(how, "error") => true,
        Some(_) => {
            return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
        }
    };
    let all = context.server.clients.all();
    let info = all.iter().find(|info| i64::try_from(info.id) == Ok(id));
    let waiter = info.and_then(|info| info.waiter.lock().clone());
    context.out.int(waiter.is_some().into());
    if let Some(waiter) = waiter {
        waiter.unblock(with_error);
    }
    Ok(())
}

/// `CLIENT PAUSE`.
pub(super) fn pause(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let all = match args.get(3) {
        None => true,
        Some(which) if is_word(which, "all") => true,
        Some(which) if is_word(which, "write") => false,
        Some(_) => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
    };
    if args.len() > 4 {
        return Err(SYNTAX.into());
    }
    let ms = integer(args.at(2)).map_err(|_| "ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    context.server.pause.begin(Duration::from_millis(ms), all);
    context.out.ok();
    Ok(())
}

/// `CLIENT UNPAUSE`.
pub(super) fn unpause(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    context.server.pause.end();
    context.out.ok();
    Ok(())
}
