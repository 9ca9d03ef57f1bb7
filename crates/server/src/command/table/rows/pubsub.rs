//! The rows of the commands on messages.

use super::Command;

pub(super) fn pubsub() -> Vec<Command> {
    vec![]
}
