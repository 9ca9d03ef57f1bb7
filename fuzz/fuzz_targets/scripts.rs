//! The converters of scripts: JSON, MessagePack, structures, replies.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb_server::fuzzing::scripts(data));
