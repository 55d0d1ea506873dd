//! The black-box checklist of the runtime API (`docs/specs/runtime-api.md`, section 8.1), item by item, against the
//! standalone binary. Item 2 is `readiness.rs`.

mod content;
mod crashes;
mod endurance;
mod lifecycle;
mod requests;
mod restarts;
mod shutdown;
pub(crate) mod streams;
