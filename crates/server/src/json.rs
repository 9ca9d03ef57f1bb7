//! Texts as JSON: for the log and the status page.

use std::fmt::Write;

/// A text as a JSON string, with its quotes.
pub(crate) fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::json_text;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(json_text("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
    }
}
