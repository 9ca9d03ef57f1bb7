//! Which clients may use a host.

use std::{hint::black_box, net::SocketAddr};

use rustix::process::geteuid;

use crate::{
    error::{Error, Result},
    message::format::TOKEN_BYTES_MAX,
    socket::Peer,
};

/// What a host asks its clients for.
#[derive(Default)]
pub(super) struct Access {
    /// What they must present.
    pub(super) token: Option<Vec<u8>>,
    /// True if other machines may come without a token.
    pub(super) is_open: bool,
    /// Users that may come by the Unix socket, besides the host's own.
    pub(super) users: Vec<u32>,
    /// Groups whose users may.
    pub(super) groups: Vec<u32>,
}

impl Access {
    /// Refuses settings that would let everybody in by mistake.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`].
    pub(super) fn check(&self, addresses: &[SocketAddr]) -> Result<()> {
        if let Some(token) = &self.token
            && !(1..=TOKEN_BYTES_MAX).contains(&token.len())
        {
            let text = format!("a token has 1 to {TOKEN_BYTES_MAX} bytes, and not {}", token.len());
            return Err(Error::InvalidArgument(text.into()));
        }
        let is_bare = self.token.is_none() && !self.is_open;
        match addresses.iter().find(|address| !address.ip().to_canonical().is_loopback()) {
            Some(address) if is_bare => {
                let text = format!(
                    "other machines would reach {address} without a token: set one, or allow an \
                     open address"
                );
                Err(Error::InvalidArgument(text.into()))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a client that presents this may use the host. Where there is a token, how
    /// long that takes depends on what was presented alone.
    pub(super) fn admits(&self, presented: Option<&[u8]>) -> bool {
        let Some(token) = &self.token else { return true };
        let presented = presented.unwrap_or_default();
        let mut difference = u8::from(presented.len() != token.len());
        // The token is not empty, as was checked at the start.
        for (byte, expected) in presented.iter().zip(token.iter().cycle()) {
            difference = black_box(difference | (byte ^ expected));
        }
        difference == 0
    }
}

impl Access {
    /// Returns true if other users than the host's may come by the Unix socket.
    pub(super) fn has_guests(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Says why a user may not come by the Unix socket; `None` if it may. Without guests the
    /// socket's file lets the host's user in and nobody else.
    pub(super) fn refuse(&self, peer: Peer) -> Option<String> {
        let is_guest = self.users.contains(&peer.uid) || self.groups.contains(&peer.gid);
        let is_in = !self.has_guests() || is_guest || peer.uid == geteuid().as_raw();
        (!is_in).then(|| {
            format!(
                "user {} of group {} may not use this host (allow_users, allow_groups)",
                peer.uid, peer.gid
            )
        })
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is nobody's to read.
        f.debug_struct("Access").field("has_token", &self.token.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let access = Access { token: Some(b"abab".to_vec()), ..Access::default() };
        assert!(access.admits(Some(b"abab")));
        for presented in [&b""[..], b"a", b"ab", b"aba", b"ababa", b"abababab", b"abac", b"Abab"] {
            assert!(!access.admits(Some(presented)), "{presented:?}");
        }
        assert!(!access.admits(None));
        assert!(Access::default().admits(None) && Access::default().admits(Some(b"any")));
        assert!(!format!("{access:?}").contains("ab\""));
    }

    #[test]
    fn guests_are_those_that_are_named() {
        let own = geteuid().as_raw();
        let access = |users: &[u32], groups: &[u32]| Access {
            users: users.to_vec(),
            groups: groups.to_vec(),
            ..Access::default()
        };
        let (peer, mine) = (Peer { uid: own + 7, gid: 8 }, Peer { uid: own, gid: 9 });
        for (users, groups, is_in) in [
            (&[own + 7][..], &[][..], true),
            (&[], &[8], true),
            (&[own + 8], &[7], false),
            (&[8], &[own + 7], false),
        ] {
            let access = access(users, groups);
            assert_eq!(access.refuse(peer).is_none(), is_in, "{access:?}");
            assert_eq!(access.refuse(mine), None);
        }
        let text = access(&[own + 8], &[]).refuse(peer).unwrap();
        assert!(text.contains(&format!("user {} of group 8 may not", own + 7)), "{text}");
        // Without guests the file's mode is what keeps others out.
        assert!(!access(&[], &[]).has_guests() && access(&[], &[1]).has_guests());
    }

    #[test]
    fn other_machines_need_a_token_or_an_open_address() {
        let check = |token: Option<&[u8]>, is_open, address: &str| {
            let token = token.map(<[u8]>::to_vec);
            let access = Access { token, is_open, ..Access::default() };
            access.check(&["127.0.0.1:0".parse().unwrap(), address.parse().unwrap()])
        };
        for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(check(None, false, loopback).is_ok());
        }
        for other in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let error = check(None, false, other).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)));
            assert!(error.to_string().contains("without a token"), "{error}");
            assert!(check(None, true, other).is_ok() && check(Some(b"t"), false, other).is_ok());
        }
        assert!(check(Some(b""), true, "127.0.0.1:1").is_err());
        assert!(check(Some(&[1; TOKEN_BYTES_MAX]), false, "10.0.0.1:1").is_ok());
        assert!(check(Some(&[1; TOKEN_BYTES_MAX + 1]), true, "127.0.0.1:1").is_err());
    }
}
