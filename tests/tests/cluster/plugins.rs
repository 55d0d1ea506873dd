//! A session with every plugin on a real node, as root and as the user of OpenHands: shell, cells with a
//! picture, edits by skill, tool servers, and the link to VS Code.

use tests::plugin_session::{IMAGE, PluginSession};

use crate::installation::{API_KEY, api};
use crate::test_namespace::TestNamespace;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn session_has_every_plugin() {
    assert_eq!(IMAGE, crate::installation::IMAGE);
    let _scene = TestNamespace::of_gateway().await;
    let base = &api();
    for username in ["openhands", "root"] {
        let session = PluginSession::start(base, API_KEY, username).await;
        session.uses_all().await;
        // In a cell as in the shell: rights that are got, not had.
        for (code, command) in [
            ("!sudo -n id -un", "sudo -n id -un"),
            (
                "!sudo -n -u openhands id -un",
                "sudo -n -u openhands id -un",
            ),
            (
                "import subprocess; print(subprocess.run(['sudo', '-n', 'sh', '-c', 'id -u; id -G'], capture_output=True, text=True).stdout)",
                "sudo -n sh -c 'id -u; id -G'",
            ),
        ] {
            let (cell, shell) = (session.cell(code).await, session.run(command).await);
            assert_eq!(cell.replace('\r', ""), shell, "{username}: {code}");
        }
        assert_eq!(session.cell("!sudo -n id -un").await, "root");
        session.stop().await;
    }
}
