//! The rows of the commands on serialised values.

use super::Command;

pub(super) fn dump() -> Vec<Command> {
    vec![]
}
