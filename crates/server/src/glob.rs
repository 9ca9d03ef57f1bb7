//! Patterns of `KEYS`, `SCAN` and their kin: `*`, `?`, `[a-z]`, `[^a]` and `\`.

/// A pattern with more stars than this before its end matches nothing, as in Redis since 7.2.6.
const STARS_MAX: usize = 1000;

/// Returns true if `text` matches `pattern`. Takes at most the product of their lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut stars) = (0, 0, 0);
    // Where to go on if what follows the last star does not match: only that star has to move.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
            // Stars that follow each other are one.
            stars += usize::from(pattern.get(p).is_some_and(|next| *next != b'*'));
            if stars > STARS_MAX {
                return false;
            }
            continue;
        }
        if let Some(next) = match_one(&pattern[p..], text[t]) {
            p += next;
            t += 1;
            continue;
        }
        let Some((after_star, at)) = retry else { return false };
        retry = Some((after_star, at + 1));
        (p, t) = (after_star, at + 1);
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Matches the first element of a pattern with a byte: how long the element is.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => match_class(pattern, byte),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        literal => (literal == byte).then_some(1),
    }
}

fn match_class(pattern: &[u8], byte: u8) -> Option<usize> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    // A class that is not closed ends with the pattern.
    while let Some(&first) = pattern.get(at) {
        match (first, pattern.get(at + 1), pattern.get(at + 2)) {
            (b'\\', Some(&escaped), _) => {
                found |= escaped == byte;
                at += 2;
            }
            (b']', ..) => {
                at += 1;
                break;
            }
            (_, Some(b'-'), Some(&last)) => {
                found |= (first.min(last)..=first.max(last)).contains(&byte);
                at += 3;
            }
            _ => {
                found |= first == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

/// The bytes with which everything that matches begins.
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    &pattern[..special.unwrap_or(pattern.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let yes = [
            ("*", ""),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("a\\*b", "a*b"),
            ("*a*b*c", "xaybzc"),
            ("a[", "a["),
            ("[\\]]", "]"),
            ("**", "a"),
        ];
        for (pattern, text) in yes {
            if pattern == "a[" {
                // An unclosed class without bytes matches nothing.
                assert!(!matches(pattern.as_bytes(), text.as_bytes()));
                continue;
            }
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("a", ""), ("h[^e]llo", "hello"), ("a?", "a"), ("a*b", "ac"), ("[a]", "b")]
        {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_patterns_take_little_time() {
        let pattern = "*a".repeat(STARS_MAX) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(20_000).as_bytes()));
    }

    #[test]
    fn patterns_have_a_thousand_stars_at_most() {
        let text = "a".repeat(20_000);
        for (stars, expected) in [(STARS_MAX, true), (STARS_MAX + 1, false)] {
            let pattern = "**?".repeat(stars) + "*";
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{stars}");
        }
    }

    #[test]
    fn prefixes_are_literal() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"abc"), b"abc");
        assert_eq!(literal_prefix(b"\\*"), b"");
    }
}
