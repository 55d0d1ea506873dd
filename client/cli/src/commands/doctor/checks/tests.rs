use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::facts::{Facts, Host, Resource, Right};
use super::super::finding::State;
use super::run;
use crate::kubernetes::ReadError;

fn deployment(component: &str, env: &Value) -> Value {
    let labels = json!({"app.kubernetes.io/component": component});
    json!({
        "metadata": {"name": format!("sandbox-operator-{component}"),
            "labels": {"app.kubernetes.io/version": env!("CARGO_PKG_VERSION")}},
        "spec": {"replicas": 1, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"env": env}]}}},
        "status": {"availableReplicas": 1},
    })
}

fn named(names: &[&str]) -> Vec<Value> {
    let object = |name: &&str| json!({"metadata": {"name": name}});
    names.iter().map(object).collect()
}

fn policy(component: &str) -> Value {
    json!({"metadata": {"name": format!("sandbox-operator-{component}")},
        "spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/component": component}}}})
}

fn healthy() -> Facts {
    let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
    let crd = |plural: &str| {
        json!({"metadata": {"name": format!("{plural}.openhands.dev")},
            "spec": {"versions": [{"name": "v1alpha1", "served": true}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}})
    };
    let crds = [
        "sandboxes",
        "sandboxpools",
        "sandboxsnapshots",
        "imagebuilds",
    ];
    let env = json!([{"name": "SANDBOX_NAMESPACE", "value": "sandboxes"}]);
    // 32 zero bytes.
    let root_key = json!({"key": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="});
    let records = json!([{"name": "default", "sha256": "00".repeat(32)}]);
    let api_keys = json!({"keys.json": STANDARD.encode(records.to_string())});
    let objects = [
        (Resource::Crds, crds.map(crd).to_vec()),
        (
            Resource::Deployments,
            vec![
                deployment("controller", &json!([])),
                deployment("gateway", &env),
            ],
        ),
        (
            Resource::Leases,
            vec![
                json!({"metadata": {"name": "sandbox-operator-controller"}, "spec":
                {"holderIdentity": "controller-a", "renewTime": "2026-01-31T11:59:58.000000Z"}}),
            ],
        ),
        (
            Resource::Secrets,
            vec![
                json!({"metadata": {"name": "sandbox-operator-root-key"}, "data": root_key}),
                json!({"metadata": {"name": "sandbox-api-keys"}, "data": api_keys}),
            ],
        ),
        (
            Resource::StorageClasses,
            vec![json!({"metadata": {"name": "standard", "annotations":
                {"storageclass.kubernetes.io/is-default-class": "true"}}})],
        ),
        (Resource::Namespaces, named(&["sandboxes"])),
        (
            Resource::OwnPolicies,
            vec![policy("controller"), policy("gateway")],
        ),
        (
            Resource::SandboxPolicies,
            named(&["sandbox-operator-sandboxes"]),
        ),
        (Resource::Services, named(&["sandbox-operator-gateway"])),
        (
            Resource::EndpointSlices,
            vec![json!({"metadata": {"labels":
                {"kubernetes.io/service-name": "sandbox-operator-gateway"}},
                "endpoints": [{"conditions": {"ready": true}}]})],
        ),
        (Resource::Ingresses, Vec::new()),
        (Resource::RuntimeClasses, Vec::new()),
        (Resource::Quotas, Vec::new()),
        (
            Resource::Nodes,
            vec![json!({"metadata": {"name": "a"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}})],
        ),
    ];
    Facts {
        name: "sandbox-operator".into(),
        namespace: "sandbox-operator".into(),
        sandboxes: Some("sandboxes".into()),
        version: Ok(json!({"gitVersion": "v1.34.0", "minor": "34"})),
        clock_ahead: Some(0.5),
        now,
        objects: objects.map(|(kind, list)| (kind, Ok(list))).into(),
        rights: vec![Right {
            text: "controller: create pods".into(),
            is_allowed: Ok(true),
        }],
        hosts: Vec::new(),
    }
}

/// Checks that are neither ok nor skipped.
fn problems(facts: &Facts) -> Vec<(&'static str, State)> {
    let findings = run(facts).into_iter();
    findings
        .filter(|found| !matches!(found.state, State::Ok | State::Skipped))
        .map(|found| (found.check, found.state))
        .collect()
}

fn objects(facts: &mut Facts, kind: Resource) -> &mut Vec<Value> {
    facts.objects.get_mut(&kind).unwrap().as_mut().unwrap()
}

#[test]
fn healthy_installation_has_no_problem() {
    assert_eq!(problems(&healthy()), []);
}

#[test]
fn absent_object_fails_its_check_alone() {
    for (kind, check) in [
        (Resource::Crds, "crds"),
        (Resource::Leases, "lease"),
        (Resource::StorageClasses, "storage"),
        (Resource::SandboxPolicies, "network-policies"),
        (Resource::Services, "service"),
        (Resource::EndpointSlices, "service"),
        (Resource::Namespaces, "namespace"),
        (Resource::Nodes, "nodes"),
    ] {
        let mut facts = healthy();
        objects(&mut facts, kind).clear();
        assert_eq!(problems(&facts), [(check, State::Failed)], "{kind:?}");
    }
}

#[test]
fn absent_component_fails_alone() {
    for (index, check) in ["controller", "gateway"].into_iter().enumerate() {
        let mut facts = healthy();
        objects(&mut facts, Resource::Deployments).remove(index);
        assert_eq!(problems(&facts), [(check, State::Failed)]);

        let mut facts = healthy();
        // The lease of a controller that has ended is old.
        facts.now += SignedDuration::from_secs(60 * (1 - i64::try_from(index).unwrap()));
        objects(&mut facts, Resource::Deployments)[index]["status"] = json!({});
        assert_eq!(problems(&facts), [(check, State::Failed)]);
    }
}

/// As in a namespace without the release.
#[test]
fn installation_that_is_not_found_fails_in_its_components_only() {
    let mut facts = healthy();
    let of_cluster = [Resource::Crds, Resource::Nodes, Resource::StorageClasses];
    for (kind, objects) in &mut facts.objects {
        if !of_cluster.contains(kind) {
            *objects = Ok(Vec::new());
        }
    }
    facts.sandboxes = None;
    let expected = [("controller", State::Failed), ("gateway", State::Failed)];
    assert_eq!(problems(&facts), expected);
}

#[test]
fn lease_fails_when_renewal_is_old() {
    let mut facts = healthy();
    facts.now += SignedDuration::from_secs(60);
    assert_eq!(problems(&facts), [("lease", State::Failed)]);
}

#[test]
fn clock_warns_after_30_seconds_and_fails_after_5_minutes() {
    for (ahead, expected) in [
        (-29.0, vec![]),
        (31.0, vec![("clock", State::Warning)]),
        (-301.0, vec![("clock", State::Failed)]),
    ] {
        let mut facts = healthy();
        facts.clock_ahead = Some(ahead);
        assert_eq!(problems(&facts), expected);
    }
}

#[test]
fn keys_fail_when_malformed_and_are_not_shown() {
    for (index, field, check) in [(0, "key", "root-key"), (1, "keys.json", "api-keys")] {
        let mut facts = healthy();
        objects(&mut facts, Resource::Secrets)[index]["data"][field] = json!("c2VjcmV0");
        assert_eq!(problems(&facts), [(check, State::Failed)]);
        assert!(
            run(&facts)
                .iter()
                .all(|found| !found.text.contains("secret\""))
        );
    }
}

#[test]
fn denied_right_is_named() {
    let mut facts = healthy();
    facts.rights[0].is_allowed = Ok(false);
    let findings = run(&facts);
    let found = findings.iter().find(|found| found.check == "rbac").unwrap();
    assert_eq!(found.text, "denied: controller: create pods");
    assert_eq!(found.state, State::Failed);
}

#[test]
fn old_kubernetes_fails() {
    let mut facts = healthy();
    facts.version = Ok(json!({"gitVersion": "v1.29.1", "minor": "29+"}));
    assert_eq!(problems(&facts), [("api-server", State::Failed)]);
}

#[test]
fn other_checks_are_skipped_when_the_server_is_not_reached_or_forbids_reads() {
    let mut facts = healthy();
    facts.version = Err("connection refused".into());
    facts.objects = BTreeMap::new();
    facts.clock_ahead = None;
    assert_eq!(problems(&facts), [("api-server", State::Failed)]);

    let mut facts = healthy();
    for objects in facts.objects.values_mut() {
        *objects = Err(ReadError::Forbidden("/api".into()));
    }
    assert_eq!(problems(&facts), []);
}

#[test]
fn name_that_does_not_resolve_is_a_warning() {
    let mut facts = healthy();
    let resolved = Err("no such host".into());
    let name = "doctor.a.test".into();
    facts.hosts.push(Host { name, resolved });
    assert_eq!(problems(&facts), [("dns", State::Warning)]);
}

#[test]
fn restricted_namespace_is_a_warning() {
    let mut facts = healthy();
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    objects(&mut facts, Resource::Namespaces)[0]["metadata"]["labels"] = labels;
    assert_eq!(problems(&facts), [("namespace", State::Warning)]);
}

/// With an Ingress whose Secret has this pair, for a host and one of a sandbox.
fn with_certificate(crt: &[u8], key: &[u8]) -> Facts {
    let mut facts = healthy();
    let rules = json!([{"http": {"paths":
        [{"backend": {"service": {"name": "sandbox-operator-gateway"}}}]}}]);
    objects(&mut facts, Resource::Ingresses).push(json!({
        "metadata": {"name": "sandbox-operator"},
        "spec": {"tls": [{"secretName": "tls"}], "rules": rules},
    }));
    let data = json!({"tls.crt": STANDARD.encode(crt), "tls.key": STANDARD.encode(key)});
    let secret = json!({"metadata": {"name": "tls"}, "data": data});
    objects(&mut facts, Resource::Secrets).push(secret);
    facts.hosts = ["a.test", "doctor.a.test"]
        .map(|name| Host {
            name: name.into(),
            resolved: Ok(()),
        })
        .into();
    facts
}

macro_rules! fixture {
    ($file:literal) => {
        include_bytes!(concat!("../../../../tests/certificates/", $file))
    };
}

#[test]
fn certificate_is_judged_by_key_time_and_names() {
    let (crt, key) = (fixture!("valid.crt"), fixture!("valid.key"));
    assert_eq!(problems(&with_certificate(crt, key)), []);
    let other_name = with_certificate(fixture!("other.crt"), fixture!("other.key"));
    let expired = with_certificate(fixture!("expired.crt"), fixture!("expired.key"));
    let mut early = with_certificate(crt, key);
    early.now = "2025-12-31T23:59:59Z".parse().unwrap();
    objects(&mut early, Resource::Leases)[0]["spec"]["renewTime"] = json!("2025-12-31T23:59:59Z");
    for (facts, cause) in [
        (expired, "expired on 2020-02-01T00:00:00Z"),
        (other_name, "not for a.test"),
        (early, "not valid before 2026-01-01T00:00:00Z"),
        (
            with_certificate(crt, fixture!("other.key")),
            "not that of the certificate",
        ),
        (with_certificate(crt, b"none"), "not a PEM key"),
        (with_certificate(b"none", key), "no certificate"),
    ] {
        assert_eq!(
            problems(&facts),
            [("certificates", State::Failed)],
            "{cause}"
        );
        let found = run(&facts)
            .into_iter()
            .find(|found| found.check == "certificates");
        let finding = found.unwrap().text;
        assert!(finding.contains(cause), "{finding}");
    }
}

#[test]
fn certificate_that_expires_within_a_week_is_a_warning() {
    let mut facts = with_certificate(fixture!("valid.crt"), fixture!("valid.key"));
    facts.now = "2125-12-26T00:00:00Z".parse().unwrap();
    objects(&mut facts, Resource::Leases)[0]["spec"]["renewTime"] = json!("2125-12-26T00:00:00Z");
    assert_eq!(problems(&facts), [("certificates", State::Warning)]);
}

#[test]
fn absent_certificate_of_gateways_fails() {
    let mut facts = healthy();
    let volumes = json!([{"name": "tls", "secret": {"secretName": "gateway-tls"}}]);
    objects(&mut facts, Resource::Deployments)[1]["spec"]["template"]["spec"]["volumes"] = volumes;
    assert_eq!(problems(&facts), [("certificates", State::Failed)]);
}

#[test]
fn records_of_api_keys_that_gateways_skip_are_named() {
    let hash = "ab".repeat(32);
    for (records, expected) in [
        (json!([{"name": "a", "sha256": hash}]), vec![]),
        (
            json!([{"name": "a", "sha256": "short"}]),
            vec![("api-keys", State::Failed)],
        ),
        (
            json!([{"name": "a", "sha256": hash, "expiresAt": "2026-01-01T00:00:00Z"}]),
            vec![("api-keys", State::Failed)],
        ),
        (
            json!([{"name": "a", "sha256": hash}, {"name": "b"}]),
            vec![("api-keys", State::Warning)],
        ),
    ] {
        let mut facts = healthy();
        let data = STANDARD.encode(records.to_string());
        objects(&mut facts, Resource::Secrets)[1]["data"]["keys.json"] = json!(data);
        assert_eq!(problems(&facts), expected, "{records}");
    }
}
