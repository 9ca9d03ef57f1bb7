//! Patterns of Lua 5.1: the matching, which asks again and again whether it is to end.
//!
//! The interpreter's own matching goes back and forth without a limit within one call.

/// Steps between two questions whether to go on: some ten microseconds' worth.
const LOOK_STEPS: u32 = 1024;

/// How deep a pattern may be nested, its quantifiers included, before it is refused: each level
/// takes some of the thread's stack.
const DEPTH_MAX: u32 = 200;

/// How many captures a pattern may have (`LUA_MAXCAPTURES` of Lua 5.1).
const CAPTURES_MAX: usize = 32;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The pattern is wrong.
    Text(&'static str),
    /// The script is to end.
    Ended,
}

/// What a capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Its end is not reached yet.
    Open,
    /// The place itself.
    Place,
    /// This number of bytes.
    Bytes(usize),
}

/// A capture: where it begins, and what it holds.
pub(super) type Capture = (usize, Held);

type Found = Result<Option<usize>, Failure>;

/// A pattern that is matched with a subject.
pub(super) struct Matcher<'a, G> {
    subject: &'a [u8],
    pattern: &'a [u8],
    pub(super) captures: Vec<Capture>,
    depth: u32,
    steps: u32,
    /// Returns false if the script is to end.
    go_on: G,
}

impl<'a, G: FnMut() -> bool> Matcher<'a, G> {
    pub(super) fn new(subject: &'a [u8], pattern: &'a [u8], go_on: G) -> Self {
        Self { subject, pattern, captures: Vec::new(), depth: 0, steps: 0, go_on }
    }

    /// The end of the match that begins at `at`, if there is one.
    pub(super) fn match_at(&mut self, at: usize) -> Found {
        self.captures.clear();
        self.depth = 0;
        self.nested(at, 0)
    }

    /// The first match from `from` on, or there if the pattern `is_anchored`: its two ends.
    pub(super) fn search(
        &mut self,
        from: usize,
        is_anchored: bool,
    ) -> Result<Option<(usize, usize)>, Failure> {
        for at in from..=self.subject.len() {
            if let Some(end) = self.match_at(at)? {
                return Ok(Some((at, end)));
            }
            if is_anchored {
                break;
            }
        }
        Ok(None)
    }

    fn step(&mut self, steps: usize) -> Result<(), Failure> {
        self.steps += steps as u32;
        if self.steps < LOOK_STEPS {
            return Ok(());
        }
        self.steps = 0;
        if (self.go_on)() { Ok(()) } else { Err(Failure::Ended) }
    }

    fn nested(&mut self, at: usize, item: usize) -> Found {
        if self.depth == DEPTH_MAX {
            return Err(Failure::Text("pattern too complex"));
        }
        self.depth += 1;
        let found = self.match_item(at, item);
        self.depth -= 1;
        found
    }

