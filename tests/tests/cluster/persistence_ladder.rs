//! Sandboxes of level `Memory` in namespaces whose policies reject some Pods: what their pauses keep,
//! and the reason in the status.

use crds::conditions::Reason;
use crds::contract::persistence::{PersistenceLevel, RootMechanism};
use crds::sandbox::SandboxStatus;
use serde_json::{Value, json};
use tests::cli_tools::{apply, kubectl_words, manifest, try_kubectl, until};

use crate::installation::IMAGE;
use crate::persistence::{best_mechanism, probe_record};
use crate::test_namespace::TestNamespace;

const NO_MEMORY: &str =
    "Pod Security or another policy of the namespace rejects Pods that can save processes";
const NO_ROOT: &str = "Pod Security or another policy of the namespace rejects Pods that can save \
    files outside of the workspace";
const NO_OVERLAY: &str = "the changed files are in an overlay on the volume, and Pod Security or \
    another policy of the namespace rejects Pods that can mount it";
const OTHER_USER: &str = "changed files can only be read by a sandbox that starts as user 0";

const PROBES: &str = "sandbox-operator-cluster-probes";

/// Level, mechanism of the volume, and the reason why it is less than asked for.
type Kept = (
    PersistenceLevel,
    Option<RootMechanism>,
    Option<&'static str>,
);

/// Prints a random word of the process and the number of questions whenever it is asked.
const PROCESS: &str = "word=$(cat /proc/sys/kernel/random/uuid); number=0; while sleep 0.05; do \
    [ ! -e /tmp/ask ] || { number=$((number + 1)); echo $word $number >/tmp/answer; rm /tmp/ask; }; done";
const ASK: &str = "touch /tmp/ask; while [ -e /tmp/ask ]; do sleep 0.05; done; cat /tmp/answer";

fn sandbox() -> Value {
    json!({"command": ["sh", "-c", PROCESS], "workspace": {"size": "1Gi"}, "persistence": "Memory"})
}

/// Changes a file, pauses and resumes. Every start and every pause says what it kept, and the file is
/// there if files outside of the workspace are kept.
async fn assert_kept(ns: &TestNamespace, name: &str, (level, mechanism, reason): Kept) {
    let status = ns.ready(name).await;
    let incarnation = status.incarnation;
    assert_eq!(status.root_mechanism, mechanism, "{}", ns.namespace);
    let ask = |status: &SandboxStatus| ns.exec(status.pod_name.as_deref().unwrap(), ASK);
    let before = ask(&status);
    ns.exec(status.pod_name.as_deref().unwrap(), "echo kept >/tmp/kept");
    ns.patch(name, json!({"state": "Paused"})).await;
    let persisted = ns.paused(name).await.persisted.unwrap();
    let expected = (level, reason.map(str::to_owned));
    assert_eq!(
        (persisted.level, persisted.reason),
        expected,
        "{}",
        ns.namespace
    );
    ns.patch(name, json!({"state": "Running"})).await;
    let status = ns.ready(name).await;
    let restored = status.restored.clone().unwrap();
    assert_eq!(
        (restored.level, restored.reason),
        expected,
        "{}",
        ns.namespace
    );
    let went_on = level == PersistenceLevel::Memory;
    assert_eq!(status.incarnation, incarnation + u32::from(!went_on));
    let goes_on = before.strip_suffix(" 1").map(|word| format!("{word} 2"));
    assert_eq!(goes_on == Some(ask(&status)), went_on, "{}", ns.namespace);
    let file = ns.exec(status.pod_name.as_deref().unwrap(), "cat /tmp/kept || true");
    let is_kept = level > PersistenceLevel::Workspace;
    assert_eq!(file == "kept", is_kept, "{}: {file}", ns.namespace);
}

