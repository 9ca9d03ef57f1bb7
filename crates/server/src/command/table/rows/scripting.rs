//! The rows of the commands on scripts and functions.

use super::Command;

pub(super) fn scripting() -> Vec<Command> {
    vec![]
}
