//! The embedded API as its users see it: through kube-rs, in memory, under paused time.

#[path = "api_suite/crud.rs"]
mod crud;
#[path = "api_suite/deletion.rs"]
mod deletion;
#[path = "api_suite/faults.rs"]
mod faults;
#[path = "api_suite/fixtures.rs"]
mod fixtures;
#[path = "api_suite/http.rs"]
mod http;
#[path = "api_suite/persistence.rs"]
mod persistence;
#[path = "api_suite/watches.rs"]
mod watches;
