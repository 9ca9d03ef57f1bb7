//! The guest: QEMU without KVM, which any machine can run, and what it prints.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::{image::kernel_version, packages::Root};

/// Memory of a guest, in MiB: the image, the programs of the tests, and the regions of hosts.
const MEMORY_MIB: u32 = 2_048;

/// Something that the guest runs.
pub(super) struct Step {
    name: String,
    command: String,
}

impl Step {
    pub(super) fn new(name: &str, command: &str) -> Self {
        Self { name: name.to_owned(), command: command.to_owned() }
    }

    /// The line of the guest's shell.
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// What the guest prints before it.
    pub(super) fn begins(&self) -> String {
        format!("== {}", self.name)
    }

    /// What the guest prints after it, before its status.
    pub(super) fn ends(&self) -> String {
        format!("== {} ended with", self.name)
    }
}

/// A guest that ends with this.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // One that has ended is none to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots a guest from an image, and prints what it prints.
///
/// # Errors
/// If it does not start, a step fails or does not end in time.
pub(super) fn run(system: &Root, image: &Path, steps: &[Step], most: Duration) -> Result<()> {
    let kernel = system.path(&format!("boot/vmlinuz-{}", kernel_version(system)?));
    let mut qemu = system.program("usr/bin/qemu-system-x86_64");
    qemu.env("QEMU_MODULE_DIR", system.path("usr/lib/x86_64-linux-gnu/qemu"))
        .arg("-L")
        .arg(system.path("usr/share/seabios"))
        .arg("-L")
        .arg(system.path("usr/share/qemu"))
        .args(["-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-M", "q35", "-smp", "2"])
        .args(["-m", &MEMORY_MIB.to_string(), "-nographic", "-no-reboot"])
        .args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="])
        .arg("-kernel")
        .arg(&kernel)
        .arg("-initrd")
        .arg(image)
        .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut guest = Guest(qemu.spawn().context("QEMU cannot be run")?);
    let output = guest.0.stdout.take().context("a pipe")?;
    let (sender, lines) = channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let until = Instant::now() + most;
    let mut ended = Vec::new();
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                let step = steps.iter().find(|step| line.starts_with(&step.ends()));
                ended.extend(step.map(|step| (&step.name, line.ends_with(" 0"))));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => bail!("the guest took over {} s", most.as_secs()),
        }
    }
    // It ends with the guest's output.
    let _ = reader.join();
    for step in steps {
        let how = ended.iter().find(|(name, _)| **name == step.name);
        let (_, is_well) = how.with_context(|| format!("{} did not end", step.name))?;
        ensure!(is_well, "{} failed in the guest", step.name);
    }
    Ok(())
}
