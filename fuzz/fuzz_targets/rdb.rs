//! Dumps of Redis, payloads of `DUMP` and values: read, and the same once written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_server::fuzzing::rdb(data));
