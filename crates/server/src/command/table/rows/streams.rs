//! The rows of the commands on streams.

use super::Command;

pub(super) fn streams() -> Vec<Command> {
    vec![]
}
