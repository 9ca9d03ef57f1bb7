//! What clients may take of a host: how many of them, and how much memory each.

use std::net::IpAddr;

use rustix::process::{Resource, getrlimit};

use super::server::HostBuilder;

/// Descriptors of the process that are not for clients: files of a store, segments, what the
/// program opens.
const DESCRIPTORS_KEPT: u64 = 64;

/// Settings of what clients may take.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// The most connections.
    pub(super) sessions: usize,
    /// The most connections of one user over the Unix socket; none but `sessions` if unset.
    pub(super) sessions_per_user: Option<usize>,
    /// The most connections of one address over TCP; a quarter of `sessions` if unset.
    pub(super) sessions_per_address: Option<usize>,
    /// The most keyspaces that a connection may open.
    pub(super) keyspaces: usize,
    /// The most bytes that are kept for clients that are amid a request or an answer, all together.
    pub(super) kept_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let (sessions, keyspaces, kept_bytes) = (10_000, 256, 256 << 20);
        let (sessions_per_user, sessions_per_address) = (None, None);
        Self { sessions, sessions_per_user, sessions_per_address, keyspaces, kept_bytes }
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// A user of this machine.
    User(u32),
    /// An address.
    Address(IpAddr),
}

impl Limits {
    /// Refuses settings under which nobody could come.
    pub(super) fn check(&self) -> crate::Result<()> {
        let all = [self.sessions, self.keyspaces, self.kept_bytes];
        let some = [self.sessions_per_user, self.sessions_per_address];
        if all.contains(&0) || some.contains(&Some(0)) {
            let text = "a limit of 0 lets nobody in: leave the host out instead";
            return Err(crate::Error::InvalidArgument(text.into()));
        }
        Ok(())
    }

    /// The most connections over TCP: strangers that reach a port cannot keep out the clients of
    /// the machine.
    fn tcp_sessions(&self) -> usize {
        (self.sessions / 4 * 3).max(1)
    }

    /// Says why a connection is one too many beside `all` others, `tcp` of which are over TCP and
    /// `same` from the same origin; `None` if it is not.
    pub(super) fn refuse(
        &self,
        origin: Origin,
        all: usize,
        tcp: usize,
        same: usize,
    ) -> Option<String> {
        let (same_max, what) = match origin {
            Origin::User(uid) => (
                self.sessions_per_user.unwrap_or(self.sessions),
                format!("of user {uid} (sessions_per_user)"),
            ),
            Origin::Address(address) => (
                self.sessions_per_address.unwrap_or((self.sessions / 4).max(1)),
                format!("of {address} (sessions_per_address)"),
            ),
        };
        let is_tcp = matches!(origin, Origin::Address(_));
        if all >= self.sessions {
            Some(format!("the host has {all} connections, the most there may be (sessions_max)"))
        } else if is_tcp && tcp >= self.tcp_sessions() {
            let text = "the host has {} connections over TCP, three quarters of what there may be \
                        (sessions_max)";
            Some(text.replace("{}", &tcp.to_string()))
        } else if same >= same_max {
            Some(format!("the host has {same} connections {what}, the most there may be"))
        } else {
            None
        }
    }
}

/// Limits, and who may come.
impl HostBuilder {
    /// The most connections: 10,000 unless set. At most three quarters of them are over TCP, so
    /// that strangers keep out no client of the machine. Each takes a descriptor and, while its
    /// client is silent, some hundred bytes. The process's own limit of descriptors (`ulimit -n`)
    /// holds too: the last 64 are not given to clients.
    ///
    /// A client over a limit is told which one it is, by [`Error::Refused`](crate::Error::Refused).
    #[must_use]
    pub fn sessions_max(mut self, sessions: usize) -> Self {
        self.limits.sessions = sessions;
        self
    }

    /// The most connections of one user over the Unix socket: as many as there may be, unless set.
    #[must_use]
    pub fn sessions_per_user(mut self, sessions: usize) -> Self {
        self.limits.sessions_per_user = Some(sessions);
        self
    }

