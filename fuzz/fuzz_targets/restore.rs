//! Values through `RESTORE` and `DUMP`, and every command that reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_server::fuzzing::restore(data));