/// The controller has tried both kinds of Pods that save processes, and kept the answers.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn persistence_ladder_that_probes_found() {
    let ns = TestNamespace::of_gateway().await;
    let has_namespaces = best_mechanism(&ns).await == RootMechanism::Overlay;
    for (probe, works) in [
        ("memory_with_host_users", true),
        ("memory_in_user_namespaces", has_namespaces),
    ] {
        let read =
            format!("get configmap {PROBES} -o jsonpath={{.data.{probe}}} --ignore-not-found");
        until(probe, || !ns.kubectl(&read).is_empty());
        let record = probe_record(&ns, probe).await;
        assert_eq!(record["works"], works, "{probe}: {record}");
        assert_eq!(record["reason"].is_null(), works, "{probe}: {record}");
    }
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn persistence_ladder_by_pod_security() {
    let best = best_mechanism(&TestNamespace::of_gateway().await).await;
    let archive = Some(RootMechanism::Archive);
    let baseline = (PersistenceLevel::Root, archive, Some(NO_MEMORY));

    let ns = TestNamespace::with_pod_security("privileged", "privileged").await;
    ns.apply("root", &sandbox());
    assert_kept(&ns, "root", (PersistenceLevel::Memory, Some(best), None)).await;
    // The volume keeps its mechanism: the files of an overlay are not hidden by an archive.
    ns.patch("root", json!({"state": "Paused"})).await;
    ns.paused("root").await;
    ns.enforce_pod_security("baseline");
    wait_until_denied(&ns, "violates PodSecurity");
    ns.patch("root", json!({"state": "Running"})).await;
    let later = match best {
        RootMechanism::Overlay => (PersistenceLevel::Workspace, Some(best), Some(NO_OVERLAY)),
        RootMechanism::Archive | RootMechanism::Node => baseline,
    };
    assert_kept(&ns, "root", later).await;

    let ns = TestNamespace::with_pod_security("baseline", "baseline").await;
    wait_until_denied(&ns, "violates PodSecurity");
    ns.apply("root", &sandbox());
    assert_kept(&ns, "root", baseline).await;

    // A sandbox that starts as root is rejected at every level.
    let ns = TestNamespace::with_pod_security("restricted", "restricted").await;
    wait_until_denied(&ns, "violates PodSecurity");
    ns.apply("root", &sandbox());
    let refused = |status: &SandboxStatus| status.reason == Some(Reason::Refused);
    let message = ns.until("root", "refused", refused).await.message.unwrap();
    assert!(message.contains("runAsNonRoot != true"), "{message}");
    assert!(
        !message.contains("Unconfined"),
        "of the lowest level: {message}"
    );
    let mut user = sandbox();
    user["securityContext"] = json!({"runAsUser": 1000});
    ns.apply("user", &user);
    let kept = (PersistenceLevel::Workspace, None, Some(OTHER_USER));
    assert_kept(&ns, "user", kept).await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn persistence_ladder_of_warm_pods() {
    let ns = TestNamespace::with_pod_security("warm", "baseline").await;
    wait_until_denied(&ns, "violates PodSecurity");
    let template = json!({"image": IMAGE, "workspace": {"size": "1Gi"}, "persistence": "Memory"});
    let pool = json!({"replicas": 1, "template": template});
    let pool = manifest("SandboxPool", "p", &pool).to_string();
    apply(&pool, &["-n", &ns.namespace]);
    ns.kubectl("wait --for=condition=Ready sbxp/p --timeout=2m");
    let spec = json!({"pool": "p", "command": ["sh", "-c", PROCESS]});
    let sandbox = manifest("Sandbox", "claims", &spec).to_string();
    apply(&sandbox, &["-n", &ns.namespace]);
    assert!(ns.ready("claims").await.warm);
    let archive = Some(RootMechanism::Archive);
    let kept = (PersistenceLevel::Root, archive, Some(NO_MEMORY));
    assert_kept(&ns, "claims", kept).await;
    ns.kubectl("delete sbxp/p");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn persistence_ladder_by_admission_policy() {
    let best = best_mechanism(&TestNamespace::of_gateway().await).await;
    for (name, expression, kept) in [
        (
            "seccomp-forced",
            "object.spec.containers.all(c, c.?securityContext.seccompProfile.type.orValue('') != 'Unconfined')",
            (PersistenceLevel::Root, Some(best), Some(NO_MEMORY)),
        ),
        (
            "no-capabilities",
            "object.spec.containers.all(c, !c.?securityContext.capabilities.add.hasValue())",
            (PersistenceLevel::Workspace, None, Some(NO_ROOT)),
        ),
    ] {
        let ns = TestNamespace::new(name).await;
        let policy = AdmissionPolicy::new(&ns, expression);
        wait_until_denied(&ns, "denied request");
        ns.apply("root", &sandbox());
        assert_kept(&ns, "root", kept).await;
        drop(policy);
    }
}

/// Waits until the API server acts on the policy of the namespace, which it learns by a watch.
fn wait_until_denied(ns: &TestNamespace, text: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
        "spec": {"containers": [{
            "name": "probe", "image": IMAGE,
            "securityContext": {
                "seccompProfile": {"type": "Unconfined"},
                "capabilities": {"add": ["SYS_ADMIN"]},
            },
        }]},
    });
    let pod = pod.to_string();
    let args = ["create", "--dry-run=server", "-n", &ns.namespace, "-f", "-"];
    until("the policy is in force", || {
        try_kubectl(&args, &pod).is_err_and(|said| said.contains(text))
    });
}

/// A `ValidatingAdmissionPolicy` for the Pods of one namespace, removed at the end.
struct AdmissionPolicy(String);

impl AdmissionPolicy {
    fn new(ns: &TestNamespace, expression: &str) -> Self {
        let name = ns.namespace.clone();
        let group = "admissionregistration.k8s.io/v1";
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
        });
        let policy = json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression}],
            },
        });
        let namespace = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let binding = json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": namespace},
            },
        });
        apply(&format!("{policy}\n---\n{binding}"), &[]);
        Self(name)
    }
}

impl Drop for AdmissionPolicy {
    fn drop(&mut self) {
        let kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy";
        kubectl_words(&format!("delete {kinds} {} --ignore-not-found", self.0));
    }
}
