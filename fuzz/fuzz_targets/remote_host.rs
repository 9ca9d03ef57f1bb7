//! A host that is sent anything.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_remote::fuzzing::host(data));
