//! Libraries of functions: which there are, what each registers, and what changes them.
//!
//! A set of libraries does not change: what changes them makes another set, which takes the place
//! of the one before once it is on the disk.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard, RwLock};

/// The flags of scripts and functions: the bits of [`Function::flags`], the first one the lowest.
pub(crate) const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// The bit of the flag `no-writes`.
pub(crate) const NO_WRITES: u8 = 1;

const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and \
                        must be at least one character long";

/// Libraries that are equal in name and code are told apart by their numbers.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The bit of a flag, in any case.
pub(crate) fn flag_bit(name: &[u8]) -> Option<u8> {
    let at = FLAGS.iter().position(|flag| name.eq_ignore_ascii_case(flag.as_bytes()))?;
    Some(1 << at)
}

/// Checks the name of a library or of a function.
pub(super) fn check_name(name: &[u8]) -> Result<String, String> {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_fine) {
        return Err(BAD_NAME.to_owned());
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// A function of a library.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) description: Option<Vec<u8>>,
    pub(crate) flags: u8,
    /// True if it has used keys that it was not given.
    pub(crate) needs_everything: AtomicBool,
}

/// What the first line of a library says, and what comes after it.
#[derive(Debug)]
pub(crate) struct Head<'c> {
    pub(crate) name: String,
    pub(super) body: &'c [u8],
}

impl<'c> Head<'c> {
    /// Reads the first line of a library.
    ///
    /// # Errors
    ///
    /// The text of Redis, if it is none.
    pub(crate) fn parse(code: &'c [u8]) -> Result<Self, String> {
        let Some(line) = code.strip_prefix(b"#!") else {
            return Err("Missing library metadata".to_owned());
        };
        let invalid = || "Invalid library metadata".to_owned();
        let end = line.iter().position(|byte| *byte == b'\n').ok_or_else(invalid)?;
        let words = words(&code[..end + 2]).ok_or_else(invalid)?;
        let mut words = words.iter();
        let engine = words.next().map(|word| word.get(2..).unwrap_or_default());
        let mut name = None;
        for word in words {
            match word.get(..5) {
                Some(prefix) if prefix.eq_ignore_ascii_case(b"name=") => {
                    if name.replace(&word[5..]).is_some() {
                        let text = "Invalid metadata value, name argument was given multiple times";
                        return Err(text.to_owned());
                    }
                }
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(format!("Invalid metadata value given: {word}"));
                }
            }
        }
        let name = check_name(name.ok_or("Library name was not given")?)?;
        if !engine.is_some_and(|engine| engine.eq_ignore_ascii_case(b"lua")) {
            let engine = String::from_utf8_lossy(engine.unwrap_or_default());
            return Err(format!("Engine '{engine}' not found"));
        }
        Ok(Self { name, body: &line[end..] })
    }
}

