//! The rows of the commands on HyperLogLogs.

use super::Command;

pub(super) fn hyperloglogs() -> Vec<Command> {
    vec![]
}
