//! Splits Rust source into code and comments, so that a rule about one never reads the other.
//!
//! A lexer for just that: it knows comments, string and character literals and lifetimes, and
//! nothing of the grammar.

/// Source text taken apart, line for line.
pub(super) struct Masked {
    /// The source with comments and the contents of literals replaced by spaces.
    pub(super) code: Vec<String>,
    /// The text of the comments of each line, empty where there is none.
    pub(super) comments: Vec<String>,
}

impl Masked {
    /// Whether the line has neither code nor literal.
    pub(super) fn has_no_code(&self, line: usize) -> bool {
        self.code[line].trim().is_empty()
    }

    /// Lines from `first` to `last` inclusive that carry code.
    pub(super) fn code_lines(&self, first: usize, last: usize) -> usize {
        (first..=last).filter(|line| !self.has_no_code(*line)).count()
    }
}

/// What the lexer is inside of.
enum State {
    Code,
    LineComment,
    BlockComment {
        depth: u32,
    },
    /// A string literal; `hashes` is `Some` for a raw one.
    Text {
        hashes: Option<usize>,
    },
}

/// Takes `source` apart.
pub(super) fn mask(source: &str) -> Masked {
    let chars: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { chars: &chars, at: 0, code: String::new(), comments: String::new() };
    let mut state = State::Code;
    while lexer.at < chars.len() {
        state = match state {
            State::Code => lexer.code(),
            State::LineComment if chars[lexer.at] == '\n' => lexer.take_code(1, State::Code),
            State::LineComment => lexer.take_comment(1, State::LineComment),
            State::BlockComment { depth } => lexer.block_comment(depth),
            State::Text { hashes } => lexer.text(hashes),
        };
    }
    Masked {
        code: lexer.code.split('\n').map(str::to_owned).collect(),
        comments: lexer.comments.split('\n').map(str::to_owned).collect(),
    }
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
    code: String,
    comments: String,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Copies `n` characters to the code.
    fn take_code(&mut self, n: usize, next: State) -> State {
        for _ in 0..n {
            let Some(c) = self.peek(0) else { break };
            self.code.push(c);
            self.comments.push(if c == '\n' { c } else { ' ' });
            self.at += 1;
        }
        next
    }

    /// Copies `n` characters to the comments.
    fn take_comment(&mut self, n: usize, next: State) -> State {
        for _ in 0..n {
            let Some(c) = self.peek(0) else { break };
            self.comments.push(c);
            self.code.push(if c == '\n' { c } else { ' ' });
            self.at += 1;
        }
        next
    }

    /// Drops `n` characters, which are the contents of a literal.
    fn hide(&mut self, n: usize, next: State) -> State {
        for _ in 0..n {
            let Some(c) = self.peek(0) else { break };
            let shown = if c == '\n' { c } else { ' ' };
            self.code.push(shown);
            self.comments.push(shown);
            self.at += 1;
        }
        next
    }

    fn code(&mut self) -> State {
        match (self.peek(0), self.peek(1)) {
            (Some('/'), Some('/')) => self.take_comment(2, State::LineComment),
            (Some('/'), Some('*')) => self.take_comment(2, State::BlockComment { depth: 1 }),
            (Some('"'), _) => self.take_code(1, State::Text { hashes: None }),
            (Some('r'), Some('"' | '#')) if !self.is_in_word() => self.raw_text(),
            (Some('b' | 'c'), Some('r')) if !self.is_in_word() => {
                self.take_code(1, State::Code);
                self.raw_text()
            }
            (Some('\''), Some('\\')) => {
                self.take_code(1, State::Code);
                self.hide(2, State::Code);
                while !matches!(self.peek(0), None | Some('\'' | '\n')) {
                    self.hide(1, State::Code);
                }
                self.take_code(1, State::Code)
            }
            // A character, where a lifetime has no second quote.
            (Some('\''), Some(_)) if self.peek(2) == Some('\'') => {
                self.take_code(1, State::Code);
                self.hide(1, State::Code);
                self.take_code(1, State::Code)
            }
            _ => self.take_code(1, State::Code),
        }
    }

    fn is_in_word(&self) -> bool {
        self.at > 0 && (self.chars[self.at - 1].is_alphanumeric() || self.chars[self.at - 1] == '_')
    }

    /// At an `r` that may start a raw string.
    fn raw_text(&mut self) -> State {
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        if self.peek(1 + hashes) == Some('"') {
            return self.take_code(2 + hashes, State::Text { hashes: Some(hashes) });
        }
        // A raw identifier, or an `r` before something else.
        self.take_code(1, State::Code)
    }

    fn text(&mut self, hashes: Option<usize>) -> State {
        match (self.peek(0), hashes) {
            (Some('\\'), None) => self.hide(2, State::Text { hashes }),
            (Some('"'), None) => self.take_code(1, State::Code),
            (Some('"'), Some(n)) if (1..=n).all(|ahead| self.peek(ahead) == Some('#')) => {
                self.take_code(1 + n, State::Code)
            }
            _ => self.hide(1, State::Text { hashes }),
        }
    }

    fn block_comment(&mut self, depth: u32) -> State {
        match (self.peek(0), self.peek(1)) {
            (Some('/'), Some('*')) => {
                self.take_comment(2, State::BlockComment { depth: depth + 1 })
            }
            (Some('*'), Some('/')) if depth == 1 => self.take_comment(2, State::Code),
            (Some('*'), Some('/')) => {
                self.take_comment(2, State::BlockComment { depth: depth - 1 })
            }
            _ => self.take_comment(1, State::BlockComment { depth }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn comments_and_literals_leave_the_code() {
        let masked =
            mask("let a = \"x // { \\\" y\"; // note {\nlet b = r#\"}\"#; /* a /* b */ c */ d");
        assert_eq!(masked.code[0].trim_end(), "let a = \"           \";");
        assert_eq!(masked.comments[0].trim(), "// note {");
        assert!(masked.code[1].ends_with(" d") && !masked.code[1].contains('}'));
        assert_eq!(masked.comments[1].trim(), "/* a /* b */ c */");
    }

    #[test]
    fn characters_are_literals_and_lifetimes_are_not() {
        let masked = mask("f('{', '\\'', '\\u{7b}', b'{'); fn g<'a>(x: &'a str) {}");
        let braces = masked.code[0].matches('{').count();
        assert_eq!(braces, 1, "{}", masked.code[0]);
        assert!(masked.code[0].contains("<'a>(x: &'a str)"));
    }

    #[test]
    fn lines_are_kept() {
        let source = "\"a\nb\"\n/* c\nd */\ne";
        let masked = mask(source);
        assert_eq!(masked.code.len(), 5);
        assert_eq!(masked.comments.len(), 5);
        assert!(masked.has_no_code(3) && !masked.has_no_code(4));
        assert_eq!(masked.code_lines(0, 4), 3);
    }
}
