//! A selector: commands, keys and channels that are allowed together.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    catalog::{Catalog, category},
    rules::RuleError,
};
use crate::{glob, resp::Args};

/// What is done with a key: bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    /// Neither: that it is there is seen, or its type. Any permission is enough.
    pub(crate) const NONE: Self = Self(0);
    /// What it holds is seen.
    pub(crate) const READ: Self = Self(1);
    /// What it holds is changed.
    pub(crate) const WRITE: Self = Self(2);
    /// Both.
    pub(crate) const BOTH: Self = Self(3);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Keys that are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    access: Access,
}

impl KeyPattern {
    /// As a rule.
    fn text(&self) -> Vec<u8> {
        let start: &[u8] = match self.access {
            Access::READ => b"%R~",
            Access::WRITE => b"%W~",
            _ => b"~",
        };
        [start, &self.pattern].concat()
    }

    /// The pattern of a rule that begins with `~` or `%`.
    fn parse(rule: &[u8]) -> Result<Self, RuleError> {
        let (mut access, mut at) = (Access(0), 1);
        if rule[0] == b'~' {
            access = Access::BOTH;
        }
        while let Some(letter) = rule.get(at).filter(|_| rule[0] == b'%') {
            at += 1;
            let one = match letter {
                b'R' | b'r' if !access.has(Access::READ) => Access::READ,
                b'W' | b'w' if !access.has(Access::WRITE) => Access::WRITE,
                b'~' if access != Access::NONE => break,
                _ => return Err(RuleError::Syntax),
            };
            access = Access(access.0 | one.0);
        }
        if access == Access::NONE || has_spaces(&rule[at..]) {
            return Err(RuleError::Syntax);
        }
        Ok(Self { pattern: rule[at..].to_vec(), access })
    }
}

/// Returns true if a name or a pattern has what would end it in a file of users.
pub(crate) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || [0, 0x0b].contains(byte))
}

/// Why a call is denied, the least reason first: of several selectors the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Command,
    Key,
    Auth,
    Channel,
}

impl Reason {
    /// Its name in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Auth => "auth",
            Self::Channel => "channel",
        }
    }
}

/// A call that is denied, and the place of the argument that it is denied for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denied {
    pub(crate) reason: Reason,
    pub(crate) at: usize,
}

/// What is asked for: a call of a command with its keys and channels.
#[derive(Clone)]
pub(crate) struct Asked<'a, K> {
    /// The slot of the command, or of its part.
    pub(crate) slot: usize,
    pub(crate) args: Args<'a>,
    /// True if everybody may run it, such as `AUTH`.
    pub(crate) is_free: bool,
    /// The places of its keys, and what is done with each.
    pub(crate) keys: K,
    /// What is done with keys that its arguments do not name, if there are such.
    pub(crate) other_keys: Option<Access>,
    /// The places of its channels.
    pub(crate) channels: std::ops::Range<usize>,
    /// True if those are patterns.
    pub(crate) are_patterns: bool,
}

/// Commands, keys and channels that are allowed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    /// The patterns of keys; none for all keys.
    keys: Option<Vec<KeyPattern>>,
    /// The patterns of channels; none for all channels.
    channels: Option<Vec<Vec<u8>>>,
    /// A bit for each slot.
    commands: Vec<u64>,
    /// First arguments with which a command may be run that may not be run otherwise.
    first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    /// True if the rules of commands begin with all commands.
    begins_with_all: bool,
    /// The rules of commands that came after, each with whether it allows.
    rules: Vec<(bool, Vec<u8>)>,
}

impl Selector {
    /// Without any permission.
    pub(crate) fn new(catalog: &Catalog) -> Self {
        Self {
            keys: Some(Vec::new()),
            channels: Some(Vec::new()),
            commands: vec![0; catalog.len().div_ceil(64)],
            first_arguments: BTreeMap::new(),
            begins_with_all: false,
            rules: Vec::new(),
        }
    }

    fn allows(&self, slot: usize) -> bool {
        self.commands.get(slot / 64).is_some_and(|bits| bits & 1 << (slot % 64) != 0)
    }

    /// Returns true if nothing is denied.
    pub(crate) fn is_unlimited(&self, catalog: &Catalog) -> bool {
        self.keys.is_none()
            && self.channels.is_none()
            && (0..catalog.len()).all(|slot| self.allows(slot))
    }

