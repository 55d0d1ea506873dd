//! A change of `spec.image` during a pause that kept processes, on a real node.

use crds::conditions::Reason;
use crds::contract::persistence::{PersistenceLevel, RootMechanism};
use crds::sandbox::SandboxStatus;
use serde_json::json;
use tests::browser_session;

use crate::beats::{assert_files, assert_goes_on, pause, start, wait_for_beat};
use crate::installation::IMAGE;
use crate::persistence::{NODE_IMAGE, best_mechanism};
use crate::test_namespace::TestNamespace;

/// Pauses with processes, and resumes with this image.
async fn resume_with(ns: &TestNamespace, name: &str, image: &str) {
    let persisted = pause(ns, name).await.persisted.unwrap();
    assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
    set_image(ns, name, image).await;
}

/// The image of a sandbox that is to run stays as it is, so it changes first.
async fn set_image(ns: &TestNamespace, name: &str, image: &str) {
    ns.patch(name, json!({"image": image})).await;
    ns.patch(name, json!({"state": "Running"})).await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn changed_files_and_processes_do_not_go_on_with_another_image() {
    // Each is on the node where the other is not.
    let (other, program) = match best_mechanism(&TestNamespace::of_gateway().await).await {
        RootMechanism::Overlay => (NODE_IMAGE, "node"),
        RootMechanism::Archive | RootMechanism::Node => {
            (browser_session::IMAGE, "chromium-headless-shell")
        }
    };
    let ns = TestNamespace::new("changed-image").await;
    let name = "i";
    let incarnation = start(&ns, name).await.incarnation;

    // Nothing of an image that is not there has run: with the earlier one all goes on.
    resume_with(&ns, name, "localhost/not-there:1").await;
    let waits = |status: &SandboxStatus| status.reason == Some(Reason::ImagePullBackOff);
    ns.until(name, "without image", waits).await;
    resume_with(&ns, name, IMAGE).await;
    assert_goes_on(&ns, name, incarnation).await;

    resume_with(&ns, name, other).await;
    let status = ns.ready(name).await;
    let restored = status.restored.unwrap();
    assert_eq!(restored.level, PersistenceLevel::Workspace, "{restored:?}");
    let reason = restored.reason.unwrap();
    for words in [
        "processes did not go on: ",
        "the image has changed from ",
        ": files outside of the workspace are those of the new image",
    ] {
        assert!(reason.contains(words), "{reason}");
    }
    assert_eq!(status.incarnation, incarnation + 1);
    ns.reported(name).await;
    let files = format!(
        "cat /workspace/kept; cat /etc/kept 2>/dev/null || echo none; command -v {program} >&2"
    );
    assert_eq!(ns.exec(name, &files), "kept\nnone");
    let runs = wait_for_beat(&ns, name).await;
    assert_eq!(runs.len(), 2, "{runs:?}");

    // From now on the sandbox is one of the other image.
    ns.exec(name, "echo kept >/etc/kept");
    resume_with(&ns, name, other).await;
    let status = ns.ready(name).await;
    let restored = status.restored.unwrap();
    assert_eq!(restored.level, PersistenceLevel::Memory, "{restored:?}");
    assert_eq!(status.incarnation, incarnation + 1);
    ns.reported(name).await;
    assert_files(&ns, name);
    assert_eq!(wait_for_beat(&ns, name).await.len(), 2);
}
