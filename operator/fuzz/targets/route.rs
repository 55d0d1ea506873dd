//! Hosts, paths and headers of requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operator::gateway::properties::route(bytes));
