//! The rows of the commands on bits of strings.

use super::Command;

pub(super) fn bitmaps() -> Vec<Command> {
    vec![]
}
