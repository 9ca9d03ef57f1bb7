//! What a guest boots from: a file system in memory with a kernel's modules, a few programs, and a
//! script that is the first process.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use super::{guest::Step, packages::Root};

/// Modules of the kernel: checksums that the device asks for, a network card, and the device.
const MODULES: [&str; 5] =
    ["crc32c_generic", "crc32_generic", "virtio_pci", "virtio_net", "rdma_rxe"];
/// The module by which programs reach the device.
const USER_MODULE: &str = "ib_uverbs";

/// Where the library finds drivers of devices.
const DRIVERS: &str = "usr/lib/x86_64-linux-gnu/libibverbs";
/// Where programs find libraries in the guest.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// An image on its way.
pub(super) struct Image<'r> {
    system: &'r Root,
    path: PathBuf,
}

impl<'r> Image<'r> {
    /// An image with all but what is to be run.
    ///
    /// # Errors
    /// If the packages lack something.
    pub(super) fn new(system: &'r Root, path: &Path) -> Result<Self> {
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        let image = Self { system, path: path.to_owned() };
        for directory in
            ["bin", "dev", "etc/libibverbs.d", "lib64", "modules", "proc", "sys", "tmp", DRIVERS]
        {
            fs::create_dir_all(path.join(directory))?;
        }
        fs::create_dir_all(path.join(LIBRARIES))?;
        image.copy(&system.path("bin/busybox"), "bin/busybox")?;
        image.copy(&system.loader(), "lib64/ld-linux-x86-64.so.2")?;
        image.add_modules()?;
        image.add_driver()?;
        image.add_tool("rdma")?;
        Ok(image)
    }

    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        fs::copy(from, self.path.join(to))
            .with_context(|| format!("cannot copy {} into the image", from.display()))?;
        Ok(())
    }

    fn add_modules(&self) -> Result<()> {
        let kernel = kernel_version(self.system)?;
        let mut known = HashMap::new();
        find_modules(&self.system.path("lib/modules").join(kernel), &mut known)?;
        let mut order: Vec<PathBuf> = Vec::new();
        for name in MODULES.iter().chain([&USER_MODULE]) {
            add_with_needs(name, &known, &mut order)?;
        }
        for (index, module) in order.iter().enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            self.copy(module, &format!("modules/{index:02}-{name}"))?;
        }
        Ok(())
    }

    /// The library's driver of the software device, and the library, which programs open by name.
    fn add_driver(&self) -> Result<()> {
        for entry in fs::read_dir(self.system.path(DRIVERS))? {
            let driver = entry?.path();
            let name = driver.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("librxe") {
                self.add_libraries(&driver)?;
                self.copy(&driver, &format!("{DRIVERS}/{name}"))?;
            }
        }
        self.copy(&self.system.path("etc/libibverbs.d/rxe.driver"), "etc/libibverbs.d/rxe.driver")
    }

    fn add_tool(&self, name: &str) -> Result<()> {
        let places = ["bin", "sbin", "usr/bin", "usr/sbin"];
        let paths = places.map(|place| self.system.path(place).join(name));
        let Some(path) = paths.iter().find(|path| path.is_file()) else {
            bail!("no package has {name}");
        };
        self.add_program(path, name)
    }

    /// Adds a program, with the libraries that it needs.
    ///
    /// # Errors
    /// If it needs one that is in no package.
    pub(super) fn add_program(&self, program: &Path, name: &str) -> Result<()> {
        self.add_libraries(program)?;
        self.copy(program, &format!("bin/{name}"))
    }

    fn add_libraries(&self, program: &Path) -> Result<()> {
        for library in self.system.libraries_of(program)? {
            let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.copy(&library, &format!("{LIBRARIES}/{name}"))?;
        }
        Ok(())
    }

    /// Packs it, with a script that runs the steps; returns the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn finish(&mut self, address: &str, steps: &[Step]) -> Result<PathBuf> {
        let init = self.path.join("init");
        fs::write(&init, script(address, steps))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let mut list = String::new();
        list_files(&self.path, Path::new("."), &mut list)?;
        let archive = self.path.with_extension("cpio");
        let mut cpio = Command::new(self.system.path("bin/busybox"));
        cpio.args(["cpio", "-o", "-H", "newc"]).current_dir(&self.path);
        cpio.stdin(Stdio::piped()).stdout(fs::File::create(&archive)?).stderr(Stdio::null());
        let mut cpio = cpio.spawn().context("busybox cannot be run")?;
        let mut names = cpio.stdin.take().context("a pipe")?;
        std::io::Write::write_all(&mut names, list.as_bytes())?;
        drop(names);
        ensure!(cpio.wait()?.success(), "the image cannot be packed");
        Ok(archive)
    }
}

/// The version of the kernel of the packages.
pub(super) fn kernel_version(system: &Root) -> Result<String> {
    let modules = system.path("lib/modules");
    let entries = fs::read_dir(&modules).with_context(|| format!("{}", modules.display()))?;
    let mut versions: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    versions.sort();
    versions.pop().context("no package has a kernel")
}

/// Modules by their names, of which some are written with `-` and `_`.
fn find_modules(directory: &Path, known: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            find_modules(&path, known)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && let Some(name) = name.strip_suffix(".ko")
        {
            known.insert(name.replace('-', "_"), path.clone());
        }
    }
    Ok(())
}

/// Adds a module after all that it needs.
fn add_with_needs(
    name: &str,
    known: &HashMap<String, PathBuf>,
    order: &mut Vec<PathBuf>,
) -> Result<()> {
    let Some(path) = known.get(&name.replace('-', "_")) else {
        bail!("the kernel of the packages has no module {name} that is not compressed");
    };
    if order.contains(path) {
        return Ok(());
    }
    for needed in needs(&fs::read(path)?) {
        add_with_needs(&needed, known, order)?;
    }
    order.push(path.clone());
    Ok(())
}

/// The modules that a module needs, as it says itself.
fn needs(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|some| some == FIELD) else {
        return Vec::new();
    };
    let text = &module[at + FIELD.len()..];
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(text);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn list_files(root: &Path, directory: &Path, list: &mut String) -> Result<()> {
    for entry in fs::read_dir(root.join(directory))? {
        let path = directory.join(entry?.file_name());
        *list += &format!("{}\n", path.display());
        if root.join(&path).is_dir() {
            list_files(root, &path, list)?;
        }
    }
    Ok(())
}

/// The guest's first process: it has the kernel know the device, runs the steps, and ends the
/// guest. Each step says when it begins and how it ended.
fn script(address: &str, steps: &[Step]) -> String {
    let mut script = format!(
        "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
ulimit -l unlimited
for module in /modules/*; do insmod $module || echo \"$module was refused\"; done
ifconfig lo up
ifconfig eth0 {address} netmask 255.255.255.0 up
/bin/rdma link add rxe0 type rxe netdev eth0
"
    );
    for step in steps {
        script += &format!("echo {}\n{}\necho {} $?\n", step.begins(), step.command(), step.ends());
    }
    script + "poweroff -f\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF..\0license=GPL\0depends=ib_core,udp-tunnel\0name=rdma_rxe\0";
        assert_eq!(needs(module), ["ib_core", "udp-tunnel"]);
        assert!(needs(b"..\0depends=\0name=x\0").is_empty());
        assert!(needs(b"no module").is_empty());
    }
}
