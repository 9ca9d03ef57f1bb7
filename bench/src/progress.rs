//! One line on standard error that says what is running and how fast, when that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The progress line. Invisible when standard error is not a terminal.
#[derive(Debug)]
pub struct Progress {
    line: ProgressBar,
    task: String,
}

impl Default for Progress {
    fn default() -> Self {
        let line = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {wide_msg}") {
            line.set_style(style);
        }
        Self { line, task: String::new() }
    }
}

impl Progress {
    /// Says what is done from now on.
    pub fn task(&mut self, task: impl Into<String>) {
        self.task = task.into();
        self.line.set_message(self.task.clone());
        self.line.tick();
    }

    /// Says how much of it is done.
    pub fn rate(&mut self, units: u64, elapsed: Duration, unit: &str) {
        let rate = units as f64 / elapsed.as_secs_f64().max(1e-3);
        self.line.set_message(format!("{}: {:.0}k {unit}", self.task, rate / 1e3));
        self.line.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
