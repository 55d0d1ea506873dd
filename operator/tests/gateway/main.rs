//! Tests of the gateway on a fake Kubernetes API: the runtime API call by call, and the proxy byte
//! by byte over real sockets. One target, so that it is linked once.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod api;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod builds;
#[cfg(test)]
mod console;
#[cfg(test)]
mod event_limits;
#[cfg(test)]
mod events;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod memory_attack;
#[cfg(test)]
mod observability;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod snapshot_images;
#[cfg(test)]
mod snapshot_starts;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod spec_rules;
#[cfg(test)]
mod support;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod usage;
