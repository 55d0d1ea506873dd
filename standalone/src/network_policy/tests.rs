//! Rules for each part of a policy. What the kernel makes of them is tested in
//! `tests/tests/network_policy.rs`.

use serde_json::{Value, json};

use super::*;

/// Two Pods of the namespace `a` and one of `b`, with these specs of policies in `a`.
fn input(specs: &[Value]) -> PolicyInput {
    let pod = |namespace: &str, app: &str, address: &str| {
        json!({
            "metadata": {"name": app, "namespace": namespace, "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "ports": [
                {"name": "http", "containerPort": 8080},
                {"name": "dns", "containerPort": 5353, "protocol": "UDP"},
            ]}]},
            "status": {"podIP": address},
        })
    };
    let policy = |spec| json!({"metadata": {"name": "p", "namespace": "a"}, "spec": spec});
    let input = json!({
        "namespaces": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "labels": {"team": "b"}}}],
        "pods": [pod("a", "web", "10.0.0.1"), pod("a", "db", "10.0.0.2"), pod("b", "web", "10.0.0.3")],
        "policies": specs.iter().map(policy).collect::<Vec<_>>(),
    });
    serde_json::from_value(input).unwrap()
}

/// Lines that the policies allow the Pod `web` of namespace `a`.
fn allowed_lines(specs: &[Value], direction: Direction) -> Option<Vec<String>> {
    let input = input(specs);
    let lines = allowed(&input.directed(direction), &input.pods[0], direction)?;
    Some(lines.lines().map(|line| line.trim().to_owned()).collect())
}

/// Lines that a rule of egress with this peer and these ports allows.
fn egress(to: &Value, ports: &Value) -> Vec<String> {
    let rule = json!({"to": to, "ports": ports});
    allowed_lines(&[json!({"podSelector": {}, "egress": [rule]})], Out).unwrap()
}

#[test]
fn peers_are_ranges_and_selected_pods() {
    let any = json!([]);
    for (to, expected) in [
        (json!([]), vec!["return"]),
        (
            json!([{"ipBlock": {"cidr": "10.1.2.3/8", "except": ["10.9.0.0/16"]}}]),
            vec!["ip daddr 10.0.0.0/8 ip daddr != 10.9.0.0/16 return"],
        ),
        (json!([{"ipBlock": {"cidr": "::/0"}}]), vec![]),
        (
            json!([{"podSelector": {"matchLabels": {"app": "db"}}}]),
            vec!["ip daddr 10.0.0.2 return"],
        ),
        (
            json!([{"namespaceSelector": {"matchLabels": {"team": "b"}}}]),
            vec!["ip daddr 10.0.0.3 return"],
        ),
        (
            json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}]),
            vec!["ip daddr 10.0.0.1 return", "ip daddr 10.0.0.3 return"],
        ),
    ] {
        assert_eq!(egress(&to, &any), expected, "{to}");
    }
}

#[test]
fn ports_are_numbers_ranges_names_or_protocols() {
    let db = json!([{"podSelector": {"matchLabels": {"app": "db"}}}]);
    for (port, expected) in [
        (json!({"port": 53, "protocol": "UDP"}), vec!["udp dport 53"]),
        (json!({"port": 80, "endPort": 90}), vec!["tcp dport 80-90"]),
        (json!({"port": "http"}), vec!["tcp dport 8080"]),
        (
            json!({"port": "dns", "protocol": "UDP"}),
            vec!["udp dport 5353"],
        ),
        (json!({"port": "dns"}), vec![]),
        (json!({"protocol": "SCTP"}), vec!["meta l4proto sctp"]),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|port| format!("ip daddr 10.0.0.2 {port} return"))
            .collect();
        assert_eq!(egress(&db, &json!([port])), expected, "{port}");
    }
}

