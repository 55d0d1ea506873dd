//! A sandbox reaches nothing of the cluster once the chart's network policies are enforced. The test
//! cluster does not enforce them, so they are loaded as packet filter rules into the node's network
//! namespace (`tests::network_policy`). The same addresses are reached before that, as a control.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use tests::network_policy::{PolicyInput, TABLE};

use crate::release::{IMAGE, NAMESPACE, Release, SANDBOXES};
use crate::upgrade::{act, sandbox, start};
use tests::cli_tools::{apply, get, kubectl, run, wait};

/// Metadata address of cloud machines.
const METADATA: &str = "169.254.169.254";

pub(crate) async fn holds_where_policies_are_enforced(release: &Release) {
    let neighbour = format!(
        "{{apiVersion: openhands.dev/v1alpha1, kind: Sandbox, metadata: {{name: neighbour}}, \
         spec: {{image: {IMAGE}, command: [sleep, infinity]}}}}"
    );
    apply(&neighbour, &["-n", SANDBOXES]);
    wait(SANDBOXES, "condition=Ready", "neighbour");
    let machine = std::net::TcpListener::bind((variable("CLUSTER_HOST"), 0)).unwrap();
    // The API server listens on every address of the node: it plays the metadata server too.
    in_node(
        "ip",
        &["addr", "add", &format!("{METADATA}/32"), "dev", "lo"],
        "",
    );

    // Both are in one network of two addresses: the machine has .1, the node .2.
    let host = variable("CLUSTER_HOST");
    let node = format!("{}.2", host.rsplit_once('.').unwrap().0);
    let places = [
        ("another sandbox", address(SANDBOXES, "neighbour"), 60009),
        ("the API server", api_server(), 443),
        ("the kubelet", node.clone(), 10250),
        (
            "the machine outside",
            variable("CLUSTER_HOST"),
            machine.local_addr().unwrap().port(),
        ),
        ("the metadata server", METADATA.to_owned(), 6443),
        ("the operator", a_controller(), 8081),
    ];
    for (what, address, port) in &places {
        assert!(
            reaches(address, *port),
            "{what} at {address}:{port} is not there"
        );
    }
    in_node("nft", &["-f", "-"], &rules());
    for (what, address, port) in &places {
        assert!(
            !reaches(address, *port),
            "{what} at {address}:{port} is reached"
        );
    }
    // Allowed clients still reach it, and only with its own key.
    let info = start(release).await;
    assert!(
        act(info.clone(), "echo still here")
            .await
            .contains("still here")
    );
    in_node("nft", &["delete", "table", "ip", TABLE], "");
    in_node(
        "ip",
        &["addr", "del", &format!("{METADATA}/32"), "dev", "lo"],
        "",
    );
    kubectl(&["delete", "sandbox", "neighbour", "-n", SANDBOXES]);
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// The policies of the release, for the Pods that there are.
fn rules() -> String {
    let cluster = PolicyInput {
        policies: all("networkpolicies"),
        pods: all("pods"),
        namespaces: all("namespaces"),
    };
    assert_eq!(cluster.policies.len(), 3);
    cluster.ruleset().unwrap()
}

fn all<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let mut list = get(&[kind, "--all-namespaces"]);
    serde_json::from_value(list["items"].take()).unwrap()
}

fn address(namespace: &str, pod: &str) -> String {
    let pod = get(&["pod", pod, "-n", namespace]);
    pod["status"]["podIP"].as_str().unwrap().to_owned()
}

fn api_server() -> String {
    let service = get(&["service", "kubernetes", "-n", "default"]);
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

fn a_controller() -> String {
    let component = "app.kubernetes.io/component=controller";
    let pods = get(&["pods", "-n", NAMESPACE, "-l", component]);
    pods["items"][0]["status"]["podIP"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Returns whether a process in the sandbox gets a connection.
fn reaches(address: &str, port: u16) -> bool {
    let connect = format!("timeout 2 bash -c '</dev/tcp/{address}/{port}'");
    let exec = ["exec", "-n", SANDBOXES, sandbox(), "-c", "sandbox", "--"];
    let output = run("kubectl", &[&exec[..], &["bash", "-c", &connect]].concat());
    output.status.success()
}

/// Runs a program in the node's network namespace.
fn in_node(program: &str, args: &[&str], input: &str) {
    let mut child = Command::new("nsenter")
        .args(["--target", &variable("CLUSTER_PID"), "--net", program])
        .args(args)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{program} {args:?}");
}
