//! How often commands of each family come.

use rhumb_testkit::random::Random;

/// The families with their shares.
const FAMILIES: [(&str, u64); 14] = [
    ("strings", 4),
    ("numbers", 1),
    ("keys", 2),
    ("expiry", 1),
    ("hashes", 3),
    ("zsets", 2),
    ("unions", 2),
    ("lists", 3),
    ("sets", 2),
    ("multi", 1),
    ("rare", 1),
    ("moves", 4),
    ("bits", 4),
    ("scripts", 2),
];

/// The shares of a run.
#[derive(Clone)]
pub(crate) struct Shares {
    shares: [(&'static str, u64); FAMILIES.len()],
}

impl Shares {
    /// Those above, but for what `RHUMB_ORACLE_SHARES` says: `scripts=20,strings=0`.
    pub(crate) fn from_environment() -> Self {
        Self::with(&std::env::var("RHUMB_ORACLE_SHARES").unwrap_or_default())
    }

    fn with(said: &str) -> Self {
        let mut shares = FAMILIES;
        for pair in said.split(',').filter(|pair| !pair.is_empty()) {
            let (family, share) = pair.split_once('=').expect("RHUMB_ORACLE_SHARES: family=share");
            let known = shares.iter_mut().find(|(name, _)| *name == family);
            known.unwrap_or_else(|| panic!("no family {family}")).1 = share.parse().unwrap();
        }
        Self { shares }
    }

    fn total(&self) -> u64 {
        self.shares.iter().map(|(_, share)| share).sum()
    }

    fn of(&self, family: &str) -> u64 {
        self.shares.iter().find(|(name, _)| *name == family).map_or(0, |(_, share)| *share)
    }

    /// Draws a family other than the scripts.
    pub(crate) fn draw(&self, random: &mut Random) -> &'static str {
        let mut at = random.below(self.total() - self.of("scripts"));
        for (name, share) in self.shares.iter().filter(|(name, _)| *name != "scripts") {
            if at < *share {
                return name;
            }
            at -= share;
        }
        unreachable!("a number below their sum")
    }

    /// Draws whether a script comes next.
    pub(crate) fn is_script(&self, random: &mut Random) -> bool {
        random.below(self.total()) < self.of("scripts")
    }
}
