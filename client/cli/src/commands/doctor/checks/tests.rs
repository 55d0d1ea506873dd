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

/// The `ConfigMap` of the controller's probes.
fn probe_records(user_namespaces: bool, root_overlays: bool) -> Value {
    let record = |works: bool| {
        let mut record = json!({"works": works, "probedAt": "2026-01-31T11:00:00Z", "pod": "a"});
        if !works {
            record["reason"] = "StartError: permission denied".into();
        }
        record.to_string()
    };
    json!({"metadata": {"name": "sandbox-operator-cluster-probes"}, "data": {
        "user_namespaces": record(user_namespaces), "root_overlays": record(root_overlays)}})
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
        (Resource::HttpRoutes, Vec::new()),
        (Resource::LimitRanges, Vec::new()),
        (Resource::ProbeRecords, vec![probe_records(true, true)]),
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

/// Finding and action of a check.
fn said(facts: &Facts, check: &str) -> (State, String, String) {
    let findings = run(facts).into_iter();
    let mut found = findings.filter(|found| found.check == check);
    let found = found.next().unwrap();
    (found.state, found.text, found.action)
}

/// Sets a variable of a component.
fn set(facts: &mut Facts, component: usize, name: &str, value: &str) {
    let deployment = &mut objects(facts, Resource::Deployments)[component];
    let env = &mut deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let env = env.as_array_mut().unwrap();
    env.push(json!({"name": name, "value": value}));
}

#[test]
fn quota_fails_when_no_sandbox_fits_and_warns_when_the_next_does_not() {
    let quota = |resource: &str, hard: &str, used: &str| {
        json!({"metadata": {"name": "q"}, "spec": {"hard": {resource: hard}},
            "status": {"used": {resource: used}}})
    };
    for (resource, hard, used, expected) in [
        ("pods", "0", "0", Some(State::Failed)),
        ("pods", "10", "10", Some(State::Warning)),
        ("count/pods", "10", "9", None),
        ("requests.cpu", "200m", "0", Some(State::Failed)),
        ("cpu", "1", "800m", Some(State::Warning)),
        ("cpu", "1", "750m", None),
        ("limits.cpu", "1500m", "0", Some(State::Failed)),
        ("limits.memory", "4Gi", "3Gi", Some(State::Warning)),
        ("requests.memory", "1Gi", "512Mi", None),
        ("limits.ephemeral-storage", "1Gi", "0", Some(State::Failed)),
        ("requests.storage", "5Gi", "0", Some(State::Failed)),
        ("requests.example.com/gpu", "0", "0", None),
    ] {
        let mut facts = healthy();
        set(&mut facts, 1, "GATEWAY_WORKSPACE_SIZE", "10Gi");
        objects(&mut facts, Resource::Quotas).push(quota(resource, hard, used));
        let expected: Vec<_> = expected.map(|state| ("quota", state)).into_iter().collect();
        assert_eq!(problems(&facts), expected, "{resource}: {hard}");
    }
    // The worst quota is named, with what a sandbox of the chart's values needs.
    let mut facts = healthy();
    let limits = "cpu=4,memory=8Gi";
    set(&mut facts, 0, "SANDBOX_DEFAULT_LIMITS", limits);
    let quotas = [quota("pods", "1", "1"), quota("limits.memory", "6Gi", "0")];
    objects(&mut facts, Resource::Quotas).extend(quotas);
    let (state, finding, action) = said(&facts, "quota");
    assert_eq!(state, State::Failed);
    assert_eq!(
        finding,
        "ResourceQuota q allows 6Gi limits.memory, a sandbox needs 8Gi"
    );
    assert_eq!(action, "kubectl -n sandboxes edit resourcequota q");
}

#[test]
fn quota_of_other_pods_is_left_out() {
    let selector = |operator: &str, values: &[&str]| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
    };
    for (scopes, counts) in [
        (json!({}), true),
        (json!({"scopes": ["NotTerminating", "NotBestEffort"]}), true),
        (json!({"scopes": ["BestEffort"]}), false),
        (json!({"scopes": ["Terminating", "NotBestEffort"]}), false),
        (selector("In", &["high"]), true),
        (selector("In", &["low"]), false),
        (selector("NotIn", &["high"]), false),
        (selector("Exists", &[]), true),
        (selector("DoesNotExist", &[]), false),
    ] {
        let mut facts = healthy();
        set(&mut facts, 0, "SANDBOX_PRIORITY_CLASS", "high");
        let mut spec = scopes.clone();
        spec["hard"] = json!({"pods": "0"});
        let quota = json!({"metadata": {"name": "q"}, "spec": spec});
        objects(&mut facts, Resource::Quotas).push(quota);
        let expected = if counts { State::Failed } else { State::Ok };
        assert_eq!(said(&facts, "quota").0, expected, "{scopes}");
    }
}

