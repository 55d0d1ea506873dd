//! The release under test: its namespaces, its values, and how clients reach it.

use client::Client;
use serde_json::{Value, json};
use tests::cli_tools::{CHART, CRDS_CHART, get, helm, kubectl, kubectl_words};

/// Namespace of the operator. It takes Pods of the profile `restricted` only.
pub(crate) const NAMESPACE: &str = "operators";
/// Namespace of the sandboxes, which the chart makes.
pub(crate) const SANDBOXES: &str = "sandboxes";
pub(crate) const NAME: &str = "sandbox-operator";
pub(crate) const IMAGE: &str = "localhost/sandbox-test:1";
pub(crate) const PASSWORD: &str = "a password of administrators";

/// Values of the release.
pub(crate) struct Release {
    values: tempfile::NamedTempFile,
    /// Address of clients.
    pub(crate) url: String,
}

impl Release {
    /// Decides the address of the gateway's Service, which this machine reaches.
    pub(crate) fn plan() -> Self {
        let machine = std::env::var("CLUSTER_HOST").unwrap();
        let cluster = machine.split('.').nth(2).unwrap();
        let address = format!("10.97.{cluster}.50");
        let url = format!("http://{address}:5000");
        let values = json!({
            "baseUrl": url, "urlForm": "path",
            "image": {"tag": "dev", "pullPolicy": "Never"}, "executorImage": {"tag": "dev"},
            "admin": {"existingSecret": "sandbox-operator-admin"},
            "sandboxes": {
                "namespace": SANDBOXES, "createNamespace": true,
                "workspace": {"size": "100Mi"},
                "requests": {"cpu": "50m", "memory": "64Mi"},
            },
            "gateway": {"service": {"clusterIP": address}},
            "pool": {"enabled": true, "spec": {"template": {"image": IMAGE}}},
            "flowControl": {"enabled": true},
            "tests": {"image": IMAGE},
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), values.to_string()).unwrap();
        Self { values: file, url }
    }

    /// Both charts on an empty cluster; everything is ready within a minute.
    pub(crate) fn install(&self) {
        helm(&["install", "crds", CRDS_CHART, "--wait"]);
        kubectl_words(&format!("create namespace {NAMESPACE}"));
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        kubectl_words(&format!("label namespace {NAMESPACE} {restricted}"));
        let password = format!("--from-literal=password={PASSWORD}");
        let secret = ["create", "secret", "generic", "sandbox-operator-admin"];
        kubectl(&[&secret[..], &["-n", NAMESPACE, &password]].concat());
        self.helm("install", &[]);
    }

    /// A client of the runtime API with the key that the installation made.
    pub(crate) fn client(&self) -> Client {
        tests::session::client(&self.url, &api_key())
    }

    /// `helm install` or `helm upgrade` with the values, and some more flags.
    pub(crate) fn helm(&self, action: &str, more: &[&str]) {
        let values = format!("--values={}", self.values.path().display());
        let namespace = format!("--namespace={NAMESPACE}");
        let args = [action, NAME, CHART, &namespace, &values];
        helm(&[&args[..], &["--wait", "--timeout=60s"], more].concat());
    }
}

pub(crate) fn api_key() -> String {
    let template = "--template={{.data.key | base64decode}}";
    let name = "sandbox-operator-default-key";
    kubectl(&["get", "secret", name, "-n", NAMESPACE, template])
}

/// Names of all objects of a kind in a namespace.
pub(crate) fn names(namespace: &str, kind: &str) -> Vec<String> {
    let list = get(&[kind, "-n", namespace]);
    let items = list["items"].as_array().unwrap().iter();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    items.map(name).collect()
}
