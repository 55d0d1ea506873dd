//! Real CRIU on real processes, in namespaces of their own.

#[path = "behavior/namespaces.rs"]
mod namespaces;
#[path = "behavior/refusals.rs"]
mod refusals;
#[path = "behavior/round_trip.rs"]
mod round_trip;
#[path = "behavior/sandbox.rs"]
mod sandbox;
