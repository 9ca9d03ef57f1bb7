//! Dumps of databases, behind valid checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb::fuzzing::dump(data));
