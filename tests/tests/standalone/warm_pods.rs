//! The warm Pods of a standalone: sandboxes of the default image claim them.

use serde_json::{Value, json};

use crate::fixture::{Fixture, fixture_with};

fn object(fixture: &Fixture, name: &str) -> Value {
    serde_json::from_str(&fixture.kubectl(&format!("get {name} -o json"))).unwrap()
}

#[tokio::test]
async fn sandboxes_claim_the_warm_pod_and_another_one_follows() {
    let warm = ["--warm-pods", "1", "--warm-image", "debian:12"];
    let Some(fixture) = fixture_with(&warm) else {
        return;
    };
    for (claimed, session) in ["first", "second"].into_iter().enumerate() {
        if claimed > 0 {
            let is_seen = format!("wait --for=jsonpath={{.status.claimed}}={claimed} sbxp/warm");
            fixture.kubectl(&format!("{is_seen} --timeout=60s"));
        }
        fixture.kubectl("wait --for=condition=Ready sbxp/warm --timeout=60s");
        let sandbox = fixture.run(session).await;
        let status = object(&fixture, &format!("sandbox/{}", sandbox.id))["status"].clone();
        assert_eq!(status["warm"], json!(true), "{status}");
        // User, directory and variables arrive with the claim.
        let said = sandbox
            .run("echo $GREETING $(id -un) $PWD; echo x > f")
            .await;
        assert_eq!(said, "hello openhands /workspace", "{session}");
        // The server is the prestarted one: the command of the claim has no such flag.
        let server = sandbox.run("tr '\\0' ' ' < /proc/$PPID/cmdline").await;
        assert!(
            server.contains("serve") && server.contains("--dormant"),
            "{server}"
        );
        assert_eq!(sandbox.run("cat f").await, "x");
    }
    fixture.kubectl("wait --for=jsonpath={.status.claimed}=2 sbxp/warm --timeout=60s");
}
