//! Bytes of a terminal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| executor::properties::screen(bytes));
