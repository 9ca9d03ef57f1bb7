//! Histories of transactions, against a model.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| rhumb::fuzzing::transactions(data));
