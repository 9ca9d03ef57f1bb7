//! Messages of clients and hosts, those of all assemblies among them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_remote::fuzzing::messages(data));
