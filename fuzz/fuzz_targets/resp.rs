//! Bytes of a client, split in two ways: the same commands, or the same error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_server::fuzzing::resp(data));
