//! Contract between operator and executor: ports, paths, variables and signed control calls.
//! Both sides import these values, so that they cannot drift. Nothing here needs Kubernetes.

pub mod control;
pub mod identity;
pub mod persistence;
pub mod prestart;
pub mod sealing;
pub mod token;

/// Port on which the supervisor listens for control calls from the controller.
pub const CONTROL_PORT: u16 = 60009;

/// Ports that every runtime image serves (`docs/specs/runtime-api.md`, section 4.1).
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
    /// CRIU, which saves and restores processes for the supervisor. An image without it has none.
    pub const CRIU: &str = "/opt/sandbox/bin/criu";
    /// Memory-backed directory in which the supervisor stores its init message.
    pub const STATE_DIR: &str = "/run/sandbox";
    /// Directory on the workspace's volume with the state that a pause keeps besides the workspace.
    pub const STORE_DIR: &str = "/run/sandbox-store";
    /// Read-only directory with the changed files of a root that the node keeps.
    pub const CHANGES_DIR: &str = "/run/sandbox-changes";
    /// Read-only directory of the snapshot that a sandbox begins with.
    pub const SNAPSHOT_DIR: &str = "/run/sandbox-snapshot";
}

/// Environment variables of the container. The supervisor removes them from the command's
/// environment, except for [`BIND_ADDRESS`](variable::BIND_ADDRESS).
pub mod variable {
    /// Uid of the Pod, from the downward API. Control calls are bound to it.
    pub const POD_UID: &str = "SANDBOX_POD_UID";
    /// IP address of the Pod, from the downward API.
    pub const POD_IP: &str = "SANDBOX_POD_IP";
    /// Public key (Ed25519, unpadded base64url) that control calls are verified with.
    pub const CONTROL_PUBLIC_KEY: &str = "SANDBOX_CONTROL_PUBLIC_KEY";
    /// Identity key of the sandbox, see [`super::identity`].
    pub const IDENTITY_KEY: &str = "SANDBOX_IDENTITY_KEY";
    /// Program that runs before the init message, see [`super::prestart`].
    pub const PRESTART: &str = "SANDBOX_PRESTART";
    /// Persistence beyond the workspace, see [`super::persistence`].
    pub const PERSISTENCE: &str = "SANDBOX_PERSISTENCE";
    /// Outcome of [`RootMechanism::Node`](super::persistence::RootMechanism::Node) at the start of
    /// the container: a [`KeptState`](super::persistence::KeptState) as JSON. Set by the node.
    pub const NODE_ROOT: &str = "SANDBOX_NODE_ROOT";
    /// Variables of the supervisor that the command does not inherit.
    pub const SUPERVISOR: [&str; 7] = [
        POD_UID,
        POD_IP,
        CONTROL_PUBLIC_KEY,
        IDENTITY_KEY,
        PRESTART,
        PERSISTENCE,
        NODE_ROOT,
    ];
    /// Address that servers in the sandbox bind to instead of all: for Pods that share the
    /// host's network. The command inherits it.
    pub const BIND_ADDRESS: &str = "SANDBOX_BIND_ADDRESS";
    /// Session key as every sandbox server reads it (`docs/specs/runtime-api.md`, section 4.8).
    pub const SESSION_API_KEY: &str = "SESSION_API_KEY";
    /// Session key as the agent-server reads it.
    pub const OH_SESSION_API_KEYS_0: &str = "OH_SESSION_API_KEYS_0";
    /// Session key before a rotation, as the agent-server reads it.
    pub const OH_SESSION_API_KEYS_1: &str = "OH_SESSION_API_KEYS_1";
    /// Variables that the operator sets to another value for each sandbox.
    pub const PER_SANDBOX: [&str; 8] = [
        SESSION_API_KEY,
        OH_SESSION_API_KEYS_0,
        OH_SESSION_API_KEYS_1,
        "OH_SECRET_KEY",
        "OH_VSCODE_BASE_PATH",
        "OH_WEB_URL",
        "RUNTIME_ID",
        "RUNTIME_URL",
    ];
}

/// HTTP headers of data plane and control calls.
pub mod header {
    /// Tenant key of the runtime API; never reaches a sandbox.
    pub const API_KEY: &str = "x-api-key";
    /// Session key; checked by the server in the sandbox.
    pub const SESSION_API_KEY: &str = "x-session-api-key";
    /// Name of the plugin whose own host or path a request came to. Set by the gateway.
    pub const PLUGIN: &str = "x-sandbox-plugin";
    /// Architecture of the programs in a layer, as image indexes name it. Set by the supervisor.
    pub const ARCHITECTURE: &str = "x-sandbox-architecture";
}

/// Paths of the supervisor's control server (`docs/specs/supervisor.md`, section 2).
pub mod endpoint {
    /// `POST`, body = token with [`super::control::Grant::SealedInit`]: starts the command, once.
    pub const INIT: &str = "/v1/init";
    /// `GET ?timeout=SECONDS`, `Authorization: Bearer` token with [`super::control::Grant::Ready`]:
    /// a long poll that answers a [`super::control::ReadyReport`].
    pub const READY: &str = "/v1/ready";
    /// `GET` with [`super::identity::NONCE_HEADER`]: an empty response with a proof.
    pub const IDENTITY: &str = "/v1/identity";
    /// `POST ?timeout=SECONDS`, body = token with [`super::control::Grant::Save`]: stops the command
    /// and keeps its state. A long poll that answers a [`super::persistence::SaveReport`]; a
    /// repeated call reports on the same save.
    pub const SAVE: &str = "/v1/save";
    /// `POST ?timeout=SECONDS`, body = token with [`super::control::Grant::Snapshot`]: copies the state
    /// of the command, which goes on. A long poll that answers a
    /// [`super::persistence::SnapshotReport`]; a repeated call reports on the same snapshot, and one of
    /// another snapshot meanwhile is answered with 409.
    pub const SNAPSHOT: &str = "/v1/snapshot";
    /// `GET`, `Authorization: Bearer` token with [`super::control::Grant::Layer`]: the changed files of
    /// a snapshot as an image layer, an archive that is not compressed, with
    /// [`super::header::ARCHITECTURE`].
    pub const LAYER: &str = "/v1/layer";
    /// `GET`, without a token: 204 once the prestarted program has passed its probe, 503 before.
    pub const WARM: &str = "/v1/warm";
}
