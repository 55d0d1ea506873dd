//! Controller and gateway on the embedded API in memory, in virtual time: hours pass in
//! milliseconds, and every write can be counted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod api;
mod busy;
mod chaos;
mod children;
mod crash;
mod failover;
mod faults;
mod fleet;
mod health;
mod idle;
mod life;
mod missing;
mod quota;
mod readiness;
mod replicas;
mod resume;
mod round_trip;
mod writes;
