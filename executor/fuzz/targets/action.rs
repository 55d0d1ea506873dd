//! Bodies of actions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| executor::properties::action(bytes));
