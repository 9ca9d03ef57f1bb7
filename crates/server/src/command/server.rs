//! Commands on the server: what it can do, what time it is there, and its end.

use super::{Context, Done, SYNTAX, is_word};
use crate::{log::Event, resp::Args};

/// The version of Redis whose commands and texts these are.
pub(super) const VERSION: &str = "7.0.15";

/// `TIME`. For a script it stands still.
pub(super) fn time(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let since = context.client.script_began.unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    });
    context.out.array(2);
    context.out.bulk(since.as_secs().to_string().as_bytes());
    context.out.bulk(since.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// `ROLE`: always a master without replicas.
pub(super) fn role(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    context.out.array(3);
    context.out.bulk(b"master");
    context.out.int(0);
    context.out.array(0);
    Ok(())
}

/// `SHUTDOWN`: drains, syncs and ends, whatever its options.
pub(super) fn shutdown(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let known = ["save", "nosave", "now", "force"];
    if !args.iter_from(1).all(|option| known.iter().any(|word| is_word(option, word))) {
        return Err(SYNTAX.into());
    }
    let client = ("client", context.client.info.address.as_str().into());
    context.server.log.write(Event::Stopping, "a client said SHUTDOWN", &[client]);
    context.server.stop();
    context.client.closing = true;
    Ok(())
}
