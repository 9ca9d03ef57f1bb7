//! The rows of the commands on places on the earth.

use super::Command;

pub(super) fn geo() -> Vec<Command> {
    vec![]
}
