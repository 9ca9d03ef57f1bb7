//! RDMA in a guest: a virtual machine whose kernel has a software device (`rdma_rxe`) runs the
//! remote tier's tests over it, and those of keyspaces of a store. No card, no privilege and no
//! installed package is needed.
//!
//! | module | for |
//! | --- | --- |
//! | `packages` | a file system out of the distribution's packages, in the target directory |
//! | `image` | what the guest boots from |
//! | `guest` | the guest itself |

mod guest;
mod image;
mod packages;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use self::{guest::Step, image::Image, packages::Root};
use crate::verify::target_directory;

const USAGE: &str = "\
usage: cargo xtask rdma [FILTER]…

Builds a guest out of packages of the distribution (Debian and its kin, x86-64; 145 MB, fetched once
into the target directory), boots it under QEMU without KVM, and runs the tests of rhumb-remote and rhumb-share
that need an RDMA device: those whose names contain a FILTER, or all, and then a short `rhumb bench remote
--fabric rdma` of each preset, whose counts hold and whose times are those of a slow machine. Where the packages cannot be had it says
so and does nothing. RHUMB_RDMA_MINUTES is how long the guest may take, 40 unless it says otherwise, and
RHUMB_RDMA_READS how many reads the tests make that count them.";

/// The offsets that the bindings rely on, by the names of the library's header.
const OFFSETS: &str = "crates/remote/src/verbs/offsets.txt";

/// The address of the guest's device: what QEMU's own network gives its first guest.
const ADDRESS: &str = "10.0.2.15";

/// How many reads each test makes that counts them, if it is set; the guest is told of it.
const READS: &str = "RHUMB_RDMA_READS";

/// How long a guest may take: on two loaded cores it is a tenth as fast as this machine.
const MINUTES: u64 = 40;

/// Runs the suite; see the usage text.
///
/// # Errors
/// If something cannot be built, the guest does not start, or a test fails in it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument.starts_with('-')) {
        bail!("{USAGE}");
    }
    let place = target_directory(root).join("rdma");
    let system = match packages::fetch(&place) {
        Ok(system) => system,
        Err(error) => {
            println!("skipped: the guest's packages cannot be had here: {error:#}");
            return Ok(());
        }
    };
    let mut image = Image::new(&system, &place.join("image"))?;
    let program = offsets_program(root, &system, &place)?;
    image.add_program(&program, "offsets")?;
    let mut steps = vec![Step::new("offsets", "offsets > /tmp/offsets")];
    let reads = std::env::var(READS).map(|reads| format!("{READS}={reads} "));
    let reads = reads.unwrap_or_default();
    for (name, binary) in test_binaries(root)? {
        image.add_program(&binary, &name)?;
        let filters = arguments.join(" ");
        let command = format!(
            "{reads}RHUMB_VERBS_OFFSETS=/tmp/offsets RHUMB_RDMA_ADDRESS={ADDRESS} {name} \
             --include-ignored --nocapture --test-threads 1 {filters} {}",
            if arguments.is_empty() { "verbs rdma_" } else { "" }
        );
        steps.push(Step::new(&name, &command));
    }
    if arguments.is_empty() {
        image.add_program(&rhumb(root)?, "rhumb")?;
        steps.extend(PRESETS.map(|preset| Step::new(&format!("bench-{preset}"), &bench(preset))));
    }
    let minutes = std::env::var("RHUMB_RDMA_MINUTES").ok();
    let minutes = minutes.map_or(Ok(MINUTES), |text| text.parse()).context("RHUMB_RDMA_MINUTES")?;
    let most = Duration::from_secs(60 * minutes);
    guest::run(&system, &image.finish(ADDRESS, &steps)?, &steps, most)
}

/// The assemblies, by their names on the command line.
const PRESETS: [&str; 3] = ["rhumb", "xstore", "finestore"];

/// Measures a preset in the guest. The keys are few, since each is loaded by a call.
fn bench(preset: &str) -> String {
    format!(
        "TMPDIR=/tmp rhumb bench remote --fabric rdma --address {ADDRESS} --preset {preset} \
         --data uniform --keys 24000 --subjects rhumb,call --workload get,multi_get,scan100 \
         --repeat 1 --seconds 4 --verify"
    )
}

/// The program itself, with RDMA.
fn rhumb(root: &Path) -> Result<PathBuf> {
    let arguments = ["build", "--release", "-p", "rhumb-cli", "--features", "rdma"];
    let mut build = Command::new(env!("CARGO"));
    build.args(arguments).args(["--bin", "rhumb", "--message-format", "json-render-diagnostics"]);
    Ok(programs(root, &mut build)?.remove(0).1)
}

/// A program that prints the offsets as the header of the distribution has them.
fn offsets_program(root: &Path, system: &Root, place: &Path) -> Result<PathBuf> {
    let listed = fs::read_to_string(root.join(OFFSETS)).context(OFFSETS)?;
    let names = listed.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name);
    let source = c_source(names);
    let (file, program) = (place.join("offsets.c"), place.join("offsets"));
    fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
    system.compile(&file, &program)?;
    Ok(program)
}

/// A C program that prints the size of each structure and the offset of each field that is named.
fn c_source<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {\n",
    );
    for name in names {
        let number = match name.split_once('.') {
            Some((structure, field)) => format!("offsetof(struct {structure}, {field})"),
            None => format!("sizeof(struct {name})"),
        };
        source += &format!("    printf(\"{name} %zu\\n\", {number});\n");
    }
    source + "    return 0;\n}\n"
}

/// What has tests that need a device: packages, and their targets that have some.
const TESTS: [(&str, &[&str]); 2] =
    [("rhumb-remote", &["--lib", "--test", "rdma"]), ("rhumb-share", &["--test", "rdma"])];

/// The test programs, with their names.
fn test_binaries(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut binaries = Vec::new();
    for (package, targets) in TESTS {
        let mut build = Command::new(env!("CARGO"));
        build.args(["test", "--release", "-p", package, "--features", "rdma", "--no-run"]);
        build.args(targets).args(["--message-format", "json-render-diagnostics"]);
        // Not to be taken for a tool of the guest.
        let named = |(name, path)| (format!("test-{package}-{name}"), path);
        binaries.extend(programs(root, &mut build)?.into_iter().map(named));
    }
    Ok(binaries)
}

/// The programs that a build makes, with their names: one at least.
fn programs(root: &Path, build: &mut Command) -> Result<Vec<(String, PathBuf)>> {
    // A guest's memory holds the programs: what only a debugger wants stays out.
    build.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    let built = build.current_dir(root).stderr(Stdio::inherit()).output()?;
    ensure!(built.status.success(), "what the guest is to run does not compile");
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if let (Some(path), Some(name)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        {
            programs.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    ensure!(!programs.is_empty(), "cargo names no program");
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_asked_for() {
        let source = c_source(["ibv_wc", "ibv_send_wr.wr.rdma.rkey"].into_iter());
        assert!(source.contains("printf(\"ibv_wc %zu\\n\", sizeof(struct ibv_wc));"));
        let field = "printf(\"ibv_send_wr.wr.rdma.rkey %zu\\n\", \
                     offsetof(struct ibv_send_wr, wr.rdma.rkey));";
        assert!(source.contains(field), "{source}");
    }
}
