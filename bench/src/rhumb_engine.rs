//! Rhumb as a subject.

use crate::subject::Engine;

/// Rhumb's subjects.
pub static ALL: [&dyn Engine; 0] = [];
