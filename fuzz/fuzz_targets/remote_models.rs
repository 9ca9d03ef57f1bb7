//! A hostile region of the two-stage assembly, or hostile answers of its host.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_remote::fuzzing::models(data));
