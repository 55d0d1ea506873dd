//! Images for sandboxes of the standalone server: one with the fake agent-server, and an empty one.

use std::path::Path;

use crate::binaries::binary;

/// Name of the image with the fake agent-server.
pub const IMAGE: &str = "ghcr.io/openhands/agent-server:test-python";
/// Name of the image without a program.
pub const EMPTY_IMAGE: &str = "example.com/empty:1";

/// Creates the image with the fake agent-server below `state`. Returns the flag of standalone that names it.
pub fn image(state: &Path) -> String {
    let root = state.join("agent-server-image");
    let directory = root.join("usr/local/bin");
    std::fs::create_dir_all(&directory).expect("a writable state directory");
    let program = directory.join("openhands-agent-server");
    std::fs::copy(binary("fake_agent_server"), program).expect("a binary to copy");
    with_directories(IMAGE, &root)
}

/// Creates an image without a program below `state`. Returns the flag of standalone that names it.
pub fn empty_image(state: &Path) -> String {
    with_directories(EMPTY_IMAGE, &state.join("empty-image"))
}

fn with_directories(name: &str, root: &Path) -> String {
    for directory in ["tmp", "workspace", "etc"] {
        std::fs::create_dir_all(root.join(directory)).expect("a writable state directory");
    }
    format!("--image={name}={}", root.display())
}