    /// Allows all channels.
    pub(crate) fn allow_channels(&mut self) {
        self.channels = None;
    }

    /// Returns true if all channels are allowed.
    pub(crate) fn allows_channels(&self) -> bool {
        self.channels.is_none()
    }

    fn set_slot(&mut self, catalog: &Catalog, slot: usize, allow: bool) {
        let parts = catalog.slot(slot).parts.clone();
        for slot in std::iter::once(slot).chain(parts) {
            let bit = 1 << (slot % 64);
            if allow {
                self.commands[slot / 64] |= bit;
            } else {
                self.commands[slot / 64] &= !bit;
            }
            self.first_arguments.remove(&slot);
        }
    }

    fn set_all(&mut self, allow: bool) {
        self.commands.fill(if allow { u64::MAX } else { 0 });
        self.first_arguments.clear();
        self.begins_with_all = allow;
        self.rules.clear();
    }

    /// Remembers a rule of commands in the place of those that it makes void.
    fn remember(&mut self, allow: bool, rule: &[u8]) {
        let rule = rule.to_ascii_lowercase();
        let is_void = |other: &[u8]| {
            other.strip_prefix(&rule[..]).is_some_and(|rest| rest.is_empty() || rest[0] == b'|')
        };
        self.rules.retain(|(_, other)| !is_void(other));
        self.rules.push((allow, rule));
    }

