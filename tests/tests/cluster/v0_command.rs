//! The whole command of V0's client, in a Debian with no Python server in it, driven through the gateway by
//! a Python client.

use std::process::Command;

use tests::binaries::root;

use crate::session;
use crate::test_namespace::TestNamespace;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn python_client_works_through_the_gateway() {
    let ns = TestNamespace::of_gateway().await;
    let session = session::start("python").await;
    let whoami = "id -un; id -u; pwd; echo $HOME; sudo id -un";
    let who = session.run(whoami).await;
    assert_eq!(who, "openhands\n1000\n/workspace\n/home/openhands\nroot");
    let output = Command::new("python3")
        .arg(root().join("executor/examples/agent_session.py"))
        .env("SERVER_URL", &session.url)
        .env("SESSION_API_KEY", &session.key)
        .output()
        .unwrap();
    let steps = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{steps}{errors}");
    assert!(steps.lines().all(|step| step.starts_with("ok ")), "{steps}");
    assert!(steps.lines().count() > 20, "{steps}");
    // The files outlive a pause, and so does who may read them.
    session.pause().await;
    ns.paused(&session.id).await;
    session.resume().await;
    session.ready().await;
    let log = session.run("git -C /workspace/demo log --format=%s").await;
    assert_eq!(log, "Fix add\nFirst version");
    session.stop().await;
}
