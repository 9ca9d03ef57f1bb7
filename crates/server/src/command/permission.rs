//! Whether a client's user may run a command: asked before each, however it is run.

use super::{COMMANDS, Client, Command, access, connection::describe_client};
use crate::{
    acl::{Denial, Denied, Place, Reason, User},
    db::now_ms,
    resp::Args,
    server::Server,
};

/// A call of a command, or of one of its parts, with its slot.
pub(crate) type Slotted<'a> = (&'static Command, usize, Args<'a>);

/// Checks a call for a user.
pub(crate) fn check(user: &User, (command, slot, args): Slotted<'_>) -> Result<(), Denied> {
    user.check(&access::asked(command, slot, args))
}

/// Returns true if a user that is limited, if it is, may run the command at `index`.
#[inline]
pub(crate) fn permits(limited: Option<&User>, index: usize, args: Args<'_>) -> bool {
    limited.is_none_or(|user| {
        check(user, (COMMANDS.at(index), COMMANDS.slot(index, args), args)).is_ok()
    })
}

/// Returns true if a user may read every key, beside what else a call needs.
pub(super) fn reads_every_key(user: &User, (command, slot, args): Slotted<'_>) -> bool {
    let mut asked = access::asked(command, slot, args);
    asked.other_keys = Some(crate::acl::Access::READ);
    user.check(&asked).is_ok()
}

/// Why a call is denied to a user, as it is told.
pub(super) fn text(
    user: &User,
    denied: Denied,
    (_, slot, args): Slotted<'_>,
    in_full: bool,
) -> String {
    let name = String::from_utf8_lossy(&user.name);
    let object = String::from_utf8_lossy(args.get(denied.at).unwrap_or_default());
    match denied.reason {
        Reason::Command | Reason::Auth => {
            let command = COMMANDS.name(slot);
            format!("User {name} has no permissions to run the '{command}' command")
        }
        Reason::Key if in_full => {
            format!("User {name} has no permissions to access the '{object}' key")
        }
        Reason::Channel if in_full => {
            format!("User {name} has no permissions to access the '{object}' channel")
        }
        Reason::Key => "No permissions to access a key".to_owned(),
        Reason::Channel => "No permissions to access a channel".to_owned(),
    }
}

/// A call that was denied: why, and the text for the client.
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

/// Checks a call for a client. What is denied is logged and counted.
#[inline]
pub(crate) fn refusal(
    server: &Server,
    client: &Client,
    call: Slotted<'_>,
    place: Place,
) -> Option<Refusal> {
    if client.user.is_unlimited() { None } else { refusal_of_limited(server, client, call, place) }
}

fn refusal_of_limited(
    server: &Server,
    client: &Client,
    call: Slotted<'_>,
    place: Place,
) -> Option<Refusal> {
    let user = client.user.user();
    let denied = check(&user, call).err()?;
    let (_, slot, args) = call;
    let object = match denied.reason {
        Reason::Command => COMMANDS.name(slot).as_bytes(),
        _ => args.get(denied.at).unwrap_or_default(),
    };
    let denial =
        Denial { reason: denied.reason, place, object: object.to_vec(), user: user.name.clone() };
    note(server, client, denial);
    Some(Refusal { reason: denied.reason, text: text(&user, denied, call, false) })
}

/// Logs and counts a denial.
pub(super) fn note(server: &Server, client: &Client, denial: Denial) {
    server.acl.count(denial.reason);
    // A script has a client of its own, of the same number as the one that runs it.
    let info = server.clients.get(client.info.id);
    let info = info.as_ref().unwrap_or(&client.info);
    server.acl.log.note(denial, describe_client(info), now_ms());
}
