//! Gateway of an installation: its Pods and how to reach them.

use std::net::IpAddr;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use shared::tenants::{DEFAULT_KEY_FIELD, DEFAULT_KEY_SECRET};

use super::port_forward::{self, Socket};
use super::{CHART, Installation, variable};
use crate::failure::Failure;
use crate::kubernetes::{ReadError, get};

/// Pods of gateways that are looked at.
const MAX_PODS: usize = 50;
/// Name of the container port.
const PORT: &str = "http";
/// Secret and field of the first API key, as `NAME/FIELD`.
const KEY_ANNOTATION: &str = "openhands.dev/first-api-key";
const MAX_ATTEMPTS: u32 = 3;
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// Gateway that is reached through the API server.
#[derive(derive_more::Debug)]
pub(crate) struct Gateway {
    #[debug(skip)]
    client: Client,
    namespace: String,
    deployment: Value,
}

impl Gateway {
    pub(crate) async fn find(installation: &Installation, client: Client) -> Result<Self, Failure> {
        let (namespace, release) = (installation.namespace(), installation.release());
        let labels = [
            ("name", CHART),
            ("instance", release),
            ("component", "gateway"),
        ];
        let labels = labels.map(|(label, value)| format!("app.kubernetes.io/{label}={value}"));
        let path = format!(
            "/apis/apps/v1/namespaces/{namespace}/deployments?labelSelector={}",
            labels.join(",")
        );
        let deployment = match get(&client, &path).await {
            Ok(mut list) => list.body["items"].get_mut(0).map(Value::take),
            // Standalone's own API has no Deployments.
            Err(ReadError::NotFound(_)) => None,
            Err(error) => return Err(Failure::Local(error.to_string())),
        };
        let absent = || {
            Failure::Usage(format!(
                "namespace {namespace} has no gateway of a Helm release {release}: choose the \
                 installation by --operator-namespace and --release"
            ))
        };
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            deployment: deployment.ok_or_else(absent)?,
        })
    }

    /// URL of the gateway for clients that connect to a forwarded port. A gateway that speaks TLS has
    /// a certificate for its public name.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        if !self.has_tls() {
            let name = &self.deployment["metadata"]["name"];
            let name = name.as_str().unwrap_or_default();
            return Ok(format!("http://{name}.{}.svc", self.namespace));
        }
        let base = variable(&self.deployment, "BASE_URL").unwrap_or_default();
        let parsed: Option<http::Uri> = base.parse().ok();
        let host = parsed.as_ref().and_then(http::Uri::host);
        let is_name = |host: &&str| !host.starts_with('[') && host.parse::<IpAddr>().is_err();
        let host = host.filter(is_name).ok_or_else(|| {
            Failure::Local(format!(
                "the gateway speaks TLS, and its base URL {base:?} has no host name: set \
                 SANDBOX_API_URL"
            ))
        })?;
        Ok(format!("https://{host}"))
    }

    /// The first API key of the installation, which the chart keeps in a Secret.
    pub(crate) async fn first_key(&self) -> Result<String, Failure> {
        let annotation = self.deployment["metadata"]["annotations"][KEY_ANNOTATION].as_str();
        let place = annotation.and_then(|place| place.split_once('/'));
        let (name, field) = place.unwrap_or((DEFAULT_KEY_SECRET, DEFAULT_KEY_FIELD));
        let path = format!("/api/v1/namespaces/{}/secrets/{name}", self.namespace);
        let found = get(&self.client, &path).await.map_err(|error| {
            Failure::Usage(format!(
                "{error}; make an API key with `sandbox keys create NAME`, and set SANDBOX_API_KEY"
            ))
        })?;
        let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(found.body)
            .map_err(|error| Failure::Local(format!("{path}: {error}")))?;
        let key = secret.data.unwrap_or_default().remove(field);
        let key = key.and_then(|key| String::from_utf8(key.0).ok());
        let missing = || Failure::Local(format!("Secret {name} has no text {field}"));
        Ok(key.ok_or_else(missing)?.trim().to_owned())
    }

    /// Connects to a ready Pod, and to another one if it has just ended.
    pub(super) async fn open(&self) -> Result<Socket, Failure> {
        let mut attempt = 1;
        loop {
            let opened = self.open_once().await;
            if opened.is_ok() || attempt == MAX_ATTEMPTS {
                return opened;
            }
            tokio::time::sleep(attempt * RETRY_INTERVAL).await;
            attempt += 1;
        }
    }

    async fn open_once(&self) -> Result<Socket, Failure> {
        let no_port = || Failure::Local(format!("the gateway has no container port {PORT}"));
        let port = self.port().ok_or_else(no_port)?;
        let pod = self.pod().await?;
        port_forward::open(&self.client, &self.namespace, &pod, port).await
    }

    async fn pod(&self) -> Result<String, Failure> {
        let labels = self.deployment["spec"]["selector"]["matchLabels"].as_object();
        let labels: Vec<_> = labels
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
            .collect();
        let path = format!(
            "/api/v1/namespaces/{}/pods?limit={MAX_PODS}&labelSelector={}",
            self.namespace,
            labels.join(",")
        );
        let list = get(&self.client, &path).await;
        let list = list
            .map_err(|error| Failure::Local(error.to_string()))?
            .body;
        let pods = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let ready: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).collect();
        let chosen = fastrand::choice(ready).and_then(|pod| pod["metadata"]["name"].as_str());
        let absent = || {
            Failure::Local(format!(
                "no Pod of the gateway in namespace {} is ready: see `sandbox doctor`",
                self.namespace
            ))
        };
        chosen.map(str::to_owned).ok_or_else(absent)
    }

    fn port(&self) -> Option<u16> {
        let container = &self.deployment["spec"]["template"]["spec"]["containers"][0];
        let ports = container["ports"].as_array()?;
        let port = ports.iter().find(|port| port["name"] == PORT)?;
        port["containerPort"].as_u64()?.try_into().ok()
    }

    fn has_tls(&self) -> bool {
        let volumes = self.deployment["spec"]["template"]["spec"]["volumes"].as_array();
        volumes.is_some_and(|volumes| volumes.iter().any(|volume| volume["name"] == "tls"))
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ending = !pod["metadata"]["deletionTimestamp"].is_null();
    let mut conditions = conditions.into_iter().flatten();
    !is_ending && conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}
