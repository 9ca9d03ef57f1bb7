//! Bytes of a client, all its commands run.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_server::fuzzing::session(data));
