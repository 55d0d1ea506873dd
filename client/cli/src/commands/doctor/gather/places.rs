//! Paths of the objects that are read. Where the name is known, only that object is: lists of Secrets
//! and of custom resources are large, and fewer users may read them.

use super::super::facts::{Facts, PLURALS, Resource, certificate_secrets};

const GROUP: &str = "openhands.dev";

#[derive(Debug)]
pub(super) struct Place {
    pub(super) collection: String,
    /// None reads all.
    pub(super) names: Option<Vec<String>>,
}

pub(super) fn place(resource: Resource, facts: &Facts) -> Place {
    let own = format!("namespaces/{}", facts.namespace);
    let sandboxes = facts.sandboxes.clone().unwrap_or_default();
    let of_sandboxes = format!("namespaces/{sandboxes}");
    let collection = match resource {
        Resource::Crds => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(),
        Resource::Deployments => format!("/apis/apps/v1/{own}/deployments"),
        Resource::Leases => format!("/apis/coordination.k8s.io/v1/{own}/leases"),
        Resource::Secrets => format!("/api/v1/{own}/secrets"),
        Resource::StorageClasses => "/apis/storage.k8s.io/v1/storageclasses".into(),
        Resource::Namespaces => "/api/v1/namespaces".into(),
        Resource::OwnPolicies => format!("/apis/networking.k8s.io/v1/{own}/networkpolicies"),
        Resource::SandboxPolicies => {
            format!("/apis/networking.k8s.io/v1/{of_sandboxes}/networkpolicies")
        }
        Resource::Services => format!("/api/v1/{own}/services"),
        Resource::EndpointSlices => format!("/apis/discovery.k8s.io/v1/{own}/endpointslices"),
        Resource::Ingresses => format!("/apis/networking.k8s.io/v1/{own}/ingresses"),
        Resource::HttpRoutes => format!("/apis/gateway.networking.k8s.io/v1/{own}/httproutes"),
        Resource::RuntimeClasses => "/apis/node.k8s.io/v1/runtimeclasses".into(),
        Resource::Quotas => format!("/api/v1/{of_sandboxes}/resourcequotas"),
        Resource::LimitRanges => format!("/api/v1/{of_sandboxes}/limitranges"),
        Resource::ProbeRecords => format!("/api/v1/{own}/configmaps"),
        Resource::Nodes => "/api/v1/nodes".into(),
    };
    Place {
        collection,
        names: names(resource, facts, sandboxes),
    }
}

fn names(resource: Resource, facts: &Facts, sandboxes: String) -> Option<Vec<String>> {
    let name = &facts.name;
    let components = || vec![format!("{name}-controller"), format!("{name}-gateway")];
    match resource {
        Resource::Crds => {
            let full = PLURALS.iter().map(|plural| format!("{plural}.{GROUP}"));
            Some(full.collect())
        }
        Resource::Deployments | Resource::OwnPolicies => Some(components()),
        Resource::SandboxPolicies => Some(vec![format!("{name}-sandboxes")]),
        Resource::Leases => Some(vec!["sandbox-operator-controller".into()]),
        Resource::Secrets => {
            let keys = ["sandbox-operator-root-key", "sandbox-api-keys"];
            let keys = keys.into_iter().map(str::to_owned);
            Some(keys.chain(certificate_secrets(facts)).collect())
        }
        Resource::Namespaces if !sandboxes.is_empty() => Some(vec![sandboxes]),
        Resource::Namespaces => Some(Vec::new()),
        Resource::Services => Some(vec![format!("{name}-gateway")]),
        Resource::Ingresses | Resource::HttpRoutes => Some(vec![name.clone()]),
        Resource::ProbeRecords => Some(vec!["sandbox-operator-cluster-probes".into()]),
        Resource::StorageClasses
        | Resource::EndpointSlices
        | Resource::RuntimeClasses
        | Resource::Quotas
        | Resource::LimitRanges
        | Resource::Nodes => None,
    }
}
