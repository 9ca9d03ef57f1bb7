//! Rules: what is wrong with one, and those that come in several words.

/// What is wrong with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    Syntax,
    /// There is no such command or category.
    Unknown,
    /// An argument of a part is not to be allowed by itself.
    OfPart,
    AfterAllKeys,
    AfterAllChannels,
    NoSuchPassword,
    WrongHash,
}

impl RuleError {
    /// Its text.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::Unknown => "Unknown command or category name in ACL",
            Self::OfPart => "Allowing first-arg of a subcommand is not supported",
            Self::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
                 not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            Self::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Self::WrongHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
        }
    }
}

/// Joins the words of each selector: from one that begins with a bracket to one that ends with
/// one.
///
/// # Errors
///
/// The word that begins a selector which does not end.
pub(crate) fn join_selectors<'a>(
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, &'a [u8]> {
    let mut rules = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        if let Some((_, rule)) = &mut open {
            rule.push(b' ');
            rule.extend_from_slice(word);
            if word.ends_with(b")")
                && let Some((_, rule)) = open.take()
            {
                rules.push(rule);
            }
        } else if word.starts_with(b"(") && !word.ends_with(b")") {
            open = Some((word, word.to_vec()));
        } else {
            rules.push(word.to_vec());
        }
    }
    match open {
        Some((start, _)) => Err(start),
        None => Ok(rules),
    }
}