    /// The most connections of one address over TCP: a quarter of those that there may be, unless
    /// set.
    #[must_use]
    pub fn sessions_per_address(mut self, sessions: usize) -> Self {
        self.limits.sessions_per_address = Some(sessions);
        self
    }

    /// The most keyspaces that a connection may open, each as often as it does: 256 unless set.
    #[must_use]
    pub fn keyspaces_max(mut self, keyspaces: usize) -> Self {
        self.limits.keyspaces = keyspaces;
        self
    }

    /// The most bytes that are kept, all together, for clients that have sent a part of a request
    /// or not read an answer yet: 256 MiB unless set. Beyond it the connection is closed for which
    /// the most is kept. One connection has at most a request and an answer of 16 MiB each, and 64
    /// KiB of answers to requests that came together.
    #[must_use]
    pub fn kept_bytes_max(mut self, bytes: usize) -> Self {
        self.limits.kept_bytes = bytes;
        self
    }

    /// Lets other users come by the Unix socket than the host's own, by their numbers. With them,
    /// or with groups, the socket's file lets everybody connect that reaches its directory, and the
    /// host asks the system who it is. They may do what the host's own user may.
    #[must_use]
    pub fn allow_users(mut self, uids: impl IntoIterator<Item = u32>) -> Self {
        self.access.users.extend(uids);
        self
    }

    /// As [`HostBuilder::allow_users`], users whose process has one of these groups as its
    /// effective one; others that they are in do not count.
    #[must_use]
    pub fn allow_groups(mut self, gids: impl IntoIterator<Item = u32>) -> Self {
        self.access.groups.extend(gids);
        self
    }
}

/// Says why the process may not open many more descriptors, if it has just been given `newest`:
/// the system gives the lowest that is free, so almost all below it are taken.
pub(super) fn refuse_descriptor(newest: i32) -> Option<String> {
    let most = getrlimit(Resource::Nofile).current?;
    is_near(newest, most).then(|| {
        format!(
            "the host's process may open {most} descriptors (ulimit -n), and the last \
             {DESCRIPTORS_KEPT} are not for clients"
        )
    })
}

fn is_near(newest: i32, most: u64) -> bool {
    // A process that may open few keeps half of them.
    newest as u64 >= most - DESCRIPTORS_KEPT.min(most / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named() {
        let limits = Limits {
            sessions: 40,
            sessions_per_user: Some(20),
            sessions_per_address: Some(5),
            ..Limits::default()
        };
        let (user, address) = (Origin::User(7), Origin::Address("10.0.0.1".parse().unwrap()));
        assert_eq!(limits.refuse(user, 39, 30, 19), None);
        assert_eq!(limits.refuse(address, 39, 29, 4), None);
        for (origin, all, tcp, same, names) in [
            (user, 40, 0, 0, "40 connections, the most there may be (sessions_max)"),
            (address, 39, 30, 0, "30 connections over TCP, three quarters"),
            (user, 20, 0, 20, "20 connections of user 7 (sessions_per_user)"),
            (address, 20, 20, 5, "5 connections of 10.0.0.1 (sessions_per_address)"),
        ] {
            let text = limits.refuse(origin, all, tcp, same).unwrap();
            assert!(text.contains(names), "{text}");
        }
        let quarter = Limits { sessions: 40, ..Limits::default() };
        assert_eq!(quarter.refuse(user, 39, 0, 39), None);
        assert!(quarter.refuse(address, 10, 10, 10).is_some());
        assert!(quarter.refuse(address, 9, 9, 9).is_none());
    }

    #[test]
    fn the_last_descriptors_are_kept() {
        assert!(is_near(1024 - 64, 1024) && !is_near(1024 - 65, 1024));
        assert!(is_near(8, 16) && !is_near(7, 16));
    }
}