    fn match_item(&mut self, mut at: usize, mut item: usize) -> Found {
        loop {
            self.step(1)?;
            let Some(byte) = self.pattern.get(item) else { return Ok(Some(at)) };
            match (byte, self.pattern.get(item + 1)) {
                (b'(', Some(b')')) => return self.capture((at, Held::Place), (at, item + 2)),
                (b'(', _) => return self.capture((at, Held::Open), (at, item + 1)),
                (b')', _) => return self.close(at, item + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => {
                    let Some(end) = self.balance(at, item + 2)? else { return Ok(None) };
                    (at, item) = (end, item + 4);
                    continue;
                }
                (b'%', Some(b'f')) => {
                    let Some(end) = self.frontier(at, item + 2)? else { return Ok(None) };
                    item = end;
                    continue;
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => {
                    let Some(end) = self.again(at, *digit)? else { return Ok(None) };
                    (at, item) = (end, item + 2);
                    continue;
                }
                _ => {}
            }
            let end = self.item_end(item)?;
            let fits = self.fits(at, item, end)?;
            match self.pattern.get(end) {
                Some(b'?') => {
                    if fits && let Some(found) = self.nested(at + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    item = end + 1;
                }
                Some(b'*') => return self.most(at, (item, end)),
                Some(b'+') if fits => return self.most(at + 1, (item, end)),
                Some(b'-') => return self.least(at, (item, end)),
                None | Some(_) if fits && self.pattern.get(end) != Some(&b'+') => {
                    (at, item) = (at + 1, end);
                }
                _ => return Ok(None),
            }
        }
    }

    /// As much as fits, and less until the rest matches.
    fn most(&mut self, at: usize, (item, end): (usize, usize)) -> Found {
        let mut count = 0;
        while self.fits(at + count, item, end)? {
            count += 1;
        }
        for count in (0..=count).rev() {
            if let Some(found) = self.nested(at + count, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// As little as suffices for the rest to match.
    fn least(&mut self, mut at: usize, (item, end): (usize, usize)) -> Found {
        loop {
            if let Some(found) = self.nested(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(at, item, end)? {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn capture(&mut self, capture: Capture, (at, item): (usize, usize)) -> Found {
        let level = self.captures.len();
        if level == CAPTURES_MAX {
            return Err(Failure::Text("too many captures"));
        }
        self.captures.push(capture);
        let found = self.nested(at, item)?;
        if found.is_none() {
            self.captures.truncate(level);
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, item: usize) -> Found {
        let open = self.captures.iter().rposition(|(_, held)| *held == Held::Open);
        let open = open.ok_or(Failure::Text("invalid pattern capture"))?;
        self.captures[open].1 = Held::Bytes(at - self.captures[open].0);
        let found = self.nested(at, item)?;
        if found.is_none() {
            self.captures[open].1 = Held::Open;
        }
        Ok(found)
    }

    /// `%bxy`: the end of what the two bytes at `item` enclose.
    fn balance(&mut self, at: usize, item: usize) -> Found {
        let &[open, close] = self.pattern.get(item..item + 2).unwrap_or_default() else {
            return Err(Failure::Text("unbalanced pattern"));
        };
        let rest = self.subject.get(at..).unwrap_or_default();
        if rest.first() != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (len, byte) in rest.iter().enumerate().skip(1) {
            self.step(1)?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + len + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: the end of the set, if the place is between what is not in it and what is.
    fn frontier(&mut self, at: usize, item: usize) -> Found {
        if self.pattern.get(item) != Some(&b'[') {
            return Err(Failure::Text("missing '[' after '%f' in pattern"));
        }
        let end = self.item_end(item)?;
        self.step((end - item) / 8)?;
        let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
        let after = self.subject.get(at).copied().unwrap_or(0);
        let set = &self.pattern[item + 1..end - 1];
        Ok((!in_set(before, set) && in_set(after, set)).then_some(end))
    }

    /// `%1` to `%9`: the end of the capture's bytes, if they come again.
    fn again(&mut self, at: usize, digit: u8) -> Found {
        let invalid = Failure::Text("invalid capture index");
        let index = usize::from(digit).checked_sub(usize::from(b'1')).ok_or(invalid)?;
        let (from, held) = *self.captures.get(index).ok_or(invalid)?;
        match held {
            Held::Open => Err(invalid),
            Held::Place => Ok(None),
            Held::Bytes(len) => {
                self.step(len / 8)?;
                let bytes = &self.subject[from..from + len];
                let rest = self.subject.get(at..).unwrap_or_default();
                Ok(rest.starts_with(bytes).then_some(at + len))
            }
        }
    }

    /// Where the item ends that stands for one byte.
    fn item_end(&self, item: usize) -> Result<usize, Failure> {
        let pattern = self.pattern;
        match pattern[item] {
            b'%' if item + 1 == pattern.len() => {
                Err(Failure::Text("malformed pattern (ends with '%')"))
            }
            b'%' => Ok(item + 2),
            b'[' => {
                let mut at = item + 1;
                at += usize::from(pattern.get(at) == Some(&b'^'));
                // The first byte belongs to the set, even if it is a bracket.
                let first = at;
                while at < pattern.len() && (at == first || pattern[at] != b']') {
                    at += if pattern[at] == b'%' { 2 } else { 1 };
                }
                if at < pattern.len() {
                    Ok(at + 1)
                } else {
                    Err(Failure::Text("malformed pattern (missing ']')"))
                }
            }
            _ => Ok(item + 1),
        }
    }

    /// Returns true if the item fits the byte at `at`.
    fn fits(&mut self, at: usize, item: usize, end: usize) -> Result<bool, Failure> {
        self.step(1 + (end - item) / 8)?;
        let Some(byte) = self.subject.get(at) else { return Ok(false) };
        Ok(match self.pattern[item] {
            b'.' => true,
            b'%' => in_class(*byte, self.pattern[item + 1]),
            b'[' => in_set(*byte, &self.pattern[item + 1..end - 1]),
            other => other == *byte,
        })
    }
}

/// Returns true if a byte is of the class that a letter after `%` names, or is that byte.
fn in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is_in != class.is_ascii_uppercase()
}

/// Returns true if a byte is in a set, whose brackets are not part of it.
fn in_set(byte: u8, set: &[u8]) -> bool {
    let (is_negated, mut rest) = match set {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    loop {
        let (is_in, after) = match rest {
            [] => return is_negated,
            [b'%', class, after @ ..] => (in_class(byte, *class), after),
            [first, b'-', last, after @ ..] => ((*first..=*last).contains(&byte), after),
            [one, after @ ..] => (*one == byte, after),
        };
        if is_in {
            return !is_negated;
        }
        rest = after;
    }
}

/// The first place from `from` on where `needle` is.
pub(super) fn find_plain(
    subject: &[u8],
    needle: &[u8],
    from: usize,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<usize>, Failure> {
    let mut steps = 0;
    let Some(last) = subject.len().checked_sub(needle.len()) else { return Ok(None) };
    for at in from..=last {
        let same = subject[at..].iter().zip(needle).take_while(|(a, b)| a == b).count();
        if same == needle.len() {
            return Ok(Some(at));
        }
        steps += 1 + same / 8;
        if steps >= LOOK_STEPS as usize {
            steps = 0;
            if !go_on() {
                return Err(Failure::Ended);
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(subject: &str, pattern: &str) -> Result<Option<(usize, usize)>, Failure> {
        Matcher::new(subject.as_bytes(), pattern.as_bytes(), || true).search(0, false)
    }

    #[test]
    fn patterns_match_as_those_of_lua() {
        for (subject, pattern, expected) in [
            ("hello world", "o w", Some((4, 7))),
            ("hello", "l+", Some((2, 4))),
            ("hello", "l-o", Some((2, 5))),
            ("key = value", "(%w+)%s*=%s*(%w+)", Some((0, 11))),
            ("f(a(b)c)d", "%b()", Some((1, 8))),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some((0, 3))),
            ("abcabc", "(abc)%1", Some((0, 6))),
            ("a]b", "[]]", Some((1, 2))),
            ("a-b", "[a%-]+", Some((0, 2))),
            ("x", "[^%s]", Some((0, 1))),
            ("10:20", "^%d+:%d+$", None),
            ("10:20", "%d+:%d+$", Some((0, 5))),
            ("ab", "a?b?c?", Some((0, 2))),
            ("abc", "x*", Some((0, 0))),
            ("", ".", None),
        ] {
            assert_eq!(find(subject, pattern), Ok(expected), "{subject} {pattern}");
        }
        for wrong in ["%", "[a", "(", "a)", "%1", "%b(", "%fa", "[%"] {
            let found = find("aaa", wrong);
            // An open capture is an error only where the capture is asked for.
            assert!(matches!(found, Err(Failure::Text(_))) || wrong == "(", "{wrong}: {found:?}");
        }
    }

    #[test]
    fn what_goes_back_and_forth_is_ended() {
        let (subject, pattern) = (vec![b'a'; 5000], b".-.-.-.-.-.-.-b");
        let mut looks = 0;
        let mut matcher = Matcher::new(&subject, pattern, || {
            looks += 1;
            looks < 100
        });
        assert_eq!(matcher.search(0, false), Err(Failure::Ended));
        let needle = [&[b'a'; 2000][..], b"b"].concat();
        assert_eq!(find_plain(&subject, &needle, 0, || false), Err(Failure::Ended));
        assert_eq!(find_plain(b"aab", b"ab", 0, || true), Ok(Some(1)));
        let deep = b"a?".repeat(300);
        let mut matcher = Matcher::new(&subject, &deep, || true);
        assert_eq!(matcher.search(0, false), Err(Failure::Text("pattern too complex")));
    }
}
