//! Users: their rules, their passwords, and what was denied to them.
//!
//! Knows of no client and no command: a [`Catalog`] has the names and the categories of commands,
//! and the caller says which keys and channels a call has. A client keeps its [`Account`], whose
//! rules are replaced as a whole when they change.

mod catalog;
mod file;
mod log;
mod rules;
mod selector;
mod sha256;
mod user;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
};

use parking_lot::{Mutex, RwLock};

pub(crate) use catalog::{CATEGORIES, Catalog, Slot, category};
pub(crate) use log::{Denial, DenialLog, Place};
pub(crate) use selector::{Access, Asked, Denied, Reason, Selector};
pub(crate) use user::{DEFAULT, User};

use rules::join_selectors;

/// A user as its clients have it: its rules at present.
#[derive(Debug)]
pub(crate) struct Account {
    user: RwLock<Arc<User>>,
    /// True if nothing is denied: the one look that a command costs then.
    is_unlimited: AtomicBool,
    /// True once the user was removed: no client may become it any more.
    is_removed: AtomicBool,
}

impl Account {
    fn new(catalog: &Catalog, user: User) -> Arc<Self> {
        let is_unlimited = AtomicBool::new(user.is_unlimited(catalog));
        let user = RwLock::new(Arc::new(user));
        Arc::new(Self { user, is_unlimited, is_removed: AtomicBool::new(false) })
    }

    /// The user as it is now.
    pub(crate) fn user(&self) -> Arc<User> {
        Arc::clone(&self.user.read())
    }

    /// Returns true if nothing is denied.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.is_unlimited.load(Relaxed)
    }

    /// Returns true if the user was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(SeqCst)
    }

    fn set(&self, catalog: &Catalog, user: User) {
        let is_unlimited = user.is_unlimited(catalog);
        let mut place = self.user.write();
        *place = Arc::new(user);
        self.is_unlimited.store(is_unlimited, SeqCst);
    }

    /// What the user's clients send until they are ended is denied.
    fn remove(&self, catalog: &Catalog) {
        let mut user = User::new(catalog, &self.user().name, false);
        user.is_on = false;
        self.set(catalog, user);
        self.is_removed.store(true, SeqCst);
    }
}

/// All users.
#[derive(Debug)]
pub(crate) struct Acl {
    catalog: Catalog,
    accounts: RwLock<BTreeMap<Vec<u8>, Arc<Account>>>,
    default: Arc<Account>,
    /// Held while users change: one after the other.
    changes: Mutex<()>,
    /// The password that the settings have for the user `default`.
    password: RwLock<Option<Arc<[u8]>>>,
    file: Option<PathBuf>,
    /// True if strangers may be served.
    may_be_open: bool,
    /// True if new users may use all channels.
    has_channels: AtomicBool,
    pub(crate) log: DenialLog,
    denied: [AtomicU64; 4],
}

/// The error of a change that would let strangers in.
const NOT_OPEN: &str = "clients come from other machines, and the user 'default' would need no \
                        password: start the server with --allow-open to serve everyone";

