//! The embedded API as its users see it: through kube-rs, in memory, under paused time.

#[cfg(test)]
#[path = "api_suite/crud.rs"]
mod crud;
#[cfg(test)]
#[path = "api_suite/deletion.rs"]
mod deletion;
#[cfg(test)]
#[path = "api_suite/events.rs"]
mod events;
#[cfg(test)]
#[path = "api_suite/faults.rs"]
mod faults;
#[cfg(test)]
#[path = "api_suite/fixtures.rs"]
mod fixtures;
#[cfg(test)]
#[path = "api_suite/http.rs"]
mod http;
#[cfg(test)]
#[path = "api_suite/persistence.rs"]
mod persistence;
#[cfg(test)]
#[path = "api_suite/sandboxes.rs"]
mod sandboxes;
#[cfg(test)]
#[path = "api_suite/watches.rs"]
mod watches;
