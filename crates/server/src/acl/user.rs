//! A user: whether it may come, its passwords, and what it may do.

use super::{
    catalog::Catalog,
    rules::RuleError,
    selector::{Asked, Denied, Selector},
    sha256,
};

/// The user that every client is at first.
pub(crate) const DEFAULT: &[u8] = b"default";

/// Digits of the hash of a password.
const HASH_DIGITS: usize = 64;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: Vec<u8>,
    pub(crate) is_on: bool,
    /// Any password is right.
    pub(crate) needs_no_password: bool,
    /// What it gives to `RESTORE` is checked; kept only to be shown.
    checks_payloads: bool,
    /// The hashes of its passwords.
    passwords: Vec<String>,
    /// What it may do: the first one is its own, the others are alternatives to it.
    selectors: Vec<Selector>,
}

fn is_hash(text: &[u8]) -> bool {
    text.len() == HASH_DIGITS
        && text.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
}

/// Returns true if two hashes are the same, without showing by the time where they differ.
fn same_hash(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).map(|(one, other)| one ^ other);
    std::hint::black_box(differences.fold(0, |all, bits| all | std::hint::black_box(bits))) == 0
}

impl User {
    /// A new user, which may do nothing but, if `has_channels`, use all channels.
    pub(crate) fn new(catalog: &Catalog, name: &[u8], has_channels: bool) -> Self {
        let mut own = Selector::new(catalog);
        if has_channels {
            own.allow_channels();
        }
        Self {
            name: name.to_vec(),
            is_on: false,
            needs_no_password: false,
            checks_payloads: true,
            passwords: Vec::new(),
            selectors: vec![own],
        }
    }

    /// The user `default` as it is where nothing is said of it: it may do all.
    pub(crate) fn default_user(catalog: &Catalog, password: Option<&[u8]>) -> Self {
        let mut user = Self::new(catalog, DEFAULT, true);
        for rule in [&b"on"[..], b"~*", b"+@all"] {
            debug_assert!(user.apply(catalog, rule, true).is_ok());
            let _ = user.apply(catalog, rule, true);
        }
        user.set_password(password);
        user
    }

    /// Makes this the only password; any is right if there is none.
    pub(crate) fn set_password(&mut self, password: Option<&[u8]>) {
        self.passwords.clear();
        self.needs_no_password = password.is_none();
        self.passwords.extend(password.map(sha256::hex));
    }

    /// Returns true if the user may come with this password.
    pub(crate) fn accepts(&self, password: &[u8]) -> bool {
        if !self.is_on || self.needs_no_password {
            return self.is_on;
        }
        let hash = sha256::hex(password);
        self.passwords.iter().fold(false, |found, known| found | same_hash(known, &hash))
    }

    /// Returns true if clients are this user without a password.
    pub(crate) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    fn add_password(&mut self, hash: String) {
        self.needs_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Applies a rule that is about passwords; `None` if it is not.
    fn apply_password(&mut self, rule: &[u8]) -> Option<Result<(), RuleError>> {
        let (sign, text) = rule.split_first()?;
        let hash = || {
            let text = std::str::from_utf8(text).ok().filter(|text| is_hash(text.as_bytes()));
            text.ok_or(RuleError::WrongHash)
        };
        Some(match sign {
            b'>' => {
                self.add_password(sha256::hex(text));
                Ok(())
            }
            b'<' => self.remove_password(&sha256::hex(text)),
            b'#' => hash().map(|hash| self.add_password(hash.to_owned())),
            b'!' => hash().and_then(|hash| self.remove_password(hash)),
            _ => return None,
        })
    }

    /// A selector of a rule in brackets.
    fn selector(catalog: &Catalog, rules: &[u8]) -> Result<Selector, RuleError> {
        let mut selector = Selector::new(catalog);
        for rule in rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
            selector.apply(catalog, rule)?;
        }
        Ok(selector)
    }

    /// Applies a rule. `has_channels` is true if a user that is reset may use all channels.
    pub(crate) fn apply(
        &mut self,
        catalog: &Catalog,
        rule: &[u8],
        has_channels: bool,
    ) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if rule.is_empty() {
            return Ok(());
        }
        if let Some(done) = self.apply_password(rule) {
            return done;
        }
        if is("on") || is("off") {
            self.is_on = is("on");
        } else if is("nopass") {
            self.set_password(None);
        } else if is("resetpass") {
            self.passwords.clear();
            self.needs_no_password = false;
        } else if is("sanitize-payload") || is("skip-sanitize-payload") {
            self.checks_payloads = is("sanitize-payload");
        } else if is("clearselectors") {
            self.selectors.truncate(1);
        } else if is("reset") {
            *self = Self::new(catalog, &self.name, has_channels);
        } else if rule.starts_with(b"(") && rule.ends_with(b")") {
            let selector = Self::selector(catalog, &rule[1..rule.len() - 1])?;
            self.selectors.push(selector);
        } else {
            self.selectors[0].apply(catalog, rule)?;
        }
        Ok(())
    }

    /// Its flags, in the order in which Redis gives them.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let payloads =
            if self.checks_payloads { "sanitize-payload" } else { "skip-sanitize-payload" };
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags.push(payloads);
        flags
    }

    /// The hashes of its passwords.
    pub(crate) fn passwords(&self) -> &[String] {
        &self.passwords
    }

    /// What it may do, its own selector first.
    pub(crate) fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Returns true if nothing is denied to it.
    pub(crate) fn is_unlimited(&self, catalog: &Catalog) -> bool {
        self.selectors.iter().any(|selector| selector.is_unlimited(catalog))
    }

    /// Returns true if it may listen to a channel, or to a pattern.
    pub(crate) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|selector| selector.allows_channel(channel, is_pattern))
    }

    /// Returns true if it may use all channels.
    pub(crate) fn allows_channels(&self) -> bool {
        self.selectors.iter().any(Selector::allows_channels)
    }

    /// Its line of `ACL LIST`, which is that of a file, too.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut text = [b"user ", &self.name[..]].concat();
        let hashes = self.passwords.iter().map(|hash| format!("#{hash}"));
        for word in self.flags().into_iter().map(str::to_owned).chain(hashes) {
            text.push(b' ');
            text.extend_from_slice(word.as_bytes());
        }
        for (at, selector) in self.selectors.iter().enumerate() {
            let (start, end): (&[u8], &[u8]) = if at == 0 { (b" ", b"") } else { (b" (", b")") };
            text.extend_from_slice(start);
            text.extend_from_slice(&selector.describe());
            text.extend_from_slice(end);
        }
        text
    }

    /// Checks a call: one selector that allows all of it is enough. Otherwise the call is denied
    /// for what the selector that comes closest denies.
    pub(crate) fn check<K>(&self, asked: &Asked<'_, K>) -> Result<(), Denied>
    where
        K: Iterator<Item = (usize, super::Access)> + Clone,
    {
        let mut closest: Option<Denied> = None;
        for selector in &self.selectors {
            match selector.check(asked) {
                Ok(()) => return Ok(()),
                Err(denied) => closest = closest.max(Some(denied)),
            }
        }
        match closest {
            Some(denied) => Err(denied),
            None => Ok(()),
        }
    }
}