#[test]
fn policies_add_up_and_unselected_pods_are_open() {
    let policy = |selector: Value, port: u16| {
        json!({"podSelector": selector, "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": port}]}]})
    };
    let web = json!({"matchLabels": {"app": "web"}});
    let db = json!({"matchLabels": {"app": "db"}});
    let both = [policy(web, 80), policy(json!({}), 81)];
    let lines = ["tcp dport 80 return", "tcp dport 81 return"].map(str::to_owned);
    assert_eq!(allowed_lines(&both, In), Some(lines.into()));
    assert_eq!(allowed_lines(&both, Out), None);
    assert_eq!(allowed_lines(&[policy(db, 80)], In), None);
}

#[test]
fn policy_types_follow_from_rules() {
    let none = json!({"podSelector": {}});
    let rule = json!({"podSelector": {}, "egress": [{}]});
    let closed = json!({"podSelector": {}, "policyTypes": ["Egress"]});
    let all = Some(vec!["return".to_owned()]);
    for (spec, ingress, egress) in [
        (none, Some(vec![]), None),
        (rule, Some(vec![]), all),
        (closed, None, Some(vec![])),
    ] {
        let spec = [spec];
        assert_eq!(allowed_lines(&spec, In), ingress, "{spec:?}");
        assert_eq!(allowed_lines(&spec, Out), egress, "{spec:?}");
    }
}

#[test]
fn unreadable_parts_allow_nothing() {
    let like = json!({"matchExpressions": [{"key": "app", "operator": "Like"}]});
    let everything = json!([{}]);
    for spec in [
        json!({"podSelector": like, "egress": []}),
        json!({"podSelector": {}, "egress": [{"to": [{"podSelector": like}]}]}),
        json!({"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8; accept"}}]}]}),
        json!({"podSelector": {}, "egress": [{"ports": [{"port": 1, "protocol": "GRE"}]}]}),
        json!({"podSelector": {}, "egress": [{"ports": [{"port": 9, "endPort": 1}]}]}),
        json!({"podSelector": {}, "egress": [{"ports": [{"port": "http", "endPort": 9000}]}]}),
        json!({"podSelector": {}, "egress": [{"ports": [{"port": 70_000}]}]}),
        json!({"podSelector": {}, "policyTypes": ["Egress", "Sideways"]}),
    ] {
        let mut spec = spec;
        spec["policyTypes"] = spec
            .get("policyTypes")
            .cloned()
            .unwrap_or(json!(["Egress"]));
        assert_eq!(allowed_lines(&[spec.clone()], Out), Some(vec![]), "{spec}");
        let policy = &input(&[spec.clone()]).policies[0];
        assert!(validate(policy).is_err(), "{spec}");
    }
    for to in [
        json!([{}]),
        json!([{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]),
        json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}}]),
    ] {
        let spec = json!({"podSelector": {}, "egress": [{"to": to}]});
        assert!(validate(&input(&[spec]).policies[0]).is_err(), "{to}");
    }
    let valid = json!({"podSelector": {}, "ingress": everything, "egress": everything});
    assert!(validate(&input(&[valid]).policies[0]).is_ok());
}

#[test]
fn pods_with_equal_rules_share_a_chain() {
    let mut closed = input(&[json!({"podSelector": {}, "policyTypes": ["Egress"]})]);
    assert_eq!(
        closed.ruleset("t"),
        "table inet t\ndelete table inet t\ntable inet t {\n\
         \tchain allow-0 {\n\t\tdrop\n\t}\n\
         \tchain forward {\n\t\ttype filter hook forward priority 0\n\
         \t\tct state related accept\n\t\tct direction reply accept\n\
         \t\tip saddr vmap { 10.0.0.1 : jump allow-0, 10.0.0.2 : jump allow-0, }\n\t}\n\
         \tchain input {\n\t\ttype filter hook input priority 0\n\
         \t\tct state related accept\n\t\tct direction reply accept\n\
         \t\tip saddr vmap { 10.0.0.1 : jump allow-0, 10.0.0.2 : jump allow-0, }\n\t}\n}\n"
    );
    closed.policies.clear();
    assert_eq!(closed.ruleset("t"), "table inet t\ndelete table inet t\n");
}
