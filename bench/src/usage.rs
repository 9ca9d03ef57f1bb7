//! What is wrong with a command line, told apart from what goes wrong while it is measured.

use std::fmt;

/// An option that is out of range or names what there is not. Nothing was measured.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Turns the error of a check of options into [`Usage`].
///
/// # Errors
/// If `checked` is one.
pub fn usage<T>(checked: anyhow::Result<T>) -> anyhow::Result<T> {
    checked.map_err(|error| Usage(format!("{error:#}")).into())
}