#[test]
fn limit_range_fails_when_it_rejects_sandboxes() {
    for (limit, cause) in [
        (
            json!({"type": "Container", "max": {"cpu": "1", "memory": "8Gi"}}),
            "their container may use 2 cpu, the maximum is 1",
        ),
        (
            json!({"type": "Container", "min": {"memory": "64Mi"}}),
            "their init container requests 16Mi memory, the minimum is 64Mi",
        ),
        (
            json!({"type": "Container", "max": {"ephemeral-storage": "20Gi"}}),
            "their init container has no limit of ephemeral-storage",
        ),
        (
            json!({"type": "Pod", "max": {"memory": "1Gi"}}),
            "their Pod may use 2Gi memory, the maximum is 1Gi",
        ),
        (
            json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "4"}}),
            "their Pod has a limit of cpu of more than 4 times its request",
        ),
        (
            json!({"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}),
            "their volume may use 10Gi storage, the maximum is 5Gi",
        ),
    ] {
        let mut facts = healthy();
        set(&mut facts, 1, "GATEWAY_WORKSPACE_SIZE", "10Gi");
        let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [limit]}});
        objects(&mut facts, Resource::LimitRanges).push(range);
        assert_eq!(problems(&facts), [("limit-ranges", State::Failed)]);
        let (_, finding, action) = said(&facts, "limit-ranges");
        assert_eq!(
            finding,
            format!("LimitRange r rejects sandboxes: {cause}"),
            "{limit}"
        );
        assert!(action.starts_with("kubectl -n sandboxes edit limitrange r"));
        assert_eq!(action.contains("sandboxes."), !cause.contains("init"));
    }
}

#[test]
fn limit_range_that_sandboxes_keep_to_is_no_problem() {
    let limits = json!([
        {"type": "Container", "min": {"cpu": "10m", "memory": "16Mi"},
            "max": {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "10Gi"},
            "default": {"ephemeral-storage": "1Gi"}, "maxLimitRequestRatio": {"cpu": "100"}},
        {"type": "Pod", "max": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}},
    ]);
    let mut facts = healthy();
    set(&mut facts, 1, "GATEWAY_WORKSPACE_SIZE", "10Gi");
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": limits}});
    objects(&mut facts, Resource::LimitRanges).push(range);
    assert_eq!(problems(&facts), []);
    // Without an init container its small request counts no longer.
    let range = json!({"metadata": {"name": "s"}, "spec": {"limits": [
        {"type": "Container", "min": {"memory": "512Mi"}}]}});
    objects(&mut facts, Resource::LimitRanges).push(range);
    assert_eq!(problems(&facts), [("limit-ranges", State::Failed)]);
    set(&mut facts, 0, "EXECUTOR_INJECTION", "image-volume");
    assert_eq!(problems(&facts), []);
}

/// An `HTTPRoute` of the release with one parent, and these conditions.
fn http_route(conditions: &Value) -> Value {
    let parent = json!({"name": "public", "namespace": "gateways"});
    let backend = json!({"name": "sandbox-operator-gateway", "port": 5000});
    let status = json!([{"parentRef": parent, "conditions": conditions}]);
    json!({"metadata": {"name": "sandbox-operator"},
        "spec": {"parentRefs": [parent], "rules": [{"backendRefs": [backend]}]},
        "status": {"parents": if conditions.is_null() { json!([]) } else { status }}})
}

#[test]
fn http_route_fails_unless_its_gateways_accept_it() {
    assert_eq!(said(&healthy(), "http-route").0, State::Skipped);
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "Because", "message": "of this"});
    for (conditions, problem) in [
        (
            json!([
                condition("Accepted", "True"),
                condition("ResolvedRefs", "True")
            ]),
            "",
        ),
        (
            Value::Null,
            "Gateway public has not taken HTTPRoute sandbox-operator",
        ),
        (
            json!([
                condition("Accepted", "False"),
                condition("ResolvedRefs", "True")
            ]),
            "Gateway public, HTTPRoute sandbox-operator: Accepted is False, Because: of this",
        ),
        (
            json!([
                condition("Accepted", "True"),
                condition("ResolvedRefs", "False")
            ]),
            "Gateway public, HTTPRoute sandbox-operator: ResolvedRefs is False, Because: of this",
        ),
        (
            json!([condition("Accepted", "True")]),
            "Gateway public, HTTPRoute sandbox-operator: condition ResolvedRefs is absent",
        ),
    ] {
        let mut facts = healthy();
        objects(&mut facts, Resource::HttpRoutes).push(http_route(&conditions));
        let (state, finding, action) = said(&facts, "http-route");
        if problem.is_empty() {
            assert_eq!(state, State::Ok, "{finding}");
            continue;
        }
        assert_eq!((state, &*finding), (State::Failed, problem));
        assert!(action.contains("kubectl -n sandbox-operator describe httproute sandbox-operator"));
    }
    let mut facts = healthy();
    let mut route = http_route(&json!([]));
    route["spec"]["rules"][0]["backendRefs"][0]["name"] = "other".into();
    objects(&mut facts, Resource::HttpRoutes).push(route);
    assert_eq!(problems(&facts), [("http-route", State::Failed)]);
}

