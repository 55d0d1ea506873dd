//! Probes for level `Memory` whose Pods a policy of the namespace rejects.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use operator::controller::{PROBE_CONFIG_MAP, UserNamespaces};
use serde_json::Value;
use tests::fault_injection::{Failure, RequestInfo, Verb};
use tests::test_cluster::{PodScript, TestCluster};
use tokio::time::sleep;

/// Probes with the names of their Pods.
const PROBES: [(&str, &str); 2] = [
    (
        "memory_in_user_namespaces",
        "sandbox-memory-in-user-namespace-probe",
    ),
    ("memory_with_host_users", "sandbox-memory-probe"),
];

/// Asserts the record and the metric of each probe, and that its reason contains the expected one.
async fn assert_known(cluster: &TestCluster, works: bool, expected: Option<&str>) {
    let records = cluster.api_of::<ConfigMap>();
    let records = records.get(PROBE_CONFIG_MAP).await.unwrap().data.unwrap();
    let metrics = cluster.config.vitals.metrics.encode().unwrap();
    for (probe, _) in PROBES {
        let record: Value = serde_json::from_str(&records[probe]).unwrap();
        assert_eq!(record["works"], works, "{record}");
        assert_eq!(record["unanswered"], Value::Null, "{record}");
        let reason = record["reason"].as_str();
        assert_eq!(reason.is_some(), expected.is_some(), "{record}");
        let is_expected = reason
            .unwrap_or_default()
            .contains(expected.unwrap_or_default());
        assert!(is_expected, "{record}");
        let value = u8::from(works);
        let labels = format!("probe=\"{probe}\",runtime_class=\"\"");
        let line = format!("sandbox_operator_cluster_probe_works{{{labels}}} {value}");
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_probes_of_memory_are_recorded_with_the_reason_and_repeated_after_an_hour() {
    let pod_security = "pods \"sandbox-memory-probe\" is forbidden: violates PodSecurity \
        \"baseline:latest\": non-default capabilities (container \"probe\" must not include \
        \"SYS_PTRACE\" in securityContext.capabilities.add), seccompProfile (container \"probe\" must \
        not set securityContext.seccompProfile.type to \"Unconfined\")";
    let policy = "pods \"sandbox-memory-probe\" is forbidden: ValidatingAdmissionPolicy 'seccomp' \
        with binding 'seccomp' denied request: failed expression: false";
    for message in [pod_security, policy] {
        let mut cluster = TestCluster::without_controller();
        cluster.config.pods.user_namespaces = UserNamespaces::Auto;
        cluster.config.persistence.memory = true;
        let is_pod = |r: &RequestInfo| r.verb == Verb::Create && r.resource == "pods";
        let rejection = Failure::Forbidden(message);
        cluster.faults().fail_next(usize::MAX, rejection, is_pod);
        cluster.start_controller();
        sleep(Duration::from_mins(1)).await;
        let (_, reason) = message.split_once("is forbidden: ").unwrap();
        assert_known(&cluster, false, Some(reason)).await;

        cluster.faults().clear_failures();
        for (_, pod) in PROBES {
            cluster.node.script_next_pod(pod, PodScript::Succeeds);
        }
        sleep(Duration::from_mins(61)).await;
        assert_known(&cluster, true, None).await;
    }
}
