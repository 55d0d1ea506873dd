//! Paths and names of files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| executor::properties::paths(bytes));
