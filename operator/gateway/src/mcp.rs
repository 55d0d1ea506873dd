//! Sandboxes as tools of the Model Context Protocol, at `/mcp` (`docs/mcp.md`).
//!
//! A tool changes nothing by itself: it calls the router of the API and the proxy to sandboxes, in
//! this process and with the credentials of the client. So tenancy, limits, the audit log and the
//! waking of paused sandboxes are those of all clients. No state is kept between requests, so any
//! replica can answer. Only a notification that cancels a call has to reach the replica of the
//! call.

mod backend;
mod call;
mod http;
mod output;
mod progress;
mod running_calls;
mod server;
mod tools;

pub(super) use backend::Backend;
pub(super) use http::{Mcp, PATH};