impl Acl {
    /// The user `default`, with this password if there is one, and those of the file, if there is
    /// one. Without a password strangers are served only if `may_be_open`.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub(crate) fn open(
        catalog: Catalog,
        file: Option<PathBuf>,
        password: Option<&[u8]>,
        may_be_open: bool,
    ) -> Result<Self, String> {
        let default = Account::new(&catalog, User::default_user(&catalog, password));
        let accounts = BTreeMap::from([(DEFAULT.to_vec(), Arc::clone(&default))]);
        let acl = Self {
            catalog,
            accounts: RwLock::new(accounts),
            default,
            changes: Mutex::new(()),
            password: RwLock::new(password.map(Arc::from)),
            file,
            may_be_open,
            has_channels: AtomicBool::new(false),
            log: DenialLog::default(),
            denied: [const { AtomicU64::new(0) }; 4],
        };
        if acl.file.is_some() {
            acl.load()?;
        }
        Ok(acl)
    }

    /// The commands.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The file of users.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The user that every client is at first.
    pub(crate) fn default_account(&self) -> &Arc<Account> {
        &self.default
    }

    /// Returns true if clients need no password to be the user `default`.
    pub(crate) fn is_open(&self) -> bool {
        self.default.user.read().is_open()
    }

    /// The user of this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<Account>> {
        self.accounts.read().get(name).cloned()
    }

    /// All users as they are now, in the order of their names.
    pub(crate) fn users(&self) -> Vec<Arc<User>> {
        self.accounts.read().values().map(|account| account.user()).collect()
    }

    /// The user that a client becomes with this password.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<Account>> {
        self.find(name).filter(|account| account.user().accepts(password))
    }

    /// The password that the settings have for the user `default`.
    pub(crate) fn password(&self) -> Option<Arc<[u8]>> {
        self.password.read().clone()
    }

    /// Gives the user `default` another password, the only one; or none at all.
    pub(crate) fn set_password(&self, password: Option<&[u8]>) {
        let _one = self.changes.lock();
        let mut user = User::clone(&self.default.user());
        user.set_password(password);
        self.default.set(&self.catalog, user);
        *self.password.write() = password.map(Arc::from);
    }

    /// Returns true if new users may use all channels.
    pub(crate) fn has_channels(&self) -> bool {
        self.has_channels.load(Relaxed)
    }

    /// Says whether new users may use all channels.
    pub(crate) fn set_has_channels(&self, has: bool) {
        self.has_channels.store(has, Relaxed);
    }

    /// Applies rules to a user, which is made if it is not there: all of them or none. Returns the
    /// user if it was there before.
    ///
    /// # Errors
    ///
    /// The text of what is wrong.
    pub(crate) fn set_user<'a>(
        &self,
        name: &[u8],
        words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Arc<Account>>, String> {
        if selector::has_spaces(name) {
            return Err("Usernames can't contain spaces or null characters".to_owned());
        }
        let rules = join_selectors(words).map_err(|word| {
            let word = String::from_utf8_lossy(word);
            format!("Unmatched parenthesis in acl selector starting at '{word}'.")
        })?;
        let _one = self.changes.lock();
        let (found, has_channels) = (self.find(name), self.has_channels());
        let mut user = match &found {
            Some(account) => User::clone(&account.user()),
            None => User::new(&self.catalog, name, has_channels),
        };
        for rule in &rules {
            user.apply(&self.catalog, rule, has_channels).map_err(|error| {
                let rule = String::from_utf8_lossy(rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", error.text())
            })?;
        }
        self.check_open(&user)?;
        match &found {
            Some(account) => account.set(&self.catalog, user),
            None => {
                let account = Account::new(&self.catalog, user);
                self.accounts.write().insert(name.to_vec(), account);
            }
        }
        Ok(found)
    }

    fn check_open(&self, user: &User) -> Result<(), String> {
        let lets_in = user.name == DEFAULT && user.is_open() && !self.may_be_open;
        if lets_in && !self.is_open() { Err(NOT_OPEN.to_owned()) } else { Ok(()) }
    }

    /// Removes users; returns those that there were.
    pub(crate) fn remove<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Vec<Arc<Account>> {
        let _one = self.changes.lock();
        let gone: Vec<_> = names.filter_map(|name| self.accounts.write().remove(name)).collect();
        gone.iter().for_each(|account| account.remove(&self.catalog));
        gone
    }

    /// Replaces all users by those of the file; returns those that were removed. The user
    /// `default` stays the same for its clients; if the file has none, it may do all, with the
    /// password of the settings.
    ///
    /// # Errors
    ///
    /// What is wrong with the file: nothing has changed.
    pub(crate) fn load(&self) -> Result<Vec<Arc<Account>>, String> {
        let Some(path) = &self.file else { return Ok(Vec::new()) };
        let _one = self.changes.lock();
        let mut users = file::load(&self.catalog, path, self.has_channels())?;
        let default = users
            .remove(DEFAULT)
            .unwrap_or_else(|| User::default_user(&self.catalog, self.password().as_deref()));
        self.check_open(&default)?;
        let made = users.into_iter().map(|(name, user)| (name, Account::new(&self.catalog, user)));
        let mut made: BTreeMap<_, _> = made.collect();
        self.default.set(&self.catalog, default);
        made.insert(DEFAULT.to_vec(), Arc::clone(&self.default));
        let old = std::mem::replace(&mut *self.accounts.write(), made);
        let gone: Vec<_> =
            old.into_values().filter(|account| !Arc::ptr_eq(account, &self.default)).collect();
        gone.iter().for_each(|account| account.remove(&self.catalog));
        Ok(gone)
    }

    /// Writes all users to the file.
    ///
    /// # Errors
    ///
    /// From the file system: the file is as it was.
    pub(crate) fn save(&self) -> std::io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let _one = self.changes.lock();
        file::save(path, self.users().iter().map(|user| &**user))
    }

    /// Counts a denial.
    pub(crate) fn count(&self, reason: Reason) {
        self.denied[reason as usize].fetch_add(1, Relaxed);
    }

    /// How many denials of this reason there were.
    pub(crate) fn denied(&self, reason: Reason) -> u64 {
        self.denied[reason as usize].load(Relaxed)
    }

    /// Counts denials from 0 again.
    pub(crate) fn reset_counts(&self) {
        self.denied.iter().for_each(|count| count.store(0, Relaxed));
    }
}
