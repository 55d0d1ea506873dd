//! The allow-list of fields. A field that Kubernetes adds later is not allowed before it is listed.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::reconcile::build::security_profile::SUDO;

/// Fields of a Pod.
const POD: &str = "activeDeadlineSeconds affinity containers dnsConfig dnsPolicy \
    enableServiceLinks hostAliases hostname imagePullSecrets initContainers nodeName nodeSelector \
    priorityClassName readinessGates resourceClaims restartPolicy runtimeClassName schedulerName \
    schedulingGates securityContext setHostnameAsFQDN shareProcessNamespace subdomain \
    terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes";
const POD_SECURITY: &str = "appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot \
    runAsUser seccompProfile supplementalGroups supplementalGroupsPolicy";
const CONTAINER: &str = "args command env envFrom image imagePullPolicy lifecycle livenessProbe \
    name ports readinessProbe resizePolicy resources restartPolicy securityContext startupProbe \
    stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts \
    workingDir";
const CONTAINER_SECURITY: &str = "allowPrivilegeEscalation appArmorProfile capabilities \
    readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser seccompProfile";
const PORT: &str = "containerPort name protocol";
/// Volumes of the restricted Pod Security Standard.
const VOLUME: &str = "configMap csi downwardAPI emptyDir ephemeral image name \
    persistentVolumeClaim projected secret";
const PROJECTED_SOURCE: &str = "configMap downwardAPI secret";
/// Fields that grant nothing when they are false.
const SAFE_IF_FALSE: &str = "automountServiceAccountToken hostIPC hostNetwork hostPID hostUsers \
    privileged";
/// Prefixes of annotations that no container runtime and no network plugin reads.
const ANNOTATION_PREFIXES: &str = "cluster-autoscaler.kubernetes.io karpenter.sh \
    kubectl.kubernetes.io prometheus.io";
/// Parts of a container that can contain a request.
const PROBES: [&str; 4] = [
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Returns whether a list of words has this one.
fn lists(words: &str, word: &str) -> bool {
    words.split(' ').any(|listed| listed == word)
}

/// The first difference between the Pods that is not allowed.
pub(super) fn first_violation(built: &Pod, merged: &Pod) -> serde_json::Result<Option<String>> {
    let (built, merged) = (serde_json::to_value(built)?, serde_json::to_value(merged)?);
    let violation = metadata(&built["metadata"], &merged["metadata"])
        .or_else(|| pod(&built["spec"], &merged["spec"]));
    Ok(violation)
}

/// Labels and annotations without a prefix are private to users. Those of Kubernetes and of this
/// operator could select the Pod for Services or configure the node.
fn metadata(built: &Value, merged: &Value) -> Option<String> {
    let reserved = |prefix: &str| {
        let of = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
        ["kubernetes.io", "k8s.io", "openhands.dev"]
            .into_iter()
            .any(of)
    };
    let changed = |field: &'static str| {
        let known = built[field].as_object();
        let all = merged[field].as_object().into_iter().flatten();
        all.filter(move |(key, value)| known.and_then(|k| k.get(*key)) != Some(*value))
            .filter_map(|(key, _)| Some((key, key.split_once('/')?.0)))
    };
    let mut labels = changed("labels").filter(|(_, prefix)| reserved(prefix));
    let mut notes = changed("annotations").filter(|(_, p)| !lists(ANNOTATION_PREFIXES, p));
    let label = labels.next().map(|(key, _)| format!("the label {key}"));
    label.or_else(|| notes.next().map(|(key, _)| format!("the annotation {key}")))
}

fn pod(built: &Value, merged: &Value) -> Option<String> {
    let class = merged["priorityClassName"].as_str();
    unlisted(built, merged, POD)
        .or_else(|| {
            let system = class.is_some_and(|name| name.starts_with("system-"));
            (system && merged["priorityClassName"] != built["priorityClassName"])
                .then(|| "a priorityClassName of the system".to_owned())
        })
        .or_else(|| pod_security(&built["securityContext"], &merged["securityContext"]))
        .or_else(|| changed_items(built, merged, "volumes").find_map(|(_, v)| volume(v)))
        .or_else(|| {
            let all = ["containers", "initContainers"].into_iter();
            let mut all = all.flat_map(|list| changed_items(built, merged, list));
            all.find_map(|(built, merged)| container(built, merged))
        })
}

