//! Addresses of hosts: a path, or a scheme with what it needs.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::error::{Error, Result};

/// Where a host listens.
///
/// ```
/// use rhumb_remote::Address;
///
/// let address: Address = "tcp:db.example:7000".parse()?;
/// assert_eq!(address, Address::Tcp { host: "db.example".into(), port: 7000 });
/// assert_eq!("/run/rhumb.sock".parse::<Address>()?, "unix:/run/rhumb.sock".parse()?);
/// # Ok::<_, rhumb_remote::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A Unix socket at a path: `unix:/run/rhumb.sock`, or the path alone.
    Unix(PathBuf),
    /// A port of a machine: `tcp:host:port`; an IPv6 address stands in brackets.
    Tcp {
        /// A name or an IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A port of a machine at which a host speaks TLS: `tcps:host:port`. The host's certificate is
    /// for this name or IP address. Needs the feature `tls`.
    Tls {
        /// A name or an IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A port of a machine, as for [`Address::Tcp`], of a host that is read by RDMA:
    /// `rdma:host:port`. Queue pairs are agreed on over TCP, which writes go over too. What keeps
    /// RDMA from working is an error. Needs the feature `rdma`, and Linux.
    Rdma {
        /// A name or an IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The same, but that reads go over TCP for as long as RDMA does not work:
    /// `rdma+tcp:host:port`.
    RdmaOrTcp {
        /// A name or an IP address.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Address {
    /// Returns true if a host at this address is reached over TCP, encrypted or not; if it is read
    /// by RDMA, the rest goes over TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        !matches!(self, Self::Unix(_))
    }

    /// Returns true if a host at this address is read by RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        matches!(self, Self::Rdma { .. } | Self::RdmaOrTcp { .. })
    }

    /// Reads an address. Text without a scheme is a path, and so is a path that is not UTF-8.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] that names what is wrong.
    pub fn parse(text: impl AsRef<Path>) -> Result<Self> {
        let path = text.as_ref();
        let Some(text) = path.to_str() else { return Ok(Self::Unix(path.to_owned())) };
        let (scheme, rest) = match text.split_once(':') {
            // A colon after a slash is a character of a path.
            Some((scheme, rest)) if !scheme.contains('/') => (scheme, rest),
            _ => ("unix", text),
        };
        let wrong = |what: String| Error::InvalidArgument(format!("{text:?}: {what}").into());
        match scheme {
            "unix" if rest.is_empty() => Err(wrong("an address without a path".into())),
            "unix" if rest.contains('\0') => Err(wrong("a path with a NUL byte".into())),
            "unix" => Ok(Self::Unix(rest.into())),
            "tcp" | "tcps" | "rdma" | "rdma+tcp" => {
                let (host, port) =
                    host_and_port(rest).map_err(|what| wrong(what.replace("SCHEME", scheme)))?;
                Ok(match scheme {
                    "tcp" => Self::Tcp { host, port },
                    "tcps" => Self::Tls { host, port },
                    "rdma" => Self::Rdma { host, port },
                    _ => Self::RdmaOrTcp { host, port },
                })
            }
            other => Err(wrong(format!(
                "no scheme {other:?}: there are unix:PATH, tcp:HOST:PORT, tcps:HOST:PORT, \
                 rdma:HOST:PORT and rdma+tcp:HOST:PORT, and a path that has a colon is written ./PATH"
            ))),
        }
    }
}

/// Reads `host:port`, also with the two slashes of a URL before it.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let text = text.strip_prefix("//").unwrap_or(text);
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err("no port: an address is SCHEME:HOST:PORT".into());
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    let name = if is_bracketed { &host[1..host.len() - 1] } else { host };
    if name.is_empty() {
        return Err("no host: an address is SCHEME:HOST:PORT".into());
    }
    if !is_bracketed && name.contains([':', '[', ']']) {
        return Err("an IPv6 address stands in brackets, SCHEME:[::1]:PORT".into());
    }
    if name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
        return Err(format!("{name:?} is no name of a host"));
    }
    // `parse` takes a sign as well.
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(port) if port > 0 && is_number => Ok((name.to_owned(), port)),
        _ => Err(format!("{port:?} is no port from 1 to 65535")),
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Unix(path) => return write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } => ("tcp", host, port),
            Self::Tls { host, port } => ("tcps", host, port),
            Self::Rdma { host, port } => ("rdma", host, port),
            Self::RdmaOrTcp { host, port } => ("rdma+tcp", host, port),
        };
        if host.contains(':') {
            write!(f, "{scheme}:[{host}]:{port}")
        } else {
            write!(f, "{scheme}:{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_or_are_paths() {
        let unix = |path: &str| Address::Unix(path.into());
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        for (text, address) in [
            ("/run/a.sock", unix("/run/a.sock")),
            ("unix:/run/a.sock", unix("/run/a.sock")),
            ("unix:///run/a.sock", unix("///run/a.sock")),
            ("unix:a.sock", unix("a.sock")),
            ("a.sock", unix("a.sock")),
            ("./tcp:a", unix("./tcp:a")),
            ("/run/a:b", unix("/run/a:b")),
            ("tcp:localhost:7000", tcp("localhost", 7000)),
            ("tcp://10.0.0.1:1", tcp("10.0.0.1", 1)),
            ("tcp:[::1]:65535", tcp("::1", 65535)),
            ("tcps:db.example:7", Address::Tls { host: "db.example".into(), port: 7 }),
            ("tcps://[::1]:7", Address::Tls { host: "::1".into(), port: 7 }),
            ("rdma:h:7", Address::Rdma { host: "h".into(), port: 7 }),
            ("rdma+tcp:[::1]:7", Address::RdmaOrTcp { host: "::1".into(), port: 7 }),
        ] {
            let parsed: Address = text.parse().unwrap();
            assert_eq!(parsed, address, "{text}");
            assert_eq!(parsed.to_string().parse::<Address>().unwrap(), address, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        for (text, what) in [
            ("", "without a path"),
            ("unix:", "without a path"),
            ("unix:a\0b", "NUL"),
            ("tcp:", "no port: an address is tcp:HOST:PORT"),
            ("tcp:localhost", "no port"),
            ("tcps:localhost", "no port: an address is tcps:HOST:PORT"),
            ("tcp::7000", "no host"),
            ("tcp:[]:7000", "brackets"),
            ("tcp:::1:7000", "brackets, tcp:[::1]:PORT"),
            ("tcp:a b:7000", "no name of a host"),
            ("rdma:localhost:0", "no port from 1 to 65535"),
            ("rdma:localhost:65536", "no port from 1 to 65535"),
            ("rdma:localhost:+1", "no port from 1 to 65535"),
            ("http://localhost:1", "no scheme \"http\""),
            ("tpc:localhost:1", "tcp:HOST:PORT"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{text}");
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
    }
}
