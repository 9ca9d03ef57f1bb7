//! Backups: their points, behind valid checksums, and what is restored from them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb::fuzzing::backup(data));
