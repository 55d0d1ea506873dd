//! A session with every plugin in standalone, as root and as the user of OpenHands: shell, cells with a
//! picture, edits by skill, tool servers, and the link to VS Code.

use std::path::Path;
use std::process::Command;

use tests::binaries::is_root_or_skips;
use tests::image_archive::sandbox_archive;
use tests::plugin_session::{IMAGE, PluginSession};
use tests::standalone::Standalone;

/// Unpacks the image; the flag of standalone that names it. Absent where it cannot be built.
pub(crate) fn image(state: &Path) -> Option<String> {
    let archive = sandbox_archive("a session with every plugin")?;
    let directory = state.join("image");
    std::fs::create_dir_all(&directory).unwrap();
    let unpack = "tar -xOf \"$1\" layer.tar | tar -x --numeric-owner -C \"$2\"";
    let mut unpacking = Command::new("sh");
    unpacking
        .args(["-euc", unpack, "sh"])
        .args([&archive, &directory]);
    assert!(unpacking.status().unwrap().success());
    Some(format!("--image={IMAGE}={}", directory.display()))
}

#[tokio::test]
async fn session_has_every_plugin() {
    if !is_root_or_skips() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let Some(image) = image(state.path()) else {
        return;
    };
    for (form, username) in [("loopback", "openhands"), ("path", "root")] {
        let standalone = Standalone::start(state.path(), &["--url-form", form, &image]);
        let session = PluginSession::start(standalone.api(), standalone.key(), username).await;
        session.uses_all().await;
        session.stop().await;
    }
}
