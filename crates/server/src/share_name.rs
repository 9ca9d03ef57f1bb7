//! The names of shares: which database of Redis clients one stands for, and how it is to be made.

use rhumb_share::Preset;

use crate::{
    config_error::ConfigError,
    encode::format::{DATABASES, SYSTEM_KEYSPACE},
};

/// The database that a share of this name stands for.
pub(crate) fn database_of(name: &str) -> Option<usize> {
    (0..DATABASES).find(|database| name == name_of(*database))
}

/// The name under which a database is shared.
pub(crate) fn name_of(database: usize) -> String {
    format!("db{database}")
}

/// Returns true if several servers may have a part of the share each. Redis clients follow no
/// table: what they write to a database is of the server that they wrote it to.
pub(crate) fn is_divisible(share: &str) -> bool {
    named(share).is_ok_and(|share| database_of(share.name).is_none())
}

/// What follows the name of a share that says how it is made.
const PRESET: &str = ",preset=";

/// What ends a share whose clients may read it by RDMA.
const CHECKSUMS: &str = ",checksums";

/// A share as it is asked for.
pub(crate) struct Named<'s> {
    pub(crate) name: &'s str,
    pub(crate) preset: Preset,
    pub(crate) has_checksums: bool,
}

/// The name of a share, and how it is made: `NAME[,preset=PRESET][,checksums]`.
pub(crate) fn named(share: &str) -> Result<Named<'_>, ConfigError> {
    let (rest, has_checksums) = match share.strip_suffix(CHECKSUMS) {
        Some(rest) => (rest, true),
        None => (share, false),
    };
    let Some((name, preset)) = rest.split_once(PRESET) else {
        return Ok(Named { name: rest, preset: Preset::default(), has_checksums });
    };
    let preset = preset.parse().map_err(|error: rhumb_share::Error| {
        ConfigError(format!("the share {share:?} cannot be made: {error}"))
    })?;
    Ok(Named { name, preset, has_checksums })
}

/// The names of shares that were checked.
pub(crate) fn names(shares: &[String]) -> impl Iterator<Item = &str> {
    shares.iter().filter_map(|share| Some(named(share).ok()?.name))
}

/// Refuses names that stand for nothing, or for what only the server may write to.
pub(crate) fn check_names(shares: &[String]) -> Result<(), ConfigError> {
    for share in shares {
        let name = named(share)?.name;
        let is_own = name == SYSTEM_KEYSPACE
            || name
                .strip_prefix("db")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if name.is_empty() || is_own && database_of(name).is_none() {
            let what = format!(
                "{name:?} cannot be shared: a share is a database of Redis clients, db0 to db{}, \
                 or a keyspace of another name",
                DATABASES - 1
            );
            return Err(ConfigError(what));
        }
    }
    Ok(())
}
