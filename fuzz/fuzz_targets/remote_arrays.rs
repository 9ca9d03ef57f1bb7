//! A hostile region of trained arrays, or hostile descriptors of them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_remote::fuzzing::arrays(data));
