//! What is wrong with a command before it is run: the errors, as Redis has them.

use std::borrow::Cow;

use crate::{
    command::{self, Command},
    resp::Args,
};

/// The longest key, in bytes: the engine's.
const KEY_BYTES_MAX: usize = 64 << 10;

/// Returns true if the engine could have all keys of a call.
pub(super) fn are_keys_short(command: &Command, args: Args<'_>) -> bool {
    command::keys_of(command, args).all(|key| key.len() <= KEY_BYTES_MAX)
}

/// The error for arguments that are too few or too many, or a part that there is not.
pub(super) fn wrong_arguments(command: &Command, args: Args<'_>) -> Option<String> {
    let mut name = Cow::Borrowed(command.name);
    let mut fits = command.takes(args.len());
    if let Some(word) = args.get(1).filter(|_| !command.parts.is_empty()) {
        let Some((part, arity)) = command.part(word) else {
            let word = String::from_utf8_lossy(word);
            let name = command.name.to_uppercase();
            return Some(format!("ERR unknown subcommand '{word}'. Try {name} HELP."));
        };
        name = format!("{name}|{part}").into();
        fits = command::takes(*arity, args.len());
    }
    (!fits).then(|| format!("ERR wrong number of arguments for '{name}' command"))
}

/// The longest part of an unknown command that is repeated to the client, in bytes.
const REPEATED_BYTES_MAX: usize = 128;

/// The error for a name that no command has.
pub(super) fn unknown_command(args: Args<'_>) -> String {
    let text = |bytes: &[u8], most: usize| {
        String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
    };
    let mut repeated = String::new();
    for argument in args.iter_from(1) {
        if repeated.len() >= REPEATED_BYTES_MAX {
            break;
        }
        repeated += &format!("'{}' ", text(argument, REPEATED_BYTES_MAX - repeated.len()));
    }
    let name = text(args.at(0), REPEATED_BYTES_MAX);
    format!("ERR unknown command '{name}', with args beginning with: {repeated}")
}
