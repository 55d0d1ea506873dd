//! What operator and executor agree on: ports, paths, variables, and the signed control calls.
//!
//! Both sides import these values, so neither can drift. Nothing here needs Kubernetes.

pub mod control;
pub mod token;

/// Port on which the supervisor listens for control calls from the controller.
pub const CONTROL_PORT: u16 = 60009;

/// Ports that every runtime image serves (runtime API spec 4.1).
pub mod port {
    /// The sandbox server: action execution server or agent-server.
    pub const RUNTIME: u16 = 60000;
    /// `OpenVSCode` server.
    pub const VSCODE: u16 = 60001;
    /// First web application of the user.
    pub const WORK_1: u16 = 12000;
    /// Second web application of the user.
    pub const WORK_2: u16 = 12001;
}

/// Paths inside a sandbox container.
pub mod path {
    /// Directory of the static executor binary, shared by all containers of the Pod.
    pub const BIN_DIR: &str = "/opt/sandbox/bin";
    /// The executor binary itself.
    pub const EXECUTOR: &str = "/opt/sandbox/bin/sandbox-executor";
    /// Memory-backed directory in which the supervisor keeps its initialisation.
    pub const STATE_DIR: &str = "/run/sandbox";
}

/// Environment variables of the container. The supervisor reads them; the command never sees them.
pub mod variable {
    /// Uid of the Pod, from the downward API. Control calls are bound to it.
    pub const POD_UID: &str = "SANDBOX_POD_UID";
    /// IP address of the Pod, from the downward API.
    pub const POD_IP: &str = "SANDBOX_POD_IP";
    /// Public key (Ed25519, unpadded base64url) that control calls are verified with.
    pub const CONTROL_KEY: &str = "SANDBOX_CONTROL_KEY";
    /// If set, servers in the sandbox bind to this address instead of all: for Pods that share
    /// the host's network. The one variable of these that the command inherits.
    pub const BIND_ADDRESS: &str = "SANDBOX_BIND_ADDRESS";
    /// The session key as every sandbox server reads it (runtime API spec 4.8).
    pub const SESSION_API_KEY: &str = "SESSION_API_KEY";
    /// The session key as the agent-server reads it (runtime API spec 4.8).
    pub const OH_SESSION_API_KEYS_0: &str = "OH_SESSION_API_KEYS_0";
    /// The key before a rotation, as the agent-server reads it (runtime API spec 4.8).
    pub const OH_SESSION_API_KEYS_1: &str = "OH_SESSION_API_KEYS_1";
}

/// HTTP headers of the data plane.
pub mod header {
    /// Tenant key of the runtime API; never reaches a sandbox.
    pub const API_KEY: &str = "x-api-key";
    /// Session key; checked by the server in the sandbox.
    pub const SESSION_API_KEY: &str = "x-session-api-key";
}

/// Prefix of answers to HTTP requests that the supervisor's control server understands.
pub mod endpoint {
    /// `POST`, body = token with [`super::control::Grant::Init`]: starts the command, once.
    pub const INIT: &str = "/v1/init";
    /// `GET ?timeout=SECONDS`, `Authorization: Bearer` token with [`super::control::Grant::Ready`]:
    /// a long poll that answers a [`super::control::ReadyReport`].
    pub const READY: &str = "/v1/ready";
}
