//! The browser on a real node, in both security profiles: that of the runtime API, and the restricted one,
//! which has no capability.

use serde_json::json;
use tests::browser_session::{self, IMAGE, agent_and_playwright_share_tabs};
use tests::session::{Session, client};

use crate::installation::{API_KEY, api};
use crate::test_namespace::TestNamespace;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn agent_and_playwright_share_tabs_on_a_node() {
    let _scene = TestNamespace::of_gateway().await;
    let body = browser_session::start_body("browser");
    let session = Session::start(&api(), API_KEY, &body).await;
    agent_and_playwright_share_tabs(&session).await;
    session.stop().await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn browser_works_without_capabilities() {
    let ns = TestNamespace::of_gateway().await;
    let name = "restricted-browser";
    ns.apply(
        name,
        &json!({
            "image": IMAGE, "command": browser_session::command("openhands"),
            "securityContext": {"runAsUser": 1000}, "resourceFactor": 4,
        }),
    );
    let status = ns.ready(name).await;
    let privileges = ns.exec(name, "grep -E 'CapBnd|NoNewPrivs' /proc/1/status");
    assert_eq!(privileges, "CapBnd:\t0000000000000000\nNoNewPrivs:\t1");
    let info = json!({
        "runtime_id": status.runtime_id, "session_id": name, "url": status.url, "status": "running",
        "session_api_key": ns.token(name).trim(),
    });
    let info = serde_json::from_value(info).unwrap();
    let session = Session::new(client(&api(), API_KEY), info);
    agent_and_playwright_share_tabs(&session).await;
    ns.delete::<crds::Sandbox>(name).await;
}
