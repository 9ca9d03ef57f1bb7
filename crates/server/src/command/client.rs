//! A client's state, as far as commands see it.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{listening::Listening, transactions::Queue};
use crate::{
    acl::{Account, User},
    clients::ClientInfo,
    copies::Wanted,
    watch::{Mark, WatchedKey},
};

/// A client's state. The protocol that it speaks is its [`Reply`](crate::resp::Reply)'s.
pub(crate) struct Client {
    pub(crate) info: Arc<ClientInfo>,
    /// The selected database.
    pub(crate) database: usize,
    pub(crate) authenticated: bool,
    /// The user that it is: `default` before it says another one.
    pub(crate) user: Arc<Account>,
    /// The commands since `MULTI`.
    pub(crate) queue: Option<Queue>,
    /// The watched keys, each with whether it had ended when it was watched.
    pub(crate) watched: HashMap<WatchedKey, bool>,
    /// Set by the writer of a watched key.
    pub(crate) mark: Mark,
    /// What the client listens to; none for an ordinary one.
    pub(crate) listening: Option<Box<Listening>>,
    /// True if monitors were shown the present command already: a script, before what it calls.
    pub(super) is_shown: Cell<bool>,
    /// True once a script has taken long within a commit group: it is run again by itself, and
    /// beside other clients at once.
    pub(super) script_took_long: Cell<bool>,
    /// If it is a script that runs the commands: when that began, since 1970.
    pub(super) script_began: Option<Duration>,
    /// The connection ends once the replies are sent.
    pub(crate) closing: bool,
    /// What a client says of itself that asks for a copy of all data.
    pub(crate) follower: Follower,
    /// The copy that is sent once the replies are.
    pub(crate) wanted_copy: Option<Wanted>,
}

/// What a client has said with `REPLCONF`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Follower {
    /// It takes a copy whose end is a mark.
    pub(crate) takes_marks: bool,
    /// It wants the copy alone, and no writes after it.
    pub(crate) copy_only: bool,
    /// It is a server that wants to be a replica.
    pub(crate) is_server: bool,
}

impl Client {
    /// A client that has just come.
    pub(crate) fn new(info: Arc<ClientInfo>, authenticated: bool, user: Arc<Account>) -> Self {
        info.authenticated.store(authenticated, Ordering::Relaxed);
        *info.user.lock() = Some(Arc::clone(&user));
        Self {
            info,
            database: 0,
            authenticated,
            user,
            queue: None,
            watched: HashMap::new(),
            mark: Arc::new(AtomicBool::new(false)),
            listening: None,
            is_shown: Cell::new(false),
            script_took_long: Cell::new(false),
            script_began: None,
            closing: false,
            follower: Follower::default(),
            wanted_copy: None,
        }
    }

    /// Has the client be another user.
    pub(crate) fn become_user(&mut self, user: &Arc<Account>) {
        *self.info.user.lock() = Some(Arc::clone(user));
        self.user = Arc::clone(user);
        // It may have been removed before the client was one of those that are ended for it.
        self.closing |= user.is_removed();
    }

    /// The client's user, if anything is denied to it.
    #[inline]
    pub(crate) fn limited_user(&self) -> Option<Arc<User>> {
        (!self.user.is_unlimited()).then(|| self.user.user())
    }
}
