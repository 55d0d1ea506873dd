//! Facts about an installation, which the checks judge.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::finding::{Problem, failed, skipped};
use crate::kubernetes::ReadError;

/// Custom resources, as in their paths.
pub(super) const PLURALS: [&str; 4] = [
    "sandboxes",
    "sandboxpools",
    "sandboxsnapshots",
    "imagebuilds",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    Crds,
    Deployments,
    Leases,
    Secrets,
    StorageClasses,
    Namespaces,
    OwnPolicies,
    SandboxPolicies,
    Services,
    EndpointSlices,
    Ingresses,
    HttpRoutes,
    RuntimeClasses,
    Quotas,
    LimitRanges,
    ProbeRecords,
    Nodes,
}

/// Right that a component needs.
#[derive(Debug, Clone)]
pub(super) struct Right {
    pub(super) text: String,
    pub(super) is_allowed: Result<bool, ReadError>,
}

#[derive(Debug)]
pub(super) struct Facts {
    /// Prefix of the names of the chart's objects.
    pub(super) name: String,
    pub(super) namespace: String,
    /// None if the operator serves all namespaces, or is not there.
    pub(super) sandboxes: Option<String>,
    pub(super) version: Result<Value, String>,
    /// Seconds by which the clock of the API server is ahead of that of this machine.
    pub(super) clock_ahead: Option<f64>,
    /// Now by the clock of the API server.
    pub(super) now: Timestamp,
    pub(super) objects: BTreeMap<Resource, Result<Vec<Value>, ReadError>>,
    pub(super) rights: Vec<Right>,
    /// Hosts of the URLs of the gateway, and what this machine's resolver says of them.
    pub(super) hosts: Vec<Host>,
}

/// Host of a URL.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) name: String,
    /// Error text of the resolver.
    pub(super) resolved: Result<(), String>,
}

impl Facts {
    pub(super) fn list(&self, resource: Resource) -> Result<&[Value], Problem> {
        match self.objects.get(&resource) {
            Some(Ok(objects)) => Ok(objects),
            Some(Err(error @ (ReadError::Forbidden(_) | ReadError::NotFound(_)))) => {
                Err(skipped(error.to_string()))
            }
            Some(Err(error)) => Err(failed(error.to_string(), "run `sandbox doctor` again")),
            None => Err(skipped("the API server was not reached")),
        }
    }

    pub(super) fn find(&self, resource: Resource, name: &str) -> Result<Option<&Value>, Problem> {
        let objects = self.list(resource)?;
        Ok(objects.iter().find(|object| name_of(object) == name))
    }

    /// Deployment of a component.
    pub(super) fn deployment(&self, component: &str) -> Result<&Value, Problem> {
        let name = format!("{}-{component}", self.name);
        let found = self.find(Resource::Deployments, &name)?;
        found.ok_or_else(|| skipped(format!("Deployment {name} is absent")))
    }
}

pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Secrets with certificates: those of the Ingress and of the gateways. At most a few.
pub(super) fn certificate_secrets(facts: &Facts) -> Vec<String> {
    const MAX: usize = 8;
    let ingress = facts.find(Resource::Ingresses, &facts.name).ok().flatten();
    let entries = ingress.and_then(|ingress| ingress["spec"]["tls"].as_array());
    let entries = entries.into_iter().flatten();
    let of_ingress = entries.filter_map(|entry| entry["secretName"].as_str());
    let mut names: Vec<_> = of_ingress.chain(gateway_secret(facts)).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().take(MAX).map(str::to_owned).collect()
}

/// Secret with which gateways speak TLS themselves.
fn gateway_secret(facts: &Facts) -> Option<&str> {
    let gateway = facts.deployment("gateway").ok()?;
    let volumes = gateway["spec"]["template"]["spec"]["volumes"].as_array()?;
    let volume = volumes.iter().find(|volume| volume["name"] == "tls")?;
    volume["secret"]["secretName"].as_str()
}
