//! Packet filter rules that stand in for an enforcer of network policies.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::json;
use tests::network_policy::PolicyInput;

/// Two Pods of one namespace and one of another, under the given policy of the first.
fn cluster(policy: &serde_json::Value) -> PolicyInput {
    let pod = |namespace: &str, name: &str, address: &str| {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"podIP": address},
        }))
        .unwrap()
    };
    let namespace = |name: &str| {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"name": name}}}))
            .unwrap()
    };
    let policy = json!({"metadata": {"name": "p", "namespace": "here"}, "spec": policy});
    PolicyInput {
        policies: vec![serde_json::from_value(policy).unwrap()],
        pods: vec![
            pod("here", "a", "10.0.0.1"),
            pod("here", "b", "10.0.0.2"),
            pod("there", "c", "10.0.0.3"),
        ],
        namespaces: vec![namespace("here"), namespace("there")],
    }
}

/// The lines of one chain, without the last, which drops.
fn chain(policy: &serde_json::Value, name: &str) -> Option<Vec<String>> {
    let rules = cluster(policy).ruleset().unwrap();
    let mut lines = rules
        .lines()
        .map(str::trim)
        .skip_while(|l| *l != format!("chain {name} {{"));
    lines.next()?;
    let all: Vec<_> = lines.take_while(|l| *l != "}").map(str::to_owned).collect();
    assert_eq!(all.last().map(String::as_str), Some("drop"));
    Some(all[..all.len() - 1].to_vec())
}

#[test]
fn pods_without_policy_are_not_restricted() {
    let policy = json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Ingress"]});
    assert_eq!(chain(&policy, "in-0"), Some(vec![]));
    for open in ["out-0", "in-1", "out-1", "in-2", "out-2"] {
        assert_eq!(chain(&policy, open), None, "{open}");
    }
}

#[test]
fn peers_are_selected_by_labels_and_namespaces() {
    let from = |peer| {
        let rules = json!([{"from": [peer]}]);
        let policy = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": rules});
        chain(&policy, "in-0").unwrap()
    };
    let all = [
        "ip saddr 10.0.0.1 return",
        "ip saddr 10.0.0.2 return",
        "ip saddr 10.0.0.3 return",
    ];
    assert_eq!(from(json!({"podSelector": {}})), all[..2]);
    assert_eq!(
        from(json!({"podSelector": {"matchLabels": {"app": "b"}}})),
        all[1..2]
    );
    assert_eq!(from(json!({"namespaceSelector": {}})), all);
    let other = json!({"namespaceSelector": {"matchLabels": {"name": "there"}},
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]}});
    assert_eq!(from(other), all[2..]);
}

#[test]
fn ranges_have_exceptions() {
    let policy = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "169.254.0.0/16"]}},
        {"ipBlock": {"cidr": "::/0"}},
    ]}]});
    let range = "ip daddr 0.0.0.0/0 ip daddr != 10.0.0.0/8 ip daddr != 169.254.0.0/16 return";
    assert_eq!(chain(&policy, "out-1").unwrap(), [range]);
}

#[test]
fn ports_are_numbers_or_names_of_the_called_pod() {
    let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 1}, {"port": "http"}]);
    let rules = json!([{"ports": ports}]);
    let policy = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": rules});
    let expected = [
        "udp dport 53 return",
        "tcp dport 1 return",
        "tcp dport 8080 return",
    ];
    assert_eq!(chain(&policy, "in-0").unwrap(), expected);
    let to = json!([{"podSelector": {"matchLabels": {"app": "b"}}}]);
    let policy = json!({"podSelector": {}, "policyTypes": ["Egress"],
        "egress": [{"to": to, "ports": [{"port": "http"}]}]});
    assert_eq!(
        chain(&policy, "out-0").unwrap(),
        ["ip daddr 10.0.0.2 tcp dport 8080 return"]
    );
}

#[test]
fn unsupported_policy_is_an_error() {
    let ingress = |rule: serde_json::Value| json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [rule]});
    let expression = json!([{"key": "a", "operator": "Like"}]);
    for policy in [
        json!({"podSelector": {}, "ingress": []}),
        json!({"podSelector": {"matchExpressions": expression}, "policyTypes": ["Ingress"]}),
        ingress(json!({"ports": [{"port": 1, "protocol": "SCTP"}]})),
        ingress(json!({"ports": [{"port": 1, "endPort": 9}]})),
        ingress(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8; accept"}}]})),
    ] {
        assert!(cluster(&policy).ruleset().is_err(), "{policy}");
    }
}
