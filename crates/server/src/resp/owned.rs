//! A command that outlives the buffer that it arrived in.

use super::parse::{Args, Span};

/// A command's name and arguments, in a buffer of their own.
#[derive(Clone, Debug, Default)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// The arguments in one buffer.
    pub fn new<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut owned = Self::default();
        arguments.for_each(|argument| owned.push(argument));
        owned
    }

    /// Adds an argument.
    pub fn push(&mut self, argument: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(argument);
        self.spans.push(Span::new(start, self.bytes.len()));
    }

    /// Takes all arguments away, and keeps their room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The arguments, as handlers take them.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>()
    }
}
