//! A sandbox reaches nothing of the cluster once the chart's network policies are enforced. The test
//! cluster does not enforce them, so they are loaded as packet filter rules into the node's network
//! namespace (`standalone::network_policy`). The same addresses are reached before that, as a control.

use std::process::Command;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use standalone::network_policy::{PolicyInput, validate};
use tests::clients::text;

use crate::rbac::sandbox;
use crate::release::{IMAGE, NAMESPACE, Release, SANDBOXES};
use crate::upgrade::{exec, start};
use tests::cli_tools::{feed, get, kubectl_words, wait};

/// Name of the nftables table.
const TABLE: &str = "network-policies";
/// Metadata address of cloud machines.
const METADATA: &str = "169.254.169.254";

pub(crate) async fn holds_where_policies_are_enforced(release: &Release) {
    let spec = json!({"image": IMAGE, "command": ["sleep", "infinity"]});
    sandbox("neighbour", &spec);
    wait(SANDBOXES, "condition=Ready", "neighbour");
    let machine = std::net::TcpListener::bind((variable("CLUSTER_HOST"), 0)).unwrap();
    // The API server listens on every address of the node: it plays the metadata server too.
    let metadata = format!("{METADATA}/32");
    in_node("ip", &["addr", "add", &metadata, "dev", "lo"], "");

    // Both are in one network of two addresses: the machine has .1, the node .2.
    let host = variable("CLUSTER_HOST");
    let node = format!("{}.2", host.rsplit_once('.').unwrap().0);
    let outside = machine.local_addr().unwrap().port();
    let places = [
        ("another sandbox", address(&pod("neighbour")), 60009),
        ("the API server", api_server(), 443),
        ("the kubelet", node, 10250),
        ("the machine outside", host, outside),
        ("the metadata server", METADATA.to_owned(), 6443),
        ("the operator", address(&a_controller()), 8081),
    ];
    let check = |expected: bool| {
        for (what, address, port) in &places {
            let connect = format!("timeout 2 bash -c '</dev/tcp/{address}/{port}'");
            assert_eq!(exec(&connect), expected, "{what} at {address}:{port}");
        }
    };
    check(true);
    in_node("nft", &["-f", "-"], &rules());
    check(false);
    // Allowed clients still reach it, and only with its own key.
    let session = start(release).await;
    assert_eq!(session.run("echo still here").await, "still here");
    in_node("nft", &["delete", "table", "inet", TABLE], "");
    in_node("ip", &["addr", "del", &metadata, "dev", "lo"], "");
    kubectl_words(&format!("delete sandbox neighbour -n {SANDBOXES}"));
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
    for policy in &cluster.policies {
        validate(policy).unwrap();
    }
    cluster.ruleset(TABLE)
}

fn all<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let mut list = get(&[kind, "--all-namespaces"]);
    serde_json::from_value(list["items"].take()).unwrap()
}

fn pod(name: &str) -> Value {
    get(&["pod", name, "-n", SANDBOXES])
}

fn address(pod: &Value) -> String {
    text(&pod["status"], "podIP")
}

fn api_server() -> String {
    let service = get(&["service", "kubernetes", "-n", "default"]);
    text(&service["spec"], "clusterIP")
}

fn a_controller() -> Value {
    let component = "app.kubernetes.io/component=controller";
    get(&["pods", "-n", NAMESPACE, "-l", component])["items"][0].take()
}

/// Runs a program in the node's network namespace.
fn in_node(program: &str, args: &[&str], input: &str) {
    let mut command = Command::new("nsenter");
    command.args(["--target", &variable("CLUSTER_PID"), "--net", program]);
    feed(command.args(args), input).unwrap_or_else(|said| panic!("{program} {args:?}: {said}"));
}