    /// Applies a rule of commands, without its sign.
    fn set_command(
        &mut self,
        catalog: &Catalog,
        allow: bool,
        rule: &[u8],
    ) -> Result<(), RuleError> {
        if let Some(name) = rule.strip_prefix(b"@") {
            if name.eq_ignore_ascii_case(b"all") {
                self.set_all(allow);
                return Ok(());
            }
            let category = category(name).ok_or(RuleError::Unknown)?;
            for slot in (0..catalog.len()).filter(|slot| !catalog.slot(*slot).is_part()) {
                let parts = catalog.slot(slot).parts.clone();
                for one in std::iter::once(slot).chain(parts) {
                    if catalog.slot(one).is_in(category) {
                        self.set_slot(catalog, one, allow);
                    }
                }
            }
        } else if let Some(bar) = rule.iter().rposition(|byte| *byte == b'|').filter(|_| allow) {
            let slot = catalog.find(&rule[..bar]).ok_or(RuleError::Unknown)?;
            if catalog.slot(slot).is_part() {
                return Err(RuleError::OfPart);
            }
            let word = &rule[bar + 1..];
            if word.is_empty() {
                return Err(RuleError::Syntax);
            }
            if catalog.slot(slot).parts.is_empty() {
                let words = self.first_arguments.entry(slot).or_default();
                if !words.iter().any(|known| known.eq_ignore_ascii_case(word)) {
                    words.push(word.to_vec());
                }
            } else {
                let part = catalog.find(rule).ok_or(RuleError::Unknown)?;
                self.set_slot(catalog, part, true);
            }
        } else {
            let slot = catalog.find(rule).ok_or(RuleError::Unknown)?;
            self.set_slot(catalog, slot, allow);
        }
        self.remember(allow, rule);
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let patterns = self.keys.as_mut().ok_or(RuleError::AfterAllKeys)?;
        let new = KeyPattern::parse(rule)?;
        match patterns.iter_mut().find(|known| known.pattern == new.pattern) {
            Some(known) => known.access = Access(known.access.0 | new.access.0),
            None => patterns.push(new),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let patterns = self.channels.as_mut().ok_or(RuleError::AfterAllChannels)?;
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !patterns.iter().any(|known| known == pattern) {
            patterns.push(pattern.to_vec());
        }
        Ok(())
    }

    /// Applies a rule.
    pub(crate) fn apply(&mut self, catalog: &Catalog, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if is("allkeys") || is("~*") {
            self.keys = None;
        } else if is("resetkeys") {
            self.keys = Some(Vec::new());
        } else if is("allchannels") || is("&*") {
            self.channels = None;
        } else if is("resetchannels") {
            self.channels = Some(Vec::new());
        } else if is("allcommands") {
            self.set_all(true);
        } else if is("nocommands") {
            self.set_all(false);
        } else {
            match rule.first() {
                Some(b'~' | b'%') => self.add_keys(rule)?,
                Some(b'&') => self.add_channels(&rule[1..])?,
                Some(b'+') => self.set_command(catalog, true, &rule[1..])?,
                Some(b'-') => self.set_command(catalog, false, &rule[1..])?,
                _ => return Err(RuleError::Syntax),
            }
        }
        Ok(())
    }

    /// The rules of commands, from which the selector can be made again.
    pub(crate) fn command_rules(&self) -> Vec<u8> {
        let mut text = if self.begins_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for (allow, rule) in &self.rules {
            text.extend_from_slice(if *allow { b" +" } else { b" -" });
            text.extend_from_slice(rule);
        }
        text
    }

    /// The rules of keys.
    pub(crate) fn key_rules(&self) -> Vec<u8> {
        let Some(patterns) = &self.keys else { return b"~*".to_vec() };
        let all: Vec<Vec<u8>> = patterns.iter().map(KeyPattern::text).collect();
        all.join(&b' ')
    }

    /// The rules of channels.
    pub(crate) fn channel_rules(&self) -> Vec<u8> {
        let Some(patterns) = &self.channels else { return b"&*".to_vec() };
        let all: Vec<Vec<u8>> = patterns.iter().map(|one| [b"&", &one[..]].concat()).collect();
        all.join(&b' ')
    }

    /// All rules, in the order in which Redis gives them.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let channels = self.channel_rules();
        let reset: &[u8] = if self.channels.is_some() { b"resetchannels" } else { b"" };
        let parts = [Cow::from(self.key_rules()), reset.into(), channels.into()];
        let mut text = Vec::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            text.extend_from_slice(part);
            text.push(b' ');
        }
        text.extend_from_slice(&self.command_rules());
        text
    }

    fn allows_command<K>(&self, asked: &Asked<'_, K>) -> bool {
        asked.is_free
            || self.allows(asked.slot)
            || self.first_arguments.get(&asked.slot).is_some_and(|words| {
                let first = asked.args.get(1);
                first.is_some_and(|word| words.iter().any(|one| word.eq_ignore_ascii_case(one)))
            })
    }

    fn allows_key(&self, key: &[u8], access: Access) -> bool {
        let Some(patterns) = &self.keys else { return true };
        let allows = |one: &KeyPattern| one.access.has(access) && glob::matches(&one.pattern, key);
        patterns.iter().any(allows)
    }

    /// Returns true if all keys may be accessed so.
    fn allows_any_key(&self, access: Access) -> bool {
        let Some(patterns) = &self.keys else { return true };
        patterns.iter().any(|one| one.pattern == b"*" && one.access.has(access))
    }

    /// Returns true if a channel is allowed; a pattern is if that very pattern is.
    pub(crate) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let Some(patterns) = &self.channels else { return true };
        let allows = |one: &Vec<u8>| {
            if is_pattern { one == channel } else { glob::matches(one, channel) }
        };
        patterns.iter().any(allows)
    }

    /// Checks a call.
    pub(crate) fn check<K>(&self, asked: &Asked<'_, K>) -> Result<(), Denied>
    where
        K: Iterator<Item = (usize, Access)> + Clone,
    {
        if !self.allows_command(asked) {
            return Err(Denied { reason: Reason::Command, at: 0 });
        }
        if self.keys.is_some() {
            let args = asked.args;
            let denied = asked.keys.clone().find(|(at, access)| {
                let key = args.get(*at).unwrap_or_default();
                !self.allows_key(key, *access)
            });
            if let Some((at, _)) = denied {
                return Err(Denied { reason: Reason::Key, at });
            }
            if asked.other_keys.is_some_and(|access| !self.allows_any_key(access)) {
                return Err(Denied { reason: Reason::Key, at: 1 });
            }
        }
        let is_denied = |at: &usize| {
            let channel = asked.args.get(*at).unwrap_or_default();
            !self.allows_channel(channel, asked.are_patterns)
        };
        match asked.channels.clone().find(is_denied) {
            Some(at) => Err(Denied { reason: Reason::Channel, at }),
            None => Ok(()),
        }
    }
}
