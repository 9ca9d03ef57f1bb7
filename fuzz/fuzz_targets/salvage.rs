//! Stores of any bytes, which are salvaged.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb::fuzzing::salvage(data));
