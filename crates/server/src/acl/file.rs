//! The file of users: a line for each, as `ACL LIST` gives it.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::{
    catalog::Catalog,
    rules::{RuleError, join_selectors},
    selector::has_spaces,
    user::User,
};

/// The mode of a new file: it has hashes of passwords.
const MODE: u32 = 0o600;

/// Bytes of a file that is read, at most.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The users of a file, by name.
pub(crate) type Users = BTreeMap<Vec<u8>, User>;

/// Reads the users of a file.
///
/// # Errors
///
/// All that is wrong with it, line by line, as Redis says it.
pub(crate) fn load(catalog: &Catalog, path: &Path, has_channels: bool) -> Result<Users, String> {
    let failed =
        |why: String| format!("Error loading ACLs, opening file '{}': {why}", path.display());
    let bytes = fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(failed("it is larger than 64 MiB".to_owned()));
    }
    let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
    parse(catalog, &path.display().to_string(), &text, has_channels)
}

/// The users of a text, which is that of the file `name`.
pub(crate) fn parse(
    catalog: &Catalog,
    name: &str,
    text: &[u8],
    has_channels: bool,
) -> Result<Users, String> {
    let (mut users, mut wrong) = (Users::new(), String::new());
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let (line, number) = (line.trim_ascii(), at + 1);
        if line.is_empty() {
            continue;
        }
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(b"user"), Some(user)) = (words.next(), words.next()) else {
            wrong += &format!(
                "{name}:{number} should start with user keyword followed by the username. "
            );
            continue;
        };
        if users.contains_key(user) {
            let user = String::from_utf8_lossy(user);
            wrong += &format!("WARNING: Duplicate user '{user}' found on line {number}. ");
            continue;
        }
        if has_spaces(user) {
            let user = String::from_utf8_lossy(user);
            wrong += &format!("'{name}:{number}: username '{user}' contains invalid characters. ");
            continue;
        }
        let mut made = User::new(catalog, user, has_channels);
        let Ok(rules) = join_selectors(words) else {
            wrong += &format!("{name}:{number}: Unmatched parenthesis in selector definition. ");
            continue;
        };
        wrong += &apply(catalog, &mut made, &rules, (name, number), has_channels);
        users.insert(user.to_vec(), made);
    }
    if wrong.is_empty() { Ok(users) } else { Err(wrong) }
}

/// Applies the rules of a line; returns what is wrong with them. An unknown command is named; of
/// other rules, which may be passwords, only the first is told of, and not shown.
fn apply(
    catalog: &Catalog,
    user: &mut User,
    rules: &[Vec<u8>],
    (name, number): (&str, usize),
    has_channels: bool,
) -> String {
    let (mut wrong, mut is_told) = (String::new(), false);
    for rule in rules {
        match user.apply(catalog, rule.trim_ascii(), has_channels) {
            Ok(()) => {}
            Err(error @ RuleError::Unknown) => {
                let (rule, text) = (String::from_utf8_lossy(rule), error.text());
                wrong +=
                    &format!("{name}:{number}: Error in applying operation '{rule}': {text}. ");
            }
            Err(error) if !is_told => {
                is_told = true;
                wrong += &format!("{name}:{number}: {}. ", error.text());
            }
            Err(_) => {}
        }
    }
    wrong
}

/// Writes the users into a file beside it, which then takes its place: a crash leaves the old file
/// or the new one.
///
/// # Errors
///
/// From the file system; the old file is as it was.
pub(crate) fn save<'a>(path: &Path, users: impl Iterator<Item = &'a User>) -> io::Result<()> {
    let mut text = Vec::new();
    for user in users {
        text.extend_from_slice(&user.describe());
        text.push(b'\n');
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".tmp-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = write(path, &beside, &text);
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write(path: &Path, beside: &Path, text: &[u8]) -> io::Result<()> {
    let mode = fs::metadata(path).map_or(MODE, |old| old.permissions().mode());
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
