//! Which module may import which, and which crate may depend on which.
//!
//! A crate's modules lie in layers: each may import those that come before it in its list here, and
//! nothing else. So the list is the order in which the crate can be read, and there is no cycle.
//! Tests may import what they like.

use std::path::Path;

use super::{Finding, mask::Masked, source};

/// The modules of one crate.
struct Layers {
    /// Where its sources are.
    sources: &'static str,
    /// Its modules, the lowest first.
    modules: &'static [&'static str],
}

/// The crates whose modules are in layers. `fuzzing` and the tests of a crate are above all of it.
const LAYERS: [Layers; 3] = [INDEX, STORE, SERVER];

const STORE: Layers = Layers {
    sources: "crates/store/src/",
    modules: &[
        "types",
        "varint",
        "expiry",
        "keys",
        "error",
        "events",
        "slice",
        "io",
        "partition",
        "log",
        "ranges",
        "table",
        "options",
        "version",
        "memtable",
        "tree",
        "plan",
        "iter",
        "compaction",
        "db",
        "inspect",
        "dump",
        "salvage",
        "fuzzing",
    ],
};

const INDEX: Layers = Layers {
    sources: "crates/index/src/",
    modules: &[
        "counts",
        "simd",
        "address",
        "key",
        "value",
        "preset",
        "range",
        "entry",
        "op",
        "raw",
        "published",
        "kinds",
        "route",
        "plan",
        "fit",
        "parts",
        "trainers",
        "core",
        "scan",
        "stats",
        "batch",
        "map",
        "builder",
        "bulk",
        "engine",
    ],
};

const SERVER: Layers = Layers {
    sources: "crates/server/src/",
    modules: &[
        "random",
        "json",
        "glob",
        "effort",
        "descriptors",
        "disk",
        "notify",
        "segments",
        "log",
        "health",
        "rdb",
        "peer",
        "resp",
        "encode",
        "config_error",
        "error",
        "quantity",
        "share_name",
        "config",
        "remembered",
        "locks",
        "watch",
        "waiters",
        "key_event",
        "command_stats",
        "acl",
        "outbox",
        "clients",
        "listeners",
        "metrics",
        "count",
        "met",
        "swept",
        "ranks",
        "db",
        "counting",
        "txn",
        "fault",
        "places",
        "values",
        "copies",
        "commit",
        "clear",
        "worker_state",
        "cursors",
        "slow",
        "saves",
        "history",
        "models",
        "pause",
        "script",
        "libraries",
        "server",
        "part",
        "share",
        "sweep",
        "command",
        "execute",
        "http_request",
        "session",
        "transfer",
        "spare_buffers",
        "unsent",
        "workers",
        "connection",
        "unix_socket",
        "accept",
        "exposition",
        "status",
        "http",
        "tls",
        "listen",
        "fuzzing",
    ],
};

/// The packages, the lowest first, and on which of the others each may depend.
const PACKAGES: [(&str, &[&str]); 10] = [
    ("crates/model", &[]),
    ("crates/sync", &[]),
    ("crates/testkit", &[]),
    ("crates/index", &["rhumb-model", "rhumb-sync"]),
    ("crates/store", &["rhumb-model", "rhumb-sync", "rhumb-index"]),
    ("crates/remote", &["rhumb-model"]),
    ("crates/share", &["rhumb", "rhumb-remote"]),
    ("crates/server", &["rhumb", "rhumb-sync", "rhumb-remote", "rhumb-share"]),
    ("bench", &["rhumb", "rhumb-model", "rhumb-remote", "rhumb-share", "rhumb-server"]),
    (
        "crates/cli",
        &["rhumb", "rhumb-model", "rhumb-remote", "rhumb-share", "rhumb-server", "rhumb-bench"],
    ),
];

/// Checks what one file imports.
pub(super) fn check(path: &str, masked: &Masked) -> Vec<Finding> {
    LAYERS.iter().flat_map(|layers| check_file(layers, path, masked)).collect()
}

fn check_file(layers: &Layers, path: &str, masked: &Masked) -> Vec<Finding> {
    let Some(within) = path.strip_prefix(layers.sources) else { return Vec::new() };
    let own: Vec<&str> = within.trim_end_matches(".rs").split('/').collect();
    // Models are tests, too.
    let is_test = source::is_test_file(path) || own[0] == "models";
    if within == "lib.rs" || is_test {
        return Vec::new();
    }
    let Some(layer) = layers.modules.iter().position(|module| *module == own[0]) else {
        let what = format!("is in no layer: {} has none of that name", file!());
        return vec![Finding::failure(path, 0, what)];
    };
    let own: Vec<&str> = own.into_iter().filter(|part| *part != "mod").collect();
    let below = &layers.modules[..=layer];
    imports(masked)
        .into_iter()
        .filter_map(|(line, import)| {
            let module = top_of(&own, &import)?;
            (!below.contains(&&*module)).then(|| {
                let what = format!("`{}` may not import `{module}` ({import})", own[0]);
                Finding::failure(path, line, what)
            })
        })
        .collect()
}

/// The module right under the crate's root that a path leads into, seen from the module `own`;
/// `None` if it does not go by the root.
fn top_of(own: &[&str], import: &str) -> Option<String> {
    let mut parts = import.split("::");
    let first = parts.next()?;
    let rest: Vec<&str> = parts.collect();
    match first {
        "crate" => rest.first().map(|part| (*part).to_owned()),
        // A module within the file takes all that is around it.
        "super" if rest == ["*"] => None,
        "super" => {
            let ups = 1 + rest.iter().take_while(|part| **part == "super").count();
            // What stays within the module is its own affair.
            (ups >= own.len()).then(|| rest.get(ups - 1).map(|part| (*part).to_owned()))?
        }
        _ => None,
    }
}

