//! Real CRIU on real processes, in namespaces of their own.

// Always true here; with it, clippy treats helpers as test code as well.
#![cfg(test)]

mod code;
mod namespaces;
mod refusals;
mod round_trip;
mod sandbox;
mod terminal;
