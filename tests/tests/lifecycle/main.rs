//! Controller and gateway on the embedded API in memory, in virtual time: hours pass in
//! milliseconds, and every write can be counted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod chaos;
mod controller_crash;
mod day_of_claims;
mod entrypoint_secret;
mod events;
mod failover;
mod faults;
mod full_builds;
mod gateway_replicas;
mod health;
mod idle;
mod image_volume;
mod isolation;
mod missing_dependencies;
mod outage;
mod pool_faults;
mod pool_revision;
mod quota;
mod readiness;
mod rejected_probes;
mod resume;
mod round_trip;
mod snapshot_pool;
mod snapshots;
mod start_stop_cycles;
mod thousand_sandboxes;
mod traces;
mod user_namespaces;
mod warm_pool;
mod warm_resume;
mod write_counts;
