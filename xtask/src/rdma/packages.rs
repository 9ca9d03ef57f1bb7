//! A file system out of packages: the guest's kernel, its programs, and QEMU itself.
//!
//! The packages and all that they need are fetched by the distribution's own client, which checks
//! their signatures, as if nothing were installed here; so what is installed does not matter, and
//! nothing is. Their scripts are not run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

/// Packages of the guest, of QEMU, and of a C compiler that is small enough to fetch.
const PACKAGES: [&str; 12] = [
    "busybox-static",
    "ibverbs-providers",
    "iproute2",
    "libc6-dev",
    "libibverbs-dev",
    "libibverbs1",
    "linux-image-amd64",
    "linux-libc-dev",
    "qemu-system-data",
    "qemu-system-x86",
    "seabios",
    "tcc",
];

/// Where libraries are.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// A file system that was put together.
pub(super) struct Root {
    path: PathBuf,
}

/// Fetches the packages, unless that was done, and unpacks them.
///
/// # Errors
/// If this is no machine that has them.
pub(super) fn fetch(place: &Path) -> Result<Root> {
    ensure!(cfg!(all(target_os = "linux", target_arch = "x86_64")), "this is not Linux on x86-64");
    let (root, unpacked) = (Root { path: place.join("root") }, place.join("unpacked"));
    let wanted = PACKAGES.join("\n");
    if fs::read_to_string(&unpacked).is_ok_and(|done| done == wanted) {
        return Ok(root);
    }
    let archives = place.join("archives");
    for directory in [&archives.join("partial"), &root.path] {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    println!("fetching packages into {}", archives.display());
    let status = place.join("status");
    fs::write(&status, "").with_context(|| format!("cannot write {}", status.display()))?;
    let option = |name: &str, value: &Path| format!("{name}={}", value.display());
    let mut apt = Command::new("apt-get");
    apt.args(["-y", "--download-only", "-o", "Debug::NoLocking=1"])
        .args(["-o", "APT::Install-Recommends=false"])
        .args(["-o", &option("Dir::State::status", &status)])
        .args(["-o", &option("Dir::Cache::archives", &archives)])
        .arg("install")
        .args(PACKAGES);
    finish(&mut apt, "apt-get")?;
    for entry in fs::read_dir(&archives)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            finish(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root.path), "dpkg-deb")?;
        }
    }
    fs::write(&unpacked, wanted)?;
    Ok(root)
}

/// Runs a program that says nothing unless it fails.
fn finish(command: &mut Command, name: &str) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{name} cannot be run"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

impl Root {
    /// A path in it.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// The loader of its programs.
    pub(super) fn loader(&self) -> PathBuf {
        self.path("lib64/ld-linux-x86-64.so.2")
    }

    /// Where its programs find their libraries.
    fn library_path(&self) -> String {
        LIBRARIES.map(|path| self.path(path).display().to_string()).join(":")
    }

    /// One of its programs, run here with its own libraries.
    pub(super) fn program(&self, path: &str) -> Command {
        let mut command = Command::new(self.loader());
        command.arg("--library-path").arg(self.library_path()).arg(self.path(path));
        command
    }

    /// The libraries that a program needs, out of this file system.
    ///
    /// # Errors
    /// If one is not there.
    pub(super) fn libraries_of(&self, program: &Path) -> Result<Vec<PathBuf>> {
        let mut list = Command::new(self.loader());
        list.arg("--library-path").arg(self.library_path()).arg("--list").arg(program);
        let output = list.output().context("the loader cannot be run")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{} needs what is not there: {text}", program.display());
        let resolved = text.lines().filter_map(|line| line.split_once(" => "));
        let paths = resolved.filter_map(|(_, path)| path.split_whitespace().next());
        Ok(paths.map(PathBuf::from).collect())
    }

    /// Compiles a C program against the headers of the packages.
    ///
    /// # Errors
    /// If it does not compile.
    pub(super) fn compile(&self, source: &Path, program: &Path) -> Result<()> {
        let tcc = self.path("usr/lib/x86_64-linux-gnu/tcc");
        let mut command = self.program("usr/bin/tcc");
        command.arg("-B").arg(&tcc).arg("-nostdinc").arg("-I").arg(tcc.join("include"));
        for include in ["usr/include", "usr/include/x86_64-linux-gnu"] {
            command.arg("-I").arg(self.path(include));
        }
        for library in LIBRARIES {
            command.arg("-L").arg(self.path(library));
        }
        // It does not look for the files with which every program begins and ends elsewhere.
        let crt = |name: &str| self.path("usr/lib/x86_64-linux-gnu").join(name);
        command.arg("-nostdlib").args([crt("crt1.o"), crt("crti.o")]).arg(source);
        command.arg(self.path("lib/x86_64-linux-gnu/libc.so.6")).arg(crt("crtn.o"));
        command.arg("-o").arg(program);
        finish(&mut command, "tcc")
    }
}
