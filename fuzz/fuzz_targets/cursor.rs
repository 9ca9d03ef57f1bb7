//! Files of cursors, behind valid checksums, in the directory of a database.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb::fuzzing::cursor(data));
