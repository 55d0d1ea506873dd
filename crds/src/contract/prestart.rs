//! Prestart: the program that a warm Pod runs before its init message.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::control::Probe;

/// Flag of `sandbox-executor serve`: start shell and plugins, answer requests with 503, and serve
/// once a line with an [`Init`](super::control::Init) as JSON arrives on standard input. The command
/// of the message may have other arguments.
pub const DORMANT_FLAG: &str = "--dormant";

/// Program that a supervisor starts while it is dormant: the variable
/// [`PRESTART`](super::variable::PRESTART) of the container, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prestart {
    pub handover: Handover,
    /// Program and arguments. The init message may name another command, which then replaces it.
    pub command: Vec<String>,
    /// Absolute directory in which the program starts.
    pub working_dir: String,
    /// Variables that override the container's environment.
    pub environment: BTreeMap<String, String>,
    /// Rule by which the Pod counts as warm.
    pub probe: Probe,
}

/// The way in which a prestarted program gets the init message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Handover {
    /// The native executor reads it from standard input, see [`DORMANT_FLAG`].
    Executor,
    /// The agent-server takes it by `POST /api/init` (`docs/specs/supervisor.md`, section 10).
    AgentServer,
    /// The program does not get it: the same command without variables of its own is served by the
    /// running program.
    Command,
}
