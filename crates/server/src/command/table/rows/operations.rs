//! The rows of the commands for operators.

use super::Command;

pub(super) fn operations() -> Vec<Command> {
    vec![]
}
