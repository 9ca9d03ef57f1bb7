//! `SYNC`, `PSYNC` and `REPLCONF`: what programs send that take a copy of all data as a replica
//! does it. There is no replication: they get the copy, and no writes after it.

use super::{Context, Done, SYNTAX, is_word};
use crate::{
    copies::{Copies, Ending, Wanted},
    fault::Fault,
    resp::Args,
};

/// `REPLCONF`.
pub(super) fn replconf(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let mut follower = context.client.follower;
    for at in (1..args.len()).step_by(2) {
        let (option, value) = (args.at(at), args.at(at + 1));
        if is_word(option, "ack") || is_word(option, "getack") {
            // How far a replica is: nobody waits for a reply.
            return Ok(());
        } else if is_word(option, "capa") {
            follower.takes_marks |= is_word(value, "eof");
        } else if is_word(option, "rdb-only") {
            follower.copy_only = super::integer(value)? != 0;
        } else if is_word(option, "listening-port") {
            follower.is_server = true;
        } else if is_word(option, "rdb-filter-only") {
            if !value.is_empty() {
                return Err("ERR a copy has all data: RDB-FILTER-ONLY takes no names".into());
            }
        } else if !is_word(option, "ip-address") {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Unrecognized REPLCONF option: {option}").into());
        }
    }
    context.client.follower = follower;
    context.out.ok();
    Ok(())
}

/// Has a copy sent after the replies.
fn want(context: &mut Context<'_, '_>) -> Result<(), Fault> {
    let follower = context.client.follower;
    if follower.is_server && !follower.copy_only {
        // A server would take itself for a replica, and give old data.
        return Err(
            "ERR replication is not supported: only a copy is sent, to programs that take \
                    it as one"
                .into(),
        );
    }
    let permit = Copies::begin(&context.server.copies);
    let permit = permit.ok_or("ERR too many copies of the data are being sent")?;
    let ending = if follower.takes_marks {
        let random = &mut context.server.random();
        let mark: String = (0..3).map(|_| format!("{:016x}", random.next())).collect();
        Ending::Mark(mark[..40].to_owned())
    } else {
        Ending::Length
    };
    context.client.wanted_copy = Some(Wanted { ending, permit });
    context.client.closing = true;
    Ok(())
}

/// `SYNC`.
pub(super) fn sync(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    want(context)
}

/// `PSYNC`: whatever is asked for, the whole copy is sent.
pub(super) fn psync(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    super::integer(args.at(2))?;
    want(context)?;
    let run_id = &context.server.run_id;
    context.out.simple(&format!("FULLRESYNC {run_id} 0"));
    Ok(())
}
