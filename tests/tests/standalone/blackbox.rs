//! Items of the black-box checklist of the runtime API (`docs/specs/runtime-api.md`, section 8.1) that need the
//! standalone binary and real processes. The section names the tests of the others.

mod endurance;
mod requests;
mod restarts;
mod shutdown;
pub(crate) mod streams;