/// The first field of `merged` that differs from `built` and is not listed.
fn unlisted(built: &Value, merged: &Value, listed: &str) -> Option<String> {
    let mut fields = merged.as_object().into_iter().flatten();
    let other = fields.find(|(name, value)| {
        let harmless = lists(SAFE_IF_FALSE, name) && **value == Value::Bool(false);
        !lists(listed, name) && built.get(name.as_str()) != Some(*value) && !harmless
    });
    other.map(|(name, _)| name.clone())
}

/// Items of a list that the template added or changed, each with the built one of its name.
fn changed_items<'a>(
    built: &'a Value,
    merged: &'a Value,
    list: &'a str,
) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    let before = built[list].as_array().into_iter().flatten();
    let after = merged[list].as_array().into_iter().flatten();
    let pairs = after.map(move |item| {
        let mut before = before.clone();
        let same = before.find(|known| known["name"] == item["name"]);
        (same.unwrap_or(&Value::Null), item)
    });
    pairs.filter(|(before, after)| before != after)
}

fn pod_security(built: &Value, merged: &Value) -> Option<String> {
    let absent =
        || (!merged["seccompProfile"].is_object()).then(|| "seccompProfile Unconfined".into());
    let field = unlisted(built, merged, POD_SECURITY);
    let found = field.or_else(absent).or_else(|| unconfined(merged))?;
    Some(format!("securityContext.{found}"))
}

/// A profile that confines nothing.
fn unconfined(security: &Value) -> Option<String> {
    let is_unconfined = |profile: &&str| {
        let kind = security[*profile]["type"].as_str();
        kind.is_some_and(|kind| !matches!(kind, "RuntimeDefault" | "Localhost"))
    };
    let mut profiles = ["seccompProfile", "appArmorProfile"].into_iter();
    profiles
        .find(is_unconfined)
        .map(|profile| format!("{profile} Unconfined"))
}

fn volume(volume: &Value) -> Option<String> {
    let sources = volume["projected"]["sources"].as_array();
    let mut sources = sources.into_iter().flatten();
    let field = unlisted(&Value::Null, volume, VOLUME);
    let what = field
        .or_else(|| sources.find_map(|source| unlisted(&Value::Null, source, PROJECTED_SOURCE)))?;
    Some(format!("{what} of volume {}", volume["name"].as_str()?))
}

fn container(built: &Value, merged: &Value) -> Option<String> {
    let mut ports = merged["ports"].as_array().into_iter().flatten();
    let security = &merged["securityContext"];
    let what = unlisted(built, merged, CONTAINER)
        .or_else(|| ports.find_map(|port| unlisted(&Value::Null, port, PORT)))
        .or_else(|| {
            PROBES
                .iter()
                .find_map(|probe| foreign_host(&merged[*probe]))
        })
        .or_else(|| unlisted(&built["securityContext"], security, CONTAINER_SECURITY))
        .or_else(|| unconfined(security))
        .or_else(|| capability(&security["capabilities"]))?;
    Some(format!("{what} of container {}", merged["name"].as_str()?))
}

/// Capabilities beyond the profile `sudo`. Without `drop: [ALL]` those of the runtime stay.
fn capability(capabilities: &Value) -> Option<String> {
    let items = |field: &str| capabilities[field].as_array().into_iter().flatten();
    if !items("drop").any(|name| name == "ALL") {
        return Some("securityContext.capabilities without drop: [ALL]".to_owned());
    }
    let mut added = items("add").filter_map(Value::as_str);
    let name = added.find(|name| !lists(SUDO, name))?;
    Some(format!("the capability {name}"))
}

/// The kubelet would send requests to this host from the node.
fn foreign_host(probe: &Value) -> Option<String> {
    let mut fields = probe.as_object()?.iter();
    fields.find_map(|(name, value)| {
        let target = matches!(name.as_str(), "httpGet" | "tcpSocket") && value["host"].is_string();
        target
            .then(|| format!("{name}.host"))
            .or_else(|| foreign_host(value))
    })
}
