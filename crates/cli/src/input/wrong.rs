//! What a record can have wrong with it, and where.

use std::fmt;

/// The kinds of records that are no entries. `load --lenient` counts each kind by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The key is empty, and nobody asked for such a key.
    EmptyKey,
    /// A row with more or fewer columns than the others.
    Width,
    /// A quote where CSV has none, or none where it needs one.
    Quote,
    /// A backslash before what TSV does not know, or a bare carriage return.
    Escape,
    /// Bytes that are not UTF-8 where only text can be.
    Encoding,
    /// A NUL byte in text.
    Nul,
    /// A key or value that is not written in its form: no number, no hexadecimal digits.
    Form,
    /// A key, a value or a line longer than its limit.
    Length,
    /// A line that is no JSON object.
    Json,
    /// An object without the field of the key or the value, or with fields that it must not have.
    Field,
    /// An object that names a field twice.
    Repeated,
    /// The whole input, not one record: it cannot be read on.
    Input,
}

impl Kind {
    /// The name of one record of this kind, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EmptyKey => "empty key",
            Self::Width => "row of another width",
            Self::Quote => "misplaced quote",
            Self::Escape => "unknown escape",
            Self::Encoding => "text that is not UTF-8",
            Self::Nul => "NUL byte",
            Self::Form => "key or value not in its form",
            Self::Length => "key, value or line too long",
            Self::Json => "line that is not a JSON object",
            Self::Field => "missing or unexpected field",
            Self::Repeated => "repeated field",
            Self::Input => "unreadable input",
        }
    }

    /// The name of the kind in JSON.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::EmptyKey => "empty_key",
            Self::Width => "width",
            Self::Quote => "quote",
            Self::Escape => "escape",
            Self::Encoding => "encoding",
            Self::Nul => "nul",
            Self::Form => "form",
            Self::Length => "length",
            Self::Json => "json",
            Self::Field => "field",
            Self::Repeated => "repeated",
            Self::Input => "input",
        }
    }
}

/// A record that is no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) kind: Kind,
    /// Line on which the record starts, from 1; none if it is not about one record.
    pub(crate) line: Option<u64>,
    what: String,
    /// True if nothing after it can be read either.
    pub(crate) is_final: bool,
}

impl Wrong {
    /// A record of `kind`, of which `what` is wrong.
    pub(crate) fn new(kind: Kind, what: impl fmt::Display) -> Self {
        Self { kind, line: None, what: what.to_string(), is_final: false }
    }

    /// The end of reading: `what` is wrong with the whole input.
    pub(crate) fn input(what: impl fmt::Display) -> Self {
        Self { is_final: true, ..Self::new(Kind::Input, what) }
    }

    /// The same, on this line, unless it has one.
    pub(crate) fn at(self, line: u64) -> Self {
        Self { line: self.line.or(Some(line)), ..self }
    }

    /// The same, after which nothing can be read.
    pub(crate) fn ending(self) -> Self {
        Self { is_final: true, ..self }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.what)
    }
}
