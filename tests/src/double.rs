//! An image with nothing in it but the double of an agent-server.

use std::path::Path;

use crate::binaries::binary;

/// Name of the image.
pub const IMAGE: &str = "ghcr.io/openhands/agent-server:test-python";

/// Makes the image below `state`; the flag of standalone that names it.
pub fn image(state: &Path) -> String {
    let root = state.join("agent-server-image");
    let directory = root.join("usr/local/bin");
    std::fs::create_dir_all(&directory).expect("a writable state directory");
    for made in ["tmp", "workspace", "etc"] {
        std::fs::create_dir_all(root.join(made)).expect("a writable state directory");
    }
    let program = directory.join("openhands-agent-server");
    std::fs::copy(binary("agent_server_double"), program).expect("a binary to copy");
    format!("--image={IMAGE}={}", root.display())
}
