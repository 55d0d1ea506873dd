//! A namespace with sandboxes, as kubectl and the API server see them.

use std::fmt::Debug;
use std::process::Command;
use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{Phase, SandboxStatus};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tests::binaries::binary;
use tokio::time::timeout;

use crate::installation::IMAGE;
use tests::cli_tools::{apply, kubectl, kubectl_words, manifest};

/// The longest that anything here may take: an image is waited for for two minutes.
const WAIT_TIMEOUT: Duration = Duration::from_mins(3);

/// A namespace, removed at the end. Only that of the gateway was there before and stays.
pub(crate) struct TestNamespace {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl TestNamespace {
    /// Creates a namespace whose name begins with `name`.
    pub(crate) async fn new(name: &str) -> Self {
        let namespace = format!("{name}-{}", std::process::id());
        let client = client().await;
        kubectl(&["create", "namespace", &namespace]);
        Self { client, namespace }
    }

    /// Creates a namespace whose name begins with `name`, with this Pod Security level.
    pub(crate) async fn with_pod_security(name: &str, level: &str) -> Self {
        let ns = Self::new(name).await;
        ns.enforce_pod_security(level);
        ns
    }

    /// Sets the Pod Security level. Pods that run stay as they are.
    pub(crate) fn enforce_pod_security(&self, level: &str) {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        let words = format!("label --overwrite namespace {} {label}", self.namespace);
        kubectl_words(&words);
    }

    /// The namespace of the sandboxes that the runtime API makes.
    pub(crate) async fn of_gateway() -> Self {
        Self {
            client: client().await,
            namespace: "default".into(),
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.api()
    }

    /// Applies a Sandbox as kubectl does. Its image is that of the tests unless `spec` says otherwise.
    pub(crate) fn apply(&self, name: &str, spec: &Value) {
        let mut all =
            json!({"image": IMAGE, "podTemplate": {"spec": node_loss_tolerant_template()}});
        let fields = all.as_object_mut().unwrap();
        fields.extend(spec.as_object().unwrap().clone());
        let object = manifest("Sandbox", name, &all).to_string();
        apply(&object, &["-n", &self.namespace]);
    }

    /// Runs kubectl with these words in the namespace.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        kubectl_words(&format!("{words} -n {}", self.namespace))
    }

    pub(crate) async fn patch(&self, name: &str, spec: Value) {
        let (api, params) = (self.api::<Sandbox>(), PatchParams::default());
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch(name, &params, &patch).await.unwrap();
    }

    /// The object as the server has it now.
    pub(crate) async fn get<K>(&self, name: &str) -> K
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        self.api::<K>().get(name).await.unwrap()
    }

    /// Waits until this is true of the sandbox's status, and returns it.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&SandboxStatus) -> bool,
    ) -> SandboxStatus {
        let reached =
            |sandbox: Option<&Sandbox>| sandbox.and_then(|s| s.status.as_ref()).is_some_and(&holds);
        let found = timeout(WAIT_TIMEOUT, await_condition(self.api(), name, reached)).await;
        let Ok(found) = found else {
            let sandbox = self.kubectl(&format!("describe sbx {name}"));
            let pods = self.kubectl("describe pods");
            panic!("{name} is never {what}: {sandbox}\n{pods}");
        };
        found.unwrap().unwrap().status.unwrap()
    }

    pub(crate) async fn paused(&self, name: &str) -> SandboxStatus {
        self.until(name, "paused", |s| s.phase == Phase::Paused)
            .await
    }

    pub(crate) async fn ready(&self, name: &str) -> SandboxStatus {
        self.until(name, "ready", |s| s.phase == Phase::Running)
            .await
    }

    /// Waits until the sandbox was started again so often and is ready.
    pub(crate) async fn ready_again(&self, name: &str, restarts: u32) -> SandboxStatus {
        self.until(name, "ready again", |s| {
            s.phase == Phase::Running && s.restarts.count == restarts
        })
        .await
    }

    /// Waits until the kubelet has reported that the Pod is ready, which it does a little late.
    pub(crate) async fn reported(&self, pod: &str) {
        let ready = |pod: Option<&Pod>| {
            let conditions = pod.and_then(|p| p.status.as_ref()?.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let reported = await_condition(self.pods(), pod, ready);
        timeout(WAIT_TIMEOUT, reported).await.unwrap().unwrap();
    }

    /// Waits until the Pod of this uid is gone.
    pub(crate) async fn gone(&self, pod: &Pod) {
        let uid = pod.uid().unwrap();
        let name = pod.name_any();
        let gone = await_condition(self.pods(), &name, conditions::is_deleted(&uid));
        timeout(WAIT_TIMEOUT, gone).await.unwrap().unwrap();
    }

    /// Waits for an Event of this reason, and returns the texts of all.
    pub(crate) async fn wait_for_event(&self, name: &str, reason: &str) -> String {
        for _ in 0..300 {
            let said = self.event_notes(name, reason).await;
            if !said.is_empty() {
                return said;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no event {reason} of {name}");
    }

    /// Returns the texts of Events of this reason so far.
    pub(crate) async fn event_notes(&self, name: &str, reason: &str) -> String {
        let selector =
            format!("involvedObject.kind=Sandbox,involvedObject.name={name},reason={reason}");
        let params = ListParams::default().fields(&selector);
        let events = self.api::<Event>().list(&params).await.unwrap();
        let notes = events.items.into_iter().filter_map(|event| event.message);
        notes.collect::<Vec<_>>().join("\n")
    }

    /// Runs a script in the sandbox, past the gateway; what it printed.
    pub(crate) fn exec(&self, name: &str, script: &str) -> String {
        let place = ["exec", "-n", &self.namespace, name, "-c", "sandbox", "--"];
        let printed = kubectl(&[&place[..], &["sh", "-c", script]].concat());
        printed.trim_end().to_owned()
    }

    /// The session key that the sandbox was given.
    pub(crate) fn token(&self, name: &str) -> String {
        self.operator(&["token", name]).unwrap()
    }

    /// Returns output and error output of an administrator's command.
    pub(crate) fn operator(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(binary("sandbox-operator"));
        command.args(args).args(["--namespace", &self.namespace]);
        let output = command.output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Deletes it and waits until it is gone.
    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug + Send + 'static,
        K::DynamicType: Default,
    {
        let api = self.api::<K>();
        let uid = api.get(name).await.unwrap().uid().unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
        let gone = await_condition(api, name, conditions::is_deleted(&uid));
        timeout(WAIT_TIMEOUT, gone).await.unwrap().unwrap();
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        if self.namespace != "default" && !std::thread::panicking() {
            let delete = "delete namespace --ignore-not-found --wait=false";
            kubectl_words(&format!("{delete} {}", self.namespace));
        }
    }
}

/// A spec that does nothing and has a workspace.
pub(crate) fn sleeper() -> Value {
    json!({"command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}})
}

/// A client of the API server.
async fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::try_default().await.unwrap()
}

/// A Pod that ends soon when it is told to, and stays where it is while a test has the node be silent.
fn node_loss_tolerant_template() -> Value {
    let silence = |state: &str| {
        let key = format!("node.kubernetes.io/{state}");
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600})
    };
    json!({
        "terminationGracePeriodSeconds": 1,
        "tolerations": [silence("unreachable"), silence("not-ready")],
    })
}
