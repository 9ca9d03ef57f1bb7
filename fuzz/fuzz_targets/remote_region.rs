//! A hostile region of runs, read by gets and scans.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_remote::fuzzing::region(data));