/// The paths that begin with `crate`, `super` or `std` outside of tests, each with its line from 1.
pub(super) fn imports(masked: &Masked) -> Vec<(usize, String)> {
    let code = &masked.code[..source::tests_start(masked)];
    let mut found = Vec::new();
    let mut line = 0;
    while line < code.len() {
        let text = code[line].trim_start();
        let is_use = text.starts_with("use ")
            || text.starts_with("pub") && text.split_whitespace().take(2).any(|word| word == "use");
        if !is_use {
            found.extend(inline_paths(text).into_iter().map(|path| (line + 1, path)));
            line += 1;
            continue;
        }
        let first = line;
        let is_for_tests = first > 0 && code[first - 1].starts_with("#[cfg(test)]");
        let mut statement = String::new();
        while line < code.len() {
            statement.push_str(code[line].trim());
            line += 1;
            if statement.ends_with(';') {
                break;
            }
        }
        if is_for_tests {
            continue;
        }
        let tree = statement.split_once("use ").map_or("", |(_, tree)| tree.trim_end_matches(';'));
        found.extend(leaves(tree.trim()).into_iter().map(|path| (first + 1, path)));
    }
    found.retain(|(_, path)| begins_at_root(path));
    found
}

/// Returns true if a path begins where it can be told what it leads to.
fn begins_at_root(path: &str) -> bool {
    ["crate::", "super::", "std::"].iter().any(|root| path.starts_with(root))
}

/// The paths within an expression or a type.
fn inline_paths(code: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(|c: char| !is_part(c))
        .filter(|path| begins_at_root(path))
        .map(str::to_owned)
        .collect()
}

/// The paths that a tree of imports stands for.
fn leaves(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return vec![path.trim().to_owned()];
    };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    split_at_commas(inner)
        .into_iter()
        .flat_map(|part| leaves(part.trim()))
        .map(|leaf| format!("{prefix}{leaf}"))
        .collect()
}

/// The parts between the commas that are in no braces.
fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Checks what the packages of the workspace depend on.
pub(super) fn check_packages(root: &Path) -> Vec<Finding> {
    PACKAGES
        .iter()
        .flat_map(|(package, allowed)| {
            let path = format!("{package}/Cargo.toml");
            let manifest = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
            check_manifest(&path, &manifest, allowed)
        })
        .collect()
}

fn check_manifest(path: &str, manifest: &str, allowed: &[&str]) -> Vec<Finding> {
    let mut section = "";
    let mut findings = Vec::new();
    for (line, text) in manifest.lines().enumerate() {
        if let Some(name) = text.strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
        let name = text.split(['.', ' ', '=']).next().unwrap_or_default();
        let is_ours = name == "rhumb" || name.starts_with("rhumb-");
        let is_linked = section == "dependencies" || section.ends_with("'.dependencies");
        if is_ours && is_linked && !allowed.contains(&name) {
            let what = format!("may not depend on `{name}`");
            findings.push(Finding::failure(path, line + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::mask::mask, *};

    fn findings(path: &str, code: &str) -> Vec<String> {
        check(path, &mask(code)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_lies_below_may_be_imported() {
        let code = "use crate::{error::Result, types::{Kind, SeqNo}};\nuse super::block::View;\n\
                    fn f() -> crate::io::Clock { super::super::slice::g() }\n";
        assert_eq!(findings("crates/store/src/table/block/mod.rs", code), [""; 0]);
        assert_eq!(findings("crates/model/src/lib.rs", "use crate::db::Core;\n"), [""; 0]);
    }

    #[test]
    fn what_lies_above_may_not() {
        let upward = [
            "use crate::db::core::Core;\n",
            "use crate::{\n    error::Result,\n    db::{core::{Core, Tree}, Snapshot},\n};\n",
            "pub(crate) use crate::iter::{Iter, Ends as Both};\n",
            "fn f(core: &crate::db::Core) {}\n",
            "use super::super::plan::drive;\n",
        ];
        for code in upward {
            assert!(!findings("crates/store/src/table/reader.rs", code).is_empty(), "{code}");
        }
        // From a module's own file `super` is the crate.
        assert!(!findings("crates/store/src/slice.rs", "use super::table::Table;\n").is_empty());
        assert!(!findings("crates/store/src/plan/mod.rs", "use super::iter::Iter;\n").is_empty());
        // By the crate's root no layer can be told.
        assert!(!findings("crates/store/src/plan/mod.rs", "use crate::Keyspace;\n").is_empty());
        assert!(!findings("crates/store/src/novel.rs", "").is_empty());
    }

    #[test]
    fn tests_may_import_what_they_like() {
        let code = "#[cfg(test)]\nmod tests {\n    use crate::db::Database;\n}\n";
        assert_eq!(findings("crates/store/src/table/reader.rs", code), [""; 0]);
        assert_eq!(findings("crates/store/src/table/tests/mod.rs", "use crate::db::D;\n"), [""; 0]);
    }

    #[test]
    fn packages_depend_downwards() {
        let manifest = "[dependencies]\nrhumb-sync.workspace = true\nrhumb = { workspace = true }\n\
                        [dev-dependencies]\nrhumb-server.workspace = true\n";
        let found = |allowed: &[&str]| check_manifest("Cargo.toml", manifest, allowed).len();
        assert_eq!(found(&["rhumb-sync", "rhumb"]), 0);
        assert_eq!(found(&["rhumb-sync"]), 1);
        assert_eq!(found(&[]), 2);
    }
}