#[test]
fn probes_are_shown_with_their_reasons() {
    let (state, finding, _) = said(&healthy(), "probes");
    assert_eq!(state, State::Ok);
    assert_eq!(
        finding,
        "sandboxes have user namespaces (probe user_namespaces of 2026-01-31T11:00:00Z); \
         overlays keep files outside of workspaces (probe root_overlays of 2026-01-31T11:00:00Z)"
    );

    let mut facts = healthy();
    objects(&mut facts, Resource::ProbeRecords)[0] = probe_records(true, false);
    assert_eq!(problems(&facts), [("probes", State::Warning)]);
    let (_, finding, action) = said(&facts, "probes");
    let reason = "archives keep files outside of workspaces, not overlays \
        (probe root_overlays of 2026-01-31T11:00:00Z: StartError: permission denied)";
    assert!(finding.contains(reason), "{finding}");
    assert!(action.contains("with sandboxes.persistence.root=archive the chart"));

    // No probe is asked for what the chart's values decide.
    let mut facts = healthy();
    objects(&mut facts, Resource::ProbeRecords)[0] = probe_records(true, false);
    set(&mut facts, 0, "SANDBOX_ROOT_PERSISTENCE", "archive");
    assert_eq!(problems(&facts), []);
    set(&mut facts, 0, "SANDBOX_USER_NAMESPACES", "never");
    assert_eq!(said(&facts, "probes").0, State::Skipped);

    let mut facts = healthy();
    objects(&mut facts, Resource::ProbeRecords).clear();
    let (state, finding, _) = said(&facts, "probes");
    assert_eq!(state, State::Skipped);
    assert!(finding.contains("has not finished its probe user_namespaces"));
    let record = json!({"data": {"user_namespaces": "{}"}});
    objects(&mut facts, Resource::ProbeRecords).push(record);
    assert_eq!(problems(&facts), [("probes", State::Failed)]);
}

#[test]
fn probes_of_other_runtime_classes_are_shown_and_no_fault() {
    let mut facts = healthy();
    set(&mut facts, 0, "GVISOR_CLASS", "runsc");
    set(&mut facts, 0, "RUNTIME_CLASSES", "kata,gvisor,sysbox");
    let records = &mut objects(&mut facts, Resource::ProbeRecords)[0]["data"];
    let failed = probe_records(false, false)["data"]["user_namespaces"].clone();
    let unanswered = json!({"works": false, "unanswered": true, "probedAt": "2026-01-31T11:00:00Z", "reason": "late"});
    records["user_namespaces.kata"] = failed.clone();
    records["user_namespaces.runsc"] = records["user_namespaces"].clone();
    records["user_namespaces.sysbox-runc"] = unanswered.to_string().into();
    records["user_namespaces.gone"] = failed.clone();
    assert_eq!(problems(&facts), []);
    let (_, finding, _) = said(&facts, "probes");
    let of_classes = "; under the runtime class kata, sandboxes have no user namespaces (probe \
        user_namespaces.kata of 2026-01-31T11:00:00Z: StartError: permission denied); under the \
        runtime class runsc, sandboxes have user namespaces (probe user_namespaces.runsc of \
        2026-01-31T11:00:00Z); under the runtime class sysbox-runc, no run has had a verdict (probe \
        user_namespaces.sysbox-runc of 2026-01-31T11:00:00Z: late)";
    assert!(finding.ends_with(of_classes), "{finding}");

    set(&mut facts, 0, "RUNTIME_CLASS", "kata");
    let (_, finding, _) = said(&facts, "probes");
    assert!(
        finding.ends_with("its probe root_overlays.kata"),
        "{finding}"
    );
    objects(&mut facts, Resource::ProbeRecords)[0]["data"]["root_overlays.kata"] = failed;
    assert_eq!(said(&facts, "probes").0, State::Warning);
}

#[test]
fn probe_of_memory_is_that_of_the_pods_that_sandboxes_get() {
    let mut facts = healthy();
    objects(&mut facts, Resource::ProbeRecords)[0] = probe_records(true, false);
    set(&mut facts, 0, "SANDBOX_MEMORY_PERSISTENCE", "true");
    let unfinished = |facts: &Facts| {
        let (state, finding, _) = said(facts, "probes");
        assert_eq!(state, State::Skipped);
        finding
    };
    assert!(unfinished(&facts).ends_with("memory_in_user_namespaces"));
    let records = &mut objects(&mut facts, Resource::ProbeRecords)[0]["data"];
    let failed = records["root_overlays"].clone();
    records["user_namespaces"] = failed.clone();
    assert!(unfinished(&facts).ends_with("memory_with_host_users"));
    objects(&mut facts, Resource::ProbeRecords)[0]["data"]["memory_with_host_users"] = failed;
    let (_, finding, action) = said(&facts, "probes");
    let reason = "pauses keep files, not processes (probe memory_with_host_users of \
        2026-01-31T11:00:00Z: StartError: permission denied)";
    assert!(finding.contains(reason), "{finding}");
    assert!(action.contains("sandboxes.persistence.memory=false"));
}
