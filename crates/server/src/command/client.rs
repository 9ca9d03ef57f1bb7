//! A client's state, as far as commands see it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{listening::Listening, transactions::Queue};
use crate::{
    clients::ClientInfo,
    watch::{Mark, WatchedKey},
};

/// A client's state. The protocol that it speaks is its [`Reply`](crate::resp::Reply)'s.
pub(crate) struct Client {
    pub(crate) info: Arc<ClientInfo>,
    /// The selected database.
    pub(crate) database: usize,
    pub(crate) authenticated: bool,
    /// The commands since `MULTI`.
    pub(crate) queue: Option<Queue>,
    /// The watched keys, each with whether it had ended when it was watched.
    pub(crate) watched: HashMap<WatchedKey, bool>,
    /// Set by the writer of a watched key.
    pub(crate) mark: Mark,
    /// What the client listens to; none for an ordinary one.
    pub(crate) listening: Option<Box<Listening>>,
    /// The connection ends once the replies are sent.
    pub(crate) closing: bool,
}

impl Client {
    /// A client that has just come.
    pub(crate) fn new(info: Arc<ClientInfo>, authenticated: bool) -> Self {
        info.authenticated.store(authenticated, Ordering::Relaxed);
        Self {
            info,
            database: 0,
            authenticated,
            queue: None,
            watched: HashMap::new(),
            mark: Arc::new(AtomicBool::new(false)),
            listening: None,
            closing: false,
        }
    }
}
