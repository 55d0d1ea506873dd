//! Roots that the node keeps with a claim: changes, images, limits, and one user at a time.

mod fixture;
mod hostile;

use std::os::unix::fs::MetadataExt as _;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use serde_json::json;

use self::fixture::{Fixture, IMAGES, OTHER, spec};
use super::harness::{Machine, ended, eventually, running};
use super::restart::{node_process, serve};

/// Changes of each sort.
const CHANGE: &str = "mkdir -p /usr/local/bin 2>/dev/null; mkdir -p /opt/x && echo kept > /opt/x/file && \
    chown 1000:1001 /opt/x/file && chmod 4751 /opt/x/file && ln -s file /opt/x/link && \
    echo own > /etc/own && rm /etc/debian_version && echo w > /workspace/w && \
    echo s > /run/sandbox-store/s && echo \"$SANDBOX_NODE_ROOT\"";
const SHOW: &str = "stat -c '%u:%g %a' /opt/x/file /opt; cat /opt/x/link /etc/own /workspace/w \
    /run/sandbox-store/s; ls /etc/debian_version 2>/dev/null; cat /etc/hostname; \
    grep -c pod$ /etc/hosts; stat -c %u:%g /workspace/.. /etc; echo \"$SANDBOX_NODE_ROOT\"";
const SHOWN: &str =
    "1000:1001 4751\n0:0 755\nkept\nown\nw\ns\npod\n1\n0:0\n0:0\n{\"level\":\"Root\"}\n";

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_root_outlive_pods_until_claim_is_deleted() {
    let Some(fixture) = Fixture::start() else {
        return;
    };
    let Fixture { machine, .. } = &fixture;
    for (number, image) in IMAGES.into_iter().enumerate() {
        let claim = format!("claim-{number}");
        let directory = machine.claim(&claim, "1Gi").await;
        let first = fixture.run(&claim, image, CHANGE).await;
        assert_eq!(first, "{\"level\":\"Workspace\"}\n", "{image}");
        assert_eq!(fixture.run(&claim, image, SHOW).await, SHOWN, "{image}");
        assert_eq!(fixture.run(&claim, image, SHOW).await, SHOWN, "{image}");
        let mode = directory.metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700, "other users cannot enter");
        machine.delete::<PersistentVolumeClaim>(&claim).await;
        eventually("the root is removed", || !directory.exists()).await;
    }
    fixture.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_begins_anew_when_image_changes_and_comes_back_with_it() {
    let Some(fixture) = Fixture::start() else {
        return;
    };
    fixture.machine.claim("work", "1Gi").await;
    let show = "cat /opt/file /workspace/file 2>/dev/null; cat /etc/name; \
        echo \" $SANDBOX_NODE_ROOT\"";
    let write = format!("echo a > /opt/file; echo w > /workspace/file; {show}");
    fixture.run("work", IMAGES[2], &write).await;
    let other = fixture.run("work", OTHER, show).await;
    let reason = format!("the image has changed from {} to {OTHER}", IMAGES[2]);
    let reason = format!("{reason}: files outside the workspace are those of the new image");
    let state = format!("{{\"level\":\"Workspace\",\"reason\":\"{reason}\"}}");
    assert_eq!(other, format!("w\n{OTHER} {state}\n"));
    let back = fixture.run("work", IMAGES[2], show).await;
    let again = "the image is an earlier one again, with its files of that time";
    let state = format!("{{\"level\":\"Root\",\"reason\":\"{again}\"}}");
    assert_eq!(back, format!("a\nw\n{} {state}\n", IMAGES[2]));
    fixture.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn second_pod_waits_until_the_first_has_released_the_root() {
    let Some(fixture) = Fixture::start() else {
        return;
    };
    let Fixture { machine, node, .. } = fixture;
    machine.claim("work", "1Gi").await;
    let first = "echo first > /opt/file; exec sleep 1000";
    machine
        .create("first", spec("work", IMAGES[2], first))
        .await;
    machine.wait("first", running).await;
    let second = spec("work", IMAGES[2], "cat /opt/file");
    machine.create("second", second.clone()).await;
    machine.create("third", second).await;
    let waits = |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let status = statuses.and_then(|statuses| statuses.first());
        let waiting = status.and_then(|status| status.state.as_ref()?.waiting.as_ref());
        let message = waiting.and_then(|waiting| waiting.message.as_deref());
        message == Some("waiting for Pod first to release the kept root")
    };
    machine.wait("second", waits).await;
    machine.wait("third", waits).await;
    machine.delete::<Pod>("third").await;
    machine.delete::<Pod>("first").await;
    machine.wait("second", ended).await;
    assert_eq!(machine.log("second"), "first\n");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_count_against_the_claim() {
    let Some(fixture) = Fixture::start() else {
        return;
    };
    let Fixture { machine, .. } = &fixture;
    for (number, image) in IMAGES.into_iter().enumerate() {
        let claim = format!("claim-{number}");
        machine.claim(&claim, "1Mi").await;
        let script = "dd if=/dev/zero of=/opt/big bs=1024 count=2048 2>/dev/null; exec sleep 1000";
        machine.create("full", spec(&claim, image, script)).await;
        let pod = machine.wait("full", ended).await;
        let with = "with the files outside the workspace";
        let message = format!(
            "Usage of PersistentVolumeClaim volume \"work\" {with} exceeds the limit \"1Mi\". "
        );
        assert_eq!(pod.status.unwrap().message, Some(message), "{image}");
        machine.delete::<Pod>("full").await;
        // The next Pod can change it.
        fixture.run(&claim, image, "rm /opt/big").await;
        let fitting = "dd if=/dev/zero of=/tmpfile bs=1024 count=512 2>/dev/null; sleep 1";
        fixture.run(&claim, image, fitting).await;
    }
    fixture.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_survives_a_killed_node() {
    if !standalone::node::NodeConfig::keeps_roots() {
        eprintln!("SKIPPED: only root keeps roots");
        return;
    }
    let machine = Machine::new();
    let url = serve(&machine).await;
    let node = node_process(&machine, &url, None);
    let directory = machine.claim("work", "1Gi").await;
    let script = "echo x >> /opt/starts; cat /opt/starts; echo $SANDBOX_NODE_ROOT; \
        exec sleep infinity";
    let mut lasting = spec("work", "host", script);
    lasting["restartPolicy"] = json!("Always");
    machine.create("pod", lasting).await;
    machine.wait("pod", running).await;
    let starts = directory.join("current/root/opt/starts");
    eventually("the file is written", || starts.exists()).await;
    drop(node);

    let node = machine.node_with(|_| {});
    let expected = "x\nx\n{\"level\":\"Root\"}\n";
    eventually("the Pod starts again", || machine.log("pod") == expected).await;
    let at_once = DeleteParams::default().grace_period(0);
    machine.all::<Pod>().delete("pod", &at_once).await.unwrap();
    node.stop().await;
}