/// The words of a line; quotes of either kind hold a word together. `None` if one is not closed.
pub(crate) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    for byte in line {
        match quote {
            Some(open) if *byte == open => quote = None,
            None if matches!(byte, b'"' | b'\'') => {
                quote = Some(*byte);
                word.get_or_insert_default();
            }
            None if byte.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(*byte),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// A library: its code, and the functions that the code registers.
#[derive(Debug)]
pub(crate) struct Library {
    pub(super) id: u64,
    pub(crate) name: String,
    pub(crate) code: Arc<[u8]>,
    pub(crate) functions: Vec<Function>,
}

impl Library {
    /// A library whose code has registered these functions.
    pub(super) fn new(name: String, code: &[u8], functions: Vec<Function>) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { id, name, code: code.into(), functions }
    }
}

/// A set of libraries.
#[derive(Clone, Default)]
pub(crate) struct Libraries {
    by_name: BTreeMap<String, Arc<Library>>,
    /// The library and the place of each function, by its name in lower case.
    by_function: HashMap<String, (Arc<Library>, usize)>,
}

impl Libraries {
    /// All libraries, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// How many libraries there are, and how many functions.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.by_name.len(), self.by_function.len())
    }

    /// Returns true if there is a library of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns true if this very library is among them.
    pub(super) fn has_id(&self, id: u64) -> bool {
        self.by_name.values().any(|library| library.id == id)
    }

    /// The function of this name, in any case, and its library.
    pub(crate) fn function(&self, name: &[u8]) -> Option<(&Arc<Library>, &Function)> {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let (library, at) = self.by_function.get(&name)?;
        Some((library, library.functions.get(*at)?))
    }

    /// Takes a library away, if it is there.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        for function in &library.functions {
            self.by_function.remove(&function.name.to_ascii_lowercase());
        }
        true
    }

    /// Adds libraries, each in the place of the one of its name, if `replace`.
    ///
    /// # Errors
    ///
    /// The text of Redis; the set is not to be used then.
    pub(crate) fn add(&mut self, all: Vec<Arc<Library>>, replace: bool) -> Result<(), String> {
        for library in &all {
            if self.remove(&library.name) && !replace {
                return Err(format!("Library {} already exists", library.name));
            }
        }
        for library in all {
            for (at, function) in library.functions.iter().enumerate() {
                let name = function.name.to_ascii_lowercase();
                if self.by_function.insert(name, (Arc::clone(&library), at)).is_some() {
                    return Err(format!("Function {} already exists", function.name));
                }
            }
            self.by_name.insert(library.name.clone(), library);
        }
        Ok(())
    }
}

/// The libraries of a server.
#[derive(Default)]
pub(crate) struct Functions {
    present: RwLock<Arc<Libraries>>,
    changing: Mutex<()>,
}

impl Functions {
    /// The libraries at present.
    pub(crate) fn present(&self) -> Arc<Libraries> {
        Arc::clone(&self.present.read())
    }

    /// Lets one client change the libraries, which it holds this lock for.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Has a set take the place of the one before. The caller holds [`Functions::change`], and the
    /// set is on the disk.
    pub(crate) fn set(&self, libraries: impl Into<Arc<Libraries>>) {
        *self.present.write() = libraries.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_library_is_read_as_redis_reads_it() {
        let head = |code: &'static str| Head::parse(code.as_bytes());
        assert_eq!(head("#!lua name=a\nx").unwrap().name, "a");
        assert_eq!(head("#!LUA name=\"a_1\"\nx").unwrap().body, b"\nx");
        for (code, expected) in [
            ("x", "Missing library metadata"),
            ("#!lua name=a", "Invalid library metadata"),
            ("#!lua name=\"a\nx", "Invalid library metadata"),
            ("#!lua\nx", "Library name was not given"),
            ("#!js name=a\nx", "Engine 'js' not found"),
            ("#! name=a\nx", "Engine '' not found"),
            ("#!lua name=a b=c\nx", "Invalid metadata value given: b=c"),
            ("#!lua name=\nx", BAD_NAME),
            ("#!lua name=a-b\nx", BAD_NAME),
        ] {
            assert_eq!(head(code).unwrap_err(), expected, "{code}");
        }
    }

    #[test]
    fn names_are_taken_once() {
        let library = |name: &str, functions: &[&str]| {
            let functions = functions.iter().map(|name| Function {
                name: (*name).to_owned(),
                description: None,
                flags: 0,
                needs_everything: AtomicBool::new(false),
            });
            Arc::new(Library::new(name.to_owned(), b"", functions.collect()))
        };
        let mut all = Libraries::default();
        all.add(vec![library("a", &["f", "g"])], false).unwrap();
        assert!(all.clone().add(vec![library("a", &["f"])], false).is_err());
        assert!(all.clone().add(vec![library("b", &["F"])], true).is_err());
        all.add(vec![library("a", &["f"]), library("b", &["g"])], true).unwrap();
        assert_eq!(all.counts(), (2, 2));
        assert!(all.function(b"G").is_some_and(|(library, _)| library.name == "b"));
        assert!(all.remove("b") && all.function(b"g").is_none());
    }
}
